"""No circles of imports between the files of a folder: each can then be read after those it names.

A folder's nodes are its files and its subfolders, each subfolder as a whole; `mod.rs` (or the
`name.rs` beside `name/`) is a node too, by what stands in it: that it declares or re-exports the
others counts for nothing. Calls of methods name no file and are not seen.
"""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "rust/src"

OWN = "mod"  # the node of a folder's own file

Module = tuple[str, ...]


def modules(source: Path) -> dict[Module, Path]:
    """Every module that is a file, by its path below `crate`."""
    found = {}
    for file in source.rglob("*.rs"):
        parts = file.relative_to(source).with_suffix("").parts
        found[parts[:-1] if parts[-1] in ("mod", "lib") else parts] = file
    return found


def code_of(text: str) -> str:
    """The product's code: without comments, strings, tests, and declarations of modules."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r'"(?:\\.|[^"\\])*"', '""', text)
    text = re.sub(
        r"^#\[cfg\(test\)\]\nmod \w+ \{\n.*?^\}", "", text, flags=re.DOTALL | re.MULTILINE
    )
    return re.sub(r"^(?:pub(?:\([^)]*\))? )?mod \w+;", "", text, flags=re.MULTILINE)


def paths_in(tree: str, front: Module = ()) -> Iterator[Module]:
    """The paths of a `use` tree: `a::{b, c::{d, e}}` is a::b, a::c::d and a::c::e."""
    depth, start, parts = 0, 0, []
    for at, sign in enumerate(tree):
        depth += (sign == "{") - (sign == "}")
        if sign == "," and depth == 0:
            parts.append(tree[start:at])
            start = at + 1
    for part in [*parts, tree[start:]]:
        names, brace, inner = part.partition("{")
        words = front + tuple(word for word in re.split(r"::|\s+as\s+.*", names.strip()) if word)
        if brace:
            yield from paths_in(inner.rstrip().removesuffix("}"), words)
        elif words:
            yield words


def named_paths(text: str, children: set[str]) -> Iterator[Module]:
    """Paths that start with crate, super, self or a child. Who has children may re-export."""
    kept = r"(?:pub\(\S+\) )?" if children else r"(?:pub(?:\(\S+\))? )?"
    used = re.findall(rf"^\s*{kept}use ([^;]+);", text, re.MULTILINE)
    for tree in used:
        yield from paths_in(" ".join(tree.split()))
    rest = re.sub(r"^\s*(?:pub(?:\(\S+\))? )?use [^;]+;", "", text, flags=re.MULTILINE)
    firsts = "|".join(["crate", "super", "self", *sorted(children)])
    for path in re.findall(rf"(?<![\w:])((?:{firsts})(?:::\w+)+)", rest):
        yield tuple(path.split("::"))


def imports(known: dict[Module, Path]) -> Iterator[tuple[Module, Module]]:
    for module, file in known.items():
        text = code_of(file.read_text(encoding="utf-8"))
        children = {other[-1] for other in known if other[:-1] == module and other}
        inline = re.compile(
            r"^(?:pub(?:\([^)]*\))? )?mod \w+ \{\n(.*?)^\}", re.DOTALL | re.MULTILINE
        )
        outer = inline.sub("", text)
        inner = "".join(re.sub(r"\bsuper::", "self::", body) for body in inline.findall(text))
        for path in named_paths(outer + inner, children):
            target = resolved(module, path, children, known)
            if target is not None and target != module:
                yield module, target


def resolved(
    module: Module, path: Module, children: set[str], known: dict[Module, Path]
) -> Module | None:
    """The file's module in which the last name of `path` stands; `None` outside of the crate."""
    if path[0] == "crate":
        full = path[1:]
    elif path[0] in ("super", "self"):
        above = sum(1 for word in path if word == "super")
        full = module[: len(module) - above] + path[max(above, 1) :]
    elif path[0] in children:
        full = module + path
    else:
        return None
    while full not in known:
        full = full[:-1]
    return full


def circles(source: Path = SOURCE) -> dict[str, list[list[str]]]:
    """Gives the nodes of each circle, by its folder."""
    known = modules(source)
    edges: dict[Module, dict[str, set[str]]] = {}
    for module, target in imports(known):
        for depth in range(1, len(module) + 1):
            folder = module[:depth]
            if target[:depth] != folder:
                break
            mine, theirs = ((each[depth:] or (OWN,))[0] for each in (module, target))
            if mine != theirs:
                edges.setdefault(folder, {}).setdefault(mine, set()).add(theirs)
    found = {}
    for folder, graph in edges.items():
        groups = strongly_connected(graph)
        if groups:
            found["rust/src/" + "/".join(folder)] = groups
    return found


def strongly_connected(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of two or more that all reach one another."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for other in graph.get(todo.pop(), set()) - seen:
                seen.add(other)
                todo.append(other)
        return seen

    reached = {node: reach(node) for node in graph}
    groups = {
        tuple(sorted(other for other in reached[node] if node in reached.get(other, set())))
        for node in graph
        if node in reached[node]
    }
    return sorted(list(group) for group in groups)


def test_no_folder_has_a_circle_of_imports() -> None:
    found = circles()
    assert not found, "\n".join(f"{folder}: {groups}" for folder, groups in found.items())


def test_a_circle_is_seen() -> None:
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set()}
    assert strongly_connected(graph) == [["a", "b", "c"]]
    assert set(paths_in("crate::x::{self, y::{Z, w::V}, u as t}")) == {
        ("crate", "x", "self"),
        ("crate", "x", "y", "Z"),
        ("crate", "x", "y", "w", "V"),
        ("crate", "x", "u"),
    }
    known = {(): ROOT, ("x",): ROOT, ("x", "y"): ROOT}
    assert resolved(("x", "y"), ("super", "Thing"), set(), known) == ("x",)
    assert resolved(("x",), ("crate", "x", "y", "Thing"), {"y"}, known) == ("x", "y")
    assert resolved(("x",), ("std", "fmt"), {"y"}, known) is None

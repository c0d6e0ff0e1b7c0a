#!/usr/bin/env python3
"""Measures the tree, for `make house`: lengths, folders, import circles, asserts, words of docs.

    python3 tools/house.py [COMMIT]

With a commit, what that had stands beside what is there now. Counts are taken of the product's own
sources (rust/src, python, spark/jvm) by reading them, tests within a file aside; nothing is judged
here, tests/tidy does that.
"""

import ast
import importlib.util
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from itertools import dropwhile, pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("rust/src", "python/kafkalite", "python/pyspark_kafkalite", "spark/jvm")
SUFFIXES = {".rs", ".py", ".pyi", ".java"}
LINES_LONG = 500
FUNCTION_LINES_MAX = 70
ARM_LINES_MAX = 16
"""The longest arm of a match over an enum that does not make a function long."""
RIDDLES = ("What ", "Whether ", "Of ", "As well", "The same")
"""First words of a doc line that names neither its subject nor its verb."""


class Tree:
    """The product's sources below a folder, by their names there."""

    def __init__(self, root: Path) -> None:
        paths = [path for folder in PRODUCT for path in sorted((root / folder).rglob("*"))]
        self.root = root
        self.texts = {
            str(path.relative_to(root)): path.read_text(encoding="utf-8")
            for path in paths
            if path.suffix in SUFFIXES and path.is_file()
        }

    def of(self, *suffixes: str) -> Iterator[tuple[str, str]]:
        """Name and text of each file with one of the suffixes."""
        return ((name, text) for name, text in self.texts.items() if name.endswith(suffixes))

    def rust(self) -> Iterator[tuple[str, str]]:
        """Name and text of each Rust file up to its tests, comments and strings taken out."""
        for name, text in self.of(".rs"):
            yield name, _code(text.split("#[cfg(test)]\nmod tests", 1)[0])


def measures(tree: Tree) -> dict[str, str]:
    """Each figure by its name, in the order in which they are printed."""
    lengths = {name: text.count("\n") for name, text in tree.of(".rs", ".py", ".java")}
    longest = max(lengths, key=lambda name: lengths[name])
    long = sum(length > LINES_LONG for length in lengths.values())
    functions = [*_rust_functions(tree), *_python_functions(tree)]
    too_long = sorted((lines, name) for name, lines in functions if lines > FUNCTION_LINES_MAX)
    longest_function = f" ({too_long[-1][0]}: {too_long[-1][1]})" if too_long else ""
    folders: dict[str, int] = defaultdict(int)
    for name in tree.texts:
        folders[str(Path(name).parent)] += 1
    fullest = max((each for each in folders if not each.endswith("/api")), key=folders.__getitem__)
    keys = _places_of_keys(tree)
    most_named = max(keys, key=lambda key: keys[key])
    asserts = sum(
        len(re.findall(r"\b(?:debug_)?assert(?:_eq|_ne)?!\(", code)) for _, code in tree.rust()
    )
    blocks = [
        block
        for _, code in tree.rust()
        for block in re.findall(
            r"^const _: \(\) = (?:\{.*?^\};|assert)", code, re.DOTALL | re.MULTILINE
        )
    ]
    constant = sum(block.count("assert") for block in blocks)
    return {
        "product lines (Rust, Python, Java)": f"{sum(lengths.values()):,} in {len(lengths)} files",
        "largest file": f"{lengths[longest]} ({longest})",
        f"files over {LINES_LONG} lines": f"{long} ({100 * long / len(lengths):.1f} %)",
        f"functions over {FUNCTION_LINES_MAX} lines": f"{len(too_long)}{longest_function}",
        "files in the fullest folder (api aside)": f"{folders[fullest]} ({fullest})",
        "import circles within folders, files in each": ", ".join(_circles(tree)) or "none",
        "Produce, as ARCHITECTURE's walk names it": _rooms_of_produce(tree.root),
        "nested functions in api/ and metadata/": str(_nested_functions(tree)),
        "asserts in rust/src; of constants": f"{asserts}; {constant}",
        "files that name a config key, at most": f"{keys[most_named]} ({most_named})",
        "docs that begin with What, Whether, Of, …": str(sum(1 for _ in _riddles(tree))),
        "keys of which a request has no type (Any)": str(_untyped_handlers(tree)),
    }


def _code(text: str) -> str:
    """Rust without comments and strings; lines stay."""
    return re.sub(r'"(?:\\.|[^"\\\n])*"', '""', re.sub(r"//[^\n]*", "", text))


def _rust_functions(tree: Tree) -> Iterator[tuple[str, int]]:
    """Each function that rustfmt has laid out. Arms of a match over an enum do not count."""
    for name, code in tree.rust():
        lines = code.split("\n")
        for at, line in enumerate(lines):
            found = re.match(r"( *)(?:pub(?:\([\w: ]+\))? )?(?:const |unsafe )*fn (\w+)", line)
            if found:
                body = lines[at : _end_of_function(lines, at, found[1]) + 1]
                yield f"{name}::{found[2]}", len(body) - _enum_arms(body, found[1])


def _end_of_function(lines: list[str], at: int, indent: str) -> int:
    """Its last line: a declaration in a trait ends with its signature."""
    opened = next(to for to in range(at, len(lines)) if re.search(r"[{};]$", lines[to].rstrip()))
    if not lines[opened].rstrip().endswith("{"):
        return opened
    closed = (to for to in range(opened, len(lines)) if lines[to].rstrip() == f"{indent}}}")
    return next(closed, opened)


def _enum_arms(body: list[str], indent: str) -> int:
    """Lines of the arms of a match in the body itself, each a variant by its path and short."""
    inner = f"{indent}    "
    for at, line in enumerate(body):
        if not re.match(rf"{inner}(?:\S.*= )?match .*{{$", line):
            continue
        end = next((to for to in range(at, len(body)) if body[to].startswith(f"{inner}}}")), at)
        arms = body[at + 1 : end]
        starts = [to for to, arm in enumerate(arms) if re.match(rf"{inner}    [^\s|}})]", arm)]
        are_variants = all(re.match(r" *[A-Z]\w*::[A-Z]", arms[to]) for to in starts)
        lengths = [
            sum(1 for _ in dropwhile(lambda row: "=>" not in row, arms[now:then]))
            for now, then in pairwise([*starts, len(arms)])
        ]
        if are_variants and max(lengths, default=0) <= ARM_LINES_MAX:
            return len(arms)
    return 0


def _python_functions(tree: Tree) -> Iterator[tuple[str, int]]:
    for name, text in tree.of(".py"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}::{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def _nested_functions(tree: Tree) -> int:
    """Functions within functions, whose order of execution is not that of the lines."""
    count = 0
    for name, text in tree.of(".py"):
        if "/api/" in name or "/metadata/" in name:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    inner = (each for child in node.body for each in ast.walk(child))
                    count += sum(
                        isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in inner
                    )
    return count


def _untyped_handlers(tree: Tree) -> int:
    """Handlers of keys whose request is `Any`."""
    handlers = (text for name, text in tree.of(".py") if "/api/k" in name)
    return sum(bool(re.search(r"def handle\([^)]*message: Any", text)) for text in handlers)


def _circles(tree: Tree) -> list[str]:
    """The largest circle of each folder that has one, as tests/tidy finds them."""
    spec = importlib.util.spec_from_file_location("circles", ROOT / "tests/tidy/test_circles.py")
    assert spec is not None
    assert spec.loader is not None
    tidy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tidy)
    found = tidy.circles(tree.root / "rust/src")
    return [f"{max(map(len, each))} in {folder}" for folder, each in sorted(found.items())]


def _rooms_of_produce(root: Path) -> str:
    """Rooms in the table of ARCHITECTURE.md's walk of a Produce request, and the files that it
    names, each once."""
    page = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    walk = page.split("## Produce, file by file", 1)[1].split("\n## ", 1)[0]
    rooms = len(re.findall(r"^\| `", walk, re.MULTILINE))
    files = len(set(re.findall(r"`(rust/src/[\w/]+\.rs)`", walk)))
    return f"{rooms} rooms, {files} files"


def _places_of_keys(tree: Tree) -> dict[str, int]:
    """By the name of a configuration key, in how many files of the product it stands."""
    config = tree.root / "python/kafkalite/config"
    rows = "\n".join((config / name).read_text() for name in ("broker.txt", "topic.txt"))
    keys = set(re.findall(r"^([a-z][a-z0-9]*(?:\.[a-z0-9]+)+) ", rows, re.MULTILINE))
    counts = dict.fromkeys(keys, 1)
    for _, text in tree.of(".rs", ".py"):
        for key in set(re.findall(r'"([a-z0-9]+(?:\.[a-z0-9]+)+)"', text)) & keys:
            counts[key] += 1
    return counts


def _riddles(tree: Tree) -> Iterator[str]:
    """The first line of each doc that begins so."""
    for name, text in tree.of(".rs"):
        before = ""
        for line in text.split("\n"):
            doc = re.match(r"\s*//[/!] (.*)", line)
            if doc and not re.match(r"\s*//[/!]", before) and doc[1].startswith(RIDDLES):
                yield f"{name}: {doc[1]}"
            before = line
    for name, text in tree.of(".py", ".pyi"):
        for doc in re.findall(r'^\s*"""(.*)', text, re.MULTILINE):
            if doc.startswith(RIDDLES):
                yield f"{name}: {doc}"


def main(commit: str | None) -> None:
    """Prints the figures, beside those of a commit if one is given."""
    now = measures(Tree(ROOT))
    before: dict[str, str] = {}
    if commit is not None:
        command = ["git", "archive", commit, "ARCHITECTURE.md", *PRODUCT]
        packed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                archive.extractall(folder, filter="data")
            before = measures(Tree(Path(folder)))
    for name, figure in now.items():
        then = f"{before[name]}  →  " if before else ""
        print(f"{name:46} {then}{figure}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)

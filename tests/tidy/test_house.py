"""The rules of the house that a program can judge (ARCHITECTURE.md, CONTRIBUTING.md).

Reads the tree as git knows it and imports nothing of the product, so that it runs anywhere in a
second. Lengths are printed, never judged: nobody splits a thought for a counter.
"""

import ast
import fnmatch
import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Who may import whom: a part may use those above it, those beside it, and itself.
RUST_ORDER = [
    {"clock", "codes", "crash", "error", "limits", "uuid"},
    {"wire", "batch"},
    {"codec"},
    {"log"},
    {"access", "arrow", "client", "image", "node", "quota", "re2", "replica"},
    {"api"},
    {"net"},
    {"py"},
]
PYTHON_ORDER = [
    {"errors", "_native"},
    {"access", "calls", "config", "disks", "protocol", "service", "tasks", "timers"},
    {"listeners", "metadata"},
    {"coordinator"},
    {"groups", "transactions"},
    {"replicas"},
    {"context"},
    {"replication"},
    {"api"},
    {"server"},
    {"broker", "child", "client"},
    {"cli", "spark", "testing"},
]

BANNED = re.compile(r"(Manager|Helper|Util|Utils|Impl|Common|Base)$")
BANNED_FILES = {"manager", "helper", "helpers", "util", "utils", "impl", "common", "base", "misc"}

# What this host looks like, and the words of workplaces: neither belongs into a project.
MACHINE_PATH = re.compile(r"(?<![\w.<{$/])/(?:home|Users|root|work|mnt|opt|scratch)/\w")

# Where `unsafe` may stand: these files of the product, and tests and benchmarks.
UNSAFE_FILES = {
    "rust/src/log/storage.rs",
    "rust/src/net/poller.rs",
    "rust/src/py/arrow.rs",
    "rust/src/py/arrow_server.rs",
    "rust/src/py/broker/mod.rs",
    "rust/src/py/client/arrow_encoder.rs",
    "rust/src/py/codec.rs",
    "rust/src/py/door.rs",
}
UNSAFE_FOLDERS = ("tests/rust/", "benches/")

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

PRODUCT = ("rust/src/", "python/kafkalite/", "python/pyspark_kafkalite/", "spark/jvm/")

# How a product file opens: Rust and Python with its doc, Java with that of its class.
OPENINGS = {
    ".rs": re.compile("//!"),
    ".py": re.compile('"""'),
    ".pyi": re.compile('"""'),
    ".java": re.compile(r"package [\w.]+;\s+(?:import [^;]+;\s+)*/\*\*"),
}


@functools.cache
def listed_files() -> list[str]:
    """Files of the project, committed or about to be; of a copy that is no repository all but what
    `.gitignore` names."""
    # Whoever runs this need not own the folder.
    command = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others"]
    if shutil.which("git") is not None:
        listed = subprocess.run(
            [*command, "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if listed.returncode == 0:
            return listed.stdout.splitlines()
    return unpacked_files(ROOT)


def unpacked_files(root: Path) -> list[str]:
    """Files below a folder that its `.gitignore` does not name."""
    lines = (root / ".gitignore").read_text().split()
    below_root = [line.strip("/") for line in lines if line.startswith("/")]
    anywhere = [line.rstrip("/") for line in lines if not line.startswith("/")]
    found = []
    for folder, folders, files in os.walk(root):
        place = Path(folder).relative_to(root)

        def is_ignored(name: str, place: Path = place) -> bool:
            return name == ".git" or (
                any(fnmatch.fnmatch(str(place / name), each) for each in below_root)
                or any(fnmatch.fnmatch(name, each) for each in anywhere)
            )

        folders[:] = [name for name in folders if not is_ignored(name)]
        found += [str(place / name) for name in files if not is_ignored(name)]
    return found


def tracked(*suffixes: str) -> list[str]:
    """Files of the project that exist, with one of the suffixes."""
    names = (name for name in listed_files() if name.endswith(suffixes))
    return sorted({name for name in names if (ROOT / name).is_file()})


def test_a_copy_that_is_no_repository_has_the_same_files(tmp_path: Path) -> None:
    """Without git, or in a folder of another user, every rule here was an error."""
    copied = [name for name in listed_files() if (ROOT / name).is_file()]
    for name in copied:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    shutil.copy(ROOT / ".gitignore", tmp_path)
    for made in (".venv/lib/a.py", "target/b.rs", "tests/__pycache__/c.pyc", "python/d.so"):
        (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / made).touch()
    assert sorted(unpacked_files(tmp_path)) == sorted(set(copied))


def product_files() -> list[str]:
    """The files that make up the wheel."""
    return [name for name in tracked(*OPENINGS) if name.startswith(PRODUCT)]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def rust_code(name: str) -> str:
    """The source without comments and strings, so that words in prose do not count."""
    text = re.sub(r"//[^\n]*", "", read(name))
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', text)


def rank(order: list[set[str]], part: str) -> int | None:
    return next((at for at, parts in enumerate(order) if part in parts), None)


def rust_imports() -> Iterator[tuple[str, str, str]]:
    """File, its part, and each part of the crate that it names."""
    for name in tracked(".rs"):
        if not name.startswith("rust/src/") or name == "rust/src/lib.rs":
            continue
        part = name.removeprefix("rust/src/").split("/")[0].removesuffix(".rs")
        code = rust_code(name)
        used = set(re.findall(r"\bcrate::(\w+)", code))
        for group in re.findall(r"\bcrate::\{(.*?)\};", code, re.DOTALL):
            used |= set(re.findall(r"(?:^|,)\s*(\w+)", re.sub(r"\{[^{}]*\}", "", group)))
        for other in sorted(used):
            yield name, part, other


def python_imports() -> Iterator[tuple[str, str, str]]:
    """File, its part, and each part of the package that it imports anywhere in the file."""
    for name in tracked(".py"):
        if not name.startswith("python/kafkalite/"):
            continue
        part = name.removeprefix("python/kafkalite/").split("/")[0].removesuffix(".py")
        for node in ast.walk(ast.parse(read(name))):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                modules = [module, *(f"{module}.{alias.name}" for alias in node.names)]
            for module in modules:
                words = module.split(".")
                if words[0] == "kafkalite" and len(words) > 1:
                    yield name, part, words[1]


def test_rust_imports_point_one_way() -> None:
    wrong = []
    for name, part, other in rust_imports():
        mine, theirs = rank(RUST_ORDER, part), rank(RUST_ORDER, other)
        assert mine is not None, f"{name}: give '{part}' a place in RUST_ORDER"
        if theirs is not None and theirs > mine:
            wrong.append(f"{name} uses crate::{other}")
    assert not wrong, "\n".join(wrong)


def test_python_imports_point_one_way() -> None:
    wrong = []
    for name, part, other in python_imports():
        if part in ("__init__", "__main__"):
            continue  # the front door names its rooms, lazily
        mine, theirs = rank(PYTHON_ORDER, part), rank(PYTHON_ORDER, other)
        assert mine is not None, f"{name}: give '{part}' a place in PYTHON_ORDER"
        if theirs is not None and theirs > mine:
            wrong.append(f"{name} imports kafkalite.{other}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("language", "root", "order"),
    [("Rust", "rust/src/", RUST_ORDER), ("Python", "python/kafkalite/", PYTHON_ORDER)],
)
def test_every_part_has_its_place_in_the_order_and_the_page_tells_it(
    language: str, root: str, order: list[set[str]]
) -> None:
    inside = (name.removeprefix(root) for name in product_files() if name.startswith(root))
    parts = {re.split("[/.]", name)[0] for name in inside} - {"lib", "__init__", "__main__"}
    assert set().union(*order) == parts
    page = " ".join(read("ARCHITECTURE.md").split())
    told = re.search(rf"{language}: `([^`]+)`", page)
    assert told is not None
    assert [set(step.split(", ")) for step in told[1].split(" → ")] == order


def test_the_readme_names_every_command() -> None:
    commands = re.findall(
        r'^    \("([a-z]+)"', read("python/kafkalite/cli/__init__.py"), re.MULTILINE
    )
    row = re.search(r"^- Commands:(.*?)\.$", read("README.md"), re.MULTILINE | re.DOTALL)
    assert row is not None
    assert set(commands) == set(re.findall(r"`([a-z]+)`", row[1]))


def test_broker_is_the_only_place_that_builds_the_parts() -> None:
    importers = {
        name
        for name, part, other in python_imports()
        if other == "server" and part not in ("server", "broker", "cli", "testing")
    }
    assert not importers


def test_only_the_seam_names_pyo3() -> None:
    allowed = ("rust/src/py/", "rust/src/lib.rs")
    wrong = [
        name
        for name in tracked(".rs")
        if not name.startswith(allowed) and re.search(r"\b(pyo3|Python<)", rust_code(name))
    ]
    assert not wrong


def test_only_the_door_releases_the_gil() -> None:
    wrong = [
        name
        for name in tracked(".rs")
        if name != "rust/src/py/door.rs" and re.search(r"\.detach\(|allow_threads", rust_code(name))
    ]
    assert not wrong


def test_the_export_list_fits_two_screens() -> None:
    assert len(read("rust/src/lib.rs").splitlines()) <= 120


def test_unsafe_code_stands_only_where_it_may() -> None:
    found = {name for name in tracked(".rs") if re.search(r"\bunsafe\b", rust_code(name))}
    product = {name for name in found if not name.startswith(UNSAFE_FOLDERS)}
    assert product == UNSAFE_FILES


def test_every_unsafe_block_says_why_it_is_sound() -> None:
    wrong = []
    for name in tracked(".rs"):
        if not name.startswith("rust/src/"):
            continue
        lines = read(name).splitlines()
        for at, line in enumerate(lines):
            code = line.split("//")[0]
            above = "\n".join(lines[max(0, at - 12) : at])
            if re.search(r"\bunsafe\s*(\{|impl)", code) and "SAFETY" not in above:
                wrong.append(f"{name}:{at + 1}")
    assert not wrong, "\n".join(wrong)


def test_names_say_what_a_thing_is() -> None:
    wrong = []
    for name in tracked(".rs", ".py", ".pyi", ".java"):
        if Path(name).stem in BANNED_FILES:
            wrong.append(name)
        pattern = r"\b(?:struct|enum|trait|class|type|interface|record)\s+(\w+)"
        code = rust_code(name) if name.endswith((".rs", ".java")) else read(name)
        wrong += [f"{name}: {word}" for word in re.findall(pattern, code) if BANNED.search(word)]
    assert not wrong, "\n".join(wrong)


def test_the_list_of_files_is_that_of_the_tree() -> None:
    tool = ROOT / "tools" / "file_map.py"
    spec = importlib.util.spec_from_file_location("file_map", tool)
    assert spec is not None
    assert spec.loader is not None
    file_map = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(file_map)
    is_as_the_tree = read("docs/FILES.md") == file_map.page()
    assert is_as_the_tree, "run python3 tools/file_map.py"


def test_every_file_that_the_documents_name_exists() -> None:
    wrong = []
    for document in tracked(".md"):
        named = re.findall(
            r"`((?:rust|python|spark|tests|tools|benches)/[\w./]+\.\w+)`", read(document)
        )
        wrong += [f"{document}: {name}" for name in named if not _exists(name)]
    assert not wrong, "\n".join(wrong)


def test_every_link_of_the_documents_leads_to_a_file() -> None:
    """docs/ARROW.md named docs/TYPED_VALUES.md, which is docs/docs/TYPED_VALUES.md from there."""
    wrong = []
    for document in tracked(".md"):
        for target in re.findall(r"\]\(([^)\s]+)\)", read(document)):
            path, _, heading = target.partition("#")
            if "://" in path or path.startswith("mailto:"):
                continue
            file = (ROOT / document).parent / path if path else ROOT / document
            if not file.exists() or (heading and heading not in _anchors(file)):
                wrong.append(f"{document}: {target}")
    assert not wrong, "\n".join(wrong)


def _anchors(document: Path) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def _exists(name: str) -> bool:
    return "kNN" in name or (ROOT / name).exists()


def test_error_codes_have_one_home() -> None:
    """A number under the name of a code stands in `codes.py` or `codes.rs`, and is the code's."""
    rows = read("python/kafkalite/protocol/error_codes.py")
    table = {name: code for code, name in re.findall(r'(-?\d+): ErrorCode\(\s*"(\w+)"', rows)}
    table |= {name.removesuffix("_EXCEPTION"): code for name, code in table.items()}
    python = re.compile(r"^([A-Z_]+)(?:: [^=\n]+)? = (-?\d+)$", re.MULTILINE)
    rust = re.compile(r"^\s*(?:pub\S* )?const ([A-Z_]+): i16 = (-?\d+);", re.MULTILINE)
    homes = {"python/kafkalite/protocol/codes.py": 0, "rust/src/codes.rs": 0}
    wrong = []
    for file in product_files():
        for name, code in (rust if file.endswith(".rs") else python).findall(read(file)):
            if file in homes:
                homes[file] += 1
            if (table.get(name) != code) if file in homes else (name in table):
                wrong.append(f"{file}: {name} = {code}")
    assert len(table) > 130
    assert min(homes.values()) > 30, homes
    assert not wrong, "\n".join(wrong)


def test_every_api_key_is_one_file_with_its_test() -> None:
    wrong = []
    keys: dict[str, str] = {}
    for name in product_files():
        path = Path(name)
        if path.name == "mod.rs":
            # A key of several files is a folder.
            path = path.parent
        if path.parent.name != "api" or path.stem == "__init__":
            continue
        key = re.fullmatch(r"k(\d\d)_[a-z_]+", path.stem)
        if key is None:
            continue
        if key[1] in keys:
            wrong.append(f"key {key[1]} has two files: {keys[key[1]]} and {name}")
        keys[key[1]] = name
        test = f"tests/api/test_{path.stem}.py"
        if not (ROOT / test).exists():
            wrong.append(f"{name} has no {test}")
    # Produce and Fetch are folders.
    assert {"00", "01", "18", "19"} <= keys.keys()
    assert not wrong, "\n".join(wrong)


ASK_NOBODY = {
    18: "clients learn the versions before they say who they are",
}
"""Keys whose requests need no right, and why."""


def test_every_key_asks_what_its_client_may_do() -> None:
    """Each key of either language, in whichever file of its folder, by itself or by what keys that
    deal with configs have in common."""
    asks = re.compile(
        r"\b(?:ask|context)\.(?:may|permitted)\(|\b(?:check_permitted|changes_of_resource)\("
    )
    code: dict[int, str] = {}
    for name in product_files():
        key = re.match(r"(?:rust/src|python/kafkalite)/api/k(\d\d)_", name)
        if key is not None:
            code[int(key[1])] = code.get(int(key[1]), "") + read(name)
    silent = {key for key, text in code.items() if asks.search(text) is None}
    assert silent == set(ASK_NOBODY)


def test_every_module_says_why_it_exists() -> None:
    wrong = []
    for name in product_files():
        text = read(name)
        if not text.strip():
            continue
        if not OPENINGS[Path(name).suffix].match(text):
            wrong.append(name)
    assert not wrong, "no module doc: " + ", ".join(wrong)


def test_nothing_names_a_machine() -> None:
    wrong = []
    for name in tracked(".rs", ".py", ".pyi", ".md", ".toml", ".java", ".yml", ".txt", "Makefile"):
        if name == "tests/tidy/test_house.py":
            continue
        for number, line in enumerate(read(name).splitlines(), 1):
            if MACHINE_PATH.search(line):
                wrong.append(f"{name}:{number}: {line.strip()}")
    assert not wrong, "\n".join(wrong)


def test_nothing_is_left_to_do_later() -> None:
    pattern = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|\b(todo|unimplemented)!\(")
    wrong = [
        f"{name}:{number}"
        for name in product_files()
        for number, line in enumerate(read(name).splitlines(), 1)
        if pattern.search(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_environment_is_read_in_one_place() -> None:
    wrong = [
        name
        for name in product_files()
        if name.endswith(".py")
        and not name.startswith("python/kafkalite/config/")
        and name != "python/kafkalite/spark/columnar.py"  # sets it, for the JVM that it starts
        and re.search(r"\bos\.(environ|getenv)\b", read(name))
    ]
    wrong += [
        name
        for name in product_files()
        if name.endswith(".rs") and re.search(r"\benv::var", rust_code(name))
    ]
    assert not wrong


def test_tests_do_not_sleep() -> None:
    """An event, a condition with a deadline, a poll of the thing itself; never a guessed time. Only
    a fault may last for a time that is drawn."""
    wrong = []
    for name in tracked(".py", ".rs"):
        if not name.startswith("tests/") or name == "tests/tidy/test_house.py":
            continue
        for number, line in enumerate(read(name).splitlines(), 1):
            is_sleep = re.search(r"\b(time|thread)(\.|::)sleep\(", line)
            if is_sleep and not re.search("(#|//).*(fault|poll)", line):
                wrong.append(f"{name}:{number}")
    assert not wrong, "sleeps (mark a poll's pause with a comment naming the poll): " + ", ".join(
        wrong
    )


def wide_prose(name: str) -> Iterator[str]:
    """Lines of comments that are neither a picture nor a table, and wider than code may be."""
    is_picture = False
    for number, line in enumerate(read(name).splitlines(), 1):
        comment = re.match(r"\s*(///|//!|//|#) ?(.*)", line)
        if comment is None:
            is_picture = False
        elif comment[2].startswith("```"):
            is_picture = not is_picture
        elif len(line) > 100 and not is_picture and not comment[2].startswith("|"):
            yield f"{name}:{number}"


def test_comments_are_as_narrow_as_code() -> None:
    wide = [place for name in tracked(".rs", ".py", ".pyi") for place in wide_prose(name)]
    assert not wide


NESTED_MAX = 10
"""Functions within functions, in `api/` and `metadata/` together: what they do comes in another
order than it is read. What has to wait is a coroutine."""


def test_handlers_read_from_top_to_bottom_and_know_the_fields_of_their_requests() -> None:
    nested = []
    for name in tracked(".py"):
        if not name.startswith(("python/kafkalite/api/", "python/kafkalite/metadata/")):
            continue
        tree = ast.parse(read(name))
        functions = [each for each in ast.walk(tree) if isinstance(each, FUNCTIONS)]
        for outer in functions:
            within = [each for each in ast.walk(outer) if isinstance(each, FUNCTIONS)]
            nested += [f"{name}:{each.name}" for each in within if each is not outer]
        for handler in functions:
            if handler.name == "handle" and handler in tree.body:
                last = handler.args.args[-1].annotation
                assert last is not None and ast.unparse(last) != "Any", f"{name}: messages.…Request"
    assert len(set(nested)) <= NESTED_MAX, nested

#!/usr/bin/env python3
"""Writes docs/FILES.md: `python3 tools/file_map.py`.

Each file of the product has a row below the heading of its folder: the first sentence of its module
doc, so that there is one text of it; of a long one what stands before its first colon or semicolon.
That has to fit a row. tests/tidy holds the page against the tree. After a merge that mixed it up,
run it again.
"""

import re
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "FILES.md"
FOLDERS = ["rust/src", "python/kafkalite", "python/pyspark_kafkalite", "spark/jvm"]
SUFFIXES = {".rs", ".py", ".pyi", ".java"}
MADE = ["python/kafkalite/protocol/messages.pyi"]
"""Files that are made of others, and in no commit."""
CHARACTERS_MAX = 120
"""Of a purpose, which is read among five hundred others."""
HEAD_CHARACTERS_MIN = 10
"""What stands before a colon says too little if it is shorter."""


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page())


def page() -> str:
    """The page as it is to be: its introduction as it is, and a table for each folder."""
    introduction = PAGE.read_text().split("\n## ", 1)[0].strip("\n")
    files = [name for name in _files() if (ROOT / name).read_text().strip()]
    parts = [introduction]
    for folder, names in groupby(files, key=lambda name: str(Path(name).parent)):
        rows = [f"| `{name}` | {_sentence(name)} |" for name in names]
        parts.append("\n".join([f"## {folder}\n", "| File | Its purpose |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _files() -> list[str]:
    """Product files, those of the top folder of a language first, else by name."""
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    names = [str(path.relative_to(ROOT)) for path in paths if path.suffix in SUFFIXES]
    names = [name for name in names if name not in MADE]
    return sorted(names, key=lambda name: (FOLDERS.index(_root(name)), _parts(name)))


def _root(name: str) -> str:
    return next(folder for folder in FOLDERS if name.startswith(f"{folder}/"))


def _parts(name: str) -> list[tuple[bool, str]]:
    parts = Path(name).parts
    return [(at < len(parts) - 1, part) for at, part in enumerate(parts)]


def _sentence(name: str) -> str:
    """The first sentence of the module doc."""
    text = (ROOT / name).read_text()
    if name.endswith(".rs"):
        doc = re.match(r"(?://![^\n]*\n)+", text)
        words = re.sub(r"^//! ?", "", doc[0], flags=re.MULTILINE) if doc else ""
    elif name.endswith(".java"):
        doc = re.search(r"^/\*\*(.*?)\*/", text, re.DOTALL | re.MULTILINE)
        words = re.sub(r"^ \* ?", "", doc[1], flags=re.MULTILINE) if doc else ""
        words = re.sub(r"\{@code\s+([^{}]*)\}", r"`\1`", words.replace("<p>", ""))
    else:
        doc = re.match(r'"""(.*?)"""', text, re.DOTALL)
        words = doc[1] if doc else ""
    paragraph = " ".join(words.strip().split("\n\n")[0].split())
    sentence = re.match(r".*?[.:](?= [A-Z`]|$)", paragraph)
    purpose = (sentence[0] if sentence else paragraph).rstrip(".:")
    if len(purpose) > CHARACTERS_MAX:
        head = re.match(rf".{{{HEAD_CHARACTERS_MIN},}}?(?=[:;] )", purpose)
        purpose = head[0] if head else purpose
    if len(purpose) > CHARACTERS_MAX:
        raise SystemExit(f"{name}: the first sentence has more than {CHARACTERS_MAX} characters")
    return purpose.replace("|", "\\|")


if __name__ == "__main__":
    main()

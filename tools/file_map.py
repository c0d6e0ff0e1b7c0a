#!/usr/bin/env python3
"""Brings docs/FILES.md up to date: `python3 tools/file_map.py`.

A file without a row gets one from the first sentence of its module doc, a row without a file goes,
rows are sorted. What is written in a row stays as it is: say it better there if the doc's sentence
is not the best one. Rows that say something else are printed, as one may have grown old. After a
merge that mixed up the rows, run it again.
"""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "FILES.md"
FOLDERS = ["rust/src", "python/kafkalite", "python/pyspark_kafkalite", "spark/jvm"]
ROW = re.compile(r"^\| `([^`]+)` \| (.*) \|$", re.MULTILINE)


def main() -> None:
    page = PAGE.read_text()
    rows = dict(ROW.findall(page))
    introduction = page.split("\n| ", 1)[0].strip("\n")
    files = [name for name in _files() if (ROOT / name).read_text().strip()]
    lines = [f"| `{name}` | {rows.get(name) or _sentence(name)} |" for name in files]
    table = "\n".join(["| File | What it is for |", "|---|---|", *lines])
    PAGE.write_text(f"{introduction}\n\n{table}\n")
    for name in files:
        if name in rows and rows[name] != _sentence(name):
            print(f"{name}\n  row: {rows[name]}\n  doc: {_sentence(name)}")
    print(
        f"{len(files)} files, {len(set(files) - set(rows))} new, {len(set(rows) - set(files))} gone"
    )


def _files() -> list[str]:
    """Product files, those of the top folder of a language first, else by name."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *FOLDERS],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    names = {name for name in listed if name.endswith((".rs", ".py", ".pyi", ".java"))}
    existing = (name for name in names if (ROOT / name).is_file())
    return sorted(existing, key=lambda name: (FOLDERS.index(_root(name)), _parts(name)))


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
    return (sentence[0] if sentence else paragraph).rstrip(".:").replace("|", "\\|")


if __name__ == "__main__":
    main()

"""Writes the types of Kafka's messages out of the schema table (`make_schema.py`).

    python3 tools/make_messages_stub.py

The classes of `kafkalite.protocol.messages` are made when they are first named; the stub beside it
says to type checkers which there are, with which fields. `make lint` makes it before mypy runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "python/kafkalite/protocol"
TABLE = FOLDER / "schema.txt"
OUTPUT = FOLDER / "messages.pyi"

HEAD = '''\
"""Types of the classes that `messages.py` makes. Made by tools/make_messages_stub.py.

Each field has its default where it is left out, integers 0, what may be null mostly None.
"""

from typing import Any, ClassVar, dataclass_transform

from kafkalite._native import MessageCodec

@dataclass_transform(kw_only_default=True)
class Message:
    """A message or a struct of one; keyword arguments set fields, the others get their defaults."""

    _name: ClassVar[str]
    _fields: ClassVar[tuple[str, ...]]
    _structs: ClassVar[tuple[type[Message] | None, ...]]
    _codec: ClassVar[MessageCodec]

    @classmethod
    def decode(cls, body: bytes, version: int) -> Any:
        """The message in a body of a version; raises MalformedRequestError where the bytes are
        none."""

    @classmethod
    def pack(cls, fields: tuple[Any, ...], version: int) -> bytes:
        """The body, in a version, of the message that has these fields, in the table's order."""

    def encode(self, version: int) -> bytes:
        """The body of the message in `version`."""
'''

TYPES = {"bool": "bool", "string": "str", "float64": "float", "uuid": "bytes"}
TYPES |= dict.fromkeys(("bytes", "records"), "bytes")


def main() -> int:
    OUTPUT.write_text(stub(TABLE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def stub(table: str) -> str:
    """The stub of all messages of a table."""
    rows = [line for line in table.splitlines() if line and not line.startswith("#")]
    starts = [at for at, line in enumerate(rows) if line.startswith("message ")]
    parts = [HEAD]
    for at, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        name = rows[at].split()[1]
        parts.append("\n".join(_class(name, rows[at + 1 : end], 1)) + "\n")
    return "\n".join(parts)


def _class(name: str, rows: list[str], depth: int) -> Iterator[str]:
    """The class of a message or struct, whose fields are the rows, those of structs among them."""
    pad = "    " * depth
    fields, structs = [], {}
    for at, row in enumerate(rows):
        if _depth(row) != depth:
            continue
        field, kind, *facts = row.split()
        if "{" in kind:
            deeper = takewhile(lambda row: _depth(row) > depth, rows[at + 1 :])
            structs[kind.split("{")[1]] = list(deeper)
        fields.append(f"{pad}{field}: {_type(kind, facts)} = ...")
    yield f"{pad[4:]}class {name}(Message):{'' if fields else ' ...'}"
    for struct, inner_rows in structs.items():
        yield from _class(struct, inner_rows, depth + 1)
        yield ""
    yield from fields


def _depth(row: str) -> int:
    return len(row) - len(row.lstrip())


def _type(kind: str, facts: list[str]) -> str:
    element = kind.removeprefix("[]")
    made = element[1:] if element[0] == "{" else TYPES.get(element, "int")
    if kind != element:
        made = f"list[{made}]"
    is_nullable = any(fact.startswith("nullable=") for fact in facts)
    return f"{made} | None" if is_nullable else made


if __name__ == "__main__":
    sys.exit(main())

"""Schemas as DDL, as far as they must be understood before Spark reads them: which fields there
are, and whether Spark will know their types.

    fields   field (, field)*
    field    name [:] type [NOT NULL] [COMMENT 'text']
    type     ARRAY<type> | MAP<type, type> | STRUCT<fields> | word [(number [, number])]

A worker of Spark's has no session to parse DDL with; and where a session does, what is wrong would
be named without the option.
"""

import re
from typing import NamedTuple

from kafkalite.errors import InvalidArgumentError

__all__ = ["Field", "read_fields"]

TOKEN = re.compile(
    r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|(.))", re.S
)

TYPES = frozenset(
    {"BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG"}
    | {"FLOAT", "REAL", "DOUBLE", "DECIMAL", "DEC", "NUMERIC", "DATE", "TIME", "TIMESTAMP"}
    | {"TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "STRING", "CHARACTER", "CHAR", "VARCHAR", "BINARY"}
    | {"VOID", "VARIANT"}
)


class Field(NamedTuple):
    """A field: its name, and all that the DDL says of it."""

    name: str
    text: str


def read_fields(option: str, ddl: str) -> list[Field]:
    """The fields at the top. Raises `InvalidArgumentError`, which names the option."""
    reader = _Reader(ddl)
    try:
        fields = reader.fields()
        if reader.word:
            raise ValueError(f"'{reader.word}' is not expected")
    except ValueError as error:
        raise InvalidArgumentError(
            f"{option} is '{ddl}', it must be DDL such as 'id LONG, city STRING': {error}"
        ) from error
    return fields


class _Reader:
    """Stands before a token: `word`, empty at the end."""

    def __init__(self, text: str) -> None:
        self._text = text.rstrip()
        self._next = 0
        self._begin = 0
        self._end = 0
        self.word = ""
        self._advance()

    def _advance(self) -> str:
        passed, self._end = self.word, self._next
        found = TOKEN.match(self._text, self._next)
        self.word = found[0].strip() if found else ""
        if found:
            self._begin, self._next = found.end() - len(self.word), found.end()
        return passed

    def _take(self, *words: str) -> bool:
        """Passes these words if they come next."""
        before = (self._next, self._begin, self._end, self.word)
        for word in words:
            if self.word.upper() != word:
                self._next, self._begin, self._end, self.word = before
                return False
            self._advance()
        return True

    def _must(self, word: str) -> None:
        if not self._take(word):
            raise ValueError(f"'{word}' is missing before '{self.word}'".removesuffix(" before ''"))

    def fields(self) -> list[Field]:
        found = [self._field()]
        while self._take(","):
            found.append(self._field())
        return found

    def _field(self) -> Field:
        begin = self._begin
        if not re.fullmatch(r"\w+|`.*`", self.word, re.DOTALL):
            raise ValueError(f"a name is missing before '{self.word}'".removesuffix(" before ''"))
        name = self._advance()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        self._take(":")
        self._type(name)
        self._take("NOT", "NULL")
        if self._take("COMMENT"):
            self._advance()
        return Field(name, self._text[begin : self._end])

    def _type(self, name: str) -> None:
        word = self._advance()
        kind = word.upper()
        if kind == "STRUCT":
            self._must("<")
            if self.word != ">":
                self.fields()
            self._must(">")
        elif kind in ("ARRAY", "MAP"):
            self._must("<")
            self._type(name)
            if kind == "MAP":
                self._must(",")
                self._type(name)
            self._must(">")
        elif kind not in TYPES:
            raise ValueError(f"{name} has no type" if not word else f"'{word}' is no type")
        elif self._take("("):
            while self.word not in (")", ""):
                self._advance()
            self._must(")")

"""Wanted fields that no writer of Avro records has: they are null in every row, and one of them may
be misspelt.

That is how Spark's own Avro source reads by a schema of nullable fields, as all are here. Avro's
rule for a reader's schema, by which `from_avro` and Confluent's deserializer fail, needs to know of
defaults, and DDL has none: a job that waits for a field which is to come would not start.
"""

import json
from collections.abc import Iterable
from typing import Any

__all__ = ["unwritten"]


def unwritten(wanted: Iterable[str], schema: str | None, registry: str | None) -> list[str]:
    """The wanted fields of the top level that are in none of the writers' schemas, as the options
    give these. None of them where a schema is not understood: Rust says why."""
    try:
        writers = [] if schema is None else [json.loads(schema)]
        for each in () if registry is None else json.loads(registry).values():
            writers.append(json.loads(each) if isinstance(each, str) else each)
        written = {field["name"] for writer in writers for field in _record(writer)["fields"]}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return []
    return [name for name in wanted if name not in written] if writers else []


def _record(schema: Any) -> Any:
    """The schema without what is wrapped around it."""
    while isinstance(schema["type"], dict):
        schema = schema["type"]
    return schema

"""Records of every kind and version of `__consumer_offsets`, as Kafka's own classes write them
(`tools/make_golden_records.py`): read field by field, and written again byte for byte."""

import base64
import json
import re
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkalite.coordinator.record_serde import CoordinatorRecord
from kafkalite.groups.records import KINDS, SERDE


class Golden(NamedTuple):
    kind: int
    version: int
    key: bytes
    value: bytes
    key_fields: dict[str, Any]
    value_fields: dict[str, Any]


def read_golden() -> list[Golden]:
    text = Path(__file__).with_name("coordinator_records.txt").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()]
    return [
        Golden(int(kind), int(version), *map(bytes.fromhex, binary), *map(json.loads, fields))
        for kind, version, *binary, fields in (
            (kind, version, key, value, (key_json, value_json))
            for kind, version, key, value, key_json, value_json in rows
        )
    ]


GOLDEN = read_golden()


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda found: "_" + found[1].lower(), name)


def is_same(ours: Any, kafkas: Any) -> bool:
    """Whether a field says what Kafka's JSON of it says."""
    if isinstance(kafkas, dict):
        return all(is_same(getattr(ours, snake(name)), each) for name, each in kafkas.items())
    if isinstance(kafkas, list):
        return len(ours) == len(kafkas) and all(map(is_same, ours, kafkas))
    if isinstance(ours, bytes):
        padded = kafkas + "=" * (-len(kafkas) % 4)
        return ours in (base64.b64decode(padded), base64.urlsafe_b64decode(padded))
    if isinstance(ours, uuid.UUID):
        return is_same(ours.bytes, kafkas)
    return bool(ours == kafkas)


def test_all_kinds_are_there() -> None:
    assert {each.kind for each in GOLDEN} == set(KINDS)
    assert [each.version for each in GOLDEN if each.kind == 1] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda each: f"{each.kind}v{each.version}")
def test_a_record_is_read_as_kafka_meant_it_and_written_again_as_kafka_writes_it(
    golden: Golden,
) -> None:
    record = SERDE.read(golden.key, golden.value)
    assert isinstance(record, CoordinatorRecord)
    assert record.kind == golden.kind
    assert is_same(record.key, golden.key_fields)
    assert is_same(record.value, golden.value_fields)
    again = SERDE.record(record.kind, record.key, record.value, golden.version)
    assert again == (golden.key, golden.value)
    tombstone = SERDE.record(record.kind, record.key, None)
    assert tombstone == (golden.key, None)
    assert SERDE.read(*tombstone) == CoordinatorRecord(record.kind, record.key, None)

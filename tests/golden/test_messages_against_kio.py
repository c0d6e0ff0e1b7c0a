"""The codec against two others: `kio`, made by others out of Kafka's definitions, and the plain
encoder of `table.py`. Every message of every key in every version, in both directions."""

import dataclasses
import datetime
import io
import random
import uuid
import zlib
from typing import Any, get_args, get_origin

import pytest
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from api.raw import header_is_tagged
from golden.table import Field, Maker, Schema, encode, read_table
from kafkalite.errors import InvalidArgumentError, MalformedRequestError
from kafkalite.protocol import messages

TABLE = read_table()
MESSAGES_A_VERSION = 12
EPOCH = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)
# kio takes times through a float; up to the year 2100 it keeps their milliseconds.
LAST_TIME_MS = 4_102_444_800_000
ERROR_CODES = sorted(code.value for code in ErrorCode)


def kio_name(schema: Schema) -> str:
    """`CreateTopicsRequest` -> `create_topics`, as kio calls it; empty if it has none."""
    stem = schema.name
    for suffix in ("Request", "Response"):
        if schema.kind in ("request", "response"):
            stem = stem.removesuffix(suffix)
    found = [name for name in schema_name_map if name.replace("_", "") == stem.lower()]
    return found[0] if found else ""


def kio_versions(schema: Schema) -> list[int]:
    """The versions of a message that kio has."""
    kind = EntityType[schema.kind]
    versions = schema_name_map.get(kio_name(schema), {})
    return sorted(version for version, kinds in versions.items() if kind in kinds)


def hints_of(fields: list[Field], entity: Any, version: int, into: dict[Field, str]) -> None:
    """What kio takes each field for: its fields are the table's, in the table's order."""
    present = [each for each in fields if version in each.versions]
    theirs = dataclasses.fields(entity)
    assert len(present) == len(theirs), (entity, [f.name for f in present])
    for ours, other in zip(present, theirs, strict=True):
        assert _bare(ours.name).startswith(_bare(other.name)), (entity, ours.name, other.name)
        if ours.fields is None:
            into[ours] = other.metadata["kafka_type"]
        else:
            hints_of(ours.fields, _entity(other.type), version, into)


def _bare(name: str) -> str:
    return name.replace("_", "").lower()


def _entity(type_: Any) -> Any:
    """The class in `X`, `X | None`, `tuple[X, ...]` or `tuple[X, ...] | None`."""
    while get_origin(type_) is not None:
        type_ = next(a for a in get_args(type_) if a not in (type(None), ...))
    return type_


class KioMaker(Maker):
    """Draws only what kio can hold: it has classes for times, spans and error codes."""

    def __init__(self, chance: random.Random, hints: dict[Field, str]) -> None:
        super().__init__(chance)
        self.hints = hints

    def primitive(self, of: Field) -> Any:
        hint = self.hints[of]
        if hint == "error_code":
            return self.chance.choice(ERROR_CODES)
        if hint == "datetime_i64":
            return self.chance.choice((0, 1, self.chance.randint(0, LAST_TIME_MS)))
        if hint == "timedelta_i64":
            return self.chance.choice((0, -1, 86_400_000, self.chance.randint(-(2**40), 2**40)))
        return super().primitive(of)


def plain(value: Any) -> Any:
    """A value of kio as ours: milliseconds, codes, bytes."""
    if isinstance(value, ErrorCode):
        return value.value
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, datetime.datetime):
        return round((value - EPOCH) / MILLISECOND)
    if isinstance(value, datetime.timedelta):
        return value // MILLISECOND
    return value


def differences(ours: Any, theirs: Any, fields: list[Field], version: int, at: str) -> list[str]:
    """Where our message and kio's entity do not hold the same."""
    found = []
    present = [each for each in fields if version in each.versions]
    for each, other in zip(present, dataclasses.fields(theirs), strict=True):
        path = f"{at}.{each.name}"
        mine, its = getattr(ours, each.name), getattr(theirs, other.name)
        if its is None and each.kind == "uuid" and not each.is_array:
            its = bytes(16)
        if its is None and other.metadata.get("kafka_type") == "datetime_i64":
            its = -1
        if mine is None or its is None:
            found += [path] if mine is not its else []
            continue
        pairs = list(zip(mine, its, strict=False)) if each.is_array else [(mine, its)]
        if each.is_array and len(mine) != len(its):
            found.append(f"{path}: {len(mine)} elements, {len(its)}")
        for one, another in pairs:
            if each.fields is not None:
                found += differences(one, another, each.fields, version, path)
                continue
            if another is None and each.kind == "uuid":
                another = uuid.UUID(int=0)
            if one != plain(another):
                found.append(f"{path}: {one!r}, {another!r}")
    return found


PAIRS = [
    pytest.param(schema, version, id=f"{schema.name}-v{version}")
    for schema in TABLE.values()
    for version in kio_versions(schema)
    if version in schema.versions
]


def test_kio_has_every_version_of_every_key() -> None:
    for schema in TABLE.values():
        if schema.kind in ("request", "response"):
            every = set(range(schema.versions.first, schema.versions.last + 1))
            assert every <= set(kio_versions(schema)), schema.name


def test_every_header_is_the_one_that_kio_takes() -> None:
    for schema in TABLE.values():
        if schema.kind not in ("request", "response"):
            continue
        for version in kio_versions(schema):
            entity = load_entity_schema(kio_name(schema), version, EntityType[schema.kind])
            tagged = header_is_tagged(schema.key, version, schema.kind == "response")
            expected = 1 if schema.kind == "request" else 0
            assert entity.__header_schema__.__version__ == expected + tagged, schema.name


@pytest.mark.parametrize(("schema", "version"), PAIRS)
def test_a_message_is_the_same_to_kio(schema: Schema, version: int) -> None:
    entity = load_entity_schema(kio_name(schema), version, EntityType[schema.kind])
    hints: dict[Field, str] = {}
    hints_of(schema.fields, entity, version, hints)
    maker = KioMaker(random.Random(zlib.crc32(f"{schema.name} {version}".encode())), hints)
    read, write = entity_reader(entity), entity_writer(entity)
    kind = getattr(messages, schema.name)
    assert entity.__flexible__ == (version in schema.flexible)
    for _ in range(MESSAGES_A_VERSION):
        ours = maker.message(schema, version)
        body = ours.encode(version)
        assert body == bytes(encode(schema, version, ours).content)
        theirs, size = read(body, 0)
        assert size == len(body)
        assert differences(ours, theirs, schema.fields, version, schema.name) == []
        assert kind.decode(body, version) == ours
        out = io.BytesIO()
        write(out, theirs)
        assert kind.decode(out.getvalue(), version) == ours


@pytest.mark.parametrize("schema", [pytest.param(s, id=s.name) for s in TABLE.values()])
def test_a_message_is_what_the_plain_encoder_writes(schema: Schema) -> None:
    """Also what kio cannot hold: unknown error codes, negative times, coordinators' records."""
    kind = getattr(messages, schema.name)
    for version in range(schema.versions.first, schema.versions.last + 1):
        maker = Maker(random.Random(zlib.crc32(f"{schema.name} {version} plain".encode())))
        for _ in range(MESSAGES_A_VERSION):
            ours = maker.message(schema, version)
            body = ours.encode(version)
            assert body == bytes(encode(schema, version, ours).content)
            assert kind.decode(body, version) == ours


def as_tuples(value: Any) -> Any:
    """The same with tuples of their fields in place of structs."""
    if isinstance(value, list):
        return [as_tuples(each) for each in value]
    if isinstance(value, messages.Message):
        return tuple(as_tuples(getattr(value, name)) for name in value._fields)
    return value


@pytest.mark.parametrize("schema", [pytest.param(s, id=s.name) for s in TABLE.values()])
def test_tuples_of_fields_are_written_as_the_structs_are(schema: Schema) -> None:
    kind = getattr(messages, schema.name)
    for version in range(schema.versions.first, schema.versions.last + 1):
        maker = Maker(random.Random(zlib.crc32(f"{schema.name} {version} tuples".encode())))
        for _ in range(MESSAGES_A_VERSION):
            ours = maker.message(schema, version)
            body = ours.encode(version)
            assert kind.pack(as_tuples(ours), version) == body
            assert kind.pack((*as_tuples(ours), "one more"), version) == body


def test_a_message_is_filled_with_what_is_given_and_defaults_of_its_own() -> None:
    kind = messages.FetchRequest
    one, other = kind(max_bytes=7, cluster_id=None), kind()
    assert (one.max_bytes, one.cluster_id, one.topics) == (7, None, [])
    assert other.max_bytes == 0x7FFF_FFFF
    assert type(one.replica_state) is kind.ReplicaState
    assert one.replica_state is not other.replica_state
    one.topics.append(kind.FetchTopic())
    assert other.topics == []
    with pytest.raises(TypeError, match="FetchRequest has no field a, b"):
        kind(a=1, max_bytes=2, b=3)
    with pytest.raises(TypeError, match="FetchTopic has no field a"):
        kind.FetchTopic(a=1)


def test_what_a_field_cannot_hold_is_named() -> None:
    kind = messages.OffsetCommitRequest
    with pytest.raises(InvalidArgumentError, match="member_id cannot hold"):
        kind(member_id="x" * 40_000).encode(7)
    with pytest.raises(InvalidArgumentError, match="epoch cannot hold 2147483648"):
        kind(generation_id_or_member_epoch=1 << 31).encode(7)
    with pytest.raises(InvalidArgumentError, match="group_id cannot hold"):
        kind(group_id=None).encode(7)
    for wrong in ({"group_id": 1}, {"retention_time_ms": "1"}, {"topics": 1}):
        with pytest.raises(TypeError, match=f"OffsetCommitRequest.{next(iter(wrong))}"):
            kind(**wrong).encode(4)
    with pytest.raises(InvalidArgumentError, match="no version 99"):
        kind().encode(99)
    with pytest.raises(InvalidArgumentError, match="OffsetCommitRequestTopic is no message"):
        kind.OffsetCommitRequestTopic().encode(8)


@pytest.mark.parametrize("schema", [pytest.param(s, id=s.name) for s in TABLE.values()])
def test_tags_of_a_later_kafka_are_passed_over(schema: Schema) -> None:
    kind = getattr(messages, schema.name)
    for version in range(schema.versions.first, schema.versions.last + 1):
        if version in schema.flexible:
            body = kind().encode(version)
            assert body[-1] == 0
            assert kind.decode(body[:-1] + b"\1\xff\x7f\3abc", version) == kind()


def test_a_null_within_an_array_is_refused() -> None:
    """A handler once met None among the names of groups, and failed with a traceback."""
    kind = messages.DeleteGroupsRequest
    for version, null in [(1, b"\xff\xff"), (2, b"\0")]:
        good = kind(groups_names=["a"]).encode(version)
        name = b"\0\1a" if version < 2 else b"\2a"
        with pytest.raises(MalformedRequestError):
            kind.decode(good.replace(name, null), version)
        with pytest.raises(InvalidArgumentError):
            kind(groups_names=[None]).encode(version)


def test_what_can_be_read_once_is_written_whole_or_refused() -> None:
    """One in a tagged field was used up by the question whether it is the default: an array of no
    element was written."""
    topics = [messages.DeleteTopicsRequest.DeleteTopicState(name="a")]
    once = messages.DeleteTopicsRequest(topics=iter(topics))
    assert once.encode(6) == messages.DeleteTopicsRequest(topics=topics).encode(6)
    tagged = messages.ApiVersionsResponse(supported_features=iter([("a", 0, 1)]))
    with pytest.raises(TypeError, match=r"ApiVersionsResponse\.supported_features"):
        tagged.encode(3)

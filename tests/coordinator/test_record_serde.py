"""Records of a coordinator's topic: a directory may be anyone's, so any bytes may come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden.test_coordinator_records import GOLDEN
from kafkalite.coordinator.record_serde import CoordinatorRecord, Unread
from kafkalite.errors import MalformedRequestError
from kafkalite.groups.records import KINDS, SERDE

golden = st.sampled_from(GOLDEN)


def test_a_kind_that_is_not_known_is_told_by_its_number() -> None:
    for kind in {*range(30), 0x7FFF} - set(KINDS):
        assert SERDE.read(kind.to_bytes(2, "big") + b"whatever", b"x") == kind
    assert SERDE.read(b"\xff\xff", None) == -1


@pytest.mark.parametrize("key", [None, b"", b"\0"])
def test_a_record_without_a_kind_is_refused(key: bytes | None) -> None:
    with pytest.raises(MalformedRequestError):
        SERDE.read(key, b"")


@given(golden, st.integers(-(2**15), 2**15 - 1))
def test_a_value_of_a_version_that_is_not_known_is_kept_as_it_is(known, version) -> None:
    versions = {each.version for each in GOLDEN if each.kind == known.kind} | {0, 1, 2, 3, 4}
    if version in versions:
        return
    value = version.to_bytes(2, "big", signed=True) + known.value[2:]
    record = SERDE.read(known.key, value)
    assert isinstance(record, CoordinatorRecord)
    assert record.value == Unread(value, f"a value of version {version}, which is not known")


@given(golden, st.data())
def test_a_torn_or_altered_record_is_read_or_refused(known, data) -> None:
    """What is read is written again, and read as the same."""
    key, value = bytearray(known.key), bytearray(known.value)
    for part in (key, value):
        for _ in range(data.draw(st.integers(0, 3))):
            part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
        del part[data.draw(st.integers(0, len(part))) :]
    try:
        record = SERDE.read(bytes(key), bytes(value))
    except MalformedRequestError:
        return
    if isinstance(record, CoordinatorRecord) and not isinstance(record.value, Unread):
        version = int.from_bytes(value[:2], "big")
        again = SERDE.record(record.kind, record.key, record.value, version)
        assert SERDE.read(*again) == record


@given(st.integers(-1, 30), st.binary(max_size=80), st.none() | st.binary(max_size=80))
def test_any_bytes_are_a_record_or_refused(kind: int, key: bytes, value: bytes | None) -> None:
    try:
        record = SERDE.read(kind.to_bytes(2, "big", signed=True) + key, value)
    except MalformedRequestError:
        return
    assert isinstance(record, int) or record.kind == kind

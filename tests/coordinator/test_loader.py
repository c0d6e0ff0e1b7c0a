"""What a coordinator is loaded from."""

from types import SimpleNamespace
from typing import Any, cast

from kafkalite import _native
from kafkalite.coordinator.loader import STEP_BYTES, Loader
from kafkalite.coordinator.record_serde import RecordSerde


class FollowedLog:
    """A log that this broker leads by now, while a batch of the leader before is being appended."""

    def __init__(self) -> None:
        self.content = b""
        self.is_settled = False

    @property
    def offsets(self) -> Any:
        end = 1 if self.content else 0
        return SimpleNamespace(log_start_offset=0, log_end_offset=end)

    def settle(self) -> None:
        builder = _native.BatchBuilder(base_offset=0)
        builder.append(0, b"\0\1key", b"value")
        self.content, self.is_settled = builder.finish(), True

    def read(self, offset: int, _max_bytes: int) -> bytes:
        assert offset == 0
        return self.content


def test_an_append_of_the_leader_before_that_is_under_way_is_loaded() -> None:
    """The log was empty when loading looked, and the record that came was never known."""
    log = FollowedLog()
    loader = Loader(cast(Any, log), RecordSerde({}), cast(Any, None))
    assert loader.has_to_read
    is_replayed = False
    while not is_replayed:
        if loader.has_to_read:
            loader.read()
        is_replayed = loader.replay()
    # A record of a kind that no machine here knows.
    assert sum(loader.unknown.values()) == 1


def test_a_step_ends_with_the_large_values_that_it_has_taken() -> None:
    """It took 500 keys whatever their size: of large groups that was a second in which nobody else
    was answered."""
    log = FollowedLog()
    log.settle()
    builder = _native.BatchBuilder(base_offset=0)
    for number in range(10):
        builder.append(0, b"\0\1%d" % number, bytes(STEP_BYTES // 2))
    log.content = builder.finish()
    taken: list[int] = []

    def replay(_kind: int, _key: Any, _value: Any, offset: int, _producer_id: int) -> None:
        taken.append(offset)

    serde = SimpleNamespace(read=lambda key, value: (1, key, value))
    loader = Loader(cast(Any, log), cast(Any, serde), cast(Any, SimpleNamespace(replay=replay)))
    loader.read()
    before, is_replayed = 0, False
    while not is_replayed:
        is_replayed = loader.replay()
        assert len(taken) <= before + 2
        before = len(taken)
    assert taken == list(range(10))

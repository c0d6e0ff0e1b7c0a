"""A shard under any order of operations, turns, flushes, failing appends and crashes: whatever was
answered is in the log, nothing else is but what was overdue, and the machine's state is what the
log says."""

from collections.abc import Collection, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from groups.fake_host import MemoryLog, make_host
from kafkalite import _native
from kafkalite.coordinator.journal import Journal
from kafkalite.coordinator.machine import Append, Effect, FirstAnswer, Moment, Reply
from kafkalite.coordinator.record_serde import RecordSerde
from kafkalite.coordinator.shard import ACTIVE, Shard
from kafkalite.errors import MessageTooLargeError
from kafkalite.metadata.image import OFFSETS_TOPIC
from kafkalite.protocol import codes, messages

TIMEOUT_MS = 5_000
SERDE = RecordSerde({1: ("OffsetCommitKey", "OffsetCommitValue")})


class Table:
    """A machine whose state is numbers by name, changed at once."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self._journal = Journal()

    def replay(self, _kind: int, key: Any, value: Any, _offset: int, _producer: int) -> None:
        if value is None:
            self.rows.pop(key.group, None)
        else:
            self.rows[key.group] = value.offset

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        raise AssertionError((producer_id, commit))

    def on_loaded(self, _moment: Moment, _count_max: int) -> tuple[Sequence[Effect], bool]:
        return (), True

    def on_topics(self, _deleted: Collection[str], _moment: Moment) -> Sequence[Effect]:
        return ()

    def on_time(self, _moment: Moment) -> Sequence[Effect]:
        return ()

    def next_wake_ms(self) -> int | None:
        return None

    def unload(self) -> Sequence[Effect]:
        return ()

    def add(self, names: Sequence[str], by: int, reply: Any) -> Sequence[Effect]:
        """Each of the names is one more than the first, or gone where that is 0: what it reads, it
        writes too."""
        number = self.rows.get(names[0], 0) + by
        written = []
        for name in names:
            if number:
                self._journal.put(self.rows, name, number)
                value = messages.OffsetCommitValue(offset=number, metadata="")
                written.append(SERDE.record(1, (name, "t", 0), value, 4))
            else:
                self._journal.pop(self.rows, name)
                written.append(SERDE.record(1, (name, "t", 0), None))

        first = FirstAnswer(reply)

        def then(code: int, offset: int, _moment: Moment) -> Sequence[Effect]:
            return [Reply(first, (code, offset, number, names))]

        return [Append(written, then, self._journal.take(), overdue=then)]


def rows_of(log: MemoryLog) -> dict[str, int]:
    """The state by the log alone."""
    table = Table()
    for _, batch in log.batches:
        (parsed,) = _native.read_batches(batch)
        assert parsed.base_sequence == 0
        for offset, _, key, value, _ in parsed.records:
            record = SERDE.read(key, value)
            assert not isinstance(record, int)
            table.replay(*record, offset, -1)
    return table.rows


class History:
    def __init__(self) -> None:
        self.log = MemoryLog()
        self.start()

    def start(self) -> None:
        self.asked = 0
        self.answers: list[int] = []
        self.host = make_host({0: self.log}, **{"offsets.topic.num.partitions": 1})
        self.table = Table()
        self.shard = Shard(self.host, OFFSETS_TOPIC, 0, self.table, SERDE, "none", TIMEOUT_MS)
        loading = self.shard.load()
        while loading is not None and self.shard.state != ACTIVE:
            self.host.tasks.start(loading.go_on())
            self.host.run()
        assert self.table.rows == rows_of(self.log)

    def add(self, names: list[str], by: int) -> None:
        self.asked += 1
        number = self.asked

        def reply(answer: tuple[int, int, int, list[str]]) -> None:
            code, offset, value, names = answer
            self.answers.append(number)
            if code == codes.NONE:
                assert self.log.high_watermark >= offset + len(names)
                assert self.is_logged(offset, value, names)

        self.shard.perform(self.table.add(names, by, reply))

    def is_logged(self, offset: int, value: int, names: list[str]) -> bool:
        found = []
        for base, batch in self.log.batches:
            (parsed,) = _native.read_batches(batch)
            for index, (_, _, key, content, _) in enumerate(parsed.records):
                if offset <= base + index < offset + len(names):
                    record = SERDE.read(key, content)
                    assert not isinstance(record, int)
                    number = 0 if record.value is None else record.value.offset
                    found.append((record.key.group, number))
        return found == [(name, value) for name in names]

    def turn(self, *_: Any) -> None:
        self.host.turn()

    def flush(self, *_: Any) -> None:
        self.host.flush()

    def wait(self, *_: Any) -> None:
        """What is under way is overdue: nobody waits any more."""
        self.host.turn()
        self.host.time_ms += TIMEOUT_MS
        self.host.turn()
        assert self.shard.is_held_up == self.shard.is_writing
        assert len(self.answers) == self.asked

    def refuse(self, *_: Any) -> None:
        self.host.append_error = MessageTooLargeError("too large")

    def heal(self, *_: Any) -> None:
        self.host.append_error = None

    def kill(self, *_: Any) -> None:
        self.log.high_watermark = self.log.end
        self.start()

    def cut_power(self, *_: Any) -> None:
        self.log.batches = [each for each in self.log.batches if each[0] < self.log.high_watermark]
        self.log.end = self.log.high_watermark
        self.start()

    def settle(self) -> None:
        """Everything is written or refused."""
        self.heal()
        self.host.run()
        assert not self.shard.is_writing
        assert self.host.core.requests.held_bytes == 0
        assert self.table.rows == rows_of(self.log)
        assert sorted(self.answers) == list(range(1, self.asked + 1))


OFTEN = ["turn", "flush", "refuse"]
STEPS = [*["add"] * 8, *OFTEN * 3, *["wait"] * 2, "heal", "kill", "cut_power"]
names = st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)
step = st.tuples(st.sampled_from(STEPS), names, st.integers(-1, 1))


@settings(deadline=None)
@given(st.lists(step, min_size=5, max_size=40))
def test_the_state_is_what_the_log_says_whatever_fails(steps: list[Any]) -> None:
    history = History()
    for name, *given_to_it in steps:
        getattr(history, name)(*given_to_it)
    history.settle()
    before = dict(history.table.rows)
    history.kill()
    assert history.table.rows == before

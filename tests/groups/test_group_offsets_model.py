"""Committed offsets under any order of commits, deletions, flushes, crashes and power cuts, held
against a plain model: a list of changes in the order of the requests, of which a prefix is on disk.
"""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from groups.fake_host import MemoryLog, make_host, when_done
from kafkalite.groups.coordinator import GroupCoordinator
from kafkalite.groups.events import CommitRequest, OffsetToCommit
from kafkalite.protocol import codes

# As often as they stand here: a history of crashes alone tells nothing.
STEPS = [
    *["commit"] * 8,
    *["turn_ends", "disk_flushes"] * 3,
    *["delete_group", "delete_offset", "delete_topic", "process_is_killed", "power_is_cut"],
]
step = st.tuples(
    st.sampled_from(STEPS),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["t", "u"]),
    st.integers(0, 1),
    st.integers(0, 99),
)

State = dict[str, dict[tuple[str, int], int]]


class History:
    def __init__(self) -> None:
        self.log = MemoryLog()
        self.changes: list[tuple[str, Any]] = []
        """Every change in the order of its request."""
        self.appended = 0
        """How many of them are in the log."""
        self.durable = 0
        """How many of them are on disk."""
        self.answers: list[tuple[int, list[int]]] = []
        """Place of the change, and its codes."""
        self.start()

    def start(self) -> None:
        self.host = make_host({0: self.log}, **{"offsets.topic.num.partitions": 1})
        self.coordinator = GroupCoordinator(self.host)
        self.coordinator.runtime.start()
        self.host.pass_time(100)
        assert self.coordinator.runtime.find("a")[1] == codes.NONE

    def note(self, kind: str, what: Any) -> Any:
        """Takes the change down; what answers its request."""
        self.changes.append((kind, what))
        place = len(self.changes)
        answers = self.answers

        def reply(*given: Any) -> None:
            answers.append((place, list(given)))

        return reply

    def state(self, count: int) -> State:
        """What the first so many changes come to."""
        found: State = {}
        for kind, what in self.changes[:count]:
            if kind == "commit":
                group, key, offset = what
                found.setdefault(group, {})[key] = offset
            elif kind == "delete group":
                found.pop(what, None)
            elif kind == "delete offsets":
                group, key = what
                found.get(group, {}).pop(key, None)
            elif kind == "delete topic":
                for offsets in found.values():
                    for key in [key for key in offsets if key[0] == what]:
                        del offsets[key]
        return {group: offsets for group, offsets in found.items() if offsets}

    # --- requests ---------------------------------------------------------------------------------

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        reply = self.note("commit", (group, (topic, partition), offset))
        what = OffsetToCommit(topic, bytes(16), partition, offset, -1, "")
        self.coordinator.commit(group, CommitRequest("", None, -1, -1, True, [what]), reply)

    def delete_group(self, group: str, *_: Any) -> None:
        if self.coordinator.describe(group)[1] is not None:
            reply = self.note("delete group", group)
            when_done(self.coordinator.delete_group(group), reply)

    def delete_offset(self, group: str, topic: str, partition: int, _: int) -> None:
        is_known = (topic, partition) in self.state(len(self.changes)).get(group, {})
        if self.coordinator.describe(group)[1] is not None and is_known:
            reply = self.note("delete offsets", (group, (topic, partition)))
            when_done(self.coordinator.delete_offsets(group, [(topic, partition)]), reply)

    def delete_topic(self, _: str, topic: str, *__: Any) -> None:
        self.note("delete topic", topic)
        self.coordinator.runtime.on_topics([topic])

    # --- the disk ---------------------------------------------------------------------------------

    def turn_ends(self, *_: Any) -> None:
        """While a batch is under way, what has come since waits for it."""
        end = self.log.end
        self.host.turn()
        if self.log.end > end:
            self.appended = len(self.changes)

    def disk_flushes(self, *_: Any) -> None:
        self.turn_ends()
        self.durable = self.appended
        self.host.flush()

    def process_is_killed(self, *_: Any) -> None:
        """What was appended survives, what was not does not."""
        self.durable = self.appended
        self.changes = self.changes[: self.appended]
        self.log.high_watermark = self.log.end
        self.restart()

    def power_is_cut(self, *_: Any) -> None:
        """What was on disk survives, nothing else."""
        self.log.batches = [each for each in self.log.batches if each[0] < self.log.high_watermark]
        self.log.end = self.log.high_watermark
        self.changes = self.changes[: self.durable]
        self.appended = self.durable
        self.restart()

    def restart(self) -> None:
        self.answers = []
        self.start()

    # --- what must hold ---------------------------------------------------------------------------

    def offsets_are_those_on_disk(self) -> None:
        expected = self.state(self.durable)
        for group in ("a", "b"):
            answer = self.coordinator.fetch_offsets(group, False).result()
            assert answer.error_code == codes.NONE
            found = {
                (topic, index): each.offset
                for topic, partitions in answer.offsets.items()
                for index, each in partitions.items()
            }
            assert found == expected.get(group, {})

    def answers_come_in_order_and_only_for_what_is_on_disk(self) -> None:
        places = [place for place, _ in self.answers]
        assert places == sorted(set(places))
        assert not places or places[-1] <= self.durable


@settings(deadline=None)
@given(st.lists(step, min_size=10, max_size=60))
def test_offsets_are_what_is_on_disk_whatever_happens(steps: list[Any]) -> None:
    history = History()
    for name, *given_to_it in steps:
        getattr(history, name)(*given_to_it)
        history.offsets_are_those_on_disk()
        history.answers_come_in_order_and_only_for_what_is_on_disk()

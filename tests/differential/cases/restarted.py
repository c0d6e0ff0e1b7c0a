"""Leader epochs after a clean stop and a start: of logs that have records, that have lost theirs,
and that never had any; then with records of the new epoch."""

from dataclasses import replace

from differential.cases.records import cut
from differential.script import T0, Batch, Case, appears, ask, create, fetch, list_offsets, produce

THREE = Batch([b"0", b"1", b"2"], timestamp=T0)
# Topic -> where its log ends at the stop.
ENDS = {"r-read": 3, "r-emptied": 3, "r-never": 0}
# The leader's before the stop and after the start; the epoch in between is that of no leader.
FIRST, NEXT = 0, 2

BEFORE: list[Case] = [
    *(case for topic in ENDS for case in (create(f"create {topic}", topic), appears(topic))),
    produce("fill the one that is read", "r-read", THREE),
    produce("fill the one that is emptied", "r-emptied", THREE),
    cut("all before the stop", "r-emptied", -1),
]


def end_of(name: str, topic: str, epoch: int, *, current: int = -1) -> Case:
    """OffsetForLeaderEpoch of one partition."""
    asked = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
    topics = [{"topic": topic, "partitions": [asked]}]
    return ask(name, "OffsetForLeaderEpoch", 4, replica_id=-1, topics=topics)


def looks(when: str, topic: str, end_offset: int) -> list[Case]:
    """Asks by every key that knows leader epochs."""
    what = f"{when} {topic}"
    fetches = [(FIRST, 0), (NEXT, 0), *((epoch, end_offset) for epoch in range(FIRST, NEXT + 2))]
    return [
        ask(f"metadata {what}", "Metadata", 12, topics=[{"name": topic}]),
        *(end_of(f"end of epoch {epoch} {what}", topic, epoch) for epoch in range(NEXT + 2)),
        *(
            fetch(
                f"fetch {what} from {offset} after epoch {epoch}",
                topic,
                offset,
                last_fetched_epoch=epoch,
            )
            for epoch, offset in fetches
        ),
        fetch(f"fetch {what} beyond the end", topic, end_offset + 1, last_fetched_epoch=NEXT),
        *(list_offsets(f"offset of {time} {what}", topic, time) for time in (-1, -2, -3, -4)),
    ]


AFTER: list[Case] = [
    *(
        replace(
            end_of(f"{topic} is led again", topic, FIRST, current=NEXT),
            until={"topics.0.partitions.0.error_code": 0},
        )
        for topic in ENDS
    ),
    *(case for topic, end_offset in ENDS.items() for case in looks("started", topic, end_offset)),
    *(produce(f"a record of the next epoch in {topic}", topic, Batch([b"n"])) for topic in ENDS),
    *(case for topic, end in ENDS.items() for case in looks("written", topic, end + 1)),
]

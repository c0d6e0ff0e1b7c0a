"""Decides from what clients saw whether a broker kept its promises.

A history is a file of JSON lines, one an operation of one client: what it asked, when, and what
became of it. A time-out is `unknown`, never `fail`: the record may be there, once. The last reader,
`FINAL`, reads every partition after everything has healed, from its first offset to its last.

    python -m faults.verify history.jsonl      # judges a history that a test has kept

The topics of a history are neither compacted nor transactional, so that offsets have no gaps.
"""

import bisect
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import accumulate, chain, pairwise, product, zip_longest
from pathlib import Path
from typing import NamedTuple

FINAL = "final"
"""The process that reads everything at the end."""
OBSERVER = "observer"
"""The process that asks for ends and committed offsets throughout."""
SOCKETS_OF_CLIENTS_MAX = 50
"""Some ten clients have up to three connections each, and come again while old ones are ending."""
FINDINGS_PER_PROMISE_MAX = 5
"""So many sentences a promise: what breaks one record often breaks thousands."""


class Outcome(StrEnum):
    OK = "ok"
    FAIL = "fail"
    """It has certainly not been done."""
    UNKNOWN = "unknown"


class Ends(NamedTuple):
    """The offsets that a partition tells of itself."""

    log_start: int
    last_stable: int
    high_watermark: int
    leader_epoch: int


class Holdings(NamedTuple):
    """How much a process holds of the system."""

    sockets: int
    files: int
    others: int
    """Files that have been deleted, pipes, events and the like."""
    threads: int


@dataclass(frozen=True, slots=True)
class Operation:
    """What one client did, from its call to its answer. Offsets are -1 where there are none."""

    process: str
    name: str
    """`produce`, `read`, `ends`, `commit`, `committed` (a look at what a group has committed),
    `holdings` (those of the broker's process), `copy` (of a record in a transaction: `ok` if that
    has been committed, `fail` if its client has never asked for that), or `fault`, which says what
    befell the broker."""
    outcome: Outcome
    began: float
    ended: float
    """Seconds of one monotonic clock for all processes."""
    partition: str
    """As `topic-0`."""
    value: str = ""
    """Of a record, unlike that of every other one."""
    offset: int = -1
    """Of a produced record that was acknowledged: -1 where its client does not know the offset, as
    librdkafka if the first answer is lost and the leader is another one for the second."""
    number: int = -1
    """Of a produced record: how many its process sent to the partition before."""
    is_idempotent: bool = False
    session: int = 0
    """Of a read: within one, offsets follow each other."""
    group: str = ""
    transaction: str = ""
    """Of a `copy`, and of a read of what has been copied: that in which it was written."""
    ends: Ends | None = None
    holdings: Holdings | None = None

    def to_line(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> "Operation":
        fields = json.loads(line)
        fields["outcome"] = Outcome(fields["outcome"])
        for name, kind in (("ends", Ends), ("holdings", Holdings)):
            fields[name] = kind(*fields[name]) if fields[name] else None
        return cls(**fields)


class History:
    """Operations by what is asked of them."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        everything = list(operations)
        self.produced = [each for each in everything if each.name == "produce"]
        self.reads = [each for each in everything if each.name == "read"]
        self.ends = _by_partition(each for each in everything if each.name == "ends")
        self.commits = [each for each in everything if each.name == "commit"]
        self.committed = [each for each in everything if each.name == "committed"]
        self.faults = [each for each in everything if each.name == "fault"]
        self.partitions = sorted({each.partition for each in everything if each.partition})
        self.final: dict[str, dict[int, str]] = defaultdict(dict)
        """By partition: offsets with their values, as the last reader found them."""
        for each in self.reads:
            if each.process == FINAL:
                self.final[each.partition][each.offset] = each.value
        self.final_ends = {
            each.partition: each.ends
            for each in everything
            if each.process == FINAL and each.ends is not None
        }
        self.final_stops: dict[str, int] = {}
        """By partition where the last reader has been: the offset up to which it knows what is
        there, beyond all of them if it came to the end."""
        for partition, ends in self.final_ends.items():
            came_to = max(self.final[partition], default=ends.log_start - 1) + 1
            is_whole = came_to >= ends.high_watermark
            self.final_stops[partition] = sys.maxsize if is_whole else came_to


def check(operations: Iterable[Operation]) -> list[str]:
    """What is wrong with a history, a sentence a finding; empty if every promise was kept."""
    history = History(operations)
    findings = []
    for promise in PROMISES:
        found = list(promise(history))
        findings += found[:FINDINGS_PER_PROMISE_MAX]
        if len(found) > FINDINGS_PER_PROMISE_MAX:
            findings.append(f"… and {len(found) - FINDINGS_PER_PROMISE_MAX} more of that kind")
    return findings


def check_process(operations: Iterable[Operation], more: Holdings) -> list[str]:
    """12. What is wrong with the holdings of the broker's process. The first look is at one that
    has just started, before any client; the last, by `FINAL`, at one that all have left: by then it
    is back where it was, but for `more`, which is what it may keep for the next time. In between it
    also has a socket or some for each client."""
    looks = [each for each in operations if each.holdings is not None]
    if not looks or looks[-1].process != FINAL:
        return ["nobody looked at what the broker's process holds in the end"]
    findings = []
    for each in looks:
        assert each.holdings is not None
        assert looks[0].holdings is not None
        most = Holdings(*map(int.__add__, looks[0].holdings, more))
        if each.process != FINAL:
            most = most._replace(sockets=most.sockets + SOCKETS_OF_CLIENTS_MAX)
        for kind, first, now, bound in zip(
            Holdings._fields, looks[0].holdings, each.holdings, most, strict=True
        ):
            if now > bound:
                findings.append(f"the broker holds {now} {kind} {each.value}, {first} at first")
    return findings


def check_copies(operations: Iterable[Operation], source: str, target: str) -> list[str]:
    """2 and 6. What is wrong with the copy of one topic to another in transactions: each reader of
    what is committed has found every record once, in the order of the source, and whole
    transactions only."""
    everything = list(operations)
    ended = {each.transaction: each.outcome for each in everything if each.name == "copy"}
    copies = _by_partition(each for each in everything if each.name == "copy")
    sent = _by_partition(each for each in everything if each.name == "produce")
    findings = []
    for partition, records in sent.items():
        copied = target + partition.removeprefix(source)
        refused = [each for each in records if each.outcome is not Outcome.OK]
        findings += [f"{partition}: {each.value} was not acknowledged" for each in refused]
        wanted = [each.value for each in sorted(records, key=lambda each: each.offset)]
        reads: dict[tuple[str, int], list[Operation]] = defaultdict(list)
        for each in everything:
            if each.name == "read" and each.partition == copied:
                reads[each.process, each.session].append(each)
        committed = {each.value for each in copies[copied] if each.outcome is Outcome.OK}
        if not reads:
            findings.append(f"{copied}: nobody has read it")
        for (process, _), found in reads.items():
            findings += _wrong_copy(f"{copied}: {process}", found, wanted, committed, ended)
    return findings


def _wrong_copy(
    who: str,
    found: list[Operation],
    wanted: list[str],
    committed: set[str],
    ended: dict[str, Outcome],
) -> Iterator[str]:
    """What is wrong with what one reader has found in one partition; the first of each kind."""
    if any(after.offset <= before.offset for before, after in pairwise(found)):
        yield f"{who} was given offsets that do not grow"
    values = [each.value for each in found]
    aborted = [each for each in found if ended.get(each.transaction) is Outcome.FAIL]
    if aborted:
        yield f"{who} read {aborted[0].value} of {aborted[0].transaction}, which was aborted"
    if missed := committed - set(values):
        yield f"{who} did not read {min(missed)}, whose transaction was committed"
    if len(set(values)) < len(values):
        yield f"{who} read {Counter(values).most_common(1)[0][0]} more than once"
    if values != wanted:
        pairs = enumerate(zip_longest(values, wanted))
        at, (value, other) = next(each for each in pairs if each[1][0] != each[1][1])
        yield f"{who} read {value} as record {at} of {len(values)}, and not {other}"


def _last_reader_came_to_the_end(history: History) -> Iterator[str]:
    """Without what it was given, little is known of what has been lost."""
    for partition in history.partitions:
        stop = history.final_stops.get(partition)
        if stop is None:
            yield f"{partition}: the last reader never came here"
        elif stop < sys.maxsize:
            end = history.final_ends[partition].high_watermark
            yield f"{partition}: the last reader came to offset {stop}, and not to the end at {end}"


def _observer_saw_what_followed(history: History) -> Iterator[str]:
    """7 and 9 are worth what has been seen: also behind the last fault."""
    since = max((each.ended for each in history.faults), default=None)
    if since is None:
        return
    seen = {
        (each.partition, each.name)
        for each in [*chain.from_iterable(history.ends.values()), *history.committed]
        if each.process == OBSERVER and each.began >= since
    }
    for missed in sorted(set(product(history.partitions, ("ends", "committed"))) - seen):
        yield f"{missed[0]}: after the last fault the observer saw no {missed[1]}"


def _acknowledged_is_there(history: History) -> Iterator[str]:
    """1. Every acknowledged value is read back where it was acknowledged, as far as the last reader
    has come."""
    there_at_all = {name: set(found.values()) for name, found in history.final.items()}
    for each in history.produced:
        if each.outcome is not Outcome.OK:
            continue
        if each.offset < 0:
            if each.value not in there_at_all.get(each.partition, ()):
                yield f"{each.partition}: {each.value} was acknowledged, and in the end is nowhere"
            continue
        if each.offset >= history.final_stops.get(each.partition, 0):
            continue  # told already
        if each.offset < history.final_ends[each.partition].log_start:
            continue
        there = history.final[each.partition].get(each.offset)
        if there != each.value:
            yield (
                f"{each.partition}: {each.value} was acknowledged at offset {each.offset}, where in"
                f" the end there is {there or 'nothing'}"
            )


def _nothing_is_made_up(history: History) -> Iterator[str]:
    """1. Whatever is read was sent to that partition, and not refused."""
    outcomes = {(each.partition, each.value): each.outcome for each in history.produced}
    for each in history.reads:
        if each.outcome is not Outcome.OK:
            yield (
                f"{each.partition}: {each.process} cannot read on at offset {each.offset}:"
                f" {each.value}"
            )
            continue
        outcome = outcomes.get((each.partition, each.value))
        if outcome is None:
            yield f"{each.partition}: {each.value} at offset {each.offset} was never sent there"
        elif outcome is Outcome.FAIL:
            yield f"{each.partition}: {each.value} at offset {each.offset} had been refused"


def _idempotent_is_there_once(history: History) -> Iterator[str]:
    """2. The value of an idempotent producer stands at one offset."""
    for partition, offsets in _final_offsets(history).items():
        for value, found in offsets.items():
            if len(found) > 1:
                yield f"{partition}: {value} is at the offsets {', '.join(map(str, found))}"


def _order_is_kept(history: History) -> Iterator[str]:
    """3. Records of an idempotent producer lie in the order in which it sent them."""
    offsets = _final_offsets(history)
    sent: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for each in history.produced:
        if each.is_idempotent and each.value in offsets[each.partition]:
            sent[each.process, each.partition].append(each)
    for (process, partition), records in sent.items():
        records.sort(key=lambda each: each.number)
        for before, after in pairwise(records):
            first, second = (offsets[partition][each.value][0] for each in (before, after))
            if first >= second:
                yield (
                    f"{partition}: {process} sent {before.value} before {after.value}, which lie at"
                    f" the offsets {first} and {second}"
                )


def _one_value_an_offset(history: History) -> Iterator[str]:
    """4. Whoever looks at an offset, and whenever, finds the same value."""
    known: dict[tuple[str, int], tuple[str, str]] = {}
    answered = [
        each for each in history.produced if each.outcome is Outcome.OK and each.offset >= 0
    ]
    for each in [*answered, *history.reads]:
        if each.outcome is not Outcome.OK:
            continue
        value, process = known.setdefault((each.partition, each.offset), (each.value, each.process))
        if value != each.value:
            yield (
                f"{each.partition}: offset {each.offset} was {value} to {process} and"
                f" {each.value} to {each.process}"
            )


def _offsets_follow_each_other(history: History) -> Iterator[str]:
    """5. Within a session offsets grow by one; the last reader has seen the whole partition."""
    sessions: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    for each in history.reads:
        if each.outcome is Outcome.OK:
            sessions[each.process, each.session, each.partition].append(each.offset)
    for (process, _, partition), offsets in sessions.items():
        for before, after in pairwise(offsets):
            if after != before + 1:
                yield f"{partition}: {process} read offset {after} after {before}"
    for partition, ends in history.final_ends.items():
        whole = range(ends.log_start, ends.high_watermark)
        if history.final_stops[partition] < sys.maxsize:
            continue  # told already
        if sorted(history.final[partition]) != list(whole):
            yield (
                f"{partition}: in the end {len(history.final[partition])} records were read of"
                f" the offsets {whole.start} to {whole.stop - 1}"
            )


def _ends_never_go_back(history: History) -> Iterator[str]:
    """7. Neither log start, last stable offset, high watermark nor leader epoch, by whatever order
    of requests; what has been read lies before the high watermark ever after."""
    seen: dict[str, list[tuple[float, Ends]]] = defaultdict(list)
    for partition, looks in history.ends.items():
        for each in looks:
            assert each.ends is not None
            seen[partition].append((each.ended, each.ends))
            if not each.ends.log_start <= each.ends.last_stable <= each.ends.high_watermark:
                yield f"{partition}: log start, last stable offset and high watermark: {each.ends}"
    for each in history.reads:
        if each.outcome is Outcome.OK:
            seen[each.partition].append((each.ended, Ends(-1, -1, each.offset + 1, -1)))
    for partition, looks in history.ends.items():
        told = sorted(seen[partition])
        times = [time for time, _ in told]
        greatest = list(accumulate((ends for _, ends in told), lambda a, b: Ends(*map(max, a, b))))
        for each in looks:
            assert each.ends is not None
            earlier = bisect.bisect_left(times, each.began)
            if earlier == 0:
                continue
            for name, before, now in zip(
                Ends._fields, greatest[earlier - 1], each.ends, strict=True
            ):
                if now < before:
                    yield f"{partition}: {name} went back from {before} to {now}"


def _commits_stay(history: History) -> Iterator[str]:
    """9. What a group has committed is not forgotten and not made up, and lies within the log."""
    sent: dict[tuple[str, str], set[int]] = defaultdict(set)
    kept: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    for each in history.commits:
        if each.outcome is not Outcome.FAIL:
            sent[each.group, each.partition].add(each.offset)
        if each.outcome is Outcome.OK:
            kept[each.group, each.partition].append((each.ended, each.offset))
    for key, commits in kept.items():
        commits.sort()
        kept[key] = list(accumulate(commits, lambda a, b: (b[0], max(a[1], b[1]))))
    for look in history.committed:
        key = look.group, look.partition
        earlier = bisect.bisect_left(kept[key], (look.began, -1))
        least = kept[key][earlier - 1][1] if earlier else -1
        if look.offset < least:
            yield (
                f"{look.partition}: {look.group} had committed {least}, and then {look.offset} was"
                f" found"
            )
        if look.offset >= 0 and look.offset not in sent[key]:
            yield f"{look.partition}: {look.group} never committed {look.offset}, which was found"
        ends = history.final_ends.get(look.partition)
        if ends is not None and look.offset > ends.high_watermark:
            yield (
                f"{look.partition}: {look.group} has committed {look.offset}, beyond the end of the"
                f" log at {ends.high_watermark}"
            )


def _groups_read_everything(history: History) -> Iterator[str]:
    """9. A group that commits only what it has read misses no record."""
    read: dict[tuple[str, str], set[int]] = defaultdict(set)
    for each in history.reads:
        if each.group and each.outcome is Outcome.OK:
            read[each.group, each.partition].add(each.offset)
    for group in sorted({group for group, _ in read}):
        for partition, records in history.final.items():
            missed = sorted(records.keys() - read[group, partition])
            if missed:
                yield f"{partition}: {group} never read {len(missed)} records from {missed[0]} on"


PROMISES: tuple[Callable[[History], Iterator[str]], ...] = (
    _last_reader_came_to_the_end,
    _observer_saw_what_followed,
    _acknowledged_is_there,
    _nothing_is_made_up,
    _idempotent_is_there_once,
    _order_is_kept,
    _one_value_an_offset,
    _offsets_follow_each_other,
    _ends_never_go_back,
    _commits_stay,
    _groups_read_everything,
)
"""Numbered as the invariants that a fault must leave standing; 6 (transactions) is in
`check_copies`, 8 and 10 (replicas) come with what they are about."""


def _by_partition(operations: Iterable[Operation]) -> dict[str, list[Operation]]:
    found: dict[str, list[Operation]] = defaultdict(list)
    for each in operations:
        found[each.partition].append(each)
    return found


def _final_offsets(history: History) -> dict[str, dict[str, list[int]]]:
    """By partition: the values of idempotent producers with the offsets where they are."""
    idempotent = {each.value for each in history.produced if each.is_idempotent}
    found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for partition, records in history.final.items():
        for offset, value in sorted(records.items()):
            if value in idempotent:
                found[partition][value].append(offset)
    return found


def main(path: str) -> int:
    """Prints what is wrong with a history in a file; exit code 1 if something is."""
    with Path(path).open() as lines:
        findings = check(map(Operation.from_line, lines))
    print("\n".join(findings) or "every promise was kept")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

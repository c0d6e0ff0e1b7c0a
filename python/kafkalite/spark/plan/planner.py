"""Plans what a query reads: asks brokers or files, and lets `ranges.py` decide."""

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn

from kafkalite.errors import BrokerError, KafkaliteError
from kafkalite.protocol.codes import UNKNOWN_TOPIC_OR_PARTITION
from kafkalite.spark.offsets import (
    Bound,
    Offsets,
    Partition,
    Position,
    Range,
    name_of,
    names_of,
    remade,
    same_topics,
)
from kafkalite.spark.options.read import ReadOptions
from kafkalite.spark.plan import ranges as decide
from kafkalite.spark.plan.first_micro_batch import Start, starts_of
from kafkalite.spark.plan.topic_source import TopicSource

__all__ = [
    "DataLossError",
    "NextEnd",
    "Plan",
    "commit_to_group",
    "initial_offsets",
    "next_end",
    "plan_batch",
    "plan_between",
    "refuse_loss",
    "with_ids",
]


class DataLossError(KafkaliteError):
    """Records that a query should read are gone, and failOnDataLoss is true."""


class Plan(NamedTuple):
    """The ranges to read, and notes that a user should know."""

    ranges: list[Range]
    warnings: list[str]


class NextEnd(NamedTuple):
    """The end of the next micro-batch, and those of the partitions."""

    end: Position
    latest: Position
    is_delayed: bool


def plan_batch(options: ReadOptions, source: TopicSource, cut: decide.Cut) -> Plan:
    """The tasks of a batch query, cut by its filters: nothing is asked about partitions that they
    exclude. Raises `KafkaliteError`."""
    partitions = source.partitions(options.topics)
    for bound in (options.start, options.stop):
        decide.check_names(bound, partitions)
    kept = [each for each in partitions if cut.keeps(each)]
    first, last = _ends(source, kept)
    start, stop = (
        decide.resolve(
            bound,
            kept,
            first,
            last,
            # What was appended since the ends were told is not of this query.
            {each: min(at, last[each]) for each, at in _at_time(bound, kept, source).items()},
            latest_if_none=bound is options.stop or options.latest_if_none,
        )
        for bound in (options.start, options.stop)
    )
    found, losses = decide.batch_ranges(start, stop, first, last, cut)
    if cut.timestamp >= 0:
        left = [each.topic_partition for each in found]
        found = decide.begin_later(found, source.at_time(dict.fromkeys(left, cut.timestamp)))
    return _plan(options, found, losses)


def initial_offsets(options: ReadOptions, source: TopicSource) -> Start:
    """Where a new stream starts."""
    partitions = source.partitions(options.topics)
    decide.check_names(options.start, partitions)
    first, last = _ends(source, partitions)
    at_time = _at_time(options.start, partitions, source)
    found = decide.resolve(
        options.start,
        partitions,
        first,
        last,
        at_time,
        latest_if_none=options.latest_if_none,
    )
    return starts_of(options.start, found, first, at_time)


def commit_to_group(
    options: ReadOptions, source: TopicSource, start: Position, *, is_first: bool
) -> None:
    """Tells the query's group, if it has one, that everything before `start` is done. Partitions
    that are gone are left out, and topics that were recreated: their groups know nothing of them,
    and a broker refuses the offsets. Raises `KafkaliteError`."""
    if options.group is None or not start.offsets:
        return
    now = with_ids(source, dict.fromkeys(source.partitions(options.topics), 0))
    same = same_topics(start, now.ids)
    offsets = {each: offset for each, offset in same.items() if each in now.offsets}
    if offsets:
        source.commit(options.group, offsets, is_first=is_first)


def with_ids(source: TopicSource, offsets: dict[Partition, int]) -> Position:
    """Offsets of partitions that `log.partitions` has just told."""
    return Position(offsets, source.ids({topic for topic, _ in offsets}))


def next_end(
    options: ReadOptions,
    source: TopicSource,
    start: Position,
    target: Position | None,
    *,
    rows_max: int | None,
    rows_min: int | None,
    since_ms: int,
) -> NextEnd:
    """Where the next micro-batch ends: at the start, if there is nothing new or it waits for
    `rows_min`; nowhere beyond a target. The last one was planned `since_ms` ago."""
    latest = _latest_offsets(options, source, start) if target is None else target
    begin = same_topics(start, latest.ids)
    if rows_min is not None and decide.is_delayed(
        begin, latest.offsets, rows_min, options.delay_ms_max, since_ms
    ):
        return NextEnd(start, latest, is_delayed=True)
    new = [] if rows_max is None else [each for each in latest.offsets if each not in begin]
    found = decide.advance(begin, latest.offsets, source.first(new) if new else {}, rows_max)
    # A checkpoint without ids gets them with its next records.
    end = start if found == start.offsets == begin else Position(found, latest.ids)
    return NextEnd(end, latest, is_delayed=False)


def _latest_offsets(options: ReadOptions, source: TopicSource, start: Position) -> Position:
    """The ends of all partitions. An end below the start of the same topic is asked for again: most
    likely a broker is behind. All are where a topic of a pattern has just been deleted."""
    attempt = 1
    while True:
        is_last = attempt >= options.offset_attempts
        try:
            found = with_ids(source, dict(source.last(source.partitions(options.topics))))
        except BrokerError as error:
            is_gone = error.code == UNKNOWN_TOPIC_OR_PARTITION
            if is_last or not is_gone or options.topics.kind != "subscribePattern":
                raise
        else:
            known = same_topics(start, found.ids)
            if is_last or all(
                found.offsets.get(each, offset) >= offset for each, offset in known.items()
            ):
                return found
        attempt += 1
        time.sleep(options.offset_pause_ms / 1000)


def plan_between(
    options: ReadOptions, source: TopicSource, start: Position, stop: Position
) -> Plan:
    """The tasks of a micro-batch, which are the same for the same offsets as long as the log is
    there. A topic that was recreated since the start is read from its beginning; of one that was
    recreated since the micro-batch was first planned, nothing is read."""
    now = source.ids({topic for topic, _ in stop.offsets}, ask=True) if stop.ids else {}
    end = same_topics(stop, now)
    begin = same_topics(Position(same_topics(start, stop.ids), stop.ids), now)
    new = [each for each in end if each not in begin]
    found, losses = decide.between(begin, end, source.first(new) if new else {})
    if options.topics.kind == "path":
        found, more = _still_there(source, found)
        losses += more
    anew = {topic: start.ids[topic] for topic in remade(start.ids, stop.ids)}
    anew |= {topic: stop.ids[topic] for topic in remade(stop.ids, now)}
    told = [
        f"the topic {topic} was deleted and recreated (its id was {before}, it is "
        f"{now.get(topic, stop.ids[topic])})"
        for topic, before in sorted(anew.items())
    ]
    return _plan(options, found, told + losses)


def _still_there(source: TopicSource, ranges: Iterable[Range]) -> tuple[list[Range], list[str]]:
    """Cuts ranges to what files still have: they may have been moved, or restored, since."""
    wanted = [each for each in ranges if each.size > 0]
    partitions = [each.topic_partition for each in wanted]
    first, last = source.first(partitions), source.last(partitions)
    found: list[Range] = []
    losses: list[str] = []
    for partition, each in zip(partitions, wanted, strict=True):
        if partition not in first or partition not in last:
            losses.append(f"the partition {name_of(partition)} is gone")
            continue
        left, lost = decide.within(each, first[partition], last[partition])
        found.append(left)
        losses += lost
    return found, losses


def _ends(source: TopicSource, partitions: Sequence[Partition]) -> tuple[Offsets, Offsets]:
    """Where logs that were there a moment ago begin and end."""
    first, last = source.first(partitions), source.last(partitions)
    gone = [each for each in partitions if each not in first or each not in last]
    if gone:
        raise KafkaliteError(f"gone while the query was planned: {names_of(gone)}")
    return first, last


def _at_time(bound: Bound, partitions: Sequence[Partition], source: TopicSource) -> Offsets:
    if bound.kind == "timestamp":
        return source.at_time(dict.fromkeys(partitions, bound.timestamp))
    if bound.kind == "timestamps":
        return source.at_time({each: bound.by_partition[each] for each in partitions})
    return {}


def _plan(options: ReadOptions, found: list[Range], losses: list[str]) -> Plan:
    if losses and options.fail_on_data_loss:
        refuse_loss("; ".join(losses))
    tasks = decide.split(found, options.partitions_min, options.records_max)
    return Plan(tasks, [f"data may have been lost: {loss}" for loss in losses])


def refuse_loss(sentence: str) -> NoReturn:
    """Raises `DataLossError` with the remedy."""
    raise DataLossError(f"{sentence} (failOnDataLoss=false goes on with what there is)")

"""Plans what a query reads: asks brokers, or files, and lets `ranges.py` decide.

`answer` is the same as JSON in, JSON out: what `kafkalite arrow serve` gives the columnar engine in
the JVM. Offsets are as in the connector's JSON, those of a stream with the ids of topics
(`ranges.Position`), by which it notices one that was deleted and made anew; a range is
`[topic, partition, start, stop]`, from files with the partition's directory as a fifth.

    {"op": "batch",   "options": {…}, …}                         ranges
        "cut": {"tests": […], "start": n, "stop": n, "timestamp": ms}
                                                                 what filters leave; may be missing
            ["partition", "<", [3]]                              a test, of `topic` or `partition`
    {"op": "initial", "options": {…}}                            offsets
    {"op": "latest",  "options": {…}, "start": {…}, …}           offsets, latest, delayed
        "limit": {"maxRows": n, "minRows": n}                    as the op schema says; or null
        "sinceMs": n                                             since an answer was not delayed
        "target": {…}                                            Trigger.AvailableNow: not beyond
    {"op": "between", "options": {…}, "start": {…}, "end": {…}}  ranges
    {"op": "schema",  "options": {…}, "streaming": true or null} schema, limit; null: not known yet
    {"op": "endpoint", "options": {…}}                           endpoint

`batch` and `initial` take the `schema` of the rows, as a read request has it, and refuse one that
records cannot have. Where there are ranges, there are also `endpoint` (host:port of the broker's
Arrow listener, if it answers here, or null), `read` (what a read request has beside range and
schema) and `warnings`.
A refusal is a `KafkaliteError` with one sentence.
"""

import base64
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kafkalite._native import FetchRead, LogRead
from kafkalite.client.admin import BROKER, EARLIEST, LATEST, Admin, uuid_text
from kafkalite.client.arguments import OffsetOfTime
from kafkalite.client.network.cluster import Cluster
from kafkalite.client.network.connection import Closing
from kafkalite.client.network.metadata import TopicMetadata
from kafkalite.errors import BrokerError, InvalidArgumentError, KafkaliteError
from kafkalite.protocol.codes import UNKNOWN_TOPIC_OR_PARTITION
from kafkalite.spark.options.java_regex import java_pattern
from kafkalite.spark.options.read import ClientOptions, ReadOptions, Topics
from kafkalite.spark.plan import ranges as decide
from kafkalite.spark.plan.endpoint import serves_cluster
from kafkalite.spark.plan.ranges import (
    OPERATORS,
    Bound,
    Cut,
    Offsets,
    Partition,
    PartitionTest,
    Position,
    Range,
    Start,
)

__all__ = ["DataLossError", "FileLog", "Log", "Logs", "Plan", "WireLog", "answer", "open_log"]

ARROW_LISTENER = "kafkalite.arrow.listener"


class DataLossError(KafkaliteError):
    """Records that a query should read are gone, and failOnDataLoss is true."""


class Plan(NamedTuple):
    """The ranges to read, and notes that a user should know."""

    ranges: list[Range]
    warnings: list[str]


class Endpoint(NamedTuple):
    """An Arrow endpoint, and whose it is."""

    address: str
    cluster_id: str


class Log(Protocol):
    """A log as planning asks it."""

    def partitions(self, topics: Topics) -> list[Partition]:
        """Those that there are now, in order. Raises `KafkaliteError` for what is not there."""

    def first(self, partitions: Iterable[Partition]) -> Offsets:
        """Log starts; partitions that are gone are missing."""

    def last(self, partitions: Iterable[Partition]) -> Offsets:
        """High watermarks, or last stable offsets."""

    def at_time(self, timestamps: Mapping[Partition, int]) -> Offsets:
        """The first offset at or after a timestamp; -1 for none."""

    def ids(self, topics: Iterable[str], *, ask: bool = False) -> dict[str, str]:
        """The ids of topics, where they are known, as of the last `partitions`, or of now."""

    def endpoint(self) -> "Endpoint | None":
        """Where the broker serves Arrow on this machine, if it does."""

    def directory(self, partition: Partition) -> str | None:
        """Where the files of a partition are, if they are read in place of a broker."""

    def close(self) -> None:
        """Gives back what it holds."""


# --- planning -------------------------------------------------------------------------------------


def plan_batch(options: ReadOptions, log: Log, cut: Cut) -> Plan:
    """The tasks of a batch query, or of what filters leave of it: nothing is asked about partitions
    of which they leave nothing. Raises `KafkaliteError`."""
    partitions = log.partitions(options.topics)
    for bound in (options.start, options.stop):
        decide.check_names(bound, partitions)
    kept = [each for each in partitions if cut.keeps(each)]
    first, last = _ends(log, kept)
    start, stop = (
        decide.resolve(
            bound,
            kept,
            first,
            last,
            _at_time(bound, kept, log),
            latest_if_none=bound is options.stop or options.latest_if_none,
        )
        for bound in (options.start, options.stop)
    )
    found, losses = decide.batch_ranges(start, stop, first, last, cut)
    if cut.timestamp >= 0:
        left = [(each.topic, each.partition) for each in found]
        found = decide.begin_later(found, log.at_time(dict.fromkeys(left, cut.timestamp)))
    return _plan(options, found, losses)


def initial_offsets(options: ReadOptions, log: Log) -> Start:
    """Where a new stream starts."""
    partitions = log.partitions(options.topics)
    decide.check_names(options.start, partitions)
    first, last = _ends(log, partitions)
    at_time = _at_time(options.start, partitions, log)
    found = decide.resolve(
        options.start,
        partitions,
        first,
        last,
        at_time,
        latest_if_none=options.latest_if_none,
    )
    return decide.starts_of(options.start, found, first, at_time)


def repeated_start(
    options: ReadOptions, start: Start, end: Offsets
) -> tuple[dict[Partition, int], list[str]]:
    """See `ranges.repeated_start`."""
    by_time = options.start.kind in ("timestamp", "timestamps") and options.latest_if_none
    return decide.repeated_start(start, end, by_time=by_time)


def latest_offsets(options: ReadOptions, log: Log, start: Position) -> Position:
    """The ends of all partitions. An end below the start of the same topic is asked for again: most
    likely a broker is behind."""
    attempt = 1
    while True:
        found = with_ids(log, dict(log.last(log.partitions(options.topics))))
        known = decide.same_topics(start, found.ids)
        is_behind = any(found.offsets.get(each, offset) < offset for each, offset in known.items())
        if not is_behind or attempt >= options.offset_attempts:
            return found
        attempt += 1
        time.sleep(options.offset_pause_ms / 1000)


def with_ids(log: Log, offsets: dict[Partition, int]) -> Position:
    """Offsets of partitions that `log.partitions` has just told."""
    return Position(offsets, log.ids({topic for topic, _ in offsets}))


def next_offsets(log: Log, start: Position, latest: Position, rows_max: int | None) -> Position:
    """Where the next micro-batch ends: at the start, if there is nothing new."""
    begin = decide.same_topics(start, latest.ids)
    new = [] if rows_max is None else [each for each in latest.offsets if each not in begin]
    found = decide.advance(begin, latest.offsets, log.first(new) if new else {}, rows_max)
    # A checkpoint without ids gets them with its next records.
    return start if found == start.offsets == begin else Position(found, latest.ids)


def plan_between(options: ReadOptions, log: Log, start: Position, stop: Position) -> Plan:
    """The tasks of a micro-batch: the same for the same offsets, as long as the log is there. A
    topic that was made anew since the start is read from its beginning, and one that was since the
    micro-batch was planned first has nothing in it any more."""
    now = log.ids({topic for topic, _ in stop.offsets}, ask=True) if stop.ids else {}
    end = decide.same_topics(stop, now)
    begin = decide.same_topics(Position(decide.same_topics(start, stop.ids), stop.ids), now)
    new = [each for each in end if each not in begin]
    found, losses = decide.between(begin, end, log.first(new) if new else {})
    if options.topics.kind == "path":
        found, more = _still_there(log, found)
        losses += more
    anew = {topic: start.ids[topic] for topic in decide.remade(start.ids, stop.ids)}
    anew |= {topic: stop.ids[topic] for topic in decide.remade(stop.ids, now)}
    told = [
        f"the topic {topic} was deleted and made anew (its id was {before}, it is "
        f"{now.get(topic, stop.ids[topic])})"
        for topic, before in sorted(anew.items())
    ]
    return _plan(options, found, told + losses)


def _still_there(log: Log, ranges: Iterable[Range]) -> tuple[list[Range], list[str]]:
    """Cuts ranges to what files still have: they may have been moved, or restored, since."""
    wanted = [each for each in ranges if each.size > 0]
    places = [(each.topic, each.partition) for each in wanted]
    first, last = log.first(places), log.last(places)
    found: list[Range] = []
    losses: list[str] = []
    for place, each in zip(places, wanted, strict=True):
        if place not in first or place not in last:
            losses.append(f"the partition {decide.name_of(place)} is gone")
            continue
        left, lost = decide.within(each, first[place], last[place])
        found.append(left)
        losses += lost
    return found, losses


def _ends(log: Log, partitions: Sequence[Partition]) -> tuple[Offsets, Offsets]:
    """Where logs that were there a moment ago begin and end."""
    first, last = log.first(partitions), log.last(partitions)
    gone = [each for each in partitions if each not in first or each not in last]
    if gone:
        raise KafkaliteError(f"gone while the query was planned: {decide.names_of(gone)}")
    return first, last


def _at_time(bound: Bound, partitions: Sequence[Partition], log: Log) -> Offsets:
    if bound.kind == "timestamp":
        return log.at_time(dict.fromkeys(partitions, bound.timestamp))
    if bound.kind == "timestamps":
        return log.at_time({each: bound.by_partition[each] for each in partitions})
    return {}


def _plan(options: ReadOptions, found: list[Range], losses: list[str]) -> Plan:
    if losses and options.fail_on_data_loss:
        raise DataLossError(
            f"{'; '.join(losses)} (failOnDataLoss=false goes on with what there is)"
        )
    tasks = decide.split(found, options.partitions_min, options.records_max)
    return Plan(tasks, [f"data may have been lost: {loss}" for loss in losses])


def tell(warnings: Iterable[str]) -> None:
    """Logs what a user should know."""
    logger = logging.getLogger("kafkalite.spark")
    for sentence in warnings:
        logger.warning(sentence)


# --- logs -----------------------------------------------------------------------------------------


class WireLog(Closing):
    """Topics of a cluster."""

    def __init__(self, client: ClientOptions) -> None:
        """Connects when it is first asked."""
        self._committed = client.fetch.isolation == "read_committed"
        self._cluster = Cluster(
            client.bootstrap_servers,
            client_id=client.fetch.client_id,
            timeout_ms=client.api_timeout_ms,
            request_timeout_ms=client.fetch.request_timeout_ms,
        )
        self._admin = Admin(self._cluster)
        self._endpoint: list[Endpoint | None] = []

    def close(self) -> None:
        """Closes the connections."""
        self._cluster.close()

    def partitions(self, topics: Topics) -> list[Partition]:
        """See `Log`."""
        if topics.kind == "subscribePattern":
            pattern = java_pattern(topics.names[0])
            listed = self._admin.list_topics(include_internal=False)
            names = [each.name for each in listed if pattern.search(each.name)]
        elif topics.kind == "assign":
            names = sorted({topic for topic, _ in topics.partitions})
        else:
            names = sorted(topics.names)
        self._cluster.forget()
        found = [(name, partition) for name in names for partition in self._topic(name).partitions]
        if topics.kind != "assign":
            return found
        missing = set(topics.partitions) - set(found)
        if missing:
            raise InvalidArgumentError(
                f"assign names partitions that there are not: {decide.names_of(missing)}"
            )
        return list(topics.partitions)

    def first(self, partitions: Iterable[Partition]) -> Offsets:
        """See `Log`."""
        wanted = list(partitions)
        names = sorted({name for name, _ in wanted})
        # What is remembered of them may have gone since.
        self._cluster.retry(lambda: self._cluster.refresh(names))
        known = {name: self._numbers_of(name) for name in names}
        there = [(name, each) for name, each in wanted if each in known[name]]
        return self._listed(dict.fromkeys(there, EARLIEST))

    def ids(self, topics: Iterable[str], *, ask: bool = False) -> dict[str, str]:
        """See `Log`. Brokers before 2.8 do not tell."""
        names = sorted(topics)
        if ask:
            found = self._cluster.retry(lambda: self._cluster.refresh(names))
        else:
            found = {name: self._topic(name) for name in names}
        return {name: uuid_text(topic.id) for name, topic in found.items() if any(topic.id)}

    def _numbers_of(self, topic: str) -> Collection[int]:
        """The numbers of a topic's partitions; none if there is no such topic."""
        try:
            return self._topic(topic).partitions.keys()
        except BrokerError as error:
            if error.code != UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return ()

    def last(self, partitions: Iterable[Partition]) -> Offsets:
        """See `Log`."""
        return self._listed(dict.fromkeys(partitions, LATEST))

    def at_time(self, timestamps: Mapping[Partition, int]) -> Offsets:
        """See `Log`."""
        return self._listed(timestamps)

    def _topic(self, name: str) -> TopicMetadata:
        """Tried again: a broker that was restarted since has closed the connection."""
        return self._cluster.retry(lambda: self._cluster.topic(name))

    def _listed(self, timestamps: Mapping[Partition, int]) -> dict[Partition, int]:
        found = self._admin.list_offsets(timestamps, committed=self._committed)
        return {partition: listed.offset for partition, listed in found.items()}

    def endpoint(self) -> Endpoint | None:
        """See `Log`. The one broker's: a partition of another broker would be refused there."""
        known = self._endpoint[0] if self._endpoint else None
        is_stale = known is not None and not serves_cluster(*known)
        if is_stale or not self._endpoint:
            found = self._told_endpoint()
            is_here = found is not None and serves_cluster(*found)
            self._endpoint = [found if is_here else None]
        return self._endpoint[0]

    def _told_endpoint(self) -> Endpoint | None:
        nodes, cluster_id = self._cluster.nodes, self._cluster.cluster_id
        if len(nodes) != 1 or cluster_id is None:
            return None
        (node_id,) = nodes
        configs = self._admin.describe_configs(BROKER, str(node_id), synonyms=False)
        address = {each.name: each.value for each in configs}.get(ARROW_LISTENER)
        return Endpoint(address, cluster_id) if address else None

    def directory(self, partition: Partition) -> str | None:
        """None: brokers are asked."""
        del partition
        return None


class FileLog:
    """Partitions of log directories, without a broker."""

    def __init__(self, paths: Sequence[str], isolation: str) -> None:
        """Reads nothing yet."""
        self._paths = paths
        self._isolation = isolation
        self._directories: dict[Partition, str] = {}

    def close(self) -> None:
        """Nothing is held."""

    def partitions(self, topics: Topics) -> list[Partition]:
        """See `Log`."""
        del topics
        self._look()
        return sorted(self._directories)

    def first(self, partitions: Iterable[Partition]) -> Offsets:
        """See `Log`."""
        found = self._look()
        return {each: found[each].start for each in partitions if each in found}

    def last(self, partitions: Iterable[Partition]) -> Offsets:
        """See `Log`."""
        found = self._look()
        return {each: found[each].stop for each in partitions if each in found}

    def at_time(self, timestamps: Mapping[Partition, int]) -> Offsets:
        """See `Log`. As a broker looks them up: by the time index, then headers, then one batch."""
        return {each: self._find(each, timestamp) for each, timestamp in timestamps.items()}

    def ids(self, topics: Iterable[str], *, ask: bool = False) -> dict[str, str]:
        """None: files may be copies, which keep an id, and restored ones, which may not."""
        del topics, ask
        return {}

    def endpoint(self) -> Endpoint | None:
        """None: nobody serves."""

    def directory(self, partition: Partition) -> str | None:
        """See `Log`."""
        if partition not in self._directories:
            self._look()
        return self._directories.get(partition)

    def _look(self) -> dict[Partition, Range]:
        self._directories = {}
        found: dict[Partition, Range] = {}
        for path in self._paths:
            for topic, partition, start, stop in self._read(path).ranges:
                place = (topic, partition)
                if place in found:
                    raise InvalidArgumentError(f"{decide.name_of(place)} is in several paths")
                found[place] = Range(topic, partition, start, stop)
                name = decide.name_of(place)
                real = Path(path).resolve()
                self._directories[place] = str(real if real.name == name else real / name)
        return found

    def _find(self, partition: Partition, timestamp_ms: int) -> int:
        read = self._read(self.directory(partition) or "", OffsetOfTime(timestamp_ms))
        ((_, _, start, stop),) = read.ranges
        return decide.LATEST if start == stop else start

    def _read(self, path: str, start: OffsetOfTime | None = None) -> LogRead:
        return LogRead(
            [path],
            topic=None,
            start=start,
            start_by_partition={},
            stop=None,
            stop_by_partition={},
            columns=["offset"],
            isolation=self._isolation,
            batch_rows=32_768,
            batch_bytes=4 << 20,
        )


def open_log(options: ReadOptions) -> Log:
    """The brokers or the files that the options name; the caller closes it."""
    if options.topics.kind == "path":
        return FileLog(options.topics.names, options.client.fetch.isolation)
    return WireLog(options.client)


# --- JSON -----------------------------------------------------------------------------------------


class Logs(Closing):
    """Logs that stay open from answer to answer. One thread at a time."""

    def __init__(self) -> None:
        """Opens nothing yet."""
        self._open: dict[tuple[ClientOptions, Topics | None], Log] = {}

    def log(self, options: ReadOptions) -> Log:
        """The log that the options name."""
        key = (options.client, options.topics if options.topics.kind == "path" else None)
        found = self._open.get(key)
        if found is None:
            found = self._open[key] = open_log(options)
        return found

    def close(self) -> None:
        """Closes all of them."""
        for log in self._open.values():
            log.close()
        self._open.clear()


def answer(request: Mapping[str, Any], logs: Logs) -> dict[str, Any]:
    """See the module. Raises `KafkaliteError` and nothing else for a request of any content."""
    op = request.get("op")
    if op == "schema":
        is_known = isinstance(request.get("streaming"), bool)
        return _schema(
            ReadOptions.of(_options(request), streaming=request["streaming"] if is_known else None)
        )
    options = ReadOptions.of(_options(request), streaming=op in ("initial", "latest", "between"))
    log = logs.log(options)
    if op in ("batch", "initial"):
        _check_schema(request, options)
    if op == "batch":
        return _ranges(options, log, plan_batch(options, log, _cut(request)))
    if op == "between":
        start, stop = _position(request, "start"), _position(request, "end")
        return _ranges(options, log, plan_between(options, log, start, stop))
    if op == "initial":
        return {"offsets": with_ids(log, initial_offsets(options, log).offsets).to_json()}
    if op == "latest":
        return _latest(request, options, log)
    if op == "endpoint":
        endpoint = log.endpoint()
        return {"endpoint": endpoint and endpoint.address}
    raise InvalidArgumentError(f"unknown op {op!r}")


def _latest(request: Mapping[str, Any], options: ReadOptions, log: Log) -> dict[str, Any]:
    start = _position(request, "start")
    is_bounded = request.get("target") is not None
    latest = _position(request, "target") if is_bounded else latest_offsets(options, log, start)
    limit = request.get("limit") or {}
    rows_max, rows_min = _count(limit, "maxRows"), _count(limit, "minRows")
    since_ms = _count(request, "sinceMs") or 0
    begin = decide.same_topics(start, latest.ids)
    is_delayed = rows_min is not None and decide.is_delayed(
        begin, latest.offsets, rows_min, options.delay_ms_max, since_ms
    )
    end = start if is_delayed else next_offsets(log, start, latest, rows_max)
    return {"offsets": end.to_json(), "latest": latest.to_json(), "delayed": is_delayed}


def _schema(options: ReadOptions) -> dict[str, Any]:
    from kafkalite.spark.schema import ddl

    limit = {"maxRows": options.rows_max, "minRows": options.rows_min}
    return {
        "schema": ddl(options),
        "limit": {name: rows for name, rows in limit.items() if rows is not None} or None,
        "engine": options.engine,
        "warnings": list(options.warnings),
    }


def _ranges(options: ReadOptions, log: Log, plan: Plan) -> dict[str, Any]:
    rows = []
    for each in plan.ranges:
        directory = log.directory((each.topic, each.partition))
        rows.append([*each] if directory is None else [*each, directory])
    endpoint, read = log.endpoint(), read_request(options)
    if endpoint is not None:
        read["cluster.id"] = endpoint.cluster_id
    return {
        "ranges": rows,
        "endpoint": endpoint and endpoint.address,
        "read": read,
        "warnings": [*options.warnings, *plan.warnings],
    }


def read_request(options: ReadOptions) -> dict[str, Any]:
    """The fields of a request to an Arrow endpoint beside the range and the schema."""
    client = options.client
    request: dict[str, Any] = {
        "isolation": client.fetch.isolation,
        "formats": dict(options.formats),
        "batch.rows": options.batch_rows,
        "batch.bytes": options.batch_bytes,
        "fail.on.data.loss": options.fail_on_data_loss,
    }
    if options.topics.kind != "path":
        request["bootstrap.servers"] = client.bootstrap_servers
        request["client"] = client.fetch.to_json()
    return request


def _check_schema(request: Mapping[str, Any], options: ReadOptions) -> None:
    """Raises `InvalidArgumentError` for a schema that records cannot have."""
    text = request.get("schema")
    if text is None:
        return
    import pyarrow  # type: ignore[import-untyped,unused-ignore]

    try:
        schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(base64.b64decode(str(text))))
        names = schema.names
    except (ValueError, OSError) as error:
        raise InvalidArgumentError(f"schema is no schema message of Arrow IPC: {error}") from error
    if not names:
        return  # rows are counted
    FetchRead(
        lambda: iter(()),  # nothing is read
        ranges=[],
        columns=None,
        schema=schema,
        formats=dict(options.formats),
        batch_rows=options.batch_rows,
        batch_bytes=options.batch_bytes,
    )


def _cut(request: Mapping[str, Any]) -> Cut:
    found = request.get("cut")
    if found is None:
        return Cut()
    numbers = []
    for name in ("start", "stop", "timestamp"):
        number = found.get(name) if isinstance(found, dict) else None
        if not isinstance(number, int) or isinstance(number, bool):
            raise InvalidArgumentError(f"cut must have {name} as a whole number")
        numbers.append(number)
    tests = found.get("tests", [])
    if not isinstance(tests, list):
        raise InvalidArgumentError("cut must have tests as a list")
    return Cut(tuple(map(_test, tests)), *numbers)


def _test(found: Any) -> PartitionTest:
    match found:
        case ["topic" | "partition" as column, str(operator), [_, *_] as values]:
            kind = str if column == "topic" else int
            if operator in OPERATORS and all(type(each) is kind for each in values):
                return PartitionTest(column, operator, tuple(values))
    raise InvalidArgumentError(f"cut has a test that is none: {found!r}")


def _options(request: Mapping[str, Any]) -> dict[str, str]:
    given = request.get("options")
    if not isinstance(given, dict) or not all(isinstance(each, str) for each in given.values()):
        raise InvalidArgumentError("options must be an object of strings")
    return given


def _position(request: Mapping[str, Any], name: str) -> Position:
    try:
        return Position.from_json(request.get(name))
    except ValueError as error:
        raise InvalidArgumentError(f"{name} must be offsets by topic and partition") from error


def _count(found: Any, name: str) -> int | None:
    number = found.get(name) if isinstance(found, dict) else None
    if number is not None and (not isinstance(number, int) or number < 0):
        raise InvalidArgumentError(f"{name} must be a whole number")
    return number

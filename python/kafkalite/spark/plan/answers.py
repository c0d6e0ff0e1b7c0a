"""Planning as JSON in, JSON out: what `kafkalite arrow serve` gives the columnar engine in the JVM.
 Offsets are as in the connector's JSON, those of a stream with the ids of topics
(`offsets.Position`), by which it notices that one was recreated; a range is
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
    {"op": "commit",  "options": {…}, "start": {…}, "first": …}  nothing: commitOffsetsToGroup
    {"op": "schema",  "options": {…}, "streaming": true or null} schema, limit, warnings
    {"op": "prune",   "options": {…}, "columns": […], …}         whole: the columns to read whole
        "wanted": […]                                            the columns that a query wants
        "fields": {"value": […]}                                 options: to be added to the given

`batch` and `initial` take the `schema` of the rows, as a read request has it, and refuse one that
records cannot have. `streaming` is null where nobody knows it yet. Where there are ranges, there
are also `endpoint` (host:port of the broker's Arrow listener, if it answers here, or null), `read`
(what a read request has beside range and schema) and `warnings`.
A refusal is a `KafkaliteError` with one sentence.
"""

import base64
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafkalite.client.network.connection import Closing
from kafkalite.errors import InvalidArgumentError
from kafkalite.spark.offsets import Position
from kafkalite.spark.options.read import ClientOptions, ReadOptions, Topics
from kafkalite.spark.plan.planner import (
    Plan,
    commit_to_group,
    initial_offsets,
    next_end,
    plan_batch,
    plan_between,
    with_ids,
)
from kafkalite.spark.plan.ranges import OPERATORS, Cut, PartitionTest
from kafkalite.spark.plan.topic_source import TopicSource, open_topic_source
from kafkalite.spark.schema import check_schema, columns_read_whole, csv_columns, ddl

__all__ = ["TopicSources", "answer", "read_request"]

SOURCES_KEPT = 16

_Key = tuple[ClientOptions, Topics | None]

STREAM_OPS = ("initial", "latest", "between", "commit")


class TopicSources(Closing):
    """Sources that stay open from answer to answer: as many of the same brokers and client options
    as were asked at once. Any thread may call it.

    A driver lives for months and may see other client options with each query, so that of those
    that nobody asks only the last `SOURCES_KEPT` stay: each has a connection to each broker."""

    def __init__(self) -> None:
        """Opens nothing yet."""
        self._lock = threading.Lock()
        self._idle: list[tuple[_Key, TopicSource]] = []
        """The one that was asked last is last."""
        self._is_closed = False

    @contextmanager
    def lent(self, options: ReadOptions) -> Iterator[TopicSource]:
        """The source that the options name, for one question. It is closed if that fails: its
        connections may be in any state."""
        key = (options.client, options.topics if options.topics.kind == "path" else None)
        source = self._take(key) or open_topic_source(options)
        try:
            yield source
        except BaseException:
            source.close()
            raise
        self._keep(key, source)

    def _take(self, key: _Key) -> TopicSource | None:
        with self._lock:
            for index in reversed(range(len(self._idle))):
                if self._idle[index][0] == key:
                    return self._idle.pop(index)[1]
        return None

    def _keep(self, key: _Key, source: TopicSource) -> None:
        with self._lock:
            self._idle.append((key, source))
            kept = 0 if self._is_closed else SOURCES_KEPT
            left = [self._idle.pop(0)[1] for _ in range(len(self._idle) - kept)]
        for each in left:
            each.close()

    def close(self) -> None:
        """Closes all of them; one that is lent when it comes back."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._is_closed = True
        for _, source in idle:
            source.close()


def answer(request: Mapping[str, Any], sources: TopicSources) -> dict[str, Any]:
    """See the module. Raises `KafkaliteError` and nothing else for a request of any content."""
    op = request.get("op")
    if op in ("schema", "prune"):
        streaming = request.get("streaming")
        options = ReadOptions.of(
            _options(request), streaming=streaming if isinstance(streaming, bool) else None
        )
        return _schema(options) if op == "schema" else _prune(request, options)
    options = ReadOptions.of(_options(request), streaming=op in STREAM_OPS)
    with sources.lent(options) as source:
        return _answer(request, options, source)


def _answer(
    request: Mapping[str, Any], options: ReadOptions, source: TopicSource
) -> dict[str, Any]:
    op = request.get("op")
    if op in ("batch", "initial"):
        _check_schema(request, options)
    if op == "batch":
        plan = plan_batch(options, source, _cut(request))
        return _ranges(options, source, plan._replace(warnings=[*options.warnings, *plan.warnings]))
    if op == "between":
        # A stream has heard of its options by `schema`, and plans once a micro-batch.
        start, stop = _position(request, "start"), _position(request, "end")
        return _ranges(options, source, plan_between(options, source, start, stop))
    if op == "commit":
        is_first = request.get("first") is True
        commit_to_group(options, source, _position(request, "start"), is_first=is_first)
        return {}
    if op == "initial":
        return {"offsets": with_ids(source, initial_offsets(options, source).offsets).to_json()}
    if op == "latest":
        return _latest(request, options, source)
    raise InvalidArgumentError(f"unknown op {op!r}")


def _latest(
    request: Mapping[str, Any], options: ReadOptions, source: TopicSource
) -> dict[str, Any]:
    target = None if request.get("target") is None else _position(request, "target")
    limit = request.get("limit")
    found = next_end(
        options,
        source,
        _position(request, "start"),
        target,
        rows_max=_count(limit, "maxRows"),
        rows_min=_count(limit, "minRows"),
        since_ms=_count(request, "sinceMs") or 0,
    )
    return {
        "offsets": found.end.to_json(),
        "latest": found.latest.to_json(),
        "delayed": found.is_delayed,
    }


def _schema(options: ReadOptions) -> dict[str, Any]:
    limit = {"maxRows": options.rows_max, "minRows": options.rows_min}
    return {
        "schema": ddl(options),
        "limit": {name: rows for name, rows in limit.items() if rows is not None} or None,
        "warnings": list(options.warnings),
    }


def _prune(request: Mapping[str, Any], options: ReadOptions) -> dict[str, Any]:
    columns, wanted = _names(request, "columns"), _names(request, "wanted")
    given = request.get("fields")
    fields = {each: _names(given, each) for each in given} if isinstance(given, dict) else {}
    return {
        "whole": columns_read_whole(options, columns, wanted),
        "options": csv_columns(options, columns, fields),
    }


def _ranges(options: ReadOptions, source: TopicSource, plan: Plan) -> dict[str, Any]:
    rows = []
    for each in plan.ranges:
        directory = source.directory(each.topic_partition)
        rows.append([*each] if directory is None else [*each, directory])
    endpoint, read = source.endpoint(), read_request(options)
    if endpoint is not None:
        read["cluster.id"] = endpoint.cluster_id
    return {
        "ranges": rows,
        "endpoint": endpoint and endpoint.address,
        "read": read,
        "warnings": plan.warnings,
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
    text = request.get("schema")
    if text is None:
        return
    import pyarrow  # type: ignore[import-untyped,unused-ignore]

    try:
        schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(base64.b64decode(str(text))))
        has_columns = len(schema.names) > 0
    except (ValueError, OSError) as error:
        raise InvalidArgumentError(f"schema is no schema message of Arrow IPC: {error}") from error
    if has_columns:  # else rows are counted
        check_schema(options, schema)


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


def _names(request: Mapping[str, Any], name: str) -> list[str]:
    found = request.get(name)
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InvalidArgumentError(f"{name} must be a list of names")
    return found


def _position(request: Mapping[str, Any], name: str) -> Position:
    return Position.from_json(request.get(name))


def _count(found: Any, name: str) -> int | None:
    number = found.get(name) if isinstance(found, dict) else None
    if number is not None and (not isinstance(number, int) or number < 0):
        raise InvalidArgumentError(f"{name} must be a whole number")
    return number

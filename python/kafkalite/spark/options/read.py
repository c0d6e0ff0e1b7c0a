"""The options of a query that reads, checked.

Rules are those of Spark's Kafka connector, names without regard to case; `rows.py` has the
rows. An option that is wrong, or that nobody knows, is refused in one sentence that names it: an
option that is silently ignored is worse than a failed query.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from kafkalite.client.arrow.range_source import POLL_TIMEOUT, SETTINGS, FetchSettings
from kafkalite.errors import InvalidArgumentError
from kafkalite.spark.offsets import (
    EARLIEST,
    LATEST,
    OFFSET_MAX,
    Bound,
    Partition,
    name_of,
    offsets_from_text,
)
from kafkalite.spark.options.avro import unwritten
from kafkalite.spark.options.ddl import read_fields
from kafkalite.spark.options.java_regex import java_pattern
from kafkalite.spark.options.rows import BATCH, STREAM, WRITE, row_of

__all__ = ["TYPED", "ClientOptions", "ReadOptions", "Topics"]

# Settings of Kafka's consumer that are heeded, beside client.id and isolation.level.
API_TIMEOUT = "default.api.timeout.ms"
CLIENT_NUMBERS = {API_TIMEOUT, *SETTINGS} - {"client.id", POLL_TIMEOUT}
# Those that the connector refuses too.
CLIENT_REFUSED = {
    "auto.offset.reset": "startingOffsets says where to start",
    "key.deserializer": "keys are bytes; key.format types them",
    "value.deserializer": "values are bytes; value.format types them",
    "enable.auto.commit": "offsets are in Spark's checkpoints",
    "interceptor.classes": "records reach Spark as they are in the log",
}
# What would change who may read, or what is read, and is not there.
CLIENT_UNSUPPORTED = re.compile(r"sasl\.|ssl\.")
# Settings that make no difference to how kafkalite reads.
CLIENT_IGNORED = re.compile(
    r"group\.|heartbeat\.|session\.|partition\.assignment|max\.poll\.|metadata\.|metric|retry\.|"
    r"retries$|reconnect\.|socket\.connection|connections\.max|send\.buffer|check\.crcs|"
    r"client\.(dns|rack)|auto\.|allow\.auto|exclude\.internal|enable\.metrics|security\.providers|"
    r"auto\.include|internal\.|config\.providers|share\."
)

# Formats whose bytes become the fields of a schema, and the options of theirs that Rust judges.
TYPED = ("json", "avro", "csv")
CORRUPT_COLUMN = "_corrupt_record"
FORMAT_OPTIONS = (
    "value.csv.columns",
    "key.csv.columns",
    "sep",
    "delimiter",
    "quote",
    "escape",
    "nullValue",
    "header",
    "ignoreLeadingWhiteSpace",
    "ignoreTrailingWhiteSpace",
    "value.avro.schema",
    "key.avro.schema",
    "value.avro.header",
    "key.avro.header",
    "value.avro.registry",
    "key.avro.registry",
)

# What Spark's catalog has among the properties of each of its tables.
OF_CATALOG = "provider"

INT_MAX = (1 << 31) - 1
TRUE_FALSE = {"true": True, "false": False}
DURATION_MS = {
    "": 1, "us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000,
    "d": 86_400_000,
}  # fmt: skip


class Topics(NamedTuple):
    """The topics to read. `partitions` belongs to `assign`, `names` to `subscribe` and `path`."""

    kind: Literal["subscribe", "subscribePattern", "assign", "path"]
    names: tuple[str, ...]
    partitions: tuple[Partition, ...] = ()


class ClientOptions(NamedTuple):
    """The brokers to ask, and how."""

    bootstrap_servers: str = ""
    api_timeout_ms: int = 60_000
    """How long planning asks, with all its retries."""
    fetch: FetchSettings = FetchSettings()


@dataclass(frozen=True)
class ReadOptions:
    """Checked options of a reading query."""

    topics: Topics
    client: ClientOptions
    start: Bound
    stop: Bound
    latest_if_none: bool
    include_headers: bool
    fail_on_data_loss: bool
    partitions_min: int | None
    records_max: int | None
    rows_max: int | None
    rows_min: int | None
    delay_ms_max: int
    offset_attempts: int
    offset_pause_ms: int
    group: str | None
    columns: tuple[str, ...] | None
    key_schema: str | None
    value_schema: str | None
    value_flatten: bool
    corrupt_column: str
    pushdown: bool
    batch_rows: int
    batch_bytes: int
    engine: str
    formats: Mapping[str, str] = field(default_factory=dict)
    """The `formats` that Rust takes: value.format and the options of the formats."""
    warnings: tuple[str, ...] = ()

    @staticmethod
    def of(given: Mapping[str, str], *, streaming: bool | None) -> "ReadOptions":
        """Raises `InvalidArgumentError`, which names the option. While nobody knows whether the
        query streams (None), what depends on it is not looked at: `start` and `stop` above all."""
        return _Reading(given, streaming).options()


class _Reading:
    """The options of one query while they are checked."""

    def __init__(self, given: Mapping[str, str], streaming: bool | None) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self._streaming = streaming
        self._warnings: list[str] = []
        self._corrupt_column = self._text("columnNameOfCorruptRecord") or CORRUPT_COLUMN

    def options(self) -> ReadOptions:
        self._check_names()
        topics = self._topics()
        rows_min = self._number_if_set("minOffsetsPerTrigger")
        rows_max = self._number_if_set("maxOffsetsPerTrigger", 1)
        if rows_min is not None and rows_max is not None and rows_min > rows_max:
            raise InvalidArgumentError(
                f"minOffsetsPerTrigger ({rows_min}) is higher than "
                f"maxOffsetsPerTrigger ({rows_max})"
            )
        start, stop = self._bounds()
        return ReadOptions(
            topics=topics,
            client=self._client(needs_servers=topics.kind != "path"),
            start=start,
            stop=stop,
            latest_if_none=self._word(
                "startingOffsetsByTimestampStrategy", "error", ("error", "latest")
            )
            == "latest",
            include_headers=self._flag("includeHeaders", False),
            fail_on_data_loss=self._flag("failOnDataLoss", True),
            partitions_min=self._number_if_set("minPartitions", 1),
            records_max=self._number_if_set("maxRecordsPerPartition", 1),
            rows_max=rows_max,
            rows_min=rows_min,
            delay_ms_max=self._duration("maxTriggerDelay", 15 * 60_000),
            offset_attempts=self._number("fetchOffset.numRetries", 3, 1),
            offset_pause_ms=self._number("fetchOffset.retryIntervalMs", 1_000, 0),
            group=self._group(topics),
            columns=self._columns(),
            key_schema=self._text("key.schema"),
            value_schema=self._text("value.schema"),
            value_flatten=self._flag("value.flatten", False),
            corrupt_column=self._corrupt_column,
            pushdown=self._flag("pushdown", False),
            batch_rows=self._number("batch.rows", 32_768, 1),
            batch_bytes=self._number("batch.bytes", 4 << 20, 1),
            engine=self._word("engine", "auto", ("auto", "jvm", "python")),
            formats=self._formats(),
            warnings=tuple(self._warnings),
        )

    # --- one option -------------------------------------------------------------------------------

    def _text(self, name: str) -> str | None:
        value = self._given.get(name.lower())
        return None if value is None else value.strip()

    def _flag(self, name: str, default: bool) -> bool:
        text = self._text(name)
        if text is None:
            return default
        if text.lower() not in TRUE_FALSE:
            raise InvalidArgumentError(f"{name} is '{text}', it must be true or false")
        return TRUE_FALSE[text.lower()]

    def _word(self, name: str, default: str, words: tuple[str, ...]) -> str:
        text = self._text(name)
        if text is None:
            return default
        if text.lower() not in words:
            raise InvalidArgumentError(f"{name} is '{text}', it must be {_or(words)}")
        return text.lower()

    def _number(self, name: str, default: int, lowest: int = 0) -> int:
        found = self._number_if_set(name, lowest)
        return default if found is None else found

    def _number_if_set(self, name: str, lowest: int = 0) -> int | None:
        text = self._text(name)
        return None if text is None else _number(name, text, lowest)

    def _duration(self, name: str, default_ms: int) -> int:
        text = self._text(name)
        if text is None:
            return default_ms
        found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
        if found is None or found[2] not in DURATION_MS:
            raise InvalidArgumentError(f"{name} is '{text}', it must be a duration such as 15m")
        return int(int(found[1]) * DURATION_MS[found[2]])

    # --- groups of options ------------------------------------------------------------------------

    def _check_names(self) -> None:
        if OF_CATALOG in self._given:
            raise InvalidArgumentError(
                "a table of Spark's catalog needs the columnar engine, since Spark hands none of "
                "its options to a Python source: CREATE TEMPORARY VIEW … USING kafkalite OPTIONS "
                "(…) does not"
            )
        for name in self._given:
            if name.startswith("kafka."):
                continue
            row = row_of(name)
            if self._streaming is None:
                continue
            if row.used == STREAM and not self._streaming:
                self._warnings.append(f"{row.name} is ignored in batch queries")
            elif row.used == BATCH and self._streaming:
                self._refuse_in_streams(row.name)
            elif row.used == WRITE:
                self._warnings.append(f"{row.name} is ignored when reading")

    def _refuse_in_streams(self, name: str) -> None:
        if name.startswith("ending"):
            what = "offset" if name == "endingOffsets" else "timestamp"
            raise InvalidArgumentError(f"{name}: ending {what} not valid in streaming queries")
        self._warnings.append(f"{name} is ignored in streaming queries")

    def _topics(self) -> Topics:
        ways = ("subscribe", "subscribePattern", "assign", "path")
        given = [way for way in ways if way.lower() in self._given]
        if "paths" in self._given and "path" not in given:
            given.append("path")
        if len(given) != 1:
            count = "One" if not given else "Only one"
            must = "must" if not given else "can"
            raise InvalidArgumentError(
                f"{count} of the following options {must} be specified for the source: "
                f"{', '.join(ways)}" + (f" (given: {', '.join(given)})" if given else "")
            )
        way, text = given[0], self._text(given[0]) or ""
        if way == "path":
            return Topics("path", self._paths())
        if way == "assign":
            return Topics("assign", (), _partitions(text))
        if way == "subscribePattern":
            try:
                java_pattern(text)
            except ValueError as error:
                raise InvalidArgumentError(
                    f"subscribePattern is '{text}', which is not a regular expression: {error}"
                ) from error
            if not text:
                raise InvalidArgumentError("subscribePattern is empty")
            return Topics("subscribePattern", (text,))
        names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not names:
            raise InvalidArgumentError(f"subscribe is '{text}': no topics to subscribe to")
        return Topics("subscribe", names)

    def _paths(self) -> tuple[str, ...]:
        paths = [self._given["path"]] if "path" in self._given else []
        if "paths" in self._given:
            try:
                more = json.loads(self._given["paths"])
            except ValueError:
                more = None
            if not isinstance(more, list) or not all(isinstance(each, str) for each in more):
                raise InvalidArgumentError("paths must be a JSON list of paths")
            paths += more
        if not paths or not all(paths):
            raise InvalidArgumentError("path is empty")
        return tuple(each.removeprefix("file://") for each in paths)

    def _bounds(self) -> tuple[Bound, Bound]:
        if self._streaming is None:
            return Bound("earliest", "", {}, -1), Bound("latest", "", {}, -1)
        default: Literal["earliest", "latest"] = "latest" if self._streaming else "earliest"
        start = self._bound(
            "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets", default
        )
        if self._streaming:
            return start, Bound("latest", "endingOffsets", {}, -1)
        stop = self._bound("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets", "latest")
        if start.kind == "latest":
            raise InvalidArgumentError(
                "startingOffsets: starting offset can't be latest for batch queries"
            )
        if stop.kind == "earliest":
            raise InvalidArgumentError(
                "endingOffsets: ending offset can't be earliest for batch queries"
            )
        for bound, word, offset in ((start, "latest", LATEST), (stop, "earliest", EARLIEST)):
            for (topic, partition), each in bound.by_partition.items():
                if bound.kind == "offsets" and each == offset:
                    raise InvalidArgumentError(
                        f"{bound.option} for {topic}-{partition} can't be {word} for batch queries"
                    )
        if start.kind == stop.kind and start.by_partition:
            _check_order(start, stop)
        return start, stop

    def _bound(
        self, one: str, by_timestamp: str, by_offset: str, default: Literal["earliest", "latest"]
    ) -> Bound:
        """In the connector's order: the most precise comes last."""
        text = self._text(one)
        if text is not None:
            return Bound("timestamp", one, {}, _number(one, text, 0))
        text = self._text(by_timestamp)
        if text is not None:
            example = '{"topicA":{"0":123456789},"topicB":{"0":123456789}}'
            return Bound("timestamps", by_timestamp, _offsets(by_timestamp, text, example), -1)
        text = self._text(by_offset)
        if text is None:
            return Bound(default, by_offset, {}, -1)
        if text.lower() == "latest":
            return Bound("latest", by_offset, {}, -1)
        if text.lower() == "earliest":
            return Bound("earliest", by_offset, {}, -1)
        example = 'earliest, latest or {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
        offsets = _offsets(by_offset, text, example)
        for partition, offset in offsets.items():
            if offset < EARLIEST:
                raise InvalidArgumentError(
                    f"{by_offset} for {name_of(partition)} is {offset}, it must be an offset, -1 "
                    "for latest or -2 for earliest"
                )
        return Bound("offsets", by_offset, offsets, -1)

    def _group(self, topics: Topics) -> str | None:
        text = self._text("commitOffsetsToGroup")
        if text is not None and topics.kind == "path":
            raise InvalidArgumentError("commitOffsetsToGroup: files (path) have no consumer groups")
        if text == "":
            raise InvalidArgumentError("commitOffsetsToGroup is empty, it must name a group")
        return text

    def _columns(self) -> tuple[str, ...] | None:
        text = self._text("columns")
        if text is None:
            return None
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        if not names:
            raise InvalidArgumentError("columns names no column")
        if len(set(names)) < len(names):
            raise InvalidArgumentError(f"columns names a column twice: {text}")
        return names

    def _formats(self) -> dict[str, str]:
        """Gives the formats for Rust, which judges the options that only it understands."""
        words = ("binary", "string", "json", "avro", "csv")
        formats = {}
        for side in ("value", "key"):
            name = f"{side}.format"
            formats[name] = self._word(name, "binary", words)
            schema = self._text(f"{side}.schema")
            if schema is not None and formats[name] not in TYPED:
                raise InvalidArgumentError(
                    f"{side}.schema has no meaning with {name}={formats[name]}"
                )
            names = []
            if schema is not None:
                names = [field.name for field in read_fields(f"{side}.schema", schema)]
            if formats[name] == "csv" and names:
                listed = [each for each in names if each != self._corrupt_column]
                formats[f"{side}.csv.columns"] = json.dumps(listed)
            if formats[name] == "avro":
                self._warn_of_unwritten(side, names)
        formats["mode"] = self._word(
            "mode", "permissive", ("permissive", "dropmalformed", "failfast")
        )
        formats["columnNameOfCorruptRecord"] = self._corrupt_column
        formats["value.flatten"] = str(self._flag("value.flatten", False)).lower()
        for name in FORMAT_OPTIONS:
            if name.lower() in self._given:
                formats[name] = self._given[name.lower()]
        return formats

    def _warn_of_unwritten(self, side: str, names: Sequence[str]) -> None:
        schema, registry = (self._text(f"{side}.avro.{each}") for each in ("schema", "registry"))
        absent = [
            each for each in unwritten(names, schema, registry) if each != self._corrupt_column
        ]
        if absent:
            self._warnings.append(
                f"{side}.schema: no record has {', '.join(absent)}, by the schemas that they were "
                "written with: null in every row"
            )

    def _client(self, needs_servers: bool) -> ClientOptions:
        settings = {
            name.removeprefix("kafka."): value.strip()
            for name, value in self._given.items()
            if name.startswith("kafka.")
        }
        servers = settings.pop("bootstrap.servers", "")
        if needs_servers and not servers:
            raise InvalidArgumentError("Option 'kafka.bootstrap.servers' must be specified")
        client_id = settings.pop("client.id", "kafkalite-spark")
        isolation = settings.pop("isolation.level", "read_uncommitted").lower()
        if isolation not in ("read_uncommitted", "read_committed"):
            raise InvalidArgumentError(
                f"kafka.isolation.level is '{isolation}', it must be read_uncommitted or "
                "read_committed"
            )
        found: dict[str, int] = {}
        for name, value in settings.items():
            if name in CLIENT_NUMBERS:
                lowest = -1 if name == "receive.buffer.bytes" else 0
                found[name] = _number(f"kafka.{name}", value, lowest, INT_MAX)
            else:
                self._check_client_setting(name, value)
        api_timeout_ms = found.pop(API_TIMEOUT, ClientOptions().api_timeout_ms)
        found[POLL_TIMEOUT] = self._number("kafkaConsumer.pollTimeoutMs", 120_000, 1)
        numbers = {SETTINGS[name]: number for name, number in found.items()}
        fetch = FetchSettings(isolation, client_id, **numbers)
        return ClientOptions(servers, api_timeout_ms, fetch)

    def _check_client_setting(self, name: str, value: str) -> None:
        if name in CLIENT_REFUSED:
            raise InvalidArgumentError(
                f"Kafka option 'kafka.{name}' is not supported: {CLIENT_REFUSED[name]}"
            )
        if name == "security.protocol" and value.upper() == "PLAINTEXT":
            return
        if CLIENT_UNSUPPORTED.match(name) or name == "security.protocol":
            raise InvalidArgumentError(
                f"Kafka option 'kafka.{name}' is not supported: kafkalite supports PLAINTEXT only"
            )
        if not CLIENT_IGNORED.match(name):
            self._warnings.append(f"kafka.{name} is not known, and ignored")


def _or(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _number(name: str, text: str, lowest: int, highest: int = OFFSET_MAX) -> int:
    if not re.fullmatch(r"[+-]?\d+", text):
        raise InvalidArgumentError(f"{name} is '{text}', it must be a whole number")
    number = int(text)
    if number < lowest:
        what = "positive" if lowest == 1 else f"at least {lowest}"
        raise InvalidArgumentError(f"{name} is {number}, it must be {what}")
    if number > highest:
        raise InvalidArgumentError(f"{name} is {number}, it must be at most {highest}")
    return number


def _partitions(text: str) -> tuple[Partition, ...]:
    try:
        found = json.loads(text)
        partitions = [(topic, each) for topic, indexes in found.items() for each in indexes]
    except (ValueError, AttributeError, TypeError):
        partitions = [("", "")]
    if not all(isinstance(each, int) and not isinstance(each, bool) for _, each in partitions):
        raise InvalidArgumentError(
            f'assign must be as in {{"topicA":[0,1],"topicB":[0,1]}}, got {text}'
        )
    if not partitions:
        raise InvalidArgumentError(f"assign is '{text}': no partitions to assign")
    return tuple(sorted(set(partitions)))


def _offsets(name: str, text: str, example: str) -> dict[Partition, int]:
    try:
        return offsets_from_text(text)
    except ValueError as error:
        raise InvalidArgumentError(f"{name} must be as in {example}, got {text}") from error


def _check_order(start: Bound, stop: Bound) -> None:
    if set(start.by_partition) != set(stop.by_partition):
        raise InvalidArgumentError(f"{start.option} and {stop.option} name different partitions")
    for (topic, partition), begin in start.by_partition.items():
        end = stop.by_partition[topic, partition]
        if begin > end >= 0:
            raise InvalidArgumentError(
                f"{topic}-{partition}: {start.option} {begin} is greater than {stop.option} {end}"
            )

"""The configuration: one row per key, with Kafka's names, defaults and meanings.

Own keys start with `kafkalite.`. A key that would change what Kafka does and is not supported is
refused at the start by its name; a key that nobody knows gets a warning. This is the only file that
knows names of keys.

Topics inherit from the broker: a topic's key (`segment.bytes`) takes the value of the first of the
broker's keys in its row that is set (`log.segment.bytes`), as in Kafka's
`ServerTopicConfigSynonyms`.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kafkalite.errors import InvalidArgumentError

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
HOUR_MS = 3_600_000


class Key(NamedTuple):
    """A key of the broker. `kind`: int, float, bool, str or list; `low` is the least value."""

    name: str
    kind: str
    default: Any
    unit: str
    doc: str
    low: float | None = None
    choices: tuple[str, ...] = ()


class TopicKey(NamedTuple):
    """A key of a topic, and the broker's keys that give its default, each with its factor."""

    name: str
    kind: str
    default: Any
    unit: str
    doc: str
    synonyms: tuple[tuple[str, int], ...]
    low: float | None = None
    choices: tuple[str, ...] = ()


class EffectiveConfig(NamedTuple):
    """A topic's value. `source` is Kafka's code: 1 the topic, 4 the broker, 5 the default."""

    name: str
    value: str
    source: int


KEYS = (
    Key("node.id", "int", 1, "", "The id of this node.", low=0),
    Key("broker.id", "int", -1, "", "The older name of node.id."),
    Key("broker.rack", "str", "", "", "The rack of this node, told to clients."),
    Key("log.dirs", "list", [], "", "The log directories; without it, log.dir."),
    Key("log.dir", "str", "./kafkalite-data", "", "The log directory."),
    Key(
        "listeners",
        "list",
        ["PLAINTEXT://127.0.0.1:9092"],
        "",
        "NAME://HOST:PORT of each listener; port 0 takes a free one.",
    ),
    Key("advertised.listeners", "list", [], "", "What clients are told, if not the listeners."),
    Key(
        "listener.security.protocol.map",
        "list",
        ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"],
        "",
        "Listener name to security protocol; only PLAINTEXT is supported.",
    ),
    Key("num.network.threads", "int", 0, "", "Network threads; 0: cores - 1, at most 3.", low=0),
    Key("socket.request.max.bytes", "int", 104_857_600, "bytes", "Largest request.", low=1),
    Key("socket.listen.backlog.size", "int", 50, "", "Connections waiting to be accepted.", low=1),
    Key("max.connections", "int", INT_MAX, "", "Open connections; more are closed.", low=0),
    Key("connections.max.idle.ms", "int", 600_000, "ms", "Idle connections are closed."),
    Key("auto.create.topics.enable", "bool", True, "", "Topics are made when first named."),
    Key("num.partitions", "int", 1, "", "Partitions of a topic that does not say.", low=1),
    Key("num.recovery.threads.per.data.dir", "int", 2, "", "Threads that load a directory.", low=1),
    Key(
        "log.retention.check.interval.ms", "int", 300_000, "ms", "How often retention runs.", low=1
    ),
    Key(
        "log.flush.scheduler.interval.ms", "int", LONG_MAX, "ms", "How often flush.ms is looked at."
    ),
    Key(
        "log.flush.offset.checkpoint.interval.ms",
        "int",
        60_000,
        "ms",
        "How often recovery points are written.",
        low=0,
    ),
    Key(
        "log.cleaner.dedupe.buffer.size",
        "int",
        128 << 20,
        "bytes",
        "Memory for the keys of a log while it is compacted.",
        low=1 << 20,
    ),
    Key("log.cleaner.backoff.ms", "int", 15_000, "ms", "Pause of an idle cleaner.", low=0),
    Key("producer.id.expiration.ms", "int", 86_400_000, "ms", "Silent producers are forgotten."),
    Key(
        "producer.id.expiration.check.interval.ms",
        "int",
        600_000,
        "ms",
        "How often silent producers are looked for.",
        low=1,
    ),
    Key(
        "kafkalite.acks.fsync",
        "str",
        "group",
        "",
        "group: acks=all answers, and readers see records, once they are on disk; none: as Kafka.",
        choices=("group", "none"),
    ),
    Key(
        "kafkalite.produce.validation",
        "str",
        "full",
        "",
        "full: every record is looked at, as Kafka does; header: the batch's header and CRC.",
        choices=("full", "header"),
    ),
    Key("kafkalite.flush.threads", "int", 2, "", "Threads that flush a log directory.", low=1),
    Key("kafkalite.open.segments.max", "int", 1024, "", "Segments held open.", low=16),
    Key(
        "kafkalite.allow.unauthenticated",
        "bool",
        False,
        "",
        "Allows listeners without authentication beyond loopback.",
    ),
    Key("kafkalite.die.with.parent", "bool", False, "", "The broker stops when its parent dies."),
)

TOPIC_KEYS = (
    TopicKey(
        "cleanup.policy",
        "list",
        ["delete"],
        "",
        "delete, compact or both.",
        (("log.cleanup.policy", 1),),
        choices=("delete", "compact"),
    ),
    TopicKey(
        "compression.type",
        "str",
        "producer",
        "",
        "The codec that batches are stored in.",
        (("compression.type", 1),),
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    TopicKey(
        "delete.retention.ms",
        "int",
        24 * HOUR_MS,
        "ms",
        "How long tombstones stay.",
        (("log.cleaner.delete.retention.ms", 1),),
        low=0,
    ),
    TopicKey(
        "file.delete.delay.ms",
        "int",
        60_000,
        "ms",
        "How long removed files stay on disk.",
        (("log.segment.delete.delay.ms", 1),),
        low=0,
    ),
    TopicKey(
        "flush.messages",
        "int",
        LONG_MAX,
        "records",
        "Records after which a log is flushed.",
        (("log.flush.interval.messages", 1),),
        low=1,
    ),
    TopicKey(
        "flush.ms",
        "int",
        LONG_MAX,
        "ms",
        "Time after which a log is flushed.",
        (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
        low=0,
    ),
    TopicKey(
        "index.interval.bytes",
        "int",
        4096,
        "bytes",
        "Distance of index entries.",
        (("log.index.interval.bytes", 1),),
        low=0,
    ),
    TopicKey(
        "max.compaction.lag.ms",
        "int",
        LONG_MAX,
        "ms",
        "Latest time for a record to be compacted.",
        (("log.cleaner.max.compaction.lag.ms", 1),),
        low=1,
    ),
    TopicKey(
        "max.message.bytes",
        "int",
        1024 * 1024 + 12,
        "bytes",
        "Largest batch.",
        (("message.max.bytes", 1),),
        low=0,
    ),
    TopicKey(
        "message.timestamp.after.max.ms",
        "int",
        HOUR_MS,
        "ms",
        "How far a timestamp may be ahead.",
        (("log.message.timestamp.after.max.ms", 1),),
        low=0,
    ),
    TopicKey(
        "message.timestamp.before.max.ms",
        "int",
        LONG_MAX,
        "ms",
        "How far a timestamp may be behind.",
        (("log.message.timestamp.before.max.ms", 1),),
        low=0,
    ),
    TopicKey(
        "message.timestamp.type",
        "str",
        "CreateTime",
        "",
        "Whose clock gives the timestamp.",
        (("log.message.timestamp.type", 1),),
        choices=("CreateTime", "LogAppendTime"),
    ),
    TopicKey(
        "min.cleanable.dirty.ratio",
        "float",
        0.5,
        "",
        "Share of the log that is dirty when it is compacted.",
        (("log.cleaner.min.cleanable.ratio", 1),),
        low=0,
    ),
    TopicKey(
        "min.compaction.lag.ms",
        "int",
        0,
        "ms",
        "Earliest time for a record to be compacted.",
        (("log.cleaner.min.compaction.lag.ms", 1),),
        low=0,
    ),
    TopicKey(
        "min.insync.replicas",
        "int",
        1,
        "",
        "In-sync replicas that acks=all needs; there is one.",
        (("min.insync.replicas", 1),),
        low=1,
    ),
    TopicKey(
        "preallocate",
        "bool",
        False,
        "",
        "Segments get their blocks when they are made.",
        (("log.preallocate", 1),),
    ),
    TopicKey(
        "retention.bytes",
        "int",
        -1,
        "bytes",
        "Size of a partition beyond which it is cut; -1 none.",
        (("log.retention.bytes", 1),),
    ),
    TopicKey(
        "retention.ms",
        "int",
        168 * HOUR_MS,
        "ms",
        "Age at which records are removed; -1 never.",
        (
            ("log.retention.ms", 1),
            ("log.retention.minutes", 60_000),
            ("log.retention.hours", HOUR_MS),
        ),
        low=-1,
    ),
    TopicKey(
        "segment.bytes",
        "int",
        1 << 30,
        "bytes",
        "Size of a segment.",
        (("log.segment.bytes", 1),),
        low=1024 * 1024,
    ),
    TopicKey(
        "segment.index.bytes",
        "int",
        10 * 1024 * 1024,
        "bytes",
        "Size of an index at which its segment is closed.",
        (("log.index.size.max.bytes", 1),),
        low=4,
    ),
    TopicKey(
        "segment.jitter.ms",
        "int",
        0,
        "ms",
        "Random part of segment.ms.",
        (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
        low=0,
    ),
    TopicKey(
        "segment.ms",
        "int",
        168 * HOUR_MS,
        "ms",
        "Age at which a segment is closed.",
        (("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
        low=1,
    ),
)

# Keys of Kafka that are taken and change nothing here, because they tune what kafkalite does
# otherwise, or concern what one node without transactions, groups and tiering does not have yet.
WITHOUT_EFFECT = frozenset(
    re.findall(
        r"\S+",
        """
    background.threads controlled.shutdown.enable controller.listener.names
    controller.quorum.bootstrap.servers controller.quorum.voters default.replication.factor
    group.initial.rebalance.delay.ms inter.broker.listener.name log.cleaner.threads
    log.cleaner.io.buffer.size
    log.cleaner.io.max.bytes.per.second log.cleaner.io.buffer.load.factor metadata.log.dir
    num.io.threads num.replica.fetchers offsets.topic.num.partitions
    offsets.topic.replication.factor process.roles queued.max.requests
    replica.fetch.max.bytes share.coordinator.state.topic.min.isr
    share.coordinator.state.topic.replication.factor socket.receive.buffer.bytes
    socket.send.buffer.bytes transaction.state.log.min.isr
    transaction.state.log.num.partitions transaction.state.log.replication.factor
    unclean.leader.election.enable
    """,
    )
)

# Starts of keys of Kafka that would change what clients or operators get, and are not supported.
REFUSED = tuple(
    re.findall(
        r"\S+",
        """
    alter.config.policy.class.name authorizer.class.name client.quota.callback.class
    config.providers connections.max.reauth.ms create.topic.policy.class.name
    delegation.token. early.start.listeners fetch.max.bytes listener.name. log.cleaner.enable
    max.connection.creation.rate max.connections.per.ip metric.reporters
    principal.builder.class quota. remote.log. replica.selector.class replication.quota. sasl.
    security.inter.broker.protocol security.providers ssl. super.users
    unstable.api.versions.enable unstable.feature.versions.enable
    """,
    )
)

_BY_NAME = {key.name: key for key in KEYS}
_TOPIC_BY_NAME = {key.name: key for key in TOPIC_KEYS}
_SYNONYMS = {synonym: key for key in TOPIC_KEYS for synonym, _ in key.synonyms}


class Config(Mapping[str, Any]):
    """The broker's configuration: every key of `KEYS`, with its default where it is not set.

    `warnings` are sentences for the log. Raises InvalidArgumentError naming the first key that is
    wrong or not supported.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self.warnings: list[str] = []
        self._values = {key.name: key.default for key in KEYS}
        self._topic_values: dict[str, tuple[Any, int]] = {}
        broker_texts: dict[str, str] = {}
        for name, text in given.items():
            if name in _BY_NAME:
                self._values[name] = parse(_BY_NAME[name], text)
            if name in _SYNONYMS:
                broker_texts[name] = text
            elif name not in _BY_NAME and name not in WITHOUT_EFFECT:
                if name.startswith(REFUSED):
                    raise InvalidArgumentError(f"{name} is not supported: remove it to start")
                self.warnings.append(f"unknown configuration key {name}")
        for key in TOPIC_KEYS:
            self._topic_values[key.name] = (key.default, 5)
            for synonym, factor in key.synonyms:
                if synonym in broker_texts:
                    value = parse(key, broker_texts[synonym], name=synonym)
                    # A negative time is "never" in any unit.
                    scaled = value * factor if factor > 1 and value >= 0 else value
                    self._topic_values[key.name] = (scaled, 4)
                    break
        if self._values["broker.id"] != -1:
            if "node.id" in given and self._values["node.id"] != self._values["broker.id"]:
                raise InvalidArgumentError("node.id and broker.id differ: remove broker.id")
            self._values["node.id"] = self._values["broker.id"]

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def log_dirs(self) -> list[Path]:
        """The log directories, absolute, in the order given."""
        names = self._values["log.dirs"] or [self._values["log.dir"]]
        return [Path(name).absolute() for name in names]

    def topic_configs(self, own: Mapping[str, str]) -> list[EffectiveConfig]:
        """Every key of a topic that has `own` set."""
        effective = []
        for key in TOPIC_KEYS:
            value, source = self._topic_values[key.name]
            if key.name in own:
                value, source = parse(key, own[key.name]), 1
            effective.append(EffectiveConfig(key.name, text_of(value), source))
        return effective

    def engine_configs(self, own: Mapping[str, str]) -> dict[str, str]:
        """What the engine is told of a topic that has `own` set."""
        texts = {each.name: each.value for each in self.topic_configs(own)}
        # One node: the only replica is in sync.
        del texts["min.insync.replicas"]
        for name in (
            "producer.id.expiration.ms",
            "kafkalite.acks.fsync",
            "kafkalite.produce.validation",
        ):
            texts[name] = text_of(self._values[name])
        return texts


def check_topic_config(name: str, text: str | None) -> None:
    """Raises InvalidArgumentError, in Kafka's words, where a topic cannot have this set."""
    key = _TOPIC_BY_NAME.get(name)
    if key is None:
        raise InvalidArgumentError(f"Unknown topic config name: {name}")
    if text is None:
        raise InvalidArgumentError(f"Null value not supported for topic configs: {name}")
    parse(key, text)


def parse(key: Key | TopicKey, text: str, name: str = "") -> Any:
    """The value that `text` stands for. Raises InvalidArgumentError naming the key."""
    name = name or key.name
    try:
        value = _convert(key.kind, text.strip())
    except ValueError:
        raise InvalidArgumentError(
            f"Invalid value {text} for configuration {name}: not of type {key.kind}"
        ) from None
    if key.low is not None and value < key.low:
        raise InvalidArgumentError(
            f"Invalid value {text} for configuration {name}: must be at least {key.low}"
        )
    for each in value if isinstance(value, list) else [value]:
        if key.choices and each not in key.choices:
            raise InvalidArgumentError(
                f"Invalid value {text} for configuration {name}: must be one of "
                f"{', '.join(key.choices)}"
            )
    return value


def _convert(kind: str, text: str) -> Any:
    match kind:
        case "int":
            value = int(text)
            if not -LONG_MAX - 1 <= value <= LONG_MAX:
                raise ValueError
            return value
        case "float":
            return float(text)
        case "bool":
            if text.lower() not in ("true", "false"):
                raise ValueError
            return text.lower() == "true"
        case "list":
            return [word.strip() for word in text.split(",") if word.strip()]
        case _:
            return text


def text_of(value: Any) -> str:
    """A value as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    return str(value)


def read_properties(path: Path) -> dict[str, str]:
    """A Java properties file: `key=value` or `key: value`, `#` and `!` comments, `\\` at the end of
    a line that goes on. Raises InvalidArgumentError if the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error}") from error
    properties = {}
    for line in _logical_lines(text.splitlines()):
        ends = [at for at in (line.find("="), line.find(":"), line.find(" ")) if at > 0]
        end = min(ends, default=len(line))
        name, rest = line[:end], line[end:].lstrip()
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip()
        properties[name] = rest.replace("\\\\", "\\").replace("\\:", ":").replace("\\=", "=")
    return properties


def _logical_lines(lines: Iterable[str]) -> Iterable[str]:
    begun = ""
    for line in lines:
        line = line.lstrip()
        if not begun and (not line or line[0] in "#!"):
            continue
        if line.endswith("\\") and not line.endswith("\\\\"):
            begun += line[:-1]
            continue
        yield begun + line.rstrip() if not begun else begun + line
        begun = ""
    if begun:
        yield begun

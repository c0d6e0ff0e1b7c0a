"""The configuration: one row per key, with Kafka's names, defaults and meanings.

Own keys start with `kafkalite.`. A key that would change what Kafka does and is not supported is
refused at the start by its name; a key that nobody knows gets a warning. A key's row says all that
holds for it; who obeys a key names it once more, where it reads it. `keys.py` reads the rows,
`values.py` judges texts, `describe.py` and `changes.py` are what DescribeConfigs and AlterConfigs
need.

A broker's key has the first text there is, as in Kafka's `DynamicBrokerConfig`:

    set for this broker while it ran      kafka-configs --entity-type brokers --entity-name 1
    set for all brokers while they ran    kafka-configs --entity-type brokers --entity-default
    the file and the command line
    the row's default

Topics inherit from the broker: a topic's key (`segment.bytes`) takes the value of the first of the
broker's keys in its row that is set (`log.segment.bytes`), as in `ServerTopicConfigSynonyms`.
"""

import os
from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any, NamedTuple

from kafkalite.config.keys import RACK_AWARE, REASONS, Key, KeyTable
from kafkalite.config.values import PER_HOST, canonical, connections_by_host, parse, text_of
from kafkalite.errors import InvalidArgumentError

# Starts of keys that have no row, and would change what clients or operators get.
_REFUSED_STARTS = ("listener.name.", "remote.log.", "rlmm.config.", "rsm.config.", "sasl.", "ssl.")

# Keys that a listener may have for itself, as `listener.name.<name>.<key>`.
LISTENER_KEYS = ("max.connections", "max.connection.creation.rate")

# Of a broker, beside those of its topics, what the engine must know of each log.
_ENGINE_KEYS = ("producer.id.expiration.ms", "kafkalite.acks.fsync", "kafkalite.produce.validation")

# Kafka's defaults of keys that one node by itself cannot have so.
_IN_CLUSTER = {
    "offsets.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.replication.factor": "3",
}

# Kafka's codes of where a value comes from (`ConfigSource`).
TOPIC_SOURCE = 1
DYNAMIC_BROKER_SOURCE = 2
DYNAMIC_DEFAULT_SOURCE = 3
STATIC_SOURCE = 4
DEFAULT_SOURCE = 5


class EffectiveConfig(NamedTuple):
    """A topic's value, and Kafka's code of where it comes from."""

    name: str
    value: str
    source: int


class Config(Mapping[str, Any]):
    """The broker's configuration: every key of `broker.txt`, typed, None for null.

    `warnings` are sentences for the log. Raises InvalidArgumentError naming the first key that is
    wrong or not supported.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self.warnings: list[str] = []
        self.broker_keys = KeyTable("broker.txt")
        self.topic_keys = KeyTable("topic.txt")
        self.given = dict(given)
        self._cluster: Mapping[str, str] = {}
        self._node: Mapping[str, str] = {}
        self._values: dict[str, Any] = {}
        for name, text in given.items():
            self._check_given(name, text)
        self._unite_ids()
        _check_roles(self)

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            key = self.broker_keys[name]
            text = self.text(name)
            self._values[name] = None if text is None else parse(key, text)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.broker_keys)

    def __len__(self) -> int:
        return len(self.broker_keys)

    def text(self, name: str) -> str | None:
        """The text that a broker's key has now."""
        for layer in (self._node, self._cluster, self.given):
            if name in layer:
                return layer[name]
        return self.default_text(name)

    def text_of_listener(self, listener: str, key: str) -> str | None:
        """The text that a key of `LISTENER_KEYS` has now for a listener alone."""
        name = f"listener.name.{listener.lower()}.{key}"
        return next((layer[name] for _, layer in self.layers() if name in layer), None)

    def default_text(self, name: str) -> str | None:
        """The text of a key that nobody has set. Raises KeyError for a name without a row."""
        if name == "num.network.threads":
            # Network threads never wait for Python, and more than three contend.
            return str(max(1, min(3, len(os.sched_getaffinity(0)) - 1)))
        if name == "num.recovery.threads.per.data.dir":
            # A log that is loaded waits for no disk, so that a processor each is what helps.
            return str(max(2, len(os.sched_getaffinity(0))))
        if name in _IN_CLUSTER and not self.is_controller:
            return _IN_CLUSTER[name]
        return self.broker_keys[name].default

    def layers(self) -> tuple[tuple[int, Mapping[str, str]], ...]:
        """Where a broker's key may be set, by Kafka's code, the strongest first."""
        return (
            (DYNAMIC_BROKER_SOURCE, self._node),
            (DYNAMIC_DEFAULT_SOURCE, self._cluster),
            (STATIC_SOURCE, self.given),
        )

    def set_dynamic(self, cluster: Mapping[str, str], node: Mapping[str, str]) -> list[str]:
        """Takes what is set for all brokers and for this one while they run, over the file. Texts
        that cannot be, written by another version, count as not set; returns a sentence of each."""
        left_out: list[str] = []
        self._cluster = self._readable(cluster, left_out)
        self._node = self._readable(node, left_out)
        self._values = {}
        return left_out

    def settle(self, name: str, text: str) -> None:
        """Has a key that was given show what came of it, such as the port that was free."""
        self.given[name] = text
        self._values.pop(name, None)

    def settings(self) -> dict[str, int]:
        """The broker's integers and flags that it obeys, for the engine; of the classes of
        `replica.selector.class`, whether it is the one that goes by racks."""
        found = {}
        for name in self.broker_keys.obeyed():
            value = self[name]
            if isinstance(value, int):
                found[name] = int(value)
        found.setdefault("num.replica.alter.log.dirs.threads", len(self.log_dirs()))
        found["replica.selector.class"] = int(self["replica.selector.class"] == RACK_AWARE)
        return found

    def log_dirs(self) -> list[str]:
        """The log directories, absolute, in the order given. One that is named twice is one."""
        key = "log.dirs" if self["log.dirs"] else "log.dir"
        return list(dict.fromkeys(_absolute(key, name) for name in self[key] if name))

    def metadata_dir(self) -> str:
        """Where the metadata is, absolute: the first log directory unless a key says otherwise."""
        key = "metadata.log.dir"
        return _absolute(key, self[key]) if self[key] else self.log_dirs()[0]

    def check_directories(self) -> None:
        """Raises InvalidArgumentError where two directories are one by a link, or one lies in
        another, which would hold what is no partition from the next start on."""
        names = dict.fromkeys([*self.log_dirs(), self.metadata_dir()])
        paths = [(name, os.path.realpath(name)) for name in names]
        for (name, path), (other, outer) in permutations(paths, 2):
            if path == outer:
                raise InvalidArgumentError(f"the log directories {name} and {other} are the same")
            if path.startswith(os.path.join(outer, "")):  # noqa: PTH118 - see keys.py
                raise InvalidArgumentError(
                    f"the log directory {name} is inside {other}, which is a log directory too"
                )

    def topic_configs(
        self, own: Mapping[str, str], *, as_written: bool = False
    ) -> list[EffectiveConfig]:
        """Every key of a topic that has `own` set. `as_written` leaves those texts as they came,
        as Kafka's controller does in its answer to CreateTopics."""
        effective = []
        for name in self.topic_keys:
            key = self.topic_keys[name]
            if name in own:
                text = own[name] if as_written else canonical(key, own[name]) or ""
                effective.append(EffectiveConfig(name, text, TOPIC_SOURCE))
            elif key.default is not None:
                effective.append(self._inherited(key))
        return effective

    def topic_value(self, own: Mapping[str, str], name: str) -> str:
        """One key of a topic that has `own` set, which must have a value."""
        key = self.topic_keys[name]
        if name in own:
            return canonical(key, own[name]) or ""
        return self._inherited(key).value

    def topic_default(self, name: str) -> str | None:
        """One key of a topic that has nothing set."""
        key = self.topic_keys[name]
        return None if key.default is None else self._inherited(key).value

    def _inherited(self, key: Key) -> EffectiveConfig:
        for source, layer in self.layers():
            for synonym, factor in key.synonyms:
                if synonym in layer:
                    value = parse(self.broker_keys[synonym], layer[synonym])
                    # A negative time is "never" in any unit.
                    scaled = value * factor if factor > 1 and value >= 0 else value
                    return EffectiveConfig(key.name, text_of(scaled) or "", source)
        return EffectiveConfig(key.name, key.default or "", DEFAULT_SOURCE)

    def engine_configs(self, own: Mapping[str, str]) -> dict[str, str]:
        """The keys that the engine is told of a topic that has `own` set: those that it obeys."""
        texts = {
            each.name: each.value
            for each in self.topic_configs(own)
            if self.topic_keys[each.name].support == "obeyed"
        }
        if "internal.segment.bytes" in texts:
            # No batch fits into less.
            size = max(14, int(texts.pop("internal.segment.bytes")))
            texts["segment.bytes"] = str(size)
        for name in _ENGINE_KEYS:
            texts[name] = text_of(self[name]) or ""
        return texts

    @property
    def is_controller(self) -> bool:
        """This node is its own controller."""
        return "controller" in self["process.roles"]

    def controllers(self) -> list[tuple[str, int]]:
        """Where a broker asks for the active controller. Raises InvalidArgumentError where nothing
        says so."""
        key = "controller.quorum.bootstrap.servers"
        if not self[key]:
            key = "controller.quorum.voters"
        found = []
        for text in self[key]:
            host, _, port = text.rpartition("@")[2].rpartition(":")
            if not (host and port.isdecimal()):
                raise InvalidArgumentError(f"{key}: {text} is not of the form HOST:PORT")
            found.append((host.strip("[]"), int(port)))
        if not found:
            raise InvalidArgumentError(
                "process.roles=broker needs controller.quorum.bootstrap.servers, or "
                "controller.quorum.voters"
            )
        return found

    def _unite_ids(self) -> None:
        """`broker.id` is the older name of `node.id`."""
        ids = [self[name] for name in ("node.id", "broker.id") if name in self.given]
        if len(set(ids)) > 1:
            raise InvalidArgumentError("node.id and broker.id differ: remove broker.id")
        if ids:
            self.given["node.id"] = self.given["broker.id"] = str(ids[0])
            self._values.clear()

    def _check_given(self, name: str, text: str) -> None:
        if name not in self.broker_keys:
            if key_of_listener(name):
                return
            if name.startswith(_REFUSED_STARTS):
                raise InvalidArgumentError(f"{name} is not supported: remove it to start")
            self.warnings.append(f"unknown configuration key {name}{self._nearest(name)}")
            return
        key = self.broker_keys[name]
        if key.mode == "dynamic-only":
            self.warnings.append(f"{name} has no effect in a file: it is set while brokers run")
            del self.given[name]
            return
        value = parse(key, text)
        if key.support == "refused" and text_of(value) != key.default:
            raise InvalidArgumentError(f"{name} is not supported: remove it to start")
        has_effect = key.reason == "nodes" and not self.is_controller
        if key.is_told and not has_effect and text_of(value) != key.default:
            self.warnings.append(f"{name}={text} has no effect: {REASONS[key.reason]}")

    def _nearest(self, name: str) -> str:
        """Guesses what was meant by a key that there is not."""
        from difflib import get_close_matches  # here, since a start has 0.15 s

        found = get_close_matches(name, self.broker_keys, n=1, cutoff=0.85)
        return f"; did you mean {found[0]}?" if found else ""

    def _readable(self, texts: Mapping[str, str], left_out: list[str]) -> dict[str, str]:
        readable = {}
        for name, text in texts.items():
            base = key_of_listener(name) or name
            if base in self.broker_keys:
                try:
                    parse(self.broker_keys[base], text)
                    if name == PER_HOST:
                        connections_by_host(text)
                except InvalidArgumentError as error:
                    left_out.append(f"{error} (set while the broker ran); it is left out")
                    continue
            readable[name] = text
        return readable


def key_of_listener(name: str) -> str | None:
    """The key of `LISTENER_KEYS` that `listener.name.<name>.<key>` is; None for any other."""
    start, _, rest = name.partition("listener.name.")
    key = rest.partition(".")[2]
    return key if not start and key in LISTENER_KEYS else None


def _absolute(key: str, name: str) -> str:
    """Raises InvalidArgumentError for what is no path, and where there is nothing that a path can
    be relative to."""
    if "\0" in name:
        raise InvalidArgumentError(f"{key}={name!r} has a NUL in it, which no path may have")
    try:
        return os.path.abspath(name)  # noqa: PTH100 - see keys.py
    except FileNotFoundError as error:
        raise InvalidArgumentError(
            f"{key}={name} is relative, and the current directory has been deleted: name an "
            "absolute path"
        ) from error


def _check_roles(config: Config) -> None:
    """One node is broker and controller, or a broker of controllers elsewhere."""
    roles = config["process.roles"]
    if "broker" not in roles:
        raise InvalidArgumentError(
            f"process.roles={','.join(roles)} is not supported: a node is broker,controller, or a "
            "broker of Apache Kafka's controllers"
        )
    if "controller" not in roles:
        config.controllers()
        if "node.id" not in config.given:
            raise InvalidArgumentError(
                "process.roles=broker needs a node.id that no other node of the cluster has"
            )
        return
    voters = [each.partition("@")[0] for each in config["controller.quorum.voters"]]
    if voters and voters != [str(config["node.id"])]:
        raise InvalidArgumentError(
            f"controller.quorum.voters={','.join(config['controller.quorum.voters'])} is not "
            f"supported: the only controller is this node, {config['node.id']}"
        )

"""Changes that AlterConfigs and IncrementalAlterConfigs may make to a resource: pure functions of
what is set and what is asked for, with Kafka's refusals, codes and words. Of several wrong values
the first that is asked for is named; Kafka names the first of a hash map's, or of its own list.

`changes` are what `controller.set_configs` takes: key -> text, or None to take it away.
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkalite.config import (
    DYNAMIC_BROKER_SOURCE,
    DYNAMIC_DEFAULT_SOURCE,
    LISTENER_KEYS,
    Config,
    key_of_listener,
)
from kafkalite.config.keys import MIN_INSYNC_REPLICAS, Key, KeyTable
from kafkalite.config.values import NOBODY_MAY_CONNECT, PER_HOST, connections_by_host, parse
from kafkalite.errors import InvalidArgumentError
from kafkalite.protocol import codes
from kafkalite.protocol.refused import RefusedError

OPERATIONS = SET, DELETE, APPEND, SUBTRACT = range(4)

Changes = dict[str, str | None]

DefaultOf = Callable[[str], str | None]
"""Key -> what is taken for a value that is not set."""

# A group's key, and the broker's keys that bound it (`GroupConfig.validateValues`).
_GROUP_BOUNDS = {
    f"{kind}.{key}": (f"group.{kind}.min.{key}", f"group.{kind}.max.{key}")
    for kind, keys in {
        "consumer": ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"),
        "share": (
            "heartbeat.interval.ms",
            "session.timeout.ms",
            "assignment.interval.ms",
            "record.lock.duration.ms",
            "delivery.count.limit",
            "partition.max.record.locks",
        ),
        "streams": ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"),
    }.items()
    for key in keys
} | {"streams.num.standby.replicas": ("", "group.streams.max.standby.replicas")}

# What a client metrics subscription can match by (`ClientMetricsConfigs`).
_MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

# Pools that Kafka resizes, at most to the double and to the half (`DynamicThreadPool`).
_THREAD_COUNTS = (
    "background.threads",
    "num.io.threads",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
PATTERNS_CHARACTERS_MAX = 1_000
"""Length of all patterns of a client metrics subscription: Python takes some hundredths of a
millisecond for each character."""
LATIN_1_MAX = 0xFF

VALUE_BYTES_MAX = 32_767
"""The longest value that is set: the records of the metadata have no longer strings. Kafka counts
UTF-16 units (`ConfigurationControlManager`), which its sentence calls bytes, and fails at others.
"""

CLEANER_THREAD_BYTES_MIN = 1 << 20

# What is judged together, by `_check_cleaner`.
_OF_CLEANER = frozenset({"log.cleaner.dedupe.buffer.size", "log.cleaner.threads"})

# What is judged together, by `_check_limits_of_addresses`.
_OF_ADDRESSES = frozenset({"max.connections.per.ip", PER_HOST})

# What is judged together, by `_check_local_retention`.
_LOCAL_RETENTION = frozenset(
    f"log.{which}retention.{unit}" for which in ("", "local.") for unit in ("ms", "bytes")
)

# What a listener may have of its own, and only so (`SslConfigs.RECONFIGURABLE_CONFIGS`).
_OF_LISTENERS = (
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)


class ChangeRefusedError(RefusedError):
    """A change of a configuration cannot be made."""


def check_texts(operations: Sequence[tuple[str, int, str | None]]) -> None:
    """Checks what holds for any resource. Raises ChangeRefusedError for a key that comes twice and
    for one that is to be null."""
    names = [name for name, _, _ in operations]
    if len(set(names)) < len(names):
        raise ChangeRefusedError(codes.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [name for name, kind, text in operations if kind != DELETE and text is None]
    if nulls:
        raise ChangeRefusedError(
            codes.INVALID_REQUEST, f"Null value not supported for : {_join(nulls)}"
        )


def check_broker_lists(
    operations: Sequence[tuple[str, int, str | None]], keys: Mapping[str, Key]
) -> None:
    """Refuses the first that is no list as Kafka's broker does, in other words than its
    controller of topics (`prepareIncrementalConfigs`). Raises ChangeRefusedError."""
    for name, kind, _ in operations:
        if kind not in (APPEND, SUBTRACT):
            continue
        if name not in keys or keys[name].mode == "dynamic-only":
            raise ChangeRefusedError(codes.INVALID_CONFIG, f"Unknown config name: {name}")
        if keys[name].kind != "list":
            verb = "append" if kind == APPEND else "subtract"
            sentence = f"Config value {verb} is not allowed for config key: {name}"
            raise ChangeRefusedError(codes.INVALID_CONFIG, sentence)


def incremental_changes(
    own: Mapping[str, str],
    operations: Sequence[tuple[str, int, str | None]],
    keys: Mapping[str, Key],
    default_of: DefaultOf,
) -> Changes:
    """Applies each (key, operation, text) to `own`; `check_texts` has passed them. `default_of`
    gives what a list is taken to be that is not set. Raises ChangeRefusedError."""
    changes: Changes = {}
    for name, kind, text in operations:
        if kind == DELETE:
            changes[name] = None
        elif kind == SET:
            changes[name] = text
        elif kind in (APPEND, SUBTRACT):
            _check_list(name, kind, keys)
            current = own[name] if name in own else default_of(name)
            changes[name] = _changed_list(kind, text or "", current)
        else:
            raise ChangeRefusedError(codes.UNKNOWN_SERVER_ERROR, "")
    return changes


def _check_list(name: str, kind: int, keys: Mapping[str, Key]) -> None:
    if name not in keys or keys[name].kind != "list":
        verb = "APPEND" if kind == APPEND else "SUBTRACT"
        sentence = f"Can't {verb} to key {name} because its type is not LIST."
        raise ChangeRefusedError(codes.INVALID_CONFIG, sentence)


def _changed_list(kind: int, text: str, current: str | None) -> str:
    elements = [each.strip() for each in (current or "").split(",") if each.strip()]
    words = [each.strip() for each in text.split(",")]
    if kind == APPEND:
        present = set(elements)
        elements += [each for each in dict.fromkeys(words) if each not in present]
        return ",".join(elements)
    # An element that is there twice is taken out as often as it is named.
    taken = Counter(words)
    rest = []
    for each in elements:
        if taken[each]:
            taken[each] -= 1
        else:
            rest.append(each)
    return ",".join(rest)


def replacing_changes(own: Mapping[str, str], configs: Sequence[tuple[str, str | None]]) -> Changes:
    """Gives the changes that make `own` to be just `configs`, which `check_texts` has passed."""
    return {**dict.fromkeys(own), **dict(configs)}


def merged(own: Mapping[str, str], changes: Changes) -> dict[str, str]:
    """Gives what is set after the changes."""
    both = {**own, **changes}
    return {name: text for name, text in both.items() if text is not None}


def check_lengths(own: Mapping[str, str], changes: Mapping[str, str | None]) -> None:
    """Raises ChangeRefusedError where a value has become too long, for any resource: it has grown,
    as no request has longer strings."""
    for name, text in changes.items():
        if text is None or text == own.get(name) or len(text.encode()) <= VALUE_BYTES_MAX:
            continue
        raise ChangeRefusedError(
            codes.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{VALUE_BYTES_MAX} bytes.",
        )


def check_topic(config: Config, after: Mapping[str, str]) -> None:
    """Raises ChangeRefusedError where a topic cannot have all of `after` set."""
    _check_known(config.topic_keys, after, "Unknown topic config name: ")
    values = _parsed_as(codes.INVALID_CONFIG, config.topic_keys, after)
    least, most = (
        config.topic_value(after, f"{each}.compaction.lag.ms") for each in ("min", "max")
    )
    if int(least) > int(most):
        raise ChangeRefusedError(
            codes.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({least}) > "
            f"max.compaction.lag.ms ({most})",
        )
    if values.get("remote.storage.enable"):
        raise ChangeRefusedError(
            codes.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
            "with remote log storage.",
        )


def check_group(config: Config, after: Mapping[str, str]) -> None:
    """Raises ChangeRefusedError where a group cannot have all of `after` set."""
    table = KeyTable("group.txt")
    _check_known(table, after, "Unknown group config name: ")
    given = _parsed_as(codes.INVALID_CONFIG, table, after)
    for name, (least, most) in _GROUP_BOUNDS.items():
        if name in given and least and given[name] < config[least]:
            sentence = f"{name} must be greater than or equal to {least}"
            raise ChangeRefusedError(codes.INVALID_CONFIG, sentence)
        if name in given and given[name] > config[most]:
            sentence = f"{name} must be less than or equal to {most}"
            raise ChangeRefusedError(codes.INVALID_CONFIG, sentence)
    for kind in ("consumer", "share", "streams"):
        timeout, interval = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        values = [given.get(name, config[f"group.{name}"]) for name in (timeout, interval)]
        if values[0] <= values[1]:
            sentence = f"{timeout} must be greater than {interval}"
            raise ChangeRefusedError(codes.INVALID_CONFIG, sentence)


def check_client_metrics(after: Mapping[str, str]) -> None:
    """Raises ChangeRefusedError where a subscription cannot have all of `after` set."""
    table = KeyTable("client_metrics.txt")
    for name in after:
        if name not in table:
            sentence = f"Unknown client metrics configuration: {name}"
            raise ChangeRefusedError(codes.INVALID_REQUEST, sentence)
    # Kafka has other words, and another code, for an interval out of bounds.
    interval = "interval.ms"
    low, _, high = table[interval].values.partition("..")
    unbounded = {**table, interval: table[interval]._replace(values="-")}
    values = _parsed_as(codes.INVALID_CONFIG, unbounded, after)
    if interval in values and not int(low) <= values[interval] <= int(high):
        sentence = (
            f"Invalid value {values[interval]} for {interval}, interval must be between {low} and "
            f"{high} (1 hour)"
        )
        raise ChangeRefusedError(codes.INVALID_REQUEST, sentence)
    _check_patterns(values.get("match", []))


def _check_patterns(patterns: list[str]) -> None:
    if sum(map(len, patterns)) > PATTERNS_CHARACTERS_MAX:
        sentence = f"Client matching patterns of more than {PATTERNS_CHARACTERS_MAX} characters"
        raise ChangeRefusedError(codes.INVALID_CONFIG, sentence)
    for each in patterns:
        # Java's `split`, which leaves out what is empty at the end.
        name, *parts = each.rstrip("=").split("=")
        try:
            is_legal = len(parts) == 1 and name.strip() in _MATCHED
            with warnings.catch_warnings(action="ignore"):  # of what may mean another thing one day
                re.compile(_as_python("=".join(parts).strip()))
        except (re.error, OverflowError, RecursionError):
            is_legal = False
        if not is_legal:
            sentence = f"Illegal client matching pattern: {each}"
            raise ChangeRefusedError(codes.INVALID_CONFIG, sentence)


def _as_python(pattern: str) -> str:
    """A regular expression of Java's, as far as Python writes the same in another way."""
    for java, python in ((r"\(\?<(?=[A-Za-z])", "(?P<"), (r"\\[pP]\{\w+\}", r"\\w")):
        pattern = re.sub(java, python, pattern)
    return _narrowed(pattern)


def _narrowed(pattern: str) -> str:
    """A pattern that is legal if the given one is: its characters beyond Latin-1 are moved side by
    side, in their order. Python's compiler looks at each character of a range, and takes 20 ms for
    one of 64 Ki; it would have the GIL, too. Raises re.error where a range could still be wide."""

    def literal(escape: re.Match[str]) -> str:
        if escape[0] in (r"\N", r"\U"):
            raise re.error(f"bad escape {escape[0]}")
        code_point = int(escape[1] or "0", 16)
        return chr(code_point) if code_point > LATIN_1_MAX else escape[0]

    literally = re.sub(r"(?s)\\(?:u([0-9A-Fa-f]{4})|.)", literal, pattern)
    beyond = sorted(each for each in map(ord, set(literally)) if each > LATIN_1_MAX)
    places = enumerate(beyond, LATIN_1_MAX + 1)
    return literally.translate({code_point: place for place, code_point in places})


def check_broker(
    config: Config, after: Mapping[str, str], changes: Changes, *, for_all: bool
) -> None:
    """Raises ChangeRefusedError where this broker, or with `for_all` all of them, cannot have all
    of `after` set while they run. What cannot take effect is refused, too."""
    table = config.broker_keys
    known = {name: table[name] for name in after if name in table}
    _refuse_all(
        [name for name, key in known.items() if not key.is_dynamic],
        "Cannot update these configs dynamically",
    )
    _refuse_all(
        [name for name in known if name in _OF_LISTENERS],
        "These security configs can be dynamically updated only per-listener using the listener "
        "prefix",
    )
    of_listeners = {name: table[key] for name in after if (key := key_of_listener(name))}
    values = _parsed_as(codes.INVALID_REQUEST, known | of_listeners, after)
    if for_all:
        _refuse_all(
            [name for name, key in known.items() if key.mode == "per-broker"],
            "Cannot update these configs at default cluster level, broker id must be specified",
        )

    def text_of(name: str) -> str:
        """As it will be."""
        found = (layer[name] for layer in layers.values() if name in layer)
        return next(found, config.default_text(name) or "")

    layers = dict(config.layers())
    layers[DYNAMIC_DEFAULT_SOURCE if for_all else DYNAMIC_BROKER_SOURCE] = after
    for name in changes:
        if name in _OF_CLEANER:
            _check_cleaner(table, text_of)
        if name in values:
            _check_live(config, name, values[name])
        if name in known and known[name].support in ("refused", "at-start"):
            sentence = f"kafkalite cannot change {name} while it runs"
            raise ChangeRefusedError(codes.INVALID_REQUEST, sentence)
        if name.startswith("listener.name.") and name in after and name not in of_listeners:
            raise ChangeRefusedError(codes.INVALID_REQUEST, f"kafkalite does not support {name}")
    if not _OF_ADDRESSES.isdisjoint(changes):
        _check_limits_of_addresses(table, text_of)
    if not _LOCAL_RETENTION.isdisjoint(changes):
        _check_local_retention(config, values)


def check_replicas_in_sync(changes: Changes, *, for_all: bool) -> None:
    """Raises ChangeRefusedError for what is not allowed while a cluster tracks eligible leader
    replicas (KIP-966)."""
    name = MIN_INSYNC_REPLICAS
    if name in changes and not for_all:
        sentence = f"Broker-level {name} cannot be altered while ELR is enabled."
        raise ChangeRefusedError(codes.INVALID_CONFIG, sentence)
    if name in changes and changes[name] is None:
        sentence = f"Cluster-level {name} cannot be removed while ELR is enabled."
        raise ChangeRefusedError(codes.INVALID_CONFIG, sentence)


def _check_live(config: Config, name: str, value: Any) -> None:
    """Raises ChangeRefusedError where a key that may change cannot be changed to this."""
    current = config[key_of_listener(name) or name]
    least = {"log.roll.ms": 1, "log.roll.jitter.ms": 0}
    if name in least and value < least[name]:
        sentence = f"requirement failed: {name} must be greater than or equal to {least[name]}"
        raise ChangeRefusedError(codes.INVALID_REQUEST, sentence)
    if name == "log.retention.ms" and value == 0:
        raise ChangeRefusedError(
            codes.INVALID_REQUEST,
            f"requirement failed: {name} must be unlimited (-1) or, greater than or equal to 1",
        )
    _check_assignment_interval(config, name, value)
    if value == 0 and _key_of_our_listener(config, name) in LISTENER_KEYS:
        raise _invalid_dynamic(f"Invalid {_key_of_our_listener(config, name)} 0")
    if name == "log.cleaner.threads" and value > current * 2:
        reason = "Log cleaner threads cannot be increased to more than double"
    elif name in _THREAD_COUNTS and value > current * 2:
        reason = _thread_count(name, value) + " should not be greater than double"
    elif name in _THREAD_COUNTS and value < current // 2:
        reason = _thread_count(name, value) + " should be at least half"
    else:
        return
    raise _invalid_dynamic(f"{reason} the current value {current}")


def _key_of_our_listener(config: Config, name: str) -> str | None:
    """The key that a name is for all listeners, or for one that there is; None for others."""
    key = key_of_listener(name)
    if key is None:
        return name
    listeners = [text.partition("://")[0].strip().lower() for text in config["listeners"]]
    return key if name.removeprefix("listener.name.").removesuffix(f".{key}") in listeners else None


def _check_cleaner(table: KeyTable, text_of: Callable[[str], str]) -> None:
    """Checks the cleaner's keys as they will be (`KafkaConfig`)."""
    buffer, threads = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
    buffer_bytes, count = (parse(table[name], text_of(name)) for name in (buffer, threads))
    if count < 1:
        # The buffer of all threads is divided by their number.
        raise ChangeRefusedError(codes.INVALID_REQUEST, "/ by zero")
    if buffer_bytes // count <= CLEANER_THREAD_BYTES_MIN:
        sentence = f"requirement failed: {buffer} must be at least 1MB per cleaner thread."
        raise ChangeRefusedError(codes.INVALID_REQUEST, sentence)


def _check_limits_of_addresses(table: KeyTable, text_of: Callable[[str], str]) -> None:
    """Checks the limits of addresses as they will be (`KafkaConfig`)."""
    try:
        by_host = connections_by_host(text_of(PER_HOST))
        per_address = parse(table["max.connections.per.ip"], text_of("max.connections.per.ip"))
        if per_address == 0 and not by_host:
            raise InvalidArgumentError(NOBODY_MAY_CONNECT)
    except InvalidArgumentError as error:
        raise ChangeRefusedError(codes.INVALID_REQUEST, str(error)) from error


def _invalid_dynamic(reason: str) -> ChangeRefusedError:
    return ChangeRefusedError(
        codes.INVALID_REQUEST,
        f"Invalid value org.apache.kafka.common.config.ConfigException: {reason} for configuration "
        "Invalid dynamic configuration",
    )


def _check_assignment_interval(config: Config, name: str, value: Any) -> None:
    """Checks the interval of new groups (`GroupCoordinatorConfig`)."""
    if name not in {f"group.{key}" for key in _GROUP_BOUNDS if "assignment" in key}:
        return
    least, most = _GROUP_BOUNDS[name.removeprefix("group.")]
    if value > config[most]:
        sentence = f"{name} must be less than or equal to {most}"
        raise ChangeRefusedError(codes.INVALID_REQUEST, sentence)
    if value < config[least]:
        sentence = f"{name} must be greater than or equal to {least}"
        raise ChangeRefusedError(codes.INVALID_REQUEST, sentence)


def _check_local_retention(config: Config, values: Mapping[str, Any]) -> None:
    """Checks that tiered storage keeps no more than is retained in all (`DynamicLogConfig`)."""
    for unit in ("ms", "bytes"):
        local, total = f"log.local.retention.{unit}", f"log.retention.{unit}"
        value = values.get(local, config[local])
        most = values.get(total, int(config.topic_value({}, f"retention.{unit}")))
        if most == -1 or value == -2:
            continue
        invalid = f"Invalid value {value} for configuration {local}: Value must not be "
        if value == -1:
            raise _invalid_dynamic(f"{invalid}-1 as {total} value is set as {most}.")
        if value > most:
            raise _invalid_dynamic(f"{invalid}more than {total} property value: {most}")


def _thread_count(name: str, value: int) -> str:
    return f"Dynamic thread count update validation failed for {name}={value}, value"


def _check_known(table: Mapping[str, Key], texts: Mapping[str, str], unknown: str) -> None:
    for name in texts:
        if name not in table:
            raise ChangeRefusedError(codes.INVALID_CONFIG, unknown + name)


def _parsed_as(code: int, table: Mapping[str, Key], texts: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for name, text in texts.items():
        if name in table:
            try:
                values[name] = parse(table[name], text)
            except InvalidArgumentError as error:
                raise ChangeRefusedError(code, str(error)) from error
    return values


def _refuse_all(names: list[str], reason: str) -> None:
    if names:
        raise ChangeRefusedError(codes.INVALID_REQUEST, f"{reason}: [{_join(names)}]")


def _join(names: Sequence[str]) -> str:
    return ", ".join(names)

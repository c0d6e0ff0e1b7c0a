"""Describes a resource for DescribeConfigs: every key with its value, where that comes from, and
what else would have been taken (`ConfigHelper`, `DynamicBrokerConfig` of Kafka).

A broker's key lists the places where it, or a synonym of it, is set, the strongest first:

    log.retention.ms = 30000     1. log.retention.ms    = 30000  set for all brokers       (3)
                                 2. log.retention.hours = 168    default                   (5)

What comes before the first entry of the key's own name is left out, as Kafka does. A key that no
entry is left of counts as default, whatever gave it its value.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafkalite.config import (
    DEFAULT_SOURCE,
    DYNAMIC_DEFAULT_SOURCE,
    TOPIC_SOURCE,
    Config,
    key_of_listener,
)
from kafkalite.config.keys import Key, KeyTable
from kafkalite.config.values import canonical, text_of

CLIENT_METRICS_SOURCE = 7
GROUP_SOURCE = 8

# Kafka's codes of types (`DescribeConfigsResponse.ConfigType`); 0 is unknown.
_KINDS = ("", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")

# Keys that name one thing together (`DynamicBrokerConfig.brokerConfigSynonyms`).
_FAMILIES = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)


class Synonym(NamedTuple):
    """A place where a key is set; `value` is None for what is sensitive."""

    name: str
    value: str | None
    source: int


class Described(NamedTuple):
    """A key as the answer has it."""

    name: str
    value: str | None
    is_read_only: bool
    source: int
    is_sensitive: bool
    synonyms: list[Synonym]
    kind: int
    doc: str | None


def describe_broker(config: Config) -> list[Described]:
    """Every key of this broker, and those without a row that were set somewhere."""
    table = config.broker_keys
    names = dict.fromkeys(name for name in table if _is_shown(table[name]))
    for _, layer in config.layers():
        names.update(dict.fromkeys(layer))
    return [_of_broker(config, name, cluster_only=False) for name in names]


def describe_all_brokers(config: Config, cluster: Mapping[str, str]) -> list[Described]:
    """Describes what is set for all brokers while they run, and nothing else."""
    return [_of_broker(config, name, cluster_only=True) for name in cluster]


def describe_topic(config: Config, own: Mapping[str, str]) -> list[Described]:
    """Every key of a topic that has `own` set."""
    described = []
    for each in config.topic_configs(own):
        key = config.topic_keys[each.name]
        synonyms = _synonyms(config, key.synonyms[0][0]) if key.synonyms else []
        if each.name in own:
            synonyms.insert(0, Synonym(each.name, each.value, TOPIC_SOURCE))
        described.append(_described(key, each.value, synonyms))
    return described


def describe_group(config: Config, own: Mapping[str, str]) -> list[Described]:
    """Every key of a group that has `own` set."""
    table = KeyTable("group.txt")
    described = []
    for name in table:
        key = table[name]
        value: str | None = key.default
        if key.synonyms:
            synonyms = _synonyms(config, key.synonyms[0][0])
            value = text_of(config[key.synonyms[0][0]])
        else:
            synonyms = [Synonym(name, key.default, DEFAULT_SOURCE)]
        if name in own:
            value = canonical(key, own[name])
            synonyms.insert(0, Synonym(name, value, GROUP_SOURCE))
        described.append(_described(key, value, synonyms))
    return described


def describe_client_metrics(own: Mapping[str, str]) -> list[Described]:
    """Every key of a client metrics subscription that has `own` set."""
    table = KeyTable("client_metrics.txt")
    described = []
    for name in table:
        key = table[name]
        synonyms = []
        if name in own:
            synonyms = [Synonym(name, canonical(key, own[name]), CLIENT_METRICS_SOURCE)]
        value = synonyms[0].value if synonyms else key.default
        described.append(_described(key, value, synonyms))
    return described


def _of_broker(config: Config, name: str, *, cluster_only: bool) -> Described:
    synonyms = _synonyms(config, name)
    if cluster_only:
        synonyms = [each for each in synonyms if each.source == DYNAMIC_DEFAULT_SOURCE]
    source = synonyms[0].source if synonyms else DEFAULT_SOURCE
    base = key_of_listener(name)
    if base is not None:
        value = synonyms[0].value if synonyms else None
        kind = _KINDS.index(config.broker_keys[base].kind)
        return Described(name, value, True, source, False, synonyms, kind, None)
    if name not in config.broker_keys:
        # Kafka takes what it does not know for a secret.
        return Described(name, None, True, source, True, synonyms, 0, None)
    key = config.broker_keys[name]
    value = synonyms[0].value if cluster_only and synonyms else text_of(config[name])
    if key.is_sensitive:
        value = None
    described = _described(key, value, synonyms)
    return described._replace(is_read_only=not key.is_dynamic)


def _described(key: Key, value: str | None, synonyms: list[Synonym]) -> Described:
    return Described(
        key.name,
        value,
        False,
        synonyms[0].source if synonyms else DEFAULT_SOURCE,
        key.is_sensitive,
        synonyms,
        _KINDS.index(key.kind),
        key.doc,
    )


def _synonyms(config: Config, name: str) -> list[Synonym]:
    """Where a broker's key is set, the strongest first."""
    names = _family(name)
    found = [
        Synonym(each, _shown(config, each, layer[each]), source)
        for source, layer in config.layers()
        for each in names
        if each in layer
    ]
    for each in names:
        text = config.default_text(each) if each in config.broker_keys else None
        if text is not None:
            found.append(Synonym(each, text, DEFAULT_SOURCE))
    while found and found[0].name != name:
        del found[0]
    return found


def _family(name: str) -> Iterable[str]:
    base = key_of_listener(name)
    if base is not None:
        return (name, base)
    if name == "log.flush.interval.ms":
        return (name, "log.flush.scheduler.interval.ms")
    return next((family for family in _FAMILIES if name in family), (name,))


def _shown(config: Config, name: str, text: str) -> str | None:
    key = key_of_listener(name) or name
    is_secret = key not in config.broker_keys or config.broker_keys[key].is_sensitive
    return None if is_secret else text


def _is_shown(key: Key) -> bool:
    return key.mode not in ("internal", "dynamic-only")

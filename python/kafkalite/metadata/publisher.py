"""Publishes the metadata to the broker core: states of topics, configurations, features.

    Image, Delta ──► TopicState of each topic ──► BrokerPlane (`rust/src/node.rs`)

An image holds the partitions of all brokers; a core gets those of its own node. It is told after
the records are durable, so that a client never sees what a restart would not.

Kafka: `BrokerMetadataPublisher`, `DynamicConfigPublisher`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kafkalite import _native
from kafkalite.metadata.features import FEATURES
from kafkalite.metadata.fold import Delta
from kafkalite.metadata.image import BROKER, TOPIC, Image, TopicImage

EngineConfigs = Callable[[Mapping[str, str]], Mapping[str, str]]
"""(the configs of a topic) -> those that its logs obey, with the broker's defaults."""


class PartitionState(NamedTuple):
    """A partition as the core is told of it."""

    leader_epoch: int
    directory: bytes
    """The id of the log directory where this node's replica lies."""


class TopicState(NamedTuple):
    """A topic as the core is told of it; its partitions by index."""

    id: bytes
    is_internal: bool
    configs: dict[str, str]
    partitions: list[PartitionState]


class Publisher:
    """Tells one core. Used by the control thread only, once the node serves."""

    def __init__(self, node_id: int, engine_configs: EngineConfigs) -> None:
        self._node_id = node_id
        self._engine_configs = engine_configs
        self._broker_config_watchers: list[Callable[[], object]] = []

    def on_broker_configs(self, watcher: Callable[[], object]) -> None:
        """`watcher()` is called after each change of this broker's configs, or of all brokers'."""
        self._broker_config_watchers.append(watcher)

    def states(self, image: Image, topics: Iterable[TopicImage]) -> dict[str, TopicState]:
        """The states of topics by their names, with the configs of `image`."""
        return {topic.name: self._state(image, topic) for topic in topics}

    def publish_topics(
        self, core: _native.Topics, image: Image, made: Mapping[str, TopicState]
    ) -> None:
        """Has clients see topics, whose logs were made for the states `made`. Their configs may
        have changed meanwhile. Raises KafkaliteError."""
        states = self.states(image, [image.topics[name] for name in made])
        core.publish(states)
        for name, state in states.items():
            if state != made[name]:
                core.set_configs(name, state.configs)

    def publish_configs(self, core: _native.Topics, delta: Delta) -> None:
        """Has configurations hold that have changed. Those of new topics hold when their logs are
        made."""
        image, topics = delta.image, delta.before.topics
        if any(kind == BROKER for kind, _ in delta.configs):
            names: Sequence[str] = list(image.topics)
            for watcher in self._broker_config_watchers:
                watcher()
        else:
            names = [name for kind, name in sorted(delta.configs) if kind == TOPIC]
        for name in names:
            if name in topics and name in image.topics:
                own = image.configs.get((TOPIC, name), {})
                core.set_configs(name, self._engine_configs(own))

    def publish_features(
        self, core: _native.Topics, image: Image, finalized: Mapping[str, int]
    ) -> None:
        """Has ApiVersions tell the features; `finalized` are their levels."""
        supported = [(each.name, each.low, each.high) for each in FEATURES]
        core.set_features(supported, list(finalized.items()), image.last_offset)

    def _state(self, image: Image, topic: TopicImage) -> TopicState:
        own = image.configs.get((TOPIC, topic.name), {})
        node_id = self._node_id
        partitions = [
            PartitionState(each.leader_epoch, each.directory_of(node_id))
            for each in topic.partitions
        ]
        return TopicState(topic.id, topic.is_internal, dict(self._engine_configs(own)), partitions)

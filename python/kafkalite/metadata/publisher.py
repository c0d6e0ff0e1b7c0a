"""Publishes the metadata to the broker core: brokers, states of topics, configurations, features.

    Image, MetadataDelta ──► TopicState of each topic ──► BrokerCore (`rust/src/node/publish.rs`)

A core gets the partitions of all brokers, and finds those of its own node among them. It is told
after the records are durable, so that a client never sees what a restart would not.

Kafka: `BrokerMetadataPublisher`, `DynamicConfigPublisher`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kafkalite import _native
from kafkalite.calls import LogCalls
from kafkalite.metadata.controller.features import finalized_features
from kafkalite.metadata.features import FEATURES
from kafkalite.metadata.fold import MetadataDelta
from kafkalite.metadata.image import (
    BROKER,
    TOPIC,
    BrokerEndpoint,
    Image,
    PartitionImage,
    TopicImage,
    alive_brokers,
)
from kafkalite.tasks import Future

SUPPORTED = tuple((each.name, each.low, each.high) for each in FEATURES)
PARTITIONS_AT_ONCE = 1_000
"""Partitions whose new state takes some milliseconds to bring into force."""
LEFT = "logs of deleted topics are left until the next start: {}"
"""Told where a log directory does not let them go."""
EngineConfigs = Callable[[Mapping[str, str]], Mapping[str, str]]
"""(the configs of a topic) -> those that its logs obey, with the broker's defaults."""


class TopicState(NamedTuple):
    """A topic as the core is told of it; its partitions by index."""

    id: bytes
    is_internal: bool
    configs: dict[str, str]
    partitions: tuple[PartitionImage, ...]


class RegisteredBroker(NamedTuple):
    """A registered broker as leaders are told of it, alive or fenced."""

    id: int
    epoch: int
    is_fenced: bool
    in_controlled_shutdown: bool
    rack: str | None
    address: tuple[str, int] | None
    """Host and port of its listener for other brokers."""


class Publisher:
    """Tells one core. Used by the control thread only, once the node serves."""

    def __init__(
        self,
        engine_configs: EngineConfigs,
        features: Sequence[tuple[str, int, int]] = SUPPORTED,
    ) -> None:
        """`features` are those that this node supports: name, lowest and highest level."""
        self._engine_configs = engine_configs
        self._features = features
        self._kraft_version = 0
        self._forwarded: Sequence[tuple[int, int, int]] = ()
        self._core: _native.Topics | None = None
        self._logs: LogCalls | None = None
        self._node_id = -1
        self._listener_names: Sequence[str] = ()
        self._inter_broker_listener = ""
        self._broker_config_watchers: list[Callable[[], object]] = []

    def serve(
        self,
        core: _native.Topics,
        image: Image,
        *,
        node_id: int,
        kraft_version: int,
        listener_names: Sequence[str],
        inter_broker_listener: str = "",
    ) -> None:
        """From now on changes are published to `core`, which has loaded the topics of `image`.
        `kraft_version` is the quorum's own, `node_id` and the listeners are this node's: their
        clients are told the endpoint of the same name of each broker. Brokers reach each other by
        `inter_broker_listener`."""
        self._core, self._kraft_version = core, kraft_version
        self._node_id = node_id
        self._listener_names = listener_names
        self._inter_broker_listener = inter_broker_listener
        self._publish_brokers(core, image)
        self._publish_features(core, image)

    def publish_forwarded(self, image: Image, versions: Sequence[tuple[int, int, int]]) -> None:
        """Has ApiVersions tell of these keys, which are forwarded, no more than the active
        controller answers: key, lowest and highest version."""
        if versions != self._forwarded:
            self._forwarded = versions
            self._publish_features(self._serving(), image)

    def change_logs_by(self, logs: LogCalls) -> None:
        """From now on logs can be made and deleted."""
        self._logs = logs

    def on_broker_configs(self, watcher: Callable[[], object]) -> None:
        """`watcher()` is called after each change of this broker's configs, or of all brokers'."""
        self._broker_config_watchers.append(watcher)

    def states(self, image: Image, topics: Iterable[TopicImage]) -> dict[str, TopicState]:
        """The states of topics by their names, with the configs of `image`."""
        # Most topics have the same configs, which take longer than all the rest.
        configs: dict[frozenset[tuple[str, str]], dict[str, str]] = {}
        states = {}
        for topic in topics:
            own = image.configs.get((TOPIC, topic.name), {})
            alike = frozenset(own.items())
            if alike not in configs:
                configs[alike] = dict(self._engine_configs(own))
            states[topic.name] = TopicState(
                topic.id, topic.is_internal, configs[alike], topic.partitions
            )
        return states

    def place(self, count: int) -> list[bytes]:
        """The ids of the log directories where new partitions of this node go. Raises
        KafkaliteError."""
        return self._serving().place(count)

    def make_logs(self, states: Mapping[str, TopicState]) -> Future[None]:
        """Makes the logs that topics lack: all of them, or none."""
        return self._changing().make(states)

    def make_each_log(self, states: Mapping[str, TopicState]) -> Future[None]:
        """As `make_logs`, but as many as can be made: what fails is the first of those that
        cannot, and their partitions are offline once they are published."""
        return self._changing().make_each(states)

    def delete_topics(self, names: Sequence[str]) -> Future[None]:
        """Takes topics out of sight at once, and deletes their logs. A log directory in which that
        fails is offline then."""
        return self._changing().delete(names)

    def publish_topics(self, image: Image, made: Mapping[str, TopicState]) -> None:
        """Has clients see topics, whose logs were made for the states `made`. Their configs may
        have changed meanwhile. Raises KafkaliteError."""
        states = self.states(image, [image.topics[name] for name in made])
        self.publish_placed(states)
        for name, state in states.items():
            if state != made[name]:
                self._serving().set_configs(name, state.configs)

    def publish_placed(self, states: Mapping[str, TopicState]) -> None:
        """Has clients see topics whose logs were made for just these states. Raises
        KafkaliteError."""
        self._serving().publish(states)

    def publish(self, delta: MetadataDelta) -> None:
        """Has brokers, configurations and features hold that have changed. Those of new topics hold
        when their logs are made."""
        core, image = self._serving(), delta.image
        if any(kind == BROKER for kind, _ in delta.configs):
            names: Sequence[str] = list(image.topics)
            for watcher in self._broker_config_watchers:
                watcher()
        else:
            names = [name for kind, name in sorted(delta.configs) if kind == TOPIC]
        for name in names:
            if name in delta.before.topics:
                own = image.configs.get((TOPIC, name), {})
                core.set_configs(name, self._engine_configs(own))
        if delta.are_features_changed:
            self._publish_features(core, image)
        if delta.are_brokers_changed:
            self._publish_brokers(core, image)

    def _publish_brokers(self, core: _native.Topics, image: Image) -> None:
        """Has Metadata and errors that name a leader tell the brokers that are alive, and leaders
        judge their followers by all that are registered.

        This node is told too where the metadata has it fenced: it serves, and the next records of
        the metadata say so. librdkafka, since 2.10, forgets every broker that an answer does not
        name, its bootstrap servers included, and never comes back from an answer that names none.
        Kafka's brokers give one while they start."""
        names = self._listener_names
        told = {each.id: each for each in alive_brokers(image)}
        if self._node_id in image.brokers:
            told[self._node_id] = image.brokers[self._node_id]
        core.set_brokers(
            [
                (each.id, each.rack, [_address(each.endpoint(name)) for name in names])
                for _, each in sorted(told.items())
            ],
            [
                RegisteredBroker(
                    each.id,
                    each.epoch,
                    each.is_fenced,
                    each.in_controlled_shutdown,
                    each.rack,
                    _address(each.endpoint(self._inter_broker_listener)),
                )
                for each in image.brokers.values()
            ],
        )

    def _publish_features(self, core: _native.Topics, image: Image) -> None:
        """Has ApiVersions tell the features."""
        finalized = finalized_features(image, self._kraft_version)
        core.set_features(
            self._features, list(finalized.items()), image.last_offset, self._forwarded
        )

    def _serving(self) -> _native.Topics:
        if self._core is None:
            raise RuntimeError("something is published before the node serves")
        return self._core

    def _changing(self) -> LogCalls:
        if self._logs is None:
            raise RuntimeError("a log is made before the control thread runs")
        return self._logs


def slices(topics: Sequence[TopicImage]) -> Iterator[Sequence[TopicImage]]:
    """The topics in their order, some at a time: as many as have PARTITIONS_AT_ONCE partitions,
    or one."""
    first = count = 0
    for place, topic in enumerate(topics):
        if count and count + len(topic.partitions) > PARTITIONS_AT_ONCE:
            yield topics[first:place]
            first, count = place, 0
        count += len(topic.partitions)
    if count:
        yield topics[first:]


def _address(endpoint: BrokerEndpoint | None) -> tuple[str, int] | None:
    return None if endpoint is None else (endpoint.host, endpoint.port)

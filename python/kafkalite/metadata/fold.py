"""Adds the records of `__cluster_metadata-0` up to images.

    records ──► Fold.replay, one after the other ──► Fold.take_delta() ──► MetadataDelta:
                                                         what has changed, and the Image now

One fold serves the start, who writes the records itself, and who only observes them. The partitions
of all brokers are in it.

An image shares with the one before it whatever has not changed: only changed topics are made anew.
Records between BeginTransactionRecord and EndTransactionRecord count together or not at all. What
Kafka keeps here and kafkalite has no use for yet (ACLs, SCRAM credentials, quotas, delegation
tokens, controllers) is kept as the records that stand for it, so that a snapshot loses nothing.

Kafka: `MetadataDelta`, `PartitionRegistration.merge`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from kafkalite.errors import CorruptFileError
from kafkalite.metadata import records
from kafkalite.metadata.image import (
    TOPIC,
    AlikeNames,
    BrokerEndpoint,
    BrokerImage,
    Image,
    PartitionImage,
    ProducerIds,
    TopicImage,
)

NO_LEADER_CHANGE = -2
NO_RECOVERY_CHANGE = -1


class MetadataDelta(NamedTuple):
    """The changes since the delta before: of the image `before` to `image`."""

    before: Image
    image: Image
    deleted_topics: tuple[TopicImage, ...] = ()
    """As they were. A topic of the same name that was made meanwhile is among the changed ones."""
    changed_topics: tuple[TopicImage, ...] = ()
    """The topics that are new, or have new or changed partitions."""
    configs: frozenset[tuple[int, str]] = frozenset()
    """The resources (type, name) whose configs were set, or removed; not those of topics that are
    gone."""
    are_features_changed: bool = False
    are_brokers_changed: bool = False


class Fold:
    """Adds records up. Not to be used after `replay` has raised."""

    def __init__(self) -> None:
        self._image = Image()
        self._changed: dict[bytes, None] = {}
        """Ids of topics that a delta has not told yet."""
        self._deleted: dict[bytes, TopicImage] = {}
        self._changed_configs: set[tuple[int, str]] = set()
        self._are_features_changed = False
        self._are_brokers_changed = False
        self._told = Image()
        """The image of the delta before."""
        self._topics: dict[str, TopicImage] = {}
        self._by_id: dict[bytes, TopicImage] = {}
        self._alike = AlikeNames()
        # Topics with changes that are not in a TopicImage yet: id -> (name, partitions).
        self._drafts: dict[bytes, tuple[str, dict[int, PartitionImage]]] = {}
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self._brokers: dict[int, BrokerImage] = {}
        self._features: dict[str, int] = {}
        self._producer_ids: ProducerIds | None = None
        self._kept: dict[tuple[Any, ...], bytes] = {}
        self._pending: list[Any] | None = None
        self._is_changed = False
        self._rules: dict[str, Callable[[Any], None]] = {
            "RegisterBrokerRecord": self._register_broker,
            "UnregisterBrokerRecord": self._unregister_broker,
            "BrokerRegistrationChangeRecord": self._change_broker,
            "FenceBrokerRecord": self._fence_broker,
            "UnfenceBrokerRecord": self._fence_broker,
            "TopicRecord": self._topic,
            "PartitionRecord": self._partition,
            "PartitionChangeRecord": self._change_partition,
            "RemoveTopicRecord": self._remove_topic,
            "ClearElrRecord": self._clear_elr,
            "ConfigRecord": self._config,
            "FeatureLevelRecord": self._feature,
            "ProducerIdsRecord": self._producer_id_block,
            "NoOpRecord": _nothing,
            "ZkMigrationStateRecord": _nothing,
        }

    @property
    def in_transaction(self) -> bool:
        """A metadata transaction has begun and not ended."""
        return self._pending is not None

    @property
    def features(self) -> dict[str, int]:
        """The finalised levels, of records that no delta may have told yet."""
        return self._features

    @property
    def brokers(self) -> dict[int, BrokerImage]:
        """The registrations, of records that no delta may have told yet."""
        return self._brokers

    @property
    def kept(self) -> dict[tuple[Any, ...], bytes]:
        """Records that are only kept, of which no delta may have told yet."""
        return self._kept

    def replay(self, message: Any) -> None:
        """The next record. Raises CorruptFileError where it does not go with those before it."""
        name = message._name
        if name == "BeginTransactionRecord":
            self._pending = []
        elif name == "AbortTransactionRecord":
            self._pending = None
        elif name == "EndTransactionRecord":
            pending, self._pending = self._pending or [], None
            for each in pending:
                self._apply(each)
        elif self._pending is not None:
            self._pending.append(message)
        else:
            self._apply(message)

    def take_delta(self, leader_epoch: int, last_offset: int, last_timestamp: int) -> MetadataDelta:
        """The changes since this was called last; the arguments say after which record."""
        image = self._new_image(leader_epoch, last_offset, last_timestamp)
        delta = MetadataDelta(
            self._told,
            image,
            tuple(self._deleted.values()),
            tuple(self._by_id[topic_id] for topic_id in self._changed),
            frozenset(self._changed_configs),
            self._are_features_changed,
            self._are_brokers_changed,
        )
        self._changed, self._deleted, self._changed_configs = {}, {}, set()
        self._are_features_changed = self._are_brokers_changed = False
        self._told = image
        return delta

    def _new_image(self, leader_epoch: int, last_offset: int, last_timestamp: int) -> Image:
        """The image now; the arguments say after which record."""
        if not self._is_changed:
            self._image = self._image._replace(
                leader_epoch=leader_epoch, last_offset=last_offset, last_timestamp=last_timestamp
            )
            return self._image
        for topic_id, (name, partitions) in self._drafts.items():
            count = len(partitions)
            if any(index not in partitions for index in range(count)):
                raise CorruptFileError(f"the partitions of {name} in the metadata have a gap")
            ordered = tuple(partitions[index] for index in range(count))
            self._by_id[topic_id] = self._topics[name] = TopicImage(name, topic_id, ordered)
        self._drafts.clear()
        self._image = Image(
            topics=dict(self._topics),
            topics_by_id=dict(self._by_id),
            alike=AlikeNames(self._alike),
            configs=dict(self._configs),
            brokers=dict(self._brokers),
            features=dict(self._features),
            producer_ids=self._producer_ids,
            kept=dict(self._kept),
            leader_epoch=leader_epoch,
            last_offset=last_offset,
            last_timestamp=last_timestamp,
        )
        self._is_changed = False
        return self._image

    def _apply(self, message: Any) -> None:
        rule = self._rules.get(message._name)
        if rule is None:
            self._keep(message)
            self._is_changed = True
        elif rule is not _nothing:
            rule(message)
            self._is_changed = True

    def _draft(self, topic_id: bytes) -> dict[int, PartitionImage]:
        """The partitions of a topic, to be changed."""
        draft = self._drafts.get(topic_id)
        if draft is None:
            topic = self._by_id.get(topic_id)
            if topic is None:
                raise CorruptFileError(
                    f"a metadata record is about the topic {topic_id.hex()}, which there is not"
                )
            draft = topic.name, {each.index: each for each in topic.partitions}
            self._drafts[topic_id] = draft
            self._changed[topic_id] = None
        return draft[1]

    def _topic(self, message: Any) -> None:
        self._drafts[message.topic_id] = message.name, {}
        self._changed[message.topic_id] = None
        self._alike.add(message.name)

    def _partition(self, message: Any) -> None:
        self._draft(message.topic_id)[message.partition_id] = PartitionImage(
            index=message.partition_id,
            leader=message.leader,
            leader_epoch=message.leader_epoch,
            partition_epoch=message.partition_epoch,
            replicas=tuple(message.replicas),
            isr=tuple(message.isr),
            elr=tuple(message.eligible_leader_replicas or ()),
            last_known_elr=tuple(message.last_known_elr or ()),
            removing=tuple(message.removing_replicas),
            adding=tuple(message.adding_replicas),
            directories=tuple(message.directories),
            recovery_state=message.leader_recovery_state,
        )

    def _change_partition(self, message: Any) -> None:
        partitions = self._draft(message.topic_id)
        old = partitions.get(message.partition_id)
        if old is None:
            raise CorruptFileError(
                f"a metadata record changes partition {message.partition_id} of the topic "
                f"{message.topic_id.hex()}, which there is not"
            )
        is_led_anew = message.leader != NO_LEADER_CHANGE
        recovery = message.leader_recovery_state
        partitions[message.partition_id] = PartitionImage(
            index=old.index,
            leader=message.leader if is_led_anew else old.leader,
            leader_epoch=old.leader_epoch + is_led_anew,
            partition_epoch=old.partition_epoch + 1,
            replicas=_changed(message.replicas, old.replicas),
            isr=_changed(message.isr, old.isr),
            elr=_changed(message.eligible_leader_replicas, old.elr),
            last_known_elr=_changed(message.last_known_elr, old.last_known_elr),
            removing=_changed(message.removing_replicas, old.removing),
            adding=_changed(message.adding_replicas, old.adding),
            directories=_changed(message.directories, old.directories),
            recovery_state=old.recovery_state if recovery == NO_RECOVERY_CHANGE else recovery,
        )

    def _remove_topic(self, message: Any) -> None:
        draft = self._drafts.pop(message.topic_id, None)
        topic = self._by_id.pop(message.topic_id, None)
        name = draft[0] if draft else topic and topic.name
        if name is None:
            raise CorruptFileError(
                f"a metadata record removes the topic {message.topic_id.hex()}, which there is not"
            )
        self._topics.pop(name, None)
        self._alike.discard(name)
        self._configs.pop((TOPIC, name), None)
        self._changed.pop(message.topic_id, None)
        self._changed_configs.discard((TOPIC, name))
        told = self._told.topics_by_id.get(message.topic_id)
        if told is not None:
            self._deleted[message.topic_id] = told

    def _clear_elr(self, message: Any) -> None:
        """Clears the ELR of one topic, or of all with the name ""."""
        topics = {each.id: (each.name, each.partitions) for each in self._by_id.values()}
        for topic_id, (name, draft) in self._drafts.items():
            topics[topic_id] = name, tuple(draft.values())
        for topic_id, (name, partitions) in topics.items():
            for each in partitions if message.topic_name in ("", name) else ():
                if each.elr or each.last_known_elr:
                    self._draft(topic_id)[each.index] = each._replace(
                        elr=(), last_known_elr=(), partition_epoch=each.partition_epoch + 1
                    )

    def _config(self, message: Any) -> None:
        resource = message.resource_type, message.resource_name
        own = dict(self._configs.get(resource, {}))
        if message.value is None:
            own.pop(message.name, None)
        else:
            own[message.name] = message.value
        if own:
            self._configs[resource] = own
        else:
            self._configs.pop(resource, None)
        self._changed_configs.add(resource)

    def _feature(self, message: Any) -> None:
        self._are_features_changed = True
        if message.feature_level == 0:
            self._features.pop(message.name, None)
        else:
            self._features[message.name] = message.feature_level

    def _producer_id_block(self, message: Any) -> None:
        self._producer_ids = ProducerIds(
            message.broker_id, message.broker_epoch, message.next_producer_id
        )

    def _register_broker(self, message: Any) -> None:
        cordoned = message.cordoned_log_dirs
        self._set_broker(
            BrokerImage(
                id=message.broker_id,
                epoch=message.broker_epoch,
                incarnation_id=message.incarnation_id,
                endpoints=tuple(
                    BrokerEndpoint(each.name, each.host, each.port, each.security_protocol)
                    for each in message.end_points
                ),
                features=tuple(
                    (each.name, each.min_supported_version, each.max_supported_version)
                    for each in message.features
                ),
                rack=message.rack,
                is_fenced=message.fenced,
                in_controlled_shutdown=message.in_controlled_shutdown,
                directories=tuple(message.log_dirs),
                cordoned_directories=None if cordoned is None else tuple(cordoned),
            )
        )

    def _set_broker(self, broker: BrokerImage) -> None:
        self._brokers[broker.id] = broker
        self._are_brokers_changed = True

    def _unregister_broker(self, message: Any) -> None:
        self._brokers.pop(message.broker_id, None)
        self._are_brokers_changed = True

    def _change_broker(self, message: Any) -> None:
        broker = self._broker(message.broker_id)
        if message.fenced:
            broker = broker._replace(is_fenced=message.fenced > 0)
        if message.in_controlled_shutdown:
            broker = broker._replace(in_controlled_shutdown=True)
        if message.log_dirs:
            broker = broker._replace(directories=tuple(message.log_dirs))
        if message.cordoned_log_dirs is not None:
            broker = broker._replace(cordoned_directories=tuple(message.cordoned_log_dirs))
        self._set_broker(broker)

    def _fence_broker(self, message: Any) -> None:
        is_fenced = message._name == "FenceBrokerRecord"
        self._set_broker(self._broker(message.id)._replace(is_fenced=is_fenced))

    def _broker(self, broker_id: int) -> BrokerImage:
        broker = self._brokers.get(broker_id)
        if broker is None:
            raise CorruptFileError(
                f"a metadata record is about the broker {broker_id}, which is not registered"
            )
        return broker

    def _keep(self, message: Any) -> None:
        """Keeps a record under what it is about, or drops the one that it takes back."""
        match message._name:
            case "AccessControlEntryRecord" | "RemoveAccessControlEntryRecord":
                identity: tuple[Any, ...] = ("acl", message.id)
            case "UserScramCredentialRecord" | "RemoveUserScramCredentialRecord":
                identity = ("scram", message.name, message.mechanism)
            case "DelegationTokenRecord" | "RemoveDelegationTokenRecord":
                identity = ("token", message.token_id)
            case "ClientQuotaRecord":
                entity = sorted(
                    (each.entity_type, each.entity_name or "", each.entity_name is None)
                    for each in message.entity
                )
                identity = ("quota", *entity, message.key)
            case "RegisterControllerRecord":
                identity = ("controller", message.controller_id)
            case name:
                identity = (name,)
        if message._name.startswith("Remove") or getattr(message, "remove", False):
            self._kept.pop(identity, None)
        else:
            self._kept[identity] = records.encode(message)


def difference(before: Image, image: Image) -> MetadataDelta:
    """The changes of one image to another that does not come of it by records: of a snapshot."""
    old, new = before.topics_by_id, image.topics_by_id
    configs = {
        resource
        for resource in {*before.configs, *image.configs}
        if before.configs.get(resource) != image.configs.get(resource)
    }
    gone = {name for kind, name in configs if kind == TOPIC and name not in image.topics}
    return MetadataDelta(
        before,
        image,
        tuple(each for each in old.values() if each.id not in new),
        tuple(each for each in new.values() if old.get(each.id) != each),
        frozenset(each for each in configs if each[0] != TOPIC or each[1] not in gone),
        before.features != image.features,
        before.brokers != image.brokers,
    )


def _nothing(_message: Any) -> None:
    """Applies a record that adds nothing."""


def _changed(new: list[Any] | None, old: tuple[Any, ...]) -> tuple[Any, ...]:
    return old if new is None else tuple(new)

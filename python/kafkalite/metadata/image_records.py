"""Records that stand for an image or for a part of it: those of a snapshot, those that make a
partition or set a config.

Kafka: `MetadataImage.write`.
"""

from typing import Any

from kafkalite.metadata.image import BrokerImage, Image, PartitionImage
from kafkalite.protocol import messages


def snapshot_records(image: Image) -> list[Any]:
    """The records that stand for an image, in the order of Kafka's `MetadataImage.write`; as
    messages, or as bytes where they are only kept."""
    written: list[Any] = _features(image)
    written += image.kept.values()
    written += [_registration(broker) for broker in image.brokers.values()]
    for topic in image.topics.values():
        written.append(messages.TopicRecord(name=topic.name, topic_id=topic.id))
        written += [partition_record(topic.id, each) for each in topic.partitions]
    for (resource_type, resource_name), own in image.configs.items():
        for name, value in own.items():
            written.append(config_record(resource_type, resource_name, name, value))
    if image.producer_ids is not None:
        broker_id, broker_epoch, next_id = image.producer_ids
        written.append(
            messages.ProducerIdsRecord(
                broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=next_id
            )
        )
    return written


def partition_record(topic_id: bytes, partition: PartitionImage) -> Any:
    """The record that makes `partition`."""
    return messages.PartitionRecord(
        partition_id=partition.index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def config_record(resource_type: int, resource_name: str, name: str, value: str | None) -> Any:
    """The record that sets a config, or takes it away (None)."""
    return messages.ConfigRecord(
        resource_type=resource_type, resource_name=resource_name, name=name, value=value
    )


def _features(image: Image) -> list[Any]:
    # metadata.version comes first: it says how to read the rest.
    names = sorted(image.features, key=lambda name: (name != "metadata.version", name))
    return [
        messages.FeatureLevelRecord(name=name, feature_level=image.features[name]) for name in names
    ]


def _registration(broker: BrokerImage) -> Any:
    kind = messages.RegisterBrokerRecord
    cordoned = broker.cordoned_directories
    return kind(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            kind.BrokerEndpoint(
                name=each.name, host=each.host, port=each.port, security_protocol=each.protocol
            )
            for each in broker.endpoints
        ],
        features=[
            kind.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in broker.features
        ],
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
    )

"""Makes topics that a client names and that do not exist (`auto.create.topics.enable`).

Rust answers Metadata (`k03_metadata.rs`) and hands over just the requests that name such topics.
Each whose name is legal is made with `num.partitions` partitions and the broker's defaults, one of
Kafka's own topics as its coordinator would make it (`AutoTopicCreationManager`); then Rust answers
the request. A topic that cannot be made is UNKNOWN_TOPIC_OR_PARTITION there, as it is in Kafka
until the topic exists, and the reason is in the log.
"""

from collections.abc import Mapping
from typing import Any

from kafkalite.context import Context
from kafkalite.metadata.controller import ControllerError

NAME = "Metadata"


def handle(context: Context, request: Any, message: Any) -> None:
    """Makes what is missing and hands the request back."""
    for topic in message.topics:
        if topic.name is not None and topic.name not in context.image.topics:
            try:
                _create(context, topic.name)
            except ControllerError as refusal:
                context.log.info(f"topic {topic.name!r} is not created: {refusal}")
    context.plane.answer_again(request)


def _create(context: Context, name: str) -> None:
    config = context.config
    if name == "__consumer_offsets":
        context.groups.make_topic()
    elif name == "__transaction_state":
        configs = _transaction_configs(config)
        context.create_topic(name, config["transaction.state.log.num.partitions"], configs)
    elif name == "__share_group_state":
        configs = _share_configs(config)
        context.create_topic(name, config["share.coordinator.state.topic.num.partitions"], configs)
    else:
        context.create_topic(name, config["num.partitions"], {})


def _transaction_configs(config: Mapping[str, Any]) -> dict[str, str]:
    """`TransactionStateManager.transactionTopicConfigs`"""
    return {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
        "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
        "unclean.leader.election.enable": "false",
    }


def _share_configs(config: Mapping[str, Any]) -> dict[str, str]:
    """`ShareCoordinatorService.shareGroupStateTopicConfigs`"""
    return {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": str(config["share.coordinator.state.topic.min.isr"]),
        "retention.ms": "-1",
        "segment.bytes": str(config["share.coordinator.state.topic.segment.bytes"]),
    }

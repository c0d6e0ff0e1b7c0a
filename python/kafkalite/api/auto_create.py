"""Makes topics that a client names and that do not exist (`auto.create.topics.enable`).

Rust answers Metadata (`k03_metadata.rs`) and hands over just the requests that name such topics.
Each whose name is legal is made with `num.partitions` partitions and the broker's defaults, one of
Kafka's own topics as its coordinator would make it (`AutoTopicCreationManager`); then Rust answers
the request. A topic that cannot be made, or not within two and a half seconds, is
UNKNOWN_TOPIC_OR_PARTITION there, as it is in Kafka until the topic exists, and the reason is in the
log. As in CreateTopics, topics that take more than 10,000 records are not made.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kafkalite.api.deadline import IMPATIENT_WAIT_MS, Waiter, closing, left_ms
from kafkalite.context import Context
from kafkalite.metadata.controller import ControllerError
from kafkalite.metadata.controller.topics import NewTopic, check_new_topic
from kafkalite.metadata.image import OFFSETS_TOPIC, AlikeNames

NAME = "Metadata"

TOPICS_NAMED = 10
"""Of topics that cannot be made together, so many are named in the log."""


def handle(context: Context, request: Any, message: Any) -> None:
    """Makes what is missing and hands the request back."""
    turns, image = context.controller.turns, context.image
    names = list(dict.fromkeys(topic.name for topic in message.topics if topic.name is not None))
    missing = [name for name in names if name not in image.topics]
    is_changing = any(map(turns.is_changing, names))
    due_ms = context.now_ms() + IMPATIENT_WAIT_MS

    def answer() -> None:
        context.plane.requests.answer_again(request)

    def wait(forget: Callable[[Callable[..., None]], object], then: Callable[[], None]) -> Waiter:
        return Waiter(context, left_ms(context, due_ms), answer, then, forget)

    def make() -> None:
        _make(context, request, [each for each in missing if each != OFFSETS_TOPIC])
        # Also for those that others have begun to make meanwhile.
        turns.when_settled(names, wait(turns.forget, answer).end)

    def make_in_turn() -> None:
        if missing == [OFFSETS_TOPIC] or not missing:
            make()
        else:
            turns.in_turn((), wait(turns.forget, closing(context, request, make)).end)

    if not (missing or is_changing) or context.plane.is_change_held_up():
        answer()
    elif OFFSETS_TOPIC in missing:
        runtime = context.groups.runtime
        runtime.make_topic(wait(runtime.forget_waiter, make_in_turn).end)
    else:
        make_in_turn()


def _make(context: Context, request: Any, names: list[str]) -> None:
    """Has those made that can be."""
    wanted: list[NewTopic] = []
    others = AlikeNames()
    for name in names:
        if name in context.image.topics:
            continue
        try:
            check_new_topic(context.image, name, others)
        except ControllerError as refusal:
            context.log.info(f"topic {name!r} is not created: {refusal}")
        else:
            wanted.append(_new_topic(context.config, name))
            others.add(name)
    if wanted:
        made = partial(_made, context, request, wanted)
        try:
            context.create_topics(wanted, made)
        except ControllerError as refusal:
            made(refusal)


def _made(
    context: Context, _request: Any, wanted: list[NewTopic], refusal: ControllerError | None
) -> None:
    """The request is held until then, as memory that the change takes."""
    if refusal is not None:
        named = ", ".join(each.name for each in wanted[:TOPICS_NAMED])
        more = f" and {len(wanted) - TOPICS_NAMED} more" if len(wanted) > TOPICS_NAMED else ""
        context.log.error(f"topics {named}{more} are not created: {refusal}")


def _new_topic(config: Mapping[str, Any], name: str) -> NewTopic:
    if name == "__transaction_state":
        count = config["transaction.state.log.num.partitions"]
        return NewTopic(name, count, _transaction_configs(config))
    if name == "__share_group_state":
        count = config["share.coordinator.state.topic.num.partitions"]
        return NewTopic(name, count, _share_configs(config))
    return NewTopic(name, config["num.partitions"], {})


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

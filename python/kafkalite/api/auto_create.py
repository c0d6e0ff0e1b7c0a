"""Makes topics that a client names and that do not exist (`auto.create.topics.enable`).

Rust answers Metadata (`k03_metadata.rs`) and hands over just the requests that name such topics.
Each whose name is legal is made with `num.partitions` partitions and the broker's defaults, one of
Kafka's own topics as its coordinator would make it (`AutoTopicCreationManager`); then Rust answers
the request. A topic that cannot be made, or not within two and a half seconds, is
UNKNOWN_TOPIC_OR_PARTITION there, as it is in Kafka until the topic exists, and the reason is in the
log, once a minute for each name and once a second for all. As in CreateTopics, topics that take
more than 10,000 records are not made.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from kafkalite import _native
from kafkalite.access import CLUSTER, CREATE, DESCRIBE, TOPIC
from kafkalite.api.deadline import IMPATIENT_WAIT_MS
from kafkalite.config.keys import MIN_INSYNC_REPLICAS
from kafkalite.context import Context
from kafkalite.errors import KafkaliteError
from kafkalite.metadata.controller import ControllerError
from kafkalite.metadata.controller.topics import TOPIC_NAME_MAX, NewTopic, check_new_topic
from kafkalite.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, AlikeNames
from kafkalite.protocol import messages
from kafkalite.tasks import TimedOutError

NAME = "Metadata"

TOPICS_NAMED = 10
"""Topics that cannot be made together and are named in the log, at most."""


async def handle(
    context: Context, request: _native.Request, message: messages.MetadataRequest
) -> None:
    """Makes what is missing and hands the request back."""
    asked = dict.fromkeys(each.name for each in message.topics or () if each.name is not None)
    names = _permitted(context, request, asked)
    missing = [name for name in names if name not in context.image.topics]
    is_changing = any(map(context.write_lock.is_changing, names))
    if (missing or is_changing) and not context.core.logs.is_change_held_up():
        with suppress(TimedOutError), context.time_limit(IMPATIENT_WAIT_MS):
            await _make_missing(context, request, missing)
            # Also those that others have begun to make meanwhile.
            await context.write_lock.settled(names)
    context.core.requests.answer_again(request)


def _permitted(context: Context, request: _native.Request, names: Iterable[str]) -> list[str]:
    """The names that the client may see and create. Rust refuses the others in its answer."""
    visible = [name for name in names if context.may(request, DESCRIBE, TOPIC, name)]
    if context.may(request, CREATE, CLUSTER):
        return visible
    return [name for name in visible if context.may(request, CREATE, TOPIC, name)]


async def _make_missing(context: Context, request: _native.Request, missing: list[str]) -> None:
    if OFFSETS_TOPIC in missing:
        with suppress(ControllerError):  # the log has been told
            await context.groups.runtime.make_topic()
    if TRANSACTIONS_TOPIC in missing:
        with suppress(ControllerError):
            await context.transactions.runtime.make_topic()
    others = [name for name in missing if name not in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)]
    if others:
        async with context.write_lock.held():
            wanted = _wanted(context, others)
            if wanted:
                await context.tasks.start(_create(context, wanted), holding=request)


def _wanted(context: Context, names: list[str]) -> list[NewTopic]:
    """The topics that do not exist yet and can be created."""
    wanted: list[NewTopic] = []
    others = AlikeNames()
    for name in names:
        if name in context.image.topics:
            continue
        try:
            check_new_topic(context.image, name, others)
        except ControllerError as refusal:
            sentence = f"topic {name!r} is not created: {refusal}"
            # A client names it again with each retry, and may name others without end.
            context.refused_topics.tell(sentence, context.now_ms(), name[:TOPIC_NAME_MAX])
        else:
            wanted.append(_new_topic(context.config, name))
            others.add(name)
    return wanted


async def _create(context: Context, wanted: list[NewTopic]) -> None:
    try:
        await context.create_topics(wanted)
    except KafkaliteError as refusal:
        named = ", ".join(each.name for each in wanted[:TOPICS_NAMED])
        more = f" and {len(wanted) - TOPICS_NAMED} more" if len(wanted) > TOPICS_NAMED else ""
        sentence = f"topics {named}{more} are not created: {refusal}"
        context.failed_topics.tell(sentence, context.now_ms(), wanted[0].name)


def _new_topic(config: Mapping[str, Any], name: str) -> NewTopic:
    if name == "__share_group_state":
        count = config["share.coordinator.state.topic.num.partitions"]
        factor = config["share.coordinator.state.topic.replication.factor"]
        return NewTopic(name, count, _share_configs(config), factor)
    return NewTopic(name, config["num.partitions"], {}, config["default.replication.factor"])


def _share_configs(config: Mapping[str, Any]) -> dict[str, str]:
    """`ShareCoordinatorService.shareGroupStateTopicConfigs`"""
    return {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        MIN_INSYNC_REPLICAS: str(config["share.coordinator.state.topic.min.isr"]),
        "retention.ms": "-1",
        "segment.bytes": str(config["share.coordinator.state.topic.segment.bytes"]),
    }

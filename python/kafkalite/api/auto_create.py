"""Makes topics that a client names and that do not exist (`auto.create.topics.enable`).

Rust answers Metadata (`k03_metadata.rs`) and hands over just the requests that name such topics.
Each whose name is legal is made with `num.partitions` partitions and the broker's defaults; then
Rust answers the request. A topic that cannot be made is UNKNOWN_TOPIC_OR_PARTITION there, as it is
in Kafka until the topic exists, and the reason is in the log.
"""

from typing import Any

from kafkalite.context import Context
from kafkalite.metadata.controller import ControllerError

NAME = "Metadata"


def handle(context: Context, request: Any, message: Any) -> None:
    """Makes what is missing and hands the request back."""
    for topic in message.topics:
        if topic.name is not None and topic.name not in context.image.topics:
            try:
                context.create_topic(topic.name, context.config["num.partitions"], {})
            except ControllerError as refusal:
                context.log.info(f"topic {topic.name!r} is not created: {refusal}")
    context.plane.answer_again(request)

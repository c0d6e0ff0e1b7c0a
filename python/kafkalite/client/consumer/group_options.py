"""Options of a member of a consumer group, and the checks of what a program gives for them."""

from typing import NamedTuple

from kafkalite.client.arguments import int32, short_text
from kafkalite.errors import InvalidArgumentError

__all__ = ["GroupMetadata", "GroupOptions", "check_options"]


class GroupOptions(NamedTuple):
    """Kafka's `group.id`, `group.instance.id`, `session.timeout.ms`, `heartbeat.interval.ms`,
    `max.poll.interval.ms`, with Kafka's defaults."""

    group: str
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000


class GroupMetadata(NamedTuple):
    """The committer of a group's offsets (Kafka's `ConsumerGroupMetadata`); by name alone: one that
    is no member."""

    group: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


def check_options(options: GroupOptions) -> None:
    """Raises `InvalidArgumentError`, `TypeError`."""
    if not short_text("group", options.group).strip():
        raise InvalidArgumentError("group is empty")
    if options.instance_id is not None and not short_text("instance_id", options.instance_id):
        raise InvalidArgumentError("instance_id is empty")
    int32("session_timeout_ms", options.session_timeout_ms, 1)
    int32("heartbeat_interval_ms", options.heartbeat_interval_ms, 1)
    int32("max_poll_interval_ms", options.max_poll_interval_ms, 1)
    if options.heartbeat_interval_ms >= options.session_timeout_ms:
        raise InvalidArgumentError(
            f"heartbeat_interval_ms={options.heartbeat_interval_ms} must be less than "
            f"session_timeout_ms={options.session_timeout_ms}"
        )

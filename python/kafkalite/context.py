"""What a handler may use: the plane, the configuration, the log, and topics."""

import sys
import time
from collections.abc import Mapping
from typing import ClassVar

from kafkalite import _native
from kafkalite.config import Config, EffectiveConfig, check_topic_config
from kafkalite.errors import InvalidArgumentError, KafkaliteError
from kafkalite.metadata import topics

INVALID_TOPIC = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_CONFIG = 40

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
TOPIC_NAME_MAX = 249
"""Characters of a topic's name (`Topic.MAX_NAME_LENGTH`)."""


class TopicRefusedError(KafkaliteError):
    """A topic cannot be made; `code` is Kafka's."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Log:
    """Lines on stderr: time, level, sentence. Nothing below `level` is written."""

    LEVELS: ClassVar[tuple[str, ...]] = ("debug", "info", "warning", "error")

    def __init__(self, level: str) -> None:
        self._rank = self.LEVELS.index(level)

    def debug(self, sentence: str) -> None:
        self._write(0, sentence)

    def info(self, sentence: str) -> None:
        self._write(1, sentence)

    def warning(self, sentence: str) -> None:
        self._write(2, sentence)

    def error(self, sentence: str) -> None:
        self._write(3, sentence)

    def _write(self, rank: int, sentence: str) -> None:
        if rank >= self._rank:
            now = time.time()
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
            milliseconds = int(now * 1000) % 1000
            name = self.LEVELS[rank].upper()
            sys.stderr.write(f"{stamp},{milliseconds:03d} {name} {sentence}\n")
            sys.stderr.flush()


class Context:
    """Used by the control thread only."""

    def __init__(
        self,
        plane: _native.BrokerPlane,
        config: Config,
        log: Log,
        known_topics: topics.Topics,
    ) -> None:
        self.plane = plane
        self.config = config
        self.log = log
        self.node_id: int = config["node.id"]
        self._known_topics = known_topics

    def check_new_topic(self, name: str) -> None:
        """Raises TopicRefusedError where a topic of this name cannot be made."""
        refusal = _name_refusal(name)
        if refusal:
            raise TopicRefusedError(INVALID_TOPIC, refusal)
        existing = self.plane.topics()
        if name in existing:
            raise TopicRefusedError(TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if "." in name or "_" in name:
            metric_name = name.replace(".", "_")
            for other in sorted(existing):
                if other.replace(".", "_") == metric_name:
                    raise TopicRefusedError(
                        INVALID_TOPIC, f"Topic '{name}' collides with existing topic: {other}"
                    )

    def check_topic_configs(self, own: Mapping[str, str | None]) -> None:
        """Raises TopicRefusedError where a topic cannot have these configs."""
        for name, text in own.items():
            try:
                check_topic_config(name, text)
            except InvalidArgumentError as error:
                raise TopicRefusedError(INVALID_CONFIG, str(error)) from error

    def describe_topic_configs(self, own: Mapping[str, str]) -> list[EffectiveConfig]:
        """Every config of a topic with `own` set."""
        return self.config.topic_configs(own)

    def create_topic(self, name: str, partition_count: int, own: Mapping[str, str]) -> bytes:
        """Makes a topic that was checked; returns its id. It is on disk then, with its configs."""
        record = topics.TopicRecord(partition_count, dict(own))
        changed = {**self._known_topics, name: record}
        topics.save(self.config.log_dirs()[0], changed)
        self._known_topics = changed
        topic_id = self.plane.create_topic(name, partition_count, self.config.engine_configs(own))
        self.log.info(f"created topic {name} with {partition_count} partition(s)")
        return topic_id


def _name_refusal(name: str) -> str:
    """Why a name is illegal, in Kafka's words (`Topic.validate`); empty if it is not."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > TOPIC_NAME_MAX:
        return (
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed "
            f"length {TOPIC_NAME_MAX}"
        )
    if not _NAME_CHARACTERS.issuperset(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        )
    return ""

"""Settings of Kafka's producer, under Kafka's names, for whoever writes whole tables.

    ProducerSettings.of({"compression.type": "zstd", "batch.size": "1048576"})

Texts (as Spark gives them), numbers and flags are taken. Sizes are in bytes, times in milliseconds.
What would change how records are written and is not there is refused by its name; what makes no
difference here is let by; `unknown` has the rest.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafkalite.client.arguments import choice, whole
from kafkalite.errors import InvalidArgumentError

__all__ = ["ProducerSettings", "check_level"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

GZIP_LEVEL_DEFAULT = -1
# Name of the setting: field, lowest value, highest.
NUMBERS = {
    "batch.size": ("batch_bytes", 0, 1 << 29),
    "buffer.memory": ("buffer_bytes", 0, 1 << 40),
    "max.request.size": ("request_bytes_max", 1, 1 << 29),
    "max.in.flight.requests.per.connection": ("max_in_flight", 1, 1_000),
    "delivery.timeout.ms": ("delivery_timeout_ms", 0, (1 << 31) - 1),
    "request.timeout.ms": ("request_timeout_ms", 1, (1 << 31) - 1),
    "transaction.timeout.ms": ("transaction_timeout_ms", 1, (1 << 31) - 1),
    "compression.gzip.level": ("gzip_level", 1, 9),
    "compression.lz4.level": ("lz4_level", 1, 17),
    "compression.zstd.level": ("zstd_level", -131_072, 22),
}
REFUSED = {
    "key.serializer": "keys are serialized with ByteArraySerializer",
    "value.serializer": "values are serialized with ByteArraySerializer",
    "interceptor.classes": "records are written as they are in the rows",
    "partitioner.class": "rows go where Kafka's default partitioner puts them, or the column "
    "partition says",
    "partitioner.ignore.keys": "a row with a key goes where its key says",
    "transaction.two.phase.commit.enable": "transactions end within transaction.timeout.ms",
}
PLAINTEXT_ONLY = re.compile(r"sasl\.|ssl\.|security\.protocol$")
# Settings of Kafka's `ProducerConfig` that change nothing here: batches leave when they are full or
# the rows are over, so nothing lingers. By their whole names, for one that merely begins like them
# is a mistake that the user is to hear of.
IGNORED = frozenset(
    (
        "client.dns.lookup",
        "config.providers",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "linger.ms",
        "max.block.ms",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "security.providers",
        "security.protocol",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    )
)
# Behind these Kafka takes names of the user's own.
IGNORED_FAMILIES = ("config.providers.", "metrics.context.")


@dataclass(frozen=True)
class ProducerSettings:
    """Checked settings, with their defaults: Kafka's, but larger batches."""

    acks: str = "all"
    idempotent: bool | None = None
    """None: if acks is all and the broker can."""
    codec: str = "none"
    batch_bytes: int = 256 << 10
    buffer_bytes: int = 32 << 20
    request_bytes_max: int = 1 << 20
    max_in_flight: int = 5
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    transactional_id: str | None = None
    transaction_timeout_ms: int = 900_000
    client_id: str = "kafkalite-writer"
    gzip_level: int | None = None
    lz4_level: int | None = None
    zstd_level: int | None = None
    unknown: tuple[str, ...] = field(default=())
    """Names that nobody knows."""

    @staticmethod
    def of(given: Mapping[str, Any], prefix: str = "") -> "ProducerSettings":
        """Raises `InvalidArgumentError`, which names the setting, with the prefix."""
        found: dict[str, Any] = {}
        unknown = []
        for name, value in given.items():
            text = str(value).strip()
            if name in NUMBERS:
                found[NUMBERS[name][0]] = number(name, text, prefix)
            elif name == "acks":
                found["acks"] = _acks(prefix + name, text)
            elif name == "enable.idempotence":
                found["idempotent"] = _flag(prefix + name, text)
            elif name == "compression.type":
                found["codec"] = _codec(prefix + name, text)
            elif name == "client.id":
                found["client_id"] = text
            elif name == "transactional.id":
                found["transactional_id"] = _not_empty(prefix + name, text)
            elif not _is_ignored(prefix, name, text):
                unknown.append(prefix + name)
        settings = ProducerSettings(**found, unknown=tuple(unknown))
        settings._check(prefix)
        return settings

    @property
    def level(self) -> int | None:
        """The compression level of the codec, None for its default."""
        levels = {"gzip": self.gzip_level, "lz4": self.lz4_level, "zstd": self.zstd_level}
        return levels.get(self.codec)

    def _check(self, prefix: str) -> None:
        is_all = self.acks == "all"
        if self.idempotent and not is_all:
            raise InvalidArgumentError(
                f"{prefix}acks is {self.acks}, {prefix}enable.idempotence needs all"
            )
        if self.idempotent and self.max_in_flight > 5:
            raise InvalidArgumentError(
                f"{prefix}max.in.flight.requests.per.connection is {self.max_in_flight}, "
                f"{prefix}enable.idempotence needs at most 5"
            )
        if self.transactional_id is not None and (self.idempotent is False or not is_all):
            raise InvalidArgumentError(
                f"{prefix}transactional.id needs {prefix}acks=all and "
                f"{prefix}enable.idempotence=true"
            )


def _is_ignored(prefix: str, name: str, text: str) -> bool:
    if name in REFUSED:
        raise InvalidArgumentError(
            f"Kafka option '{prefix}{name}' is not supported: {REFUSED[name]}"
        )
    if is_of_other_protocols(name, text):
        raise InvalidArgumentError(
            f"Kafka option '{prefix}{name}' is not supported: kafkalite supports PLAINTEXT only"
        )
    return changes_nothing(name)


def is_of_other_protocols(name: str, text: str) -> bool:
    """Says whether a setting of Kafka's clients asks for TLS or SASL."""
    is_plaintext = name == "security.protocol" and text.upper() == "PLAINTEXT"
    return bool(PLAINTEXT_ONLY.match(name)) and not is_plaintext


def changes_nothing(name: str) -> bool:
    """Says whether a setting of Kafka's clients makes no difference here."""
    return name in IGNORED or name.startswith(IGNORED_FAMILIES)


def number(name: str, text: str, prefix: str = "") -> int:
    """The value of one of `NUMBERS`. Raises `InvalidArgumentError`, which names the setting, with
    the prefix."""
    _, lowest, highest = NUMBERS[name]
    if not re.fullmatch(r"[+-]?\d+", text):
        raise InvalidArgumentError(f"{prefix}{name} is '{text}', it must be a whole number")
    value = int(text)
    if name == "compression.gzip.level" and value == GZIP_LEVEL_DEFAULT:
        return value
    if not lowest <= value <= highest:
        raise InvalidArgumentError(f"{prefix}{name} is {text}, it must be {lowest} to {highest}")
    return value


def check_level(codec: object, level: object) -> None:
    """A codec, and a level of compression that it has, None for its default. Raises
    `InvalidArgumentError`, `TypeError`."""
    name = choice("codec", codec, CODECS)
    if level is None:
        return
    value = whole("level", level)
    row = NUMBERS.get(f"compression.{name}.level")
    if row is None:
        raise InvalidArgumentError(f"level={value}: the codec {name} has no levels")
    _, lowest, highest = row
    is_default = name == "gzip" and value == GZIP_LEVEL_DEFAULT
    if not is_default and not lowest <= value <= highest:
        or_default = f", or {GZIP_LEVEL_DEFAULT} for its default" if name == "gzip" else ""
        raise InvalidArgumentError(
            f"level={value} is none of {name}: it must be {lowest} to {highest}{or_default}"
        )


def _acks(name: str, text: str) -> str:
    words = {"all": "all", "-1": "all", "0": "0", "1": "1"}
    if text.lower() not in words:
        raise InvalidArgumentError(f"{name} is '{text}', it must be all, -1, 0 or 1")
    return words[text.lower()]


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidArgumentError(f"{name} is '{text}', it must be true or false")
    return text.lower() == "true"


def _codec(name: str, text: str) -> str:
    if text.lower() not in CODECS:
        raise InvalidArgumentError(
            f"{name} is '{text}', it must be {', '.join(CODECS[:-1])} or {CODECS[-1]}"
        )
    return text.lower()


def _not_empty(name: str, text: str) -> str:
    if not text:
        raise InvalidArgumentError(f"{name} is empty")
    return text

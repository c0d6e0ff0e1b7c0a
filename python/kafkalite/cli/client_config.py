"""Options that commands which talk to a broker share: the server, `--json`, and Kafka's client
properties: those of `--command-config FILE`, and over them, for what has a producer or a consumer,
those of `--command-property KEY=VALUE`.

    bootstrap.servers, client.id, request.timeout.ms, default.api.timeout.ms     every command
    acks, batch.size, linger.ms, compression.type, …                             produce
    group.id, isolation.level, fetch.min.bytes, …                                consume

The other options of the command line win over both. What is no such option goes to the client, as
`options.client`.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kafkalite.cli.options import (
    INT_MAX,
    UsageError,
    int_argument,
    milliseconds_argument,
    parse_settings,
    print_error,
    read_text,
    servers_argument,
)
from kafkalite.cli.remedies import remedies
from kafkalite.client.admin import Admin
from kafkalite.client.cluster_admin import ClusterAdmin
from kafkalite.client.consumer.group_options import GroupOptions
from kafkalite.client.group_admin import GroupAdmin
from kafkalite.client.network.cluster import Cluster
from kafkalite.client.producer.settings import (
    changes_nothing,
    is_of_other_protocols,
    number,
)
from kafkalite.config.properties import parse_properties
from kafkalite.errors import InvalidArgumentError

BOOTSTRAP_SERVER = "localhost:9092"
TIMEOUT_MS = 60_000

Row = tuple[str, Callable[[str], Any]]
Asking = TypeVar("Asking", Admin, Cluster, ClusterAdmin, GroupAdmin)


class Properties(NamedTuple):
    """The properties of one kind of client, as a command reads them."""

    rows: Mapping[str, Row]
    """By the property, what it is called here and how its text is read."""
    options: Mapping[str, str]
    """Names of the rows that are options of the command, and under which name."""
    kind: str = ""
    """`producer` or `consumer`, for the older names of Kafka's flags."""
    takes_several: bool = False
    """Several may stand behind the flag of single ones, which then is `--producer-props`."""


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"'{text}' is neither true nor false")
    return word == "true"


def _is_earliest(text: str) -> bool:
    if text not in ("earliest", "latest"):
        raise argparse.ArgumentTypeError(f"'{text}' is neither earliest nor latest")
    return text == "earliest"


def _size(text: str) -> int:
    number = int_argument(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 0 to {INT_MAX}")
    return number


def _word(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("it is empty")
    return text


_ALL: dict[str, Row] = {
    "bootstrap.servers": ("bootstrap_servers", servers_argument),
    "client.id": ("client_id", str),
    "request.timeout.ms": ("request_timeout_ms", milliseconds_argument),
}
_CLASSES_OF_JAVA = (".serializer", ".deserializer")
_LEVELS = {codec: f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd")}
_ADMIN: dict[str, Row] = {
    **_ALL,
    "default.api.timeout.ms": ("timeout_ms", milliseconds_argument),
}
_PRODUCER: dict[str, Row] = {
    **_ALL,
    "acks": ("acks", str),
    "batch.size": ("batch_bytes", _size),
    "linger.ms": ("linger_ms", _size),
    "compression.type": ("codec", str),
    "max.request.size": ("request_bytes_max", _size),
    "buffer.memory": ("buffer_bytes", _size),
    "max.in.flight.requests.per.connection": ("max_in_flight", _size),
    "enable.idempotence": ("idempotent", _flag),
    "delivery.timeout.ms": ("delivery_timeout_ms", milliseconds_argument),
    **{key: (key, partial(number, key)) for key in _LEVELS.values()},
}
_CONSUMER: dict[str, Row] = {
    **_ADMIN,
    "group.id": ("group", _word),
    "group.instance.id": ("instance_id", _word),
    "session.timeout.ms": ("session_timeout_ms", milliseconds_argument),
    "heartbeat.interval.ms": ("heartbeat_interval_ms", milliseconds_argument),
    "max.poll.interval.ms": ("max_poll_interval_ms", milliseconds_argument),
    "auto.commit.interval.ms": ("auto_commit_interval_ms", _size),
    "enable.auto.commit": ("auto_commit", _flag),
    "isolation.level": ("isolation", str),
    "fetch.min.bytes": ("fetch_bytes_min", _size),
    "fetch.max.bytes": ("fetch_bytes_max", _size),
    "max.partition.fetch.bytes": ("partition_bytes_max", _size),
    "fetch.max.wait.ms": ("fetch_wait_ms", _size),
}
_SERVER = {"bootstrap_servers": "bootstrap_server"}

ADMIN = Properties(_ADMIN, {**_SERVER, "timeout_ms": "timeout"})
PRODUCE = Properties(
    {**_PRODUCER, "max.block.ms": ("max_block_ms", milliseconds_argument)},
    {
        **_SERVER,
        "acks": "acks",
        "codec": "codec",
        "linger_ms": "linger",
        "batch_bytes": "batch_size",
        "delivery_timeout_ms": "timeout",
        "max_block_ms": "max_block_ms",
        "request_timeout_ms": "request_timeout_ms",
        "buffer_bytes": "max_memory_bytes",
    },
    "producer",
)
PERF_PRODUCE = Properties(_PRODUCER, _SERVER, "producer", takes_several=True)
CONSUME = Properties(
    {**_CONSUMER, "auto.offset.reset": ("is_earliest", _is_earliest)},
    {
        **_SERVER,
        "timeout_ms": "timeout",
        "group": "group",
        "instance_id": "group_instance_id",
        "is_earliest": "from_beginning",
        "isolation": "isolation_level",
        "partition_bytes_max": "max_partition_fetch_bytes",
    },
    "consumer",
)
# Its --timeout is another one, and where it begins has a flag of its own.
PERF_CONSUME = Properties(
    _CONSUMER, {**_SERVER, "group": "group", "partition_bytes_max": "fetch_size"}, "consumer"
)


def add_server(parser: argparse.ArgumentParser, properties: Properties = ADMIN) -> None:
    """`--bootstrap-server`, `--timeout`, `--json` and where Kafka's client properties are."""
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT,…",
        default=BOOTSTRAP_SERVER,
        type=servers_argument,
        help=f"one or more brokers of the cluster (default: {BOOTSTRAP_SERVER})",
    )
    parser.add_argument(
        "--timeout",
        type=milliseconds_argument,
        metavar="MS",
        default=TIMEOUT_MS,
        help=f"give up after this many milliseconds (default: {TIMEOUT_MS})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    kind = properties.kind
    parser.add_argument(
        "--command-config",
        *([f"--{kind}.config"] if kind else []),
        dest="command_config",
        metavar="FILE",
        help=f"a file of Kafka's {kind or 'client'} properties; options override it",
    )
    if kind:
        how: dict[str, Any] = {"dest": "command_property", "metavar": "KEY=VALUE"}
        several = {"action": "extend", "nargs": "+"}
        how |= several if properties.takes_several else {"action": "append"}
        parser.add_argument(
            "--command-property", help=f"one {kind} property; overrides the file", **how
        )
        older = f"--{kind}-{'props' if properties.takes_several else 'property'}"
        parser.add_argument(older, help=argparse.SUPPRESS, **how)
    parser.set_defaults(client={}, command_property=[], parser=parser, properties=properties)


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The command line, with what the properties say where it says nothing. `options.client` has
    what is no option. Raises `UsageError` for a property that cannot be obeyed."""
    options = parser.parse_args(arguments)
    given = parse_properties(read_text(options.command_config)) if options.command_config else {}
    given |= parse_settings(options.command_property)
    levels: dict[str, int] = {}
    if given:
        found = _read(given, options.properties)
        levels = {key: found.pop(key) for key in _LEVELS.values() if key in found}
        for name, option in options.properties.options.items():
            if name in found:
                options.parser.set_defaults(**{option: found.pop(name)})
        options.parser.set_defaults(client=found)
        options = parser.parse_args(arguments)
    _settle_level(options, levels)
    return options


def _settle_level(options: argparse.Namespace, levels: Mapping[str, int]) -> None:
    """Sets the level that the properties have for the codec that is used, which the command
    line may name, unless that has a level too. Raises `UsageError` for one that it cannot have."""
    if options.properties.kind != "producer":
        return
    is_option = "codec" in options.properties.options
    settings: dict[str, Any] = vars(options) if is_option else options.client
    codec, level = settings.get("codec", "none"), settings.get("level")
    key = _LEVELS.get(codec)
    if key is not None and level is None and key in levels:
        settings["level"] = levels[key]
    elif key is not None and level is not None:
        _value(key, str(level), partial(number, key))
    elif level is not None and codec in ("none", "snappy"):
        raise UsageError(f"--level: the codec {codec} has no levels")


@contextmanager
def client_of(kind: type[Asking], options: argparse.Namespace) -> Iterator[Asking]:
    """Gives the block a client that asks the cluster which the options name."""
    settings = {"timeout_ms": options.timeout, **options.client}
    with remedies(options), kind(options.bootstrap_server, **settings) as client:
        yield client


def consumer_settings(options: argparse.Namespace, group: str | None) -> dict[str, Any]:
    """Arguments of `Consumer`: its group, and what else the properties say."""
    settings = dict(options.client)
    own = {name: settings.pop(name) for name in GroupOptions._fields if name in settings}
    return {**settings, "group": GroupOptions(group, **own) if group else None}


def _read(given: Mapping[str, str], properties: Properties) -> dict[str, Any]:
    """The values by the names of the rows."""
    found: dict[str, Any] = {}
    for key, text in given.items():
        if key in properties.rows:
            name, read = properties.rows[key]
            found[name] = _value(key, text, read)
        elif is_of_other_protocols(key, text):
            raise UsageError(f"{key} is not supported: kafkalite supports PLAINTEXT only")
        elif not (changes_nothing(key) or key.endswith(_CLASSES_OF_JAVA)):
            print_error(f"the property {key} is not supported and is ignored")
    if not found.pop("auto_commit", True):
        found["auto_commit_interval_ms"] = None
    return found


def _value(key: str, text: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(text)
    except InvalidArgumentError as error:  # which names the key
        raise UsageError(str(error)) from error
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise UsageError(f"{key}={text}: {error}") from error

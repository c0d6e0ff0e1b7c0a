"""`kafkalite serve`: a broker until SIGTERM, with exit code 0 after a clean stop.

A plain command line is read here in a few lines; anything else, help and mistakes above all, is
argparse's, which with what it imports costs a tenth of the time until the broker is ready.
"""

import gc
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from argparse import ArgumentParser

SINGLE = ("properties", "--data", "--listen", "--log-level", "--log-format")
"""Options that may come once; `properties` is the word without an option."""
SETTINGS = ("--config", "--override")
"""Options that may come several times; the second is the word of `kafka-server-start`."""

PORT_MAX = 65_535

DESCRIPTION = """Run a broker until SIGTERM or Ctrl-C.

When the broker is ready, it prints one line to stdout: kafkalite ready bootstrap.servers=HOST:PORT
pid=N. Its log goes to stderr. To list the configuration of a running broker, with defaults:
kafkalite configs describe --broker 1 --all. Exit codes: 0 after SIGTERM or Ctrl-C, 1 if the broker
could not start or something failed, 2 for a wrong command line."""

EXAMPLES = """
kafkalite serve --data /var/lib/kafkalite
kafkalite serve server.properties --config num.partitions=3
kafkalite serve --listen 127.0.0.1:0 --log-level warning --log-format json
"""


class Options(NamedTuple):
    """The command line, read."""

    properties: str | None
    data: str | None
    listen: str | None
    config: list[str]
    log_level: str
    log_format: str = "text"


def run(arguments: Sequence[str]) -> int:
    """Parses the command line and runs the broker in this process."""
    options = plain_options(arguments) or parsed_options(arguments)
    gc.disable()  # until the broker has begun: what is imported and loaded stays
    from kafkalite.broker import run as run_broker
    from kafkalite.config import Config
    from kafkalite.config.properties import read_properties
    from kafkalite.service.stderr_log import Log

    log = Log(options.log_level, options.log_format)
    given: dict[str, str] = {}
    if options.properties is not None:
        given.update(read_properties(options.properties))
    if options.listen is not None:
        # What the file says of its own listeners does not go with another one.
        for name in ("advertised.listeners", "inter.broker.listener.name"):
            if given.pop(name, None) is not None:
                log.warning(f"{name} of {options.properties} is left out, since --listen is given")
    for text in options.config:
        name, _, value = text.partition("=")
        given[name.strip()] = value
    if options.data is not None:
        given["log.dirs"] = options.data
    if options.listen is not None:
        given["listeners"] = f"PLAINTEXT://{options.listen}"
    config = Config(given)
    for sentence in config.warnings:
        log.warning(sentence)
    return run_broker(config, log)


def plain_options(arguments: Sequence[str]) -> Options | None:
    """The options, if each is written out, with its value behind it, and right; else None."""
    from kafkalite.service.stderr_log import Log

    values: dict[str, str] = {}
    config: list[str] = []
    remaining = iter(arguments)
    for word in remaining:
        if not word.startswith("-"):
            name, value = "properties", word
        else:
            name, value = word, next(remaining, "-")
        if name in SETTINGS and "=" in value and value[0] not in "-=":
            config.append(value)
        elif name in SINGLE and name not in values and not value.startswith("-"):
            values[name] = value
        else:
            return None
    listen = values.get("--listen")
    level = values.get("--log-level", "info")
    form = values.get("--log-format", "text")
    if form not in Log.FORMATS:
        return None
    if level not in Log.LEVELS or (listen is not None and not _is_address(listen)):
        return None
    if values.get("--data") == "":
        return None
    return Options(values.get("properties"), values.get("--data"), listen, config, level, form)


def parsed_options(arguments: Sequence[str]) -> Options:
    """The options, or an end of the process with help or the mistake."""
    parser = command_line()
    options = parser.parse_args(arguments)
    for text in options.config:
        if "=" not in text[1:]:
            parser.error(f"--config {text}: not of the form KEY=VALUE")
    if options.data == "":
        parser.error("--data is empty")
    if options.listen is not None and not _is_address(options.listen):
        _, colon, port = options.listen.rpartition(":")
        if colon and port.isdecimal():
            parser.error(f"--listen {options.listen}: the port is beyond {PORT_MAX}")
        parser.error(f"--listen {options.listen}: not of the form HOST:PORT")
    return Options(**vars(options))


def _is_address(text: str) -> bool:
    """True if it looks like HOST:PORT; what else is wrong with it, `kafkalite.listeners` says."""
    _, colon, port = text.rpartition(":")
    return bool(colon) and port.isdecimal() and len(port) <= 5 and int(port) <= PORT_MAX


def command_line() -> "ArgumentParser":
    """Its parser."""
    from kafkalite.cli.options import new_parser
    from kafkalite.service.stderr_log import Log

    parser = new_parser("kafkalite serve", DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "properties", nargs="?", metavar="FILE", help="a server.properties file, as for Kafka"
    )
    parser.add_argument(
        "--data", metavar="DIR", help="the log directory (default: log.dirs, else ./kafkalite-data)"
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="the address to listen on (default: 127.0.0.1:9092); port 0 selects a free port",
    )
    parser.add_argument(
        *SETTINGS,
        dest="config",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set a configuration key, overriding the file; may be repeated",
    )
    parser.add_argument(
        "--log-level",
        choices=Log.LEVELS,
        default="info",
        help="the lowest level that is logged (default: info); debug also logs requests, except "
        "Produce and Fetch",
    )
    parser.add_argument(
        "--log-format",
        choices=Log.FORMATS,
        default="text",
        help="the format of the log (default: text); json prints one object per line: time, "
        "level, message",
    )
    return parser

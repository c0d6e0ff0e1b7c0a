"""`kafkalite serve`: a broker until SIGTERM, with exit code 0 after a clean stop."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def run(arguments: Sequence[str]) -> int:
    """Parses the command line and runs the broker in this process."""
    parser = _parser()
    options = parser.parse_args(arguments)
    for text in options.config:
        if "=" not in text:
            parser.error(f"--config {text}: not of the form KEY=VALUE")
    if options.listen is not None and ":" not in options.listen:
        parser.error(f"--listen {options.listen}: not of the form HOST:PORT")
    from kafkalite.broker import run as run_broker
    from kafkalite.config import Config
    from kafkalite.config.properties import read_properties
    from kafkalite.context import Log

    given: dict[str, str] = {}
    if options.properties is not None:
        given.update(read_properties(options.properties))
    for text in options.config:
        name, _, value = text.partition("=")
        given[name.strip()] = value
    if options.data is not None:
        given["log.dirs"] = str(options.data)
    if options.listen is not None:
        given["listeners"] = f"PLAINTEXT://{options.listen}"
        for name in ("advertised.listeners", "inter.broker.listener.name"):
            given.pop(name, None)
    log = Log(options.log_level)
    config = Config(given)
    for sentence in config.warnings:
        log.warning(sentence)
    return run_broker(config, log)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kafkalite serve",
        description="Runs a broker until SIGTERM or Ctrl-C.",
        epilog="When it can serve it prints one line on stdout: "
        "kafkalite ready bootstrap.servers=HOST:PORT pid=N. Its log goes to stderr. Every key of a "
        "running broker, with its value and default: kafkalite configs describe --broker 1 --all. "
        "Exit codes: 0 after SIGTERM or Ctrl-C, 1 if it could not start, 2 for a wrong command "
        "line.",
    )
    parser.add_argument(
        "properties", nargs="?", type=Path, help="a server.properties file of Kafka's"
    )
    parser.add_argument(
        "--data", type=Path, help="the log directory (default: log.dirs, else ./kafkalite-data)"
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="default 127.0.0.1:9092; port 0 takes a free one"
    )
    parser.add_argument(
        "--config",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a configuration key, over the file's; may be given several times",
    )
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info"
    )
    return parser

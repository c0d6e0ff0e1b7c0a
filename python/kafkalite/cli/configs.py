"""`kafkalite configs`: shows and changes the configuration of topics, brokers and groups, and how
much brokers log, in kafka-configs' words."""

import argparse

from kafkalite.cli.actions import Actions
from kafkalite.cli.client_config import client_of
from kafkalite.cli.options import (
    UsageError,
    parse_settings,
    print_error,
    print_json,
    read_text,
)
from kafkalite.client.admin import BROKER, BROKER_LOGGER, GROUP, TOPIC, Admin, ConfigEntry
from kafkalite.config.properties import parse_properties

EXAMPLES = """
kafkalite configs describe --topic orders
kafkalite configs describe --broker 1 --all
kafkalite configs alter --topic orders --add-config retention.ms=1000,segment.ms=100
kafkalite configs alter --topic orders --delete-config retention.ms
kafkalite configs alter --broker-logger 1 --add-config root=DEBUG
kafkalite configs --describe --entity-type topics --entity-name orders
kafkalite configs --alter --entity-type brokers --entity-default --add-config log.cleaner.threads=2
"""

TYPES = {"topics": TOPIC, "brokers": BROKER, "broker-loggers": BROKER_LOGGER, "groups": GROUP}


def run(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    return _actions().run(arguments)


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    return _actions().parser


def _actions() -> Actions:
    actions = Actions(
        "kafkalite configs",
        "Describe and alter the configuration of topics, brokers and groups, and the log levels of "
        "brokers.",
        EXAMPLES,
    )
    describe = actions.add("describe", _describe, "show configurations and where they were set")
    _add_entity(describe)
    describe.add_argument(
        "--all", action="store_true", help="include defaults, not only what was set"
    )
    alter = actions.add("alter", _alter, "set configurations, or reset them to their defaults")
    _add_entity(alter)
    alter.add_argument(
        "--add-config",
        action="append",
        default=[],
        metavar="KEY=VALUE,…",
        help="configurations to set; a value that contains commas goes in brackets: KEY=[A,B]",
    )
    alter.add_argument(
        "--add-config-file", metavar="FILE", help="a file with configurations to set, one per line"
    )
    alter.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="KEY,…",
        help="configurations to reset to their defaults",
    )
    return actions


def _add_entity(parser: argparse.ArgumentParser) -> None:
    entity = parser.add_mutually_exclusive_group()
    entity.add_argument("--topic", metavar="NAME", help="a topic")
    entity.add_argument("--broker", metavar="ID", help="a broker")
    entity.add_argument(
        "--broker-defaults", action="store_true", help="the defaults of all brokers"
    )
    entity.add_argument("--broker-logger", metavar="ID", help="the log levels of a broker")
    entity.add_argument("--group", metavar="NAME", help="a group")
    entity.add_argument(
        "--entity-type", choices=sorted(TYPES), help="the type, as for kafka-configs"
    )
    parser.add_argument("--entity-name", metavar="NAME", help="the name for --entity-type")
    parser.add_argument(
        "--entity-default",
        action="store_true",
        help="with --entity-type brokers: the defaults of all brokers",
    )


def _entity(options: argparse.Namespace) -> tuple[str, str | None]:
    """Type and name; the name is empty for a default and None for all of the type."""
    named = {
        "topics": options.topic,
        "brokers": options.broker,
        "broker-loggers": options.broker_logger,
        "groups": options.group,
    }
    if options.entity_type is None:
        if options.entity_default or options.entity_name is not None:
            raise UsageError("--entity-name and --entity-default belong to an --entity-type")
        if options.broker_defaults:
            return "brokers", ""
        for kind, name in named.items():
            if name is not None:
                return kind, name
        raise UsageError("name a --topic, --broker, --broker-logger, --group or --entity-type")
    if not options.entity_default:
        return options.entity_type, options.entity_name
    if options.entity_name is not None:
        raise UsageError("--entity-name and --entity-default exclude each other")
    if options.entity_type != "brokers":
        raise UsageError(f"there is no default of {options.entity_type}, but one of brokers")
    return "brokers", ""


def _describe(options: argparse.Namespace) -> int:
    kind, name = _entity(options)
    with client_of(Admin, options) as admin:
        names = _all_names(admin, kind) if name is None else [name]
        if kind == "topics" and name is not None:
            admin.describe_topics([name])  # the broker describes what is not there as defaults
        for each in names:
            entries = sorted(admin.describe_configs(TYPES[kind], each))
            if each == "" or not options.all:
                entries = [entry for entry in entries if _is_dynamic(entry, kind, each)]
            _show(kind, each, entries, options)
    return 0


def _is_dynamic(entry: ConfigEntry, kind: str, name: str) -> bool:
    """True of what was set for this very resource, and so can be taken back, as any logger's
    level."""
    if kind == "broker-loggers":
        return True
    wanted = {"topics": "DYNAMIC_TOPIC_CONFIG", "groups": "DYNAMIC_GROUP_CONFIG"}.get(kind)
    if wanted is None:
        wanted = "DYNAMIC_BROKER_CONFIG" if name else "DYNAMIC_DEFAULT_BROKER_CONFIG"
    return entry.source == wanted


def _all_names(admin: Admin, kind: str) -> list[str]:
    if kind == "topics":
        return [topic.name for topic in admin.list_topics()]
    if kind in ("brokers", "broker-loggers"):
        ids = [str(broker.id) for broker in admin.describe_cluster().brokers]
        return [*ids, ""] if kind == "brokers" else ids
    return admin.list_config_resources(GROUP)


def _show(kind: str, name: str, entries: list[ConfigEntry], options: argparse.Namespace) -> None:
    if options.json:
        rows = [
            {
                "name": entry.name,
                "value": entry.value,
                "source": entry.source,
                "isDefault": entry.is_default,
                "isReadOnly": entry.is_read_only,
                "isSensitive": entry.is_sensitive,
            }
            for entry in entries
        ]
        print_json({"entityType": kind, "entityName": name, "configs": rows})
        return
    if name == "":
        print(f"Default configs for {kind} in the cluster are:")
    else:
        print(f"{'All' if options.all else 'Dynamic'} configs for {kind[:-1]} {name} are:")
    for entry in entries:
        synonyms = ", ".join(
            f"{source}:{key}={_text(value)}" for source, key, value in entry.synonyms
        )
        print(
            f"  {entry.name}={_text(entry.value)} sensitive={str(entry.is_sensitive).lower()} "
            f"synonyms={{{synonyms}}}"
        )


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _alter(options: argparse.Namespace) -> int:
    kind, name = _entity(options)
    if name is None:
        raise UsageError("name what to alter, or say --entity-default")
    changes: dict[str, str | None] = {}
    if options.add_config_file:
        changes |= parse_properties(read_text(options.add_config_file))
    changes |= parse_settings(options.add_config)
    deleted = [key.strip() for text in options.delete_config for key in text.split(",")]
    if not changes and not deleted:
        raise UsageError("say what to alter: --add-config or --delete-config")
    with client_of(Admin, options) as admin:
        if kind == "brokers" and deleted:
            # A broker takes any name to delete, and kafka-configs says nothing of it.
            entries = admin.describe_configs(BROKER, name)
            present = {entry.name for entry in entries if _is_dynamic(entry, kind, name)}
            missing = [key for key in deleted if key not in present]
            if missing:
                print_error(f"not set, and so not deleted: {', '.join(missing)}")
        if kind == "broker-loggers":
            known = {entry.name for entry in admin.describe_configs(BROKER_LOGGER, name)}
            strange = [each for each in (*deleted, *changes) if each not in known]
            if strange:
                print_error(f"Invalid broker logger(s): {','.join(strange)}")
                return 1
        admin.alter_configs(TYPES[kind], name, {**changes, **dict.fromkeys(deleted)})
    if options.json:
        print_json({"entityType": kind, "entityName": name, "altered": True})
    elif name:
        print(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        print(f"Completed updating default config for {kind} in the cluster.")
    return 0

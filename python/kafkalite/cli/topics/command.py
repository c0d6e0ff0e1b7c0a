"""`kafkalite topics`: makes, lists, describes, changes and deletes topics, as kafka-topics."""

import argparse
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafkalite.cli.actions import Actions
from kafkalite.cli.client_config import client_of
from kafkalite.cli.options import (
    UsageError,
    int_argument,
    names_of,
    parse_settings,
    print_error,
    print_json,
    regular_expression,
    short_argument,
)
from kafkalite.cli.remedies import did_you_mean
from kafkalite.cli.topics import records
from kafkalite.client.admin import (
    TOPIC,
    Admin,
    ConfigEntry,
    PartitionDescription,
    TopicDescription,
    TopicListing,
    uuid_text,
)
from kafkalite.client.cluster_admin import ClusterAdmin, Partition, Reassignment
from kafkalite.config.keys import MIN_INSYNC_REPLICAS
from kafkalite.errors import BrokerError, UnsupportedVersionError
from kafkalite.protocol.codes import CLUSTER_AUTHORIZATION_FAILED, TOPIC_ALREADY_EXISTS

EXAMPLES = """
kafkalite topics create orders --partitions 3 --config retention.ms=86400000
kafkalite topics list --exclude-internal
kafkalite topics describe orders
kafkalite topics alter orders --partitions 6 --config cleanup.policy=compact
kafkalite topics delete 'test-.*'
kafkalite topics delete-records orders --before 1000
kafkalite topics --create --topic orders --partitions 3   # as kafka-topics
"""


def run(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    return _actions().run(arguments)


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    return _actions().parser


def _actions() -> Actions:
    actions = Actions(
        "kafkalite topics", "Create, list, describe, alter and delete topics.", EXAMPLES
    )

    create = actions.add(
        "create",
        _create,
        "create a topic",
        "kafkalite topics create orders\n"
        "kafkalite topics create orders --partitions 3 --config retention.ms=86400000",
    )
    _add_names(create, "the name of the topic")
    create.add_argument(
        "--partitions",
        type=int_argument,
        metavar="N",
        help="the number of partitions (default: num.partitions of the broker)",
    )
    create.add_argument(
        "--replication-factor",
        type=short_argument,
        metavar="N",
        help="replicas of each partition (default: default.replication.factor of the broker)",
    )
    create.add_argument(
        "--replica-assignment",
        metavar="1:2,2:3",
        help="the brokers of each partition, instead of the two options above",
    )
    _add_config(create)
    create.add_argument(
        "--if-not-exists", action="store_true", help="succeed if the topic already exists"
    )

    listing = actions.add("list", _list, "list topics")
    _add_names(listing, "names or regular expressions (default: all topics)", "*")
    _add_exclude(listing)

    describe = actions.add("describe", _describe, "show topics, their partitions and configuration")
    _add_names(describe, "names or regular expressions (default: all topics)", "*")
    describe.add_argument("--topic-id", metavar="ID", help="describe the topic with this id")
    _add_exclude(describe)
    _add_if_exists(describe)
    filters = describe.add_mutually_exclusive_group()
    for name, line in FILTERS.items():
        filters.add_argument(f"--{name}", action="store_true", help=line)

    alter = actions.add(
        "alter", _alter, "change the number of partitions or the configuration of topics"
    )
    _add_names(alter, "names or regular expressions", "*")
    alter.add_argument(
        "--partitions", type=int_argument, metavar="N", help="the new total number of partitions"
    )
    alter.add_argument(
        "--replica-assignment",
        metavar="1:2,2:3",
        help="the brokers of every partition, old and new",
    )
    _add_config(alter)
    alter.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="KEY",
        help="reset a configuration key to its default; may be repeated",
    )
    _add_if_exists(alter)

    delete = actions.add("delete", _delete, "delete topics and all their records")
    _add_names(delete, "names or regular expressions", "*")
    _add_if_exists(delete)
    records.add(actions)
    return actions


FILTERS = {
    "under-replicated-partitions": "only partitions with a replica that is not in sync",
    "unavailable-partitions": "only partitions whose leader is not available",
    "under-min-isr-partitions": "only partitions with fewer replicas in sync than "
    "min.insync.replicas",
    "at-min-isr-partitions": "only partitions with exactly min.insync.replicas replicas in sync",
    "topics-with-overrides": "only topics with configurations of their own; no partitions",
}


def _add_names(parser: argparse.ArgumentParser, what: str, count: str = "?") -> None:
    parser.add_argument("names", nargs=count, metavar="TOPIC", help=what)
    parser.add_argument("--topic", action="append", help=argparse.SUPPRESS)


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a configuration key of the topic; may be repeated",
    )


def _add_exclude(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--exclude-internal",
        action="store_true",
        help="leave out internal topics, such as __consumer_offsets",
    )


def _add_if_exists(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--if-exists", action="store_true", help="succeed if the topic does not exist"
    )


# --- actions --------------------------------------------------------------------------------------


def _create(options: argparse.Namespace) -> int:
    names = names_of([options.names] if options.names else [], options.topic)
    if len(names) != 1:
        raise UsageError("name one topic to create")
    name = names[0]
    assignments = _assignments(options.replica_assignment)
    if assignments and (options.partitions or options.replication_factor):
        raise UsageError(
            "--replica-assignment stands in place of --partitions and --replication-factor"
        )
    with client_of(Admin, options) as admin:
        try:
            admin.create_topic(
                name,
                partitions=-1 if options.partitions is None else options.partitions,
                replication_factor=(
                    -1 if options.replication_factor is None else options.replication_factor
                ),
                configs=parse_settings(options.config),
                assignments=assignments,
            )
        except BrokerError as error:
            if error.code != TOPIC_ALREADY_EXISTS or not options.if_not_exists:
                raise
            return 0
    if "." in name or "_" in name:
        print_error(
            "a period and an underscore are the same in names of metrics: topics that differ in "
            "them alone collide"
        )
    if options.json:
        print_json({"topic": name, "created": True})
    else:
        print(f"Created topic {name}.")
    return 0


def _list(options: argparse.Namespace) -> int:
    with client_of(Admin, options) as admin:
        patterns = names_of(options.names, options.topic)
        for topic in admin.list_topics(include_internal=not options.exclude_internal):
            if not _matches(topic.name, patterns):
                continue
            if options.json:
                print_json(
                    {
                        "topic": topic.name,
                        "topicId": uuid_text(topic.id),
                        "isInternal": topic.is_internal,
                    }
                )
            else:
                print(topic.name)
    return 0


def _describe(options: argparse.Namespace) -> int:
    with client_of(ClusterAdmin, options) as admin:
        patterns = names_of(options.names, options.topic)
        listed = admin.list_topics(include_internal=not options.exclude_internal)
        if options.topic_id:
            names = [topic.name for topic in listed if uuid_text(topic.id) == options.topic_id]
            wanted = f"TopicId '{options.topic_id}'" if not names else None
        else:
            names = [topic.name for topic in listed if _matches(topic.name, patterns)]
            wanted = _missing(patterns, names)
        if wanted is not None and not options.if_exists:
            _print_missing(wanted, listed)
            return 1
        alive = {broker.id for broker in admin.describe_cluster().brokers}
        ongoing = _reassignments(admin)
        for topic in admin.describe_topics(names):
            configs = admin.describe_configs(TOPIC, topic.name)
            moving = {
                row.partition: ongoing[topic.name, row.partition]
                for row in topic.partitions
                if (topic.name, row.partition) in ongoing
            }
            _show(topic, configs, _Around(alive, moving), options)
    return 0


def _reassignments(admin: ClusterAdmin) -> dict[Partition, Reassignment]:
    """The reassignments in progress; none if the user may not list them, or the broker cannot."""
    try:
        return admin.list_reassignments()
    except UnsupportedVersionError:
        return {}
    except BrokerError as error:
        if error.code != CLUSTER_AUTHORIZATION_FAILED:
            raise
        return {}


def _alter(options: argparse.Namespace) -> int:
    changes: dict[str, str | None] = dict(parse_settings(options.config))
    for text in options.delete_config:
        changes |= dict.fromkeys((key.strip() for key in text.split(",")), None)
    if options.partitions is None and not changes:
        raise UsageError("say what to alter: --partitions, --config or --delete-config")
    with client_of(Admin, options) as admin:
        names = _named(admin, options, "alter")
        if names is None:
            return 1
        for topic in admin.describe_topics(names):
            if changes:
                admin.alter_configs(TOPIC, topic.name, changes)
            if options.partitions is not None:
                assignments = _assignments(options.replica_assignment)
                admin.create_partitions(
                    topic.name,
                    options.partitions,
                    assignments=assignments[len(topic.partitions) :] or None,
                )
            if options.json:
                print_json({"topic": topic.name, "altered": True})
    return 0


def _delete(options: argparse.Namespace) -> int:
    with client_of(Admin, options) as admin:
        names = _named(admin, options, "delete")
        if names is None:
            return 1
        if names:
            admin.delete_topics(names)
        if options.json:
            for name in names:
                print_json({"topic": name, "deleted": True})
    return 0


def _named(admin: Admin, options: argparse.Namespace, action: str) -> list[str] | None:
    """The topics that are meant; None, with the sentence told, if there are none and should be."""
    patterns = names_of(options.names, options.topic)
    if not patterns:
        raise UsageError(f"name the topics to {action}")
    listed = admin.list_topics()
    names = [topic.name for topic in listed if _matches(topic.name, patterns)]
    missing = _missing(patterns, names)
    if missing is not None and not options.if_exists:
        _print_missing(missing, listed)
        return None
    return names


def _print_missing(what: str, listed: Iterable[TopicListing]) -> None:
    """Kafka's sentence, and the topic that may have been meant."""
    sentence = f"{what} does not exist as expected"
    meant = did_you_mean(what.partition("'")[2].rstrip("'"), [topic.name for topic in listed])
    print_error(f"{sentence}; {meant}" if meant else sentence)


# --- what topics are meant ------------------------------------------------------------------------


def _matches(name: str, patterns: list[str]) -> bool:
    """As Kafka's IncludeList: comma-separated regular expressions, each of a whole name."""
    return not patterns or any(_expression(pattern).fullmatch(name) for pattern in patterns)


def _expression(pattern: str) -> re.Pattern[str]:
    return regular_expression(pattern.strip().strip("\"'").replace(",", "|").replace(" ", ""))


def _missing(patterns: list[str], names: list[str]) -> str | None:
    for pattern in patterns:
        if not any(_matches(name, [pattern]) for name in names):
            return f"Topic '{pattern}'"
    return None


def _assignments(text: str | None) -> list[list[int]]:
    """`1:2,2:3` as [[1, 2], [2, 3]]. Raises `UsageError`."""
    if not text:
        return []
    try:
        rows = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"'{text}' is not a replica assignment such as 1:2,2:3, with : between brokers and , "
            "between partitions"
        ) from None
    for at, row in enumerate(rows):
        if len(set(row)) != len(row):
            raise UsageError(f"partition {at} has the same broker twice")
        if len(row) != len(rows[0]):
            raise UsageError(f"partition {at} has another number of replicas than 0")
    return rows


# --- what is shown --------------------------------------------------------------------------------


class _Around(NamedTuple):
    """Facts of a cluster that the description of a topic is shown with."""

    alive: set[int]
    """The brokers that are not fenced."""
    moving: Mapping[int, Reassignment]
    """By partition, the reassignments that go on."""

    def replication_factor(self, row: PartitionDescription) -> int:
        """How many replicas a partition has without those that a reassignment adds."""
        moving = self.moving.get(row.partition)
        if moving is None or not {*moving.adding, *moving.removing} & {*row.replicas}:
            return len(row.replicas)
        return len(moving.replicas) - len(moving.adding)


def _show(
    topic: TopicDescription,
    configs: list[ConfigEntry],
    around: _Around,
    options: argparse.Namespace,
) -> None:
    overrides = [entry for entry in configs if not entry.is_default]
    min_isr = next((int(c.value) for c in configs if c.name == MIN_INSYNC_REPLICAS and c.value), 1)
    shown = [row for row in topic.partitions if _is_wanted(row, min_isr, around, options)]
    is_filtered = any(
        getattr(options, name.replace("-", "_"))
        for name in FILTERS
        if name != "topics-with-overrides"
    )
    if options.topics_with_overrides:
        if not overrides:
            return
        shown = []
    if options.json:
        if shown or not is_filtered:
            print_json(_as_json(topic, overrides, shown, around, options))
        return
    if not is_filtered:
        told = ",".join(f"{entry.name}={_value(entry)}" for entry in overrides)
        replicas = around.replication_factor(topic.partitions[0]) if topic.partitions else 0
        print(
            f"Topic: {topic.name}\tTopicId: {uuid_text(topic.id)}"
            f"\tPartitionCount: {len(topic.partitions)}\tReplicationFactor: {replicas}"
            f"\tConfigs: {told}"
        )
    for row in shown:
        leader = row.leader if row.leader >= 0 else "none"
        moving = around.moving.get(row.partition)
        moves = ""
        if moving is not None:
            moves = f"\tAdding Replicas: {_brokers(moving.adding)}"
            moves += f"\tRemoving Replicas: {_brokers(moving.removing)}"
        print(
            f"\tTopic: {topic.name}\tPartition: {row.partition}\tLeader: {leader}"
            f"\tReplicas: {_brokers(row.replicas)}\tIsr: {_brokers(row.isr)}{moves}"
            f"\tElr: {_brokers(row.elr)}\tLastKnownElr: {_brokers(row.last_known_elr)}"
        )


def _is_wanted(
    row: PartitionDescription, min_isr: int, around: _Around, options: argparse.Namespace
) -> bool:
    has_leader = row.leader >= 0
    if options.under_replicated_partitions:
        return len(row.isr) < around.replication_factor(row)
    if options.unavailable_partitions:
        return not has_leader or row.leader not in around.alive
    if options.under_min_isr_partitions:
        return not has_leader or len(row.isr) < min_isr
    if options.at_min_isr_partitions:
        return len(row.isr) == min_isr
    return True


def _brokers(brokers: list[int] | None) -> str:
    return "N/A" if brokers is None else ",".join(map(str, brokers))


def _value(entry: ConfigEntry) -> str:
    return "null" if entry.value is None else entry.value


def _as_json(
    topic: TopicDescription,
    overrides: list[ConfigEntry],
    shown: list[PartitionDescription],
    around: _Around,
    options: argparse.Namespace,
) -> dict[str, Any]:
    replicas = around.replication_factor(topic.partitions[0]) if topic.partitions else 0
    fields: dict[str, Any] = {
        "topic": topic.name,
        "topicId": uuid_text(topic.id),
        "isInternal": topic.is_internal,
        "partitionCount": len(topic.partitions),
        "replicationFactor": replicas,
        "configs": {entry.name: entry.value for entry in overrides},
    }
    if not options.topics_with_overrides:
        fields["partitions"] = [
            {
                "partition": row.partition,
                "leader": row.leader,
                "leaderEpoch": row.leader_epoch,
                "replicas": row.replicas,
                "isr": row.isr,
                "elr": row.elr,
                "lastKnownElr": row.last_known_elr,
                "offlineReplicas": row.offline_replicas,
                "addingReplicas": around.moving[row.partition].adding if is_moving else [],
                "removingReplicas": around.moving[row.partition].removing if is_moving else [],
            }
            for row in shown
            for is_moving in [row.partition in around.moving]
        ]
    return fields

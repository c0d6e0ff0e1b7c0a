"""`kafkalite transactions`: transactional ids, producers of partitions, and transactions that hang,
in kafka-transactions' words."""

import argparse
import time
from collections.abc import Sequence

from kafkalite.cli.actions import Actions
from kafkalite.cli.client_config import client_of
from kafkalite.cli.options import UsageError, int_argument, long_argument, print_error, print_json
from kafkalite.client.admin import Admin
from kafkalite.client.network.cluster import Cluster
from kafkalite.client.transaction_admin import OpenProducer, TransactionAdmin, hanging

EXAMPLES = """
kafkalite transactions list
kafkalite transactions describe copier
kafkalite transactions describe-producers --topic orders --partition 0
kafkalite transactions find-hanging --topic orders
kafkalite transactions abort --topic orders --partition 0 --start-offset 4711
kafkalite transactions force-terminate copier
"""

MAX_TIMEOUT_MINUTES = 15
"""Kafka's default of the longest time-out of a transaction."""


def run(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    return _actions().run(arguments)


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    return _actions().parser


def _actions() -> Actions:
    actions = Actions(
        "kafkalite transactions",
        "List and describe transactions and their producers, abort hanging transactions.",
        EXAMPLES,
    )
    listing = actions.add("list", _list, "list transactional ids")
    listing.add_argument(
        "--duration-filter",
        type=long_argument,
        default=-1,
        metavar="MS",
        help="only transactions that have been running longer than this many milliseconds",
    )
    listing.add_argument(
        "--transactional-id-pattern",
        metavar="REGEX",
        help="only ids that match this regular expression",
    )
    describe = actions.add("describe", _describe, "show the transaction of a transactional id")
    _add_id(describe)
    producers = actions.add("describe-producers", _producers, "show the producers of a partition")
    _add_place(producers, required=True)
    producers.add_argument(
        "--broker-id", type=int_argument, metavar="ID", help="ask this broker (default: the leader)"
    )
    find = actions.add(
        "find-hanging", _find, "find transactions that no producer or coordinator will end"
    )
    _add_place(find, required=False)
    find.add_argument(
        "--broker-id",
        type=int_argument,
        metavar="ID",
        help="search the partitions that this broker leads",
    )
    find.add_argument(
        "--max-transaction-timeout",
        type=int_argument,
        default=MAX_TIMEOUT_MINUTES,
        metavar="MINUTES",
        help=f"only transactions whose last record is older (default: {MAX_TIMEOUT_MINUTES})",
    )
    abort = actions.add("abort", _abort, "abort a hanging transaction in one partition")
    _add_place(abort, required=True)
    abort.add_argument(
        "--start-offset",
        type=long_argument,
        metavar="N",
        help="the first offset of the transaction, as printed by find-hanging",
    )
    instead = "for brokers before Kafka 3.0, instead of --start-offset; nothing is checked"
    for flag, kind in (("id", long_argument), ("epoch", int_argument)):
        abort.add_argument(f"--producer-{flag}", type=kind, metavar="N", help=instead)
    abort.add_argument("--coordinator-epoch", type=int_argument, metavar="N", help=instead)
    end = actions.add(
        "force-terminate",
        _force,
        "abort the transaction of a transactional id and fence its producer",
    )
    _add_id(end)
    return actions


def _add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="ID", help="a transactional id")
    for flag in ("--transactional-id", "--transactionalId"):
        parser.add_argument(flag, dest="flagged", help=argparse.SUPPRESS)


def _add_place(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--topic", required=required, metavar="TOPIC", help="the topic")
    parser.add_argument(
        "--partition",
        required=required,
        type=int_argument,
        metavar="N",
        help="a partition of the topic",
    )


def _id_of(options: argparse.Namespace) -> str:
    names = {name for name in (options.name, options.flagged) if name is not None}
    if len(names) != 1:
        raise UsageError("name one transactional id")
    return str(names.pop())


def _print_rows(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """As Kafka's tool: columns as wide as their widest cell, each with a tab behind it."""
    texts = [list(titles), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for text in texts:
        print("".join(f"{cell:<{width}}\t" for cell, width in zip(text, widths, strict=True)))


def _list(options: argparse.Namespace) -> int:
    with client_of(Cluster, options) as cluster:
        transactions = TransactionAdmin(cluster)
        found = transactions.list_transactions(
            longer_than_ms=options.duration_filter, pattern=options.transactional_id_pattern
        )
    if options.json:
        for each in found:
            print_json(
                {
                    "transactionalId": each.transactional_id,
                    "coordinator": each.coordinator,
                    "producerId": each.producer_id,
                    "transactionState": each.state,
                }
            )
        return 0
    _print_rows(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), found)
    return 0


def _describe(options: argparse.Namespace) -> int:
    with client_of(Cluster, options) as cluster:
        transactions = TransactionAdmin(cluster)
        found = transactions.describe(_id_of(options))
    has_begun = found.start_ms >= 0
    duration_ms = int(time.time() * 1000) - found.start_ms if has_begun else None
    if options.json:
        print_json(
            {
                "coordinatorId": found.coordinator,
                "transactionalId": found.transactional_id,
                "producerId": found.producer_id,
                "producerEpoch": found.producer_epoch,
                "transactionState": found.state,
                "transactionTimeoutMs": found.timeout_ms,
                "currentTransactionStartTimeMs": found.start_ms if has_begun else None,
                "transactionDurationMs": duration_ms,
                "topicPartitions": [{"topic": t, "partition": p} for t, p in found.partitions],
            }
        )
        return 0
    titles: tuple[str, ...] = ("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch")
    titles += ("TransactionState", "TransactionTimeoutMs", "CurrentTransactionStartTimeMs")
    row = (
        found.coordinator,
        found.transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.state,
        found.timeout_ms,
        found.start_ms if has_begun else None,
        duration_ms,
        ",".join(f"{topic}-{index}" for topic, index in found.partitions),
    )
    _print_rows((*titles, "TransactionDurationMs", "TopicPartitions"), [row])
    return 0


def _producers(options: argparse.Namespace) -> int:
    place = (options.topic, options.partition)
    with client_of(Cluster, options) as cluster:
        transactions = TransactionAdmin(cluster)
        found = transactions.describe_producers([place], broker=options.broker_id)[place]
    rows = [
        (
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.transaction_start_offset if each.transaction_start_offset >= 0 else None,
        )
        for each in found
    ]
    titles: tuple[str, ...] = (
        "ProducerId",
        "ProducerEpoch",
        "LatestCoordinatorEpoch",
        "LastSequence",
    )
    titles += ("LastTimestamp", "CurrentTransactionStartOffset")
    if options.json:
        for row in rows:
            names = (title[0].lower() + title[1:] for title in titles)
            print_json(dict(zip(names, row, strict=True)))
        return 0
    _print_rows(titles, rows)
    return 0


def _find(options: argparse.Namespace) -> int:
    if options.topic is None and options.broker_id is None:
        raise UsageError(
            "find-hanging needs --topic or --broker-id, which limit the scope of the search"
        )
    if options.topic is None and options.partition is not None:
        raise UsageError("--partition needs --topic")
    if options.max_transaction_timeout < 0:
        raise UsageError("--max-transaction-timeout is 0 or more minutes")
    now_ms = int(time.time() * 1000)
    oldest_ms = now_ms - options.max_transaction_timeout * 60_000
    with client_of(Cluster, options) as cluster:
        transactions = TransactionAdmin(cluster)
        places = _places(Admin(cluster), options)
        open_ones: dict[tuple[str, int], Sequence[OpenProducer]] = {}
        young_count = 0
        producers = transactions.describe_producers(places, broker=options.broker_id)
        for place, each_producer in producers.items():
            begun = [each for each in each_producer if each.transaction_start_offset >= 0]
            open_ones[place] = [each for each in begun if each.last_timestamp < oldest_ms]
            young_count += len(begun) - len(open_ones[place])
        found = hanging(transactions, open_ones)
    titles: tuple[str, ...] = (
        "Topic",
        "Partition",
        "ProducerId",
        "ProducerEpoch",
        "CoordinatorEpoch",
    )
    titles += ("StartOffset", "LastTimestamp", "Duration(min)")
    rows = [
        (
            *place,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.transaction_start_offset,
            each.last_timestamp,
            (now_ms - each.last_timestamp) // 60_000,
        )
        for place, each in found
    ]
    if young_count:
        print_error(
            f"{young_count} open transactions have a record of the last "
            f"{options.max_transaction_timeout} minutes and were left out: "
            "see --max-transaction-timeout"
        )
    if options.json:
        names: tuple[str, ...] = (
            "topic",
            "partition",
            "producerId",
            "producerEpoch",
            "coordinatorEpoch",
        )
        names += ("startOffset", "lastTimestamp", "durationMinutes")
        for row in rows:
            print_json(dict(zip(names, row, strict=True)))
        return 0
    _print_rows(titles, rows)
    return 0


def _places(admin: Admin, options: argparse.Namespace) -> list[tuple[str, int]]:
    """Partitions to look at: of a topic, of a broker, or of both."""
    if options.partition is not None:
        return [(options.topic, options.partition)]
    if options.broker_id is not None and options.broker_id not in admin.cluster.nodes:
        raise UsageError(f"the cluster has no broker {options.broker_id}")
    names = [options.topic]
    if options.topic is None:
        names = [topic.name for topic in admin.list_topics()]
    return [
        (topic.name, partition.partition)
        for topic in admin.describe_topics(names)
        for partition in topic.partitions
        if options.broker_id is None or options.broker_id in partition.replicas
    ]


def _abort(options: argparse.Namespace) -> int:
    place = (options.topic, options.partition)
    given = (options.producer_id, options.producer_epoch, options.coordinator_epoch)
    with client_of(Cluster, options) as cluster:
        transactions = TransactionAdmin(cluster)
        if options.start_offset is None:
            if None in given:
                raise UsageError(
                    "name --start-offset, or --producer-id, --producer-epoch and"
                    " --coordinator-epoch"
                )
            transactions.abort(place, OpenProducer(*given, -1, -1, -1))
            return 0
        start = options.start_offset
        found = transactions.describe_producers([place])[place]
        at = [each for each in found if 0 <= each.transaction_start_offset == start]
        if not at:
            print_error(
                f"Could not find any open transactions starting at offset {start} on partition"
                f" {options.topic}-{options.partition}"
            )
            return 1
        if not hanging(transactions, {place: at}):
            print_error(
                f"The transaction at offset {start} does not hang: its coordinator knows it, and it"
                " would be torn. `kafkalite transactions force-terminate ID` ends all of it"
            )
            return 1
        transactions.abort(place, at[0])
    return 0


def _force(options: argparse.Namespace) -> int:
    with client_of(Cluster, options) as cluster:
        transactions = TransactionAdmin(cluster)
        name = _id_of(options)
        transactions.describe(name)  # one that is not known would be made
        transactions.force_terminate(name)
    return 0

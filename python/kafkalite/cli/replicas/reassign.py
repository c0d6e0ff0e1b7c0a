"""`kafkalite reassign`: moves replicas to other brokers and log directories, as
kafka-reassign-partitions, whose files it takes.

    generate    proposes who is to have the replicas of topics; nothing is changed
    execute     begins to move them
    verify      says what is done, and takes the throttles away once all is
    cancel      has replicas stay where they were
    list        says what goes on
"""

import argparse
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafkalite.cli.actions import Actions
from kafkalite.cli.client_config import client_of
from kafkalite.cli.console.terminal import print_listed
from kafkalite.cli.options import (
    UsageError,
    decimal,
    long_argument,
    names_of,
    print_error,
    print_json,
)
from kafkalite.cli.replicas import throttles
from kafkalite.cli.replicas.plan import (
    TOPICS_FORM,
    Plan,
    plan_fields,
    plan_text,
    propose,
    read_plan,
    read_topics,
)
from kafkalite.client.cluster_admin import (
    ClusterAdmin,
    Partition,
    Reassignment,
    Replica,
    ReplicaPlace,
)
from kafkalite.errors import BrokerError
from kafkalite.protocol.codes import REPLICA_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION

EXAMPLES = """
kafkalite reassign generate orders --broker-list 1,2,3
kafkalite reassign execute plan.json --throttle 50000000
kafkalite reassign verify plan.json
kafkalite reassign verify plan.json --wait && echo moved
kafkalite reassign cancel plan.json
kafkalite reassign list
"""

WARNING = """Warning: You must run --verify periodically, until the reassignment completes, to \
ensure the throttle is removed."""
POLL_S = 0.1
WAIT_S = 1.0
"""Between two looks of `verify --wait`."""
UNTHROTTLED = -1


def run(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    return _actions().run(arguments)


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    return _actions().parser


def _actions() -> Actions:
    actions = Actions(
        "kafkalite reassign", "Move replicas to other brokers and log directories.", EXAMPLES
    )
    generate = actions.add(
        "generate", _generate, "propose a plan that moves topics to other brokers"
    )
    generate.add_argument("names", nargs="*", metavar="TOPIC", help="the topics to move")
    generate.add_argument(
        "--topics-to-move-json-file", metavar="FILE", help=f"a file with the topics: {TOPICS_FORM}"
    )
    generate.add_argument(
        "--broker-list",
        type=_brokers,
        required=True,
        metavar="1,2,3",
        help="the brokers to move the topics to",
    )
    generate.add_argument(
        "--disable-rack-aware", action="store_true", help="ignore the racks of the brokers"
    )
    execute = actions.add("execute", _execute, "start to move replicas as a plan says")
    _add_file(execute)
    execute.add_argument(
        "--additional",
        action="store_true",
        help="allow this while other reassignments are in progress; replaces those of the same "
        "partitions",
    )
    execute.add_argument(
        "--throttle",
        type=long_argument,
        default=UNTHROTTLED,
        metavar="BYTES",
        help="the most bytes per second to move between brokers (default: no limit)",
    )
    execute.add_argument(
        "--replica-alter-log-dirs-throttle",
        type=long_argument,
        default=UNTHROTTLED,
        metavar="BYTES",
        help="the most bytes per second to move between log directories (default: no limit)",
    )
    execute.add_argument(
        "--disallow-replication-factor-change",
        action="store_true",
        help="refuse to change the number of replicas of a partition",
    )
    verify = actions.add(
        "verify", _verify, "show the progress of a plan; once it is complete, remove the throttles"
    )
    verify.add_argument(
        "--wait",
        action="store_true",
        help="wait until no replica of the plan is being moved; exit code 1 if replicas are then "
        "not where the plan has them",
    )
    cancel = actions.add("cancel", _cancel, "cancel the moves of a plan that are in progress")
    for each in (verify, cancel):
        _add_file(each)
        each.add_argument(
            "--preserve-throttles", action="store_true", help="do not remove the throttles"
        )
    actions.add("list", _list, "list the reassignments in progress")
    return actions


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="the plan, such as generate proposes"
    )
    parser.add_argument(
        "--reassignment-json-file", metavar="FILE", help="the same, as Kafka's tool takes it"
    )


def _brokers(text: str) -> list[int]:
    numbers = [decimal(each) for each in text.split(",")]
    if None in numbers or len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a list of different brokers, such as 1,2,3"
        )
    return [each for each in numbers if each is not None]


def _plan(options: argparse.Namespace) -> Plan:
    found = [each for each in (options.file, options.reassignment_json_file) if each is not None]
    if len(found) != 1:
        raise UsageError("name one file of a reassignment (kafkalite reassign generate makes one)")
    return read_plan(found[0])


# --- generate -------------------------------------------------------------------------------------


def _generate(options: argparse.Namespace) -> int:
    names = names_of(options.names, None)
    if bool(names) == (options.topics_to_move_json_file is not None):
        raise UsageError("name topics, or a --topics-to-move-json-file")
    topics = names or read_topics(options.topics_to_move_json_file)
    if len(set(topics)) < len(topics):
        raise UsageError("a topic is named twice")
    with client_of(ClusterAdmin, options) as admin:
        current = _current(admin, topics)
        alive = {each.id: each for each in admin.describe_cluster().brokers}
        _refuse_unknown(options.broker_list, alive)
        brokers = [alive[each] for each in options.broker_list]
        start = random.randrange(len(brokers))  # noqa: S311 - else all begin at the same broker
        proposed = propose(current, brokers, start, is_rack_aware=not options.disable_rack_aware)
        log_dirs = _log_dirs(admin, current, alive)
    if options.json:
        fields = {"current": plan_fields(current, log_dirs), "proposed": plan_fields(proposed, {})}
        print_json(fields)
        return 0
    print(f"Current partition replica assignment\n{plan_text(current, log_dirs)}\n")
    print(f"Proposed partition reassignment configuration\n{plan_text(proposed, {})}")
    return 0


def _current(admin: ClusterAdmin, topics: Iterable[str]) -> dict[Partition, list[int]]:
    return {
        (topic.name, row.partition): row.replicas
        for topic in admin.describe_topics(sorted(set(topics)))
        for row in topic.partitions
    }


def _log_dirs(
    admin: ClusterAdmin, current: Mapping[Partition, Sequence[int]], alive: Iterable[int]
) -> dict[Replica, str]:
    """Where the replicas of brokers are that can be asked."""
    known = set(alive)
    replicas = [
        (broker_id, *place)
        for place, found in current.items()
        for broker_id in found
        if broker_id in known
    ]
    places = admin.replica_places(replicas)
    return {each: place.current for each, place in places.items() if place.current is not None}


def _refuse_unknown(wanted: Iterable[int], alive: Iterable[int]) -> None:
    unknown = sorted(set(wanted) - set(alive))
    if unknown:
        raise UsageError(f"unknown broker id {unknown[0]}: the cluster has {_ids(sorted(alive))}")


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


# --- execute --------------------------------------------------------------------------------------


def _execute(options: argparse.Namespace) -> int:
    plan = _plan(options)
    with client_of(ClusterAdmin, options) as admin:
        ongoing = admin.list_reassignments()
        if ongoing and not options.additional:
            print_error(
                "there is a reassignment already: --additional begins this one beside it, or in its"
                " place, and also changes the throttle of one that is given again"
            )
            return 1
        alive = [each.id for each in admin.describe_cluster().brokers]
        _refuse_unknown((each for found in plan.replicas.values() for each in found), alive)
        current = _current(admin, (topic for topic, _ in plan.replicas))
        missing = sorted(plan.replicas.keys() - current.keys())
        if missing:
            print_error(f"there is no partition {_name(missing[0])}")
            return 1
        if not options.json:
            now = {place: current[place] for place in plan.replicas}
            text = plan_text(now, _log_dirs(admin, now, alive))
            print(f"Current partition replica assignment\n\n{text}\n")
            print("Save this to use as the --reassignment-json-file option during rollback")
        _throttle(admin, plan, ongoing, current, options)
        told = admin.alter_reassignments(
            plan.replicas,
            allow_replication_factor_change=not options.disallow_replication_factor_change,
        )
        refused = _report(told, "started", "Error reassigning partition(s)", options)
        if refused:
            return 1
        return _move_directories(admin, plan.log_dirs, options)


def _throttle(
    admin: ClusterAdmin,
    plan: Plan,
    ongoing: Mapping[Partition, Reassignment],
    current: Mapping[Partition, Sequence[int]],
    options: argparse.Namespace,
) -> None:
    network, directories = options.throttle, options.replica_alter_log_dirs_throttle
    if max(network, directories) < 0:
        return
    lines = [WARNING]
    if network >= 0:
        throttles.throttle(admin, throttles.moves(ongoing, plan.replicas, current), network)
        lines.append(f"The inter-broker throttle limit was set to {network} B/s")
    if directories >= 0:
        brokers = (broker_id for broker_id, _, _ in plan.log_dirs)
        throttles.throttle_directories(admin, brokers, directories)
        lines.append(f"The replica-alter-dir throttle limit was set to {directories} B/s")
    if not options.json:
        print("\n".join(lines))


def _report(
    told: Mapping[Partition, BrokerError | None],
    done: str,
    failure: str,
    options: argparse.Namespace,
) -> bool:
    """Shows what became of each partition; True if one was refused."""
    refused = {place: error for place, error in sorted(told.items()) if error is not None}
    if options.json:
        for place in sorted(told):
            error = refused.get(place)
            print_json({**_fields(place), done: error is None, "error": error and error.name})
    elif not refused:
        plural = "" if len(told) == 1 else "s"
        verb = "for:" if done == "cancelled" else "for"
        head = f"Successfully {done} partition reassignment{plural} {verb}"
        print_listed(head, [_name(place) for place in sorted(told)], ",")
    if refused:
        print_error(f"{failure}:")
        for error in refused.values():
            print_error(error)
    return bool(refused)


def _move_directories(
    admin: ClusterAdmin, wanted: Mapping[Replica, str], options: argparse.Namespace
) -> int:
    """Asks brokers to move replicas between directories: again and again while they have not got
    them yet, for as long as the command may take."""
    left = dict(wanted)
    due = time.monotonic() + options.timeout / 1000
    while left:
        for replica, refusal in admin.move_replicas(left).items():
            if refusal is None:
                path = left.pop(replica)
                broker_id, topic, index = replica
                if options.json:
                    print_json({**_fields((topic, index)), "broker": broker_id, "logDir": path})
                else:
                    print(
                        f"Successfully started moving log directory to {path} for replica "
                        f"{topic}-{index} with broker {broker_id}"
                    )
            elif refusal.code != REPLICA_NOT_AVAILABLE:
                print_error(f"broker {replica[0]}: {refusal}")
                return 1
        if left and time.monotonic() >= due:
            replicas = ",".join(f"{t}-{i}-{b}" for b, t, i in sorted(left))
            print_error(f"timed out before log directory moves could be started for {replicas}")
            return 1
        if left:
            time.sleep(POLL_S)
    return 0


# --- verify ---------------------------------------------------------------------------------------


def _verify(options: argparse.Namespace) -> int:
    plan = _plan(options)
    with client_of(ClusterAdmin, options) as admin:
        progress = _progress(admin, plan)
        while options.wait and progress.is_moving(plan):
            time.sleep(WAIT_S)
            progress = _progress(admin, plan)
        ongoing, places = progress.ongoing, progress.places
        if not options.json:
            print("Status of partition reassignment:")
        for place, wanted in sorted(plan.replicas.items()):
            replicas = progress.replicas(place)
            if options.json:
                fields = {"replicas": replicas, "targetReplicas": wanted}
                is_done = place not in ongoing
                print_json({**_fields(place), "done": is_done, **fields})
            else:
                print(_partition_line(place, wanted, replicas, is_ongoing=place in ongoing))
        for replica, path in sorted(plan.log_dirs.items()):
            _show_move(replica, path, places[replica], options)
        # Kafka's tool says by its lines alone what is complete; who waits is told by the exit code.
        code = 1 if options.wait and not progress.is_reached(plan) else 0
        if ongoing or progress.is_moving(plan) or options.preserve_throttles:
            return code
        if not options.json:
            print()
        return max(code, _clear(admin, plan, options))


class _Progress(NamedTuple):
    """Where the replicas of a plan are."""

    ongoing: Mapping[Partition, Reassignment]
    """The reassignments that go on, also of others than the plan's."""
    current: Mapping[Partition, list[int]]
    places: Mapping[Replica, ReplicaPlace]

    def replicas(self, place: Partition) -> list[int]:
        """The replicas of a partition, those to come included; none of one that does not exist."""
        found = self.ongoing.get(place)
        return self.current.get(place, []) if found is None else found.replicas

    def is_moving(self, plan: Plan) -> bool:
        """Says whether a replica of the plan is being moved."""
        is_reassigned = any(place in self.ongoing for place in plan.replicas)
        return is_reassigned or any(each.future is not None for each in self.places.values())

    def is_reached(self, plan: Plan) -> bool:
        """Says whether all replicas are where the plan has them."""
        wanted, paths = plan.replicas.items(), plan.log_dirs.items()
        return (
            not self.is_moving(plan)
            and all(self.replicas(place) == replicas for place, replicas in wanted)
            and all(self.places[replica].current == path for replica, path in paths)
        )


def _progress(admin: ClusterAdmin, plan: Plan) -> _Progress:
    ongoing = admin.list_reassignments()
    current = _current_or_none(admin, plan.replicas)
    return _Progress(ongoing, current, admin.replica_places(plan.log_dirs))


def _current_or_none(
    admin: ClusterAdmin, places: Iterable[Partition]
) -> dict[Partition, list[int]]:
    """The replicas of the partitions whose topics exist."""
    found: dict[Partition, list[int]] = {}
    for topic in sorted({topic for topic, _ in places}):
        try:
            found |= _current(admin, [topic])
        except BrokerError as error:
            if error.code != UNKNOWN_TOPIC_OR_PARTITION:
                raise
    return found


def _partition_line(
    place: Partition, wanted: Sequence[int], replicas: Sequence[int], *, is_ongoing: bool
) -> str:
    if is_ongoing:
        return f"Reassignment of partition {_name(place)} is still in progress."
    if list(wanted) == list(replicas):
        return f"Reassignment of partition {_name(place)} is completed."
    return (
        f"There is no active reassignment of partition {_name(place)}, but replica set is "
        f"{_ids(replicas)} rather than {_ids(wanted)}."
    )


def _show_move(
    replica: Replica, path: str, place: ReplicaPlace, options: argparse.Namespace
) -> None:
    broker_id, topic, index = replica
    if options.json:
        directories = {"logDir": place.current, "futureLogDir": place.future, "targetLogDir": path}
        print_json({**_fields((topic, index)), "broker": broker_id, **directories})
        return
    what = f"{topic}-{index}"
    if place.current is None:
        line = (
            f"Partition {what} is not found in any live log dir on broker {broker_id}. There is "
            "likely an offline log directory on the broker."
        )
    elif place.future == path:
        line = f"Reassignment of replica {what}-{broker_id} is still in progress."
    elif place.future is not None:
        line = (
            f"Partition {what} on broker {broker_id} is being moved to log dir {place.future} "
            f"instead of {path}."
        )
    elif place.current == path:
        line = f"Reassignment of replica {what}-{broker_id} completed successfully."
    else:
        line = (
            f"Partition {what} on broker {broker_id} is not being moved from log dir "
            f"{place.current} to {path}."
        )
    print(line)


def _clear(admin: ClusterAdmin, plan: Plan, options: argparse.Namespace) -> int:
    """Ends all throttles: which brokers a reassignment has taken from is not known any more."""
    brokers = {each.id for each in admin.describe_cluster().brokers}
    brokers |= {each for replicas in plan.replicas.values() for each in replicas}
    topics = {topic for topic, _ in plan.replicas}
    if not options.json:
        plural = "" if len(brokers) == 1 else "s"
        print(f"Clearing broker-level throttles on broker{plural} {_ids(sorted(brokers))}")
        plural = "" if len(topics) == 1 else "s"
        print(f"Clearing topic-level throttles on topic{plural} {','.join(sorted(topics))}")
    return 0 if throttles.clear(admin, brokers, topics) else 1


# --- cancel, list ---------------------------------------------------------------------------------


def _cancel(options: argparse.Namespace) -> int:
    plan = _plan(options)
    with client_of(ClusterAdmin, options) as admin:
        ongoing = admin.list_reassignments(plan.replicas)
        if ongoing:
            told = admin.alter_reassignments(dict.fromkeys(ongoing))
            failure = "Error cancelling partition reassignment(s)"
            if _report(told, "cancelled", failure, options):
                return 1
        elif not options.json:
            print("None of the specified partition reassignments are active.")
        places = admin.replica_places(plan.log_dirs)
        back = {
            replica: place.current
            for replica, place in places.items()
            if place.future is not None and place.current is not None
        }
        if back:
            code = _move_directories(admin, back, options)
            if code:
                return code
        elif not options.json:
            print("None of the specified partition moves are active.")
        return 0 if options.preserve_throttles else _clear(admin, plan, options)


def _list(options: argparse.Namespace) -> int:
    with client_of(ClusterAdmin, options) as admin:
        found = sorted(admin.list_reassignments().items())
    if options.json:
        for place, each in found:
            replicas = {"replicas": each.replicas, "adding": each.adding, "removing": each.removing}
            print_json({**_fields(place), **replicas})
        return 0
    print("Current partition reassignments:" if found else "No partition reassignments found.")
    for place, each in found:
        adding = f" adding: {_ids(each.adding)}." if each.adding else ""
        removing = f" removing: {_ids(each.removing)}." if each.removing else ""
        print(f"{_name(place)}: replicas: {_ids(each.replicas)}.{adding}{removing}")
    return 0


def _name(place: Partition) -> str:
    return f"{place[0]}-{place[1]}"


def _fields(place: Partition) -> dict[str, object]:
    return {"topic": place[0], "partition": place[1]}

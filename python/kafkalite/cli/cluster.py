"""`kafkalite cluster`: the brokers and controllers of a cluster, and what it has agreed on; and the
end of a broker's registration, as kafka-cluster has it."""

import argparse

from kafkalite.cli.actions import Actions
from kafkalite.cli.client_config import client_of
from kafkalite.cli.options import int_argument, print_json
from kafkalite.client.admin import BrokerDescription, ClusterDescription, uuid_text
from kafkalite.client.cluster_admin import ClusterAdmin, QuorumDescription, QuorumReplica
from kafkalite.client.network.connection import peer_text
from kafkalite.errors import BrokerError, UnsupportedVersionError

EXAMPLES = """
kafkalite cluster
kafkalite cluster --bootstrap-server broker:9092 --versions
kafkalite cluster cluster-id
kafkalite cluster unregister --id 4
"""

NO_ID = bytes(16)


def run(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    return _actions().run(arguments)


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    return _actions().parser


def _actions() -> Actions:
    actions = Actions(
        "kafkalite cluster",
        "Show the brokers of a cluster, including fenced ones, its controllers, the lag of each in "
        "the metadata log, and the features; or unregister a broker. Without an action, this is "
        "describe.",
        EXAMPLES,
        default="describe",
    )
    describe = actions.add(
        "describe",
        _describe,
        "show brokers, controllers and features",
        "kafkalite cluster\nkafkalite cluster describe --bootstrap-server broker:9092 --versions",
    )
    describe.add_argument(
        "--versions", action="store_true", help="also show the API versions that a broker supports"
    )
    actions.add("cluster-id", _cluster_id, "show the id of the cluster")
    unregister = actions.add(
        "unregister", _unregister, "remove a broker that is gone for good from the cluster"
    )
    unregister.add_argument(
        "--id", type=int_argument, required=True, metavar="ID", help="the id of the broker"
    )
    return actions


def _cluster_id(options: argparse.Namespace) -> int:
    with client_of(ClusterAdmin, options) as admin:
        found = admin.describe_cluster().cluster_id
    if options.json:
        print_json({"clusterId": found})
    else:
        print(f"Cluster ID: {found}")
    return 0


def _unregister(options: argparse.Namespace) -> int:
    with client_of(ClusterAdmin, options) as admin:
        admin.unregister_broker(options.id)
    if options.json:
        print_json({"id": options.id, "unregistered": True})
    else:
        print(f"Broker {options.id} is no longer registered.")
    return 0


# --- describe -------------------------------------------------------------------------------------


def _describe(options: argparse.Namespace) -> int:
    with client_of(ClusterAdmin, options) as admin:
        cluster = admin.describe_cluster(include_fenced=True)
        quorum = _quorum(admin)
        connection = admin.cluster.connection()
        features = dict(sorted(connection.features.items()))
        versions = {str(key): list(each) for key, each in sorted(connection.versions.items())}
    if options.json:
        fields = _as_json(cluster, quorum) | {"features": features}
        print_json(fields | ({"versions": versions} if options.versions else {}))
        return 0
    print(f"Cluster ID: {cluster.cluster_id}")
    for broker in cluster.brokers:
        print(_broker_line(broker, cluster, quorum))
    if quorum is not None:
        print("\n".join(_quorum_lines(cluster, quorum)))
    for name, level in features.items():
        print(f"\tFeature: {name}\tFinalizedVersionLevel: {level}")
    if options.versions:
        for key, (lowest, highest) in versions.items():
            print(f"\tApiKey: {key}\tVersions: {lowest} to {highest}")
    return 0


def _quorum(admin: ClusterAdmin) -> QuorumDescription | None:
    """The controllers; None where there is no quorum, or who asks may not know it."""
    try:
        return admin.describe_quorum()
    except (BrokerError, UnsupportedVersionError):
        return None


def _broker_line(
    broker: BrokerDescription, cluster: ClusterDescription, quorum: QuorumDescription | None
) -> str:
    # With a quorum, brokers name any of themselves as the one that forwards to the controller.
    is_controller = quorum is None and broker.id == cluster.controller_id
    line = f"\tBroker: {broker.id}{' (controller)' if is_controller else ''}"
    line += f"\tAddress: {peer_text(broker.host, broker.port)}"
    if broker.rack:
        line += f"\tRack: {broker.rack}"
    line += f"\tState: {'fenced' if broker.is_fenced else 'unfenced'}"
    lags = {each.id: quorum.lag(each) for each in quorum.observers} if quorum is not None else {}
    return line + (f"\tMetadataLag: {lags[broker.id]}" if broker.id in lags else "")


def _quorum_lines(cluster: ClusterDescription, quorum: QuorumDescription) -> list[str]:
    head = f"\tLeaderId: {quorum.leader}\tLeaderEpoch: {quorum.leader_epoch}"
    lines = [f"{head}\tHighWatermark: {quorum.high_watermark}"]
    for each in sorted(quorum.voters):
        leads = " (leader)" if each.id == quorum.leader else ""
        addresses = "".join(
            f"\tAddress: {peer_text(host, port)}"
            for _, host, port in quorum.listeners.get(each.id, ())
        )
        lines.append(f"\tController: {each.id}{leads}{addresses}{_progress(each, quorum)}")
    brokers = {broker.id for broker in cluster.brokers}
    lines += [
        f"\tObserver: {each.id}{_progress(each, quorum)}"
        for each in sorted(quorum.observers)
        if each.id not in brokers
    ]
    return lines


def _progress(replica: QuorumReplica, quorum: QuorumDescription) -> str:
    return f"\tLogEndOffset: {replica.log_end_offset}\tLag: {quorum.lag(replica)}"


def _as_json(cluster: ClusterDescription, quorum: QuorumDescription | None) -> dict[str, object]:
    return {
        "clusterId": cluster.cluster_id,
        "controllerId": cluster.controller_id,
        "brokers": [
            {
                "id": each.id,
                "host": each.host,
                "port": each.port,
                "rack": each.rack,
                "isFenced": each.is_fenced,
            }
            for each in cluster.brokers
        ],
        "quorum": quorum
        and {
            "leaderId": quorum.leader,
            "leaderEpoch": quorum.leader_epoch,
            "highWatermark": quorum.high_watermark,
            "voters": [_replica_as_json(each, quorum) for each in sorted(quorum.voters)],
            "observers": [_replica_as_json(each, quorum) for each in sorted(quorum.observers)],
        },
    }


def _replica_as_json(replica: QuorumReplica, quorum: QuorumDescription) -> dict[str, object]:
    has_id = replica.directory_id != NO_ID
    return {
        "id": replica.id,
        "directoryId": uuid_text(replica.directory_id) if has_id else None,
        "endpoints": [
            {"name": name, "host": host, "port": port}
            for name, host, port in quorum.listeners.get(replica.id, ())
        ],
        "logEndOffset": replica.log_end_offset,
        "lag": quorum.lag(replica),
        "lastFetchTimestamp": replica.last_fetch_ms,
        "lastCaughtUpTimestamp": replica.last_caught_up_ms,
    }

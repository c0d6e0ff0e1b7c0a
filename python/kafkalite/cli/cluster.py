"""`kafkalite cluster`: the brokers of a cluster and what it has agreed on."""

import argparse

from kafkalite.cli.client_config import add_server, client_of, parse
from kafkalite.cli.options import new_parser, print_json
from kafkalite.client.admin import Admin

EXAMPLES = """
kafkalite cluster
kafkalite cluster --bootstrap-server broker:9092 --versions
"""


def run(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    options = parse(command_line(), arguments)
    with client_of(Admin, options) as admin:
        _show(admin, options)
    return 0


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    parser = new_parser(
        "kafkalite cluster", "Show the brokers of a cluster and its features.", EXAMPLES
    )
    add_server(parser)
    parser.add_argument(
        "--versions", action="store_true", help="which versions of which requests a broker speaks"
    )
    return parser


def _show(admin: Admin, options: argparse.Namespace) -> None:
    cluster = admin.describe_cluster()
    connection = admin.cluster.connection()
    features = dict(sorted(connection.features.items()))
    versions = {str(key): list(versions) for key, versions in sorted(connection.versions.items())}
    if options.json:
        fields = {
            "clusterId": cluster.cluster_id,
            "controllerId": cluster.controller_id,
            "brokers": [
                {"id": each.id, "host": each.host, "port": each.port, "rack": each.rack}
                for each in cluster.brokers
            ],
            "features": features,
        }
        print_json(fields | ({"versions": versions} if options.versions else {}))
        return
    print(f"Cluster ID: {cluster.cluster_id}")
    for broker in cluster.brokers:
        is_controller = " (controller)" if broker.id == cluster.controller_id else ""
        rack = f"\tRack: {broker.rack}" if broker.rack else ""
        host = f"[{broker.host}]" if ":" in broker.host else broker.host
        print(f"\tBroker: {broker.id}{is_controller}\tAddress: {host}:{broker.port}{rack}")
    for name, level in features.items():
        print(f"\tFeature: {name}\tFinalizedVersionLevel: {level}")
    if options.versions:
        for key, (lowest, highest) in sorted(connection.versions.items()):
            print(f"\tApiKey: {key}\tVersions: {lowest} to {highest}")

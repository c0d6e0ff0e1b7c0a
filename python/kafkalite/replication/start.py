"""Puts the parts of a broker together that joins a cluster, out of its configuration and its log
directories."""

from collections.abc import Collection
from pathlib import Path
from signal import Signals

from kafkalite import _native
from kafkalite.config import Config
from kafkalite.listeners import between_brokers
from kafkalite.metadata.image import BrokerEndpoint
from kafkalite.metadata.store import MetadataLogLimits
from kafkalite.replication.admission import RANGES
from kafkalite.replication.broker_epoch import forget, previous_epoch
from kafkalite.replication.lifecycle import Identity
from kafkalite.replication.local_copy import open_copy
from kafkalite.replication.member import Member
from kafkalite.service.stderr_log import Log


def join(
    config: Config,
    log: Log,
    claimed: _native.ClaimedDirectories,
    cluster_id: str,
    endpoints: tuple[BrokerEndpoint, ...],
    stop_signals: Collection[Signals],
) -> Member:
    """Registers the broker; returns once the metadata up to there is known. Raises as
    `Member.join`."""
    directories = claimed.directories
    is_durable = config["kafkalite.acks.fsync"] == "group"
    limits = MetadataLogLimits.of(config)
    opened = open_copy(claimed, Path(config.metadata_dir()), limits, log.warning)
    if opened.observed.end_offset:
        log.info(
            f"the metadata up to offset {opened.observed.end_offset} is in "
            f"{config.metadata_dir()}; the controllers are asked for the rest"
        )
    identity = Identity(
        node_id=config["node.id"],
        cluster_id=cluster_id,
        incarnation_id=_native.random_uuid_bytes(),
        endpoints=endpoints,
        features=tuple((name, low, high) for name, (low, high) in RANGES.items()),
        rack=config["broker.rack"] or None,
        directories=tuple((str(each[0]), each[1]) for each in directories),
        previous=previous_epoch(directories, count=len(config.log_dirs()), is_durable=is_durable),
    )
    if not is_durable:
        forget(each[0] for each in directories)
    member = Member(
        identity,
        config.controllers(),
        config.engine_configs,
        log,
        opened,
        is_durable=is_durable,
        heartbeat_ms=config["broker.heartbeat.interval.ms"],
        session_ms=config["broker.session.timeout.ms"],
        registration_ms=config["initial.broker.registration.timeout.ms"],
        directory_failure_ms=config["log.dir.failure.timeout.ms"],
        lag_ms=config["replica.lag.time.max.ms"],
        inter_broker_listener=between_brokers(config),
    )
    member.join(stop_signals)
    if not member.kraft_version and not config["controller.quorum.voters"]:
        log.info(
            "the voters of the controllers are static (kraft.version 0): Kafka's own broker would "
            "not start with this file, but with controller.quorum.voters in place of "
            "controller.quorum.bootstrap.servers"
        )
    return member

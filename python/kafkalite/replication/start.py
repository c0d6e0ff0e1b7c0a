"""Puts the parts of a broker together that joins a cluster, out of its configuration and its log
directories."""

from collections.abc import Collection, Sequence
from pathlib import Path
from signal import Signals

from kafkalite import _native
from kafkalite.config import Config
from kafkalite.metadata.image import Endpoint
from kafkalite.metadata.store import Limits
from kafkalite.replication.lifecycle import Identity
from kafkalite.replication.local_copy import open_copy
from kafkalite.replication.member import RANGES, Member
from kafkalite.service.stderr_log import Log


def join(
    config: Config,
    log: Log,
    claimed: _native.ClaimedDirectories,
    cluster_id: str,
    endpoints: tuple[Endpoint, ...],
    stop_signals: Collection[Signals],
) -> Member:
    """Registers the broker; returns once the metadata up to there is known. Raises as
    `Member.join`."""
    directories = claimed.directories
    limits = Limits.of(config)
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
        previous_epoch=_previous_epoch(directories),
    )
    member = Member(
        identity,
        config.controllers(),
        config.engine_configs,
        log,
        opened,
        heartbeat_ms=config["broker.heartbeat.interval.ms"],
        session_ms=config["broker.session.timeout.ms"],
        registration_ms=config["initial.broker.registration.timeout.ms"],
    )
    member.join(stop_signals)
    return member


def _previous_epoch(directories: Sequence[tuple[object, bytes, bool, int | None]]) -> int:
    """The epoch that a clean stop has left in each directory; -1 where one was not stopped cleanly,
    or they differ."""
    epochs = {epoch if was_clean else None for _, _, was_clean, epoch in directories}
    (epoch,) = epochs if len(epochs) == 1 else (None,)
    return -1 if epoch is None else epoch

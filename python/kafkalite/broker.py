"""Puts a broker together: sockets, log directories, handlers, threads. No other place does; the
parts of the metadata among each other are put together by `metadata/solo.py` (`start`).

`run` is the broker itself, in this process, from start to clean stop; `child.py` has one in a child
process.
"""

import _socket
import gc
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafkalite import _native
from kafkalite.api import Handler, find_handlers, forwarded_only
from kafkalite.child import READY_PREFIX, TEMPORARY_PREFIX
from kafkalite.config import Config
from kafkalite.config.environment import notify_socket
from kafkalite.config.keys import MIN_INSYNC_REPLICAS
from kafkalite.config.properties import parse_properties
from kafkalite.context import Context
from kafkalite.errors import InvalidArgumentError, KafkaliteError, LoadStoppedError
from kafkalite.listeners import (
    ConnectionLimits,
    Endpoint,
    advertised_listeners,
    arrow_listener,
    bind,
    client_listeners,
    connection_limits,
    metrics_listener,
    place_between_brokers,
    socket_buffers,
)
from kafkalite.metadata import solo
from kafkalite.metadata.activation import Registration
from kafkalite.metadata.engine import Metadata
from kafkalite.metadata.image import BROKER, BrokerEndpoint
from kafkalite.metadata.store import MetadataLogLimits
from kafkalite.server import ControlServer
from kafkalite.service.loading import missing_sentences, report_loading
from kafkalite.service.stderr_log import Log
from kafkalite.service.supervisor import Supervisor
from kafkalite.timers import wall_ms

if TYPE_CHECKING:
    from kafkalite.service import metrics_server

METRICS_BACKLOG = 16
CONTROL_THREADS = 2
"""One works; the other goes on when that does not come back from a log directory."""
SAME_SIGNAL_S = 1.0
"""A signal that comes so soon behind the first one counts as the same: a terminal sends Ctrl-C to
all of its programs, and some of them pass it on to those that they have started."""
YOUNG_OBJECTS_MAX = 5_000
"""Beyond them garbage is collected; a round of the control thread with fifty commits has more than
Python's 700, and next to none are garbage by cycles."""


def run(config: Config, log: Log) -> int:
    """A broker until SIGTERM, SIGINT or SIGHUP; returns the exit code. Must run in the main thread.

    Raises what keeps it from starting, with nothing left behind.
    """
    # Blocked here and so in every thread that is started below; `sigwait` takes them.
    stop_signals = {signal.SIGTERM, signal.SIGINT}
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # which nohup says
        stop_signals.add(signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals)
    is_orphan = threading.Event()
    if config["kafkalite.die.with.parent"]:
        told = (os.getppid(), is_orphan)
        threading.Thread(target=_watch_parent, args=told, name="parent", daemon=True).start()
    try:
        return _serve(config, log, stop_signals, is_orphan)
    except RuntimeError as error:
        if "thread" not in str(error):
            raise
        raise KafkaliteError(
            f"{error}: the limit of threads (ulimit -u, pids.max) or of memory is reached"
        ) from error
    finally:
        if is_orphan.is_set() and config["kafkalite.remove.with.parent"]:
            _remove_temporary(config.log_dirs())


class _Listening(NamedTuple):
    """Sockets that are bound and do not listen yet, and what there is to say of each listener, in
    the order of `listeners`."""

    sockets: list[_socket.socket]
    bound: list[Endpoint]
    advertised: list[Endpoint]
    """The endpoints that clients are told."""
    limits: ConnectionLimits
    arrow_socket: _socket.socket | None
    arrow_endpoint: Endpoint | None
    metrics_socket: _socket.socket | None
    metrics_endpoint: Endpoint | None

    @property
    def names(self) -> list[str]:
        """The names of the listeners."""
        return [each.name for each in self.bound]


class _Failure:
    """A failure that ends the broker: it stops as by SIGTERM, and its exit code says so."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._has_come = False
        self._is_over = False

    def on_control_end(self) -> None:
        """A control thread has ended."""
        if not self._is_over and not self._has_come:
            self._has_come = True
            os.kill(os.getpid(), signal.SIGTERM)

    def on_metadata_failure(self, sentence: str) -> None:
        """As Kafka halts: what is on disk and what is served may have come apart."""
        if not self._is_over and not self._has_come:
            self._log.error(f"{sentence}; the broker stops")
        self.on_control_end()

    def settle(self) -> bool:
        """The broker stops: what ends from now on is no failure. Whether there was one before."""
        self._is_over = True
        return self._has_come


def _serve(
    config: Config, log: Log, stop_signals: set[signal.Signals], is_orphan: threading.Event
) -> int:
    """As `run`, once the signals are blocked."""
    sys.setswitchinterval(0.0005)
    # A service manager's word is for the program that is the service, not for a broker of its own.
    is_child = config["kafkalite.die.with.parent"]
    supervisor = Supervisor(None if is_child else notify_socket(), log.warning)
    # First of all what may be refused: nothing has been touched then.
    listening = _bind_all(config)
    handlers = find_handlers()
    if not config.is_controller:
        handlers |= forwarded_only()
    try:
        opened = _open(config, log, supervisor, handlers, listening.advertised, stop_signals)
    except LoadStoppedError:
        log.info("stopped before the logs were loaded: the next start loads them")
        return 0
    core, metadata = opened
    gc.freeze()  # what has been imported and loaded is never looked through
    gc.set_threshold(YOUNG_OBJECTS_MAX)
    gc.enable()
    _start_core(core, config, handlers, listening, metadata)
    obey = partial(_obey_changes, core, config, listening.names, log)
    obey()
    metadata.publisher.on_broker_configs(obey)
    arrow_server = _serve_arrow(core, config, listening)
    for bound, told in zip(listening.bound, listening.advertised, strict=True):
        log.info(f"listener {bound.name} on {bound}, clients are told {told}")
    if arrow_server is not None:
        log.info(f"Arrow endpoint on {listening.arrow_endpoint}")
    if listening.metrics_endpoint is not None:
        log.info(f"metrics on http://{listening.metrics_endpoint}/metrics")
    failure = _Failure(log)
    metadata.on_failure(failure.on_metadata_failure)
    context = Context(core, config, log, metadata)
    metadata.change_by(context)
    context.timers.call_at(context.now_ms(), context.load_coordinators)
    control = _start_control(ControlServer(context, handlers, failure.on_control_end))
    metrics_server = _serve_metrics(listening.metrics_socket, context, handlers)
    log.room_wait_ms = 0
    _say(_ready_line(config, listening), log)
    supervisor.serving(",".join(map(str, listening.advertised)))
    signal.sigwait(stop_signals)
    supervisor.stopping()
    is_broken = failure.settle()
    log.info("stopping")
    # Without its program nobody is left to wait for: the controllers are gone with it, or fence it.
    is_controlled = config["controlled.shutdown.enable"] and not is_broken
    if is_controlled and not is_orphan.is_set():
        _leave(metadata, stop_signals, is_orphan)
    context.begin_stop()
    if arrow_server is not None:
        arrow_server.stop()
    if metrics_server is not None:
        metrics_server.stop()
    core.stop()
    context.is_closed = True
    for thread in control:
        thread.join()
    is_clean = _close(core, metadata, log)
    log.info("stopped")
    return 1 if is_broken or not is_clean else 0


def _leave(
    metadata: Metadata, stop_signals: set[signal.Signals], is_orphan: threading.Event
) -> None:
    """Has the controllers let the broker go, or a second signal end the wait for that, or the end
    of the program that has started it."""
    due = time.monotonic() + SAME_SIGNAL_S

    def give_up() -> None:
        signal.sigwait(stop_signals)
        while time.monotonic() < due and not is_orphan.is_set():
            signal.sigwait(stop_signals)
        metadata.leave_at_once()

    with suppress(RuntimeError):  # no thread is to be had: the wait ends by itself
        threading.Thread(target=give_up, name="second signal", daemon=True).start()
    metadata.leave()


def _bind_all(config: Config) -> _Listening:
    """Binds all sockets. Raises InvalidArgumentError for what cannot be listened on."""
    endpoints = client_listeners(config)
    sockets = [bind(endpoint, socket_buffers(config)) for endpoint in endpoints]
    bound = [
        Endpoint(endpoint.name, endpoint.host, each.getsockname()[1])
        for endpoint, each in zip(endpoints, sockets, strict=True)
    ]
    arrow = _bind_beside(config, "kafkalite.arrow.listener", arrow_listener(config))
    metrics = _bind_beside(config, "kafkalite.metrics.listener", metrics_listener(config))
    advertised = advertised_listeners(config, bound)
    limits = connection_limits(config, [each.name for each in bound])
    return _Listening(sockets, bound, advertised, limits, *arrow, *metrics)


def _start_core(
    core: _native.BrokerCore,
    config: Config,
    handlers: Mapping[int, Handler],
    listening: _Listening,
    metadata: Metadata,
) -> None:
    """Has clients served: by Rust at once, by Python when the control thread runs. A broker among
    others follows their leaders from now on."""
    for each in listening.sockets:
        each.listen(config["socket.listen.backlog.size"])
    control_keys = [
        (each.key, each.min_version, each.min_version, each.max_version, each.first_flexible)
        for each in handlers.values()
        if each.key not in core.native_keys()
    ]
    between = place_between_brokers(config, listening.names)
    core.start(
        [each.detach() for each in listening.sockets],
        control_keys,
        names=listening.names,
        limits=listening.limits,
        registration=None if config.is_controller else (metadata.broker_epoch, between),
    )


def _serve_arrow(
    core: _native.BrokerCore, config: Config, listening: _Listening
) -> _native.ArrowServer | None:
    """Starts the Arrow endpoint, if there is to be one."""
    if listening.arrow_socket is None:
        return None
    listening.arrow_socket.listen(config["socket.listen.backlog.size"])
    descriptor = listening.arrow_socket.detach()
    return core.serve_arrow(descriptor, config["connections.max.idle.ms"])


def _start_control(server: ControlServer) -> list[threading.Thread]:
    # Daemons, so that one is no reason to stay where the next cannot be started.
    threads = [
        threading.Thread(target=server.run, name="control", daemon=True)
        for _ in range(CONTROL_THREADS)
    ]
    for thread in threads:
        thread.start()
    return threads


def _ready_line(config: Config, listening: _Listening) -> str:
    """The line with which a start ends on stdout; `child.py` reads it."""
    words = [READY_PREFIX + ",".join(map(str, listening.advertised))]
    if config["kafkalite.die.with.parent"]:
        # Clients may be told others: a parent that starts it again needs those that are bound.
        bound = ",".join(f"{each.name}://{each}" for each in listening.bound)
        words.append(f"listeners={bound}")
        if listening.arrow_endpoint is not None:
            words.append(f"kafkalite.arrow.listener={listening.arrow_endpoint}")
        if listening.metrics_endpoint is not None:
            words.append(f"kafkalite.metrics.listener={listening.metrics_endpoint}")
    return " ".join([*words, f"pid={os.getpid()}\n"])


class CleanerSettings(NamedTuple):
    """`log.cleaner.dedupe.buffer.size`, `log.cleaner.io.buffer.load.factor`,
    `log.cleaner.backoff.ms`."""

    dedupe_buffer_bytes: int
    load_factor: float
    backoff_ms: int


def _cleaner_settings(config: Config) -> CleanerSettings:
    return CleanerSettings(
        config["log.cleaner.dedupe.buffer.size"],
        config["log.cleaner.io.buffer.load.factor"],
        config["log.cleaner.backoff.ms"],
    )


def _obey_changes(
    core: _native.BrokerCore, config: Config, listeners: Sequence[str], log: Log
) -> None:
    """Has the core obey what is set for this broker, or for all, while it runs; what topics
    inherit, the publisher tells their logs."""
    core.set_cleaner(_cleaner_settings(config))
    core.set_replication_throttles(
        config["leader.replication.throttled.rate"], config["follower.replication.throttled.rate"]
    )
    core.moves.set_rate(config["replica.alter.log.dirs.io.max.bytes.per.second"])
    try:
        core.set_connection_limits(connection_limits(config, listeners))
    except InvalidArgumentError as error:
        log.warning(f"the limits of connections stay as they were: {error}")


def _close(core: _native.BrokerCore, metadata: Metadata, log: Log) -> bool:
    """The end of a clean stop, after all requests. Each directory has its turn, whatever became of
    the others; the log names those that could not be stopped cleanly. Returns whether all were."""
    reasons = []
    broker_epoch = metadata.broker_epoch
    closed: list[list[tuple[str, str]]] = []
    closing = threading.Thread(target=lambda: closed.append(core.close(broker_epoch)))
    # The logs of topics need nothing of the metadata's last records, of which there is one for each
    # partition, and are closed meanwhile.
    try:
        closing.start()
    except RuntimeError:
        closing.run()
    try:
        metadata.stop(core)
    except KafkaliteError as error:
        reasons.append(str(error))
    if closing.is_alive():
        closing.join()
    (failed,) = closed
    reasons += [reason for _, reason in failed]
    if not reasons:
        return True
    again = f" the logs of {', '.join(path for path, _ in failed)}" if failed else " the metadata"
    log.error(
        "not stopped cleanly; no acknowledged record is lost, for the next start reads"
        f"{again} again ({'; '.join(reasons)})"
    )
    return False


def _say(line: str, log: Log) -> None:
    """Writes a line on stdout. If that has no room or no reader, the broker serves all the same."""
    try:
        sys.stdout.write(line)
        sys.stdout.flush()
    except OSError as error:
        log.warning(f"stdout cannot be written: {error.strerror}; the line was: {line.rstrip()}")
        # Or what is left in the buffer fails again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _bind_beside(
    config: Config, key: str, wanted: Endpoint | None
) -> tuple[_socket.socket | None, Endpoint | None]:
    """The socket of what is served beside Kafka's protocol, if it is to be. The configuration
    names its port from now on."""
    if wanted is None:
        return None, None
    bound = bind(wanted, socket_buffers(config), key)
    endpoint = wanted._replace(port=bound.getsockname()[1])
    config.settle(key, str(endpoint))
    return bound, endpoint


def _serve_metrics(
    bound: _socket.socket | None, context: Context, handlers: Mapping[int, Handler]
) -> "metrics_server.MetricsServer | None":
    """Begins to answer who asks for the metrics, if anybody is to."""
    if bound is None:
        return None
    import socket

    from kafkalite.service import metrics, metrics_server

    names = {each.key: each.name for each in handlers.values()} | context.core.native_keys()

    def make_page() -> bytes:
        return metrics.page(metrics.families(context.core, context, names))

    bound.listen(METRICS_BACKLOG)
    listener = socket.socket(fileno=bound.detach())
    endpoint = metrics_server.MetricsServer(listener, make_page, context.log.warning)
    endpoint.start()
    return endpoint


def _open(
    config: Config,
    log: Log,
    supervisor: Supervisor,
    handlers: Mapping[int, Handler],
    advertised: list[Endpoint],
    stop_signals: set[signal.Signals],
) -> tuple[_native.BrokerCore, Metadata]:
    """Takes the log directories, reads the metadata, loads the logs. What was repaired is in the
    log. Raises LoadStoppedError if one of `stop_signals` comes meanwhile."""
    config.check_directories()
    log_dirs = [Path(name) for name in config.log_dirs()]
    log.info(
        f"kafkalite {_native.__version__}, node {config['node.id']}, log directories: "
        f"{', '.join(map(str, log_dirs))}"
    )
    metadata_dir = Path(config.metadata_dir())
    if not config.is_controller:
        _refuse_unformatted(log_dirs)
    claimed = _claim(config, log_dirs, metadata_dir)
    endpoints = tuple(BrokerEndpoint(each.name, each.host, each.port, 0) for each in advertised)
    metadata: Metadata
    if config.is_controller:
        metadata, repairs = _lead(config, log, claimed, endpoints)
    else:
        from kafkalite.replication.start import join

        metadata, repairs = (
            join(config, log, claimed, _cluster_id(log_dirs), endpoints, stop_signals),
            [],
        )
    node_name = str(config["node.id"])

    def obey() -> list[str]:
        configs = metadata.image.configs
        layers = configs.get((BROKER, ""), {}), configs.get((BROKER, node_name), {})
        return config.set_dynamic(*layers)

    # It stays until somebody removes it: told once, as what is wrong in the file.
    repairs += obey()
    metadata.publisher.on_broker_configs(obey)
    image = metadata.image
    states = metadata.publisher.states(image, image.topics.values())
    partition_count = sum(len(each.partitions) for each in image.topics.values())
    paths = {identity: path for path, identity, _, _ in claimed.directories}
    # Those whose directory is offline are not made; those that were given none yet are new.
    repairs += missing_sentences(
        paths.values(),
        (
            f"{topic.name}-{each.index}"
            for topic in image.topics.values()
            for each in topic.partitions
            if config["node.id"] in each.replicas and each.directory_of(config["node.id"]) in paths
        ),
    )
    with report_loading(claimed, partition_count, log, supervisor, frozenset(stop_signals)):
        load = partial(
            _native.BrokerCore,
            claimed=claimed,
            topics=states,
            settings=config.settings(),
            cleaner=_cleaner_settings(config),
        )
        core = metadata.while_loading(load, claimed.stop_loading)
    metadata.serve(core, [each.name for each in advertised])
    for sentence in [*repairs, *core.repairs]:
        log.warning(sentence)
    log.info(f"{len(image.topics)} topics; {len(handlers)} kinds of requests are handled in Python")
    metadata.unfence()
    return core, metadata


def _lead(
    config: Config,
    log: Log,
    claimed: _native.ClaimedDirectories,
    endpoints: tuple[BrokerEndpoint, ...],
) -> tuple[Metadata, list[str]]:
    """The metadata of a node that is its own controller, and what was repaired."""
    registration = Registration(
        node_id=config["node.id"],
        endpoints=endpoints,
        rack=config["broker.rack"] or None,
        min_insync_replicas=config.topic_value({}, MIN_INSYNC_REPLICAS),
    )
    return solo.start(
        claimed,
        Path(config.metadata_dir()),
        registration,
        config.engine_configs,
        wall_ms,
        MetadataLogLimits.of(config),
        warn=log.warning,
    )


def _claim(
    config: Config, log_dirs: Sequence[Path], metadata_dir: Path
) -> _native.ClaimedDirectories:
    return _native.ClaimedDirectories(
        node_id=config["node.id"],
        cluster_id=_cluster_id([*log_dirs, metadata_dir]),
        log_dirs=[str(path) for path in log_dirs],
        metadata_dir=str(metadata_dir),
        recovery_threads=config["num.recovery.threads.per.data.dir"],
        flush_threads=config["kafkalite.flush.threads"],
        open_segments=config["kafkalite.open.segments.max"],
    )


def _refuse_unformatted(log_dirs: Sequence[Path]) -> None:
    """The id of a cluster is its controllers': a directory without one cannot be used."""
    for path in log_dirs:
        if not (path / "meta.properties").exists():
            raise KafkaliteError(
                f"{path} is not formatted: run kafkalite format --cluster-id ID --config FILE, "
                "with the cluster id of the controllers"
            )


def _cluster_id(log_dirs: list[Path]) -> str:
    """The cluster id of the log directories, else a new one (a random UUID in 22 characters)."""
    for path in log_dirs:
        try:
            found = parse_properties((path / "meta.properties").read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, KafkaliteError):
            # Whether the directory can be used is judged where it is opened.
            continue
        if "cluster.id" in found:
            return found["cluster.id"]
    return _native.random_uuid()


def _remove_temporary(log_dirs: list[str]) -> None:
    """Removes what `Broker` has made, and nothing else, whatever a configuration says."""
    import shutil
    import tempfile

    for path in map(Path, log_dirs):
        if path.name.startswith(TEMPORARY_PREFIX) and path.parent == Path(tempfile.gettempdir()):
            shutil.rmtree(path, ignore_errors=True)


def _watch_parent(parent_id: int, is_orphan: threading.Event) -> None:
    """Stops the broker when its parent dies. The end of stdin says so at once, unless a fork of the
    parent holds the other end; then the parent's own end does."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    try:
        poll.register(os.pidfd_open(parent_id), select.POLLIN)
    except (OSError, AttributeError):
        # No such process any more, or a kernel, a Python or a sandbox that cannot watch one: stdin
        # must do.
        if os.getppid() != parent_id:
            is_orphan.set()
            os.kill(os.getpid(), signal.SIGTERM)
    while all(descriptor == 0 and os.read(0, 4096) for descriptor, _ in poll.poll()):
        pass
    is_orphan.set()
    os.kill(os.getpid(), signal.SIGTERM)

"""Puts a broker together: sockets, log directories, handlers, threads. The only place that does.

`run` is the broker itself, in this process, from start to clean stop. `Broker` is one in a child
process, for tests and notebooks:

    with kafkalite.Broker() as broker:
        broker.bootstrap_servers
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Self

from kafkalite import _native
from kafkalite.api import Handler, find_handlers
from kafkalite.config import Config
from kafkalite.context import Context, Log
from kafkalite.errors import InvalidArgumentError, KafkaliteError
from kafkalite.metadata.controller import Controller, Registration
from kafkalite.metadata.controller import start as start_controller
from kafkalite.metadata.image import BROKER
from kafkalite.metadata.image import Endpoint as BrokerEndpoint
from kafkalite.server import ControlServer

READY_PREFIX = "kafkalite ready bootstrap.servers="

INT_MAX = 2**31 - 1

WILDCARD_HOSTS = ("", "0.0.0.0", "::")  # noqa: S104 - named so as to be told apart


class Endpoint(NamedTuple):
    """A listener, as `listeners` names it."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def run(config: Config, log: Log) -> int:
    """A broker until SIGTERM or SIGINT; returns the exit code. Must run in the main thread.

    Raises what keeps it from starting, with nothing left behind.
    """
    # Blocked here and so in every thread that is started below; `sigwait` takes them.
    stop_signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals)
    sys.setswitchinterval(0.0005)
    endpoints = _parse_listeners(config["listeners"], config)
    _refuse_open_listeners(config, endpoints)
    sockets = [_bind(endpoint) for endpoint in endpoints]
    handlers = find_handlers()
    bound = [
        Endpoint(endpoint.name, endpoint.host, each.getsockname()[1])
        for endpoint, each in zip(endpoints, sockets, strict=True)
    ]
    advertised = _advertised(config, bound)
    plane, controller = _open(config, log, handlers, advertised)
    for each in sockets:
        each.listen(config["socket.listen.backlog.size"])
    control_keys = [
        (each.key, each.min_version, each.min_version, each.max_version, each.first_flexible)
        for each in handlers.values()
        if each.key not in plane.native_keys()
    ]
    plane.start(
        [each.detach() for each in sockets],
        [(each.host, each.port) for each in advertised],
        config["broker.rack"],
        control_keys,
        names=[each.name for each in bound],
        connections_by_listener=[_connections_max(config, each.name) for each in bound],
        connections_by_address=_connections_by_address(config),
    )
    failed: list[bool] = []

    def on_control_end() -> None:
        if not failed:
            failed.append(True)
            os.kill(os.getpid(), signal.SIGTERM)

    context = Context(plane, config, log, controller)
    context.timers.call_at(context.now_ms(), context.load_groups)
    server = ControlServer(context, handlers, on_control_end)
    control = threading.Thread(target=server.run, name="control")
    control.start()
    if config["kafkalite.die.with.parent"]:
        threading.Thread(target=_watch_parent, name="parent", daemon=True).start()
    bootstrap = ",".join(str(each) for each in advertised)
    sys.stdout.write(f"{READY_PREFIX}{bootstrap} pid={os.getpid()}\n")
    sys.stdout.flush()
    signal.sigwait(stop_signals)
    is_broken = bool(failed)
    failed.append(True)
    log.info("stopping")
    context.begin_stop()
    plane.stop()
    control.join()
    plane.close(controller.stop())
    log.info("stopped")
    return 1 if is_broken else 0


def _open(
    config: Config, log: Log, handlers: Mapping[int, Handler], advertised: list[Endpoint]
) -> tuple[_native.BrokerPlane, Controller]:
    """Takes the log directories, reads the metadata, loads the logs. What was repaired is in the
    log."""
    log_dirs = [Path(name) for name in config.log_dirs()]
    log.info(f"log directories: {', '.join(map(str, log_dirs))}")
    metadata_dir = Path(config["metadata.log.dir"] or log_dirs[0]).absolute()
    claimed = _native.ClaimedDirectories(
        node_id=config["node.id"],
        cluster_id=_cluster_id([*log_dirs, metadata_dir]),
        log_dirs=[str(path) for path in log_dirs],
        metadata_dir=str(metadata_dir),
        recovery_threads=config["num.recovery.threads.per.data.dir"],
        flush_threads=config["kafkalite.flush.threads"],
        open_segments=config["kafkalite.open.segments.max"],
    )
    defaults = {each.name: each.value for each in config.topic_configs({})}
    registration = Registration(
        node_id=config["node.id"],
        endpoints=tuple(BrokerEndpoint(each.name, each.host, each.port, 0) for each in advertised),
        rack=config["broker.rack"] or None,
        min_insync_replicas=defaults["min.insync.replicas"],
    )
    controller, repairs = start_controller(
        claimed, metadata_dir, registration, config.engine_configs, _wall_ms
    )
    node_name = str(config["node.id"])

    def obey(_resource_type: int, _name: str) -> None:
        configs = controller.image.configs
        config.set_dynamic(configs.get((BROKER, ""), {}), configs.get((BROKER, node_name), {}))

    obey(BROKER, "")
    controller.on_configs(obey)
    plane = _native.BrokerPlane(
        claimed=claimed, topics=controller.topic_facts(), settings=config.settings()
    )
    controller.serve(plane)
    for sentence in [*repairs, *plane.repairs]:
        log.warning(sentence)
    log.info(f"{len(controller.image.topics)} topics; {len(handlers)} keys are answered by Python")
    return plane, controller


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _cluster_id(log_dirs: list[Path]) -> str:
    """That of a directory that has one, else a new one (a random UUID in 22 characters)."""
    for path in log_dirs:
        try:
            lines = (path / "meta.properties").read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            # Whether the directory can be used is judged where it is opened.
            continue
        for line in lines:
            if line.startswith("cluster.id="):
                return line.removeprefix("cluster.id=").strip()
    return _native.random_uuid()


def _parse_listeners(texts: list[str], config: Config) -> list[Endpoint]:
    """Listeners for clients. Those of a controller, in a combined file of Kafka's, are left out."""
    protocols = dict(
        text.rsplit(":", 1)
        for text in config["listener.security.protocol.map"].split(",")
        if ":" in text
    )
    endpoints = []
    for text in texts:
        name, separator, address = text.partition("://")
        host, colon, port = address.rpartition(":")
        if not separator or not colon or not port.isdigit() or int(port) > 65535:
            raise InvalidArgumentError(f"the listener {text} is not of the form NAME://HOST:PORT")
        if name == "CONTROLLER":
            continue
        if protocols.get(name, name) != "PLAINTEXT":
            raise InvalidArgumentError(
                f"the listener {text} has a protocol that is not supported: only PLAINTEXT is"
            )
        endpoints.append(Endpoint(name, host.strip("[]"), int(port)))
    if not endpoints:
        raise InvalidArgumentError("listeners names no listener for clients")
    return endpoints


def _refuse_open_listeners(config: Config, endpoints: list[Endpoint]) -> None:
    for endpoint in endpoints:
        is_loopback = endpoint.host in ("localhost", "::1") or endpoint.host.startswith("127.")
        if not is_loopback and not config["kafkalite.allow.unauthenticated"]:
            raise InvalidArgumentError(
                f"the listener {endpoint} is open to other machines and has no authentication: "
                "set kafkalite.allow.unauthenticated=true if that is meant, or listen on 127.0.0.1"
            )


def _bind(endpoint: Endpoint) -> socket.socket:
    """A bound socket that does not listen yet: a start that takes long is seen as closed."""
    host = endpoint.host or "::"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        bound.bind((host, endpoint.port))
    except OSError as error:
        bound.close()
        raise InvalidArgumentError(
            f"cannot listen on {endpoint}: {error.strerror}; name another address with --listen"
        ) from error
    return bound


def _advertised(config: Config, bound: list[Endpoint]) -> list[Endpoint]:
    """What clients are told, listener by listener."""
    given = {each.name: each for each in _parse_advertised(config)}
    advertised = []
    for endpoint in bound:
        told = given.get(endpoint.name, endpoint)
        if told.host in WILDCARD_HOSTS:
            told = told._replace(host=socket.getfqdn())
        advertised.append(told._replace(port=told.port or endpoint.port))
    return advertised


def _parse_advertised(config: Config) -> list[Endpoint]:
    texts = config["advertised.listeners"] or []
    return _parse_listeners(texts, config) if texts else []


def _connections_max(config: Config, listener: str) -> int:
    """`listener.name.<name>.max.connections`, or no limit of the listener's own."""
    text = config.given.get(f"listener.name.{listener.lower()}.max.connections")
    if text is None:
        return INT_MAX
    if not text.isdigit():
        raise InvalidArgumentError(
            f"max.connections of the listener {listener} is no number: {text}"
        )
    return int(text)


def _connections_by_address(config: Config) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: `HOST:NUMBER` each, a host by its name or address."""
    limits = {}
    for text in filter(None, map(str.strip, config["max.connections.per.ip.overrides"].split(","))):
        host, colon, number = text.rpartition(":")
        try:
            if not colon or not number.isdigit():
                raise ValueError
            address = socket.getaddrinfo(host.strip("[]"), None)[0][4][0]
        except (OSError, ValueError) as error:
            raise InvalidArgumentError(
                f"max.connections.per.ip.overrides is not of the form HOST:NUMBER: {text}"
            ) from error
        limits[str(address)] = int(number)
    return limits


def _watch_parent() -> None:
    """Stops the broker when the other end of stdin is closed, as it is when the parent dies."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


class BrokerFailedError(KafkaliteError):
    """The broker's process did not start; the message ends with the last lines of its log."""


class Broker:
    """A broker in a child process, which stops when this process does, however it ends.

    Without `data` (or `log.dirs` in the configuration), a temporary directory that is removed at
    the end, and `kafkalite.acks.fsync=none`. `config` are further keys, as in a properties file.
    Ready once entered.
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        *,
        listen: str = "127.0.0.1:0",
        config: Mapping[str, str] | None = None,
        start_timeout_s: float = 30.0,
    ) -> None:
        self._data = data
        self._listen = listen
        self._config = dict(config or {})
        self._start_timeout_s = start_timeout_s
        self._temporary: Any = None
        self._process: Any = None
        self._log_file: IO[bytes] | None = None
        self.bootstrap_servers = ""

    @property
    def pid(self) -> int:
        """Of the broker's process. Raises if it has not been started."""
        if self._process is None:
            raise InvalidArgumentError("the broker has not been started")
        pid: int = self._process.pid
        return pid

    def start(self) -> Self:
        """Starts the broker, also after `stop` or `kill`; returns when it is ready."""
        import subprocess
        import tempfile

        command = [sys.executable, "-m", "kafkalite", "serve", "--listen", self._listen]
        if self._data is None and not self._config.keys() & {"log.dirs", "log.dir"}:
            self._temporary = tempfile.TemporaryDirectory(prefix="kafkalite-")
            self._data = self._temporary.name
        if self._temporary is not None:
            self._config.setdefault("kafkalite.acks.fsync", "none")
        if self._data is not None:
            command += ["--data", os.fspath(self._data)]
        for name, value in {**self._config, "kafkalite.die.with.parent": "true"}.items():
            command += ["--config", f"{name}={value}"]
        if self._log_file is None:
            self._log_file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `_remove`
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log_file
        )
        timer = threading.Timer(self._start_timeout_s, self._process.kill)
        timer.start()
        line = self._process.stdout.readline().decode()
        timer.cancel()
        if not line.startswith(READY_PREFIX):
            self.kill()
            failure = BrokerFailedError(f"the broker did not start:\n{self.log_tail()}")
            self._remove()
            raise failure
        self.bootstrap_servers = line.removeprefix(READY_PREFIX).split(" ")[0]
        # Clients come back to the same address after a restart.
        self._listen = self.bootstrap_servers
        return self

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of the broker's log."""
        if self._log_file is None:
            return ""
        size = os.fstat(self._log_file.fileno()).st_size
        text = os.pread(self._log_file.fileno(), 65536, max(0, size - 65536)).decode(
            errors="replace"
        )
        return "\n".join(text.splitlines()[-lines:])

    def stop(self) -> int:
        """Stops cleanly; returns the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """SIGKILL: as a crash."""
        return self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(how)
        self._process.stdin.close()
        code: int = self._process.wait()
        self._process.stdout.close()
        self._process = None
        return code

    def _remove(self) -> None:
        self.stop()
        if self._log_file is not None:
            self._log_file.close()
            self._log_file = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None
            self._data = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    async def __aenter__(self) -> Self:
        import asyncio

        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import asyncio

        await asyncio.to_thread(self._remove)

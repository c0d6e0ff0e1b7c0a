"""A cluster on this machine, for tests and for trying out: brokers of kafkalite, and a controller,
which is Apache Kafka's, for kafkalite has none of its own. It needs Java 17 and Kafka's jars:

    python -m kafkalite.testing.cluster --kafka ~/kafka_2.13-4.3.1     # until Ctrl-C

    with LocalCluster("kafka_2.13-4.3.1") as cluster:
        cluster.bootstrap_servers              # 127.0.0.1:41234,127.0.0.1:41236,…
        cluster.brokers[2].kill()              # fenced after two seconds; start() brings it back
"""

import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Never, Self

from kafkalite.child import Broker, BrokerFailedError
from kafkalite.errors import InvalidArgumentError, KafkaliteError
from kafkalite.replication.waiting import LEAVE_WAIT_S
from kafkalite.testing.controller import (
    CONTROLLER_ID,
    TOLD_LINES,
    Controller,
    ControllerFailedError,
    ended,
    new_id,
)

__all__ = ["ControllerFailedError", "LocalCluster"]

DESCRIPTION = """Run a cluster on this machine until Ctrl-C: a controller of Apache Kafka, and
brokers of kafkalite. It needs Java 17. When the cluster is ready, one line is printed to stdout:
kafkalite cluster ready bootstrap.servers=HOST:PORT,…"""

EXAMPLES = """
python -m kafkalite.testing.cluster --kafka ~/kafka_2.13-4.3.1
python -m kafkalite.testing.cluster --kafka ~/kafka_2.13-4.3.1 --brokers 5 --data data
"""

HOST = "127.0.0.1"
START_S = 120.0
POLL_S = 0.2
WATCH_MS = 1_000
"""Between two looks at processes whose end the system does not tell."""
PORT_MAX = 65_535
HEARTBEAT_MS, SESSION_MS = 500, 2_000
"""Shorter than Kafka's 2 and 9 s: a test does not want to wait for a broker to be fenced."""


class LocalCluster:
    """Brokers 1, 2, … and a controller, ready once entered; all end with the block, and so does
    their temporary directory, but for the logs where a process has ended by itself. Processes end
    with this one, however it ends."""

    def __init__(
        self,
        kafka: str | os.PathLike[str],
        *,
        brokers: int = 3,
        data: str | os.PathLike[str] | None = None,
        port: int = 0,
        config: Mapping[str, str | int | float] | None = None,
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`kafka` is the folder of Kafka's distribution, or a class path with its jars. `data` has
        a folder for each node, and goes on with what is there; without it a temporary one. The
        brokers' ports are `port` and those after it, or free ones. `config` are keys of all
        brokers. `tell` is called with a sentence for each step. Nothing runs before `start`."""
        if not 1 <= brokers < CONTROLLER_ID:
            raise InvalidArgumentError(f"brokers={brokers} is not within 1 to {CONTROLLER_ID - 1}")
        if not 0 <= port <= PORT_MAX - brokers + 1:
            raise InvalidArgumentError(
                f"port={port} is none for {brokers} broker(s): ports end at {PORT_MAX}"
            )
        self._controller = Controller(os.fspath(kafka))
        self._controller_port = 0
        self._data = None if data is None else Path(data)
        self._temporary: str | None = None
        self._at_exit: weakref.finalize[..., LocalCluster] | None = None
        self._ports = [port + each for each in range(brokers)] if port else [0] * brokers
        self._config = dict(config or {})
        self._tell = tell
        self._has_failed = False
        self.brokers: dict[int, Broker] = {}
        """By id, each to be stopped, killed and started as any `kafkalite.Broker`."""

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, for the clients' setting of that name."""
        return ",".join(each.bootstrap_servers for each in self.brokers.values())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> Self:
        """Starts the controller and then all brokers at once; returns when these are ready. Raises
        `ControllerFailedError`, `BrokerFailedError`, and `InvalidArgumentError` for a port that
        somebody has, or a folder that cannot be one."""
        _check_free(filter(None, self._ports))
        with ExitStack() as undo:
            undo.callback(self.close)
            try:
                folder = self._folder()
                self._logs(folder).mkdir(parents=True, exist_ok=True)
                cluster_id = self._start_controller(folder)
                for number, port in enumerate(self._ports, start=1):
                    data = folder / f"broker-{number}"
                    _format(data, cluster_id, number)
                    self.brokers[number] = self._broker(number, port, folder)
            except OSError as error:
                raise InvalidArgumentError(
                    f"{error.filename or self._data}: {error.strerror}"
                ) from error
            self._start_brokers()
            undo.pop_all()
        return self

    def close(self) -> None:
        """Stops the brokers cleanly, then the controller, and removes a temporary directory. If one
        of them has ended by itself, the logs stay there."""
        # At once: each has its leadership taken away, and waits for nobody.
        if self.brokers:
            with ThreadPoolExecutor(len(self.brokers)) as pool:
                list(pool.map(self._stop, self.brokers.values()))
        self.brokers.clear()
        self._controller.stop()
        if self._temporary is not None:
            folder, self._temporary = Path(self._temporary), None
            if self._has_failed:
                self._remove_data(folder)
            else:
                shutil.rmtree(folder, ignore_errors=True)
        if self._at_exit is not None:
            self._at_exit.detach()

    def _remove_data(self, folder: Path) -> None:
        logs = self._logs(folder)
        with suppress(OSError):  # somebody has removed it
            for each in folder.iterdir():
                if each != logs:
                    shutil.rmtree(each, ignore_errors=True)
            self._tell(f"the logs stay in {logs}")

    def _stop(self, broker: Broker) -> None:
        """Stops a broker cleanly: one that has no controller left does not wait for it."""
        if broker.is_started and self._controller.exit_code is not None:
            due = time.monotonic() + LEAVE_WAIT_S
            while broker.exit_code is None and time.monotonic() < due:
                os.kill(broker.pid, signal.SIGTERM)  # the second one ends that wait
                time.sleep(POLL_S)
        broker.close()

    def kill(self) -> None:
        """SIGKILL of all processes. What waits for them in another call goes on; `close` is still
        to be called, or is under way."""
        for each in self.brokers.values():
            with suppress(InvalidArgumentError, ProcessLookupError):  # it has ended
                os.kill(each.pid, signal.SIGKILL)
        self._controller.kill()

    def __repr__(self) -> str:
        return f"<kafkalite LocalCluster: {self.bootstrap_servers or 'not running'}>"

    def watch(self) -> Never:
        """Tells of each broker that ends by itself, at once, or within a second where the system
        cannot tell of it. Raises `ControllerFailedError` when the controller ends."""
        with ExitStack() as stack:
            poll = select.poll()
            # Of a child whose end nobody has asked for yet, the process id is still there.
            self.check_controller()
            running = dict(self.brokers)
            pids = [self._controller.pid, *(each.pid for each in running.values())]
            wait_ms: int | None = None
            for pid in filter(None, pids):
                try:
                    descriptor = os.pidfd_open(pid)
                except (OSError, AttributeError):
                    # An old kernel or Python, or a sandbox that does not allow the call.
                    wait_ms = WATCH_MS
                    continue
                stack.callback(os.close, descriptor)
                poll.register(descriptor, select.POLLIN)
            while True:
                for descriptor, _ in poll.poll(wait_ms):
                    poll.unregister(descriptor)
                self.check_controller()
                for number, broker in list(running.items()):
                    if (code := broker.exit_code) is not None:
                        del running[number]
                        self._tell_ended(number, broker, code)

    def _tell_ended(self, number: int, broker: Broker, code: int) -> None:
        self._has_failed = True
        told = ended(code, broker.log_file, broker.log_tail(TOLD_LINES))
        self._tell(f"broker {number} {told}")

    # --- the controller ---------------------------------------------------------------------------

    def stop_controller(self) -> None:
        """Ends it; the brokers go on, and nothing of the cluster can be changed."""
        self._controller.stop()

    def check_controller(self) -> None:
        """Raises `ControllerFailedError` if it has ended."""
        try:
            self._controller.check()
        except ControllerFailedError:
            self._has_failed = True
            raise

    def _start_controller(self, folder: Path) -> str:
        self._controller_port = self._controller_port or _free_port()
        at = f"{HOST}:{self._controller_port}"
        properties: dict[str, object] = {
            "process.roles": "controller",
            "node.id": CONTROLLER_ID,
            "listeners": f"CONTROLLER://{at}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{CONTROLLER_ID}@{at}",
            "broker.session.timeout.ms": SESSION_MS,
            "broker.heartbeat.interval.ms": HEARTBEAT_MS,
        }
        log = self._logs(folder) / "controller.log"
        return self._controller.start(
            folder / "controller", log, self._controller_port, properties, self._tell
        )

    # --- brokers ----------------------------------------------------------------------------------

    def _folder(self) -> Path:
        if self._data is not None:
            return self._data
        self._temporary = tempfile.mkdtemp(prefix="kafkalite-cluster-")
        ended = (self._controller, self._temporary, os.getpid())
        self._at_exit = weakref.finalize(self, _end_forgotten, *ended)
        return Path(self._temporary)

    @staticmethod
    def _logs(folder: Path) -> Path:
        return folder / "logs"

    def _broker(self, number: int, port: int, folder: Path) -> Broker:
        config: dict[str, str | int | float] = {
            "process.roles": "broker",
            "node.id": number,
            "controller.listener.names": "CONTROLLER",
            # As the controller's own file has it: Kafka's brokers would not start otherwise.
            "controller.quorum.voters": f"{CONTROLLER_ID}@{HOST}:{self._controller_port}",
            "broker.heartbeat.interval.ms": HEARTBEAT_MS,
            "group.initial.rebalance.delay.ms": 0,
            **({"kafkalite.acks.fsync": "none"} if self._temporary is not None else {}),
            **self._config,
        }
        return Broker(
            folder / f"broker-{number}",
            listen=f"{HOST}:{port}",
            config=config,
            log_file=self._logs(folder) / f"broker-{number}.log",
            start_timeout_s=START_S,
        )

    def _start_brokers(self) -> None:
        """Returns when all are ready; where one is not, or the controller ends, none is left."""
        for number, log in [(number, each.log_file) for number, each in self.brokers.items()]:
            self._tell(f"starts broker {number}, which waits for the controller; its log is {log}")
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            starting = {pool.submit(each.start): number for number, each in self.brokers.items()}
            left = set(starting)
            try:
                while left:
                    done, left = wait(left, POLL_S, FIRST_COMPLETED)
                    self.check_controller()  # its end is why
                    for each in done:
                        broker, number = each.result(), starting[each]
                        self._tell(f"broker {number} is ready on {broker.bootstrap_servers}")
            except BaseException as error:
                self._has_failed |= isinstance(error, BrokerFailedError)
                self.kill()  # else the pool waits for them
                raise


def _check_free(ports: Iterable[int]) -> None:
    for port in ports:
        try:
            with socket.create_server((HOST, port)):
                pass
        except OSError as error:
            raise InvalidArgumentError(
                f"{HOST}:{port} cannot be a broker's: {error.strerror}; choose another port, or 0 "
                "for free ones"
            ) from error


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as found:
        port: int = found.getsockname()[1]
        return port


def _format(data: Path, cluster_id: str, node_id: int) -> None:
    """As `kafkalite format`."""
    data.mkdir(parents=True, exist_ok=True)
    meta = data / "meta.properties"
    if not meta.exists():
        lines = [f"cluster.id={cluster_id}", f"node.id={node_id}", f"directory.id={new_id()}"]
        meta.write_text("\n".join(["version=1", *lines, ""]))


def _end_forgotten(controller: Controller, temporary: str, owner_id: int) -> None:
    """Does as `close`, for a cluster that nobody has closed when the program ends; its brokers have
    ended by then as any forgotten `Broker`."""
    if owner_id == os.getpid():
        controller.stop()
        shutil.rmtree(temporary, ignore_errors=True)


# --- the command ----------------------------------------------------------------------------------


def _tell(sentence: str) -> None:
    """A line on stderr, which may be that of a terminal that is gone."""
    with suppress(OSError):
        sys.stderr.write(f"kafkalite cluster: {sentence}\n")
        sys.stderr.flush()


@contextmanager
def _interruptible(cluster: LocalCluster) -> Iterator[Callable[[], None]]:
    """In the block the first of these signals raises KeyboardInterrupt, so that all is stopped; a
    further one has no patience with that. Yields what is to be called where all is stopped for
    another reason."""
    is_stopping = False

    def stop() -> None:
        nonlocal is_stopping
        is_stopping = True
        _tell("stops; once more kills")

    def end(*_: object) -> None:
        if is_stopping:
            _tell("kills what has not stopped yet")
            cluster.kill()
            return
        stop()
        raise KeyboardInterrupt

    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # which nohup says
        signals.append(signal.SIGHUP)
    before = {each: signal.signal(each, end) for each in signals}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _run(cluster: LocalCluster) -> int:
    """Until a signal: the exit code."""
    with _interruptible(cluster) as stop:
        try:
            cluster.start()
            servers = cluster.bootstrap_servers
            with suppress(BrokenPipeError):
                print(f"kafkalite cluster ready bootstrap.servers={servers}", flush=True)
            cluster.watch()
        except KeyboardInterrupt:
            return 0
        except KafkaliteError as error:
            _tell_error(error)
            if cluster.brokers:
                stop()
            return 1
        finally:
            cluster.close()


def _tell_error(error: KafkaliteError) -> None:
    with suppress(OSError):
        sys.stderr.write(f"kafkalite: {error}\n")
        sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a cluster until SIGINT, SIGTERM or SIGHUP; the exit code."""
    from kafkalite.cli.options import new_parser

    parser = new_parser("python -m kafkalite.testing.cluster", DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "--kafka",
        required=True,
        metavar="PATH",
        help="the directory of a Kafka distribution, or a class path with its jars",
    )
    parser.add_argument(
        "--brokers", type=int, default=3, metavar="N", help="the number of brokers (default: 3)"
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="the directory for all data, which is kept (default: a temporary one)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=9092,
        metavar="PORT",
        help="the port of broker 1, followed by the ports of the others (default: 9092); 0 selects "
        "free ports",
    )
    options = parser.parse_args(arguments)
    try:
        cluster = LocalCluster(
            options.kafka,
            brokers=options.brokers,
            data=options.data,
            port=options.port,
            tell=_tell,
        )
    except KafkaliteError as error:
        _tell_error(error)
        return 1
    return _run(cluster)


if __name__ == "__main__":
    sys.exit(main())

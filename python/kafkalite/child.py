"""A broker in a child process, for tests and notebooks:

    with kafkalite.Broker() as broker:
        broker.bootstrap_servers

The child is `kafkalite serve`, whose first line on stdout says that it is ready, and where. It dies
with its parent (`kafkalite.die.with.parent`, `broker.py`).
"""

import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Self

from kafkalite.config import Config
from kafkalite.errors import InvalidArgumentError, KafkaliteError
from kafkalite.listeners import SYSTEM_BUFFER, Buffers, Endpoint, address, bind
from kafkalite.service.stderr_log import Log

FREE_PORT = "127.0.0.1:0"
FORGOTTEN_STOP_S = 10.0
"""A program that ends waits so long for the clean stop of a broker that it has not closed."""
TEMPORARY_DEFAULTS = {
    "kafkalite.acks.fsync": "none",
    # Kafka's three seconds are for groups whose members start one after the other: each test of a
    # consumer would wait for them.
    "group.initial.rebalance.delay.ms": "0",
}
"""The configuration of a broker whose directory goes with it."""
POLL_MS_MAX = 2**31 - 1
READY_PREFIX = "kafkalite ready bootstrap.servers="
TEMPORARY_PREFIX = "kafkalite-"


class BrokerFailedError(KafkaliteError):
    """The broker's process did not start; the message ends with the last lines of its log."""


class Broker:
    """A broker in a child process, which stops when this process does, however it ends.

        with kafkalite.Broker(config={"num.partitions": 3}) as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    Ready once entered, in a fraction of a second; `async with` too. Where no block fits, `start`
    and `close` do the same. `stop` and `kill` show a client what a restart and a crash are: `start`
    again goes on at the same address with what is in the directory. Any number of brokers may run
    at once, and any thread may use one. It belongs to the process that started it: a fork may use
    its address, and neither stops nor removes anything.
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        *,
        listen: str | None = FREE_PORT,
        config: Mapping[str, str | int | float] | None = None,
        log_level: str = "info",
        log_file: str | os.PathLike[str] | None = None,
        start_timeout_s: float = 30.0,
    ) -> None:
        """`data` is its log directory. Without it (and `log.dirs` in the configuration) that is a
        temporary one, which `close` removes; records are then not flushed for each answer
        (`kafkalite.acks.fsync=none`), and a group waits for no more members before its first
        rebalance (`group.initial.rebalance.delay.ms=0`), unless `config` says otherwise. `listen`
        is `host:port`, port 0 a free one, in place of `listeners` in the configuration; None is
        what a server.properties without `listeners` means, 127.0.0.1:9092. `config` are the keys of
        a server.properties, as texts, numbers or flags. `log_level` is debug (requests too, but
        those for records), info, warning or error: what `log_tail` has. `log_file` is where its log
        is appended, and stays; without it the log ends with this object.

        Starts nothing yet. `start` raises `BrokerFailedError` for a broker that does not start
        within `start_timeout_s` seconds, with the last lines of its log. Raises TypeError, and
        `InvalidArgumentError` for an empty `data`, an unknown `log_level` and a key of `config`
        that another argument contradicts. A key that nobody knows gets a warning, since nobody
        looks into the log of a broker that serves.
        """
        from kafkalite.client.arguments import config_texts, directory, text, wrong_type

        if isinstance(start_timeout_s, bool) or not isinstance(start_timeout_s, int | float):
            raise wrong_type("start_timeout_s", start_timeout_s, "a number of seconds")
        if not start_timeout_s >= 0:  # which no number is not, either
            raise InvalidArgumentError(f"start_timeout_s={start_timeout_s} is not a time to wait")
        self._data = None if data is None else directory("data", data)
        self._listen = None if listen is None else text("listen", listen)
        self._config = config_texts("config", {} if config is None else config)
        if "listeners" in self._config and listen == FREE_PORT:
            self._listen = None
        _refuse_contradictions(self._config, self._listen, self._data)
        for sentence in _warnings_of(self._config):
            warnings.warn(sentence, stacklevel=2)
        self._start_timeout_s = start_timeout_s
        self._log_path = None if log_file is None else text("log_file", os.fspath(log_file))
        self._log_level = text("log_level", log_level)
        if log_level not in Log.LEVELS:
            raise InvalidArgumentError(f"log_level={log_level} is none of {', '.join(Log.LEVELS)}")
        # Once started: the keys of its listeners, with the ports that they have.
        self._bound: dict[str, str] = {}
        # While it is stopped: descriptors of sockets on the ports that were free.
        self._held: list[int] = []
        self._temporary: str | None = None
        self._process: Any = None
        self._log_file: IO[bytes] | None = None
        self._owner_id = os.getpid()
        self._at_exit: Any = None
        self.bootstrap_servers = ""
        """`host:port`, for the clients' setting of that name; empty before the first start."""

    @property
    def data(self) -> str | None:
        """Its log directory; None where the configuration names it. A temporary one is there from
        `start` to `close`, and None before and afterwards."""
        return self._data

    @property
    def is_started(self) -> bool:
        """True if it has been started and neither stopped nor killed since; one that has ended by
        itself counts as started."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The process id of the broker. Raises if it has not been started."""
        if self._process is None:
            raise InvalidArgumentError("the broker has not been started")
        pid: int = self._process.pid
        return pid

    @property
    def log_file(self) -> str | None:
        """The file that its log is appended to, if it was given one."""
        return self._log_path

    @property
    def exit_code(self) -> int | None:
        """The exit code of a broker that has ended by itself; a negative number is that of the
        signal. None while it runs, and after `stop` or `kill`."""
        code: int | None = None if self._process is None else self._process.poll()
        return code

    def start(self) -> Self:
        """Starts the broker, also after `stop` or `kill`; returns when it is ready."""
        self._check_owner()
        if self._process is not None and self._process.poll() is None:
            raise InvalidArgumentError("the broker has been started already")
        begun = time.monotonic()
        try:
            line = self._start()
        except OSError as error:
            # No room for the log, no right to run the interpreter: a broker was never there.
            self._give_up()
            raise BrokerFailedError(f"the broker cannot be started: {error}") from error
        except BaseException:
            # Ctrl-C above all: no block has been entered that would clean up.
            self._give_up()
            raise
        if not line.startswith(READY_PREFIX):
            is_late = time.monotonic() - begun >= self._start_timeout_s
            self.kill()
            why = f" within start_timeout_s={self._start_timeout_s:g}" if is_late else ""
            told = self.log_tail()
            of = f"; its log {self._log_path} ends with" if self._log_path is not None else ""
            told = f"{of}:\n{told}" if told else ", and has not logged anything"
            failure = BrokerFailedError(f"the broker did not start{why}{told}")
            self._give_up()
            raise failure
        _close_all(self._held)
        said = dict(word.split("=", 1) for word in line.split(" ")[2:])
        self.bootstrap_servers = said.pop("bootstrap.servers")
        del said["pid"]
        # Clients, and what stands between them and the broker, come back to the same address after
        # a restart.
        self._bound = said
        return self

    def _hold_ports(self) -> None:
        """Nobody gets a port of the stopped broker that was chosen for it: these sockets do not
        listen, and go with that of the broker to come, as both have SO_REUSEADDR."""
        if self._held:
            return  # since an earlier end: a start in between has failed
        asked = [self._listen or "", *(self._config.get(key, "") for key in self._bound)]
        asked_ports = {port for _, port in _addresses(asked)}
        for host, port in _addresses(self._bound.values()):
            if port not in asked_ports:
                with suppress(InvalidArgumentError):  # somebody was faster, and `start` says so
                    endpoint = Endpoint("HELD", host, port)
                    held = bind(endpoint, Buffers(SYSTEM_BUFFER, SYSTEM_BUFFER))
                    self._held.append(held.detach())

    def _leave_nothing(self) -> None:
        """Has the end of the program, or of this object, clean up what there is now."""
        import weakref

        if self._at_exit is not None:
            self._at_exit.detach()
        things = (self._process, self._temporary, self._held, self._owner_id)
        self._at_exit = weakref.finalize(self, _end_forgotten, *things)

    def _give_up(self) -> None:
        """After a start that failed. One that has run before keeps its directory, which `close`
        removes."""
        self.kill()
        if not self._bound:
            self.close()

    def _start(self) -> str:
        """Starts the process; the first line that it prints, empty if it has ended."""
        import subprocess
        import tempfile

        if self._data is None and not self._config.keys() & {"log.dirs", "log.dir"}:
            self._data = self._temporary = tempfile.mkdtemp(prefix=TEMPORARY_PREFIX)
        if self._log_file is None and self._log_path is not None:
            self._log_file = open(self._log_path, "a+b")  # noqa: PTH123, SIM115 - closed by `close`
        elif self._log_file is None:
            self._log_file = tempfile.TemporaryFile()  # noqa: SIM115 - as above
        if self._process is not None:
            self.kill()  # it has ended by itself
        # A process group of its own: Ctrl-C and Ctrl-Z at this terminal, and a notebook's
        # "interrupt", are for this process, which may want the broker for what it does then.
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            self._command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log_file,
            process_group=0,
        )
        self._leave_nothing()
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        # No thread that waits: a program that forks now should have none but its own.
        if not poll.poll(min(max(0, self._start_timeout_s * 1000), POLL_MS_MAX)):
            self._process.kill()
        line: str = self._process.stdout.readline().decode()
        return line

    def _command(self) -> list[str]:
        command = [sys.executable, *_path_options(), "-m", "kafkalite", "serve"]
        command += ["--log-level", self._log_level]
        if self._listen is not None and not self._bound:
            command += ["--listen", self._listen]
        if self._data is not None:
            command += ["--data", self._data]
        config = {**self._config, **self._bound, "kafkalite.die.with.parent": "true"}
        if self._temporary is not None:
            for name, value in TEMPORARY_DEFAULTS.items():
                config.setdefault(name, value)
            config.setdefault("kafkalite.remove.with.parent", "true")
        for name, value in config.items():
            command += ["--config", f"{name}={value}"]
        return command

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

    def close(self) -> None:
        """Stops cleanly and removes the temporary directory, as the end of a `with` block does."""
        if self._owner_id != os.getpid():
            return
        self.stop()
        if self._log_file is not None:
            self._log_file.close()
            self._log_file = None
        if self._temporary is not None:
            import shutil

            shutil.rmtree(self._temporary, ignore_errors=True)
            self._data = self._temporary = None
        _close_all(self._held)
        self._bound.clear()

    def _end(self, how: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._check_owner()
        self._process.send_signal(how)
        code: int = self._process.wait()
        # Not before: the end of its stdin tells the broker that this process has died.
        self._process.stdin.close()
        self._process.stdout.close()
        self._process = None
        self._hold_ports()
        self._leave_nothing()
        return code

    def _check_owner(self) -> None:
        if self._owner_id != os.getpid():
            raise InvalidArgumentError(
                f"the broker belongs to process {self._owner_id}, of which this one is a fork"
            )

    def __repr__(self) -> str:
        state = self.bootstrap_servers if self._process is not None else "not running"
        return f"<kafkalite.Broker: {state}>"

    def __reduce__(self) -> str:
        raise TypeError(
            "a kafkalite.Broker belongs to its process: give others its bootstrap_servers"
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        import asyncio

        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The thread goes on, and nobody leaves a block that was not entered.
            await asyncio.wait([starting])
            if not starting.cancelled() and starting.exception() is None:
                await asyncio.to_thread(self.close)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.close)


def _refuse_contradictions(config: Mapping[str, str], listen: str | None, data: str | None) -> None:
    """Raises `InvalidArgumentError` for a key whose value another argument would replace."""
    if "listeners" in config and listen is not None:
        raise InvalidArgumentError(
            f"listen={listen} and listeners={config['listeners']} in config say where to listen: "
            "give one of them"
        )
    for name in ("log.dirs", "log.dir"):
        if name in config and data is not None:
            raise InvalidArgumentError(
                f"data={data} and {name}={config[name]} in config name log directories: "
                "give one of them"
            )
    if config.get("kafkalite.die.with.parent", "true").strip().lower() != "true":
        raise InvalidArgumentError(
            "kafkalite.die.with.parent=false in config cannot be: a kafkalite.Broker ends with its "
            "program; kafkalite serve runs on its own"
        )


def _warnings_of(config: Mapping[str, str]) -> list[str]:
    try:
        return Config(config).warnings
    except InvalidArgumentError:
        return []  # the start says so


def _path_options() -> list[str]:
    """Options that keep `python -m` from importing out of the current directory, unless this
    program does so itself: under pytest a `signal.py` of the project is not in the way, and must
    not be here."""
    try:
        is_mine = not {"", os.getcwd()}.isdisjoint(sys.path)  # noqa: PTH109 - no object is wanted
    except FileNotFoundError:  # it has been deleted
        is_mine = False
    return [] if is_mine else ["-P"]


def _addresses(settings: Iterable[str]) -> list[tuple[str, int]]:
    """Hosts and ports that settings of listeners name, with the names of listeners or without."""
    texts = ",".join(settings).split(",")
    found = (address(text.rpartition("://")[2]) for text in texts)
    return [each for each in found if each is not None]


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _end_forgotten(process: Any, temporary: str | None, held: list[int], owner_id: int) -> None:
    """Does as `Broker.close`, for a broker that nobody has closed when the program ends."""
    if owner_id != os.getpid():
        return
    _close_all(held)
    if process is not None:
        from subprocess import TimeoutExpired

        process.terminate()
        try:
            process.wait(FORGOTTEN_STOP_S)
        except TimeoutExpired:
            process.kill()
            process.wait()
        process.stdin.close()
        process.stdout.close()
    if temporary is not None:
        import shutil

        shutil.rmtree(temporary, ignore_errors=True)

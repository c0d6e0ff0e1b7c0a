"""`kafkalite arrow serve`: an Arrow endpoint in a process of its own (docs/ARROW_ENDPOINT.md).

What it reads lies with brokers, any that speak Kafka's protocol, or in log files. The columnar
engine of Spark starts one beside each JVM, as its child; requests that are no reads are what its
driver plans with (`kafkalite.spark.plan.answers`).

Rust has the sockets, a thread a connection, the columns and the files; Python fetches and plans, on
those threads.
"""

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from kafkalite._native import ArrowServer
from kafkalite.cli.options import new_parser, print_error, servers_argument
from kafkalite.client.admin import EARLIEST, LATEST, Admin
from kafkalite.client.arrow.range_source import FetchSettings, RangeSource
from kafkalite.config.environment import notify_socket
from kafkalite.errors import InvalidArgumentError, KafkaliteError, OffsetOutOfRangeError
from kafkalite.listeners import (
    SEND_BUFFER_BYTES,
    SYSTEM_BUFFER,
    Buffers,
    Endpoint,
    address,
    bind,
    refuse_beyond_loopback,
)
from kafkalite.service.supervisor import Supervisor

if TYPE_CHECKING:
    from kafkalite.spark.plan.answers import TopicSources

READY_PREFIX = "kafkalite arrow ready endpoint="
IDLE_MS_MAX = 600_000
BACKLOG = 128
SECRET_CHARACTERS_MIN, SECRET_BYTES_MAX = 16, 1024

# Those of a broker that is not told others.
BUFFERS = Buffers(send_bytes=SEND_BUFFER_BYTES, receive_bytes=SYSTEM_BUFFER)

EXAMPLES = """
kafkalite arrow serve --listen 127.0.0.1:9099 --bootstrap-server broker:9092
kafkalite arrow serve /var/kafka-logs
"""


def run(arguments: Sequence[str]) -> int:
    """Runs the command; returns the exit code."""
    options = command_line().parse_args(arguments)
    for path in options.paths:
        if not os.path.isdir(path):  # noqa: PTH112 - os is imported, pathlib need not be
            raise InvalidArgumentError(f"{path} is not a directory")
    roots = [os.path.realpath(path) for path in options.paths]
    any_path = options.any_path or options.exit_with_stdin
    secret = _told_secret() if options.exit_with_stdin else None
    home = Home(options.bootstrap_server, any_path=any_path)
    stop_signals = {signal.SIGTERM, signal.SIGINT}
    # Blocked here and so in every thread that is started below; `sigwait` takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals)
    bound = bind(options.listen, BUFFERS)
    endpoint = options.listen._replace(port=bound.getsockname()[1])
    bound.listen(BACKLOG)
    server = ArrowServer(
        bound.detach(),
        open=home.open,
        answer=home.answer,
        roots=roots,
        any_path=any_path,
        idle_ms_max=IDLE_MS_MAX,
        secret=secret,
    )
    if options.exit_with_stdin:
        threading.Thread(target=_watch_stdin, name="stdin", daemon=True).start()
    sys.stdout.write(f"{READY_PREFIX}{endpoint} pid={os.getpid()}\n")
    sys.stdout.flush()
    # A service manager's word is for the program that is the service, not for its child.
    supervisor = Supervisor(None if options.exit_with_stdin else notify_socket(), print_error)
    supervisor.serving(str(endpoint))
    signal.sigwait(stop_signals)
    supervisor.stopping()
    if not server.stop():
        # A broker that does not answer holds a thread, which would outlive the interpreter.
        os._exit(0)
    home.close()
    return 0


def command_line() -> argparse.ArgumentParser:
    """Its parser."""
    parser = new_parser(
        "kafkalite arrow serve",
        "Serve ranges of partitions as Arrow streams until SIGTERM or Ctrl-C. When the endpoint is "
        f"ready, it prints one line to stdout: {READY_PREFIX}HOST:PORT pid=N.",
        EXAMPLES,
    )
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="log directories, or directories of partitions, to read without a broker",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=_listen,
        default="127.0.0.1:0",
        help="the loopback address to listen on (default: 127.0.0.1:0); port 0 selects a free port",
    )
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT,…",
        type=servers_argument,
        help="the brokers for requests that name none",
    )
    parser.add_argument(
        "--any-path",
        action="store_true",
        help="allow requests for any path that this user may read, not only those below PATH",
    )
    parser.add_argument(
        "--exit-with-stdin",
        action="store_true",
        help="exit when standard input ends, for use as a child process; implies --any-path; the "
        "first line of standard input is a secret that every request must contain",
    )
    return parser


def _listen(text: str) -> Endpoint:
    found = address(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text} is not of the form HOST:PORT")
    endpoint = Endpoint("ARROW", *found)
    try:
        refuse_beyond_loopback("--listen", endpoint)
    except InvalidArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return endpoint


def _told_secret() -> str:
    """The first line of the standard input. A child reads whatever its user may read, and the other
    users of the machine reach its port, too: neither arguments nor the network show them this."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        line += byte
        if not byte or len(line) > SECRET_BYTES_MAX:
            break
    secret = line.removesuffix(b"\n").decode(errors="replace")
    if len(secret) < SECRET_CHARACTERS_MIN or not line.endswith(b"\n"):
        raise InvalidArgumentError(
            "--exit-with-stdin: the first line of the standard input is a secret of "
            f"{SECRET_CHARACTERS_MIN} to {SECRET_BYTES_MAX - 1} characters, which each request "
            "must have as its secret"
        )
    return secret


def _watch_stdin() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


class Home:
    """Answers what the server asks of Python, on the threads of its connections, several at a
    time."""

    def __init__(self, bootstrap_servers: str | None, *, any_path: bool) -> None:
        """`bootstrap_servers` are those of requests that name none."""
        self._bootstrap_servers = bootstrap_servers
        self._any_path = any_path
        self._sources: TopicSources | None = None
        self._lock = threading.Lock()

    def open(
        self,
        topic: str,
        partition: int,
        start: int | None,
        stop: int | None,
        isolation: str,
        bootstrap_servers: str | None,
        client: dict[str, str],
        fail_on_data_loss: bool,
    ) -> RangeSource:
        """The chunks of a range, as `_native.FetchRead` takes them. Raises `KafkaliteError`."""
        servers = bootstrap_servers or self._bootstrap_servers
        if servers is None:
            raise InvalidArgumentError(
                "the request names neither bootstrap.servers nor a path, and the endpoint has none"
            )
        settings = FetchSettings.from_json(isolation, client)
        if start is None or stop is None:
            start, stop = _whole(
                servers, topic, partition, start, stop, settings, fail_on_data_loss
            )
        on_loss = _refuse_loss if fail_on_data_loss else _tell_loss
        return RangeSource(servers, [(topic, partition, start, stop)], settings, on_loss)

    def answer(self, request: bytes) -> bytes:
        """A plan, JSON for JSON. Raises `KafkaliteError`."""
        try:
            from kafkalite.spark.plan import answers
        except ModuleNotFoundError as error:
            raise KafkaliteError(
                f"plans need pip install 'kafkalite[spark]' where this endpoint runs: {error}"
            ) from error
        asked = json.loads(request)
        if not self._any_path and _names_path(asked):
            raise InvalidArgumentError(
                "path: this endpoint plans over brokers only, unless it is started with --any-path"
            )
        answer = answers.answer(asked, self._opened())
        return json.dumps(answer, ensure_ascii=False).encode()

    def close(self) -> None:
        """Closes what is kept for plans."""
        if self._sources is not None:
            self._sources.close()

    def _opened(self) -> "TopicSources":
        """The logs that plans keep open, made when the first plan is asked for."""
        from kafkalite.spark.plan.answers import TopicSources

        with self._lock:
            if self._sources is None:
                self._sources = TopicSources()
            return self._sources


def _names_path(asked: dict[str, Any]) -> bool:
    options = asked.get("options")
    return isinstance(options, dict) and any(
        str(name).lower() in ("path", "paths") for name in options
    )


def _whole(
    servers: str,
    topic: str,
    partition: int,
    start: int | None,
    stop: int | None,
    settings: FetchSettings,
    fail_on_data_loss: bool,
) -> tuple[int, int]:
    """The ends that a request leaves out, as they are now. A start behind the log is refused, as a
    broker's own endpoint refuses it."""
    place = (topic, partition)
    is_committed = settings.isolation == "read_committed"
    with Admin(servers, timeout_ms=settings.poll_timeout_ms) as admin:
        if partition not in admin.cluster.topic(topic).partitions:
            raise InvalidArgumentError(f"there is no partition {topic}-{partition}")
        if start is None:
            start = admin.list_offsets({place: EARLIEST})[place].offset
        if stop is None:
            stop = admin.list_offsets({place: LATEST}, committed=is_committed)[place].offset
            # Behind the last stable offset there may be records still, which wait for their end.
            end = admin.list_offsets({place: LATEST})[place].offset if start > stop else stop
            if start > end and fail_on_data_loss:
                name = f"{topic}-{partition}"
                _refuse_loss(f"{name}: offset {start} is not there, the log ends at {end}")
    return start, max(start, stop)


def _refuse_loss(sentence: str) -> NoReturn:
    """Spark's columnar engine asks, by its option's name."""
    raise OffsetOutOfRangeError(f"{sentence} (failOnDataLoss=false goes on with what there is)")


def _tell_loss(sentence: str) -> None:
    sys.stderr.write(f"data may have been lost: {sentence}\n")
    sys.stderr.flush()

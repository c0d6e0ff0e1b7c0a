"""A controller of Apache Kafka's as a child process, for clusters on this machine. It ends with the
process that started it, however that ends:

    this process ── a pipe ──► a shell beside the JVM reads to its end ──► SIGKILL to both
"""

import base64
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from kafkalite.config.environment import java_home
from kafkalite.errors import InvalidArgumentError, KafkaliteError
from kafkalite.replication.admission import RANGES

CONTROLLER_ID = 3000
STOP_S = 30.0
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOWERED = ("group.version", "share.version", "streams.version", "transaction.version")
"""Features that a new cluster of Kafka's has at levels which brokers here may not serve."""
BESIDE = """exec 3<&0
{ cat <&3 >/dev/null; kill -9 0; } &
exec "$@" 3<&- </dev/null
"""
"""The process group, which is the controller's own, is there as long as the shell is: no other
process can have its number by then."""


LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""
"""The log goes to stdout. Without a file that says so, Kafka logs next to nothing."""
TOLD_LINES = 20


class ControllerFailedError(KafkaliteError):
    """The controller did not start, or has ended; the message has the last lines of its output."""


class Controller:
    """The whole quorum, by `kafka`, the folder of a distribution or a class path of its jars."""

    def __init__(self, kafka: str) -> None:
        """Raises `InvalidArgumentError` for a folder that has no jars of Kafka's."""
        self._kafka = kafka
        self._class_path = _class_path(kafka)
        self._process: subprocess.Popen[bytes] | None = None
        self.log = Path()
        """The file into which the JVM prints."""

    def start(
        self,
        folder: Path,
        log: Path,
        port: int,
        properties: dict[str, object],
        tell: Callable[[str], object],
    ) -> str:
        """Formats its directory if that is new, and starts it; the id of the cluster. `log` is the
        file that its log is appended to. Does not wait until it serves. Raises
        `ControllerFailedError`."""
        folder.mkdir(parents=True, exist_ok=True)
        file, meta = folder / "controller.properties", folder / "data" / "meta.properties"
        properties = {**properties, "log.dirs": folder / "data"}
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self.log = log
        logging = folder / "log4j2.properties"
        logging.write_text(LOGGING)
        configured = f"-Dlog4j2.configurationFile={logging}"
        command = self._java("kafka.Kafka", str(file), options=[configured])
        if not meta.exists():
            tell(f"formats the controller's directory {folder / 'data'}")
            self._format(file)
        with self.log.open("ab") as output:
            # A process group of its own: Ctrl-C is for this process, which ends the brokers first.
            self._process = subprocess.Popen(  # noqa: S603
                ["/bin/sh", "-c", BESIDE, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                process_group=0,
            )
        tell(f"starts controller {CONTROLLER_ID} on port {port}; its log is {self.log}")
        lines = (line.partition("=") for line in meta.read_text().splitlines())
        return {key: value for key, _, value in lines}["cluster.id"]

    def stop(self) -> None:
        """Ends it, if it runs; returns once it is gone."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()  # not before: the shell beside it kills what is left

    def kill(self) -> None:
        """SIGKILL, if it runs. `stop` is still to be called, or is under way."""
        if self._process is not None:
            self._process.kill()

    @property
    def pid(self) -> int | None:
        """Its process id; None if it was not started, or stopped."""
        return None if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of a controller that has ended by itself, as of a `kafkalite.Broker`."""
        return None if self._process is None else self._process.poll()

    def check(self) -> None:
        """Raises `ControllerFailedError` if it has ended by itself."""
        if (code := self.exit_code) is not None:
            raise ControllerFailedError(f"the controller {ended(code, self.log, self._told())}")

    def _format(self, file: Path) -> None:
        words = [f"--cluster-id={new_id()}", "-c", str(file)]
        words += [f"--feature={name}={RANGES.get(name, (0, 0))[1]}" for name in LOWERED]
        command = self._java("kafka.tools.StorageTool", "format", *words)
        try:
            done = subprocess.run(  # noqa: S603 - Kafka's own tool
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                process_group=0,  # as below
            )
        except OSError as error:
            raise ControllerFailedError(f"{command[0]} cannot be run: {error.strerror}") from error
        told = f"{done.stdout}{done.stderr}".strip()
        if "Could not find or load main class" in told:
            raise ControllerFailedError(
                f"there is no Apache Kafka in the class path {self._kafka}: name the folder of a "
                "distribution, such as kafka_2.13-4.3.1, or all jars in its libs"
            )
        if "UnsupportedClassVersionError" in told:
            raise ControllerFailedError(f"{command[0]} is too old: Kafka needs Java 17 or later")
        if done.returncode != 0:
            raise ControllerFailedError(f"the controller cannot be formatted: {told}")

    def _java(self, main: str, *words: str, options: Sequence[str] = ()) -> list[str]:
        home = java_home()
        java = shutil.which("java" if home is None else f"{home}/bin/java")
        if java is None:
            where = "there is none on PATH" if home is None else f"JAVA_HOME={home} has none"
            raise ControllerFailedError(f"the controller needs Java 17 or later, and {where}")
        return [java, *JVM, *options, "-cp", self._class_path, main, *words]

    def _told(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TOLD_LINES:])


def ended(code: int, log: Path | str | None, told: str) -> str:
    """What there is to say of a process that has ended by itself: `told` are the last lines of its
    log."""
    try:
        how = f"has ended by {signal.Signals(-code).name}"
    except ValueError:
        how = f"has ended with exit code {code}"
    return f"{how}; its log {log} ends with:\n{told}" if told else f"{how}; its log {log} is empty"


def new_id() -> str:
    """An id for a cluster or a directory, as Kafka writes them."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _class_path(kafka: str) -> str:
    if os.pathsep in kafka or kafka.endswith((".jar", "*")):
        return kafka
    libraries = Path(kafka).expanduser() / "libs"
    if not any(libraries.glob("kafka-server-*.jar")):
        raise InvalidArgumentError(
            f"{kafka} is no folder of Apache Kafka's: it has no libs/kafka-server-….jar"
        )
    return str(libraries / "*")

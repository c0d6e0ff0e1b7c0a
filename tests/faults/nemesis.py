"""What befalls a broker while its clients go on: each fault comes, stays a moment and heals.

A fault is a function of the `World`; when it returns the broker runs again and all is well. How
long it stays and whom it meets is drawn from the world's seed.
"""

import fcntl
import os
import random
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

import pytest

from faults.mount import Mount
from faults.proxy import Mode, Proxy

FS_IOC_SHUTDOWN, WITHOUT_THE_JOURNAL = 0x8004587D, 2
STRACE_ATTACHES_S = 30
END_S = 60
CALLS_COUNTED = ("fdatasync", "pwrite64", "renameat2,?rename", "openat", "ftruncate")
"""Calls of which one kills the broker, or fails."""


class Server(Protocol):
    """`kafkalite.Broker`, and `oracle.broker.KafkaBroker` as its control."""

    @property
    def pid(self) -> int: ...
    def start(self) -> object: ...
    def kill(self) -> object: ...


class World:
    """A broker, its log directories with the file systems below them, the proxy before it."""

    def __init__(
        self,
        broker: Server,
        proxy: Proxy,
        log_dirs: Sequence[Path],
        mounts: Sequence[Mount],
        seed: int,
    ) -> None:
        self.broker = broker
        self.proxy = proxy
        self.log_dirs = log_dirs
        self.mounts = mounts
        self.draw = random.Random(seed)

    def stay(self, most_s: float) -> None:
        """Lets a fault last."""
        time.sleep(self.draw.uniform(0.1, most_s))  # the fault itself

    def mount(self) -> Mount:
        return self.draw.choice(self.mounts)

    def come_back(self) -> None:
        """Starts the broker anew, whatever has become of it."""
        self.broker.kill()
        self.broker.start()


def kill(world: World) -> None:
    """SIGKILL at a random moment."""
    world.come_back()


def kill_at_a_call(world: World) -> None:
    """SIGKILL at the n-th system call of a kind."""
    calls = world.draw.choice(CALLS_COUNTED)
    with traced(world.broker.pid, f"{calls}:signal=SIGKILL:when={world.draw.randrange(1, 20)}"):
        _wait_for_end(world.broker.pid, 2.0)
    world.come_back()


def fail_a_flush(world: World) -> None:
    """One `fdatasync` fails with EIO: its log directory is lost until the next start."""
    with traced(world.broker.pid, f"fdatasync:error=EIO:when={world.draw.randrange(1, 10)}"):
        world.stay(2.0)
    world.come_back()


def slow_the_disk(world: World) -> None:
    """Each `fdatasync` takes 50 ms longer."""
    with traced(world.broker.pid, "fdatasync:delay_enter=50000"):
        world.stay(2.0)


def pause(world: World) -> None:
    """SIGSTOP, in which connections and sessions of groups may run out of time."""
    os.kill(world.broker.pid, signal.SIGSTOP)
    world.stay(4.0)
    os.kill(world.broker.pid, signal.SIGCONT)


def freeze(world: World) -> None:
    """A file system answers no write."""
    mount = world.mount()
    mount.freeze()
    try:
        world.stay(4.0)
    finally:
        mount.thaw()


def kill_a_frozen(world: World) -> None:
    """SIGKILL while calls hang in the file system, which go on once it is thawed."""
    mount = world.mount()
    mount.freeze()
    try:
        world.stay(1.0)
        os.kill(world.broker.pid, signal.SIGKILL)
    finally:
        mount.thaw()
    world.come_back()


def fill(world: World) -> None:
    """A file system has no room, and later has some again."""
    mount = world.mount()
    mount.fill()
    world.stay(3.0)
    (mount.path / "filler").unlink()


def cut_the_power(world: World) -> None:
    """What was not flushed is gone, on all file systems at one moment. That lies between two calls:
    Linux 6.18 tells success to some `fdatasync` that are under way when ext4 is shut down, and
    loses their data."""
    stop_between_calls(world.broker.pid)
    for mount in world.mounts:
        lose_unflushed(mount)
    world.broker.kill()
    for mount in world.mounts:
        mount.unmount()
        mount.mount()
    world.broker.start()


def disturb_the_network(world: World) -> None:
    """Bytes come late, in pieces, or not at all; connections break amid a frame."""
    world.proxy.set(world.draw.choice([each for each in Mode if each is not Mode.ON]))
    world.stay(2.0)
    world.proxy.set(Mode.ON)


Fault = Callable[[World], None]
ANYWHERE: tuple[Fault, ...] = (kill, pause, disturb_the_network)
WITH_STRACE: tuple[Fault, ...] = (kill_at_a_call, fail_a_flush, slow_the_disk)
WITH_MOUNTS: tuple[Fault, ...] = (freeze, kill_a_frozen, fill, cut_the_power)


def lose_unflushed(mount: Mount) -> None:
    """As a power cut: ext4 forgets what it has not written, and refuses everything from now on."""
    # The ioctl is fatal for any other file system: only one that a test has made is shut down.
    source = subprocess.run(
        ["findmnt", "-n", "-o", "SOURCE", str(mount.path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert source.startswith("/dev/loop"), f"{mount.path} is on {source}"
    descriptor = os.open(mount.path, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, WITHOUT_THE_JOURNAL.to_bytes(4, "little"))
    finally:
        os.close(descriptor)


@contextmanager
def traced(pid: int, inject: str) -> Iterator[None]:
    """strace tampers with the calls of a process, until the end of the block."""
    calls = inject.partition(":")[0]
    command = ["strace", "-f", "-o", "/dev/null", "-p", str(pid), "-e", f"trace={calls}"]
    tracer = subprocess.Popen(
        [*command, "-e", f"inject={inject}"], stderr=subprocess.PIPE, text=True
    )
    assert tracer.stderr is not None
    try:
        _wait_for_attached(tracer.stderr)
        yield
    finally:
        tracer.terminate()  # it detaches, and the process goes on by itself
        tracer.wait(END_S)
        tracer.stderr.close()


def need_strace() -> None:
    """Skips where no process may trace another one that runs already."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    with subprocess.Popen(["sleep", str(END_S)]) as victim:
        try:
            with traced(victim.pid, "fdatasync:delay_enter=1"):
                pass
        except AssertionError as refusal:
            pytest.skip(f"strace is not allowed here: {refusal}")
        finally:
            victim.kill()


def _wait_for_attached(messages: IO[str]) -> None:
    told = messages.readline()
    assert "attached" in told, f"strace: {told}"


def stop_between_calls(pid: int) -> None:
    """SIGSTOP; returns once each thread has come out of the kernel, and so stands still."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + END_S
    for thread in Path(f"/proc/{pid}/task").iterdir():
        while (thread / "stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
            assert time.monotonic() < deadline, f"{thread} does not stop"


def _wait_for_end(pid: int, timeout_s: float) -> None:
    """Until a process has ended, or the time is over."""
    descriptor = os.pidfd_open(pid)
    try:
        select.select([descriptor], [], [], timeout_s)
    finally:
        os.close(descriptor)

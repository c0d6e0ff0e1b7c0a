"""A broker as a child process ends with the program that has started it, and not before."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from broker.serving import TIMEOUT_S, ends


def parent_of_a_broker(ending: str, data: str = "") -> list[str]:
    """What a program prints that starts a broker and ends as it says: first the broker's pid and
    its log directory."""
    script = (
        "import kafkalite, os, signal, sys\n"
        f"broker = kafkalite.Broker({data}).start()\n"
        "print(broker.pid, broker.data, flush=True)\n"
    )
    parent = subprocess.run(
        [sys.executable, "-c", script + ending],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        start_new_session=True,  # as a shell starts a program
    )
    assert parent.stderr == ""
    return parent.stdout.split()


KILL_ITSELF = "os.kill(os.getpid(), signal.SIGKILL)\n"


def test_a_broker_dies_with_its_parent_and_removes_their_temporary_directory() -> None:
    """The directory stayed in /tmp for ever."""
    pid, folder = parent_of_a_broker(KILL_ITSELF)
    assert ends(int(pid)), "the broker outlived its parent"
    assert not Path(folder).exists()


def test_a_directory_that_is_no_temporary_one_outlives_the_parent(tmp_path: Path) -> None:
    pid, folder = parent_of_a_broker(KILL_ITSELF, data=repr(str(tmp_path / "data")))
    assert ends(int(pid)), "the broker outlived its parent"
    assert (Path(folder) / ".kafka_cleanshutdown").exists()


def test_no_configuration_has_a_directory_of_the_users_removed(tmp_path: Path) -> None:
    data = (
        f"{str(tmp_path / 'kafkalite-data')!r}, config={{'kafkalite.remove.with.parent': 'true'}}"
    )
    pid, folder = parent_of_a_broker(KILL_ITSELF, data)
    assert ends(int(pid)), "the broker outlived its parent"
    assert (Path(folder) / ".kafka_cleanshutdown").exists()


def test_a_temporary_directory_outlives_the_parent_if_the_configuration_says_so() -> None:
    """The key was overwritten."""
    pid, folder = parent_of_a_broker(
        KILL_ITSELF, "config={'kafkalite.remove.with.parent': 'false'}"
    )
    try:
        assert ends(int(pid)), "the broker outlived its parent"
        assert (Path(folder) / ".kafka_cleanshutdown").exists()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_broker_that_nobody_closed_ends_quietly_with_the_program() -> None:
    """The directory was removed under the running broker, which wrote on into it."""
    pid, folder = parent_of_a_broker("")
    assert ends(int(pid))
    assert not Path(folder).exists()


def test_a_broker_that_was_stopped_but_not_closed_leaves_nothing() -> None:
    """The directory stayed in /tmp for ever."""
    _, folder = parent_of_a_broker("broker.stop()\n")
    assert not Path(folder).exists()


def test_a_fork_that_ends_leaves_the_broker_alone() -> None:
    """It removed the temporary directory of the running broker, as anybody does who ends."""
    ending = (
        "if os.fork() == 0:\n"
        "    try: broker.stop()\n"
        "    except kafkalite.KafkaliteError as error: print(error)\n"
        "    broker.close()\n"
        "    sys.exit()\n"
        "os.wait()\n"
        "print('|', os.path.exists(os.path.join(broker.data, '.lock')))\n"
        "print(broker._process.poll(), broker.stop())\n"
        "broker.close()\n"
    )
    told = parent_of_a_broker(ending)
    assert "of which this one is a fork" in " ".join(told)
    assert told[told.index("|") + 1 :] == ["True", "None", "0"]


def test_an_interrupt_at_the_terminal_is_for_the_program_and_not_for_its_broker() -> None:
    """Ctrl-C, and a notebook's interrupt, go to the whole process group: the broker was gone when
    the program went on."""
    ending = (
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "try: os.killpg(0, signal.SIGINT)\n"
        "except KeyboardInterrupt: pass\n"
        "from kafkalite.client import Admin, Producer\n"
        "with Admin(broker.bootstrap_servers) as admin: admin.create_topic('orders')\n"
        "with Producer(broker.bootstrap_servers, delivery_timeout_ms=30_000) as producer:\n"
        "    producer.send('orders', b'one')\n"
        "print('sent')\n"
        "broker.close()\n"
    )
    assert parent_of_a_broker(ending)[2:] == ["sent"]


def test_a_broker_dies_with_its_parent_though_a_fork_of_it_lives_on() -> None:
    """A fork holds the other end of the broker's stdin, which then never ends."""
    script = (
        "import kafkalite, os, signal\n"
        "broker = kafkalite.Broker().start()\n"
        "fork = os.fork()\n"
        "if fork == 0:\n"
        "    os.close(1)\n"
        "    signal.pause()\n"
        "print(broker.pid, fork, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    parent = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, timeout=60, check=False
    )
    broker, fork = map(int, parent.stdout.split())
    try:
        assert ends(broker), "the broker outlived its parent"
    finally:
        os.kill(fork, signal.SIGKILL)

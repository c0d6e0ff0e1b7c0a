"""What the broker's log says of the loading of its logs."""

import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from kafkalite.client import Admin
from kafkalite.client.producer.producer import Producer
from kafkalite.errors import LoadStoppedError
from kafkalite.service.loading import report_loading
from kafkalite.service.stderr_log import Log
from kafkalite.service.supervisor import Supervisor


def test_a_start_after_a_kill_says_that_it_recovers_and_how_much(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = kafkalite.Broker(data).start()
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("orders", partitions=3)
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(300):
            producer.send("orders", b"%d" % number * 100, None)
    broker.kill()
    broker.start()
    told = broker.log_tail()
    assert f"INFO {data} was not stopped cleanly: its logs are recovered" in told
    assert re.search(r"3 of 3 logs are loaded, \d\.\d MB recovered; it took \d+\.\d\d s", told)
    broker.stop()
    indexes = [*data.glob("orders-*/*index")]
    assert len(indexes) == 6
    before = [each.stat().st_ino for each in indexes]
    broker.start()
    told = broker.log_tail()
    assert re.search(r"3 of 3 logs are loaded; it took", told)
    # What was stopped cleanly is taken as it is.
    assert [each.stat().st_ino for each in indexes] == before
    assert "recovered" not in told.partition("stopped\n")[2]
    broker.close()


def test_logs_that_are_gone_at_a_start_are_named(tmp_path: Path) -> None:
    """They were made anew without a word, empty."""
    with kafkalite.Broker(tmp_path / "data") as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("orders", partitions=13)
            admin.create_topic("kept")
        broker.stop()
        broker.start()
        assert "created again" not in broker.log_tail()
        broker.stop()
        for path in (tmp_path / "data").glob("orders-*"):
            shutil.rmtree(path)
        broker.start()
        told = broker.log_tail()
        assert (
            "WARNING 13 logs are not in the log directories and are created again, empty: " in told
        )
        (names,) = re.findall("created again, empty: (.*) …", told)
        assert len(names.split(", ")) == 10
        assert "kept" not in names


def test_a_long_loading_is_told_while_it_lasts(capfd: pytest.CaptureFixture[str]) -> None:
    class Claimed:
        directories = ()
        asked = threading.Event()

        @property
        def progress(self) -> tuple[int, int]:
            self.asked.set()
            return 2, 5_000_000

    claimed: Any = Claimed()
    log = Log("info")
    with report_loading(claimed, 7, log, Supervisor(None, log.warning), every_s=0.001):
        assert claimed.asked.wait(60)
    assert "INFO 2 of 7 logs are loaded, 5.0 MB recovered\n" in capfd.readouterr().err


def test_of_a_node_without_logs_nothing_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    claimed: Any = None
    log = Log("debug")
    with report_loading(claimed, 0, log, Supervisor(None, log.warning)):
        pass
    assert capfd.readouterr().err == ""


def test_a_signal_ends_the_loading_and_the_next_start_recovers(tmp_path: Path) -> None:
    """A long recovery kept a broker from stopping until a service manager killed it."""
    data = tmp_path / "data"
    with kafkalite.Broker(data) as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("orders", partitions=20)
        with Producer(broker.bootstrap_servers) as producer:
            for number in range(200):
                producer.send("orders", b"%d" % number, partition=number % 20)
        broker.kill()
        command = [sys.executable, "-m", "kafkalite", "serve", "--data", str(data)]
        with subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            assert "log directories" in process.stderr.readline()
            process.send_signal(signal.SIGTERM)
            told = process.stderr.read()
        assert process.returncode == 0
        assert "INFO stopped before the logs were loaded" in told
        assert "listener" not in told
        assert not (data / ".kafka_cleanshutdown").exists()
        broker.start()
        assert "20 of 20 logs are loaded, 0.0 MB recovered" in broker.log_tail()


def test_a_signal_has_the_loading_given_up_and_comes_out_of_the_block() -> None:
    class Claimed:
        directories = ()
        progress = (2, 0)
        stopped = threading.Event()

        def stop_loading(self) -> None:
            self.stopped.set()

    claimed: Any = Claimed()
    log = Log("info")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        with (
            pytest.raises(LoadStoppedError),
            report_loading(
                claimed, 7, log, Supervisor(None, log.warning), frozenset({signal.SIGUSR2})
            ),
        ):
            # Sent to the thread that waits for it: a thread that an earlier test left behind does
            # not block the signal, and one sent to the process would end it there.
            waiting = next(each for each in threading.enumerate() if each.name == "loading")
            assert waiting.ident is not None
            signal.pthread_kill(waiting.ident, signal.SIGUSR2)
            assert claimed.stopped.wait(60)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

"""Transactions that nobody will end: a start tells of them."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import kafkalite
from api.raw import Connection
from api.transactions import Transactor, transactor
from kafkalite.client.transaction_admin import TransactionAdmin, hanging
from kafkalite.errors import BrokerError
from kafkalite.protocol import messages
from kafkalite.tasks import Tasks
from kafkalite.timers import Timers
from kafkalite.transactions.hanging import tell_of_hanging


def begun(connection: Connection, topic: str) -> Transactor:
    client = transactor(connection)
    assert client.add((topic, 0)) == {(topic, 0): 0}
    assert client.produce(topic, 0) == 0
    return client


@pytest.mark.parametrize("is_hanging", [True, False])
def test_a_hanging_transaction_is_told_of_with_the_command_that_ends_it(
    tmp_path: Path, is_hanging: bool
) -> None:
    with kafkalite.Broker(tmp_path / "data") as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("topic").error_code == 0
            assert connection.create_topic("quiet").error_code == 0
            done = begun(connection, "quiet")
            assert done.end(True) == 0
            client = begun(connection, "topic")
            if is_hanging:
                # A directory that has lost what its coordinator knew.
                name = "__transaction_state"
                kind = messages.DeleteTopicsRequest
                request = kind(topics=[kind.DeleteTopicState(name=name)], timeout_ms=30_000)
                assert connection.ask("DeleteTopics", 6, request).responses[0].error_code == 0
        broker.kill()
        broker.start()
        place = "--topic topic --partition 0 --start-offset 0"
        command = f"kafkalite transactions abort --bootstrap-server HOST:PORT {place}"
        deadline = time.monotonic() + (30 if is_hanging else 2)
        while command not in broker.log_tail(1_000) and time.monotonic() < deadline:
            time.sleep(0.05)  # the poll of the log
        lines = [line for line in broker.log_tail(1_000).splitlines() if "does not know" in line]
        assert len(lines) == is_hanging
        assert all(f"producer {client.producer_id} " in line for line in lines)


def test_nobody_is_asked_to_abort_what_a_coordinator_may_know_that_is_not_loaded(
    tmp_path: Path,
) -> None:
    """The log named the command, which tore a transaction whose commit was decided: its
    `__transaction_state` lay in a directory that was offline."""
    folders = [tmp_path / "one", tmp_path / "two"]
    config = {
        "log.dirs": ",".join(map(str, folders)),
        "metadata.log.dir": str(tmp_path / "metadata"),
        "transaction.state.log.num.partitions": "1",
    }
    with kafkalite.Broker(config=config) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            client = transactor(connection)
            (lost,) = (each for each in folders if (each / "__transaction_state-0").exists())
            for topic in ("t1", "t2"):
                assert connection.create_topic(topic).error_code == 0
            topic = next(each for each in ("t1", "t2") if not (lost / f"{each}-0").exists())
            assert client.add((topic, 0)) == {(topic, 0): 0}
            assert client.produce(topic, 0) == 0
        broker.kill()
        lost.rename(tmp_path / "away")
        lost.touch()
        broker.start()
        deadline = time.monotonic() + 30
        while "may be hanging" not in broker.log_tail(1_000) and time.monotonic() < deadline:
            time.sleep(0.05)  # the poll of the log
        (line,) = [each for each in broker.log_tail(1_000).splitlines() if "hanging" in each]
        assert f"in {topic}-0, may be" in line
        assert "__transaction_state-0 " in line
        assert "transactions abort" not in broker.log_tail(1_000)
        with (
            TransactionAdmin(broker.bootstrap_servers) as admin,
            pytest.raises(BrokerError, match="__transaction_state-0 has no leader"),
        ):
            hanging(admin, admin.describe_producers([(topic, 0)]))


def test_what_was_let_go_and_loaded_anew_meanwhile_may_have_known_a_transaction() -> None:
    """Its entries were gone when it was asked what it knew, and it was loaded again when it was
    asked if it knew everything: the log named the command that tears the transaction."""
    tasks = Tasks(Timers(), lambda error: pytest.fail(str(error)))
    offsets = SimpleNamespace(last_stable_offset=0, high_watermark=1)
    let_go, anew = (
        SimpleNamespace(
            topic="__transaction_state",
            partition=0,
            knows_all=knows_all,
            machine=SimpleNamespace(entries={}),
        )
        for knows_all in (False, True)
    )
    runtime = SimpleNamespace(is_loading=False, shards=[let_go])
    asked: list[tuple[str, int]] = []
    warnings: list[str] = []

    async def describe_producers(*place: Any) -> list[Any]:
        asked.append(place)
        if len(asked) == 2:
            runtime.shards[0] = anew
        return [SimpleNamespace(producer_id=7, current_transaction_first_offset=0)]

    context = SimpleNamespace(
        image=SimpleNamespace(topics={"t": SimpleNamespace(name="t", partitions=[None])}),
        core=SimpleNamespace(
            logs=SimpleNamespace(find=lambda *_: SimpleNamespace(offsets=offsets))
        ),
        logs=SimpleNamespace(describe_producers=describe_producers),
        log=SimpleNamespace(warning=warnings.append),
        transactions=SimpleNamespace(runtime=runtime),
        tasks=tasks,
    )
    told = tasks.start(tell_of_hanging(cast(Any, context)))
    assert told.is_done
    (warning,) = warnings
    assert "is not loaded here" in warning

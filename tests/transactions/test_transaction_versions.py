"""The levels of `transaction.version`: each of them works, and a cluster moves between them."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest

import kafkalite
from api.raw import Connection
from api.transactions import Transactor, transactor
from kafkalite.protocol import codes, messages
from oracle.tools import KafkaTools, Record

STATE = "__transaction_state-0"
UPGRADE, UNSAFE_DOWNGRADE = 1, 3
_numbers = itertools.count()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[kafkalite.Broker]:
    config = {"transaction.state.log.num.partitions": "1"}
    with kafkalite.Broker(tmp_path / "data", config=config) as running:
        yield running


def finalise(connection: Connection, level: int) -> None:
    """Moves `transaction.version`, from wherever it is."""
    for upgrade_type in (UPGRADE, UNSAFE_DOWNGRADE):
        kind = messages.UpdateFeaturesRequest
        update = kind.FeatureUpdateKey(
            feature="transaction.version", max_version_level=level, upgrade_type=upgrade_type
        )
        request = kind(timeout_ms=5000, feature_updates=[update])
        code = connection.ask("UpdateFeatures", 2, request).error_code
        if code != codes.INVALID_UPDATE_VERSION:
            break
    assert code == codes.NONE


def new_topic(connection: Connection) -> str:
    name = f"versions-{next(_numbers)}"
    assert connection.create_topic(name).error_code == 0
    return name


def state_versions(data: Path) -> list[int]:
    """The value versions of `__transaction_state`, in its order."""
    rows = kafkalite.read_log(data / STATE, columns=["value"]).to_pyarrow().to_pylist()
    return [int.from_bytes(row["value"][:2], "big") for row in rows]


def epoch_of(connection: Connection, name: str) -> int:
    request = messages.DescribeTransactionsRequest(transactional_ids=[name])
    (state,) = connection.ask("DescribeTransactions", 0, request).transaction_states
    assert state.error_code == 0
    return int(state.producer_epoch)


def produce(client: Transactor, topic: str, version: int) -> int:
    """The first record of a transaction, asked again while the last one ends."""
    while (code := client.produce(topic, 0, version)) in (19, 51):
        pass
    return code


def test_a_new_directory_has_an_epoch_for_each_transaction(
    broker: kafkalite.Broker, tmp_path: Path
) -> None:
    with Connection(broker.bootstrap_servers) as connection:
        topic = new_topic(connection)
        client = transactor(connection)
        for commit in (True, False, True):
            epoch = client.epoch
            assert produce(client, topic, 12) == 0
            assert client.end(commit, version=5) == 0
            assert client.epoch == epoch + 1
            # A late end of the transaction before can do nothing to the next one.
            assert client.end(not commit, version=5, epoch=epoch) == 48
    assert set(state_versions(tmp_path / "data")) == {1}


@pytest.mark.parametrize("level", [0, 1])
def test_at_lower_levels_transactions_share_their_epoch(
    broker: kafkalite.Broker, tmp_path: Path, level: int
) -> None:
    with Connection(broker.bootstrap_servers) as connection:
        finalise(connection, level)
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap_servers) as connection:
        topic = new_topic(connection)
        client = transactor(connection)
        for at in range(2):
            assert client.add((topic, 0)) == {(topic, 0): 0}
            assert client.produce(topic, at) == 0
            assert client.end(True) == 0
        assert epoch_of(connection, client.name) == client.epoch == 0
        if level == 0:
            # Its record has no room for them.
            assert client.produce(topic, 2, version=12) == 35
            assert client.end(False, version=5) == 35
    assert set(state_versions(tmp_path / "data")) == {level}


def test_a_transaction_ends_in_whatever_level_it_began(broker: kafkalite.Broker) -> None:
    with Connection(broker.bootstrap_servers) as connection:
        topic = new_topic(connection)
        for at, (low, high) in enumerate(((0, 2), (1, 2), (0, 1))):
            for before, after in ((low, high), (high, low)):
                finalise(connection, before)
                client = transactor(connection)
                has_epochs = before == 2
                if has_epochs:
                    assert produce(client, topic, 12) == 0
                else:
                    assert client.add((topic, 0)) == {(topic, 0): 0}
                    assert client.produce(topic, 0) == 0
                finalise(connection, after)
                assert client.end(bool(at % 2), version=5 if after == 2 else 4) == 0
                other = Transactor(connection, client.name)
                assert other.init() == 0
                assert other.epoch > client.epoch - (after == 2)
        end = connection.fetch(topic, 0).high_watermark
        while transactor(connection).stable_end(topic) != end:
            pass


@pytest.mark.parametrize("level", [0, 1, 2])
def test_librdkafka_uses_every_level(broker: kafkalite.Broker, level: int) -> None:
    servers = broker.bootstrap_servers
    with Connection(servers) as connection:
        finalise(connection, level)
        topic = new_topic(connection)
        client = ck.Producer({"bootstrap.servers": servers, "transactional.id": topic})
        client.init_transactions(30)
        for at in range(4):
            client.begin_transaction()
            client.produce(topic, str(at).encode())
            # It ends a transaction, which is refused, before it has a partition otherwise.
            assert client.flush(30) == 0
            client.abort_transaction(30) if at % 2 else client.commit_transaction(30)
        # It knows nothing of epochs for each transaction, up to 2.14.
        assert epoch_of(connection, topic) == 0


@pytest.mark.oracle
@pytest.mark.parametrize(("level", "epoch"), [(0, 0), (1, 0), (2, 4)])
def test_kafkas_producer_uses_every_level(
    broker: kafkalite.Broker, kafka_tools: KafkaTools, level: int, epoch: int
) -> None:
    servers = broker.bootstrap_servers
    with Connection(servers) as connection:
        finalise(connection, level)
        topic = new_topic(connection)
        steps: list[Record | str] = []
        for at in range(4):
            end = "abort" if at % 2 else "commit"
            steps += ["begin", Record(topic, str(at).encode()), "flush", end]
        config = {"transactional.id": topic}
        kafka_tools.produce(servers, steps, config=config)
        assert epoch_of(connection, topic) == epoch
        seen = kafka_tools.consume(servers, topic, config={"isolation.level": "read_committed"})
        assert [each.value for each in seen] == [b"0", b"2"]

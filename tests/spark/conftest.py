"""One SparkSession, one kafkalite broker and the session's one Kafka for everything in here."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkalite import Broker
from kafkalite.spark import jar_path
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from spark.records import fill, hurried_cleaner
from spark.session import build_session

# The first test's limit has the start of Spark and Kafka and the filling of both brokers in it, and
# what is cut off there is missing for all tests: on a machine with ten times as much work to do as
# it has cores, Spark's start alone has taken two minutes.
TIMEOUT_S = 900


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """The limit of every test in here that does not say another."""
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark in this process's JVM; a test that sets an option of the session unsets it."""
    session = build_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """The kafkalite broker; a test that stops one starts its own."""
    with Broker(config={"log.cleaner.backoff.ms": "200", "log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """A broker of the test's own: each pipeline makes its topics."""
    with Broker() as running:
        yield running


@pytest.fixture(scope="session")
def topics(broker: Broker, kafka: KafkaBroker, kafka_tools: KafkaTools) -> dict[str, str]:
    """The topics of `records.py` on both brokers, which are given by name: bootstrap servers."""
    brokers = {"kafkalite": broker.bootstrap_servers, "kafka": kafka.bootstrap_servers}
    with hurried_cleaner(kafka.bootstrap_servers), ThreadPoolExecutor() as pool:
        made = [
            pool.submit(fill, servers, kafka_tools, transactions=name == "kafka")
            for name, servers in brokers.items()
        ]
        for each in made:
            each.result()
    return brokers


@pytest.fixture(params=["python", "jvm"])
def engine(request: pytest.FixtureRequest) -> str:
    """The engine that reads, for the option `engine`."""
    name: str = request.param
    if name == "jvm" and jar_path() is None:
        pytest.fail("kafkalite's jar was not built: `make jar`")
    return name

"""One SparkSession, one kafkalite broker and the session's one Kafka for everything in here."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from kafkalite import Broker
from spark.session import build_session, own_jar


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark in this process's JVM; options of the session that a test sets, it also unsets."""
    session = build_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """The kafkalite broker; a test that stops one starts its own."""
    with Broker() as running:
        yield running


@pytest.fixture(params=["python", "jvm"])
def engine(request: pytest.FixtureRequest) -> str:
    """The engine that reads, for the option `engine`."""
    name: str = request.param
    if name == "jvm" and own_jar() is None:
        pytest.fail("kafkalite's jar was not built: `make jar`")
    return name

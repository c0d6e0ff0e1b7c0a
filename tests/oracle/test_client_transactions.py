"""The client's transactional producer against Apache Kafka, with an epoch for each transaction and
without."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api.raw import Connection
from client.transactional import STORIES, goes_on_after_a_kill
from kafkalite.protocol import messages
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from transactions.test_transaction_versions import finalise

pytestmark = pytest.mark.oracle

UPGRADE = 1
_numbers = itertools.count()


@pytest.fixture(scope="module", params=[2, 1], ids=["TV2", "TV1"])
def servers(request: pytest.FixtureRequest, kafka: KafkaBroker) -> Iterator[str]:
    with Connection(kafka.bootstrap_servers) as connection:
        finalise(connection, request.param)
        yield kafka.bootstrap_servers
    if request.param < 2:  # the others' tests have it as Kafka's format has it
        kind = messages.UpdateFeaturesRequest
        update = kind.FeatureUpdateKey(
            feature="transaction.version", max_version_level=2, upgrade_type=UPGRADE
        )
        with Connection(kafka.bootstrap_servers) as connection:
            answer = connection.ask(
                "UpdateFeatures", 2, kind(timeout_ms=5000, feature_updates=[update])
            )
        assert answer.error_code == 0


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_story_holds_against_kafka(servers: str, story: Callable[[str, str], None]) -> None:
    story(servers, f"client-transactions-{next(_numbers)}")


def test_a_producer_goes_on_with_its_transaction_after_kafka_was_killed(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    broker = KafkaBroker(kafka_tools, tmp_path)

    def start() -> str:
        return broker.start().bootstrap_servers

    try:
        goes_on_after_a_kill(start, broker.kill, "killed")
    finally:
        broker.kill()

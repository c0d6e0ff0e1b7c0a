"""The table of changes that kafkalite is held to, put to Apache Kafka itself."""

import time
from collections.abc import Iterator

import pytest

from api.config_cases import CASES, SET_AT_LAST
from api.configs import change, own, set_topic
from api.raw import Connection
from kafkalite.protocol import messages
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def connection(
    kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connection]:
    folder = tmp_path_factory.mktemp("changes")
    with KafkaBroker(kafka_tools, folder) as broker, Connection(broker.bootstrap_servers) as opened:
        yield opened


def test_kafka_answers_each_change_as_the_table_says(connection: Connection) -> None:
    made = connection.create_topic("altered", partitions=2, retention_ms="1234")
    assert made.error_code == 0
    for case in CASES:
        answer = change(connection, (*case.resource, case.operations))
        assert answer == [(case.code, case.sentence)], case
    for resource, configs in SET_AT_LAST.items():
        assert own(connection, *resource) == configs


def test_kafka_deletes_records_by_the_policy_of_the_topic(connection: Connection) -> None:
    """As tests/api/test_k21_delete_records.py has it; Kafka's log takes a moment to obey."""
    kind = messages.DeleteRecordsRequest
    partition = kind.DeleteRecordsTopic.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = kind.DeleteRecordsTopic(name="deleted", partitions=[partition])
    assert connection.create_topic("deleted").error_code == 0
    # Every second policy allows it, so that each change is seen.
    for policy, code in (("compact", 44), ("compact,delete", 0), ("compact", 44), ("", 0)):
        set_topic(connection, "deleted", cleanup_policy=policy)
        deadline = time.monotonic() + 60
        answer = None
        while answer != code and time.monotonic() < deadline:
            asked = connection.ask("DeleteRecords", 2, kind(topics=[topic], timeout_ms=5_000))
            answer = asked.topics[0].partitions[0].error_code
        assert answer == code, policy

"""ListPartitionReassignments by frames."""

from api.raw import Connection
from kafkalite.protocol import messages


def test_nothing_is_ever_moved(connection: Connection, topic: str) -> None:
    kind = messages.ListPartitionReassignmentsRequest
    named = kind.ListPartitionReassignmentsTopics(name=topic, partition_indexes=[0])
    for topics in (None, [named]):
        answer = connection.ask("ListPartitionReassignments", 0, kind(topics=topics))
        assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])

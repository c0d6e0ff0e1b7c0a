"""OffsetDelete by frames. Codes are those of Apache Kafka 4.3.1 for the same requests."""

from typing import Any

from api.group_requests import (
    commit,
    committed,
    find_coordinator,
    leave,
    stable_member,
    subscription,
)
from api.raw import Connection
from kafkalite.protocol import messages


def delete(
    connection: Connection, group: str, *topics: tuple[str, list[int]]
) -> tuple[int, dict[tuple[str, int], int]]:
    kind = messages.OffsetDeleteRequest
    topic_kind = kind.OffsetDeleteRequestTopic
    request = kind(
        group_id=group,
        topics=[
            topic_kind(
                name=name,
                partitions=[
                    topic_kind.OffsetDeleteRequestPartition(partition_index=index)
                    for index in indexes
                ],
            )
            for name, indexes in topics
        ],
    )
    answer: Any = connection.ask("OffsetDelete", 0, request)
    found = {
        (topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }
    return answer.error_code, found


def test_offsets_that_nobody_reads_are_forgotten(connection: Connection, topic: str) -> None:
    find_coordinator(connection, "any")
    commit(connection, "forgets", topic, (0, 9))
    code, found = delete(connection, "forgets", (topic, [0, 7]), ("no-such-topic", [1]))
    assert code == 0
    assert found == {(topic, 0): 0, (topic, 7): 3, ("no-such-topic", 1): 3}
    assert committed(connection, "forgets", topic) == -1
    assert delete(connection, "forgets", (topic, [0])) == (0, {(topic, 0): 0})


def test_offsets_that_members_read_stay(connection: Connection, topic: str) -> None:
    assert connection.create_topic(f"{topic}-other").error_code == 0
    member_id = stable_member(
        connection, f"reads-{topic}", protocols=(("range", subscription(topic)),)
    )
    for name in (topic, f"{topic}-other"):
        commit(connection, f"reads-{topic}", name, (0, 9), generation_id=1, member_id=member_id)
    code, found = delete(connection, f"reads-{topic}", (topic, [0]), (f"{topic}-other", [0]))
    assert (code, found) == (0, {(topic, 0): 86, (f"{topic}-other", 0): 0})
    assert committed(connection, f"reads-{topic}", topic) == 9
    assert committed(connection, f"reads-{topic}", f"{topic}-other") == -1
    leave(connection, f"reads-{topic}", (member_id, None))
    assert delete(connection, f"reads-{topic}", (topic, [0])) == (0, {(topic, 0): 0})


def test_groups_that_are_not_there_or_not_of_consumers_are_refused(
    connection: Connection, topic: str
) -> None:
    find_coordinator(connection, "any")
    assert delete(connection, "no-such-group", (topic, [0])) == (69, {})
    assert delete(connection, "no-such-group", ("no-such-topic", [0])) == (69, {})
    assert delete(connection, "", (topic, [0])) == (24, {})
    stable_member(connection, "connect-group", protocol_type="connect")
    assert delete(connection, "connect-group", (topic, [0])) == (68, {})

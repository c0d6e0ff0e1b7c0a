"""What a fake broker answers consumers: partitions of a topic with their records, and a group with
one member."""

from collections.abc import Sequence
from typing import Any

from kafkalite._native import BatchBuilder
from kafkalite.client import Consumer
from kafkalite.protocol import messages

TOPIC = "orders"
NODE = 1


def batch(base_offset: int, values: Sequence[bytes]) -> bytes:
    """A batch as it lies in a log."""
    builder = BatchBuilder(base_offset=base_offset)
    for value in values:
        builder.append(0, None, value, [])
    return builder.finish()


def damaged(good: bytes) -> bytes:
    """The same batch with a bit of its last record turned over."""
    return good[:-1] + bytes([good[-1] ^ 1])


def value(partition: int, offset: int) -> bytes:
    """What the record of an offset has."""
    return b"%d:%d" % (partition, offset)


class Logs:
    """Batches of three records each, by partition. A handler for `FakeBroker`; tests replace what
    it says of a partition, or call it for what they do not decide themselves."""

    def __init__(self, counts: dict[int, int]) -> None:
        """`counts`: the batches of each partition."""
        self.batches = {
            partition: [
                batch(3 * number, [value(partition, 3 * number + each) for each in range(3)])
                for number in range(count)
            ]
            for partition, count in counts.items()
        }
        self.codes: dict[int, int] = {}
        """Error codes of Fetch, by partition."""
        self.committed: dict[int, int] = {}
        self.committed_epochs: dict[int, int] = {}
        """Leader epochs that were committed with offsets."""
        self.commits: list[dict[int, int]] = []
        """What was committed each time."""
        self.batches_max = 1000
        """What an answer has of a partition at most."""
        self.heartbeat_code = 0
        self.generation = 0

    def __call__(self, name: str, request: Any) -> Any:
        answer = getattr(self, f"on_{name}", None)
        return ... if answer is None else answer(request)

    def on_Fetch(self, request: Any) -> Any:  # noqa: N802 - as the request is called
        kind = messages.FetchResponse
        inner = kind.FetchableTopicResponse
        rows = [
            inner.PartitionData(
                partition_index=asked.partition,
                error_code=self.codes.get(asked.partition, 0),
                high_watermark=3 * len(self.batches[asked.partition]),
                records=self.records(asked.partition, asked.fetch_offset),
            )
            for topic in request.message.topics
            for asked in topic.partitions
        ]
        return kind(responses=[inner(topic=TOPIC, partitions=rows)])

    def records(self, partition: int, offset: int) -> bytes:
        first = offset // 3
        return b"".join(self.batches[partition][first : first + self.batches_max])

    def on_ListOffsets(self, request: Any) -> Any:  # noqa: N802
        kind = messages.ListOffsetsResponse
        inner = kind.ListOffsetsTopicResponse
        rows = [
            inner.ListOffsetsPartitionResponse(
                partition_index=asked.partition_index,
                offset=0 if asked.timestamp == -2 else 3 * len(self.batches[asked.partition_index]),
            )
            for topic in request.message.topics
            for asked in topic.partitions
        ]
        return kind(topics=[inner(name=TOPIC, partitions=rows)])

    def on_FindCoordinator(self, request: Any) -> Any:  # noqa: N802, ARG002
        kind = messages.FindCoordinatorResponse
        host, port = self.address
        return kind(coordinators=[kind.Coordinator(node_id=NODE, host=host, port=port)])

    address = ("127.0.0.1", 0)
    """That of the broker, for consumers with a group."""

    def on_OffsetFetch(self, request: Any) -> Any:  # noqa: N802
        kind = messages.OffsetFetchResponse.OffsetFetchResponseGroup
        inner = kind.OffsetFetchResponseTopics
        (group,) = request.message.groups
        rows = [
            inner.OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=self.committed.get(index, -1),
                committed_leader_epoch=self.committed_epochs.get(index, -1),
            )
            for topic in group.topics
            for index in topic.partition_indexes
        ]
        topics = [inner(name=TOPIC, partitions=rows)]
        return messages.OffsetFetchResponse(groups=[kind(group_id=group.group_id, topics=topics)])

    def on_OffsetCommit(self, request: Any) -> Any:  # noqa: N802
        kind = messages.OffsetCommitResponse
        inner = kind.OffsetCommitResponseTopic
        asked = [row for topic in request.message.topics for row in topic.partitions]
        self.commits.append({row.partition_index: row.committed_offset for row in asked})
        self.committed |= self.commits[-1]
        self.committed_epochs |= {row.partition_index: row.committed_leader_epoch for row in asked}
        rows = [
            inner.OffsetCommitResponsePartition(partition_index=row.partition_index)
            for row in asked
        ]
        return kind(topics=[inner(name=TOPIC, partitions=rows)])

    def on_JoinGroup(self, request: Any) -> Any:  # noqa: N802
        self.generation += 1
        self.heartbeat_code = 0
        kind = messages.JoinGroupResponse
        metadata = request.message.protocols[0].metadata
        return kind(
            generation_id=self.generation,
            protocol_name="range",
            leader="member",
            member_id="member",
            members=[kind.JoinGroupResponseMember(member_id="member", metadata=metadata)],
        )

    def on_SyncGroup(self, request: Any) -> Any:  # noqa: N802
        return messages.SyncGroupResponse(assignment=request.message.assignments[0].assignment)

    def on_Heartbeat(self, request: Any) -> Any:  # noqa: N802, ARG002
        return messages.HeartbeatResponse(error_code=self.heartbeat_code)

    def on_LeaveGroup(self, request: Any) -> Any:  # noqa: N802, ARG002
        return messages.LeaveGroupResponse()


def values(consumer: Consumer, count: int) -> list[bytes | None]:
    """The next records, so many at least, and without waiting for any that do not come."""
    found: list[bytes | None] = []
    for _ in range(600):
        if len(found) >= count:
            break
        found += [record.value for record in consumer.poll(100)]
    return found

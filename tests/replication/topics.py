"""Topics that the broker of a connection makes, deletes and elects leaders for: an `AdminClient`
asks any broker that it hears of, and the one of the test before may not be fenced yet."""

from collections.abc import Sequence

from api.raw import Connection
from kafkalite.protocol import codes, messages

TIMEOUT_MS = 60_000
UNCLEAN = 1


def make(
    connection: Connection,
    *names: str,
    replicas: Sequence[int],
    partitions: int = 1,
    **configs: str,
) -> None:
    """All their partitions have these replicas; configurations are named as by
    `Connection.create_topic`."""
    kind = messages.CreateTopicsRequest.CreatableTopic
    place, config = kind.CreatableReplicaAssignment, kind.CreatableTopicConfig
    topics = [
        kind(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                place(partition_index=index, broker_ids=list(replicas))
                for index in range(partitions)
            ],
            configs=[
                config(name=key.replace("_", "."), value=value) for key, value in configs.items()
            ],
        )
        for name in names
    ]
    request = messages.CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
    answer = connection.ask("CreateTopics", 7, request)
    told = {each.name: (each.error_code, each.error_message) for each in answer.topics}
    assert told == dict.fromkeys(names, (codes.NONE, None))


def delete(connection: Connection, name: str) -> None:
    topic = messages.DeleteTopicsRequest.DeleteTopicState(name=name)
    request = messages.DeleteTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    (told,) = connection.ask("DeleteTopics", 6, request).responses
    assert told.error_code == codes.NONE, told


def elect_unclean(connection: Connection, name: str, partition: int) -> None:
    """Has a replica lead that is not in sync."""
    kind = messages.ElectLeadersRequest
    asked = kind.TopicPartitions(topic=name, partitions=[partition])
    request = kind(election_type=UNCLEAN, topic_partitions=[asked], timeout_ms=TIMEOUT_MS)
    answer = connection.ask("ElectLeaders", 2, request)
    ((told,),) = [each.partition_result for each in answer.replica_election_results]
    assert (answer.error_code, told.error_code) == (codes.NONE, codes.NONE), answer

"""ElectLeaders (key 43), versions 0 to 2.

Behaviour: every partition has one replica, so that either it leads, or there is nobody to elect.
With null for the partitions all are looked at, and those without a leader are answered.

Refusals, of the whole request (`ControllerApis.handleElectLeaders`):
CLUSTER_AUTHORIZATION_FAILED, REQUEST_TIMED_OUT without a
positive time-out, INVALID_REQUEST for an unknown kind of election. Per partition:
UNKNOWN_TOPIC_OR_PARTITION; ELECTION_NOT_NEEDED where there is a leader; without one
PREFERRED_LEADER_NOT_AVAILABLE, for an unclean election ELIGIBLE_LEADERS_NOT_AVAILABLE.

Version notes: v1 has unclean elections and an error of the whole (KIP-460).
"""

from collections.abc import Iterable

from kafkalite import _native
from kafkalite.access import ALTER, CLUSTER, DENIALS
from kafkalite.context import Context
from kafkalite.protocol import codes, messages

NAME = "ElectLeaders"

PREFERRED = 0
UNCLEAN = 1

Refusal = tuple[int, str | None]
"""Code and sentence."""

NOT_AVAILABLE = {
    PREFERRED: (
        codes.PREFERRED_LEADER_NOT_AVAILABLE,
        "The preferred leader was not available.",
    ),
    UNCLEAN: (
        codes.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "Eligible topic partition leaders are not available.",
    ),
}
NOT_NEEDED = codes.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."


async def handle(
    context: Context, request: _native.Request, message: messages.ElectLeadersRequest
) -> messages.ElectLeadersResponse:
    """Answers with the outcome that an election of each partition would have."""
    kind = messages.ElectLeadersResponse
    response = kind()
    asked = message.topic_partitions
    refusal: Refusal | None = None
    if not context.may(request, ALTER, CLUSTER):
        refusal = DENIALS[CLUSTER]
    elif asked == []:
        return response
    else:
        refusal = _refusal(message)
    if refusal is not None:
        response.error_code = refusal[0]
    sliced = context.tasks.sliced
    async for name, indexes in sliced(_topics(context, asked, is_refused=refusal is not None)):
        outcomes = [
            (index, *(refusal or _outcome(context, name, index, message.election_type)))
            async for index in sliced(indexes)
        ]
        response.replica_election_results.append(
            kind.ReplicaElectionResult(
                topic=name,
                partition_result=[
                    kind.ReplicaElectionResult.PartitionResult(
                        partition_id=index, error_code=code, error_message=sentence
                    )
                    async for index, code, sentence in sliced(outcomes)
                    if asked is not None or code != codes.ELECTION_NOT_NEEDED
                ],
            )
        )
    return response


def _topics(
    context: Context,
    asked: list[messages.ElectLeadersRequest.TopicPartitions] | None,
    *,
    is_refused: bool,
) -> Iterable[tuple[str, Iterable[int]]]:
    """Name and partitions of each topic to answer for. A refusal names what was asked for only."""
    if asked is not None:
        return [(each.topic, each.partitions) for each in asked]
    topics = () if is_refused else context.image.topics.values()
    return [(topic.name, range(len(topic.partitions))) for topic in topics]


def _refusal(message: messages.ElectLeadersRequest) -> Refusal | None:
    """Returns why the whole request is refused."""
    if message.timeout_ms <= 0:
        return codes.REQUEST_TIMED_OUT, None
    if message.election_type not in NOT_AVAILABLE:
        return codes.INVALID_REQUEST, f"Unknown election type {message.election_type}"
    return None


def _outcome(context: Context, name: str, index: int, election_type: int) -> Refusal:
    topic = context.image.topics.get(name)
    if topic is None:
        return codes.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
    if not 0 <= index < len(topic.partitions):
        return codes.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
    return NOT_AVAILABLE[election_type] if context.replicas.is_offline(name, index) else NOT_NEEDED

"""FindCoordinator (key 10), versions 0 to 6.

Behaviour: the coordinator of a group (key type 0) and of a transactional id (1) is the leader of
its partition. The
first one to ask has `__consumer_offsets` or `__transaction_state` made; Kafka answers
COORDINATOR_NOT_AVAILABLE until its controller has done so, here it is there before the answer. The
address is that of the listener that the client came in by.

Refusals, per key: GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED; for a share
group's state (key type 2) INVALID_REQUEST before version 6, CLUSTER_AUTHORIZATION_FAILED, and
INVALID_REQUEST, for it is not kept here; INVALID_REQUEST for other types; COORDINATOR_NOT_AVAILABLE
if the topic cannot be made, or not within two and a half seconds, or its partition's log directory
has failed.

Version notes: v1 has key types and an error message; v4 asks for several keys (KIP-699); v6 knows
share groups (KIP-932).
"""

from contextlib import suppress
from typing import Any

from kafkalite import _native, access
from kafkalite.access import CLUSTER, CLUSTER_ACTION, DENIALS, DESCRIBE
from kafkalite.api.deadline import IMPATIENT_WAIT_MS
from kafkalite.context import Context
from kafkalite.coordinator.runtime import Runtime
from kafkalite.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kafkalite.protocol import codes, messages
from kafkalite.tasks import TimedOutError

NAME = "FindCoordinator"

GROUP = 0
TRANSACTION = 1
SHARE = 2
SHARE_SINCE = 6

NO_NODE = (-1, "", -1)

SENTENCES = {
    codes.CLUSTER_AUTHORIZATION_FAILED: DENIALS[CLUSTER][1],
    codes.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    codes.INVALID_REQUEST: "There is no coordinator of this type.",
}


async def handle(
    context: Context, request: _native.Request, message: messages.FindCoordinatorRequest
) -> messages.FindCoordinatorResponse:
    """Answers at once; the first time, after the topic was made, unless that takes long."""
    runtime = _runtime(context, message.key_type)
    is_there = (
        runtime is None or runtime.has_topic or not await _is_permitted(context, request, message)
    )
    if runtime and not is_there and not context.core.logs.is_change_held_up():
        with suppress(TimedOutError), context.time_limit(IMPATIENT_WAIT_MS):
            await runtime.make_topic()
    kind = messages.FindCoordinatorResponse
    version = request.api_version
    if version < 4:
        code, (node_id, host, port) = _find(context, request, message.key_type, message.key)
        return kind(
            error_code=code,
            # Kafka has no sentence for a group's where several keys are asked for.
            error_message=SENTENCES.get(code, dict(DENIALS.values()).get(code, "NONE")),
            node_id=node_id,
            host=host,
            port=port,
        )
    response = kind()
    async for key in context.tasks.sliced(message.coordinator_keys):
        code, (node_id, host, port) = _find(context, request, message.key_type, key)
        response.coordinators.append(
            kind.Coordinator(
                key=key,
                node_id=node_id,
                host=host,
                port=port,
                error_code=code,
                error_message=SENTENCES.get(code, ""),
            )
        )
    return response


async def _is_permitted(
    context: Context, request: _native.Request, message: messages.FindCoordinatorRequest
) -> bool:
    """Says that the client may ask for one of the keys."""
    keys = [message.key] if request.api_version < 4 else message.coordinator_keys
    async for key in context.tasks.sliced(keys):
        if not _refusal(context, request, message.key_type, key):
            return True
    return False


def _runtime(context: Context, key_type: int) -> Runtime[Any] | None:
    """The coordinator of this type, if there is one."""
    if key_type == TRANSACTION:
        return context.transactions.runtime
    return context.groups.runtime if key_type == GROUP else None


def _refusal(context: Context, request: _native.Request, key_type: int, key: str) -> int:
    """Why the client is not told."""
    kind = access.TRANSACTIONAL_ID if key_type == TRANSACTION else access.GROUP
    if key_type in (GROUP, TRANSACTION):
        return codes.NONE if context.may(request, DESCRIBE, kind, key) else DENIALS[kind][0]
    is_known = key_type == SHARE and request.api_version >= SHARE_SINCE
    if is_known and not context.may(request, CLUSTER_ACTION, CLUSTER):
        return codes.CLUSTER_AUTHORIZATION_FAILED
    return codes.NONE


def _find(
    context: Context, request: Any, key_type: int, key: str
) -> tuple[int, tuple[int, str, int]]:
    """The code, and id, host and port of the node."""
    refusal = _refusal(context, request, key_type, key)
    if refusal:
        return refusal, NO_NODE
    runtime = _runtime(context, key_type)
    if runtime is None:
        return codes.INVALID_REQUEST, NO_NODE
    if not runtime.has_topic:
        return codes.COORDINATOR_NOT_AVAILABLE, NO_NODE
    topic = TRANSACTIONS_TOPIC if key_type == TRANSACTION else OFFSETS_TOPIC
    broker = context.cluster.coordinator_of(topic, runtime.partition_of(key))
    endpoint = broker and broker.endpoint(request.listener_name)
    if broker is None or endpoint is None:
        return codes.COORDINATOR_NOT_AVAILABLE, NO_NODE
    is_own = broker.id == context.cluster.node_id
    if is_own and runtime.find(key)[1] == codes.NOT_COORDINATOR:
        return codes.COORDINATOR_NOT_AVAILABLE, NO_NODE
    return codes.NONE, (broker.id, endpoint.host, endpoint.port)

"""DeleteTopics (key 20), versions 1 to 6.

Behaviour: the topics go at once, by name or (from version 6) by id: they are out of the metadata on
disk before the answer, requests that wait at them are answered, and their directories are renamed,
to be removed after `file.delete.delay.ms`. However many they are, the metadata is flushed once, and
each log directory synced once. A log directory that does not answer for two and a half seconds, or
the rest of the request's time, renames them later. Topics whose logs are being made, or that grow,
go afterwards, as does everything while other changes are written, and are REQUEST_TIMED_OUT with
the others if that is not within the request's time. If the metadata's directory does not answer, so
are those that were to go, which may be gone later.

Refusals, per topic (`ControllerApis.deleteTopics`): INVALID_REQUEST for neither or both of name and
id, and for one that comes twice; by id UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED,
INVALID_REQUEST where its name is given too; by name TOPIC_AUTHORIZATION_FAILED for who may not see
it, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED for who may not delete it. For all
topics: before version 3 INVALID_REQUEST, later TOPIC_DELETION_DISABLED, if
`delete.topic.enable=false`; REQUEST_TIMED_OUT without a positive time-out. For all that were to go:
POLICY_VIOLATION if they are more than 10,000.

Version notes: v5 answers with an error message; v6 has ids (KIP-516) and answers with them.
"""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from kafkalite import _native
from kafkalite.access import CLUSTER, DELETE, DENIALS, DESCRIBE, TOPIC
from kafkalite.api.deadline import CHANGE_WAIT_MS_MIN, IMPATIENT_WAIT_MS, may_change
from kafkalite.context import Context
from kafkalite.errors import KafkaliteError
from kafkalite.metadata.controller import ControllerError
from kafkalite.metadata.publisher import LEFT
from kafkalite.protocol import codes, messages
from kafkalite.tasks import Future, TimedOutError

NAME = "DeleteTopics"

Request = messages.DeleteTopicsRequest
Response = messages.DeleteTopicsResponse

NO_ID = bytes(16)
UNKNOWN = "This server does not host this topic-partition."

Judged = tuple[str | None, bytes, ControllerError | None]


async def handle(context: Context, request: _native.Request, message: Request) -> Response:
    """Deletes the topics of the request when it has the lock and none of them is changing; one
    result each. They are gone whatever becomes of their logs."""
    sliced = context.tasks.sliced
    asked = [(topic.name, topic.topic_id) async for topic in sliced(message.topics)]
    asked += [(name, NO_ID) async for name in sliced(message.topic_names)]
    by_id = context.image.topics_by_id
    named = [by_id[topic_id].name async for _, topic_id in sliced(asked) if topic_id in by_id]
    named += [name async for name, _ in sliced(asked) if name]
    judged: list[Judged] = [(name, topic_id, None) async for name, topic_id in sliced(asked)]
    deleted: Future[None] | None = None
    due_ms = context.now_ms() + max(message.timeout_ms, CHANGE_WAIT_MS_MIN)
    try:
        with context.tasks.until(due_ms):
            async with may_change(context, named):
                judged = await _judge_request(context, request, message, asked)
                names = [name or "" async for name, _, gone in sliced(judged) if gone is None]
                if names:
                    deleting = _delete(context, names)
                    deleted = await context.tasks.start(deleting, holding=request)
    except TimedOutError:
        return await _response(context, judged, ControllerError(codes.REQUEST_TIMED_OUT, ""))
    except ControllerError as refusal:
        return await _response(context, judged, refusal)
    if deleted is not None:
        due_ms = min(due_ms, context.now_ms() + IMPATIENT_WAIT_MS)
        with suppress(TimedOutError), context.tasks.until(due_ms):
            await deleted
    return await _response(context, judged, None)


async def _delete(context: Context, names: list[str]) -> Future[None]:
    """Takes the topics away. The future is done when their logs are gone."""
    deleted = await context.controller.delete_topics(names)
    context.on_topics_deleted(names)
    async for name in context.tasks.sliced(names):
        context.log.info(f"deleted topic {name}")
    return context.tasks.start(_wait_for_logs(context, deleted))


async def _wait_for_logs(context: Context, deleted: Future[None]) -> None:
    try:
        await deleted
    except KafkaliteError as error:
        context.log.warning(LEFT.format(error))


async def _judge_request(
    context: Context,
    request: _native.Request,
    message: Request,
    asked: list[tuple[str | None, bytes]],
) -> list[Judged]:
    if not context.config["delete.topic.enable"]:
        code = codes.INVALID_REQUEST if request.api_version < 3 else codes.TOPIC_DELETION_DISABLED
        disabled = ControllerError(code, "Topic deletion is disabled.")
        return [(name, topic_id, disabled) for name, topic_id in asked]
    if message.timeout_ms <= 0 and any(
        _is_for_controller(*each, count) for each, count in Counter(asked).items()
    ):
        # Kafka's controller does not begin what is to be done by now, and answers as it was asked.
        late = ControllerError(codes.REQUEST_TIMED_OUT, "")
        return [(name, topic_id, late) for name, topic_id in asked]
    return await _judge(context, request, asked)


async def _response(
    context: Context, judged: list[Judged], failure: ControllerError | None
) -> Response:
    """`failure` is why those are there still that were judged to go."""
    response = Response()
    async for name, topic_id, refusal in context.tasks.sliced(judged):
        result = Response.DeletableTopicResult(name=name, topic_id=topic_id)
        response.responses.append(result)
        outcome = refusal or failure
        if outcome is not None:
            result.error_code = outcome.code
            result.error_message = str(outcome) or None
    return response


def _is_for_controller(name: str | None, topic_id: bytes, count: int) -> bool:
    """Topics that come twice, or with both or none of name and id, are refused without it."""
    return count == 1 and (name is None) != (topic_id == NO_ID)


async def _judge(
    context: Context, request: _native.Request, asked: list[tuple[str | None, bytes]]
) -> list[Judged]:
    """Name, id and refusal of each topic, those by id before those by name where both are known."""
    judged: list[Judged] = []
    sliced = context.tasks.sliced
    by_id, by_name = Counter[bytes](), Counter[str]()
    async for name, topic_id in sliced(asked):
        if name is None and topic_id == NO_ID:
            sentence = "Neither topic name nor id were specified."
            judged.append((None, NO_ID, ControllerError(codes.INVALID_REQUEST, sentence)))
        elif name is None:
            by_id[topic_id] += 1
        elif topic_id == NO_ID:
            by_name[name] += 1
        else:
            sentence = "You may not specify both topic name and topic id."
            judged.append((name, topic_id, ControllerError(codes.INVALID_REQUEST, sentence)))
    image = context.image
    visible, deletable = await _rights(context, request, by_id, by_name)
    denied = ControllerError(*DENIALS[TOPIC])
    async for topic_id, count in sliced(by_id.items()):
        topic = image.topics_by_id.get(topic_id)
        if count > 1:
            refusal = ControllerError(codes.INVALID_REQUEST, "Duplicate topic id.")
            judged.append((None, topic_id, refusal))
        elif topic is None:
            refusal = ControllerError(
                codes.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
            )
            judged.append((None, topic_id, refusal))
        elif topic.name not in deletable:
            judged.append((topic.name if topic.name in visible else None, topic_id, denied))
        elif topic.name in by_name:
            sentence = "The provided topic name maps to an ID that was already supplied."
            judged.append((topic.name, topic_id, ControllerError(codes.INVALID_REQUEST, sentence)))
        else:
            judged.append((topic.name, topic_id, None))
    supplied = {image.topics_by_id[each].name for each in by_id if each in image.topics_by_id}
    async for name, count in sliced(by_name.items()):
        topic = image.topics.get(name)
        if count > 1:
            refusal = ControllerError(codes.INVALID_REQUEST, "Duplicate topic name.")
            judged.append((name, NO_ID, refusal))
        elif name not in visible:
            judged.append((name, NO_ID, denied))
        elif topic is None:
            judged.append((name, NO_ID, ControllerError(codes.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN)))
        elif name not in deletable:
            judged.append((name, NO_ID, denied))
        elif name not in supplied:
            judged.append((name, topic.id, None))
    return judged


async def _rights(
    context: Context, request: _native.Request, by_id: Iterable[bytes], by_name: Iterable[str]
) -> tuple[set[str], set[str]]:
    """The topics that the client may see, and those that it may delete, among these."""
    ids = context.image.topics_by_id
    names = {ids[each].name for each in by_id if each in ids}.union(by_name)
    if context.may(request, DELETE, CLUSTER):
        return names, names
    visible = await context.permitted(request, DESCRIBE, TOPIC, names)
    return visible, await context.permitted(request, DELETE, TOPIC, names)

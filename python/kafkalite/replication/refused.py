"""The answers to requests that were to be forwarded and were not: each in its own form, as Kafka's
`AbstractRequest.getErrorResponse` makes them. Pure.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kafkalite.protocol import messages

Told = tuple[int, str]
"""The code, and a sentence."""


def refused(key: int, request: Any, code: int, sentence: str) -> Any:
    """The answer to a request, all of whose parts are refused with this code."""
    make = _BY_PART.get(key)
    if make is not None:
        return make(request, (code, sentence))
    answer = getattr(messages, request._name.removesuffix("Request") + "Response")(error_code=code)
    if hasattr(answer, "error_message"):
        answer.error_message = sentence
    return answer


def _create_topics(request: Any, told: Told) -> Any:
    kind = messages.CreateTopicsResponse
    code, sentence = told
    results = [
        kind.CreatableTopicResult(name=each.name, error_code=code, error_message=sentence)
        for each in request.topics
    ]
    return kind(topics=results)


def _delete_topics(request: Any, told: Told) -> Any:
    kind = messages.DeleteTopicsResponse
    code, sentence = told
    named = [(each.name, each.topic_id) for each in request.topics]
    named += [(name, bytes(16)) for name in request.topic_names]
    results = [
        kind.DeletableTopicResult(
            name=name, topic_id=topic_id, error_code=code, error_message=sentence
        )
        for name, topic_id in named
    ]
    return kind(responses=results)


def _create_partitions(request: Any, told: Told) -> Any:
    kind = messages.CreatePartitionsResponse
    code, sentence = told
    results = [
        kind.CreatePartitionsTopicResult(name=each.name, error_code=code, error_message=sentence)
        for each in request.topics
    ]
    return kind(results=results)


_BY_PART: Final[Mapping[int, Callable[[Any, Told], Any]]] = {
    19: _create_topics,
    20: _delete_topics,
    37: _create_partitions,
}
"""By key, those that have no code of the whole."""

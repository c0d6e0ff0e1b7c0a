"""Requests that no controller has answered: each is refused in its own form, part by part."""

from typing import Any

import pytest

from kafkalite import _native
from kafkalite.protocol import codes, messages
from kafkalite.replication.forwarding import FORWARDED
from kafkalite.replication.refused import refused

CODE = codes.REQUEST_TIMED_OUT
WHOLE = {
    43: "ElectLeaders",
    45: "AlterPartitionReassignments",
    46: "ListPartitionReassignments",
    55: "DescribeQuorum",
    57: "UpdateFeatures",
    64: "UnregisterBroker",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
}


def answered(key: int, request: Any) -> Any:
    """The answer as a client reads it, in the newest version."""
    answer = refused(key, request, CODE, "no controller")
    _, _, version, _ = _native.message_versions(answer._name.replace("Response", "Request"))
    return type(answer).decode(answer.encode(version), version)


@pytest.mark.parametrize("key", WHOLE)
def test_a_request_with_a_code_of_the_whole_has_that(key: int) -> None:
    request = getattr(messages, f"{WHOLE[key]}Request")()
    assert answered(key, request).error_code == CODE


def test_each_topic_is_refused() -> None:
    kind = messages.CreateTopicsRequest.CreatableTopic
    create = messages.CreateTopicsRequest(topics=[kind(name="a"), kind(name="b")])
    told = answered(19, create).topics
    assert [(each.name, each.error_code, each.error_message) for each in told] == [
        ("a", CODE, "no controller"),
        ("b", CODE, "no controller"),
    ]
    state = messages.DeleteTopicsRequest.DeleteTopicState
    delete = messages.DeleteTopicsRequest(topics=[state(name="a"), state(topic_id=b"i" * 16)])
    told = answered(20, delete).responses
    assert [(each.name, each.topic_id, each.error_code) for each in told] == [
        ("a", bytes(16), CODE),
        (None, b"i" * 16, CODE),
    ]
    named = messages.DeleteTopicsRequest(topic_names=["a"])
    assert [each.name for each in answered(20, named).responses] == ["a"]
    more = messages.CreatePartitionsRequest.CreatePartitionsTopic
    grow = messages.CreatePartitionsRequest(topics=[more(name="a", count=2)])
    told = answered(37, grow).results
    assert [(each.name, each.error_code) for each in told] == [("a", CODE)]


def test_every_key_that_is_forwarded_can_be_refused() -> None:
    assert {*WHOLE, 19, 20, 37} == FORWARDED

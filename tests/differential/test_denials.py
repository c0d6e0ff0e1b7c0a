"""What clients are told who may not do what they ask for: by us, and by Kafka's authorizer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from differential.denials import DENIALS, PREPARATIONS, RIGHTS, SOURCES
from differential.denying_broker import DenyingBroker
from differential.runner import Runner, compare
from differential.test_differential import OURS
from kafkalite.api import find_handlers
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools

CASES = [case for case, _ in DENIALS]
EXPECTED = {case.name: codes for case, codes in DENIALS}
ASKED_BY_NOBODY = {"Metadata"}
"""Keys of Python that are not among the cases: Rust answers for `auto_create.py`."""


@pytest.fixture(scope="module")
def ours() -> Iterator[dict[str, Any]]:
    with DenyingBroker(config=OURS) as broker:
        yield Runner(broker.bootstrap_servers, SOURCES).run([*PREPARATIONS, *CASES])


def error_codes(answer: Any) -> list[int]:
    """Error codes of an answer and of its parts, as they come."""
    if not isinstance(answer, dict):
        return []
    found = []
    for name, value in answer.items():
        is_code = name in ("error_code", "partition_error_code")
        found += [value] if is_code else error_codes(value)
    return found


def test_every_key_of_python_is_denied_something() -> None:
    names = {handler.name for handler in find_handlers().values()}
    assert names - {case.api for case in CASES} == ASKED_BY_NOBODY
    assert len(EXPECTED) == len(CASES)


@pytest.mark.parametrize("name", EXPECTED)
def test_who_may_not_is_told_so(ours: dict[str, Any], name: str) -> None:
    answer = ours[name]
    assert isinstance(answer, dict), answer
    assert sorted(error_codes(answer)) == sorted(EXPECTED[name]), answer


def test_what_may_be_seen_is_all_that_is_told(ours: dict[str, Any]) -> None:
    by_api: dict[str, list[Any]] = {}
    for case in CASES:
        by_api.setdefault(case.api, []).append(ours[case.name])
    groups = [list(answer["groups"]) for answer in by_api["ListGroups"]]
    assert groups == [["open-group"], []]
    ids = [list(answer["transaction_states"]) for answer in by_api["ListTransactions"]]
    assert ids == [["open-id"], []]
    everything, nothing = by_api["DescribeTopicPartitions"][0], by_api["DescribeTopicPartitions"][1]
    assert everything["topics"]["hidden-topic"]["topic_id"] == "none"
    assert nothing["topics"] == {}


@pytest.mark.oracle
def test_kafkas_authorizer_answers_alike(
    ours: dict[str, Any], kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with KafkaBroker(kafka_tools, tmp_path, properties=properties) as kafka:
        runner = Runner(kafka.bootstrap_servers, SOURCES)
        theirs = runner.run([*PREPARATIONS, *RIGHTS, *CASES])
    found = []
    for case in CASES:
        for path, mine, its in compare(ours[case.name], theirs[case.name]):
            # Kafka's sentence is the request as Java prints it.
            is_sentence = path.endswith("error_message") and "needs" in str(its)
            if not is_sentence:
                found.append(f"{case.name}: {path}: {mine!r:.200} instead of {its!r:.200}")
    assert found == [], "\n".join(found)

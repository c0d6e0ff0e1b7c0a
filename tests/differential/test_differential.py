"""One script of requests to kafkalite and to Apache Kafka: equal answers, field by field."""

from collections import Counter
from typing import Any

import pytest

from differential.cases import SCRIPT
from differential.runner import CLOSED, Runner
from oracle.broker import KafkaBroker

Answers = dict[str, Any]


@pytest.fixture(scope="module")
def theirs(kafka: KafkaBroker) -> Answers:
    return Runner(kafka.bootstrap_servers).run(SCRIPT)


def test_names_of_cases_are_unique() -> None:
    counts = Counter(case.name for case in SCRIPT if case.part != "send")
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.oracle
def test_kafka_answers_nearly_every_case(theirs: Answers) -> None:
    """Else the script has lost its connection, and equal silence proves nothing."""
    closed = [name for name, answer in theirs.items() if answer == CLOSED]
    assert len(theirs) > 700
    assert len(closed) < 40, closed

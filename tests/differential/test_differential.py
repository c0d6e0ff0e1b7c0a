"""One script of requests to kafkalite and to Apache Kafka: equal answers, field by field."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from differential.cases import SCRIPT
from differential.cases.restarted import AFTER, BEFORE
from differential.differences import DIFFERENCES
from differential.runner import CLOSED, Runner, compare
from oracle.broker import DEFAULTS, KafkaBroker
from oracle.tools import KafkaTools

DOCUMENT = Path(__file__).parents[2] / "docs" / "DIFFERENCES.md"
SECTION = "## In responses"
# The brokers are told the same; kafkalite has no controller to be told of.
CONTROLLER = ("process.roles", "controller.listener.names")
OURS = {key: value for key, value in DEFAULTS.items() if key not in CONTROLLER}

Answers = dict[str, Any]


@pytest.fixture(scope="module")
def theirs(kafka: KafkaBroker) -> Answers:
    return Runner(kafka.bootstrap_servers).run(SCRIPT)


@pytest.fixture(scope="module")
def ours() -> Iterator[Answers]:
    with kafkalite.Broker(config=OURS) as broker:
        yield Runner(broker.bootstrap_servers).run(SCRIPT)


def test_names_of_cases_are_unique() -> None:
    counts = Counter(case.name for case in SCRIPT if case.part != "send")
    assert [name for name, count in counts.items() if count > 1] == []


def test_the_list_of_differences_is_that_of_the_document() -> None:
    section = DOCUMENT.read_text().split(SECTION + "\n")[1].split("\n## ")[0]
    titles = re.findall(r"^- \*\*(.+?)\.\*\*", section, flags=re.MULTILINE)
    assert sorted(titles) == sorted(each.title for each in DIFFERENCES)


@pytest.mark.oracle
def test_kafka_answers_nearly_every_case(theirs: Answers) -> None:
    """Else the script has lost its connection, and equal silence proves nothing."""
    closed = [name for name, answer in theirs.items() if answer == CLOSED]
    assert len(theirs) > 1200
    assert len(closed) < 40, closed


@pytest.mark.oracle
def test_answers_are_those_of_kafka(ours: Answers, theirs: Answers) -> None:
    found = []
    used = set()
    for case, answer in theirs.items():
        for path, mine, its in compare(ours[case], answer):
            explained = [(d.title, where) for d in DIFFERENCES for where in d.used(case, path)]
            used.update(explained)
            if not explained:
                found.append(f"{case}: {path}: {mine!r:.200} instead of {its!r:.200}")
    # How many threads there are depends on the machine, and may be as many as Kafka's.
    certain = [each for each in DIFFERENCES if each.title != "Threads"]
    unused = [(d.title, where) for d in certain for where in d.where]
    assert found == []
    assert [each for each in unused if each not in used] == []


@pytest.mark.oracle
def test_answers_after_a_restart_are_those_of_kafka(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """After any start a Fetch was refused with OFFSET_OUT_OF_RANGE for the epoch that the broker
    itself named as the leader's; ListOffsets knew no epoch of a log that had lost its records."""
    answers = []
    with (
        kafkalite.Broker(tmp_path / "ours", config=OURS) as ours,
        KafkaBroker(kafka_tools, tmp_path, log_dirs=[tmp_path / "theirs"]) as theirs,
    ):
        for broker in (ours, theirs):
            runner = Runner(broker.bootstrap_servers)
            before = runner.run(BEFORE)
            broker.stop()
            broker.start()
            answers.append(before | runner.run(AFTER))
    mine, its = answers
    assert len(its) > 60
    assert CLOSED not in its.values()
    found = [(case, *each) for case in its for each in compare(mine[case], its[case])]
    assert found == []

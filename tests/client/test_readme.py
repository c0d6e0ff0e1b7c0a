"""The examples of the Python client in README.md and docs/PYTHON.md run as they stand there."""

import re
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from kafkalite.client import Consumer, Producer

ROOT = Path(__file__).parents[2]
CONFIG = {"group.initial.rebalance.delay.ms": 0}
PAYMENTS = [b"%d EUR" % number for number in range(10)]


def examples(document: str, *words: str) -> list[str]:
    """The examples in Python that have one of these words, in their order."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    return [block for block in blocks if any(word in block for word in words)]


def taxes(servers: str) -> list[bytes]:
    """What the transactions of an example have written, sorted, for readers of what is committed;
    an answer to EndTxn precedes the markers."""
    with Consumer(servers, isolation="read_committed", offset_reset="earliest") as consumer:
        consumer.assign([("taxes", 0)])
        found: list[bytes] = []
        while len(found) < 10 and (records := consumer.poll(10_000)):
            found += [record.value or b"" for record in records]
    return sorted(found)


def test_the_examples_of_the_client_run(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = examples("README.md", "from kafkalite.client import", "producer.transaction()")
    assert first.count("localhost:9092") == 1
    with kafkalite.Broker(config=CONFIG) as broker:
        program: dict[str, Any] = {}
        exec(first.replace("localhost:9092", broker.bootstrap_servers), program)  # noqa: S102
        lines = capsys.readouterr().out.splitlines()
        assert sorted(line.split("b'")[-1] for line in lines) == [f"{n} EUR'" for n in range(10)]
        exec(second, program)  # noqa: S102
        assert "committed" in capsys.readouterr().out
        assert taxes(broker.bootstrap_servers) == [b"a fifth of " + each for each in PAYMENTS]
        # A second run once ended in a traceback: the topic existed.
        exec(first.replace("localhost:9092", broker.bootstrap_servers), {})  # noqa: S102
        assert len(capsys.readouterr().out.splitlines()) == 10


def test_the_example_of_transactions_runs() -> None:
    (example,) = examples("docs/PYTHON.md", "producer.transaction()")
    assert example.count("localhost:9092") == 1
    with kafkalite.Broker(config=CONFIG) as broker:
        with Producer(broker.bootstrap_servers) as producer:
            for value in PAYMENTS:
                producer.send("payments", value)
        exec(example.replace("localhost:9092", broker.bootstrap_servers), {})  # noqa: S102
        assert taxes(broker.bootstrap_servers) == [b"a fifth of " + each for each in PAYMENTS]

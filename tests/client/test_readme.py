"""The example of the Python client in README.md runs as it stands there."""

import re
from pathlib import Path

import pytest

import kafkalite

README = Path(__file__).parents[2] / "README.md"


def test_the_example_of_the_client_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (example,) = [each for each in blocks if "from kafkalite.client import" in each]
    assert example.count("localhost:9092") == 1
    with kafkalite.Broker(config={"group.initial.rebalance.delay.ms": 0}) as broker:
        exec(example.replace("localhost:9092", broker.bootstrap_servers), {})  # noqa: S102
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split("b'")[-1] for line in lines) == [f"{n} EUR'" for n in range(10)]

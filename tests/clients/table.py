"""The clients, and which features each has: the one table behind the tests and the README.

`python -m clients.table` (in tests/) writes it into README.md.
"""

from pathlib import Path

import pytest

from clients.asynchronous import AioKafka
from clients.drivers import FranzGo, Java, KafkaJs, OldJava
from clients.kcat import Kcat
from clients.librdkafka import Confluent
from clients.neutral import FEATURES, Client
from clients.pure_python import KafkaPython

CLIENTS: tuple[type[Client], ...] = (
    Confluent,
    KafkaPython,
    AioKafka,
    Java,
    OldJava,
    Kcat,
    FranzGo,
    KafkaJs,
)

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- table -->\n", "<!-- end of the table -->\n"


def behaviour(feature: str) -> pytest.MarkDecorator:
    """Makes a test of a feature run with every client that has it: `client` is a fixture."""
    assert feature in FEATURES, feature
    having = [client.name for client in CLIENTS if feature not in client.lacks]
    marks = {each.name: [pytest.mark.oracle] for each in (Java, OldJava)}
    parameters = [pytest.param(name, marks=marks.get(name, ())) for name in having]
    return pytest.mark.parametrize("client", parameters, indirect=True)


def table() -> str:
    """Features by clients, with the reasons of what a client lacks below."""
    lines = ["| |" + "".join(f" {client.name} |" for client in CLIENTS)]
    lines.append("|---|" + ":-:|" * len(CLIENTS))
    reasons: list[str] = []
    for feature, words in FEATURES.items():
        cells = []
        for client in CLIENTS:
            if feature not in client.lacks:
                cells.append("✓")
                continue
            reason = f"{client.name}: {client.lacks[feature]}"
            if reason not in reasons:
                reasons.append(reason)
            cells.append(f"– ({reasons.index(reason) + 1})")
        lines.append(f"| {words} |" + "".join(f" {cell} |" for cell in cells))
    lines.append("")
    lines += [f"{number}. {reason}." for number, reason in enumerate(reasons, 1)]
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """The README with its table made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + table() + "\n" + END + after


if __name__ == "__main__":
    README.write_text(with_table(README.read_text()))

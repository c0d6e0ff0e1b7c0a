"""Notes on an error that a client of a broker meets what a user can do about it (PEP 678). It is
printed behind the sentence of the error.

    no broker answers at localhost:9092: Connection refused; 'kafkalite serve' starts one
    topic 'ordres': there is no such topic or partition (…); did you mean 'orders'?
"""

import argparse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from kafkalite.cli.options import nearest
from kafkalite.client.admin import Admin
from kafkalite.errors import BrokerError, ConnectionFailedError, KafkaliteError
from kafkalite.protocol.codes import UNKNOWN_TOPIC_OR_PARTITION

START_ONE = "'kafkalite serve' starts one, --bootstrap-server names another"


@contextmanager
def remedies(options: argparse.Namespace) -> Iterator[None]:
    """Notes remedies on errors of the block, which asks the broker that the options name."""
    try:
        yield
    except ConnectionFailedError as error:
        if error.is_refused:
            error.add_note(START_ONE)
        raise
    except BrokerError as error:
        if error.code == UNKNOWN_TOPIC_OR_PARTITION and (found := _meant(options, str(error))):
            error.add_note(found)
        raise


def did_you_mean(topic: str, existing: Iterable[str]) -> str:
    """The question whether a topic that exists was meant; empty if none is near."""
    found = nearest(topic, existing)
    return f"did you mean '{found}'?" if found else ""


def _meant(options: argparse.Namespace, sentence: str) -> str:
    """Looks for the topic that the command line names and the error complains about. Whoever may
    not list topics, or gets no answer, gets no hint: the error itself is what counts."""
    asked = [topic for topic in _topics_of(options) if topic in sentence]
    if not asked:
        return ""
    with (
        suppress(KafkaliteError),
        Admin(options.bootstrap_server, timeout_ms=options.timeout) as admin,
    ):
        existing = [topic.name for topic in admin.list_topics()]
        return next((did_you_mean(each, existing) for each in asked if each not in existing), "")
    return ""


def _topics_of(options: argparse.Namespace) -> list[str]:
    """The words of the command line that may name topics, without the partitions behind them."""
    found: list[str] = []
    for field in ("name", "names", "topic", "topic_flag", "entity_name"):
        value = getattr(options, field, None)
        found += [value] if isinstance(value, str) else value or []
    return [text.partition(":")[0] for text in found]

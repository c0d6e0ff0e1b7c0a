"""A client and its process: what a fork copies belongs to the parent, and the end of a program
closes what it has opened."""

import os
import traceback
from collections.abc import Callable

from kafkalite import Broker
from kafkalite.client import Admin


def in_a_fork(work: Callable[[], None]) -> None:
    """Calls `work` in a child made by fork; an assertion that fails there fails here."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - the child must not run the rest of pytest
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_an_admin_that_was_forked_asks_on_a_connection_of_its_own(
    kafka_broker: Broker, kafka_topic: str
) -> None:
    """Two processes wrote to one socket, and read each other's answers."""
    with Admin(kafka_broker.bootstrap_servers) as admin:
        names = sorted(topic.name for topic in admin.list_topics())
        assert kafka_topic in names
        known = admin.cluster._bootstrap
        assert known is not None

        def ask() -> None:
            assert not known.is_open
            for _ in range(100):
                assert sorted(topic.name for topic in admin.list_topics()) == names
            admin.close()

        in_a_fork(ask)
        assert known.is_open
        assert sorted(topic.name for topic in admin.list_topics()) == names
        assert admin.cluster._bootstrap is known

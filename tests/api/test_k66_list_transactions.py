"""ListTransactions by frames; its filters are compared with Kafka's (`tests/differential`)."""

import select
from typing import Any

import kafkalite
from api.raw import KEYS, Connection
from api.transactions import Transactor, transactor
from kafkalite.protocol import messages


def listed(connection: Connection, version: int = 2, **filters: Any) -> Any:
    request = messages.ListTransactionsRequest(**filters)
    return connection.ask("ListTransactions", version, request)


def states(answer: Any) -> dict[str, str]:
    assert answer.error_code == 0
    return {each.transactional_id: each.transaction_state for each in answer.transaction_states}


def test_ids_are_listed_by_state_producer_time_and_pattern(
    connection: Connection, topic: str
) -> None:
    one, two = (Transactor(connection, f"{topic}-{name}") for name in ("one", "two"))
    for client in (one, two):
        assert client.init() == 0
    assert one.add((topic, 0)) == {(topic, 0): 0}
    both = {one.name: "Ongoing", two.name: "Empty"}
    pattern = f"{topic}-(?:one|two)"
    for version in range(3):
        assert states(listed(connection, version)).items() >= both.items()
    assert states(listed(connection, transactional_id_pattern=pattern)) == both
    assert states(listed(connection, transactional_id_pattern=pattern[:-1] + ")x")) == {}
    answer = listed(connection, transactional_id_pattern=pattern, state_filters=["Ongoing", "?"])
    assert states(answer) == {one.name: "Ongoing"}
    assert answer.unknown_state_filters == ["?"]
    assert states(listed(connection, producer_id_filters=[two.producer_id])) == {two.name: "Empty"}
    assert one.name not in states(listed(connection, duration_filter=60_000))
    while one.name not in states(listed(connection, duration_filter=0)):
        pass


def test_what_is_no_pattern_is_refused(connection: Connection) -> None:
    client = transactor(connection)
    for pattern in ("(", "a**", r"\1", "a" * 1_001, "(a{1000}){1000}"):
        assert listed(connection, transactional_id_pattern=pattern).error_code == 128
    assert client.name in states(listed(connection, transactional_id_pattern="txn-.*"))


SLOW = ".(a*){1000}(a*){1000}"
"""A pattern that takes most of a second to match 32 KiB."""


def with_long_ids(connection: Connection, letters: str) -> None:
    for letter in letters:
        assert Transactor(connection, letter + "a" * 32_760).init() == 0


def test_others_are_answered_while_a_pattern_is_matched() -> None:
    """A pattern of 21 bytes and an id of 32 KiB kept everybody else waiting for a second, twelve
    such requests for half a minute."""
    with (
        kafkalite.Broker() as broker,
        Connection(broker.bootstrap_servers) as other,
        Connection(broker.bootstrap_servers) as connection,
    ):
        with_long_ids(other, "b")
        asked = messages.ListTransactionsRequest(transactional_id_pattern=SLOW, duration_filter=-1)
        key = KEYS["ListTransactions"]

        def is_overtaken() -> bool:
            sent = connection.send(key, 2, asked.encode(2))
            assert len(states(listed(other))) == 1
            is_waiting = not select.select([connection.socket], [], [], 0)[0]
            assert len(states(connection.receive(key, 2, sent))) == 1
            return is_waiting

        # The other may be late, on a busy machine.
        assert any(is_overtaken() for _ in range(10))


def test_what_is_matched_for_clients_that_have_gone_ends() -> None:
    """Requests whose connections were closed went on: one after the other, some minutes here."""
    with kafkalite.Broker() as broker, Connection(broker.bootstrap_servers) as connection:
        with_long_ids(connection, "bcde")
        asked = messages.ListTransactionsRequest(transactional_id_pattern=SLOW, duration_filter=-1)
        for _ in range(60):
            with Connection(broker.bootstrap_servers) as gone:
                gone.send(KEYS["ListTransactions"], 2, asked.encode(2))
        # Its turn comes behind theirs; a connection of tests waits for a minute.
        assert states(listed(connection, transactional_id_pattern="f.*")) == {}

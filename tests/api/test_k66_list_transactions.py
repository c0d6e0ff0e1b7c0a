"""ListTransactions by frames; its filters are compared with Kafka's (`tests/differential`)."""

from typing import Any

from api.raw import Connection
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

"""Transactions, and what is told of them."""

from typing import Any

from differential.script import Case, Kept, ask, versions

ONE, TWO = "d-one", "d-two"


def listed(name: str, version: int, **filters: Any) -> Case:
    """ListTransactions; other tests have used the same Kafka."""
    return Case(f"transactions: {name}", "ListTransactions", version, filters, only="d-")


def begun(name: str) -> list[Case]:
    """A transactional id with its producer."""
    return [
        Case(
            f"find the coordinator of {name}",
            "FindCoordinator",
            4,
            {"key_type": 1, "coordinator_keys": [name]},
            until={"coordinators.0.error_code": 0},
        ),
        Case(
            f"a producer of {name}",
            "InitProducerId",
            5,
            {"transactional_id": name, "transaction_timeout_ms": 60_000},
            until={"error_code": 0},
            keep={name: "producer_id", f"epoch of {name}": "producer_epoch"},
        ),
    ]


PRODUCER = {"producer_id": Kept(ONE), "producer_epoch": Kept(f"epoch of {ONE}")}
ADDED = {
    "transactional_id": ONE,
    **PRODUCER,
    "topics": [{"name": "d-plain", "partitions": [0]}],
}

LISTING = [
    *begun(ONE),
    *begun(TWO),
    Case(
        "a transaction begins",
        "AddPartitionsToTxn",
        3,
        {f"v3_and_below_{name}": value for name, value in ADDED.items()},
    ),
    *(listed(f"all v{version}", version) for version in range(3)),
    *(
        listed(f"of the states {' and '.join(states)}", 0, state_filters=states)
        for states in (
            ["Ongoing"],
            ["Empty"],
            ["Empty", "Nonsense"],
            ["Nonsense"],
            ["ongoing"],
            ["Dead"],
            ["PrepareEpochFence"],
            ["CompleteCommit", "Ongoing", "CompleteCommit"],
        )
    ),
    listed("of a producer", 0, producer_id_filters=[Kept(ONE), 1 << 40]),
    listed("of nobody", 0, producer_id_filters=[1 << 40]),
    *(
        listed(f"open for {duration} ms", 1, duration_filter=duration)
        for duration in (-1, -2, 0, 1_000_000, 1 << 60, (1 << 63) - 1)
    ),
    *(
        listed(f"like {pattern!r}", 2, transactional_id_pattern=pattern)
        for pattern in (
            *(
                "d-.*",
                "d-",
                "",
                None,
                "d-(one|two)",
                "(?i)D-ONE",
                r"\Qd-one\E",
                r"\pL-[[:alpha:]]+",
            ),
            *("(", "a**", r"\1", "(?=d)", "[", "d-one$", "^d-one", "x{1001}"),
        )
    ),
    listed("of no state and no pattern", 2, state_filters=["?"], transactional_id_pattern="("),
    *versions(
        "describe transactions",
        "DescribeTransactions",
        (0,),
        transactional_ids=[ONE, TWO, "d-three", ""],
    ),
    *(
        Case(
            f"a transaction ends, once more {again}",
            "EndTxn",
            4,
            {"transactional_id": ONE, **PRODUCER, "committed": False},
            until={"error_code": 0},
        )
        for again in (False, True)
    ),
    ask("a producer without an id of a transaction", "EndTxn", 4, transactional_id="", **PRODUCER),
]

"""Transactions, and what is told of them."""

from collections.abc import Mapping
from typing import Any

from differential.script import Case, Kept, ask, versions

ONE, TWO, THREE = "d-one", "d-two", "d-three-and-more"
STRANGER = 1 << 40
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1


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


def producer_of(name: str) -> dict[str, Any]:
    """The fields by which a producer is known."""
    return {
        "transactional_id": name,
        "producer_id": Kept(name),
        "producer_epoch": Kept(f"epoch of {name}"),
    }


TOPICS = [{"name": "d-plain", "partitions": [0]}]
COMMITTED = {"partition_index": 0, "committed_offset": 5}
OF_PRODUCER = {
    "transactional_id": ("", "nobody", TWO),
    "producer_id": (-1, -2, 0x7FFF, STRANGER, LONG_MAX, -LONG_MAX, Kept(TWO)),
    "producer_epoch": (-1, -2, 1, 7, 32766, 32767, -32768),
}
# By key: what is right, and by field what is not. Versions of a key: the first and the last.
REQUESTS: Mapping[str, tuple[tuple[int, int], Mapping[str, Any], Mapping[str, Any]]] = {
    "AddPartitionsToTxn": (
        (0, 3),
        {**producer_of(THREE), "topics": TOPICS},
        {
            **OF_PRODUCER,
            "topics": (
                [],
                [{"name": "d-plain", "partitions": []}],
                [{"name": "d-plain", "partitions": [0, 9]}],
                [{"name": "d-plain", "partitions": [-1]}],
                [{"name": "d-unknown", "partitions": [0]}, *TOPICS],
                [{"name": "", "partitions": [0]}],
                [{"name": "__transaction_state", "partitions": [0]}],
            ),
        },
    ),
    "AddOffsetsToTxn": (
        (0, 4),
        {**producer_of(THREE), "group_id": "d-group-of-three"},
        {**OF_PRODUCER, "group_id": ("",)},
    ),
    "TxnOffsetCommit": (
        (0, 5),
        {
            **producer_of(THREE),
            "group_id": "d-group-of-three",
            "topics": [{"name": "d-plain", "partitions": [COMMITTED]}],
        },
        {
            **OF_PRODUCER,
            "group_id": ("",),
            "generation_id": (0, -2, INT_MAX),
            "member_id": ("nobody",),
            "group_instance_id": ("", "nobody"),
            "topics": (
                [],
                [{"name": "d-plain", "partitions": []}],
                [{"name": "d-plain", "partitions": [{**COMMITTED, "partition_index": 9}]}],
                [{"name": "d-plain", "partitions": [{**COMMITTED, "partition_index": -1}]}],
                [{"name": "d-unknown", "partitions": [COMMITTED]}],
                [{"name": "", "partitions": [COMMITTED]}],
                [
                    {
                        "name": "d-plain",
                        "partitions": [{**COMMITTED, "committed_metadata": "x" * 5000}],
                    }
                ],
            ),
        },
    ),
    "EndTxn": ((0, 5), {**producer_of(THREE), "committed": True}, OF_PRODUCER),
    "InitProducerId": (
        (0, 5),
        {"transactional_id": THREE, "transaction_timeout_ms": 60_000},
        {
            "transactional_id": ("",),
            "transaction_timeout_ms": (0, -1, 900_001, INT_MAX, -INT_MAX),
            "producer_id": (-2, 5, STRANGER),
            "producer_epoch": (-2, 5, 32767),
        },
    ),
}


def with_prefix(api: str, version: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as the version of the key names them."""
    if api == "AddPartitionsToTxn" and version <= 3:
        return {f"v3_and_below_{name}": value for name, value in fields.items()}
    return dict(fields)


def wrong(state: str) -> list[Case]:
    """Each request with each wrong value, and what has become of its transaction, which is in that
    state, and of one that nobody has to do with."""
    cases = [
        Case(
            f"{api} v{version} while {state}: {field} {number}",
            api,
            version,
            with_prefix(api, version, {**right, field: value}),
        )
        for api, (bounds, right, fields) in REQUESTS.items()
        for version in bounds
        for field, values in fields.items()
        for number, value in enumerate(values)
        if api != "InitProducerId" or version >= 3 or not field.startswith("producer_")
    ]
    shown = ask(
        f"what wrong fields have done while {state}",
        "DescribeTransactions",
        0,
        transactional_ids=[THREE, TWO],
    )
    return [*cases, shown]


def added() -> Case:
    """The transaction of THREE begins."""
    api = "AddPartitionsToTxn"
    return Case("three begins", api, 3, with_prefix(api, 3, REQUESTS[api][1]))


WRONG = [
    *begun(THREE),
    *wrong("empty"),
    added(),
    *wrong("ongoing"),
    *(
        Case(
            name,
            "EndTxn",
            1,
            {**producer_of(THREE), "committed": is_commit},
            until={"error_code": code},
        )
        for name, is_commit, code in (
            ("commit of three", True, 0),
            ("commit of three again", True, 0),
            ("abort behind a commit", False, 48),
        )
    ),
    *wrong("complete"),
]

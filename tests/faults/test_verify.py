"""The judge of histories: a good one passes, and each broken promise is found."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults import verify
from faults.verify import (
    FINAL,
    OBSERVER,
    Ends,
    Holdings,
    Operation,
    Outcome,
    check,
    check_copies,
    check_process,
)

PARTITION = "t-0"


def produced(
    number: int, offset: int, *, outcome: Outcome = Outcome.OK, at: float = 0
) -> Operation:
    return Operation(
        "p", "produce", outcome, at, at + 0.5, PARTITION, f"p:{number}", offset, number, True
    )


def read(
    offset: int, value: str, *, process: str = "r", session: int = 0, at: float = 0, group: str = ""
) -> Operation:
    return Operation(
        process, "read", Outcome.OK, at, at, PARTITION, value, offset, session=session, group=group
    )


def looked(
    end: int,
    *,
    at: float,
    process: str = OBSERVER,
    start: int = 0,
    stable: int = -1,
    epoch: int = 0,
) -> Operation:
    ends = Ends(start, end if stable < 0 else stable, end, epoch)
    return Operation(process, "ends", Outcome.OK, at, at + 0.5, PARTITION, ends=ends)


def commit(offset: int, *, at: float, outcome: Outcome = Outcome.OK) -> Operation:
    return Operation("m", "commit", outcome, at, at + 0.5, PARTITION, offset=offset, group="g")


def committed(offset: int, *, at: float) -> Operation:
    return Operation(
        OBSERVER, "committed", Outcome.OK, at, at + 0.5, PARTITION, offset=offset, group="g"
    )


def fault(*, at: float) -> Operation:
    return Operation("nemesis", "fault", Outcome.OK, at, at + 0.5, "", value="kill")


def good(count: int = 4) -> list[Operation]:
    """A producer, a reader that follows, a group that commits, and what they find in the end."""
    operations = []
    for each in range(count):
        operations += [
            produced(each, each, at=each),
            read(each, f"p:{each}", at=each + 1),
            looked(each + 1, at=each + 1.1),
            read(each, f"p:{each}", process="m", at=each + 1.2, group="g"),
            commit(each + 1, at=each + 1.3),
            committed(each + 1, at=each + 1.9),
        ]
    return operations + final({each: f"p:{each}" for each in range(count)})


def final(records: dict[int, str], start: int = 0, end: int | None = None) -> list[Operation]:
    ends = max(records, default=start - 1) + 1 if end is None else end
    return [
        looked(ends, at=100, process=FINAL, start=start),
        *(read(offset, value, process=FINAL, at=101) for offset, value in sorted(records.items())),
    ]


def without_final(operations: list[Operation]) -> list[Operation]:
    return [each for each in operations if each.process != FINAL]


@given(st.integers(0, 30))
def test_a_history_in_which_all_is_well_passes(count: int) -> None:
    assert check(good(count)) == []


def test_a_record_acknowledged_at_no_known_offset_is_somewhere() -> None:
    """librdkafka told of a success without an offset when a leader stopped amid its answers; the
    judge took -1 for the offset, and so two such records for two values of one offset."""
    elsewhere = [replace(each, offset=-1) for each in good() if each.name == "produce"]
    others = [each for each in good() if each.name != "produce"]
    assert check([*elsewhere, *others]) == []
    (finding,) = check([*good(), produced(9, -1, at=9)])
    assert finding == "t-0: p:9 was acknowledged, and in the end is nowhere"


def test_a_record_whose_answer_was_lost_may_be_there_or_not() -> None:
    lost = produced(4, -1, outcome=Outcome.UNKNOWN, at=4)
    assert check([*good(), lost]) == []
    there = {each: f"p:{each}" for each in range(5)}
    group_read = read(4, "p:4", process="m", at=9, group="g")
    assert check([*without_final(good()), lost, group_read, *final(there)]) == []


def test_what_lies_before_the_log_start_need_not_be_read() -> None:
    kept = {each: f"p:{each}" for each in (2, 3)}
    assert check([*without_final(good()), *final(kept, start=2)]) == []


def never_read_in_the_end(operations: list[Operation]) -> list[Operation]:
    """Nothing that was acknowledged was known to be there, and the judge called all of it lost: a
    planted bug was found where nobody had looked."""
    return without_final(operations)


def stop_reading_before_the_end(operations: list[Operation]) -> list[Operation]:
    return [*without_final(operations), *final({0: "p:0", 1: "p:1"}, end=4)]


def lose_one_and_stop_before_the_end(operations: list[Operation]) -> list[Operation]:
    return [*without_final(operations), *final({0: "p:0", 2: "p:2"}, end=4)]


def see_nothing_after_a_fault(operations: list[Operation]) -> list[Operation]:
    """The observer had died at the first restart, and what nobody saw was well."""
    return [*operations, fault(at=40)]


def see_only_commits_after_a_fault(operations: list[Operation]) -> list[Operation]:
    return [*operations, fault(at=40), committed(4, at=50)]


def lose_the_last(operations: list[Operation]) -> list[Operation]:
    return [*without_final(operations), *final({each: f"p:{each}" for each in range(3)})]


def lose_one_amid(operations: list[Operation]) -> list[Operation]:
    left = {0: "p:0", 1: "p:1", 3: "p:3"}
    return [*without_final(operations), *final(left)]


def write_twice(operations: list[Operation]) -> list[Operation]:
    twice = {**{each: f"p:{each}" for each in range(4)}, 4: "p:1"}
    again = read(4, "p:1", process="m", at=9, group="g")
    return [*without_final(operations), again, *final(twice)]


def swap(_: list[Operation]) -> list[Operation]:
    sent = [produced(each, offset, at=each) for each, offset in ((0, 1), (1, 0))]
    return [*sent, *final({0: "p:1", 1: "p:0"})]


def serve_what_was_refused(operations: list[Operation]) -> list[Operation]:
    refused = produced(4, -1, outcome=Outcome.FAIL, at=4)
    return [*operations, refused, read(4, "p:4", at=5)]


def serve_garbage(operations: list[Operation]) -> list[Operation]:
    return [*operations, read(0, "garbled", process="r2", at=50)]


def serve_another_value(operations: list[Operation]) -> list[Operation]:
    return [*operations, read(0, "p:1", process="r2", at=50)]


def skip_an_offset(operations: list[Operation]) -> list[Operation]:
    return [*operations, *(read(at, f"p:{at}", process="r2", at=50) for at in (0, 2, 3))]


def read_an_offset_twice(operations: list[Operation]) -> list[Operation]:
    return [*operations, *(read(at, f"p:{at}", process="r2", at=50) for at in (0, 1, 1))]


def refuse_to_read_on(operations: list[Operation]) -> list[Operation]:
    refused = replace(read(3, "out of range", process="r2"), outcome=Outcome.FAIL)
    return [*operations, refused]


def let_the_high_watermark_go_back(operations: list[Operation]) -> list[Operation]:
    return [*operations, looked(3, at=50)]


def let_it_go_back_behind_a_read(operations: list[Operation]) -> list[Operation]:
    seen = [each for each in operations if each.name not in ("ends",) or each.process == FINAL]
    return [*seen, looked(2, at=50)]


def let_the_epoch_go_back(operations: list[Operation]) -> list[Operation]:
    return [*operations, looked(4, at=50, epoch=7), looked(4, at=60, epoch=6)]


def let_the_log_start_go_back(operations: list[Operation]) -> list[Operation]:
    return [*operations, looked(4, at=50, start=2), looked(4, at=60, start=1)]


def be_stable_beyond_the_high_watermark(operations: list[Operation]) -> list[Operation]:
    return [*operations, looked(4, at=50, stable=5)]


def forget_a_commit(operations: list[Operation]) -> list[Operation]:
    return [*operations, committed(3, at=50)]


def forget_all_commits(operations: list[Operation]) -> list[Operation]:
    return [*operations, committed(-1, at=50)]


def make_up_a_commit(operations: list[Operation]) -> list[Operation]:
    refused = commit(5, at=20, outcome=Outcome.FAIL)
    return [*operations, refused, committed(5, at=50)]


def commit_beyond_the_end(operations: list[Operation]) -> list[Operation]:
    return [*operations, commit(9, at=20), committed(9, at=50)]


def keep_a_record_from_the_group(operations: list[Operation]) -> list[Operation]:
    return [each for each in operations if (each.process, each.offset) != ("m", 2)]


Spoil = Callable[[list[Operation]], list[Operation]]
SPOILED: dict[Spoil, str] = {
    never_read_in_the_end: "t-0: the last reader never came here",
    stop_reading_before_the_end: "t-0: the last reader came to offset 2, and not to the end at 4",
    lose_one_and_stop_before_the_end: (
        "t-0: p:1 was acknowledged at offset 1, where in the end there is nothing"
    ),
    see_nothing_after_a_fault: "t-0: after the last fault the observer saw no committed",
    see_only_commits_after_a_fault: "t-0: after the last fault the observer saw no ends",
    lose_the_last: "t-0: p:3 was acknowledged at offset 3, where in the end there is nothing",
    lose_one_amid: "t-0: p:2 was acknowledged at offset 2, where in the end there is nothing",
    write_twice: "t-0: p:1 is at the offsets 1, 4",
    swap: "t-0: p sent p:0 before p:1, which lie at the offsets 1 and 0",
    serve_what_was_refused: "t-0: p:4 at offset 4 had been refused",
    serve_garbage: "t-0: garbled at offset 0 was never sent there",
    serve_another_value: "t-0: offset 0 was p:0 to p and p:1 to r2",
    skip_an_offset: "t-0: r2 read offset 2 after 0",
    read_an_offset_twice: "t-0: r2 read offset 1 after 1",
    refuse_to_read_on: "t-0: r2 cannot read on at offset 3: out of range",
    let_the_high_watermark_go_back: "t-0: high_watermark went back from 4 to 3",
    let_it_go_back_behind_a_read: "t-0: high_watermark went back from 4 to 2",
    let_the_epoch_go_back: "t-0: leader_epoch went back from 7 to 6",
    let_the_log_start_go_back: "t-0: log_start went back from 2 to 1",
    be_stable_beyond_the_high_watermark: (
        "t-0: log start, last stable offset and high watermark:"
        " Ends(log_start=0, last_stable=5, high_watermark=4, leader_epoch=0)"
    ),
    forget_a_commit: "t-0: g had committed 4, and then 3 was found",
    forget_all_commits: "t-0: g had committed 4, and then -1 was found",
    make_up_a_commit: "t-0: g never committed 5, which was found",
    commit_beyond_the_end: "t-0: g has committed 9, beyond the end of the log at 4",
    keep_a_record_from_the_group: "t-0: g never read 1 records from 2 on",
}


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__)
def test_a_broken_promise_is_found(spoil: Spoil) -> None:
    assert SPOILED[spoil] in check(spoil(good()))


def test_of_what_the_last_reader_has_not_seen_nothing_else_is_said() -> None:
    assert len(check(without_final(good()))) == 1
    stopped = check(stop_reading_before_the_end(good()))
    assert not [each for each in stopped if "acknowledged" in each or "were read" in each]


def test_a_history_that_goes_on_after_a_fault_passes() -> None:
    later = [fault(at=40), looked(4, at=50), committed(4, at=51)]
    assert check([*good(), *later]) == []


def held(*counts: int, process: str = "nemesis") -> Operation:
    return Operation(
        process, "holdings", Outcome.OK, 0, 0, "", value="then", holdings=Holdings(*counts)
    )


@pytest.mark.parametrize(
    ("later", "last", "findings"),
    [
        ((1, 5, 4, 8), (1, 5, 4, 8), []),
        ((40, 9, 4, 9), (1, 9, 4, 9), []),
        ((40, 9, 4, 9), (2, 9, 4, 9), ["the broker holds 2 sockets then, 1 at first"]),
        ((1, 10, 4, 8), (1, 5, 4, 8), ["the broker holds 10 files then, 5 at first"]),
        ((1, 5, 5, 8), (1, 5, 4, 8), ["the broker holds 5 others then, 4 at first"]),
        ((1, 5, 4, 8), (1, 5, 4, 10), ["the broker holds 10 threads then, 8 at first"]),
        ((500, 5, 4, 8), (1, 5, 4, 8), ["the broker holds 500 sockets then, 1 at first"]),
    ],
)
def test_a_process_that_leaks_is_found(
    later: tuple[int, ...], last: tuple[int, ...], findings: list[str]
) -> None:
    looks = [held(1, 5, 4, 8), held(*later), held(*last, process=FINAL)]
    assert check_process(looks, Holdings(sockets=0, files=4, others=0, threads=1)) == findings
    assert check(looks) == []


def test_a_process_that_nobody_looked_at_in_the_end_is_not_called_well() -> None:
    for looks in ([], [held(1, 5, 4, 8)]):
        assert check_process(looks, Holdings(0, 0, 0, 0)) == [
            "nobody looked at what the broker's process holds in the end"
        ]


def test_a_history_is_judged_from_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "history.jsonl"
    kept.write_text("".join(f"{each.to_line()}\n" for each in [*good(), held(1, 5, 4, 8)]))
    assert verify.main(str(kept)) == 0
    kept.write_text("".join(f"{each.to_line()}\n" for each in forget_a_commit(good())))
    assert verify.main(str(kept)) == 1
    assert "g had committed 4" in capsys.readouterr().out


def test_many_findings_of_a_kind_are_told_by_the_first_few() -> None:
    lost = [*without_final(good(50)), *final({})]
    findings = check(lost)
    assert "… and 45 more of that kind" in findings


def copied(count: int = 4) -> list[Operation]:
    """A source, two transactions of which one is aborted and done again, and who reads them."""
    source = [
        Operation("feeder", "produce", Outcome.OK, at, at, "source-0", f"v{at}", at)
        for at in range(count)
    ]
    copies = [
        copy(f"v{at}", transaction, outcome)
        for transaction, outcome in (("1", Outcome.FAIL), ("2", Outcome.OK))
        for at in range(count)
    ]
    # The aborted records and two markers lie between.
    return [*source, *copies, *(read_copy(f"v{at}", count + 1 + at) for at in range(count))]


def copy(value: str, transaction: str, outcome: Outcome) -> Operation:
    return Operation("w", "copy", outcome, 0, 0, "target-0", value, transaction=transaction)


def read_copy(value: str, offset: int, transaction: str = "2") -> Operation:
    return Operation(
        "r", "read", Outcome.OK, 0, 0, "target-0", value, offset, transaction=transaction
    )


def test_a_good_copy_passes() -> None:
    assert check_copies(copied(), "source", "target") == []


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda it: it[:-1], "did not read v3, whose transaction was committed"),
        (lambda it: [*it, read_copy("v3", 20)], "read v3 more than once"),
        (lambda it: [*it, read_copy("v9", 20, "1")], "read v9 of 1, which was aborted"),
        (lambda it: [*it, read_copy("v9", 20, "3")], "read v9 as record 4 of 5, and not None"),
        (lambda it: [*it[:-2], it[-1], it[-2]], "was given offsets that do not grow"),
        (lambda it: it[:12], "nobody has read it"),
        (
            lambda it: [replace(it[0], outcome=Outcome.UNKNOWN), *it[1:]],
            "source-0: v0 was not acknowledged",
        ),
        (
            lambda it: [*it[:-2], read_copy("v3", 7), read_copy("v2", 8)],
            "read v3 as record 2 of 4, and not v2",
        ),
    ],
)
def test_a_bad_copy_is_found(
    change: Callable[[list[Operation]], list[Operation]], finding: str
) -> None:
    assert finding in "\n".join(check_copies(change(copied()), "source", "target"))

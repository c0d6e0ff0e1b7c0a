"""`kafkalite reassign`, `elect` and `cluster`: what they make of files and brokers, and their words
to a broker that is alone. `tests/cluster` holds them against Kafka's tools."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.told import Run
from kafkalite.cli.options import UsageError
from kafkalite.cli.replicas.plan import plan_text, propose, read_plan
from kafkalite.cli.replicas.throttles import Move, moves, topic_limits
from kafkalite.client.cluster_admin import ClusterAdmin, Reassignment
from kafkalite.client.descriptions import BrokerDescription
from kafkalite.errors import ClientError

# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "is not of the form"),
        ("{", "is not of the form"),
        ("[" * 100_000, "nested too deeply"),
        ('{"version": 2, "partitions": []}', "is of version 2, known is 1"),
        ('{"partitions": []}', "names no partition"),
        ('{"partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}', "is less than 0"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "a replica is of"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "some, and each once"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "and each once"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": []}]}',
            "has 1 replicas and 0 log_dirs",
        ),
        (
            '{"partitions": [%s, %s]}' % (2 * ('{"topic": "t", "partition": 0, "replicas": [1]}',)),
            "t-0 is named twice",
        ),
    ],
)
def test_a_file_that_is_no_plan_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises((UsageError, ClientError), match=sentence):
        read_plan(str(file))


def test_a_proposal_is_a_plan_and_directories_are_those_that_are_named(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(plan_text({("t", 1): [2, 3], ("t", 0): [1, 2]}, {}))
    assert read_plan(str(file)) == ({("t", 0): [1, 2], ("t", 1): [2, 3]}, {})
    row = {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/b"]}
    file.write_text(json.dumps({"partitions": [row]}))
    assert read_plan(str(file)).log_dirs == {(2, "t", 0): "/b"}


# --- a proposal -----------------------------------------------------------------------------------


def brokers(racks: list[str | None]) -> list[BrokerDescription]:
    return [
        BrokerDescription(each, "h", 1, rack, False) for each, rack in enumerate(racks, start=1)
    ]


@given(st.data())
def test_a_proposal_spreads_leaders_and_racks_evenly(data: st.DataObject) -> None:
    racks = data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=7))
    found = brokers([None] * len(racks)) if data.draw(st.booleans()) else brokers(list(racks))
    factor = data.draw(st.integers(1, len(racks)))
    count = data.draw(st.integers(1, 30))
    current = {("t", index): list(range(factor)) for index in range(count)}
    start = data.draw(st.integers(0, 10))
    proposed = propose(current, found, start, is_rack_aware=True)
    assert proposed.keys() == current.keys()
    known = {each.id: each.rack for each in found}
    for replicas in proposed.values():
        assert len(set(replicas)) == factor == len(replicas)
        used = {known[each] for each in replicas}
        assert len(used) == min(factor, len(set(known.values())))
    leaders = Counter(replicas[0] for replicas in proposed.values())
    counts = [leaders[each] for each in known]
    assert max(counts) - min(counts) <= 1


def test_followers_of_a_broker_are_not_always_the_same() -> None:
    current = {("t", index): [1, 2] for index in range(12)}
    proposed = propose(current, brokers([None] * 4), 0, is_rack_aware=True)
    assert {replicas[1] for replicas in proposed.values() if replicas[0] == 1} == {2, 3, 4}


def test_a_proposal_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="'t' has 3 replicas, and there are 2 brokers"):
        propose({("t", 0): [1, 2, 3]}, brokers([None, None]), 0, is_rack_aware=True)
    with pytest.raises(UsageError, match="--disable-rack-aware"):
        propose({("t", 0): [1]}, brokers(["a", None]), 0, is_rack_aware=True)
    assert propose({("t", 0): [1]}, brokers(["a", None]), 0, is_rack_aware=False)


# --- throttles ------------------------------------------------------------------------------------


def test_sources_are_throttled_as_leaders_and_who_comes_as_followers() -> None:
    ongoing = {("t", 2): Reassignment([1, 2, 5], [5], [1])}
    wanted = {("t", 0): [3, 1], ("t", 1): [2, 1], ("t", 2): [2, 6]}
    current = {("t", 0): [1, 2], ("t", 1): [1, 2], ("t", 2): [1, 2, 5]}
    found = moves(ongoing, wanted, current)
    # What moves already has its sources from there: a replica that is only coming has no records.
    assert found["t", 2] == Move({1, 2}, {6})
    assert topic_limits(found) == {
        "t": {
            "leader.replication.throttled.replicas": "0:1,0:2,1:1,1:2,2:1,2:2",
            "follower.replication.throttled.replicas": "0:3,2:6",
        }
    }


# --- a broker that is alone -----------------------------------------------------------------------


def test_a_broker_that_is_alone_has_nothing_to_move_or_to_elect(run: Run, tmp_path: Path) -> None:
    assert run("topics", "create", "orders", "--partitions", "2").exit == 0
    proposed = run("reassign", "generate", "orders", "--broker-list", "1", "--json").out
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(json.loads(proposed)["proposed"]))
    done = run("reassign", "execute", str(file), "--throttle", "1000")
    assert done.exit == 0, done
    assert "Successfully started partition reassignments for orders-0,orders-1\n" in done.out
    throttled = run("configs", "describe", "--topic", "orders").out
    assert "leader.replication.throttled.replicas=0:1,1:1 " in throttled
    verified = run("reassign", "--verify", "--reassignment-json-file", str(file), "--wait")
    assert verified.exit == 0
    assert verified.out.splitlines() == [
        "Status of partition reassignment:",
        "Reassignment of partition orders-0 is completed.",
        "Reassignment of partition orders-1 is completed.",
        "",
        "Clearing broker-level throttles on broker 1",
        "Clearing topic-level throttles on topic orders",
    ]
    assert "throttled" not in run("configs", "describe", "--topic", "orders").out
    assert run("reassign", "list").out == "No partition reassignments found.\n"
    cancelled = run("reassign", "cancel", str(file), "--preserve-throttles")
    assert cancelled.out.startswith("None of the specified partition reassignments are active.\n")
    everywhere = run("elect", "--election-type", "preferred", "--all-topic-partitions")
    assert (everywhere.exit, everywhere.out) == (0, "")
    elected = run("elect", "orders", "--partition", "1", "--election-type", "PREFERRED", "--json")
    assert json.loads(elected.out)["error"] == "ELECTION_NOT_NEEDED"
    none = run("elect", "none", "--partition", "0", "--election-type", "unclean")
    assert (none.exit, "could not be elected" in none.err) == (1, True)


def test_what_is_not_there_cannot_be_moved(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(plan_text({("nothing", 0): [1]}, {}))
    refused = run("reassign", "execute", str(file))
    assert (refused.exit, refused.out) == (1, "")
    assert "topic 'nothing'" in refused.err
    told = json.loads(run("reassign", "verify", str(file), "--preserve-throttles", "--json").out)
    assert (told["done"], told["replicas"]) == (True, [])
    waited = run("reassign", "verify", str(file), "--preserve-throttles", "--wait")
    assert waited.exit == 1 and "replica set is  rather than 1." in waited.out
    file.write_text(plan_text({("nothing", 0): [1, 7]}, {}))
    refused = run("reassign", "execute", str(file))
    assert (refused.exit, refused.err) == (2, "kafkalite: unknown broker id 7: the cluster has 1\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["reassign", "execute"], "name one file"),
        (["reassign", "generate", "--broker-list", "1"], "name topics"),
        (["reassign", "generate", "t", "t", "--broker-list", "1"], "named twice"),
        (
            ["reassign", "generate", "t", "--broker-list", "1,1"],
            "'1,1' is not a list of different brokers",
        ),
        (["elect", "t", "--election-type", "preferred"], "a topic needs --partition"),
        (["elect", "--election-type", "preferred"], "name one of"),
        (["elect", "--election-type", "fair", "--all-topic-partitions"], "invalid choice"),
        (["cluster", "unregister"], "required: --id"),
    ],
)
def test_a_command_line_that_lacks_something_is_one_line(
    arguments: list[str], sentence: str, run: Run
) -> None:
    told = run(*arguments)
    assert told.exit == 2
    assert sentence in told.err and told.err.count("\n") == 1


def test_a_cluster_shows_its_controller_and_brokers(run: Run, servers: str) -> None:
    lines = run("cluster").out.splitlines()
    assert lines[1] == f"\tBroker: 1\tAddress: {servers}\tState: unfenced"
    assert lines[2].startswith("\tLeaderId: 1\tLeaderEpoch: ")
    assert lines[3].startswith("\tController: 1 (leader)\t") and lines[3].endswith("\tLag: 0")
    assert run("cluster", "describe").out.splitlines()[:2] == lines[:2]
    assert run("cluster", "cluster-id").out == f"{lines[0]}\n"
    quorum = json.loads(run("cluster", "--json").out)["quorum"]
    assert [each["id"] for each in quorum["voters"]] == [quorum["leaderId"]] == [1]
    assert "ApiKey: 0\t" in run("cluster", "--versions").out
    # Who is alone is not unregistered by itself.
    assert run("cluster", "unregister", "--id", "1").exit == 1


def test_log_directories_and_the_replicas_in_them_are_told(run: Run, servers: str) -> None:
    assert run("topics", "create", "placed").exit == 0
    with ClusterAdmin(servers) as admin:
        (directory,) = admin.describe_log_dirs(1, [("placed", 0)])
        places = admin.replica_places([(1, "placed", 0), (1, "placed", 9)])
    assert directory.replicas == {("placed", 0): (0, 0)} and directory.error_code == 0
    assert places[1, "placed", 0] == (directory.path, None)
    assert places[1, "placed", 9] == (None, None)

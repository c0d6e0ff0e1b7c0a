"""Groups of unmodified clients: sharing, leaving, dying, coming back, a broker that is killed."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkalite
from api.group_requests import committed, describe
from api.raw import Connection
from groups.clients import CLIENTS, Confluent, GroupMember, drive, leaving, share
from groups.conftest import CONFIG

# kafka-python reads its schemas by a function that importlib calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

MakeTopic = Callable[[kafkalite.Broker, int, int], str]


@pytest.mark.parametrize("client", CLIENTS)
def test_three_members_share_a_topic_while_one_leaves_and_another_comes(
    broker: kafkalite.Broker, make_topic: MakeTopic, client: str
) -> None:
    topic = make_topic(broker, 6, 20)
    make = CLIENTS[client]
    group = f"three-{client}"
    members: list[GroupMember] = []
    with leaving(members):
        members += [make(broker.bootstrap_servers, group, topic) for _ in range(3)]
        seen = set(drive(members, lambda: share(members, 6)))
        with Connection(broker.bootstrap_servers) as connection:

            def is_committed() -> bool:
                for member in members:
                    member.commit()
                found = [committed(connection, group, topic, index) for index in range(6)]
                return found == [20] * 6

            seen.update(drive(members, is_committed))
        assert len(seen) == 120
        members.pop().leave()
        drive(members, lambda: share(members, 6))
        members.append(make(broker.bootstrap_servers, group, topic))
        drive(members, lambda: share(members, 6))
        with Connection(broker.bootstrap_servers) as connection:
            (told,) = describe(connection, group)
            assert len(told.members) == 3


MEMBER_THAT_DIES = """
import sys
sys.path.insert(0, sys.argv[4])
from groups.clients import Confluent
member = Confluent(*sys.argv[1:4], session_ms=3000)
while not member.partitions():
    member.poll()
print("joined", flush=True)
while True:
    member.poll()
"""


def test_the_partitions_of_a_member_that_is_killed_go_to_the_others(
    broker: kafkalite.Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(broker, 4, 1)
    members: list[GroupMember] = []
    tests = str(Path(__file__).parents[1])
    arguments = [broker.bootstrap_servers, "dies", topic, tests]
    with (
        leaving(members),
        subprocess.Popen(
            [sys.executable, "-c", MEMBER_THAT_DIES, *arguments], stdout=subprocess.PIPE
        ) as child,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == b"joined\n"
        members.append(Confluent(broker.bootstrap_servers, "dies", topic, session_ms=3000))
        drive(members, lambda: len(members[0].partitions()) == 2)
        child.send_signal(signal.SIGKILL)
        drive(members, lambda: share(members, 4))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_static_member_that_comes_back_disturbs_nobody(
    broker: kafkalite.Broker, make_topic: MakeTopic, client: str
) -> None:
    topic = make_topic(broker, 4, 1)
    group = f"static-{client}"
    members: list[GroupMember] = []
    make = CLIENTS[client]
    options = {"group.instance.id": "one", "session_ms": 30_000}
    with leaving(members), Connection(broker.bootstrap_servers) as connection:
        members.append(make(broker.bootstrap_servers, group, topic, **options))
        other = {"group.instance.id": "two", "session_ms": 30_000}
        members.append(make(broker.bootstrap_servers, group, topic, **other))
        drive(members, lambda: share(members, 4))
        before = {each.group_instance_id: each for each in describe(connection, group)[0].members}
        kept = members[1].partitions()
        # A static member says nothing when it is closed.
        members.pop(0).leave()
        members.insert(0, make(broker.bootstrap_servers, group, topic, **options))
        drive(members, lambda: share(members, 4))
        (told,) = describe(connection, group)
        after = {each.group_instance_id: each for each in told.members}
        assert after["two"].member_id == before["two"].member_id
        assert after["one"].member_id != before["one"].member_id
        assert after["one"].member_assignment == before["one"].member_assignment
        assert members[1].partitions() == kept


def test_a_group_goes_on_where_it_was_after_the_broker_is_killed(
    make_topic: MakeTopic, tmp_path: Path
) -> None:
    with kafkalite.Broker(tmp_path / "data", config=CONFIG) as broker:
        topic = make_topic(broker, 4, 50)
        members: list[GroupMember] = []
        with leaving(members):
            for _ in range(2):
                members.append(
                    Confluent(broker.bootstrap_servers, "killed", topic, session_ms=30_000)
                )
            seen = drive(members, lambda: share(members, 4))
            while len(seen) < 200:
                for member in members:
                    seen += member.poll()
            assert len(set(seen)) == len(seen) == 200
            with Connection(broker.bootstrap_servers) as connection:

                def is_committed() -> bool:
                    for member in members:
                        member.commit()
                    found = [committed(connection, "killed", topic, index) for index in range(4)]
                    return found == [50] * 4

                drive(members, is_committed)
                before = describe(connection, "killed")[0]
            broker.kill()
            broker.start()
            with Connection(broker.bootstrap_servers) as connection:
                while (after := describe(connection, "killed")[0]).error_code == 14:
                    pass
                assert (after.group_state, after.protocol_data) == ("Stable", "range")
                ids = [{each.member_id for each in told.members} for told in (before, after)]
                assert ids[0] == ids[1]
                offsets = [committed(connection, "killed", topic, index) for index in range(4)]
                assert offsets == [50] * 4
            make_more = 10
            _produce(broker, topic, make_more)
            more: list[tuple[int, int]] = []
            while len(more) < 4 * make_more:
                for member in members:
                    more += member.poll()
            assert sorted(more) == [
                (partition, 50 + index) for partition in range(4) for index in range(make_more)
            ]
            with Connection(broker.bootstrap_servers) as connection:
                told = describe(connection, "killed")[0]
                assert {each.member_id for each in told.members} == ids[0]


def _produce(broker: kafkalite.Broker, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for index in range(count):
        for partition in range(4):
            producer.produce(topic, f"{index}", partition=partition)
    assert producer.flush(30) == 0

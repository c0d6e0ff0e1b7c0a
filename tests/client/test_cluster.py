"""Brokers, leaders, and what is tried again."""

from typing import Any

import pytest

from client.fake import Close, FakeBroker
from kafkalite.client import Admin, Cluster, Consumer, GroupAdmin, Producer
from kafkalite.client.network.servers import parse_servers
from kafkalite.errors import BrokerError, ConnectionFailedError, InvalidArgumentError
from kafkalite.protocol import messages


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("a", [("a", 9092)]),
        ("[::1]:9093,[fe80::1]", [("::1", 9093), ("fe80::1", 9092)]),
    ],
)
def test_servers_are_hosts_with_ports(text: str, servers: list[tuple[str, int]]) -> None:
    assert parse_servers(text) == servers


@pytest.mark.parametrize("text", ["", ",", "a:b", "a:0", "a:70000", ":9092"])
def test_what_names_no_server_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_servers(text)


def test_in_a_notebook_a_client_says_whom_it_asks() -> None:
    servers = "a:1,[::1]:9092"
    with Cluster("a:1, [::1]") as cluster:
        clients = [Admin(cluster), GroupAdmin(cluster), Producer(cluster), Consumer(servers)]
        told = [repr(each) for each in (cluster, *clients)]
    names = ["Cluster", "Admin", "GroupAdmin", "Producer", "Consumer"]
    assert told == [f"<kafkalite.{name}: {servers}>" for name in names]


def test_the_next_bootstrap_server_is_asked_if_the_first_is_away() -> None:
    with FakeBroker() as broker, Cluster(f"127.0.0.1:1,{broker.servers}") as cluster:
        assert cluster.leader("orders", 0) == 1


def test_servers_of_which_none_can_be_reached_are_all_named_at_once() -> None:
    with (
        Cluster("127.0.0.1:1,127.0.0.1:2") as cluster,
        pytest.raises(ConnectionFailedError, match=r"127.0.0.1:1: .*; .*127.0.0.1:2: "),
    ):
        cluster.retry(lambda: cluster.refresh([]))


def test_an_address_that_only_the_broker_has_named_is_said_to_be_its_own() -> None:
    """`advertised.listeners` that lead nowhere looked as if nobody served where one had asked."""

    def answer(name: str, _: Any) -> Any:
        if name != "Metadata":
            return ...
        told = broker.metadata()
        told.brokers[0].port = 1
        return told

    with FakeBroker(answer) as broker, Cluster(broker.servers) as cluster:
        leader = cluster.leader("orders", 0)
        sentence = r"127\.0\.0\.1:1: Connection refused \(which is where broker 1 tells its clients"
        with pytest.raises(ConnectionFailedError, match=sentence):
            cluster.connection(leader)


def test_an_address_that_was_reached_before_is_not_said_to_be_wrong() -> None:
    """Where a client had a connection of its own to the broker, the hint came with each failure."""

    def answer(name: str, _: Any) -> Any:
        if name != "Metadata":
            return ...
        return broker.metadata({2: (other.host, other.port)})

    broker, other = FakeBroker(answer), FakeBroker()
    with broker, Cluster(broker.servers) as cluster:
        with other:
            cluster.refresh([])
            cluster.new_connection(2).close()
        with pytest.raises(ConnectionFailedError) as told:
            cluster.new_connection(2)
    assert "advertised.listeners" not in str(told.value)


def create_answers(*codes: int) -> Any:
    """CreateTopics answered with these codes, the last one again and again."""
    left = list(codes)

    def answer(name: str, _: Any) -> Any:
        if name != "CreateTopics":
            return ...
        code = left.pop(0) if len(left) > 1 else left[0]
        kind = messages.CreateTopicsResponse
        result = kind.CreatableTopicResult(name="new", error_code=code, error_message="told")
        return kind(topics=[result])

    return answer


def test_a_refusal_that_may_pass_is_tried_again() -> None:
    with FakeBroker(create_answers(41, 89, 0)) as broker, Admin(broker.servers) as admin:
        admin.create_topic("new")
        assert len(broker.of("CreateTopics")) == 3


def test_a_refusal_for_good_is_raised_at_once_with_the_brokers_words() -> None:
    with FakeBroker(create_answers(36)) as broker, Admin(broker.servers) as admin:
        with pytest.raises(
            BrokerError, match=r"topic 'new': told \(TOPIC_ALREADY_EXISTS\)"
        ) as told:
            admin.create_topic("new")
        assert (told.value.code, told.value.name, told.value.retriable) == (
            36,
            "TOPIC_ALREADY_EXISTS",
            False,
        )
        assert len(broker.of("CreateTopics")) == 1


@pytest.mark.parametrize("code", [7, 56])
def test_what_the_controller_could_not_do_is_told_at_once_as_kafkas_client_does(code: int) -> None:
    """A broker whose disk was full was asked again for a minute."""
    with FakeBroker(create_answers(code)) as broker, Admin(broker.servers) as admin:
        with pytest.raises(BrokerError, match="topic 'new': told"):
            admin.create_topic("new")
        assert len(broker.of("CreateTopics")) == 1


def test_a_refusal_that_does_not_pass_is_raised_when_the_time_is_over() -> None:
    with (
        FakeBroker(create_answers(41)) as broker,
        Admin(broker.servers, timeout_ms=3_000) as admin,
    ):
        with pytest.raises(BrokerError, match="NOT_CONTROLLER"):
            admin.create_topic("new")
        assert len(broker.of("CreateTopics")) > 1


def test_a_code_that_nobody_knows_yet_is_told_by_number() -> None:
    with (
        FakeBroker(create_answers(999)) as broker,
        Admin(broker.servers) as admin,
        pytest.raises(BrokerError, match="ERROR_999"),
    ):
        admin.create_topic("new")


def test_a_lost_connection_is_made_again() -> None:
    lost: list[int] = []

    def lose_once(name: str, _: Any) -> Any:
        if name == "DescribeCluster" and not lost:
            lost.append(1)
            return Close()
        if name == "DescribeCluster":
            return messages.DescribeClusterResponse(cluster_id="again")
        return ...

    with FakeBroker(lose_once) as broker, Admin(broker.servers) as admin:
        assert admin.describe_cluster().cluster_id == "again"
        assert broker.connections_count == 2


def test_offsets_of_partitions_that_fail_for_a_while_are_asked_for_again_and_no_others() -> None:
    asked: list[list[int]] = []

    def half(name: str, request: Any) -> Any:
        if name != "ListOffsets":
            return ...
        rows = request.message.topics[0].partitions
        asked.append([row.partition_index for row in rows])
        kind = messages.ListOffsetsResponse
        inner = kind.ListOffsetsTopicResponse
        is_first = len(asked) == 1
        return kind(
            topics=[
                inner(
                    name="orders",
                    partitions=[
                        inner.ListOffsetsPartitionResponse(
                            partition_index=row.partition_index,
                            error_code=6 if is_first and row.partition_index == 1 else 0,
                            offset=row.partition_index,
                        )
                        for row in rows
                    ],
                )
            ]
        )

    with FakeBroker(half, partitions=3) as broker, Admin(broker.servers) as admin:
        found = admin.list_offsets({("orders", index): -1 for index in range(3)})
    assert [found["orders", index].offset for index in range(3)] == [0, 1, 2]
    assert asked == [[0, 1, 2], [1]]


def test_a_loading_coordinator_is_waited_for() -> None:
    codes = [14, 15, 0]

    def load(name: str, _: Any) -> Any:
        if name == "ListGroups":
            return messages.ListGroupsResponse(error_code=codes.pop(0))
        return ...

    with FakeBroker(load) as broker, GroupAdmin(broker.servers) as groups:
        assert groups.list() == []
        assert codes == []

"""What an administrator's requests to coordinators and the controller come to when these refuse:
what is asked again, and of whom. The codes are those of Kafka's admin client."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from client.fake import Close, FakeBroker
from kafkalite.client import Admin, GroupAdmin
from kafkalite.client.admin import TOPIC
from kafkalite.errors import BrokerError, ConnectionFailedError, RequestTimedOutError
from kafkalite.protocol import messages

LOAD_IN_PROGRESS, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
REQUEST_TIMED_OUT, STORAGE_ERROR, REBALANCE_IN_PROGRESS, NOT_CONTROLLER = 7, 56, 27, 41
THROTTLED = 89

Codes = dict[str, list[int]]


def described(code: int) -> Any:
    kind = messages.DescribeGroupsResponse
    group = kind.DescribedGroup(error_code=code, group_id="g", group_state="Empty")
    return kind(groups=[group])


def fetched(code: int) -> Any:
    kind = messages.OffsetFetchResponse
    return kind(groups=[kind.OffsetFetchResponseGroup(group_id="g", error_code=code)])


def committed(*codes: int) -> Any:
    kind = messages.OffsetCommitResponse
    inner = kind.OffsetCommitResponseTopic
    rows = [
        inner.OffsetCommitResponsePartition(partition_index=index, error_code=code)
        for index, code in enumerate(codes)
    ]
    return kind(topics=[inner(name="orders", partitions=rows)])


def offsets_deleted(code: int) -> Any:
    return messages.OffsetDeleteResponse(error_code=code)


def deleted(code: int) -> Any:
    kind = messages.DeleteGroupsResponse
    return kind(results=[kind.DeletableGroupResult(group_id="g", error_code=code)])


class Asked(NamedTuple):
    """A call, the request that it makes and how that is answered."""

    call: Callable[[GroupAdmin], Any]
    name: str
    answer: Callable[[int], Any]


CALLS = {
    "describe": Asked(lambda groups: groups.describe("g"), "DescribeGroups", described),
    "committed": Asked(lambda groups: groups.committed("g"), "OffsetFetch", fetched),
    "alter": Asked(lambda groups: groups.alter("g", {("orders", 0): 1}), "OffsetCommit", committed),
    "delete_offsets": Asked(
        lambda groups: groups.delete_offsets("g", [("orders", 0)]), "OffsetDelete", offsets_deleted
    ),
    "delete": Asked(lambda groups: groups.delete("g"), "DeleteGroups", deleted),
}
ALL = pytest.mark.parametrize("asked", CALLS.values(), ids=CALLS)


def coordinator(broker: FakeBroker, code: int = 0) -> Any:
    kind = messages.FindCoordinatorResponse
    row = kind.Coordinator(
        key="g", node_id=1, host=broker.host, port=broker.port, error_code=code, error_message=""
    )
    return kind(coordinators=[row])


class Scripted(FakeBroker):
    """Answers look-ups by itself, and the request of a call by these codes, the last one again and
    again."""

    def __init__(self, asked: Asked, *codes: int, lookups: tuple[int, ...] = (0,)) -> None:
        super().__init__(self._script)
        self._asked, self._codes, self._lookups = asked, list(codes), list(lookups)

    def _script(self, name: str, _: Any) -> Any:
        if name == "FindCoordinator":
            return coordinator(self, _next(self._lookups))
        return self._asked.answer(_next(self._codes)) if name == self._asked.name else ...

    @property
    def counts(self) -> tuple[int, int]:
        """How often was looked up and asked."""
        return len(self.of("FindCoordinator")), len(self.of(self._asked.name))


def _next(codes: list[int]) -> int:
    return codes.pop(0) if len(codes) > 1 else codes[0]


@ALL
def test_a_coordinator_that_loads_is_asked_again(asked: Asked) -> None:
    with Scripted(asked, LOAD_IN_PROGRESS, 0) as broker, GroupAdmin(broker.servers) as groups:
        asked.call(groups)
        assert broker.counts == (1, 2)


@ALL
@pytest.mark.parametrize("code", [NOT_AVAILABLE, NOT_COORDINATOR])
def test_a_coordinator_that_has_moved_is_looked_up_anew(asked: Asked, code: int) -> None:
    with Scripted(asked, code, 0) as broker, GroupAdmin(broker.servers) as groups:
        asked.call(groups)
        assert broker.counts == (2, 2)


@ALL
@pytest.mark.parametrize("code", [REQUEST_TIMED_OUT, STORAGE_ERROR, NOT_CONTROLLER])
def test_what_else_a_coordinator_refuses_is_told_at_once(asked: Asked, code: int) -> None:
    """A commit that the broker could not store in time was made again for a minute."""
    with Scripted(asked, code) as broker, GroupAdmin(broker.servers) as groups:
        with pytest.raises(BrokerError) as told:
            asked.call(groups)
        assert told.value.code == code
        assert broker.counts == (1, 1)


@ALL
def test_offsets_are_set_after_a_rebalance_and_nothing_else_waits_for_one(asked: Asked) -> None:
    with Scripted(asked, REBALANCE_IN_PROGRESS, 0) as broker, GroupAdmin(broker.servers) as groups:
        if asked.name == "OffsetCommit":
            asked.call(groups)
            assert broker.counts == (1, 2)
        else:
            with pytest.raises(BrokerError, match="REBALANCE_IN_PROGRESS"):
                asked.call(groups)
            assert broker.counts == (1, 1)


def test_what_passes_of_one_partition_goes_before_what_another_is_refused_for() -> None:
    codes = [(3, LOAD_IN_PROGRESS), (0, 0)]
    asked = Asked(CALLS["alter"].call, "OffsetCommit", lambda _: committed(*codes.pop(0)))
    with Scripted(asked, 0) as broker, GroupAdmin(broker.servers) as groups:
        groups.alter("g", {("orders", 0): 1, ("orders", 1): 1})
        assert broker.counts == (1, 2)


@pytest.mark.parametrize("code", [LOAD_IN_PROGRESS, NOT_AVAILABLE])
def test_a_coordinator_that_is_not_there_yet_is_looked_up_again(code: int) -> None:
    asked = CALLS["delete"]
    with (
        Scripted(asked, 0, lookups=(code, 0)) as broker,
        GroupAdmin(broker.servers) as groups,
    ):
        asked.call(groups)
        assert broker.counts == (2, 1)


@pytest.mark.parametrize("code", [NOT_COORDINATOR, REQUEST_TIMED_OUT])
def test_a_look_up_that_is_refused_otherwise_is_told_at_once(code: int) -> None:
    asked = CALLS["delete"]
    with Scripted(asked, 0, lookups=(code,)) as broker, GroupAdmin(broker.servers) as groups:
        with pytest.raises(BrokerError) as told:
            asked.call(groups)
        assert told.value.code == code
        assert broker.counts == (1, 0)


def test_a_coordinator_is_asked_where_the_look_up_says_that_it_is() -> None:
    """It had been started again elsewhere under its old number, and was sought where the metadata
    had known it."""
    asked = CALLS["delete"]
    with Scripted(asked, 0) as moved:

        def answer(name: str, _: Any) -> Any:
            return coordinator(moved) if name == "FindCoordinator" else ...

        with FakeBroker(answer) as broker, GroupAdmin(broker.servers) as groups:
            groups.cluster.refresh([])
            asked.call(groups)
            assert (len(broker.of("DeleteGroups")), len(moved.of("DeleteGroups"))) == (0, 1)


def test_a_coordinator_whose_connection_is_lost_is_looked_up_anew() -> None:
    answers: list[Any] = [Close(), deleted(0)]
    asked = Asked(CALLS["delete"].call, "DeleteGroups", lambda _: answers.pop(0))
    with Scripted(asked, 0) as broker, GroupAdmin(broker.servers) as groups:
        asked.call(groups)
        assert broker.counts == (2, 2)


def test_groups_of_all_brokers_are_listed_after_the_coordinator_of_one_was_asked() -> None:
    """Of a cluster of which only a coordinator was known, only that one's groups were listed."""
    kind = messages.ListGroupsResponse

    def answer(name: str, _: Any) -> Any:
        match name:
            case "FindCoordinator":
                return coordinator(broker)
            case "DeleteGroups":
                return deleted(0)
            case "Metadata":
                return broker.metadata({2: (broker.host, broker.port)})
            case "ListGroups":
                row = kind.ListedGroup(group_id="g", protocol_type="consumer")
                return kind(groups=[row])
        return ...

    with FakeBroker(answer) as broker, GroupAdmin(broker.servers) as groups:
        groups.delete("g")
        assert sorted(groups.cluster.nodes) == [1, 2]
        assert len(groups.list()) == 2


@pytest.mark.parametrize("code", [NOT_COORDINATOR, REQUEST_TIMED_OUT])
def test_a_broker_that_refuses_to_list_its_groups_is_not_asked_again(code: int) -> None:
    def answer(name: str, _: Any) -> Any:
        return messages.ListGroupsResponse(error_code=code) if name == "ListGroups" else ...

    with FakeBroker(answer) as broker, GroupAdmin(broker.servers) as groups:
        with pytest.raises(BrokerError):
            groups.list()
        assert len(broker.of("ListGroups")) == 1


# --- the controller -------------------------------------------------------------------------------


def created(code: int) -> Any:
    kind = messages.CreateTopicsResponse
    return kind(topics=[kind.CreatableTopicResult(name="new", error_code=code)])


def altered(code: int) -> Any:
    kind = messages.IncrementalAlterConfigsResponse
    return kind(responses=[kind.AlterConfigsResourceResponse(error_code=code)])


def test_another_controller_is_looked_up_when_the_one_that_was_known_is_none_any_more() -> None:
    """The old controller was asked again and again until the time was over."""

    def say_yes(name: str, _: Any) -> Any:
        return created(0) if name == "CreateTopics" else ...

    with FakeBroker(say_yes) as following:

        def answer(name: str, _: Any) -> Any:
            if name == "CreateTopics":
                return created(NOT_CONTROLLER)
            if name != "Metadata":
                return ...
            elected = 2 if broker.of("CreateTopics") else 1
            return broker.metadata({2: (following.host, following.port)}, elected)

        with FakeBroker(answer) as broker, Admin(broker.servers) as admin:
            admin.create_topic("new")
            assert (len(broker.of("CreateTopics")), len(following.of("CreateTopics"))) == (1, 1)


@pytest.mark.parametrize(
    ("code", "count"), [(NOT_CONTROLLER, 2), (THROTTLED, 1), (REQUEST_TIMED_OUT, 1)]
)
def test_configurations_are_changed_again_only_for_another_controller(
    code: int, count: int
) -> None:
    codes = [code, 0]

    def answer(name: str, _: Any) -> Any:
        return altered(codes.pop(0)) if name == "IncrementalAlterConfigs" else ...

    with FakeBroker(answer) as broker, Admin(broker.servers) as admin:
        if count == 1:
            with pytest.raises(BrokerError):
                admin.alter_configs(TOPIC, "orders", {"retention.ms": 1})
        else:
            admin.alter_configs(TOPIC, "orders", {"retention.ms": 1})
        assert len(broker.of("IncrementalAlterConfigs")) == count


@pytest.mark.parametrize("code", [NOT_CONTROLLER, THROTTLED, REQUEST_TIMED_OUT])
def test_what_any_broker_tells_is_not_asked_again_when_it_is_refused(code: int) -> None:
    def answer(name: str, _: Any) -> Any:
        if name == "DescribeCluster":
            return messages.DescribeClusterResponse(error_code=code)
        return ...

    with FakeBroker(answer) as broker, Admin(broker.servers) as admin:
        with pytest.raises(BrokerError):
            admin.describe_cluster()
        assert len(broker.of("DescribeCluster")) == 1


def test_a_controller_that_does_not_answer_is_waited_for_as_long_as_the_call_may_take() -> None:
    """One answer alone was waited for half a minute, whatever the caller's time."""

    def answer(name: str, _: Any) -> Any:
        return None if name == "CreateTopics" else ...

    with FakeBroker(answer) as broker, Admin(broker.servers, timeout_ms=500) as admin:
        begun = time.monotonic()
        with pytest.raises(RequestTimedOutError):
            admin.create_topic("new")
        assert time.monotonic() - begun < 25


def test_looking_for_a_controller_takes_no_longer_than_the_call_may() -> None:
    """Each look-up had a minute of its own."""

    def answer(name: str, _: Any) -> Any:
        if name == "CreateTopics":
            return created(NOT_CONTROLLER)
        return Close() if name == "Metadata" and broker.of("CreateTopics") else ...

    with FakeBroker(answer) as broker, Admin(broker.servers, timeout_ms=500) as admin:
        begun = time.monotonic()
        with pytest.raises((BrokerError, ConnectionFailedError)):
            admin.create_topic("new")
        assert time.monotonic() - begun < 25


def test_an_answer_that_the_end_of_the_time_cuts_off_does_not_hide_the_one_before() -> None:
    """A topic that was not there for seconds was told as an answer that took too long, when the
    last of many questions had a millisecond left."""
    codes = [NOT_CONTROLLER]

    def answer(name: str, _: Any) -> Any:
        if name != "CreateTopics":
            return ...
        return created(codes.pop()) if codes else None

    with FakeBroker(answer) as broker, Admin(broker.servers, timeout_ms=3_000) as admin:
        with pytest.raises(BrokerError, match="NOT_CONTROLLER"):
            admin.create_topic("new")
        assert len(broker.of("CreateTopics")) == 2

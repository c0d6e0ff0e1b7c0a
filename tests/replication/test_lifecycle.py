"""The life of a broker towards its controllers, under a scripted one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.metadata.image import BrokerEndpoint, BrokerImage
from kafkalite.protocol import codes, messages
from kafkalite.replication.broker_epoch import Previous
from kafkalite.replication.lifecycle import (
    NOT_REGISTERED,
    RECOVERY,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    Identity,
    Lifecycle,
    LifecycleError,
    Silence,
)

HEARTBEAT_MS, SESSION_MS, REGISTRATION_MS, FAILURE_MS = 2_000, 9_000, 60_000, 30_000
IDENTITY = Identity(
    node_id=7,
    cluster_id="cluster",
    incarnation_id=b"i" * 16,
    endpoints=(BrokerEndpoint("PLAINTEXT", "here", 9092, 0),),
    features=(("metadata.version", 25, 30),),
    rack="r",
    directories=(("two", b"b" * 16), ("one", b"a" * 16)),
    previous=Previous(5),
)


class Controller:
    """What a controller knows of the broker."""

    def __init__(self) -> None:
        self.epoch = 100
        self.is_fenced = True
        self.is_caught_up = False
        self.may_shut_down = False

    def answer(self, request: Any) -> Any:
        if request._name == "BrokerRegistrationRequest":
            return messages.BrokerRegistrationResponse(broker_epoch=self.epoch)
        assert request.broker_epoch == self.epoch
        if self.is_caught_up and not request.want_fence and not request.want_shut_down:
            self.is_fenced = False
        if request.want_shut_down and self.may_shut_down:
            self.is_fenced = True
        return messages.BrokerHeartbeatResponse(
            is_caught_up=self.is_caught_up,
            is_fenced=self.is_fenced,
            should_shut_down=request.want_shut_down and self.may_shut_down,
        )


def new_lifecycle() -> Lifecycle:
    return Lifecycle(IDENTITY, HEARTBEAT_MS, SESSION_MS, REGISTRATION_MS, FAILURE_MS, now_ms=0)


def registered(node_id: int, host: str, directory: bytes = b"d" * 16) -> BrokerImage:
    endpoints = (BrokerEndpoint("PLAINTEXT", host, 9092, 0),)
    return BrokerImage(node_id, 5, b"i" * 16, endpoints, (), None, False, False, (directory,), None)


def step(lifecycle: Lifecycle, controller: Controller) -> int:
    return lifecycle.on_answer(controller.answer(lifecycle.ask(42)), 0)


def test_a_broker_is_registered_caught_up_and_unfenced_in_this_order() -> None:
    lifecycle, controller = new_lifecycle(), Controller()
    request = lifecycle.ask(-1)
    assert request.log_dirs == [b"a" * 16, b"b" * 16]
    assert request.previous_broker_epoch == 5
    assert step(lifecycle, controller) == 0
    assert (lifecycle.state, lifecycle.epoch) == (STARTING, 100)
    heartbeat = lifecycle.ask(42)
    assert heartbeat.current_metadata_offset == 42
    assert heartbeat.want_fence
    assert heartbeat.cordoned_log_dirs is None
    assert step(lifecycle, controller) < 100
    controller.is_caught_up = True
    step(lifecycle, controller)
    assert lifecycle.state == RECOVERY
    assert step(lifecycle, controller) == HEARTBEAT_MS
    lifecycle.set_ready()
    assert not lifecycle.ask(43).want_fence
    assert step(lifecycle, controller) == HEARTBEAT_MS
    assert lifecycle.state == RUNNING
    lifecycle.begin_stop()
    assert step(lifecycle, controller) < 100
    assert lifecycle.state == STOPPING
    controller.may_shut_down = True
    step(lifecycle, controller)
    assert lifecycle.state == STOPPED


def test_the_session_of_the_last_process_is_waited_for_and_then_given_up() -> None:
    """Nobody was told that it is another process, and at which address it runs."""
    lifecycle = new_lifecycle()
    refusal = messages.BrokerRegistrationResponse(error_code=codes.DUPLICATE_BROKER_REGISTRATION)
    brokers = {7: registered(7, "there")}
    assert lifecycle.on_answer(refusal, 1_000, brokers) == 250
    assert lifecycle.waiting_for == (
        "the session of the last process of broker 7, registered at there:9092, to end: if that "
        "has stopped, within 9000 ms (broker.session.timeout.ms of the controllers)"
    )
    assert lifecycle.on_answer(refusal, 1_000 + SESSION_MS + 1, brokers) == 250
    assert "a process with this node.id runs; stop it" in lifecycle.waiting_for
    assert lifecycle.on_answer(refusal, REGISTRATION_MS - 1) == 250
    with pytest.raises(LifecycleError, match=r"within 60000 ms \(initial\.broker.*broker 7 to end"):
        lifecycle.on_answer(refusal, REGISTRATION_MS)


def test_a_log_directory_that_was_copied_is_named_with_the_broker_that_has_its_id() -> None:
    refusal = messages.BrokerRegistrationResponse(error_code=codes.INVALID_REGISTRATION)
    brokers = {7: registered(7, "here", b"a" * 16), 8: registered(8, "there", b"b" * 16)}
    with pytest.raises(LifecycleError, match=r"two has the directory\.id .* of broker 8"):
        new_lifecycle().on_answer(refusal, 0, brokers)


@pytest.mark.parametrize(
    "code",
    [codes.INCONSISTENT_CLUSTER_ID, codes.UNSUPPORTED_VERSION, codes.INVALID_REGISTRATION],
)
def test_a_registration_that_can_never_be_taken_ends_the_start(code: int) -> None:
    with pytest.raises(LifecycleError):
        new_lifecycle().on_answer(messages.BrokerRegistrationResponse(error_code=code), 0)


def test_a_stale_epoch_ends_the_broker() -> None:
    lifecycle, controller = new_lifecycle(), Controller()
    step(lifecycle, controller)
    with pytest.raises(LifecycleError, match="another process"):
        lifecycle.on_answer(
            messages.BrokerHeartbeatResponse(error_code=codes.STALE_BROKER_EPOCH), 0
        )


def test_a_broker_that_was_unregistered_says_so() -> None:
    """It spoke of another process that nobody had started."""
    lifecycle, controller = new_lifecycle(), Controller()
    controller.is_caught_up = True
    step(lifecycle, controller)
    step(lifecycle, controller)
    stale = messages.BrokerHeartbeatResponse(error_code=codes.STALE_BROKER_EPOCH)
    # The metadata that says why comes a moment later.
    mine = registered(7, "here")._replace(epoch=lifecycle.epoch)
    assert lifecycle.on_answer(stale, 0, {7: mine}) == 250
    with pytest.raises(LifecycleError, match="broker 7 is not registered any more"):
        lifecycle.on_answer(stale, 0, {8: registered(8, "there")})
    with pytest.raises(LifecycleError, match="another process"):
        lifecycle.on_answer(stale, 0, {7: mine._replace(epoch=lifecycle.epoch + 1)})


def test_a_pause_that_had_it_fenced_does_not_register_it_again() -> None:
    lifecycle, controller = new_lifecycle(), Controller()
    controller.is_caught_up = True
    lifecycle.set_ready()
    for _ in range(4):
        step(lifecycle, controller)
    assert lifecycle.state == RUNNING
    controller.is_fenced = True
    step(lifecycle, controller)
    assert not lifecycle.is_fenced
    assert lifecycle.epoch == 100


@given(
    st.lists(
        st.sampled_from(("step", "step", "lose", "refuse", "catch up", "ready", "stop", "let go"))
    )
)
def test_whatever_happens_states_follow_each_other_and_the_end_comes(events: list[str]) -> None:
    order = [NOT_REGISTERED, STARTING, RECOVERY, RUNNING, STOPPING, STOPPED]
    lifecycle, controller = new_lifecycle(), Controller()
    is_ready = False
    for event in events:
        before = lifecycle.state
        match event:
            case "step" if before != STOPPED:
                assert 0 <= step(lifecycle, controller) <= HEARTBEAT_MS
            case "lose":
                assert lifecycle.on_failure("lost", 0) == 250
            case "refuse" if before != NOT_REGISTERED:
                told = messages.BrokerHeartbeatResponse(error_code=codes.NOT_CONTROLLER)
                assert lifecycle.on_answer(told, 0) == 250
                assert lifecycle.state == before
            case "catch up":
                controller.is_caught_up = True
            case "ready":
                is_ready = True
                lifecycle.set_ready()
            case "stop":
                lifecycle.begin_stop()
            case "let go":
                controller.may_shut_down = True
        assert order.index(lifecycle.state) >= order.index(before)
        assert lifecycle.state != RUNNING or is_ready
    lifecycle.begin_stop()
    controller.may_shut_down = True
    if lifecycle.state != STOPPED:
        step(lifecycle, controller)
    assert lifecycle.state == STOPPED


def test_a_failed_directory_that_the_controller_does_not_hear_of_ends_the_broker() -> None:
    lifecycle, controller = new_lifecycle(), Controller()
    step(lifecycle, controller)
    lifecycle.ask(42)
    for now_ms in (0, 1_000_000):
        # No directory has failed: the broker goes on without a controller, for as long as that is.
        lifecycle.on_failure("no answer", now_ms)
    assert lifecycle.ask(42, [b"a" * 16]).offline_log_dirs == [b"a" * 16]
    lifecycle.on_failure("no answer", 2_000_000)
    lifecycle.ask(42, [b"a" * 16])
    lifecycle.on_failure("no answer", 2_000_000 + FAILURE_MS - 1)
    with pytest.raises(LifecycleError, match=r"log\.dir\.failure\.timeout\.ms"):
        lifecycle.on_failure("no answer", 2_000_000 + FAILURE_MS)


def test_a_failed_directory_that_was_told_does_not_end_the_broker() -> None:
    lifecycle, controller = new_lifecycle(), Controller()
    step(lifecycle, controller)
    lifecycle.on_answer(controller.answer(lifecycle.ask(42, [b"a" * 16])), 0)
    lifecycle.ask(42, [b"a" * 16])
    for now_ms in (0, 1_000_000):
        lifecycle.on_failure("no answer", now_ms)
    assert lifecycle.state == STARTING


def test_silence_is_told_once_in_a_while_and_its_end() -> None:
    silence = Silence(0)
    assert silence.note("no answer", 4_999) == ""
    assert "for 5 s (no answer)" in silence.note("no answer", 5_000)
    assert silence.note("no answer", 34_999) == ""
    assert "for 35 s" in silence.note("lost", 35_000)
    assert silence.note("", 36_000) == "a controller answers again, after 36 s"
    assert silence.note("", 38_000) == ""
    assert silence.note("no answer", 42_999) == ""
    assert "for 5 s" in silence.note("no answer", 43_000)

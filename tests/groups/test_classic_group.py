"""One classic group: what its members are told, and when."""

import pytest

from groups.play import Play, subscription
from kafkalite.groups.answers import to_record
from kafkalite.groups.classic import ClassicGroup
from kafkalite.groups.events import GroupLimits
from kafkalite.groups.subscriptions import SUBSCRIBED_NAMES_MAX
from kafkalite.protocol import codes


def test_the_first_member_leads_and_gets_its_assignment_once_it_is_on_disk() -> None:
    play = Play()
    token = play.join(protocols=(("range", b"a"), ("sticky", b"b")))
    assert token not in play.answers
    play.pass_time(0)
    answer = play.joined(token)
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, answer.member_id)
    assert answer.members == ((answer.member_id, None, b"a"),)
    sync = play.sync(answer.member_id, 1, {answer.member_id: b"all", "stranger": b"x"})
    assert sync not in play.answers
    play.stored()
    assert play.synced(sync).assignment == b"all"
    assert play.group.state == "Stable"


def test_a_first_rebalance_waits_for_more_members_as_long_as_they_come() -> None:
    play = Play(delay_ms=3000)
    first = play.join(rebalance_ms=60_000)
    play.pass_time(2000)
    second = play.join(rebalance_ms=60_000)
    play.pass_time(2000)
    assert not play.answers
    play.pass_time(2000)
    assert play.joined(first).generation_id == play.joined(second).generation_id == 1


def test_a_first_rebalance_waits_no_longer_than_the_rebalance_timeout() -> None:
    play = Play(delay_ms=3000)
    first = play.join(rebalance_ms=5000)
    for _ in range(4):
        play.pass_time(1500)
        play.join(rebalance_ms=5000)
    assert play.joined(first).error_code == 0


def test_an_id_is_given_first_where_the_client_can_come_back_with_it() -> None:
    play = Play()
    answer = play.joined(play.join(needs_id=True))
    assert answer.error_code == codes.MEMBER_ID_REQUIRED
    assert not play.group.members
    token = play.join(answer.member_id, needs_id=True)
    play.pass_time(0)
    assert play.joined(token).member_id == answer.member_id


def test_an_id_that_nobody_comes_back_with_lapses_and_holds_up_nobody() -> None:
    play = Play()
    (leader,) = play.stabilise()
    play.join(needs_id=True, session_ms=6000)
    rejoin = play.join(leader)
    play.pass_time(5000)
    play.heartbeat(leader, 1)
    assert rejoin not in play.answers
    play.pass_time(2000)
    assert play.joined(rejoin).generation_id == 2
    assert not play.group.members.pending


def test_a_pending_id_cannot_come_back_as_a_static_member() -> None:
    play = Play()
    member_id = play.joined(play.join(needs_id=True)).member_id
    answer = play.joined(play.join(member_id, instance="i"))
    assert answer.error_code == codes.UNKNOWN_SERVER_ERROR


def test_all_members_vote_and_one_protocol_that_all_know_wins() -> None:
    play = Play()
    play.join(protocols=(("a", b""), ("b", b"")))
    play.join(protocols=(("b", b""), ("a", b""), ("c", b"")))
    token = play.join(protocols=(("c", b""), ("b", b"")))
    play.pass_time(0)
    assert play.joined(token).protocol_name == "b"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [
        ("connect", (("range", b""),)),
        ("consumer", (("other", b""),)),
        ("consumer", ()),
        ("", (("range", b""),)),
    ],
)
def test_who_shares_no_protocol_with_the_group_is_refused(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    play = Play()
    play.stabilise()
    token = play.join(protocol_type=protocol_type, protocols=protocols)
    assert play.joined(token).error_code == codes.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_that_joins_has_the_others_join_again() -> None:
    play = Play()
    leader, follower = play.stabilise(2)
    play.join()
    assert play.heartbeat(leader, 1) == codes.REBALANCE_IN_PROGRESS
    sync = play.sync(follower, 1)
    assert play.synced(sync).error_code == codes.REBALANCE_IN_PROGRESS
    tokens = [play.join(leader), play.join(follower)]
    assert [play.joined(token).generation_id for token in tokens] == [2, 2]


def test_a_rebalance_goes_on_without_those_who_do_not_come() -> None:
    play = Play()
    leader, follower = play.stabilise(2, rebalance_ms=5000, session_ms=30_000)
    token = play.join(follower, protocols=(("range", b"new"),), rebalance_ms=5000)
    play.pass_time(4999)
    assert token not in play.answers
    play.pass_time(1)
    answer = play.joined(token)
    assert (answer.leader, [each[0] for each in answer.members]) == (follower, [follower])
    assert play.heartbeat(leader, 1) == codes.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_taken_out_after_its_session_and_a_heard_one_is_not() -> None:
    play = Play()
    leader, follower = play.stabilise(2, session_ms=6000)
    for _ in range(4):
        play.pass_time(2000)
        assert play.heartbeat(leader, 1) in (codes.NONE, codes.REBALANCE_IN_PROGRESS)
    assert [each.member_id for each in play.group.members] == [leader]
    assert play.heartbeat(follower, 1) == codes.UNKNOWN_MEMBER_ID


def test_a_thousand_heartbeats_leave_one_entry_a_member_in_the_heap() -> None:
    play = Play()
    ids = play.stabilise(3, session_ms=6000)
    for _ in range(1000):
        play.pass_time(10)
        for member_id in ids:
            assert play.heartbeat(member_id, 1) == codes.NONE
    assert len(play.group.members._sessions) <= 6


def test_a_commit_is_a_sign_of_life() -> None:
    play = Play()
    (member_id,) = play.stabilise(session_ms=6000)
    play.pass_time(4000)
    assert play.group.check_commit(member_id, None, 1, play.now_ms) == codes.NONE
    play.pass_time(4000)
    assert play.heartbeat(member_id, 1) == codes.NONE


def test_commits_are_refused_by_generation_member_and_state() -> None:
    play = Play()

    def commit(member_id: str, generation_id: int, instance: str | None = None) -> int:
        return play.group.check_commit(member_id, instance, generation_id, play.now_ms)

    assert commit("", -1) == codes.NONE
    assert commit("x", 3) == codes.UNKNOWN_MEMBER_ID
    token = play.join()
    play.pass_time(0)
    member_id = play.joined(token).member_id
    assert commit(member_id, 1) == codes.REBALANCE_IN_PROGRESS
    play.sync(member_id, 1, {})
    play.stored()
    assert commit(member_id, 1) == codes.NONE
    assert commit(member_id, 2) == codes.ILLEGAL_GENERATION
    assert commit(member_id, -1) == codes.ILLEGAL_GENERATION
    assert commit("", -1) == codes.UNKNOWN_MEMBER_ID
    assert commit(member_id, 1, "i") == codes.UNKNOWN_MEMBER_ID


def test_members_that_never_ask_for_their_assignment_are_taken_out() -> None:
    play = Play()
    first, second = (play.join(rebalance_ms=5000, session_ms=60_000) for _ in range(2))
    play.pass_time(0)
    leader = play.joined(first).leader
    sync = play.sync(leader, 1, {})
    play.stored()
    assert play.synced(sync).error_code == codes.NONE
    play.pass_time(5000)
    assert [each.member_id for each in play.group.members] == [leader]
    assert play.group.state == "PreparingRebalance"
    assert play.joined(second).error_code == codes.NONE


def test_a_member_with_nothing_new_gets_what_it_may_have_missed() -> None:
    play = Play()
    leader, follower = play.stabilise(2)
    answer = play.joined(play.join(follower))
    assert (answer.generation_id, answer.leader, answer.members) == (1, leader, ())
    assert play.group.state == "Stable"


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    play = Play()
    leader, follower = play.stabilise(2)
    token = play.join(leader)
    assert play.group.state == "PreparingRebalance"
    play.join(follower)
    assert play.joined(token).generation_id == 2


def test_a_join_that_is_repeated_is_answered_once_and_the_first_is_not_left_waiting() -> None:
    play = Play()
    leader, follower = play.stabilise(2)
    first = play.join(leader)
    second = play.join(leader)
    assert play.joined(first).error_code == codes.REBALANCE_IN_PROGRESS
    play.join(follower)
    assert play.joined(second).generation_id == 2


def test_the_last_member_leaves_an_empty_group_that_is_written() -> None:
    play = Play()
    (member_id,) = play.stabilise()
    assert play.leave((member_id, None)) == [codes.NONE]
    record = play.stores.pop().record
    assert (record.generation_id, record.protocol_name, record.leader) == (2, None, None)
    assert (record.protocol_type, record.members) == ("consumer", ())
    assert play.group.state == "Empty"


def test_a_member_that_waits_and_is_taken_out_is_answered() -> None:
    play = Play()
    leader, follower = play.stabilise(2)
    token = play.join(follower, protocols=(("range", b"new"),))
    assert play.leave((follower, None)) == [codes.NONE]
    assert play.joined(token).error_code == codes.UNKNOWN_MEMBER_ID
    sync = play.join(leader)
    assert play.joined(sync).generation_id == 2


def test_leaving_is_judged_member_by_member() -> None:
    play = Play()
    token = play.join(instance="i")
    play.pass_time(0)
    member_id = play.joined(token).member_id
    assert play.leave(("x", None), ("", "j"), ("", None), ("x", "i")) == [25, 25, 25, 82]
    assert play.leave(("", "i")) == [codes.NONE]
    assert play.heartbeat(member_id, 1, "i") == codes.UNKNOWN_MEMBER_ID


def test_a_static_member_comes_back_under_a_new_id_without_a_rebalance() -> None:
    play = Play()
    (old,) = play.stabilise(instance="i")
    again = play.join(instance="i")
    assert again not in play.answers
    play.stored()
    answer = play.joined(again)
    assert (answer.generation_id, answer.skip_assignment, answer.error_code) == (1, True, 0)
    assert (answer.leader, answer.members[0][0]) == (answer.member_id, answer.member_id)
    assert play.heartbeat(old, 1, "i") == codes.FENCED_INSTANCE_ID
    assert play.synced(play.sync(answer.member_id, 1, None, "i")).assignment == old.encode()


def test_a_static_member_that_comes_back_has_its_old_session_until_it_is_heard_of() -> None:
    play = Play()
    play.stabilise(instance="i", session_ms=60_000)
    again = play.join(instance="i", session_ms=1000)
    play.stored()
    member_id = play.joined(again).member_id
    play.pass_time(59_000)
    assert play.heartbeat(member_id, 1, "i") == codes.NONE
    play.pass_time(1001)
    assert play.heartbeat(member_id, 1, "i") == codes.UNKNOWN_MEMBER_ID


def test_a_static_member_whose_return_takes_the_disk_longer_than_a_session_has_a_new_one() -> None:
    play = Play()
    play.stabilise(instance="i", session_ms=6000)
    again = play.join(instance="i", session_ms=6000)
    play.pass_time(7000)
    play.stored()
    member_id = play.joined(again).member_id
    play.pass_time(5999)
    assert play.group.state == "Stable"
    play.pass_time(1)
    assert play.group.state == "Empty"
    assert play.heartbeat(member_id, 1, "i") == codes.UNKNOWN_MEMBER_ID


def test_a_return_that_is_not_stored_leaves_the_group_a_protocol_that_all_members_know() -> None:
    """The return was taken back, protocols and all, while somebody had joined whom only the new
    ones suited: nothing was left to choose, and the rebalance ended in a StopIteration."""
    range_only, both, sticky_only = (
        (("range", b""),),
        (("range", b""), ("sticky", b"")),
        (("sticky", b""),),
    )
    play = Play()
    first = play.join(instance="i", protocols=range_only)
    play.pass_time(0)
    static = play.joined(first).member_id
    second = play.join(protocols=both, rebalance_ms=5000)
    play.join(static, instance="i", protocols=range_only, rebalance_ms=5000)
    play.sync(static, 2, {}, "i")
    play.sync(play.joined(second).member_id, 2)
    play.stored()
    assert (play.group.state, play.group.protocol_name) == ("Stable", "range")
    again = play.join(instance="i", protocols=both, rebalance_ms=5000)
    third = play.join(protocols=sticky_only, rebalance_ms=5000)
    play.stored(codes.NOT_COORDINATOR)
    assert play.joined(again).error_code == codes.NOT_COORDINATOR
    assert play.heartbeat(static, 2, "i") == codes.REBALANCE_IN_PROGRESS
    play.pass_time(5000)
    assert play.joined(third).protocol_name == "sticky"


def test_an_old_client_that_comes_back_as_leader_is_not_told_to_assign() -> None:
    play = Play()
    (old,) = play.stabilise(instance="i")
    again = play.join(instance="i", can_skip=False)
    play.stored()
    answer = play.joined(again)
    assert (answer.leader, answer.members, answer.skip_assignment) == (old, (), False)
    assert answer.member_id != old


def test_a_static_member_whose_return_cannot_be_written_keeps_its_old_id() -> None:
    play = Play()
    (old,) = play.stabilise(instance="i")
    again = play.join(instance="i", protocols=(("range", b"new"),))
    play.stored(codes.NOT_COORDINATOR)
    assert play.joined(again).error_code == codes.NOT_COORDINATOR
    assert play.heartbeat(old, 1, "i") == codes.NONE
    assert play.group.members[old].protocols == (("range", b""),)


def test_a_static_member_that_returns_during_a_sync_starts_a_new_rebalance() -> None:
    play = Play()
    first = play.join(instance="i")
    play.pass_time(0)
    old = play.joined(first).member_id
    again = play.join(instance="i")
    assert play.joined(again).generation_id == 2
    assert play.heartbeat(old, 2, "i") == codes.FENCED_INSTANCE_ID


@pytest.mark.parametrize("rebalance_ms", [-(2**31), -1, 0])
def test_a_static_member_alone_that_gives_a_rebalance_no_time_is_waited_for_in_peace(
    rebalance_ms: int,
) -> None:
    """The deadline of the rebalance to which nobody came was always over: the control thread did
    nothing else until the member's session ended, half an hour later if the member liked."""
    play = Play()
    tokens = [play.join(), play.join(instance="i", rebalance_ms=rebalance_ms)]
    play.pass_time(0)
    dynamic, static = (play.joined(each).member_id for each in tokens)
    play.sync(dynamic, 1, {})
    play.stored()
    play.sync(static, 1, {}, "i")
    assert play.leave((dynamic, None)) == [codes.NONE]
    turns = 0
    while (wake_ms := play.group.next_wake_ms()) is not None:
        assert turns < 200
        turns += 1
        play.now_ms = max(play.now_ms, wake_ms)
        play.take(play.group.on_time(play.moment()))
    assert play.group.state == "Empty"


def test_a_static_member_fences_the_one_that_waits_under_its_name() -> None:
    play = Play(delay_ms=1000)
    first = play.join(instance="i")
    second = play.join(instance="i")
    assert play.joined(first).error_code == codes.FENCED_INSTANCE_ID
    play.pass_time(1000)
    assert play.joined(second).error_code == codes.NONE


def test_an_assignment_that_cannot_be_written_is_an_error_and_a_new_rebalance() -> None:
    play = Play()
    token = play.join()
    play.pass_time(0)
    member_id = play.joined(token).member_id
    sync = play.sync(member_id, 1, {member_id: b"x"})
    play.stored(codes.COORDINATOR_NOT_AVAILABLE)
    assert play.synced(sync).error_code == codes.COORDINATOR_NOT_AVAILABLE
    assert play.group.state == "PreparingRebalance"


def test_an_assignment_of_a_generation_that_is_over_is_not_given_out() -> None:
    play = Play()
    token = play.join()
    play.pass_time(0)
    member_id = play.joined(token).member_id
    sync = play.sync(member_id, 1, {member_id: b"x"})
    play.join()
    assert play.synced(sync).error_code == codes.REBALANCE_IN_PROGRESS
    play.stored()
    assert play.group.state == "PreparingRebalance"


def test_an_assignment_that_comes_late_belongs_to_its_generation() -> None:
    play = Play()
    token = play.join()
    play.pass_time(0)
    leader = play.joined(token).member_id
    play.sync(leader, 1, {leader: b"old"})
    play.join()
    play.join(leader)
    assert (play.group.state, play.group.generation_id) == ("CompletingRebalance", 2)
    sync = play.sync(leader, 2, {leader: b"new"})
    play.stored()
    assert sync not in play.answers
    play.stored()
    assert play.synced(sync).assignment == b"new"


def test_a_session_that_ends_while_its_member_waits_begins_anew_with_the_answer() -> None:
    play = Play()
    token = play.join(session_ms=6000)
    play.pass_time(0)
    leader = play.joined(token).member_id
    play.sync(leader, 1, {})
    play.pass_time(7000)
    play.stored()
    assert play.heartbeat(leader, 1) == codes.NONE
    play.pass_time(5000)
    assert play.heartbeat(leader, 1) == codes.NONE
    play.pass_time(7000)
    assert play.heartbeat(leader, 1) == codes.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_for_its_assignment_and_leaves_is_answered() -> None:
    play = Play()
    tokens = [play.join() for _ in range(2)]
    play.pass_time(0)
    leader = play.joined(tokens[0]).leader
    (follower,) = {play.joined(token).member_id for token in tokens} - {leader}
    sync = play.sync(follower, 1)
    assert play.leave((follower, None)) == [codes.NONE]
    assert play.synced(sync).error_code == codes.UNKNOWN_MEMBER_ID


def test_a_group_is_not_larger_than_it_may_be() -> None:
    play = Play(size_max=2)
    ids = play.stabilise(2)
    assert play.joined(play.join()).error_code == codes.GROUP_MAX_SIZE_REACHED
    play.join(ids[0])
    play.join(ids[1])
    assert play.group.generation_id == 2


def test_a_group_that_has_become_too_large_loses_the_last_to_come_back() -> None:
    large = Play()
    ids = large.stabilise(3)
    record = to_record(large.group)
    play = Play(size_max=2)
    play.group = ClassicGroup.from_record("group", record, GroupLimits(2, 0))
    play.take(play.group.on_loaded(play.moment()))
    tokens = [play.join(member_id) for member_id in ids]
    answers = [play.joined(token).error_code for token in tokens]
    assert answers == [codes.NONE, codes.NONE, codes.GROUP_MAX_SIZE_REACHED]


def test_a_group_out_of_the_log_goes_on_where_it_was() -> None:
    play = Play()
    ids = play.stabilise(2, session_ms=6000, protocols=(("range", subscription("t", "u")),))
    record = to_record(play.group)
    again = Play()
    again.group = ClassicGroup.from_record("group", record, GroupLimits(9, 0))
    again.take(again.group.on_loaded(again.moment()))
    assert again.group.state == "Stable"
    assert again.group.subscribed_topics == {"t", "u"}
    assert again.heartbeat(ids[1], 1) == codes.NONE
    assert again.synced(again.sync(ids[1], 1)).assignment == ids[1].encode()
    again.pass_time(3000)
    again.heartbeat(ids[1], 1)
    again.pass_time(3000)
    assert [each.member_id for each in again.group.members] == [ids[1]]


def test_whoever_waits_is_told_to_look_elsewhere_when_the_group_is_unloaded() -> None:
    play = Play()
    leader, _ = play.stabilise(2)
    token = play.join(leader)
    play.take(play.group.unload())
    assert play.joined(token).error_code == codes.NOT_COORDINATOR
    assert play.joined(play.join()).error_code == codes.COORDINATOR_NOT_AVAILABLE


def test_what_a_group_reads_is_unknown_where_a_subscription_cannot_be_read() -> None:
    play = Play()
    play.stabilise(protocols=(("range", b"\0\1\xff"),))
    assert play.group.subscribed_topics is None
    assert play.group.is_subscribed_to("anything")


def test_what_a_group_of_too_many_subscriptions_reads_is_unknown() -> None:
    """A member joined with ten million names in 20 MB of metadata, and all requests of groups
    waited for seconds, at each rebalance anew."""
    play = Play()
    names = (str(number) for number in range(SUBSCRIBED_NAMES_MAX + 1))
    play.stabilise(protocols=(("range", subscription(*names)),))
    assert play.group.subscribed_topics is None
    assert play.group.is_subscribed_to("anything")


def test_more_names_than_there_are_bytes_for_are_not_looked_for() -> None:
    play = Play()
    play.stabilise(protocols=(("range", b"\0\1\x7f\xff\xff\xff"),))
    assert play.group.subscribed_topics is None


def test_alike_subscriptions_of_many_members_count_once() -> None:
    """Each is followed by what differs: the partitions that a member has now."""
    play = Play()
    topics = [str(number) for number in range(SUBSCRIBED_NAMES_MAX - 1)]
    alike = subscription(*topics)
    tokens = [play.join(protocols=(("range", alike + bytes([number])),)) for number in range(5)]
    tokens.append(play.join(protocols=(("range", subscription("last")),)))
    play.pass_time(1)
    assert [play.joined(token).error_code for token in tokens] == [codes.NONE] * 6
    assert play.group.subscribed_topics == {*topics, "last"}

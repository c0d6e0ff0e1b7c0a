"""One classic group under any order of events, held against a plain model and its invariants.

Clients join, come back, sync, leave and fall silent; the disk writes in order, or fails; time goes.
The model keeps what the answers say: which ids are members, who leads which generation, and what
was assigned.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from groups.play import Play
from kafkalite.groups.events import AssignmentStored, JoinAnswer, SyncAnswer
from kafkalite.protocol import codes

PROTOCOLS = (
    (("range", b"1"),),
    (("range", b"2"), ("sticky", b"2")),
    (("sticky", b"3"), ("range", b"3")),
    (("sticky", b"4"),),
)
INSTANCES = (None, None, None, "i", "j")
TIMES_MS = (1, 500, 1000, 3000, 7000, 400_000)
SESSION_MS = 6000
REBALANCE_MS = 9000

# As often as they stand here.
STEPS = [
    *["join_without_id"] * 4,
    *["join_with_id"] * 4,
    *["sync"] * 6,
    *["disk_writes"] * 3,
    *["time_passes"] * 3,
    *["heartbeat"] * 2,
    *["all_settle"] * 3,
    "leave",
    "remove_static_member",
]
step = st.tuples(st.sampled_from(STEPS), st.lists(st.integers(0, 999), min_size=4, max_size=4))


class History:
    """A group, and what its answers have said so far. `drawn` are the numbers of a step."""

    def __init__(self) -> None:
        self.play = Play(size_max=4, delay_ms=1000)
        self.seen: set[int] = set()
        self.ids: list[tuple[str, str | None]] = [("stranger", None)]
        self.asked: dict[int, tuple[str, str | None]] = {}
        self.syncs: dict[int, str] = {}
        self.leaders: dict[int, str] = {}
        self.protocols: dict[int, str | None] = {}
        self.stored_assignments: dict[int, dict[str, bytes]] = {}
        self.generation_id = 0

    def pick(self, number: int) -> tuple[str, str | None]:
        """Mostly a member of now, sometimes anyone who ever was."""
        members: list[tuple[str, str | None]] = [
            (each.member_id, each.group_instance_id) for each in self.play.group.members
        ]
        members += [(each, None) for each in self.play.group.members.pending]
        among = members if members and number % 8 else self.ids
        return among[number // 8 % len(among)]

    # --- events -----------------------------------------------------------------------------------

    def join_without_id(self, drawn: list[int]) -> None:
        instance = INSTANCES[drawn[0] % len(INSTANCES)]
        token = self.play.join(
            "",
            instance=instance,
            protocols=PROTOCOLS[drawn[1] % len(PROTOCOLS)],
            needs_id=drawn[2] % 2 == 0,
            can_skip=drawn[3] % 2 == 0,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        self.asked[token] = ("", instance)

    def join_with_id(self, drawn: list[int]) -> None:
        member_id, instance = self.pick(drawn[0])
        token = self.play.join(
            member_id,
            instance=instance,
            protocols=PROTOCOLS[drawn[1] % len(PROTOCOLS)],
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        self.asked[token] = (member_id, instance)

    def sync(self, drawn: list[int]) -> None:
        generation_id = self.play.group.generation_id - (drawn[1] % 8 == 0)
        self._sync(*self.pick(drawn[0]), generation_id)

    def _sync(self, member_id: str, instance: str | None, generation_id: int) -> None:
        assignments = {
            each.member_id: f"{generation_id} {each.member_id}".encode()
            for each in self.play.group.members
        }
        token = self.play.sync(member_id, generation_id, assignments, instance)
        self.syncs[token] = member_id

    def heartbeat(self, drawn: list[int]) -> None:
        member_id, instance = self.pick(drawn[0])
        code = self.play.heartbeat(member_id, self.play.group.generation_id, instance)
        state = self.play.group.state
        if member_id not in self.play.group.members:
            assert code in (codes.UNKNOWN_MEMBER_ID, codes.FENCED_INSTANCE_ID)
        elif instance is None:
            expected = codes.REBALANCE_IN_PROGRESS if state == "PreparingRebalance" else codes.NONE
            assert code == expected

    def leave(self, drawn: list[int]) -> None:
        member_id, instance = self.pick(drawn[0])
        was_known = member_id in self.play.group.members or member_id in (
            self.play.group.members.pending
        )
        (code,) = self.play.leave((member_id, instance))
        assert (code == codes.NONE) <= was_known
        if code == codes.NONE:
            assert member_id not in self.play.group.members

    def remove_static_member(self, drawn: list[int]) -> None:
        instance = "ij"[drawn[0] % 2]
        self.play.leave(("", instance))
        assert self.play.group.members.static_member_id(instance) is None

    def disk_writes(self, drawn: list[int]) -> None:
        if not self.play.stores:
            return
        error_code = 0 if drawn[0] % 4 else codes.NOT_COORDINATOR
        store = self.play.stores[0]
        before = set(self.play.answers)
        if isinstance(store.what, AssignmentStored) and not error_code:
            self.stored_assignments[store.what.generation_id] = store.what.assignments
        self.play.stored(error_code)
        if error_code:
            new = [self.play.answers[token] for token in set(self.play.answers) - before]
            assert all(each.error_code != codes.NONE or each.generation_id for each in new)

    def time_passes(self, drawn: list[int]) -> None:
        self.play.pass_time(TIMES_MS[drawn[0] % len(TIMES_MS)])

    def all_settle(self, drawn: list[int]) -> None:
        """Everyone does what clients do; the disk may be left to write."""
        group = self.play.group
        for each in list(group.members):
            if group.state == "PreparingRebalance" and each.awaiting_join is None:
                token = self.play.join(
                    each.member_id,
                    instance=each.group_instance_id,
                    protocols=each.protocols,
                    session_ms=SESSION_MS,
                    rebalance_ms=REBALANCE_MS,
                )
                self.asked[token] = (each.member_id, each.group_instance_id)
        group.members.pending.clear()
        self.play.pass_time(1000)
        for each in list(group.members):
            self._sync(each.member_id, each.group_instance_id, group.generation_id)
        while self.play.stores and drawn[0] % 4:
            self.disk_writes([1])

    # --- what must hold ---------------------------------------------------------------------------

    def answers_fit_each_other(self) -> None:
        for token in sorted(set(self.play.answers) - self.seen):
            self.seen.add(token)
            answer = self.play.answers[token]
            if isinstance(answer, JoinAnswer):
                self._see_join(token, answer)
            elif answer.error_code == codes.NONE:
                self._see_sync(token, answer)

    def _see_join(self, token: int, answer: JoinAnswer) -> None:
        member_id, instance = self.asked[token]
        if answer.error_code == codes.MEMBER_ID_REQUIRED:
            assert not member_id
            self.ids.append((answer.member_id, None))
            return
        if answer.error_code != codes.NONE:
            return
        assert not member_id or member_id == answer.member_id
        if not member_id:
            self.ids.append((answer.member_id, instance))
        generation_id = answer.generation_id
        assert self.protocols.setdefault(generation_id, answer.protocol_name) == (
            answer.protocol_name
        )
        if answer.members:
            ids = [each[0] for each in answer.members]
            assert answer.leader == answer.member_id
            assert len(set(ids)) == len(ids) and answer.member_id in ids
            # Static members stay, though nobody who has not joined is counted (Kafka's
            # `acceptJoiningMember`).
            assert sum(each[1] is None for each in answer.members) <= 4
        if instance is None and self.play.group.generation_id == generation_id:
            # Static members come and go under new ids within a generation.
            leader = self.leaders.setdefault(generation_id, answer.leader)
            assert leader == answer.leader or not leader.startswith("member")

    def _see_sync(self, token: int, answer: SyncAnswer) -> None:
        generation_id = self.play.group.generation_id
        stored = self.stored_assignments[generation_id]
        assert answer.assignment in (*stored.values(), b"")
        member_id = self.syncs[token]
        if member_id in stored:
            assert answer.assignment == stored[member_id]

    def the_group_fits_itself(self) -> None:
        group = self.play.group
        members = list(group.members)
        assert group.generation_id >= self.generation_id
        self.generation_id = group.generation_id
        assert len({each.member_id for each in members}) == len(members)
        assert all(each.member_id in group.members for each in members)
        assert (group.members.leader in {each.member_id for each in members}) == bool(members)
        assert group.members.awaiting_join == sum(
            each.awaiting_join is not None for each in members
        )
        counts: dict[str, int] = {}
        for each in members:
            for name, _ in each.protocols:
                counts[name] = counts.get(name, 0) + 1
        assert counts == group.members._protocol_counts
        assert not members or max(counts.values()) == len(members)
        if group.state in ("Stable", "CompletingRebalance"):
            assert members
            assert all(
                any(name == group.protocol_name for name, _ in each.protocols) for each in members
            )
            assert not any(each.awaiting_join is not None for each in members if not each.is_static)
        if group.state == "Empty":
            assert not members
        if group.state != "CompletingRebalance":
            assert all(each.awaiting_sync is None for each in members)
        assert group.pending_sync <= {each.member_id for each in members}

    def nobody_is_forgotten(self) -> None:
        """Whoever can fall silent has a time when it is noticed; a rebalance has an end."""
        group = self.play.group
        wake_ms = group.next_wake_ms()
        for each in group.members:
            is_waiting = each.awaiting_join is not None or each.awaiting_sync is not None
            if not is_waiting or each.is_new:
                assert wake_ms is not None and wake_ms <= each.deadline_ms
        if group.state == "PreparingRebalance":
            assert wake_ms is not None

    def check(self) -> None:
        self.answers_fit_each_other()
        self.the_group_fits_itself()
        self.nobody_is_forgotten()

    def end(self) -> None:
        self.play.take(self.play.group.unload())
        assert set(self.play.answers) == set(range(1, self.play.asked + 1)), "a request is lost"


@settings(deadline=None)
@given(st.lists(step, min_size=20, max_size=80))
def test_a_group_keeps_its_word_whatever_happens(steps: list[tuple[str, list[int]]]) -> None:
    history = History()
    for name, drawn in steps:
        getattr(history, name)(drawn)
        history.check()
    history.end()

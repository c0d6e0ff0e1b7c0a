"""Plays a sequence of `random_groups.py` against both brokers, turn by turn, and compares what is
seen after each: the answers that have come, the requests that still wait, and the group as
DescribeGroups shows it.

Neither broker says when it has done all that a request leads to. So after each turn both are looked
at until two looks in a row are the same; if the brokers are not yet the same then, both are looked
at for a while longer.

Ids of members are shown as the name of their client, with a `'` for each id it had before. Who is
to lead next, when the leader has gone, hangs in Kafka on the hash of random ids: where the brokers
elect different members, what follows cannot be compared, and the sequence ends there.
"""

import select
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from differential.cases.groups import ASSIGNMENT, SUBSCRIPTION
from differential.random_groups import (
    BRIEF_MS,
    FALLS_SILENT,
    GOES_ON,
    Act,
    Client,
    Turn,
)
from differential.runner import CLOSED, UUID_TEXT, Runner, compare
from differential.script import Case, id_of

QUIET_S = 0.012
AGREE_S = 10.0
ENDS_S = 30.0
WAITING = ("JoinGroup", "SyncGroup")
REBALANCING = ("PreparingRebalance", "CompletingRebalance")

UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 25, 27, 79
ILLEGAL_GENERATION, FENCED_INSTANCE_ID = 22, 82


@dataclass
class Member:
    """What a client knows of itself."""

    id: str = ""
    generation: int = -1
    protocol: str = ""
    next: str = "JoinGroup"
    assigns_to: list[str] = field(default_factory=list)
    """The ids of all members, if it leads."""
    ids: int = 0
    latest: str = ""
    """The last of its requests that wait for others."""
    is_invited: bool = False
    """Has its id, and has not joined with it."""


Found = Sequence[tuple[str, Any, Any]]
"""(path, ours, theirs)"""


@dataclass(frozen=True)
class Difference:
    """After which turn the brokers differ, and in what."""

    turn: int
    found: Found


class Player:
    """One broker, and the members of a group of it."""

    def __init__(
        self, bootstrap_servers: str, clients: Mapping[str, Client], group: str, topic: str
    ) -> None:
        self.leader = ""
        self.elected: set[str] = set()
        self._runner = GroupRunner(bootstrap_servers)
        self._clients = clients
        self._members = {name: Member() for name in clients}
        self._group, self._topic = group, topic
        self.waiting: dict[str, tuple[Case, Act, int]] = {}
        self.answers: dict[str, Any] = {}
        self._told: dict[str, tuple[Case, Any]] = {}
        self._forgotten: dict[str, tuple[Case, Act, int]] = {}
        self._disregarded: dict[str, tuple[Case, Any]] = {}
        self._looks = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def take(self, number: int, turn: Turn) -> None:
        """Sends what the members do. Before that it keeps those alive that do nothing: who hears
        first, hears less of what the others do."""
        self._told = {}
        self.elected = set()
        if self._keep_alive(number, turn):
            self.settle()
        acts = turn.acts if self._commute(turn.acts) else turn.acts[:1]
        for act in acts:
            if act.what != FALLS_SILENT:
                self._act(f"{number:02} {act.who} {act.what}", act)

    def _keep_alive(self, number: int, turn: Turn) -> bool:
        """Lets a member of a short session be heard of; false where there is none."""
        first = turn.acts[0].who if turn.acts else ""
        idle = [
            (name, member)
            for name, member in self._members.items()
            if self._clients[name].session_ms == BRIEF_MS and member.id and name != first
        ]
        for name, member in idle:
            what = GOES_ON if member.is_invited else "Heartbeat"
            self._act(f"{number:02} {name} stays", Act(name, what))
        return bool(idle)

    def _give_back(self, name: str, who: str, member_id: str) -> None:
        """Leaves with an id that nobody will join with: until it lapses, unseen, it holds up
        rebalances."""
        one = {"member_id": member_id, "group_instance_id": None, "reason": None}
        is_old = self._clients[who].versions["LeaveGroup"] < 3
        wrong = {"member_id": member_id} if is_old else {"members": [one]}
        self._act(f"{name}: its id is given back", Act(who, "LeaveGroup", wrong))

    def _commute(self, acts: Sequence[Act]) -> bool:
        """Whether it is the same in which order the broker takes them: a rebalance waits for every
        id that was given out, an assignment for its leader."""
        members = [self._members[act.who] for act in acts]
        apis = {
            "Heartbeat" if self._has_waiting(act.who) else self._members[act.who].next
            for act in acts
        }
        return len(apis) == 1 and all(member.id for member in members)

    def settle(self) -> dict[str, Any]:
        """What is seen once two looks in a row have seen the same."""
        before = None
        while True:
            seen = self._look()
            is_prompt = all(case.api in WAITING for case, _, _ in self.waiting.values())
            if seen == before and is_prompt:
                return seen
            before = seen

    def wait(self, turn: Turn) -> None:
        """Until what ends by time has ended: the session of a silent member, a rebalance."""
        for act in turn.acts:
            member = self._members[act.who]
            if act.what == FALLS_SILENT and member.id and not self._has_waiting(act.who):
                self._until(lambda group, lost=member.id: lost not in _ids(group))
        if turn.waits:
            self._until(lambda group: group.group_state not in REBALANCING)

    def disregard(self, name: str) -> Any:
        """Takes an answer of this turn for none; returns what its member was told."""
        self._disregarded[name] = self._told.pop(name)
        return self._disregarded[name][1]

    def regard(self, name: str) -> None:
        """Takes it for one after all, if it was disregarded: the other broker was only late."""
        if name in self._disregarded:
            self._told[name] = self._disregarded.pop(name)

    def forget(self, name: str, answer: Any) -> None:
        """Takes a request that waits for one that will not be answered. Its member goes on as if
        it had been told this. If an answer comes after all, it is seen."""
        case, act, correlation_id = self.waiting.pop(name)
        self._forgotten[name] = case, act, correlation_id
        self._learn(case, act, answer)

    def _until(self, is_over: Any) -> None:
        deadline = time.monotonic() + ENDS_S
        while not is_over(self._describe()) and time.monotonic() < deadline:
            self._collect(QUIET_S)  # polls the group: nobody tells an observer

    # --- requests ---------------------------------------------------------------------------------

    def _act(self, name: str, act: Act) -> None:
        client, member = self._clients[act.who], self._members[act.who]
        api = act.what
        if api == GOES_ON:
            api = "Heartbeat" if self._has_waiting(act.who) else member.next
            if api == "Heartbeat" and not member.id:
                return
            act = Act(act.who, api)
        fields = getattr(self, f"_{api.lower()}")(client, member, dict(act.wrong))
        busy = {case.on for case, _, _ in (self.waiting | self._forgotten).values()}
        free = next(f"{act.who}{n}" for n in range(99) if f"{act.who}{n}" not in busy)
        case = Case(name, api, client.versions[api], fields, on=free)
        if api == "ListGroups":
            case = replace(case, only=self._group)
        if api in WAITING and not act.wrong:
            member.latest = name
        self.waiting[name] = (case, act, self._runner.send(case))

    def _has_waiting(self, who: str) -> bool:
        return any(act.who == who and case.api in WAITING for case, act, _ in self.waiting.values())

    def _joingroup(self, client: Client, member: Member, wrong: dict[str, Any]) -> dict[str, Any]:
        offered = wrong.pop("protocols", client.protocols)
        metadata = wrong.pop("metadata", SUBSCRIPTION)
        return {
            "group_id": self._group,
            "session_timeout_ms": client.session_ms,
            "rebalance_timeout_ms": client.rebalance_ms,
            "member_id": member.id,
            "group_instance_id": client.instance,
            "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": metadata} for name in offered],
            "reason": None,
            **wrong,
        }

    def _syncgroup(self, client: Client, member: Member, wrong: dict[str, Any]) -> dict[str, Any]:
        to = wrong.pop("assignments", None)
        ids = {"nobody's": ["nobody"], "all": [each.id for each in self._members.values()]}
        return {
            "group_id": self._group,
            "generation_id": member.generation,
            "member_id": member.id,
            "group_instance_id": client.instance,
            "protocol_type": "consumer",
            "protocol_name": member.protocol,
            "assignments": [
                {"member_id": each, "assignment": ASSIGNMENT}
                for each in (ids[to] if to else member.assigns_to)
            ],
            **wrong,
        }

    def _heartbeat(self, client: Client, member: Member, wrong: dict[str, Any]) -> dict[str, Any]:
        return {
            "group_id": self._group,
            "generation_id": member.generation,
            "member_id": member.id,
            "group_instance_id": client.instance,
            **wrong,
        }

    def _leavegroup(self, client: Client, member: Member, wrong: dict[str, Any]) -> dict[str, Any]:
        one = {"member_id": member.id, "group_instance_id": client.instance, "reason": None}
        if client.versions["LeaveGroup"] < 3:
            return {"group_id": self._group, "member_id": wrong.get("member_id", member.id)}
        if "member_id" in wrong:
            wrong = {"members": [{**one, **wrong}]}
        return {"group_id": self._group, "members": [one], **wrong}

    def _offsetcommit(self, client: Client, member: Member, wrong: dict[str, Any]) -> Any:
        partition = {
            "partition_index": wrong.pop("partition_index", 0),
            "committed_offset": 5,
            "committed_leader_epoch": -1,
            "committed_metadata": wrong.pop("committed_metadata", ""),
        }
        return {
            "group_id": self._group,
            "generation_id_or_member_epoch": member.generation,
            "member_id": member.id,
            "group_instance_id": client.instance,
            "retention_time_ms": -1,
            "topics": [
                {"name": self._topic, "topic_id": id_of(self._topic), "partitions": [partition]}
            ],
            **wrong,
        }

    def _offsetfetch(self, client: Client, _member: Member, wrong: dict[str, Any]) -> Any:
        version = client.versions["OffsetFetch"]
        index = wrong.get("partition_index", 0)
        topic = {"name": self._topic, "partition_indexes": [0, index]}
        if version >= 8:
            topic["topic_id"] = id_of(self._topic)
        topics = None if "topics" in wrong and version >= 2 else [topic]
        group = {"group_id": self._group, "topics": topics}
        return group if version < 8 else {"groups": [group]}

    def _offsetdelete(self, _client: Client, _member: Member, wrong: dict[str, Any]) -> Any:
        partition = {"partition_index": wrong.get("partition_index", 0)}
        name = wrong.get("topic", self._topic)
        return {"group_id": self._group, "topics": [{"name": name, "partitions": [partition]}]}

    def _deletegroups(self, _client: Client, _member: Member, wrong: dict[str, Any]) -> Any:
        more = {"twice": [self._group], "with an unknown one": [f"{self._group}-unknown"]}
        return {"groups_names": [self._group, *more.get(wrong.get("groups_names", ""), [])]}

    def _describegroups(self, _client: Client, _member: Member, wrong: dict[str, Any]) -> Any:
        return {"groups": [self._group + "-unknown" if wrong else self._group]}

    def _listgroups(self, _client: Client, _member: Member, wrong: dict[str, Any]) -> Any:
        return {"states_filter": [], "types_filter": [], **wrong}

    # --- what is seen -----------------------------------------------------------------------------

    def _look(self) -> dict[str, Any]:
        self._collect(QUIET_S)
        # Anew each time: an id has its name once its member's answer is there, too.
        self.answers = {
            name: self._runner.shared(*told) for name, told in sorted(self._told.items())
        }
        group = self._describe()
        members = [self._shown(each) for each in group.members]
        return {
            "answers": self.answers,
            "waiting": sorted(self.waiting),
            # A group that only an id was given out for is there for Kafka's DescribeGroups when
            # something else has been written to its partition.
            "state": "Empty" if group.group_state == "Dead" else group.group_state,
            "type": group.protocol_type,
            "protocol": group.protocol_data,
            "members": sorted(members, key=repr),
        }

    def _describe(self) -> Any:
        self._looks += 1
        case = Case(f"look {self._looks}", "DescribeGroups", 5, {"groups": [self._group]}, "look")
        return self._runner.message(case, self._runner.send(case)).groups[0]

    def _shown(self, member: Any) -> dict[str, Any]:
        return {
            "id": self._runner.named(member.member_id),
            "instance": member.group_instance_id,
            "client": member.client_id,
            "metadata": member.member_metadata,
            "assignment": member.member_assignment,
        }

    def _collect(self, patience_s: float) -> None:
        """Takes the answers that come within the time."""
        sockets = {
            self._runner.connection(case.on).socket: name
            for name, (case, _, _) in (self.waiting | self._forgotten).items()
        }
        ready, _, _ = select.select(list(sockets), [], [], patience_s)
        # In the order of the names, which gives each id the same words at both brokers.
        for name in sorted(sockets[each] for each in ready):
            where = self.waiting if name in self.waiting else self._forgotten
            case, act, correlation_id = where.pop(name)
            answer = self._runner.message(case, correlation_id)
            assert answer != CLOSED, f"the broker closes the connection of {name}"
            self._learn(case, act, answer)
            self._told[name] = case, answer

    def _learn(self, case: Case, act: Act, answer: Any) -> None:
        member = self._members[act.who]
        code = answer.error_code if hasattr(answer, "error_code") else 0
        if case.api == "OffsetCommit":
            code = answer.topics[0].partitions[0].error_code if answer.topics else 0
        is_old = case.api in WAITING and case.name != member.latest
        if code and (act.wrong or is_old):
            if code == MEMBER_ID_REQUIRED and self._clients[act.who].session_ms == BRIEF_MS:
                self._give_back(case.name, act.who, answer.member_id)
            return
        if case.api == "JoinGroup" and code in (0, MEMBER_ID_REQUIRED):
            self._know_id(act.who, answer.member_id)
            member.is_invited = bool(code)
            member.next = "JoinGroup" if code else "SyncGroup"
            if code == 0:
                member.generation, member.protocol = answer.generation_id, answer.protocol_name
                member.assigns_to = [each.member_id for each in answer.members]
                self._runner.keep(f"generation {act.who}", answer.generation_id)
                self._see_leader(answer.leader)
        elif case.api == "SyncGroup" and code == 0:
            member.next = "Heartbeat"
        elif code in (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION):
            member.next = "JoinGroup"
        elif code in (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID) or (
            case.api == "LeaveGroup" and not act.wrong
        ):
            member.id, member.next = "", "JoinGroup"

    def _know_id(self, who: str, member_id: str) -> None:
        member = self._members[who]
        if member_id != member.id:
            member.id = member_id
            self._runner.keep(f"member {who}", member_id)
            if self._runner.name(member_id, who + "'" * member.ids):
                member.ids += 1

    def _see_leader(self, leader: str) -> None:
        if leader != self.leader:
            self.leader = leader
            self.elected.add(self._runner.named(leader))


class GroupRunner(Runner):
    """Shows ids of members by names."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self._names: dict[str, str] = {}

    def name(self, member_id: str, name: str) -> bool:
        """Whether the id was without a name until now."""
        if not member_id or member_id in self._names:
            return False
        self._names[member_id] = f"<{name}>"
        return True

    def named(self, text: str) -> str:
        """The text with names in place of ids."""
        for member_id, name in self._names.items():
            text = text.replace(member_id, name)
        return UUID_TEXT.sub("<somebody>", text)

    def _text(self, text: str, place: str) -> str:
        return super()._text(self.named(text), place)


def _ids(group: Any) -> list[str]:
    return [each.member_id for each in group.members]


def _forget(ours: Player, theirs: Player) -> None:
    """Kafka never answers a JoinGroup or SyncGroup that its member repeats, nor the SyncGroup of a
    member that is taken out; kafkalite does, since the request holds its connection."""
    for name in [name for name in theirs.waiting if name in ours.answers]:
        code = ours.answers[name]["error_code"]
        if code in (REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID):
            theirs.forget(name, ours.disregard(name))


def _settled(ours: Player, theirs: Player) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is seen of both. What Kafka forgets is so before anything is waited for: a member learns
    of it before the answer to the request that took its place."""
    seen = ours.settle(), theirs.settle()
    if seen[0] == seen[1]:
        return seen
    for name in theirs.answers:
        ours.regard(name)
    _forget(ours, theirs)
    return ours.settle(), theirs.settle()


def first_difference(ours: Player, theirs: Player, turns: Sequence[Turn]) -> Difference | None:
    """Plays the turns until the brokers differ."""
    for number, turn in enumerate(turns):
        ours.take(number, turn)
        theirs.take(number, turn)
        seen = _settled(ours, theirs)
        if turn.waits or any(act.what == FALLS_SILENT for act in turn.acts):
            ours.wait(turn)
            theirs.wait(turn)
            seen = _settled(ours, theirs)
        if ours.elected and theirs.elected and ours.elected != theirs.elected:
            return None
        deadline = time.monotonic() + AGREE_S
        while seen[0] != seen[1] and time.monotonic() < deadline:
            seen = _settled(ours, theirs)
        if seen[0] != seen[1]:
            return Difference(number, compare(*seen))
    return None

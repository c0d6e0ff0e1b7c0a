"""Groups of several members at random: what each member does next, and what it does wrongly.

A story is a list of turns; in a turn one member acts, or several at once. Mostly a member goes
on as a client would: joins, joins again with the id it was given, syncs, sends heartbeats, joins
when a rebalance is on. Else it does something else, or the same with a wrong field. The words of a
turn are the same for every broker; `group_player.py` makes requests of them by what the broker has
answered so far.

Sessions and rebalances end by time in two kinds of stories, since one that waits for the one
would run into the other: in a `brief` one the last member's session is short, and is kept alive
until the member falls silent; in a `hasty` one a rebalance is soon over for those that do not join,
and is waited for every few turns, before it can end amid one.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from differential.runner import TABLE
from differential.script import Kept

PATIENT_MS = 60_000
BRIEF_MS = 1_500
HASTY_MS = 1_200
TURNS_OF_A_REBALANCE = 5

# Each member speaks one version of each key, as a client does.
KEYS = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch")
OTHERS = ("DescribeGroups", "ListGroups", "DeleteGroups", "OffsetDelete")
FIRST_WITH_INSTANCE = {"JoinGroup": 5, "SyncGroup": 3, "Heartbeat": 3, "OffsetCommit": 7}
FIRST_WITH_INSTANCE["LeaveGroup"] = 3

KINDS = ("patient", "patient", "brief", "hasty")

GOES_ON = "goes on"
FALLS_SILENT = "falls silent"


@dataclass(frozen=True)
class Client:
    """A member as it is for a whole sequence."""

    name: str
    instance: str | None
    versions: Mapping[str, int]
    protocols: tuple[str, ...]
    session_ms: int
    rebalance_ms: int


@dataclass(frozen=True)
class Act:
    """What a member does: goes on, falls silent, or sends a request of that key, in which `wrong`
    stands in place of the fields that it would send."""

    who: str
    what: str
    wrong: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """What is done at once. `waits`: afterwards, for the rebalance to be over."""

    acts: tuple[Act, ...]
    waits: bool = False


@dataclass(frozen=True)
class Story:
    """Members, and what they do."""

    clients: Mapping[str, Client]
    turns: Sequence[Turn]


def id_of_member(who: str) -> Kept:
    return Kept(f"member {who}", otherwise="nobody")


def generation_of(who: str, plus: int = 0) -> Kept:
    return Kept(f"generation {who}", plus, otherwise=-1)


def story(seed: int, length: int, kinds: Sequence[str] = KINDS) -> Story:
    """The same for the same arguments. A `brief` one needs brokers that allow such sessions."""
    source = random.Random(seed)
    kind = source.choice(kinds)
    names = [str(number + 1) for number in range(source.choice((1, 2, 2, 3, 3, 4)))]
    clients = {name: _client(source, name, kind, name == names[-1]) for name in names}
    draw = _Draw(source, clients, kind)
    return Story(clients, [draw.turn() for _ in range(length)])


def _client(source: random.Random, name: str, kind: str, is_last: bool) -> Client:
    instance = source.choice((None, None, f"instance-{name}", "instance-1"))
    versions = {}
    for key in (*KEYS, *OTHERS):
        known = TABLE[f"{key}Request"].versions
        first = FIRST_WITH_INSTANCE.get(key, known.first) if instance else known.first
        versions[key] = source.randint(max(first, known.first), known.last)
    if kind == "hasty" or versions["JoinGroup"] == 0:  # 0 has its session for a rebalance time-out
        versions["JoinGroup"] = max(versions["JoinGroup"], 1)
    return Client(
        name,
        instance,
        versions,
        source.choice((("range",), ("range", "sticky"), ("sticky", "range"), ("range", "own"))),
        BRIEF_MS if kind == "brief" and is_last else PATIENT_MS,
        HASTY_MS if kind == "hasty" else PATIENT_MS,
    )


class _Draw:
    def __init__(self, source: random.Random, clients: Mapping[str, Client], kind: str) -> None:
        self._source = source
        self._clients = clients
        self._names = list(clients)
        self._kind = kind
        self._turns_since_wait = 0

    def turn(self) -> Turn:
        source = self._source
        waits = self._waits()
        if len(self._names) > 1 and source.random() < 0.2:
            several = source.sample(self._names, source.randint(2, len(self._names)))
            return Turn(tuple(Act(who, GOES_ON) for who in several), waits)
        who = source.choice(self._names)
        if self._kind == "brief" and who == self._names[-1] and source.random() < 0.15:
            return Turn((Act(who, FALLS_SILENT),))
        if source.random() < 0.65:
            return Turn((Act(who, GOES_ON),), waits)
        return Turn((self._other(who),), waits)

    def _waits(self) -> bool:
        if self._kind != "hasty":
            return False
        self._turns_since_wait += 1
        waits = self._source.random() < 0.4 or self._turns_since_wait == TURNS_OF_A_REBALANCE
        if waits:
            self._turns_since_wait = 0
        return waits

    def _other(self, who: str) -> Act:
        """What a client would not do now, or not so."""
        source = self._source
        what = source.choice(
            (
                *("JoinGroup", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "LeaveGroup"),
                *("OffsetCommit", "OffsetCommit", "OffsetFetch"),
                *OTHERS,
            )
        )
        if source.random() < 0.4:
            return Act(who, what)
        return Act(who, what, self._wrong(who, what))

    def _wrong(self, who: str, what: str) -> Mapping[str, Any]:
        """One field with a value that it should not have."""
        source = self._source
        other = source.choice(self._names)
        member = source.choice(("", "nobody", id_of_member(other)))
        generation = source.choice((generation_of(who, -1), generation_of(who, 1), -1, 0))
        instance = source.choice((None, "instance-1", f"instance-{other}", "no-instance"))
        offered = source.choice((("sticky",), ("range",), ("own", "range"), ("none",), ()))
        fields: Mapping[str, Sequence[tuple[str, Any]]] = {
            "JoinGroup": (
                ("member_id", member),
                ("protocols", offered),
                ("metadata", b"\0\0\0\0\0\0\xff\xff\xff\xff"),
                ("protocol_type", source.choice(("connect", ""))),
                ("group_instance_id", instance),
                ("session_timeout_ms", source.choice((1, 2_000_000_000))),
            ),
            "SyncGroup": (
                ("member_id", member),
                ("generation_id", generation),
                ("protocol_type", "connect"),
                ("protocol_name", source.choice(("sticky", "range", "none"))),
                ("group_instance_id", instance),
                ("assignments", source.choice(("nobody's", "all"))),
            ),
            "Heartbeat": (
                ("member_id", member),
                ("generation_id", generation),
                ("group_instance_id", instance),
            ),
            "LeaveGroup": (
                ("member_id", member),
                ("members", self._leaving()),
                ("members", self._leaving()),
            ),
            "OffsetCommit": (
                ("member_id", member),
                ("generation_id_or_member_epoch", generation),
                ("group_instance_id", instance),
                ("partition_index", source.choice((0, 1, 9, -1))),
                ("committed_metadata", source.choice((None, "word"))),
            ),
            "OffsetFetch": (("topics", None), ("partition_index", source.choice((1, 9, -1)))),
            "OffsetDelete": (("topic", "unknown"), ("partition_index", source.choice((0, 9)))),
            "DeleteGroups": (("groups_names", source.choice(("twice", "with an unknown one"))),),
            "ListGroups": (
                ("states_filter", [source.choice(("Stable", "Empty", "PreparingRebalance"))]),
            ),
            "DescribeGroups": (("groups", "unknown"),),
        }
        name, value = source.choice(fields[what])
        return {name: value}

    def _leaving(self) -> list[dict[str, Any]]:
        """Entries of LeaveGroup: of others too, by id or instance, some of them twice."""
        source = self._source
        entries = []
        for _ in range(source.randint(0, 3)):
            who = source.choice(self._names)
            instance = self._clients[who].instance
            entries.append(
                {
                    "member_id": source.choice(
                        ("", id_of_member(who), id_of_member(who), "nobody")
                    ),
                    "group_instance_id": source.choice((instance, instance, None, "no-instance")),
                }
            )
        return entries

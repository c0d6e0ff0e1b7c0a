"""Consumer groups of the classic protocol: members, offsets, what is shown of them."""

from dataclasses import replace

from differential.script import NO_SUCH_ID, Case, Kept, ask, finished, id_of, started

# What a consumer offers: version 0 of its subscription, to d-plain.
SUBSCRIPTION = bytes.fromhex("0000 00000001 0007") + b"d-plain" + bytes.fromhex("ffffffff")
ASSIGNMENT = (
    bytes.fromhex("0000 00000001 0007") + b"d-plain" + bytes.fromhex("00000001 00000000 ffffffff")
)


def member(name: str) -> Kept:
    return Kept(f"member {name}", otherwise="nobody")


def join(
    name: str,
    group: str,
    who: object = "",
    *,
    version: int = 9,
    protocols: tuple[str, ...] = ("range",),
    **options: object,
) -> Case:
    fields = {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": who,
        "protocol_type": "consumer",
        "protocols": [{"name": each, "metadata": SUBSCRIPTION} for each in protocols],
        **options,
    }
    return Case(f"join: {name}", "JoinGroup", version, fields)


def sync(
    name: str,
    group: str,
    who: object,
    generation: int,
    *assigned: object,
    version: int = 5,
    **options: object,
) -> Case:
    return ask(
        f"sync: {name}",
        "SyncGroup",
        version,
        group_id=group,
        generation_id=generation,
        member_id=who,
        **{"protocol_type": "consumer", "protocol_name": "range", **options},
        assignments=[{"member_id": each, "assignment": ASSIGNMENT} for each in assigned],
    )


def beat(
    name: str, group: str, who: object, generation: int, version: int = 4, **options: object
) -> Case:
    return ask(
        f"heartbeat: {name}",
        "Heartbeat",
        version,
        group_id=group,
        generation_id=generation,
        member_id=who,
        **options,
    )


def leave(name: str, group: str, *members: dict[str, object], version: int = 5) -> Case:
    return ask(f"leave: {name}", "LeaveGroup", version, group_id=group, members=list(members))


def commit(
    name: str,
    group: str,
    offset: int,
    *,
    version: int = 9,
    topic: str = "d-plain",
    partition: int = 0,
    who: object = "",
    generation: int = -1,
    metadata: str | None = "",
    epoch: int = -1,
    topic_id: object = None,
    instance: str | None = None,
) -> Case:
    one = {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": epoch,
        "committed_metadata": metadata,
    }
    return ask(
        f"commit: {name}",
        "OffsetCommit",
        version,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=who,
        group_instance_id=instance,
        topics=[{"name": topic, "topic_id": topic_id or id_of(topic), "partitions": [one]}],
    )


def offsets(
    name: str,
    group: str,
    *,
    version: int = 9,
    topic: str = "d-plain",
    partitions: tuple[int, ...] = (0, 1),
    whole: bool = False,
    topic_id: object = None,
    **options: object,
) -> Case:
    """OffsetFetch of a topic, or of all topics of the group."""
    one = {"name": topic, "partition_indexes": list(partitions)}
    if version < 8:
        return ask(
            f"offsets: {name}",
            "OffsetFetch",
            version,
            group_id=group,
            topics=None if whole else [one],
            **options,
        )
    one["topic_id"] = topic_id or id_of(topic)
    groups = [{"group_id": group, "topics": None if whole else [one], **options}]
    return ask(f"offsets: {name}", "OffsetFetch", version, groups=groups)


COORDINATORS = [
    Case(
        "the coordinator is there",
        "FindCoordinator",
        4,
        {"key_type": 0, "coordinator_keys": ["d-g"]},
        until={"coordinators.0.error_code": 0},
    ),
    *[
        ask(f"coordinator of a group v{v}", "FindCoordinator", v, key="d-g", key_type=0)
        for v in range(4)
    ],
    *[
        ask(
            f"coordinators of groups v{v}",
            "FindCoordinator",
            v,
            key_type=0,
            coordinator_keys=["d-g", "d-h"],
        )
        for v in (4, 5, 6)
    ],
    ask("coordinator of the empty group", "FindCoordinator", 4, key_type=0, coordinator_keys=[""]),
    ask("coordinator of no group", "FindCoordinator", 4, key_type=0, coordinator_keys=[]),
    ask(
        "coordinator of an unknown kind", "FindCoordinator", 4, key_type=9, coordinator_keys=["d-g"]
    ),
    ask("coordinator of an unknown kind v2", "FindCoordinator", 2, key_type=9, key="d-g"),
    ask(
        "coordinator of a share group v5",
        "FindCoordinator",
        5,
        key_type=2,
        coordinator_keys=["d-g"],
    ),
    ask(
        "coordinator of a share group v6",
        "FindCoordinator",
        6,
        key_type=2,
        coordinator_keys=["d-g"],
    ),
    Case(
        "a loading coordinator is loaded",
        "Heartbeat",
        4,
        {"group_id": "d-none", "generation_id": 1, "member_id": "x"},
        until={"error_code": 25},
    ),
]

MEMBERS = [
    join("no group", "", version=4),
    join("a group of spaces", " ", version=4),
    join("a session too short", "d-none", version=4, session_timeout_ms=10),
    join("a session too long", "d-none", version=4, session_timeout_ms=100_000_000),
    join("an unknown member", "d-none", "somebody"),
    join("no protocols", "d-none", version=3, protocols=()),
    join("no protocol type", "d-none", version=3, protocol_type=""),
    *[
        replace(
            join(f"alone v{v}", f"d-alone-{v}", version=v), keep={f"member alone-{v}": "member_id"}
        )
        for v in range(4)
    ],
    *[
        case
        for v in range(4, 10)
        for case in (
            replace(
                join(f"an id first v{v}", f"d-alone-{v}", version=v),
                keep={f"member alone-{v}": "member_id"},
            ),
            join(f"alone v{v}", f"d-alone-{v}", member(f"alone-{v}"), version=v),
        )
    ],
    *[
        sync(
            f"alone v{v}", f"d-alone-{v}", member(f"alone-{v}"), 1, member(f"alone-{v}"), version=v
        )
        for v in range(6)
    ],
    *[beat(f"alone v{v}", f"d-alone-{v}", member(f"alone-{v}"), 1, v) for v in range(5)],
    join("an unknown member of a group that is there", "d-alone-4", "somebody"),
    join("another protocol type", "d-alone-4", version=3, protocol_type="connect"),
    join("no protocol in common", "d-alone-4", version=3, protocols=("sticky",)),
    sync("an unknown member", "d-alone-4", "somebody", 1),
    sync("a generation to come", "d-alone-4", member("alone-4"), 2),
    sync("a generation gone by", "d-alone-4", member("alone-4"), 0),
    sync("another protocol", "d-alone-4", member("alone-4"), 1, protocol_name="sticky"),
    sync("another protocol type", "d-alone-4", member("alone-4"), 1, protocol_type="connect"),
    sync("again, without assignments", "d-alone-4", member("alone-4"), 1),
    sync("no group", "", member("alone-4"), 1),
    sync("an unknown group", "d-none", member("alone-4"), 1),
    beat("an unknown group", "d-none", "somebody", 1),
    beat("no group", "", "somebody", 1),
    beat("an unknown member", "d-alone-4", "somebody", 1),
    beat("no member", "d-alone-4", "", 1),
    beat("a generation to come", "d-alone-4", member("alone-4"), 2),
    beat("an unknown instance", "d-alone-4", member("alone-4"), 1, group_instance_id="i"),
    # Two members: the second one's join waits for the first to join again.
    replace(join("the second asks for an id", "d-alone-9"), keep={"member second": "member_id"}),
    started(replace(join("the second", "d-alone-9", member("second")), on="second")),
    replace(
        beat("the first hears of the second", "d-alone-9", member("alone-9"), 1),
        until={"error_code": 27},
    ),
    commit("during a rebalance", "d-alone-9", 3, who=member("alone-9"), generation=1),
    sync("during a rebalance", "d-alone-9", member("alone-9"), 1),
    join("the first again", "d-alone-9", member("alone-9")),
    finished(replace(join("the second", "d-alone-9", member("second")), on="second")),
    beat("the first waits for assignments", "d-alone-9", member("alone-9"), 2),
    commit("while assignments are awaited", "d-alone-9", 3, who=member("alone-9"), generation=2),
    started(replace(sync("the second", "d-alone-9", member("second"), 2), on="second")),
    sync(
        "the first with assignments",
        "d-alone-9",
        member("alone-9"),
        2,
        member("alone-9"),
        member("second"),
    ),
    finished(replace(sync("the second", "d-alone-9", member("second"), 2), on="second")),
    beat("the second", "d-alone-9", member("second"), 2),
    beat("the second with an old generation", "d-alone-9", member("second"), 1),
    ask("describe two members", "DescribeGroups", 5, groups=["d-alone-9"]),
    leave("the second", "d-alone-9", {"member_id": member("second"), "reason": "done"}),
    replace(
        beat("the first hears of the leave", "d-alone-9", member("alone-9"), 2),
        until={"error_code": 27},
    ),
    join("the first alone again", "d-alone-9", member("alone-9")),
    sync("the first alone again", "d-alone-9", member("alone-9"), 3, member("alone-9")),
    # Static members (KIP-345).
    replace(
        join("a static member", "d-static", group_instance_id="i-1"),
        keep={"member static": "member_id"},
    ),
    sync(
        "a static member",
        "d-static",
        member("static"),
        1,
        member("static"),
        group_instance_id="i-1",
    ),
    beat("a static member", "d-static", member("static"), 1, group_instance_id="i-1"),
    beat("a static member with a wrong id", "d-static", "somebody", 1, group_instance_id="i-1"),
    commit(
        "a static member with a wrong id",
        "d-static",
        1,
        who="somebody",
        generation=1,
        instance="i-1",
    ),
    join("a static member with a wrong id", "d-static", "somebody", group_instance_id="i-1"),
    replace(
        join("a static member comes back", "d-static", group_instance_id="i-1"),
        keep={"member static again": "member_id"},
    ),
    sync(
        "a static member that came back",
        "d-static",
        member("static again"),
        1,
        group_instance_id="i-1",
    ),
    beat(
        "a static member that was replaced",
        "d-static",
        member("static"),
        1,
        group_instance_id="i-1",
    ),
    ask("describe a static member", "DescribeGroups", 5, groups=["d-static"]),
    leave("an unknown instance", "d-static", {"member_id": "", "group_instance_id": "i-9"}),
    leave(
        "an instance with a wrong id",
        "d-static",
        {"member_id": "somebody", "group_instance_id": "i-1"},
    ),
    leave("an instance", "d-static", {"member_id": "", "group_instance_id": "i-1"}),
    *[
        ask(
            f"leave: v{v}", "LeaveGroup", v, group_id=f"d-alone-{v}", member_id=member(f"alone-{v}")
        )
        for v in range(3)
    ],
    *[
        leave(f"v{v}", f"d-alone-{v}", {"member_id": member(f"alone-{v}")}, version=v)
        for v in (3, 4, 5)
    ],
    leave("twice", "d-alone-5", {"member_id": member("alone-5")}),
    leave("an unknown group", "d-none", {"member_id": "somebody"}),
    leave("an unknown member v2", "d-alone-9", version=2),
    leave("no group", "", {"member_id": "somebody"}),
    leave("nobody", "d-alone-9"),
]

OFFSETS = [
    *[
        commit(
            f"without a group v{v}", f"d-offsets-{v}", 10 + v, version=v, metadata=f"m{v}", epoch=0
        )
        for v in range(2, 11)
    ],
    commit("an epoch to come", "d-offsets-9", 5, partition=1, epoch=7),
    commit("a negative offset", "d-offsets-9", -1, partition=2),
    commit("null metadata", "d-offsets-9", 6, partition=2, metadata=None),
    commit("metadata of 4096", "d-offsets-9", 6, partition=2, metadata="m" * 4096),
    commit("metadata of 4097", "d-offsets-9", 6, partition=2, metadata="m" * 4097),
    commit("an unknown partition", "d-offsets-9", 6, partition=9),
    commit("an unknown topic", "d-offsets-9", 6, topic="d-unknown"),
    commit("an unknown id", "d-offsets-9", 6, version=10, topic_id=NO_SUCH_ID),
    commit("no group", "", 6),
    commit("a generation without a member", "d-offsets-9", 6, generation=3),
    commit("a member without a generation", "d-offsets-9", 6, who="somebody"),
    commit("a generation of an unknown group", "d-none", 6, generation=3, who="somebody"),
    commit("as a member", "d-alone-9", 20, who=member("alone-9"), generation=3),
    commit(
        "as a member with an old generation", "d-alone-9", 20, who=member("alone-9"), generation=2
    ),
    commit("as an unknown member", "d-alone-9", 20, who="somebody", generation=3),
    commit("without a member to a group with members", "d-alone-9", 20),
    commit("as a member by id", "d-alone-9", 21, version=10, who=member("alone-9"), generation=3),
    ask("commit: nothing", "OffsetCommit", 9, group_id="d-offsets-9", topics=[]),
    *[offsets(f"of a topic v{v}", "d-offsets-9", version=v) for v in range(1, 10)],
    offsets("of a topic by id", "d-offsets-9", version=10),
    offsets("of an unknown id", "d-offsets-9", version=10, topic_id=NO_SUCH_ID),
    *[
        offsets(f"of all topics v{v}", "d-offsets-9", version=v, whole=True)
        for v in (2, 5, 6, 8, 9, 10)
    ],
    offsets("of an unknown topic", "d-offsets-9", topic="d-unknown"),
    offsets("of an unknown partition", "d-offsets-9", partitions=(9,)),
    offsets("of an unknown group", "d-none"),
    offsets("of all topics of an unknown group", "d-none", whole=True),
    offsets("of no group", ""),
    offsets("that are stable", "d-offsets-9", version=7, require_stable=True),
    offsets("of a member", "d-alone-9", member_id=member("alone-9"), member_epoch=3),
    offsets("of an unknown member", "d-alone-9", member_id="somebody", member_epoch=3),
    ask(
        "offsets: of two groups",
        "OffsetFetch",
        8,
        groups=[{"group_id": group, "topics": None} for group in ("d-offsets-2", "d-none")],
    ),
]

SHOWN = [
    *[
        ask(
            f"describe groups v{v}",
            "DescribeGroups",
            v,
            groups=["d-alone-9", "d-offsets-9", "d-none"],
        )
        for v in range(7)
    ],
    ask(
        "describe with operations",
        "DescribeGroups",
        5,
        groups=["d-alone-9"],
        include_authorized_operations=True,
    ),
    ask("describe an empty group", "DescribeGroups", 6, groups=["d-alone-5"]),
    ask("describe no name", "DescribeGroups", 6, groups=[""]),
    ask("describe nothing", "DescribeGroups", 6, groups=[]),
    *[Case(f"list groups v{v}", "ListGroups", v, only="d-") for v in range(6)],
    *[
        Case(
            f"list groups that are {name}",
            "ListGroups",
            5,
            {"states_filter": states, "types_filter": types},
            only="d-",
        )
        for name, states, types in [
            ("stable", ["Stable"], []),
            ("stable in small letters", ["stable"], []),
            ("empty or stable", ["Empty", "Stable"], []),
            ("of an unknown state", ["Sleeping"], []),
            ("classic", [], ["classic"]),
            ("consumer", [], ["consumer"]),
            ("of an unknown type", [], ["odd"]),
        ]
    ],
    *[
        ask(
            f"delete offsets: {name}",
            "OffsetDelete",
            0,
            group_id=group,
            topics=[{"name": topic, "partitions": [{"partition_index": partition}]}],
        )
        for name, group, topic, partition in [
            ("of a group", "d-offsets-9", "d-plain", 0),
            ("that are not there", "d-offsets-9", "d-plain", 1),
            ("of an unknown topic", "d-offsets-9", "d-unknown", 0),
            ("of an unknown partition", "d-offsets-9", "d-plain", 99),
            ("of an unknown group", "d-none", "d-plain", 0),
            ("of no group", "", "d-plain", 0),
            ("of a group with members", "d-alone-9", "d-plain", 0),
        ]
    ],
    offsets("after they were deleted", "d-offsets-9"),
    *[
        ask(f"delete groups v{v}", "DeleteGroups", v, groups_names=[f"d-offsets-{v + 2}", "d-none"])
        for v in range(3)
    ],
    ask("delete a group with members", "DeleteGroups", 2, groups_names=["d-alone-9"]),
    ask("delete a group twice", "DeleteGroups", 2, groups_names=["d-offsets-6", "d-offsets-6"]),
    ask("delete no name", "DeleteGroups", 2, groups_names=[""]),
    ask("delete no groups", "DeleteGroups", 2, groups_names=[]),
    offsets("of a deleted group", "d-offsets-2"),
    leave("the last", "d-alone-9", {"member_id": member("alone-9")}),
    ask("describe after the last left", "DescribeGroups", 6, groups=["d-alone-9"]),
    ask("delete the group that all left", "DeleteGroups", 2, groups_names=["d-alone-9"]),
]

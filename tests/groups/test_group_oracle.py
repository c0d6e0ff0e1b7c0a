"""Groups before Apache Kafka: its tools on our broker, our `__consumer_offsets` in its eyes, and
its own in ours."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kafkalite
from api.group_requests import (
    commit,
    describe,
    find_coordinator,
    leave,
    stable_member,
    subscription,
)
from api.raw import Connection
from groups.clients import Confluent, GroupMember, drive, leaving
from groups.conftest import CONFIG
from groups.fake_host import make_host
from kafkalite import _native
from kafkalite.groups.coordinator import GroupCoordinator
from kafkalite.protocol import messages
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools

pytestmark = pytest.mark.oracle

GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
STORY_GROUPS = [
    f"story-{name}" for name in ("stable", "static", "left", "simple", "expires", "ended")
]
MakeTopic = Callable[[kafkalite.Broker, int, int], str]


@pytest.fixture
def groups_tool(
    kafka_tools: KafkaTools, broker: kafkalite.Broker
) -> Callable[..., list[list[str]]]:
    """Runs kafka-consumer-groups; the words of each line of its output."""

    def run(*arguments: str) -> list[list[str]]:
        result = kafka_tools.run_tool(
            GROUPS_TOOL, ["--bootstrap-server", broker.bootstrap_servers, *arguments]
        )
        assert "rror" not in result.stdout + result.stderr, result
        return [line.split() for line in result.stdout.splitlines() if line.strip()]

    return run


def test_kafkas_tool_lists_describes_resets_and_deletes(
    broker: kafkalite.Broker, make_topic: MakeTopic, groups_tool: Callable[..., list[list[str]]]
) -> None:
    topic = make_topic(broker, 2, 10)
    members: list[GroupMember] = []
    with leaving(members):
        members.append(Confluent(broker.bootstrap_servers, "tool", topic))
        read = drive(members, lambda: len(members[0].partitions()) == 2)
        while len(read) < 20:
            read += members[0].poll()
        members[0].commit()
        assert ["tool", "Stable"] in groups_tool("--list", "--state")
        assert ["tool", "Classic"] in groups_tool("--list", "--type")
        described = groups_tool("--describe", "--group", "tool")
        rows = {row[2]: row[3:6] for row in described if row[:2] == ["tool", topic]}
        assert rows == {"0": ["10", "10", "0"], "1": ["10", "10", "0"]}
        told = groups_tool("--describe", "--group", "tool", "--members", "--verbose")
        assert any(f"{topic}:0,1" in " ".join(row) for row in told), told
        state = groups_tool("--describe", "--group", "tool", "--state")
        assert state[-1][-3:] == ["range", "Stable", "1"]
    for arguments, expected in (
        (["--to-offset", "3"], 3),
        (["--shift-by", "2"], 5),
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-datetime", "2020-01-01T00:00:00.000"], 0),
        (["--by-duration", "PT1H"], 0),
    ):
        rows = groups_tool(
            "--reset-offsets", "--group", "tool", "--topic", topic, *arguments, "--execute"
        )
        assert {row[3] for row in rows[1:]} == {str(expected)}, (arguments, rows)
    deleted = groups_tool("--delete-offsets", "--group", "tool", "--topic", topic)
    assert [row[-1] for row in deleted[-2:]] == ["Successful"] * 2
    groups_tool("--delete", "--group", "tool")
    assert ["tool"] not in groups_tool("--list")


def story(servers: str, topic: str) -> None:
    """Groups in every state that a log can hold: two with members, one left, one reset, one ended,
    offsets with metadata, with an epoch, with a time to expire."""
    with Connection(servers) as connection:
        find_coordinator(connection, "story")
        member_id = stable_member(
            connection,
            "story-stable",
            protocols=(("range", subscription(topic)),),
            session_ms=600_000,
        )
        commit(
            connection,
            "story-stable",
            topic,
            (0, 5),
            (1, 6),
            generation_id=1,
            member_id=member_id,
            metadata="mä",
            leader_epoch=0,
        )
        stable_member(connection, "story-static", instance="one", session_ms=600_000)
        left = stable_member(connection, "story-left")
        leave(connection, "story-left", (left, None))
        for offset in (1, 2, 3):
            commit(connection, "story-simple", topic, (0, offset))
        commit(connection, "story-expires", topic, (1, 8), version=3, retention_ms=3_600_000)
        commit(connection, "story-ended", topic, (0, 9))
        request = messages.DeleteGroupsRequest(groups_names=["story-ended"])
        answer = connection.ask("DeleteGroups", 2, request)
        assert [each.error_code for each in answer.results] == [0]


def segments(data: Path) -> list[Path]:
    """The logs of `__consumer_offsets` that hold something."""
    return [path for path in data.glob("__consumer_offsets-*/*.log") if path.stat().st_size]


def decoded(tools: KafkaTools, data: Path) -> dict[str, list[str]]:
    """Group -> what Kafka's decoder says of its records, in order, without ids and times."""
    import re

    found: dict[str, list[str]] = {}
    for segment in sorted(segments(data)):
        dump = tools.dump_log(segment, decoder="offsets")
        assert not dump.findings
        for record in dump.records:
            text = f"{record['key']} {record['payload']}"
            group = re.search(r'"group":"([^"]*)"', text)
            assert group is not None, text
            text = re.sub(r'"(currentState|commit|expire)Timestamp":\d+', r'"\1Timestamp":0', text)
            text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UUID", text)
            text = re.sub(r'"topicId":"[^"]*"', '"topicId":"ID"', text)
            found.setdefault(group[1], []).append(text)
    return found


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a kafkalite that has seen the story."""
    data = tmp_path_factory.mktemp("ours") / "data"
    config = {
        **CONFIG,
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "3",
    }
    with kafkalite.Broker(data, config=config) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("story", 2).error_code == 0
        story(broker.bootstrap_servers, "story")
        broker.stop()
    return data


@pytest.fixture(scope="module")
def theirs(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of an Apache Kafka that has seen the story."""
    folder = tmp_path_factory.mktemp("theirs")
    with KafkaBroker(
        kafka_tools, folder, properties={"offsets.topic.num.partitions": "3"}
    ) as kafka:
        kafka_tools.create_topic(kafka.bootstrap_servers, "story", 2)
        with Connection(kafka.bootstrap_servers) as connection:
            while find_coordinator(connection, "story")[0].error_code != 0:
                pass
            while any(each.error_code for each in describe(connection, *STORY_GROUPS, version=5)):
                pass
        story(kafka.bootstrap_servers, "story")
        kafka.stop()
    yield folder / "data"


def told_by_kafkas_tool(tools: KafkaTools, servers: str) -> tuple[list[list[str]], list[list[str]]]:
    """Groups with their states, and the offsets of those without members, sorted."""
    found = []
    without_members = [*["--group", "story-simple"], *["--group", "story-expires"]]
    for arguments in (["--list", "--state"], ["--describe", "--offsets", *without_members]):
        result = tools.run_tool(GROUPS_TOOL, ["--bootstrap-server", servers, *arguments])
        assert result.exit == 0, result
        rows = [line.split() for line in result.stdout.splitlines() if line.startswith("story")]
        found.append(sorted(row[:4] for row in rows))
    return found[0], found[1]


def test_groups_go_to_kafka_and_come_back(
    kafka_tools: KafkaTools, ours: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(ours, data)
    properties = {"offsets.topic.num.partitions": "3"}
    with KafkaBroker(
        kafka_tools, tmp_path / "kafka", log_dirs=[data], properties=properties
    ) as kafka:
        with Connection(kafka.bootstrap_servers) as connection:
            while any(each.error_code for each in describe(connection, *STORY_GROUPS, version=5)):
                pass
            assert commit(connection, "story-simple", "story", (1, 77)) == [0]
        groups, offsets = told_by_kafkas_tool(kafka_tools, kafka.bootstrap_servers)
        kafka.stop()
    assert [row for row in groups if row[1] == "Stable"] == [
        ["story-stable", "Stable"],
        ["story-static", "Stable"],
    ]
    assert ["story-simple", "story", "0", "3"] in offsets
    assert ["story-simple", "story", "1", "77"] in offsets
    config = {**CONFIG, "offsets.topic.num.partitions": "3"}
    with kafkalite.Broker(data, config=config) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            while connection.ask("ListGroups", 5, messages.ListGroupsRequest()).error_code:
                pass
        assert told_by_kafkas_tool(kafka_tools, broker.bootstrap_servers) == (groups, offsets)


def test_kafkas_console_consumer_reads_the_internal_topic(
    kafka_tools: KafkaTools, broker: kafkalite.Broker, make_topic: MakeTopic
) -> None:
    topic = make_topic(broker, 1, 1)
    with Connection(broker.bootstrap_servers) as connection:
        find_coordinator(connection, "console")
        assert commit(connection, "console", topic, (0, 41), metadata="m") == [0]
    result = kafka_tools.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        [
            *["--bootstrap-server", broker.bootstrap_servers, "--topic", "__consumer_offsets"],
            *["--from-beginning", "--timeout-ms", "5000"],
            *["--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"],
        ],
    )
    wanted = f'"group":"console","topic":"{topic}","partition":0'
    (line,) = [line for line in result.stdout.splitlines() if wanted in line]
    assert '"offset":41' in line
    assert '"metadata":"m"' in line


def test_kafka_reads_what_we_wrote_and_would_have_written_the_same(
    kafka_tools: KafkaTools, ours: Path, theirs: Path
) -> None:
    mine, kafkas = decoded(kafka_tools, ours), decoded(kafka_tools, theirs)
    assert sorted(mine) == sorted(STORY_GROUPS)
    assert mine == kafkas


class DirectoryCore:
    """The logs of a directory, as the coordinator reads them."""

    def __init__(self, directory: _native.LogDirectory) -> None:
        self.logs = self
        self.find = directory.log


@pytest.mark.parametrize("source", ["ours", "theirs"])
def test_groups_and_offsets_are_the_same_from_either_log(
    request: pytest.FixtureRequest, tmp_path: Path, source: str
) -> None:
    data = tmp_path / "data"
    shutil.copytree(request.getfixturevalue(source), data)
    shutil.rmtree(data / "__cluster_metadata-0", ignore_errors=True)
    directory = _native.LogDirectory.open(data, now_ms=1)
    host = make_host({}, **{"offsets.topic.num.partitions": 3})
    host.core = DirectoryCore(directory)  # type: ignore[assignment]
    coordinator = GroupCoordinator(host)
    coordinator.runtime.start()
    host.pass_time(5000)
    assert not [line for line in host.log.lines if "not taken" in line]
    states = {
        each.group_id: (each.state, each.protocol_type, each.generation_id, len(each.members))
        for each in coordinator.list_groups()[1]
    }
    assert states == {
        "story-stable": ("Stable", "consumer", 1, 1),
        "story-static": ("Stable", "consumer", 1, 1),
        "story-left": ("Empty", "consumer", 2, 0),
        "story-simple": ("Empty", None, 0, 0),
        "story-expires": ("Empty", None, 0, 0),
    }
    found: dict[str, dict[int, tuple[int, int, str]]] = {}
    for group in states:
        answer = coordinator.fetch_offsets(group, False).result()
        found[group] = {
            index: (each.offset, each.leader_epoch, each.metadata)
            for index, each in answer.offsets.get("story", {}).items()
        }
    assert found["story-stable"] == {0: (5, 0, "mä"), 1: (6, 0, "mä")}
    assert found["story-simple"] == {0: (3, -1, "")}
    assert found["story-expires"] == {1: (8, -1, "")}
    _, group = coordinator.describe("story-static")
    assert group is not None
    (member,) = group.members
    assert (member.group_instance_id, member.assignment) == ("one", b"all")
    assert coordinator.describe("story-stable")[1].subscribed_topics == {"story"}  # type: ignore[union-attr]
    directory.abandon()


def test_batches_of_groups_begin_with_sequence_0_as_kafkas(
    kafka_tools: KafkaTools, ours: Path, theirs: Path
) -> None:
    """Ours had none, -1, as a producer without an id; it is seen in a dump of the log."""
    for data in (theirs, ours):
        batches = [
            batch for segment in segments(data) for batch in kafka_tools.dump_log(segment).batches
        ]
        found = {(each["producerId"], each["baseSequence"]) for each in batches}
        assert found == {("-1", "0")}, data

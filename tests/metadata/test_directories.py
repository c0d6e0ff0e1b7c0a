"""Which directories a broker takes by what their metadata says, and what it does about partitions
that the metadata does not know."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from api.batches import batch
from api.raw import Connection
from api.test_k21_delete_records import delete as delete_records
from api.test_k23_offset_for_leader_epoch import ask as ends_of_epochs
from api.test_k43_elect_leaders import elect
from api.test_k61_describe_producers import ask as describe_producers
from kafkalite.child import BrokerFailedError
from kafkalite.metadata import reading, snapshots
from kafkalite.metadata.image import BROKER
from kafkalite.protocol import messages
from metadata.test_store import NOW_MS, World, topic

Files = dict[str, bytes]


def contents(path: Path) -> Files:
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def directory_with(path: Path, *appended: Any) -> Path:
    """A directory whose metadata are these records; its broker was killed."""
    world = World(path)
    log = world.open()
    levels = [messages.FeatureLevelRecord(name="metadata.version", feature_level=30)]
    log.append([*levels, *appended], NOW_MS)
    world.abandon()
    del log
    return path


def replicated() -> list[Any]:
    made = topic(1)
    made[1].replicas = made[1].isr = [1, 2]
    return made


@pytest.mark.parametrize(
    ("appended", "reason"),
    [
        (
            [messages.FeatureLevelRecord(name="future.version", feature_level=1)],
            "the feature future.version at level 1",
        ),
        (
            [messages.FeatureLevelRecord(name="metadata.version", feature_level=31)],
            "the feature metadata.version at level 31",
        ),
        (
            [messages.FeatureLevelRecord(name="transaction.version", feature_level=3)],
            "the feature transaction.version at level 3",
        ),
        (replicated(), r"topic-1-0 has the replicas \[1, 2\]"),
    ],
)
def test_what_cannot_be_served_is_refused_by_its_name_and_not_changed(
    tmp_path: Path, appended: list[Any], reason: str
) -> None:
    data = directory_with(tmp_path / "data", *appended)
    before = contents(data)
    with pytest.raises(BrokerFailedError, match=reason):
        kafkalite.Broker(data).start()
    assert contents(data) == before


def test_a_quorum_of_others_is_refused(tmp_path: Path) -> None:
    data = directory_with(tmp_path / "data")
    before = contents(data)
    meta = data / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    with pytest.raises(BrokerFailedError, match="quorum has the voters 1"):
        kafkalite.Broker(data, config={"node.id": "2"}).start()
    meta.write_bytes(before[str(meta)])
    assert contents(data) == before


def test_a_directory_that_was_formatted_with_credentials_is_taken_and_keeps_them(
    tmp_path: Path,
) -> None:
    """`kafka-storage format --add-scram` puts them beside the features, and the broker did not
    start: it took every record for a feature."""
    data = tmp_path / "data"
    with kafkalite.Broker(data) as broker:
        broker.stop()
        shutil.rmtree(data / snapshots.FOLDER)
        level = messages.FeatureLevelRecord(name="metadata.version", feature_level=29)
        user = messages.UserScramCredentialRecord(name="alice", mechanism=1, iterations=4096)
        snapshots.write_bootstrap(data, [level, user], NOW_MS)
        broker.start()
        image = reading.read(data).image
        assert image.features == {"metadata.version": 29}
        assert [each[:2] for each in image.kept] == [("scram", "alice")]


def test_partitions_without_metadata_are_refused_and_not_renamed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with kafkalite.Broker(data) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("orders").error_code == 0
        broker.stop()
        shutil.rmtree(data / snapshots.FOLDER)
        before = contents(data)
        with pytest.raises(BrokerFailedError, match="orders-0 holds records"):
            kafkalite.Broker(data).start()
    assert contents(data) == before


def test_a_partition_of_no_topic_is_stray_and_its_records_stay(tmp_path: Path) -> None:
    """As in Kafka: a copy of a deleted topic's directory neither comes back to life nor is lost."""
    data = tmp_path / "data"
    with kafkalite.Broker(data) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            for name in ("orders", "gone"):
                assert connection.create_topic(name).error_code == 0
                assert connection.produce(name, batch([b"x"])).error_code == 0
            shutil.copytree(data / "gone-0", tmp_path / "copy")
            delete = messages.DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1000)
            connection.ask("DeleteTopics", 5, delete)
        broker.stop()
        shutil.copytree(tmp_path / "copy", data / "gone-0")
        shutil.copytree(tmp_path / "copy", data / "orders-7")
        records = (data / "gone-0" / f"{0:020}.log").read_bytes()
        broker.start()
        assert "stray" in broker.log_tail()
        with Connection(broker.bootstrap_servers) as connection:
            found = connection.ask("Metadata", 9, messages.MetadataRequest(topics=None)).topics
            assert {each.name: len(each.partitions) for each in found} == {"orders": 1}
        strays = sorted(path.name for path in data.glob("*-stray"))
        assert [name.split(".")[0] for name in strays] == ["gone-0", "orders-7"]
        assert (data / strays[0] / f"{0:020}.log").read_bytes() == records
        for _ in range(2):
            broker.stop()
            broker.start()
        assert sorted(path.name for path in data.glob("*-stray")) == strays


def test_the_leader_epoch_of_a_partition_is_on_disk_before_its_first_record(tmp_path: Path) -> None:
    """As Kafka leaves a partition that was made and never written to."""
    data = tmp_path / "data"
    epochs = data / "empty-0" / "leader-epoch-checkpoint"
    with kafkalite.Broker(data) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("empty").error_code == 0
        assert epochs.read_text() == "0\n1\n0 0\n"
        broker.stop()
        broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.produce("empty", batch([b"x"])).error_code == 0
        # The leaders that wrote nothing are forgotten; a clean stop and a start count two.
        assert epochs.read_text() == "0\n1\n2 0\n"


def test_a_topic_lies_in_the_directories_that_the_metadata_names(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    config = {"log.dirs": f"{one},{two}"}
    with kafkalite.Broker(config=config) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("spread", partitions=4).error_code == 0
        broker.stop()
        image = reading.read(one).image
        named = [each.directories[0] for each in image.topics["spread"].partitions]
        assert len(set(named)) == 2
        assert set(named) == set(image.brokers[1].directories)
        assert len(list(one.glob("spread-*"))) == len(list(two.glob("spread-*"))) == 2
        # Moved by hand to the other disk: the metadata follows.
        moved = next(iter(two.glob("spread-*")))
        shutil.move(moved, one / moved.name)
        broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.produce("spread", batch([b"x"])).error_code == 0
        broker.stop()
        assert not (two / moved.name).exists()
        image = reading.read(one).image
        index = int(moved.name.removeprefix("spread-"))
        at_home = next(each for each in set(named) if each != named[index])
        assert image.topics["spread"].partitions[index].directories == (at_home,)


def test_a_fetch_from_a_directory_that_is_offline_is_answered_at_once(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with kafkalite.Broker(config={"log.dirs": f"{one},{two}"}) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            for name in ("a", "b"):
                assert connection.create_topic(name).error_code == 0
        broker.stop()
        (lost,) = (path.name.removesuffix("-0") for path in two.glob("?-0"))
        shutil.rmtree(two)
        two.write_bytes(b"no directory")
        broker.start()
        sentence = "WARNING partitions without a leader, as no log directory in use holds them: "
        assert f"{sentence}{lost}-0\n" in broker.log_tail()
        with Connection(broker.bootstrap_servers) as connection:
            for version, error_code in ((5, 6), (6, 56), (12, 56)):
                # Beside a partition that would wait.
                (readable,) = {"a", "b"} - {lost}
                request = connection.fetch_request(readable, 0, max_wait_ms=2**31 - 1)
                request.topics += connection.fetch_request(lost, 0).topics
                response = connection.ask("Fetch", version, request)
                told = {each.topic: each.partitions[0].error_code for each in response.responses}
                assert told == {readable: 0, lost: error_code}


def test_a_partition_whose_directory_is_offline_is_not_called_unknown(tmp_path: Path) -> None:
    """Administrators were told that a topic was not there which Metadata listed."""
    one, two = tmp_path / "one", tmp_path / "two"
    with kafkalite.Broker(config={"log.dirs": f"{one},{two}"}) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert connection.create_topic("spread", partitions=2).error_code == 0
        broker.stop()
        (lost,) = (int(path.name.removeprefix("spread-")) for path in two.glob("spread-*"))
        shutil.rmtree(two)
        two.write_bytes(b"no directory")
        broker.start()
        asked = (1 - lost, lost, 2)
        with Connection(broker.bootstrap_servers) as connection:
            deleted = delete_records(connection, "spread", *((index, 0) for index in asked))
            assert deleted == [(1 - lost, 0, 0), (lost, -1, 56), (2, -1, 3)]
            described = describe_producers(connection, "spread", *asked)
            assert [each.error_code for each in described] == [0, 56, 3]
            ends = ends_of_epochs(connection, "spread", *((index, -1, 0) for index in asked))
            assert [code for code, *_ in ends] == [0, 56, 3]


@pytest.mark.parametrize("elr_level", [0, 1])
def test_who_asks_is_told_that_a_directory_that_failed_leads_nothing(
    tmp_path: Path, elr_level: int
) -> None:
    """As long as the broker ran on, its partitions had a leader and no replica was offline. Where
    the feature of eligible leaders is off, as in the directories of older versions, there was one
    nevertheless, and no replica in sync."""
    one, two = tmp_path / "one", tmp_path / "two"
    names = [f"topic-{number}" for number in range(4)]
    with (
        kafkalite.Broker(config={"log.dirs": f"{one},{two}"}) as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        for name in names:
            assert connection.create_topic(name).error_code == 0
        kinds = messages.UpdateFeaturesRequest
        level = kinds.FeatureUpdateKey(
            feature="eligible.leader.replicas.version", max_version_level=elr_level, upgrade_type=2
        )
        if elr_level == 0:
            updated = connection.ask("UpdateFeatures", 1, kinds(feature_updates=[level]))
            assert updated.error_code == 0
        gone, lost = (path.name.removesuffix("-0") for path in two.glob("topic-*"))
        left = next(path.name.removesuffix("-0") for path in one.glob("topic-*"))
        shutil.rmtree(two)
        delete = messages.DeleteTopicsRequest(topic_names=[gone], timeout_ms=1000)
        connection.ask("DeleteTopics", 5, delete)

        kind = messages.MetadataRequest
        asked = kind(topics=[kind.MetadataRequestTopic(name=name) for name in (left, lost)])
        for version in (4, 9, 12):
            topics = connection.ask("Metadata", version, asked).topics
            found = [topic.partitions[0] for topic in topics]
            assert [(each.error_code, each.leader_id) for each in found] == [(0, 1), (5, -1)]
            assert [each.isr_nodes for each in found] == [[1], [] if elr_level else [1]]
            if version >= 7:
                assert [each.leader_epoch for each in found] == [0, 0]
                assert [each.offline_replicas for each in found] == [[], [1]]

        pages = messages.DescribeTopicPartitionsRequest
        named = [pages.TopicRequest(name=name) for name in (left, lost)]
        page = pages(topics=named, response_partition_limit=9)
        topics = connection.ask("DescribeTopicPartitions", 0, page).topics
        well, ill = (
            topic.partitions[0] for topic in sorted(topics, key=lambda topic: topic.name == lost)
        )
        assert (well.leader_id, well.isr_nodes, well.offline_replicas) == (1, [1], [])
        assert (ill.leader_id, ill.offline_replicas) == (-1, [1])
        assert ill.isr_nodes == ([] if elr_level else [1])
        assert ill.eligible_leader_replicas == ill.last_known_elr == ([1] if elr_level else [])

        answers = [elect(connection, (lost, [0]), election_type=each) for each in (0, 1)]
        codes = [each.replica_election_results[0].partition_result[0] for each in answers]
        assert [each.error_code for each in codes] == [80, 83]


def test_metadata_may_lie_in_a_directory_of_its_own(tmp_path: Path) -> None:
    data, apart = tmp_path / "data", tmp_path / "apart"
    with kafkalite.Broker(data, config={"metadata.log.dir": str(apart)}) as broker:
        for end in (broker.kill, broker.stop):
            with Connection(broker.bootstrap_servers) as connection:
                assert connection.create_topic("orders").error_code in (0, 36)
            end()
            broker.start()
        assert not (data / snapshots.FOLDER).exists()
        assert (apart / "meta.properties").exists()
        broker.stop()
        assert set(reading.read(apart).image.topics) == {"orders"}
        assert (apart / ".kafka_cleanshutdown").exists()


def test_a_log_full_of_no_ops_of_kafkas_is_read(tmp_path: Path) -> None:
    """Kafka writes one twice a second; behind a snapshot they are not even looked into."""
    world = World(tmp_path / "data")
    log = world.open()
    log.append(topic(1), NOW_MS)
    for _ in range(300):
        log.append([messages.NoOpRecord()], NOW_MS)
    log.write_snapshot(NOW_MS)
    log.append(topic(2), NOW_MS)
    log.append([messages.NoOpRecord()], NOW_MS)
    world.abandon()
    del log
    found = reading.read(world.path)
    assert set(found.image.topics) == {"topic-1", "topic-2"}
    assert found.record_count == len(topic(2)) + 1


def test_a_configuration_of_another_version_that_is_left_out_is_told_at_the_start(
    tmp_path: Path,
) -> None:
    """The warning was kept where nobody looked any more, and once more for each change."""
    record = messages.ConfigRecord(
        resource_type=BROKER, resource_name="", name="log.retention.ms", value="soon"
    )
    with kafkalite.Broker(directory_with(tmp_path, record)) as broker:
        assert broker.log_tail().count("(set while the broker ran); it is left out") == 1

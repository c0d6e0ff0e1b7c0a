"""IncrementalAlterConfigs by frames: the answers of Kafka, and that changes hold."""

import contextlib
import time
from pathlib import Path

import pytest

import kafkalite
from api.batches import batch
from api.config_cases import (
    APPEND,
    BROKER,
    CASES,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    LOGGER,
    SET,
    SET_AT_LAST,
    TOPIC,
)
from api.configs import change, describe, own, replace, set_topic
from api.raw import Connection
from kafkalite._native import read_batches
from kafkalite.config.changes import ChangeRefusedError, check_client_metrics
from kafkalite.metadata import snapshots


def test_each_change_is_answered_as_kafka_does() -> None:
    with (
        kafkalite.Broker() as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        made = connection.create_topic("altered", partitions=2, retention_ms="1234")
        assert made.error_code == 0
        for case in CASES:
            answer = change(connection, (*case.resource, case.operations))
            assert answer == [(case.code, case.sentence)], case
        for resource, configs in SET_AT_LAST.items():
            assert own(connection, *resource) == configs


def test_patterns_of_clients_neither_take_long_nor_warn(
    connection: Connection, recwarn: pytest.WarningsRecorder
) -> None:
    """Some thousand sets of characters held all other requests up for 19 s, and Python's warnings
    of a pattern went to the broker's log."""
    each = "[^\u0001-\U0010fffe]"
    resource = (CLIENT_METRICS, "slow-patterns")
    for text in ("client_id=(?i)" + 3_000 * each, 1_500 * f"client_id={each}," + "client_id=x"):
        ((code, sentence),) = change(connection, (*resource, [("match", SET, text)]))
        assert (code, sentence) == (40, "Client matching patterns of more than 1000 characters")
    check_client_metrics({"match": "client_id=[[a]b||c]"})
    assert not recwarn.list


@pytest.mark.parametrize("ranges", ["[ -\uffff]", "[^ -\U0010ffff]", r"[ -\uffff]"])
def test_wide_ranges_of_characters_take_no_time(ranges: str) -> None:
    """A pattern within the limit, some hundred ranges of 64 Ki characters, took half a second, and
    a request may have many."""
    count = 980 // len(ranges)
    begun_s = time.thread_time()
    for number in range(20):
        check_client_metrics({"match": f"client_id=(?i)a{{{number}}}{count * ranges}"})
    assert time.thread_time() - begun_s < 4


@pytest.mark.parametrize(
    ("pattern", "is_legal"),
    [
        ("[Ā-ɏ]|[ÿ-\U0001f600]", True),
        ("[ɏ-Ā]", False),
        (r"[\u0100-\u024f]|[a-\u0100]|[\xff-Ā]|\\U|\\N", True),
        (r"[\u024f-Ā]", False),
        (r"\u12", False),
        # Java knows no such escape.
        (r"\U0001f600", False),
        (r"\N{DIGIT ONE}", False),
    ],
)
def test_characters_of_any_script_may_be_in_patterns(pattern: str, is_legal: bool) -> None:
    refused = pytest.raises(ChangeRefusedError, match="Illegal client matching pattern")
    with contextlib.nullcontext() if is_legal else refused:
        check_client_metrics({"match": f"client_id={pattern}"})


@pytest.mark.parametrize("version", [0, 1])
def test_every_version_sets_and_deletes(connection: Connection, topic: str, version: int) -> None:
    change(connection, (TOPIC, topic, [("retention.ms", SET, "5")]), version=version)
    assert own(connection, TOPIC, topic) == {"retention.ms": "5"}
    change(connection, (TOPIC, topic, [("retention.ms", DELETE, None)]), version=version)
    assert own(connection, TOPIC, topic) == {}


def test_a_resource_that_comes_twice_is_refused_each_time(
    connection: Connection, topic: str
) -> None:
    operations = [("retention.ms", SET, "5")]
    refusal = (42, "Each resource must appear at most once.")
    answer = change(connection, (TOPIC, topic, operations), (TOPIC, topic, operations))
    assert answer == [refusal, refusal]
    assert own(connection, TOPIC, topic) == {}


def test_resources_succeed_and_fail_on_their_own(connection: Connection, topic: str) -> None:
    answer = change(
        connection,
        (TOPIC, "no-topic", [("retention.ms", SET, "5")]),
        (TOPIC, topic, [("retention.ms", SET, "6")]),
        (BROKER, "1", [("node.id", SET, "2")]),
    )
    assert [code for code, _ in answer] == [3, 0, 42]
    assert own(connection, TOPIC, topic) == {"retention.ms": "6"}


def test_resources_of_one_request_change_by_one_write_and_the_refused_stay(tmp_path: Path) -> None:
    """Each resource was a write and a flush of its own, with all topics of the image copied: those
    of 6,000 topics took 24 s, in which no client was served that needs the control thread."""
    data = tmp_path / "data"
    with kafkalite.Broker(data) as broker, Connection(broker.bootstrap_servers) as connection:
        names = [f"by-one-write-{number}" for number in range(12)]
        assert {connection.create_topic(name).error_code for name in names} == {0}
        log = data / snapshots.FOLDER / f"{0:020}.log"
        before = log.stat().st_size
        change_all = [
            (TOPIC, name, [("retention.ms", SET, "5"), ("flush.ms", SET, "6")]) for name in names
        ]
        answer = change(
            connection,
            *change_all,
            (TOPIC, "by-no-write", [("retention.ms", SET, "5")]),
            (BROKER, "", [("log.retention.ms", SET, "77")]),
            (GROUP, "by-one-write", [("consumer.session.timeout.ms", SET, "50000")]),
        )
        assert [code for code, _ in answer] == [*([0] * 12), 3, 0, 0]
        (batch_of_all,) = read_batches(log.read_bytes()[before:])
        assert len(batch_of_all.records) == 26
        for name in names:
            assert own(connection, TOPIC, name) == {"retention.ms": "5", "flush.ms": "6"}
        assert own(connection, BROKER, "")["log.retention.ms"] == "77"
        before = log.stat().st_size
        assert {
            code for code, _ in replace(connection, *[(TOPIC, name, []) for name in names])
        } == {0}
        assert len(read_batches(log.read_bytes()[before:])) == 1
        assert {
            code for code, _ in replace(connection, *[(TOPIC, name, []) for name in names])
        } == {0}
        assert len(read_batches(log.read_bytes()[before:])) == 1


def test_changes_of_more_than_10_000_records_are_refused_together(connection: Connection) -> None:
    ten = {
        "consumer.session.timeout.ms": "46000",
        "share.auto.offset.reset": "earliest",
        "share.delivery.count.limit": "6",
        "share.isolation.level": "read_committed",
        "share.partition.max.record.locks": "2001",
        "share.record.lock.duration.ms": "31000",
        "share.renew.acknowledge.enable": "false",
        "share.session.timeout.ms": "46000",
        "streams.initial.rebalance.delay.ms": "1000",
        "streams.session.timeout.ms": "46000",
    }
    operations = [(key, SET, text) for key, text in ten.items()]
    groups = [f"one-of-many-{number}" for number in range(1001)]
    resources = [(GROUP, name, operations) for name in groups]
    refusal = (44, "Unable to perform excessively large batch operation.")
    no_topic = (TOPIC, "none-of-many", [("retention.ms", SET, "5")])
    answer = change(connection, *resources, no_topic)
    assert (answer[:-1], answer[-1][0]) == ([refusal] * 1001, 3)
    assert change(connection, *resources, validate_only=True) == [refusal] * 1001
    replacing = [(GROUP, name, list(ten.items())) for name in groups]
    assert replace(connection, *replacing) == [refusal] * 1001
    assert own(connection, GROUP, groups[0]) == {}
    assert change(connection, *resources[1:], validate_only=True) == [(0, None)] * 1000


def test_validate_only_judges_and_changes_nothing(connection: Connection, topic: str) -> None:
    good = (TOPIC, topic, [("retention.ms", SET, "5")])
    bad = (TOPIC, topic, [("retention.ms", SET, "soon")])
    assert change(connection, good, validate_only=True) == [(0, None)]
    assert change(connection, bad, validate_only=True)[0][0] == 40
    assert own(connection, TOPIC, topic) == {}
    level = describe(connection, LOGGER, "1").configs[0].value
    change(connection, (LOGGER, "1", [("root", SET, "ERROR")]), validate_only=True)
    assert describe(connection, LOGGER, "1").configs[0].value == level


def test_a_topics_log_obeys_at_once(connection: Connection, topic: str) -> None:
    large = batch([b"x" * 200])
    assert connection.produce(topic, large).error_code == 0
    set_topic(connection, topic, max_message_bytes="150")
    assert connection.produce(topic, large).error_code == 10
    assert change(connection, (TOPIC, topic, [("max.message.bytes", DELETE, None)])) == [(0, None)]
    assert connection.produce(topic, large).error_code == 0


def test_topics_obey_what_is_set_for_this_broker_or_all_at_once(
    connection: Connection, topic: str
) -> None:
    large = batch([b"x" * 200])
    for name in ("", "1"):
        limit = (BROKER, name, [("message.max.bytes", SET, "150")])
        assert change(connection, limit) == [(0, None)]
        assert connection.produce(topic, large).error_code == 10
        no_limit = (BROKER, name, [("message.max.bytes", DELETE, None)])
        assert change(connection, no_limit) == [(0, None)]
        assert connection.produce(topic, large).error_code == 0


def test_what_cannot_take_effect_while_the_broker_runs_is_refused(connection: Connection) -> None:
    for name, text in [
        ("num.network.threads", "2"),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT"),
        ("num.recovery.threads.per.data.dir", "3"),
        ("listener.name.plaintext.ssl.keystore.location", "/x"),
        ("metric.reporters", "com.example.Reporter"),
    ]:
        ((code, sentence),) = change(connection, (BROKER, "1", [(name, SET, text)]))
        assert code == 42
        assert sentence is not None
        assert name in sentence


def test_the_level_of_the_log_changes_at_once(tmp_path: Path) -> None:
    with (
        kafkalite.Broker(tmp_path / "data") as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        assert connection.create_topic("heard").error_code == 0
        assert "created topic heard" in broker.log_tail()
        assert change(connection, (LOGGER, "1", [("root", SET, "ERROR")])) == [(0, None)]
        assert describe(connection, LOGGER, "1").configs[0].value == "ERROR"
        assert connection.create_topic("unheard").error_code == 0
        assert "unheard" not in broker.log_tail()


def test_changes_survive_a_kill(tmp_path: Path) -> None:
    with kafkalite.Broker(tmp_path / "data") as broker:
        with Connection(broker.bootstrap_servers) as connection:
            connection.create_topic("kept", retention_ms="1")
            answer = change(
                connection,
                (
                    TOPIC,
                    "kept",
                    [("max.message.bytes", SET, "150"), ("retention.ms", DELETE, None)],
                ),
                (BROKER, "", [("log.retention.ms", SET, "7")]),
                (32, "some", [("consumer.session.timeout.ms", SET, "46000")]),
            )
            assert answer == [(0, None)] * 3
        broker.kill()
        broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            assert own(connection, TOPIC, "kept") == {"max.message.bytes": "150"}
            (retention,) = describe(connection, TOPIC, "kept", ["retention.ms"]).configs
            assert (retention.value, retention.config_source) == ("7", 3)
            assert own(connection, 32, "some") == {"consumer.session.timeout.ms": "46000"}
            assert connection.produce("kept", batch([b"x" * 200])).error_code == 10


def test_a_pattern_that_is_nested_too_deeply_is_refused(connection: Connection) -> None:
    """The connection was closed, with a traceback in the log."""
    pattern = "client_id=" + "(" * 490 + ")" * 490
    answer = change(connection, (CLIENT_METRICS, "too-deep", [("match", SET, pattern)]))
    assert answer == [(40, f"Illegal client matching pattern: {pattern}")]


TOO_LONG_SENTENCE = (
    "The configuration value cannot be added because it exceeds the maximum value size of 32767 "
    "bytes."
)


def test_a_value_does_not_grow_beyond_what_kafkas_metadata_takes(connection: Connection) -> None:
    """A topic took one of 30 MB, which the metadata kept and the log repeated."""
    key = "leader.replication.throttled.replicas"
    fits = "1:1," * 8_191 + "1:1"
    assert len(fits) == 32_767
    assert connection.create_topic("long-values", **{key: fits}).error_code == 0
    assert change(connection, (TOPIC, "long-values", [(key, APPEND, "12:1")])) == [
        (40, TOO_LONG_SENTENCE)
    ]
    assert own(connection, TOPIC, "long-values") == {key: fits}


def test_what_the_log_says_of_a_change_is_short() -> None:
    key = "leader.replication.throttled.replicas"
    with kafkalite.Broker() as broker, Connection(broker.bootstrap_servers) as connection:
        connection.create_topic("told")
        set_topic(connection, "told", **{key: "1:1," * 8_000 + "1:1"})
        assert f"{key}={'1:1,' * 50}… (32003 characters)" in broker.log_tail()


def test_what_the_log_says_of_a_change_keeps_secrets() -> None:
    """What a key means that nobody knows, nobody knows: Kafka's reporters have passwords there."""
    with kafkalite.Broker() as broker, Connection(broker.bootstrap_servers) as connection:
        operations = [("my.reporter.password", SET, "hunter2"), ("log.retention.ms", SET, "77000")]
        assert change(connection, (BROKER, "1", operations)) == [(0, None)]
        said = broker.log_tail()
        assert "my.reporter.password=[hidden]" in said
        assert "log.retention.ms=77000" in said
        assert "hunter2" not in said

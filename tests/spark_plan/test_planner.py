"""Planning against brokers, against files, and as JSON: the same answers."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import kafkalite
from arrow.encoder import LogWriter, Record
from kafkalite.client import Admin, Producer
from kafkalite.errors import InvalidArgumentError, KafkaliteError
from kafkalite.spark.options.read import ReadOptions
from kafkalite.spark.plan import answers, planner, topic_source
from kafkalite.spark.plan.answers import SOURCES_KEPT, TopicSources, answer
from kafkalite.spark.plan.planner import DataLossError
from kafkalite.spark.plan.ranges import Cut

COUNT = 100


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[kafkalite.Broker]:
    # The records are of 1970: retention must not take them.
    with kafkalite.Broker(data, config={"log.retention.ms": "-1"}) as broker:
        with Admin(broker.bootstrap_servers) as admin:
            for topic in ("orders", "orders-2", "other"):
                admin.create_topic(topic, partitions=2)
        with Producer(broker.bootstrap_servers) as producer:
            for number in range(COUNT):
                producer.send(
                    "orders", b"%d" % number, partition=number % 2, timestamp_ms=1_000 + number
                )
        yield broker


@pytest.fixture(scope="module")
def sources() -> Iterator[TopicSources]:
    with TopicSources() as sources:
        yield sources


@pytest.fixture(params=["brokers", "files"])
def orders(request: pytest.FixtureRequest, broker: kafkalite.Broker, data: Path) -> dict[str, str]:
    """Options that read the same two partitions, in two ways."""
    if request.param == "brokers":
        return {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}
    return {"paths": json.dumps([str(data / "orders-0"), str(data / "orders-1")])}


def without_ids(offsets: dict[str, Any]) -> dict[str, Any]:
    """As Spark's connector has them."""
    return {topic: partitions for topic, partitions in offsets.items() if partitions}


def ranges(sources: TopicSources, options: dict[str, str], **more: Any) -> list[list[Any]]:
    asked = {"op": "batch", "options": options} | more
    found = answer(json.loads(json.dumps(asked)), sources)
    return [row[:4] for row in json.loads(json.dumps(found))["ranges"]]


def test_a_batch_is_the_whole_log(orders: dict[str, str], sources: TopicSources) -> None:
    assert ranges(sources, orders) == [["orders", 0, 0, 50], ["orders", 1, 0, 50]]


def test_offsets_cut_a_batch(orders: dict[str, str], sources: TopicSources) -> None:
    cut = {
        "startingOffsets": '{"orders":{"0":-2,"1":10}}',
        "endingOffsets": '{"orders":{"0":7,"1":-1}}',
    }
    assert ranges(sources, orders | cut) == [["orders", 0, 0, 7], ["orders", 1, 10, 50]]


def test_timestamps_cut_a_batch(orders: dict[str, str], sources: TopicSources) -> None:
    cut = {"startingTimestamp": "1011", "endingTimestamp": "1020"}
    assert ranges(sources, orders | cut) == [["orders", 0, 6, 10], ["orders", 1, 5, 10]]
    behind = orders | {"endingTimestamp": "999999"}
    assert ranges(sources, behind) == [["orders", 0, 0, 50], ["orders", 1, 0, 50]]
    by_partition = orders | {"startingOffsetsByTimestamp": '{"orders":{"0":1098,"1":1000}}'}
    assert ranges(sources, by_partition) == [["orders", 0, 49, 50], ["orders", 1, 0, 50]]


@pytest.mark.parametrize("option", ["startingTimestamp", "endingTimestamp"])
def test_records_that_come_while_a_batch_is_planned_are_none_of_its(
    broker: kafkalite.Broker, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """The offset of a time that lay behind the ends, as they had been told a moment before, failed
    the query: as lost data, or as a start behind its end."""
    topic = f"grows-{option}"
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic)

    def append(*timestamps_ms: int) -> None:
        with Producer(broker.bootstrap_servers) as producer:
            for each in timestamps_ms:
                producer.send(topic, b"v", timestamp_ms=each)

    append(1_000, 1_001)
    told = topic_source.BrokerSource.last

    def last_but_for_late_ones(source: topic_source.BrokerSource, partitions: Any) -> Any:
        found = told(source, partitions)
        append(1_002, 2_000)
        return found

    monkeypatch.setattr(topic_source.BrokerSource, "last", last_but_for_late_ones)
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    with TopicSources() as sources:
        found = ranges(sources, options | {option: "2000"})
    assert found == ([] if option == "startingTimestamp" else [[topic, 0, 0, 2]])


def test_a_look_up_by_time_in_files_reads_no_records_before_the_batch_that_it_finds(
    tmp_path: Path, sources: TopicSources
) -> None:
    """It decoded every record from the log start on. A batch that cannot be decoded shows whether
    it is passed over by its header."""
    log = LogWriter(tmp_path / "orders-0")
    for second in range(5):
        log.append([Record(b"k", b"v", 1_000 * second + each) for each in (7, 3)])
    with log.path().open("r+b") as file:
        file.seek(70)
        file.write(b"?" * 4)
    files = {"path": str(log.directory)}
    with pytest.raises(pyarrow.ArrowInvalid, match="is corrupt at byte 0"):
        kafkalite.read_log(log.directory).to_pyarrow()
    for timestamp, offset in (("3000", 6), ("3004", 6), ("3008", 8), ("4007", 8)):
        found = ranges(sources, files | {"startingTimestamp": timestamp})
        assert found == [["orders", 0, offset, 10]]


def test_a_timestamp_behind_all_records_is_an_error_or_the_end(
    orders: dict[str, str], sources: TopicSources
) -> None:
    late = orders | {"startingTimestamp": "999999"}
    with pytest.raises(InvalidArgumentError, match="orders-0 has no record at or after"):
        ranges(sources, late)
    assert ranges(sources, late | {"startingOffsetsByTimestampStrategy": "latest"}) == []


def test_large_ranges_are_split(orders: dict[str, str], sources: TopicSources) -> None:
    assert ranges(sources, orders | {"minPartitions": "4"}) == [
        ["orders", 0, 0, 25],
        ["orders", 0, 25, 50],
        ["orders", 1, 0, 25],
        ["orders", 1, 25, 50],
    ]
    assert len(ranges(sources, orders | {"maxRecordsPerPartition": "9"})) == 12


def test_offsets_outside_the_log_are_a_loss(orders: dict[str, str], sources: TopicSources) -> None:
    far = orders | {"endingOffsets": '{"orders":{"0":99,"1":-1}}'}
    with pytest.raises(DataLossError, match=r"orders-0: offset 99 is not there yet.*ends at 50"):
        ranges(sources, far)
    found = answer({"op": "batch", "options": far | {"failOnDataLoss": "false"}}, sources)
    assert [row[:4] for row in found["ranges"]] == [["orders", 0, 0, 50], ["orders", 1, 0, 50]]
    assert found["warnings"] == [
        "data may have been lost: orders-0: offset 99 is not there yet, the log ends at 50"
    ]


def test_offsets_must_name_what_is_read(orders: dict[str, str], sources: TopicSources) -> None:
    part = orders | {"startingOffsets": '{"orders":{"0":1}}'}
    with pytest.raises(
        InvalidArgumentError, match="it names orders-0, read are orders-0, orders-1"
    ):
        ranges(sources, part)
    behind = orders | {"startingOffsets": '{"orders":{"0":80,"1":0}}'}
    with pytest.raises(InvalidArgumentError, match="orders-0: the starting offset 80 lies behind"):
        ranges(sources, behind)


def test_a_stream_starts_goes_on_and_is_limited(
    orders: dict[str, str], sources: TopicSources
) -> None:
    first = answer({"op": "initial", "options": orders}, sources)["offsets"]
    assert without_ids(first) == {"orders": {"0": 50, "1": 50}}
    options = orders | {"startingOffsets": "earliest"}
    start = answer({"op": "initial", "options": options}, sources)["offsets"]
    asked = {"op": "latest", "options": options, "start": start, "limit": {"maxRows": 10}}
    found = answer(asked, sources)
    assert without_ids(found["offsets"]) == {"orders": {"0": 5, "1": 5}}
    assert without_ids(found["latest"]) == {"orders": {"0": 50, "1": 50}}
    end = found["offsets"]
    between = {"op": "between", "start": start, "end": end}
    assert ranges(sources, options, **between) == [["orders", 0, 0, 5], ["orders", 1, 0, 5]]
    assert ranges(sources, options, op="between", start=end, end=end) == []
    target = {"orders": {"0": 6, "1": 5}}
    found = answer(asked | {"start": end, "target": target}, sources)
    assert without_ids(found["offsets"]) == target


def test_a_stream_waits_for_enough(orders: dict[str, str], sources: TopicSources) -> None:
    asked = {
        "op": "latest",
        "options": orders | {"maxTriggerDelay": "1s"},
        "start": {"orders": {"0": 45, "1": 50}},
        "limit": {"minRows": 6},
    }
    found = answer(asked | {"sinceMs": 10}, sources)
    assert (found["offsets"], found["delayed"]) == (asked["start"], True)
    moved = {"orders": {"0": 50, "1": 50}}
    found = answer(asked | {"sinceMs": 1_000}, sources)
    assert (without_ids(found["offsets"]), found["delayed"]) == (moved, False)
    found = answer(asked | {"limit": {"minRows": 5}, "sinceMs": 10}, sources)
    assert without_ids(found["offsets"]) == moved


def test_a_stream_is_warned_of_its_options_once_and_not_by_each_micro_batch(
    orders: dict[str, str], sources: TopicSources
) -> None:
    given = {"options": orders | {"pushdown": "true"}}
    begun = answer({"op": "schema", "streaming": True, **given}, sources)
    assert begun["warnings"] == ["pushdown is ignored in streaming queries"]
    ends = {"start": {"orders": {"0": 0, "1": 0}}, "end": {"orders": {"0": 5, "1": 5}}}
    assert answer({"op": "between", **ends, **given}, sources)["warnings"] == []


def test_an_added_partition_is_read_and_a_lost_one_told(
    orders: dict[str, str], sources: TopicSources
) -> None:
    start, end = {"orders": {"0": 40}}, {"orders": {"0": 50, "1": 50}}
    asked = {"op": "between", "start": start, "end": end}
    assert ranges(sources, orders, **asked) == [["orders", 0, 40, 50], ["orders", 1, 0, 50]]
    with pytest.raises(DataLossError, match="the partition orders-1 is gone"):
        ranges(sources, orders, op="between", start=end, end={"orders": {"0": 50}})


def test_a_micro_batch_with_a_topic_that_is_gone_by_now_fails_or_goes_on_without_it(
    broker: kafkalite.Broker,
) -> None:
    """A stream by pattern failed over it in every run, also with failOnDataLoss=false: its
    checkpoint had planned the topic's first records before the topic was deleted."""
    stays, goes = "stays", "goes"
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    options = servers | {"subscribePattern": "stays|goes"}
    start = {stays: {"0": 0}}
    with Admin(broker.bootstrap_servers) as admin, TopicSources() as sources:
        for topic in (stays, goes):
            admin.create_topic(topic, partitions=1)
        with Producer(broker.bootstrap_servers) as producer:
            for topic in (stays, goes):
                producer.send(topic, b"value", partition=0)
        lenient = options | {"failOnDataLoss": "false"}
        admin.delete_topics([goes])
        asked = {"start": start, "end": {stays: {"0": 1}, goes: {"0": 1}}}
        with pytest.raises(DataLossError, match=f"the added partition {goes}-0 is gone"):
            ranges(sources, options, op="between", **asked)
        assert ranges(sources, lenient, op="between", **asked) == [[stays, 0, 0, 1]]
        admin.delete_topics([stays])


@pytest.mark.parametrize("after", ["list_topics", "partitions"])
def test_a_topic_of_a_pattern_may_go_while_the_ends_are_asked_for(
    broker: kafkalite.Broker, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """A stream with failOnDataLoss=false failed over it, if the topic was deleted just then."""
    stays, goes = "stays-here", "goes-there"
    with Admin(broker.bootstrap_servers) as admin:
        for topic in (stays, goes):
            admin.create_topic(topic, partitions=1)
        asked = Admin if after == "list_topics" else topic_source.BrokerSource
        inner = getattr(asked, after)
        calls = 0

        def ask(*arguments: Any, **more: Any) -> Any:
            nonlocal calls
            found = inner(*arguments, **more)
            if not calls:
                admin.delete_topics([goes])
            calls += 1
            return found

        monkeypatch.setattr(asked, after, ask)
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribePattern": f"{stays}|{goes}",
            "fetchOffset.retryIntervalMs": "1",
        }
        start = {stays: {"0": 0}, goes: {"0": 0}}
        with TopicSources() as sources:
            told = answer({"op": "latest", "options": options, "start": start}, sources)
        assert without_ids(told["offsets"]) == {stays: {"0": 0}}
        assert calls
        admin.delete_topics([stays])


def test_a_partition_that_goes_while_a_query_is_planned_is_named() -> None:
    """It was a KeyError."""

    class Shrinking(topic_source.FileSource):
        def last(self, partitions: Any) -> Any:
            return {each: 1 for each in partitions if each != ("t", 1)}

        first = last

        def partitions(self, topics: Any) -> Any:
            del topics
            return [("t", 0), ("t", 1)]

    source = Shrinking(["/logs"], "read_uncommitted")
    options = ReadOptions.of({"path": "/logs"}, streaming=False)
    with pytest.raises(KafkaliteError, match=r"^gone while the query was planned: t-1$"):
        planner.plan_batch(options, source, Cut())
    with pytest.raises(KafkaliteError, match=r"^gone while the query was planned: t-1$"):
        planner.initial_offsets(ReadOptions.of({"path": "/logs"}, streaming=True), source)


def test_topics_are_chosen_by_name_pattern_and_partition(
    broker: kafkalite.Broker, sources: TopicSources
) -> None:
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    everything = {"startingOffsets": "latest"}

    def topics(**options: str) -> dict[str, Any]:
        asked = {"op": "initial", "options": servers | everything | options}
        found = without_ids(answer(asked, sources)["offsets"])
        return {topic: sorted(partitions) for topic, partitions in found.items()}

    both = ["0", "1"]
    assert topics(subscribePattern="^orders.*") == {"orders": both, "orders-2": both}
    assert topics(subscribePattern="rders-") == {"orders-2": both}
    assert topics(subscribePattern="^rders") == {}
    assert topics(subscribe="other, orders") == {"orders": both, "other": both}
    assert topics(assign='{"orders":[1]}') == {"orders": ["1"]}
    with pytest.raises(InvalidArgumentError, match="that do not exist: orders-2, orders-7"):
        topics(assign='{"orders":[1,7,2]}')
    with pytest.raises(KafkaliteError, match="topic 'nowhere'"):
        topics(subscribe="nowhere")


@pytest.mark.parametrize("topics", [{"subscribe": "kept"}, {"subscribePattern": "kep."}])
def test_a_broker_that_was_restarted_is_asked_again(topics: dict[str, str]) -> None:
    """The columnar engine's planner held a connection that the old broker had closed, and a stream
    failed over it in `spark/json_to_parquet.py`."""
    with kafkalite.Broker() as broker, TopicSources() as sources:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("kept", partitions=1)
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers} | topics
        asked = {"op": "latest", "options": options, "start": {"kept": {"0": 0}}}
        before = answer(asked, sources)
        broker.stop()
        broker.start()
        assert answer(asked, sources) == before


def test_a_plan_says_how_it_is_read(orders: dict[str, str], sources: TopicSources) -> None:
    found = answer({"op": "batch", "options": orders | {"value.format": "string"}}, sources)
    assert found["endpoint"] is None
    assert found["read"]["formats"]["value.format"] == "string"
    assert ("bootstrap.servers" in found["read"]) == ("subscribe" in orders)
    directories = {row[4] for row in found["ranges"] if len(row) == 5}
    assert len(directories) == (0 if "subscribe" in orders else 2)


def test_a_schema_comes_as_ddl(sources: TopicSources, orders: dict[str, str]) -> None:
    options = orders | {"columns": "value", "maxOffsetsPerTrigger": "9"}
    found = answer({"op": "schema", "options": options, "streaming": True}, sources)
    assert found["schema"] == "value BINARY"
    assert found["limit"] == {"maxRows": 9}


@pytest.mark.parametrize(
    ("options", "wanted", "whole"),
    [
        ({}, ["offset"], []),
        ({"mode": "FAILFAST"}, ["offset"], ["value", "bad"]),
        ({"mode": " permissive "}, ["offset"], []),
        ({}, ["bad"], ["value", "bad"]),
        ({"columnNameOfCorruptRecord": " "}, ["bad"], []),
        ({"mode": "DROPMALFORMED", "key.format": "string"}, [], ["value", "bad"]),
        (
            {"mode": "DROPMALFORMED", "value.format": "binary", "key.format": "csv"},
            [],
            ["key", "bad"],
        ),
    ],
)
def test_what_is_decoded_is_read_whole_where_a_bad_record_is_seen(
    sources: TopicSources,
    orders: dict[str, str],
    options: dict[str, str],
    wanted: list[str],
    whole: list[str],
) -> None:
    given = orders | {"value.format": " JSON ", "columnNameOfCorruptRecord": " bad "} | options
    columns = ["key", "value", "offset", "bad"]
    asked = {"op": "prune", "options": given, "columns": columns, "wanted": wanted}
    assert answer(asked, sources)["whole"] == whole


@pytest.mark.parametrize(
    ("options", "columns", "told"),
    [
        ({}, ["value"], {"value.csv.columns": '["a", "b"]'}),
        ({"value.csv.columns": "b,a"}, ["value"], {}),
        ({"value.schema": "b INT"}, ["value"], {}),
        ({"value.format": "json"}, ["value"], {}),
        ({"value.flatten": "true"}, ["c", "offset", "bad"], {"value.csv.columns": '["c"]'}),
    ],
)
def test_the_schema_of_a_query_says_the_columns_of_a_line(
    sources: TopicSources,
    orders: dict[str, str],
    options: dict[str, str],
    columns: list[str],
    told: dict[str, str],
) -> None:
    given = orders | {"value.format": "CSV", "columnNameOfCorruptRecord": "bad"} | options
    asked = {"op": "prune", "options": given, "columns": columns, "wanted": []}
    fields = {"value": ["a", "b", "bad"], "headers": ["key"]}
    assert answer(asked | {"fields": fields}, sources)["options"] == told


def test_what_filters_leave_is_cut_before_it_is_split(
    orders: dict[str, str], sources: TopicSources
) -> None:
    cut = {"start": 10, "stop": 45, "timestamp": 1_060}
    assert ranges(sources, orders, cut=cut) == [["orders", 0, 30, 45], ["orders", 1, 30, 45]]
    pieces = ranges(sources, orders | {"minPartitions": "6"}, cut=cut)
    assert len(pieces) == 6 and pieces[0] == ["orders", 0, 30, 35]


@pytest.mark.parametrize(
    "tests",
    [
        7,
        [7],
        [["offset", "=", [1]]],
        [["partition", "LIKE", [1]]],
        [["partition", "=", []]],
        [["partition", "<", ["1"]]],
        [["partition", "=", [True]]],
        [["topic", "=", [1]]],
    ],
)
def test_what_is_no_test_is_refused(
    tests: Any, orders: dict[str, str], sources: TopicSources
) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^cut (has a test that is none: |must have)"):
        ranges(sources, orders, cut=EVERYTHING | {"tests": tests})


EVERYTHING = {"start": 0, "stop": (1 << 63) - 1, "timestamp": -1}
ONLY_1 = {"cut": EVERYTHING | {"tests": [["partition", "=", [1]]]}}


def test_a_partition_that_filters_leave_out_is_left_out_before_the_rest_is_split(
    orders: dict[str, str], sources: TopicSources
) -> None:
    """The columnar engine left it out of what had been planned: of six tasks three ran."""
    pieces = ranges(sources, orders | {"minPartitions": "5"}, **ONLY_1)
    assert pieces == [["orders", 1, 10 * each, 10 * each + 10] for each in range(5)]


def test_of_a_partition_that_filters_leave_out_nothing_is_asked(
    orders: dict[str, str], sources: TopicSources
) -> None:
    """Its lost records failed the query, and so did a time after its last record."""
    gone = {"endingOffsets": '{"orders":{"0":99,"1":-1}}'}
    late = {"startingOffsetsByTimestamp": '{"orders":{"0":999999,"1":1000}}'}
    for options in (orders | gone, orders | late):
        with pytest.raises(KafkaliteError, match="orders-0"):
            ranges(sources, options)
        assert ranges(sources, options, **ONLY_1) == [["orders", 1, 0, 50]]
    unnamed = orders | {"endingOffsets": '{"orders":{"1":-1}}'}
    with pytest.raises(InvalidArgumentError, match="read are orders-0, orders-1"):
        ranges(sources, unnamed, **ONLY_1)


@pytest.mark.parametrize(
    ("test", "left"),
    [
        (["topic", "=", ["orders"]], [0, 1]),
        (["topic", "IN", ["others", "order"]], []),
        (["partition", "<=>", [1]], [1]),
        (["partition", "<>", [1]], [0]),
        (["partition", "IN", [0, 7]], [0]),
        (["partition", "<", [1]], [0]),
        (["partition", "<=", [1]], [0, 1]),
        (["partition", ">", [0]], [1]),
        (["partition", ">=", [0]], [0, 1]),
    ],
)
def test_tests_leave_partitions(
    orders: dict[str, str], sources: TopicSources, test: list[Any], left: list[int]
) -> None:
    cut = EVERYTHING | {"tests": [["partition", ">=", [0]], test]}
    assert [row[1] for row in ranges(sources, orders, cut=cut)] == left


def test_a_schema_that_records_cannot_have_is_refused_before_anything_is_read(
    orders: dict[str, str], sources: TopicSources
) -> None:
    def encoded(**fields: pyarrow.DataType) -> str:
        return base64.b64encode(pyarrow.schema(fields).serialize()).decode()

    for fields in ({}, {"value": pyarrow.binary()}):
        assert ranges(sources, orders, schema=encoded(**fields))
    for op in ("batch", "initial"):
        with pytest.raises(InvalidArgumentError, match="offset"):
            answer(
                {"op": op, "options": orders, "schema": encoded(offset=pyarrow.string())}, sources
            )


@pytest.mark.parametrize("name", [b"value", b"abcde", b"zone."])
def test_a_schema_with_text_that_is_not_utf8_is_refused(
    orders: dict[str, str], sources: TopicSources, name: bytes
) -> None:
    """pyarrow failed over the names of columns, arrow-rs panicked over those of fields."""
    fields = [("value", pyarrow.struct({"abcde": pyarrow.timestamp("us", "zone.")}))]
    bad = pyarrow.schema(fields).serialize().to_pybytes().replace(name, b"\xff" * 5)
    asked = {"op": "batch", "options": orders, "schema": base64.b64encode(bad).decode()}
    with pytest.raises(InvalidArgumentError, match="schema"):
        answer(asked, sources)


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"op": "batch"},
        {"op": "batch", "options": {"a": 1}},
        {"op": "nothing", "options": {"path": "/nowhere"}},
        {"op": "batch", "options": {"path": "/nowhere"}},
        {"op": "batch", "options": {"path": "/nowhere"}, "cut": {"start": 0, "stop": "9"}},
        {"op": "batch", "options": {"path": "/nowhere"}, "cut": [0, 9, -1]},
        {"op": "batch", "options": {"path": "/nowhere"}, "schema": "no message"},
        {"op": "batch", "options": {"path": "/nowhere"}, "schema": 7},
        {"op": "prune", "options": {"path": "/nowhere"}, "columns": ["key"], "wanted": "key"},
        {
            "op": "prune",
            "options": {"path": "/nowhere"},
            "columns": [],
            "wanted": [],
            "fields": {"value": 7},
        },
        {"op": "latest", "options": {"path": "/nowhere"}, "start": {"t": 1}},
        {"op": "latest", "options": {"path": "/nowhere"}, "start": {"t": {"a": 1}}},
        {"op": "latest", "options": {"path": "/nowhere"}, "start": None},
        {"op": "between", "options": {"path": "/nowhere"}, "start": {}, "end": {"t": {"0": "1"}}},
        {
            "op": "latest",
            "options": {"path": "/nowhere"},
            "start": {},
            "target": {},
            "limit": {"maxRows": "many"},
        },
    ],
)
def test_every_wrong_request_is_refused_in_a_sentence(
    request_: dict[str, Any], sources: TopicSources
) -> None:
    with pytest.raises(KafkaliteError) as caught:
        answer(request_, sources)
    assert "\n" not in str(caught.value)


def test_planning_needs_no_session() -> None:
    options = ReadOptions.of({"path": "/nowhere"}, streaming=False)
    assert options.topics.names == ("/nowhere",)


def test_a_planner_keeps_the_connections_of_few_client_options(broker: kafkalite.Broker) -> None:
    """It kept those of each: a driver of some weeks, whose queries name their clients, held a
    connection to the broker for each query that it had ever planned."""

    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    with TopicSources() as sources:
        for number in range(3 * SOURCES_KEPT):
            options = {
                "kafka.bootstrap.servers": broker.bootstrap_servers,
                "kafka.client.id": f"query-{number}",
                "subscribe": "orders",
            }
            assert len(ranges(sources, options)) == 2
        # A connection for metadata, and one to the leader.
        assert descriptors() - before <= 2 * SOURCES_KEPT
    assert descriptors() == before


def test_a_planner_asks_on_the_connections_that_it_has(
    broker: kafkalite.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[topic_source.TopicSource] = []

    def open_topic_source(options: ReadOptions) -> topic_source.TopicSource:
        opened.append(topic_source.open_topic_source(options))
        return opened[-1]

    monkeypatch.setattr(answers, "open_topic_source", open_topic_source)
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}
    checked = [
        ReadOptions.of(servers | more, streaming=False)
        for more in ({}, {"kafka.client.id": "another"})
    ]
    with TopicSources() as sources:
        for options in (*checked, *checked):
            with sources.lent(options):
                pass
        assert len(opened) == 2
        with sources.lent(checked[0]) as one, sources.lent(checked[0]) as beside:
            assert one is not beside, "two threads ask at once"
        with pytest.raises(ZeroDivisionError), sources.lent(checked[1]):
            raise ZeroDivisionError
        with sources.lent(checked[1]):
            pass
    assert len(opened) == 4, "what failed is opened anew, and nothing else"

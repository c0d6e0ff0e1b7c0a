"""`produce` and `consume` with the flags of Kafka's console tools, byte for byte beside those."""

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from zlib import crc32

import pytest

from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools, Record, ToolResult

pytestmark = pytest.mark.oracle

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
SERIALIZATION = "org.apache.kafka.common.serialization"
START_MS = 1_700_000_000_000
ALL = [f"print.{each}" for each in ("key", "value", "timestamp", "partition", "offset", "headers")]

Ours = Callable[..., subprocess.CompletedProcess[str]]
Theirs = Callable[..., ToolResult]


@pytest.fixture(scope="module")
def ours(kafka: KafkaBroker) -> Ours:
    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        servers = ["--bootstrap-server", kafka.bootstrap_servers]
        command = [sys.executable, "-m", "kafkalite", *arguments, *servers]
        done = subprocess.run(
            command, input=stdin.encode(), capture_output=True, check=False, timeout=120
        )
        # Not as text: Python would make one line end of another.
        return subprocess.CompletedProcess(
            command, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    return run


@pytest.fixture(scope="module")
def theirs(kafka_tools: KafkaTools, kafka: KafkaBroker) -> Theirs:
    def run(tool: str, *arguments: str, stdin: str = "") -> ToolResult:
        servers = ["--bootstrap-server", kafka.bootstrap_servers]
        return kafka_tools.run_tool(tool, [*arguments, *servers], stdin=stdin)

    return run


@pytest.fixture(scope="module")
def printed(kafka_tools: KafkaTools, kafka: KafkaBroker) -> tuple[str, int]:
    """A topic with records of every kind, and how many."""
    kafka_tools.create_topic(kafka.bootstrap_servers, "printed", config={"retention.ms": "-1"})
    rows: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"key", b"value", ()),
        (None, b"value", (("h", b"1"),)),
        (b"key", None, (("h", b"1"), ("i", None), ("", b""))),
        (None, None, ()),
        (b"", b"", ()),
        ("Käfer".encode(), "日本\n".encode(), (("ü", "ß".encode()),)),
        (b"12345678", b"\0\0\0\1", ()),
    ]
    records: list[Record | str] = [
        Record("printed", value, key=key, headers=headers, timestamp=START_MS + number)
        for number, (key, value, headers) in enumerate(rows)
    ]
    kafka_tools.produce(kafka.bootstrap_servers, records)
    return "printed", len(rows)


def flags(name: str, properties: Sequence[str]) -> list[str]:
    return [word for each in properties for word in (f"--{name}-property", each)]


@pytest.mark.parametrize(
    "properties",
    [
        [],
        *([f"{each}=true"] for each in ALL),
        *([f"{each}=true", "print.value=false"] for each in ALL if each != "print.value"),
        [f"{each}=true" for each in ALL],
        [f"{each}= TRUE " for each in reversed(ALL)],
        ["print.key=yes", "print.headers=true"],
        ["print.value=false"],
        ["print.epoch=true", "print.delivery=true", "print.key=true"],
        [
            *(f"{each}=true" for each in ALL),
            *("key.separator==", "line.separator=;\\n", "headers.separator=|", "null.literal=∅"),
        ],
        ["print.key=true", "key.separator=", "line.separator", "null.literal="],
        ["print.key=true", f"key.deserializer={SERIALIZATION}.StringDeserializer"],
        [
            *("print.headers=true", f"headers.deserializer={SERIALIZATION}.StringDeserializer"),
            "print.key=true",
        ],
    ],
    ids=",".join,
)
def test_records_are_printed_as_kafkas_console_consumer_prints_them(
    ours: Ours, theirs: Theirs, printed: tuple[str, int], properties: list[str]
) -> None:
    topic, count = printed
    read = ("--topic", topic, "--partition", "0", "--offset", "earliest")
    read += ("--max-messages", str(count), *flags("formatter", properties))
    told = theirs(CONSUMER, *read)
    mine = ours("consume", *read)
    assert (mine.returncode, told.exit, mine.stderr) == (0, 0, ""), mine.stderr
    assert mine.stdout == told.stdout
    assert told.stdout or properties == ["print.value=false"]


def printed_of(told: str) -> str:
    """What is a number or a flag: the log of Kafka's tools goes to their stdout here."""
    return "".join(re.findall(r"^(?:-?\d+|true|false)\n", told, re.MULTILINE))


@pytest.mark.parametrize("name", ["Long", "Integer", "Short", "Boolean"])
def test_numbers_are_printed_as_kafkas_deserializers_read_them(
    ours: Ours, theirs: Theirs, kafka_tools: KafkaTools, kafka: KafkaBroker, name: str
) -> None:
    topic = f"numbers-{name}"
    kafka_tools.create_topic(kafka.bootstrap_servers, topic)
    size = {"Long": 8, "Integer": 4, "Short": 2, "Boolean": 1}[name]
    good = [b"\0" * size, b"\0" * (size - 1) + b"\1"]
    good += [] if name == "Boolean" else [b"\xff" * size, b"\x80" + b"\0" * (size - 1)]
    values = [*good, b"odd", good[1]]
    kafka_tools.produce(kafka.bootstrap_servers, [Record(topic, value) for value in values])
    read = ("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages")
    read += (str(len(values)), "--value-deserializer", f"{SERIALIZATION}.{name}Deserializer")
    told, mine = theirs(CONSUMER, *read), ours("consume", *read)
    assert told.exit == mine.returncode == 1
    assert mine.stdout == printed_of(told.stdout)
    assert mine.stdout.count("\n") == len(good)
    assert mine.stderr.startswith(f"kafkalite: offset {len(good)} of {topic}-0: the value cannot")
    told = theirs(CONSUMER, *read, "--skip-message-on-error")
    mine = ours("consume", *read, "--skip-message-on-error")
    assert told.exit == mine.returncode == 0
    assert mine.stdout == printed_of(told.stdout)
    assert mine.stdout.count("\n") == len(values) - 1


@pytest.mark.parametrize(
    ("properties", "lines"),
    [
        ([], "a\n\nb\tc\n"),
        (["parse.key=true"], "k\tv\n\tv\nk\t\nk\tv\tw\n"),
        (["parse.key=true", "key.separator=::"], "k::v\nk:::v\nK\u00e4fer::\u65e5\n"),
        (["parse.key=true", "key.separator=="], "k=v\nk=v=w\n"),
        (["parse.key=true", "ignore.error=true"], "k\tv\nonly\n"),
        (["parse.key=true"], "k\tv\nonly\nk\tw\n"),
        (["parse.headers=true"], "h:1,i:2\tv\nh:\tv\n:1\tv\nh:1,h:2\tv\nh:a:b\tv\n"),
        (["parse.headers=true", "parse.key=true"], "h:1\tk\tv\n"),
        (["parse.headers=true"], "\tv\n"),
        (["parse.headers=true"], ",\tv\n"),
        (["parse.headers=true"], "h:1,\tv\n"),
        (["parse.headers=true"], ",h:1\tv\n"),
        (["parse.headers=true", "ignore.error=true"], "h:1,i\tv\nonly\n\tv\n,h:1,,\tv\n"),
        (["parse.headers=true", "headers.separator=[;|]+"], "h:1;i:2|;j:3\tv\n"),
        (["parse.headers=true", "headers.separator=(;)|x*", "ignore.error=true"], "h:1;i\tv\n"),
        (
            ["parse.headers=true", "headers.delimiter=|", "headers.key.separator==>"],
            "h=>1,i=>2|v\n",
        ),
        (["null.marker=NULL", "parse.key=true"], "k\tNULL\nNULL\tv\nNULL\tNULL\n"),
        (["null.marker=NULL", "parse.headers=true"], "h:NULL,i:2\tNULL\nNULL\tv\n"),
        (["null.marker=NULL", "parse.headers=true"], "i:1\tw\nNULL:2\tv\n"),
        (["null.marker=,"], "a\n"),
        (["null.marker=\t"], "a\n"),
        (["headers.separator=:"], "a\n"),
        (["headers.delimiter=:"], "a\n"),
        (["headers.delimiter=,"], "a\n"),
        (["key.separator=:", "parse.headers=true", "parse.key=true"], "h:1\tk:v\n"),
    ],
)
def test_lines_become_the_records_that_kafkas_console_producer_makes(
    ours: Ours,
    theirs: Theirs,
    kafka_tools: KafkaTools,
    kafka: KafkaBroker,
    request: pytest.FixtureRequest,
    properties: list[str],
    lines: str,
) -> None:
    number = crc32(request.node.name.encode())
    found = []
    exits = []
    for who in ("ours", "theirs"):
        topic = f"lines-{who}-{number}"
        kafka_tools.create_topic(kafka.bootstrap_servers, topic)
        arguments = ("--topic", topic, "--sync", *flags("reader", properties))
        if who == "ours":
            mine = ours("produce", *arguments, stdin=lines)
            exits.append(mine.returncode != 0)
            assert mine.stderr.count("\n") == (mine.returncode != 0), mine.stderr
        else:
            exits.append(theirs(PRODUCER, *arguments, stdin=lines).exit != 0)
        records = kafka_tools.consume(kafka.bootstrap_servers, topic, start=0)
        found.append([(each.key, each.value, each.headers) for each in records])
    assert found[0] == found[1]
    assert exits[0] == exits[1]


def test_the_other_flags_of_the_producer_do_what_they_do_in_kafka(
    ours: Ours, kafka_tools: KafkaTools, kafka: KafkaBroker
) -> None:
    kafka_tools.create_topic(kafka.bootstrap_servers, "flagged")
    flagged = (
        *("--compression-codec", "--request-required-acks", "1", "--max-block-ms", "30000"),
        *("--batch-size", "1000", "--max-memory-bytes", "1000000", "--request-timeout-ms", "9000"),
        *("--message-send-max-retries", "3", "--retry-backoff-ms", "100"),
        *("--metadata-expiry-ms", "1000", "--socket-buffer-size", "102400"),
        *("--property", "parse.key=true", "--producer-property", "client.id=x"),
    )
    told = ours("produce", "--topic", "flagged", *flagged, stdin="k\tv\n")
    assert (told.returncode, told.stderr) == (0, "")
    (record,) = kafka_tools.consume(kafka.bootstrap_servers, "flagged", start=0)
    assert (record.key, record.value) == (b"k", b"v")
    (log,) = kafka.log_dirs[0].glob("flagged-0/*.log")
    (batch,) = kafka_tools.dump_log(log).batches
    assert batch["compresscodec"] == "gzip"


def test_topics_are_included_without_a_group(
    ours: Ours, kafka_tools: KafkaTools, kafka: KafkaBroker
) -> None:
    for name in ("included-a", "included-b"):
        kafka_tools.create_topic(kafka.bootstrap_servers, name)
        kafka_tools.produce(kafka.bootstrap_servers, [Record(name, name.encode())])
    told = ours("consume", "--include", "included-.*", "--from-beginning", "--max-messages", "2")
    assert (told.returncode, told.stderr) == (0, "")
    assert sorted(told.stdout.split()) == ["included-a", "included-b"]

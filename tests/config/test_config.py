"""The rows, texts to values, layers, and properties files."""

import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite.config import Config
from kafkalite.config.keys import REASONS, KeyTable
from kafkalite.config.properties import read_properties
from kafkalite.config.values import is_duration, parse, text_of
from kafkalite.errors import InvalidArgumentError

ROOT = Path(__file__).resolve().parents[2]
TABLES = ("broker.txt", "topic.txt", "group.txt", "client_metrics.txt")


def refusal(name: str, text: str) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        Config({name: text})
    return str(caught.value)


@pytest.mark.parametrize("file_name", TABLES)
def test_every_row_can_be_read_and_its_default_is_allowed(file_name: str) -> None:
    table = KeyTable(file_name)
    for name in table:
        key = table[name]
        assert key.doc.endswith(".")
        assert key.support in ("obeyed", "at-start", "taken", "refused"), name
        assert (key.reason in REASONS) == (key.support == "taken"), name
        if key.default is not None:
            value = parse(key, key.default)
            assert text_of(value) == key.default, name


def test_synonyms_of_topics_and_groups_are_keys_of_the_broker() -> None:
    broker = KeyTable("broker.txt")
    for file_name in TABLES[1:]:
        table = KeyTable(file_name)
        for name in table:
            for synonym, _ in table[name].synonyms:
                assert synonym in broker
                assert broker[synonym].support == table[name].support or (
                    table[name].support == "taken" or broker[synonym].support == "at-start"
                ), f"{name} {synonym}"


def test_values_are_typed_and_null_is_none() -> None:
    config = Config({"node.id": "7", "log.dirs": "/one, /two", "log.preallocate": "TRUE"})
    assert config["node.id"] == config["broker.id"] == 7
    assert config["log.preallocate"] is True
    assert config["broker.rack"] is None
    assert config["log.cleaner.min.cleanable.ratio"] == 0.5
    assert config.log_dirs() == ["/one", "/two"]
    assert config["num.network.threads"] in (1, 2, 3)
    assert config["num.recovery.threads.per.data.dir"] >= 2


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("num.partitions", "many", "Not a number of type INT"),
        ("num.partitions", "1_0", "Not a number of type INT"),
        ("num.partitions", "2147483648", "Not a number of type INT"),
        ("num.partitions", "0", "Value must be at least 1"),
        ("log.cleaner.min.cleanable.ratio", "2", "Value must be no more than 1"),
        ("log.cleaner.min.cleanable.ratio", "NaN", "Value must be no more than 1"),
        ("log.cleaner.min.cleanable.ratio", "0x1p9999", "Invalid value Infinity for"),
        ("log.cleaner.min.cleanable.ratio", "-0x1p9999", "Invalid value -Infinity for"),
        ("log.cleaner.min.cleanable.ratio", "nan", "Not a number of type DOUBLE"),
        ("log.cleaner.min.cleanable.ratio", "half", "Not a number of type DOUBLE"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.type", "none", "String must be one of: uncompressed, zstd, lz4, "),
        ("log.cleanup.policy", "delete,zap", "Invalid value zap for configuration log.cleanup"),
        ("group.consumer.migration.policy", "up", "(case insensitive): DISABLED, DOWNGRADE"),
        ("auto.create.topics.enable", "yes", "Expected value to be either true or false"),
        ("process.roles", "controller", "a node is broker,controller, or a broker"),
        ("process.roles", "broker", "needs controller.quorum.bootstrap.servers"),
        ("controller.quorum.voters", "1@a:1,2@b:1", "the only controller is this node, 1"),
    ],
)
def test_a_value_that_cannot_be_is_refused_in_kafkas_words(
    name: str, text: str, reason: str
) -> None:
    sentence = refusal(name, text)
    assert name in sentence
    assert reason in sentence


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("remote.log.storage.x", "1"),
        ("listener.name.plaintext.ssl.key.password", "x"),
        ("log.cleaner.enable", "false"),
        ("unstable.api.versions.enable", "true"),
    ],
)
def test_what_is_not_supported_is_refused_by_its_name(name: str, text: str) -> None:
    assert refusal(name, text) == f"{name} is not supported: remove it to start"


def test_a_broker_of_controllers_elsewhere_needs_an_id_of_its_own() -> None:
    """It was 1, and the second such broker of a cluster could not register."""
    joins = {"process.roles": "broker", "controller.quorum.bootstrap.servers": "127.0.0.1:9093"}
    with pytest.raises(InvalidArgumentError, match=r"process\.roles=broker needs a node\.id"):
        Config(joins)
    assert Config({**joins, "node.id": "7"})["node.id"] == 7
    assert Config({**joins, "broker.id": "7"})["node.id"] == 7


def test_what_is_not_supported_may_be_written_down_as_it_is_anyway() -> None:
    assert Config({"sasl.enabled.mechanisms": "GSSAPI", "authorizer.class.name": ""}).warnings == []


def test_strangers_get_a_warning() -> None:
    assert Config({"zookeeper.connect": "x"}).warnings == [
        "unknown configuration key zookeeper.connect"
    ]
    assert Config({"num.partitons": "3"}).warnings == [
        "unknown configuration key num.partitons; did you mean num.partitions?"
    ]
    ignored = Config({"leader.replication.throttled.rate": "1"})
    assert "no effect in a file" in ignored.warnings[0]
    assert ignored["leader.replication.throttled.rate"] == 2**63 - 1


def test_who_sets_what_has_no_effect_and_expects_one_is_told() -> None:
    given = {
        "offsets.topic.replication.factor": "3",
        "log.cleaner.io.max.bytes.per.second": "1000",
        # What is set to the default, and what no program can notice, is not worth a line.
        "transaction.state.log.replication.factor": "1",
        "num.io.threads": "16",
    }
    nodes, cleaner = Config(given).warnings
    assert nodes == "offsets.topic.replication.factor=3 has no effect: " + REASONS["nodes"]
    assert cleaner.startswith("log.cleaner.io.max.bytes.per.second=1000 has no effect: kafkalite ")


def test_internal_topics_have_kafkas_replication_factors_in_a_cluster() -> None:
    names = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
    joins = {
        "process.roles": "broker",
        "node.id": "2",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    }
    alone, member = Config({}), Config(joins)
    assert [alone[name] for name in names] == [1, 1]
    assert [member[name] for name in names] == [3, 3]
    assert (alone["transaction.state.log.min.isr"], member["transaction.state.log.min.isr"]) == (
        1,
        2,
    )
    given = Config({**joins, names[0]: "2", "default.replication.factor": "3"})
    assert (given[names[0]], given["default.replication.factor"]) == (2, 3)
    assert given.warnings == []
    assert len(Config({names[0]: "2"}).warnings) == 1


def test_two_names_of_the_id_must_agree() -> None:
    assert Config({"node.id": "3", "broker.id": "3"})["node.id"] == 3
    with pytest.raises(InvalidArgumentError, match=r"remove broker\.id"):
        Config({"node.id": "3", "broker.id": "4"})


def effective(config: Config, name: str, **own: str) -> tuple[str, int]:
    dotted = {key.replace("_", "."): text for key, text in own.items()}
    found = {each.name: (each.value, each.source) for each in config.topic_configs(dotted)}
    return found[name]


def test_a_topic_inherits_from_the_first_synonym_that_is_set() -> None:
    assert effective(Config({}), "retention.ms") == ("604800000", 5)
    hours = Config({"log.retention.hours": "1"})
    assert effective(hours, "retention.ms") == ("3600000", 4)
    minutes = Config({"log.retention.hours": "1", "log.retention.minutes": "5"})
    assert effective(minutes, "retention.ms") == ("300000", 4)
    assert effective(Config({"log.retention.hours": "-1"}), "retention.ms") == ("-1", 4)
    assert effective(minutes, "retention.ms", retention_ms=" 9 ") == ("9", 1)


def test_what_is_set_while_brokers_run_comes_before_the_file() -> None:
    config = Config({"log.retention.ms": "1", "num.io.threads": "3"})
    config.set_dynamic({"log.retention.ms": "2", "num.io.threads": "4"}, {})
    assert effective(config, "retention.ms") == ("2", 3)
    config.set_dynamic({"log.retention.ms": "2", "num.io.threads": "4"}, {"log.retention.ms": "3"})
    assert effective(config, "retention.ms") == ("3", 2)
    assert config["num.io.threads"] == 4
    config.set_dynamic({}, {})
    assert effective(config, "retention.ms") == ("1", 4)
    assert config["num.io.threads"] == 3


def test_a_text_of_another_version_is_left_out_with_a_warning() -> None:
    config = Config({})
    (sentence,) = config.set_dynamic({"log.retention.ms": "soon"}, {})
    assert effective(config, "retention.ms") == ("604800000", 5)
    assert "log.retention.ms" in sentence


def test_the_engine_gets_the_small_segments_of_tests() -> None:
    texts = Config({}).engine_configs({"internal.segment.bytes": "1000", "retention.ms": "5"})
    assert texts["segment.bytes"] == "1000"
    assert texts["retention.ms"] == "5"
    assert "internal.segment.bytes" not in texts


def test_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# comment\n! comment\n\n  a=1\nb : 2 \nc 3\nd=one,\\\n   two\nempty=\nbare\n"
        "path=C:\\\\temp\ne\\:f\\=g=x\\ty\nuni=\\u00e4\nlast=odd\\\\\\\n  joined\na=again\n"
    )
    assert read_properties(file) == {
        "a": "again",
        "b": "2 ",
        "c": "3",
        "d": "one,two",
        "empty": "",
        "bare": "",
        "path": "C:\\temp",
        "e:f=g": "x\ty",
        "uni": "ä",
        "last": "odd\\joined",
    }
    with pytest.raises(InvalidArgumentError, match="No such file"):
        read_properties(tmp_path / "missing")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (2.0, "2.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e7, "1.0E7"),
        (0.0001, "1.0E-4"),
        (True, "true"),
        (["a", "b"], "a,b"),
        (None, None),
    ],
)
def test_values_are_written_as_java_writes_them(value: object, text: str | None) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("P1D", True), ("PT1H2M3.5S", True), ("P", False), ("PT", False), ("1h", False)],
)
def test_durations(text: str, is_one: bool) -> None:
    assert is_duration(text) is is_one


def test_a_nul_in_a_path_is_refused(tmp_path: Path) -> None:
    """The start ended with a traceback."""
    path = tmp_path / "server.properties"
    path.write_text("log.dirs=a\\u0000b\nmetadata.log.dir=c\\u0000d\n")
    config = Config(read_properties(path))
    with pytest.raises(InvalidArgumentError, match=r"log\.dirs='a\\x00b' has a NUL"):
        config.log_dirs()
    with pytest.raises(InvalidArgumentError, match=r"metadata\.log\.dir='c\\x00d' has a NUL"):
        config.metadata_dir()
    with pytest.raises(InvalidArgumentError, match="cannot be read: embedded null byte"):
        read_properties("\0")


def test_the_page_of_the_keys_is_what_the_rows_say() -> None:
    tool = Path(__file__).parents[2] / "tools/make_configuration_page.py"
    done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_log_directory_that_is_named_twice_is_one() -> None:
    """The second was said to be in use by another process, and offline."""
    config = Config({"log.dirs": "/one,/two,/one"})
    assert config.log_dirs() == ["/one", "/two"]
    config.check_directories()


def test_log_directories_that_are_one_or_lie_in_each_other_are_refused(tmp_path: Path) -> None:
    """A broker started with one in another, and had lost the outer one at its next start, for it
    held what is no partition."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    real, link, inner = (str(tmp_path / name) for name in ("real", "link", "link/a/b"))
    for dirs, keys in (
        (f"{real},{link}", {}),
        (f"{real},{inner}", {}),
        (f"{inner},{real}", {}),
        (real, {"metadata.log.dir": inner}),
        (real, {"metadata.log.dir": link}),
    ):
        with pytest.raises(InvalidArgumentError, match=r"are the same|is inside"):
            Config({"log.dirs": dirs, **keys}).check_directories()
    beside = f"{real},{real}-2,{tmp_path / 're'}"
    Config({"log.dirs": beside, "metadata.log.dir": real}).check_directories()

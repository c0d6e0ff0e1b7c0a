"""The fixtures that pytest users get, run by an inner pytest as a user's suite would be."""

import importlib.metadata
import os
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

# An installed wheel names the plugin by its entry point.
IS_INSTALLED = any(
    each.value == "kafkalite.testing.plugin"
    for each in importlib.metadata.entry_points(group="pytest11")
)
PLUGIN = [] if IS_INSTALLED else ["-p", "kafkalite.testing.plugin"]


def run(pytester: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(source)
    return pytester.runpytest_subprocess(*PLUGIN, "-p", "no:cacheprovider", *arguments)


def test_tests_share_a_broker_and_have_a_topic_each(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        from kafkalite.client.admin import Admin

        seen = []

        @pytest.mark.parametrize("word", ["a b/c", "x" * 300])
        def test_topic(kafka_broker, kafka_topic, word):
            with Admin(kafka_broker.bootstrap_servers) as admin:
                (described,) = admin.describe_topics([kafka_topic])
            assert len(described.partitions) == 1
            seen.append((kafka_broker.pid, kafka_topic))

        def test_two():
            (first, one), (second, other) = seen
            assert first == second
            assert one != other
        """,
    )
    result.assert_outcomes(passed=3)


def test_the_broker_ends_with_the_session(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        def test_pid(kafka_broker):
            open("pid", "w").write(str(kafka_broker.pid))
        """,
    )
    result.assert_outcomes(passed=1)
    with pytest.raises(ProcessLookupError):
        os.kill(int((Path(pytester.path) / "pid").read_text()), 0)


def test_a_suite_sets_its_own_configuration(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        from kafkalite.client.admin import Admin

        @pytest.fixture(scope="session")
        def kafka_broker_config():
            return {"num.partitions": "7"}

        def test_default(kafka_broker):
            with Admin(kafka_broker.bootstrap_servers) as admin:
                admin.create_topic("seven")
                (described,) = admin.describe_topics(["seven"])
            assert len(described.partitions) == 7
        """,
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("end", ["kill", "stop", "close"])
def test_a_broker_that_a_test_has_ended_is_there_for_the_next_one(
    pytester: pytest.Pytester, end: str
) -> None:
    """Every later test of the session failed in its fixture."""
    result = run(
        pytester,
        f"""
        from kafkalite.client import Consumer, Producer

        seen = []

        def test_ends_it(kafka_broker, kafka_topic):
            with Producer(kafka_broker.bootstrap_servers) as producer:
                producer.send(kafka_topic, b"value")
            seen.append((kafka_broker.bootstrap_servers, kafka_topic))
            kafka_broker.{end}()

        def test_behind(kafka_broker, kafka_topic):
            (servers, topic), = seen
            assert kafka_topic != topic
            if {end!r} != "close":
                assert kafka_broker.bootstrap_servers == servers
                with Consumer(servers, offset_reset="earliest") as consumer:
                    consumer.assign([(topic, 0)])
                    assert [each.value for each in consumer.poll(9000)] == [b"value"]
        """,
    )
    result.assert_outcomes(passed=2)


def test_a_broker_that_does_not_start_or_go_on_shows_its_log(pytester: pytest.Pytester) -> None:
    """Of one that had died in the middle, the later tests said that nobody answers, not why."""
    result = run(
        pytester,
        """
        import os, signal
        import pytest
        import kafkalite

        def test_ends_it(kafka_broker):
            os.kill(kafka_broker.pid, signal.SIGTERM)
            kafka_broker._process.wait()

        def test_behind(kafka_topic):
            pass

        def test_another_one():
            with kafkalite.Broker(config={"num.partitions": "many"}):
                pass
        """,
    )
    result.assert_outcomes(passed=1, errors=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*Connection refused", "*- End of the log of kafka_broker -*", "*INFO stopped"]
    )
    result.stdout.fnmatch_lines(
        ["*BrokerFailedError: the broker did not start:", "*value many for*"]
    )


def test_a_test_that_fails_shows_the_log_of_every_broker_that_it_has(
    pytester: pytest.Pytester,
) -> None:
    result = run(
        pytester,
        """
        import pytest
        import kafkalite

        @pytest.fixture
        def mine():
            with kafkalite.Broker() as broker:
                yield broker

        def test_fails(kafka_broker, mine):
            assert kafka_broker.bootstrap_servers == mine.bootstrap_servers

        def test_passes(kafka_broker):
            pass
        """,
        "-rA",
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*- End of the log of kafka_broker -*",
            "*INFO listener PLAINTEXT on *",
            "*- End of the log of mine -*",
            "*INFO listener PLAINTEXT on *",
        ]
    )
    assert result.stdout.str().count("End of the log") == 2


def test_a_test_that_fails_shows_the_logs_of_a_clusters_brokers(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        import kafkalite
        from kafkalite.testing.cluster import LocalCluster

        @pytest.fixture
        def cluster():
            found = LocalCluster("no/*")  # without its controller
            with kafkalite.Broker() as one, kafkalite.Broker() as two:
                found.brokers |= {1: one, 2: two}
                yield found

        def test_fails(cluster):
            assert cluster is None
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*<kafkalite LocalCluster: 127.0.0.1:*,127.0.0.1:*>*",
            "*- End of the log of broker 1 of cluster -*",
            "*INFO listener PLAINTEXT on *",
            "*- End of the log of broker 2 of cluster -*",
            "*INFO listener PLAINTEXT on *",
        ]
    )


def test_who_uses_no_fixture_imports_nothing(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import sys

        def test_nothing(pytestconfig):
            assert "kafkalite.testing.plugin" in sys.modules
            ours = {name for name in sys.modules if name.startswith("kafkalite")}
            assert ours == {"kafkalite", "kafkalite.testing", "kafkalite.testing.plugin"}
        """,
    )
    result.assert_outcomes(passed=1)


def test_with_xdist_every_worker_has_a_broker_of_its_own(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import os
        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_worker(kafka_broker, kafka_topic, worker_id, number):
            open(f"{worker_id}-{kafka_broker.pid}", "w").close()
        """,
        "-n2",
    )
    result.assert_outcomes(passed=4)
    marks = [each.name.split("-") for each in Path(pytester.path).glob("gw*-*")]
    workers = {worker for worker, _ in marks}
    pids = {pid for _, pid in marks}
    assert len(workers) == len(pids) == len(marks)

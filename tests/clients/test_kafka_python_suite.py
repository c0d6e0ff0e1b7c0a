"""kafka-python's own integration tests, out of its source distribution, against the broker."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from clients import provision
from clients.conftest import Cluster, is_kafka
from oracle.jars import kafka_version

EXCEPTIONS: dict[str, str] = {}
"""Tests that fail against kafkalite, and why they must; README.md has the same list."""

EXCEPTIONS_OF_KAFKA: dict[str, str] = {}
"""Those that fail against Apache Kafka 4.3.1 itself."""


@pytest.mark.timeout(600)
def test_kafka_pythons_own_suite_passes(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / "test").symlink_to(provision.kafka_python_tests() / "test")
    passed, failed = run(cluster, folder)
    expected = EXCEPTIONS_OF_KAFKA if is_kafka() else EXCEPTIONS
    assert failed == set(expected)
    assert len(passed) > 45


def run(cluster: Cluster, folder: Path) -> tuple[set[str], set[str]]:
    """The names of the tests that passed, and of those that did not; its output is printed."""
    environment = os.environ | {
        "KAFKA_URI": f"kafka://{cluster.servers}",
        "KAFKA_VERSION": kafka_version(),
        "KAFKA_ROOT": str(folder),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
    command += ["-c", os.devnull, "--rootdir", folder, "--timeout=60", "--durations=15"]
    command += [f"--junitxml={folder / 'suite.xml'}", folder / "test" / "integration"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    sys.stdout.write(done.stdout + done.stderr)
    passed, failed = set(), set()
    for case in ElementTree.parse(folder / "suite.xml").iter("testcase"):  # noqa: S314 - our own
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(str(case.get("name")))
        elif case.find("skipped") is None:
            passed.add(str(case.get("name")))
    return passed, failed

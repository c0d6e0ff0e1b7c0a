"""What a machine lacks or forbids is a skip with its reason."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from faults import nemesis
from faults.mount import Mount


@pytest.mark.parametrize("needs", [Mount, lambda _: nemesis.need_strace()])
def test_a_program_that_is_missing_is_a_skip(
    needs: type[Mount], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is not root has no `mkfs.ext4` on the path: the tests were errors."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="is not installed"):
        needs(tmp_path)


def test_a_file_system_that_may_be_mounted_and_not_frozen_is_a_skip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Mount) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Mount, "freeze", refuse)
    try:
        with pytest.raises(pytest.skip.Exception, match=r"frozen here|not allowed|not installed"):
            Mount(tmp_path)
        assert not (tmp_path / "slow").is_mount()
    finally:
        subprocess.run(["umount", tmp_path / "slow"], capture_output=True, check=False)


def test_a_tracer_that_may_not_attach_is_a_skip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it may start a process and trace it was taken for enough."""
    strace = tmp_path / "strace"
    refuse = 'case " $* " in *" -p "*) echo "strace: Operation not permitted" >&2; exit 1; esac'
    strace.write_text(f"#!/bin/sh\n{refuse}\n")
    strace.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(pytest.skip.Exception, match=r"not allowed here: .*not permitted"):
        nemesis.need_strace()

"""`kafkalite format`: directories for a node, from its file."""

import subprocess
import sys
from pathlib import Path


def test_a_misspelt_key_is_told_since_it_may_name_the_directories(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    data = tmp_path / "data"
    file.write_text(f"log.dirs={data}\nnode.idd=2\n")
    command = [
        sys.executable,
        "-m",
        "kafkalite",
        "format",
        "--cluster-id",
        "MkU3OEVBNTcwNTJENDM2Qk",
    ]
    done = subprocess.run(
        [*command, "--config", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout == f"Formatting metadata directory {data}.\n"
    assert "unknown configuration key node.idd: is node.id meant?" in done.stderr
    assert (data / "meta.properties").exists()

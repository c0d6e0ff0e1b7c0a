"""CPU and memory that a process has used so far, as Linux counts them."""

import os
from pathlib import Path


def cpu_s(pid: int) -> float:
    """Processor time, in its own code and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def status_kib(pid: int, field: str) -> int:
    """A field of its status, as VmRSS and VmHWM; 0 where there is none."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return 0

"""A broker whose clients have the rights of `differential.denials`, to Python's keys."""

import sys
from pathlib import Path
from typing import Any

import kafkalite

PROGRAM = """
import sys
sys.path[:0] = {path!r}
from differential.denials import may
from kafkalite.cli import run
from kafkalite.context import Context
Context.may = lambda self, request, operation, kind, name=None: may(
    request.client_host, operation, kind, name
)
operations = Context.operations
Context.operations = lambda self, request, kind, name=None: sum(
    1 << each
    for each in range(16)
    if operations(self, request, kind, name) >> each & 1
    and may(request.client_host, each, kind, name)
)
sys.exit(run(sys.argv[1:]))
"""


class DenyingBroker(kafkalite.Broker):
    """As `kafkalite.Broker`."""

    def _command(self) -> list[Any]:
        command = super()._command()
        at = command.index("serve")
        path = [str(Path(__file__).parents[1]), *sys.path]
        return [sys.executable, "-c", PROGRAM.format(path=path), *command[at:]]

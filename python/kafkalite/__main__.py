"""`kafkalite` and `python -m kafkalite`: picks the command and imports only that one.

`serve` has 0.15 s until it must be ready, so nothing is imported here that it does not need; the
commands live in `kafkalite/cli/`, one file each, and are imported once their name is known.
"""

import sys


def main() -> int:
    """Runs the command of `sys.argv`; returns the exit code."""
    try:
        from kafkalite.cli import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:
        # While a module was imported; what comes later, `run` takes.
        sys.stderr.write("\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())

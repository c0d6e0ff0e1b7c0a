"""The environment variables that a broker reads."""

import os


def notify_socket() -> str | None:
    """`NOTIFY_SOCKET`: where a service manager is told (`kafkalite.service.supervisor`)."""
    return os.environ.get("NOTIFY_SOCKET") or None

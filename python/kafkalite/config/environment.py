"""The environment variables that a broker, and a cluster for tests, read."""

import os


def notify_socket() -> str | None:
    """`NOTIFY_SOCKET`: where a service manager is told (`kafkalite.service.supervisor`)."""
    return os.environ.get("NOTIFY_SOCKET") or None


def java_home() -> str | None:
    """`JAVA_HOME`: whose Java is run, in place of the one on `PATH`; so do Kafka's scripts."""
    return os.environ.get("JAVA_HOME") or None

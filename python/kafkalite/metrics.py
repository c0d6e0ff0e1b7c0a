"""The counters of a broker: one row each. `BrokerPlane.counts` gives the values."""

from typing import NamedTuple


class Metric(NamedTuple):
    """A counter since the start, or a gauge."""

    name: str
    kind: str
    unit: str
    doc: str


METRICS = (
    Metric("connections", "gauge", "", "Open connections."),
    Metric("requests", "counter", "", "Requests begun."),
    Metric("received_bytes", "counter", "bytes", "Bytes received."),
    Metric("sent_bytes", "counter", "bytes", "Bytes sent."),
    Metric(
        "storage_hand_overs",
        "counter",
        "",
        "Storage calls that did not return in time, so that another network thread went on.",
    ),
    Metric(
        "refused_connections",
        "counter",
        "",
        "Connections closed at once, since their address had too many.",
    ),
    Metric("idle_closed_connections", "counter", "", "Connections closed since nothing came."),
    Metric(
        "hoarding_closed_connections",
        "counter",
        "",
        "Connections closed since they held memory, moved little or nothing, and memory was short.",
    ),
    Metric(
        "held_bytes", "gauge", "bytes", "Memory of requests that arrive or wait (their budget)."
    ),
    Metric("fetch_sessions", "gauge", "", "Fetch sessions."),
    Metric("fetch_session_partitions", "gauge", "", "Partitions in fetch sessions."),
    Metric("fetch_sessions_evicted", "counter", "", "Fetch sessions that made room for others."),
)

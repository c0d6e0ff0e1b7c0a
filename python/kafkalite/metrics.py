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
)

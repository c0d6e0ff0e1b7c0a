"""The client that docs/ARROW_ENDPOINT.md shows, taken out of it, and what tests need beside it."""

import base64
import json
import re
import socket
import struct
from pathlib import Path
from typing import Any

import kafkalite
from kafkalite.client.admin import BROKER, Admin

PAGE = Path(__file__).parents[2] / "docs" / "ARROW_ENDPOINT.md"
TIMEOUT_S = 60.0


def client_source() -> str:
    """The Python of the page."""
    [source] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(source)


def _client() -> dict[str, Any]:
    """What the page's code defines, up to its last line, which reads."""
    defined: dict[str, Any] = {}
    exec(client_source().rpartition("\n\n")[0], defined)  # noqa: S102 - the project's own page
    return defined


def read(endpoint: str, **request: Any) -> Any:
    """The page's `read`: a table, or OSError with the sentence."""
    return _client()["read"](endpoint, **request)


def connect(endpoint: str) -> socket.socket:
    host, port = endpoint.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


def frame(request: Any) -> bytes:
    """A request as it goes over the wire; bytes go as they are."""
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    return struct.pack(">I", len(body)) + body


def read_request(topic: str, partition: int = 0, **more: Any) -> bytes:
    return frame({"op": "read", "topic": topic, "partition": partition, **more})


def endpoint_of(broker: kafkalite.Broker) -> str:
    """Where a broker's endpoint is, as DescribeConfigs tells."""
    with Admin(broker.bootstrap_servers) as admin:
        described = admin.describe_configs(BROKER, "1")
    return next(str(each.value) for each in described if each.name == "kafkalite.arrow.listener")


def schema_text(schema: Any) -> str:
    """A `pyarrow.Schema` as a request has it."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()

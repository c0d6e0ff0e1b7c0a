"""The partitions of keys that clients name."""

import tracemalloc
from types import SimpleNamespace
from typing import Any, cast

from kafkalite.coordinator.record_serde import RecordSerde
from kafkalite.coordinator.runtime import InternalTopic, Runtime


def test_long_keys_that_clients_name_are_not_remembered() -> None:
    """Ten thousand were, whatever their length: 300 MB of them."""
    topic = InternalTopic("__topic", 50, {}, RecordSerde({}), 0)
    host = cast(Any, SimpleNamespace())
    runtime = Runtime[Any](host, topic, lambda _partition: None)
    tracemalloc.start()
    for number in range(100):
        runtime.partition_of(f"{number:030000}")
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used_bytes < 1_000_000

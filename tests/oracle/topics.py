"""New topics of Kafka's, and when they can be written to."""

import time

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

LED_WITHIN_S = 90


def wait_until_led(admin: AdminClient, topic: str, partitions: int) -> None:
    """Returns when a topic that was just made can be written to: Kafka answers before its broker
    knows that it leads, and of an idempotent producer's first batches it may take the second."""
    latest = {TopicPartition(topic, each): OffsetSpec.latest() for each in range(partitions)}
    deadline = time.monotonic() + LED_WITHIN_S
    while True:
        found = admin.list_offsets(latest, request_timeout=10).values()
        if all(future.exception() is None for future in found):
            return
        assert time.monotonic() < deadline, f"{topic} is not led after {LED_WITHIN_S} s"
        time.sleep(0.05)  # between two polls of the leader

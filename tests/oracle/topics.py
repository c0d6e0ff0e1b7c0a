"""Topics of Kafka's: when new ones can be written to, and when transactions have ended in them."""

import time

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

LED_WITHIN_S = 180
SETTLED_WITHIN_S = 180


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


def wait_until_settled(admin: AdminClient, topic: str) -> None:
    """Returns when no transaction is open in the topic: Kafka answers a commit or an abort once it
    has decided, and writes the markers that readers wait for later."""
    count = len(admin.list_topics(topic, timeout=30).topics[topic].partitions)
    latest = {TopicPartition(topic, each): OffsetSpec.latest() for each in range(count)}

    def ends(isolation: IsolationLevel) -> list[int]:
        found = admin.list_offsets(latest, isolation_level=isolation, request_timeout=10)
        return [future.result().offset for future in found.values()]

    deadline = time.monotonic() + SETTLED_WITHIN_S
    while ends(IsolationLevel.READ_COMMITTED) != ends(IsolationLevel.READ_UNCOMMITTED):
        assert time.monotonic() < deadline, f"a transaction of {topic} is still open"
        time.sleep(0.02)  # between two polls of the leader

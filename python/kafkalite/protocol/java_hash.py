"""Java's hashes of texts, where an answer of Kafka's hangs on them."""

from collections.abc import Iterable

from kafkalite._native import java_hash_code


def java_hash(text: str) -> int:
    """The absolute value of Java's `String.hashCode`, as Kafka takes it (`Utils.abs`)."""
    value = java_hash_code(text)
    if value >= 0x8000_0000:
        value = 0x1_0000_0000 - value
    return 0 if value == 0x8000_0000 else value


def hash_map_order(texts: Iterable[str]) -> list[str]:
    """The texts, each once, in the order in which a `HashMap` gives them back that took them in
    this order. By it a group chooses among protocols with equal votes."""
    keys = list(dict.fromkeys(texts))
    buckets = 16
    while len(keys) > buckets * 3 // 4:
        buckets *= 2

    def bucket(text: str) -> int:
        value = java_hash_code(text)
        return (value ^ value >> 16) & (buckets - 1)

    return sorted(keys, key=bucket)

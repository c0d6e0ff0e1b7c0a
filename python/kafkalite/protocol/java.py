"""Java's reading of texts, where an answer of Kafka's hangs on it."""

from collections.abc import Iterable

from kafkalite._native import java_hash_code


def java_length(text: str) -> int:
    """Java's `String.length`: a character beyond the basic plane counts twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2


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


def java_int(text: str) -> int | None:
    """The number that Java's `Integer.parseInt` makes of a text; None if it makes none."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isdecimal() and max(digits) < "\U00010000" and len(digits) < 20):
        return None
    number = int(text)
    return number if -(1 << 31) <= number < 1 << 31 else None

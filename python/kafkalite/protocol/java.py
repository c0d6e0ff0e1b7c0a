"""What Java makes of texts, where an answer of Kafka's hangs on it."""


def java_length(text: str) -> int:
    """Java's `String.length`: a character beyond the basic plane counts twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2


def java_hash(text: str) -> int:
    """The absolute value of Java's `String.hashCode`, as Kafka takes it (`Utils.abs`)."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8) + units[index + 1]) & 0xFFFF_FFFF
    if value >= 0x8000_0000:
        value = 0x1_0000_0000 - value
    return 0 if value == 0x8000_0000 else value


def java_int(text: str) -> int | None:
    """What Java's `Integer.parseInt` makes of it; None if it is no such number."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        return None
    number = int(text)
    return number if -(1 << 31) <= number < 1 << 31 else None

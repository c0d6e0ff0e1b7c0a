"""Java's reading of texts, where an answer of Kafka's hangs on it."""


def java_length(text: str) -> int:
    """Java's `String.length`: a character beyond the basic plane counts twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2


def java_int(text: str) -> int | None:
    """The number that Java's `Integer.parseInt` makes of a text; None if it makes none."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isdecimal() and max(digits) < "\U00010000" and len(digits) < 20):
        return None
    number = int(text)
    return number if -(1 << 31) <= number < 1 << 31 else None

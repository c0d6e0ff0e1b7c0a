"""Texts of keys to values and back, with Kafka's types, bounds and words (`ConfigDef`)."""

import re
from typing import Any

from kafkalite.config.keys import Key
from kafkalite.errors import InvalidArgumentError
from kafkalite.protocol.java import java_int, java_length

PER_HOST = "max.connections.per.ip.overrides"
NOBODY_MAY_CONNECT = (
    f"requirement failed: max.connections.per.ip can be set to zero only if {PER_HOST} property is "
    "set."
)
_HOST = re.compile(r"[0-9a-zA-Z\-%._:]*")

_BITS = {"short": 16, "int": 32, "long": 64}


def parse(key: Key, text: str) -> Any:
    """The value that `text` stands for: int, float, bool, str, or a list of str.

    Raises InvalidArgumentError, in Kafka's words, which name the key.
    """
    value = _convert(key, text)
    if key.values != "-":
        _check(key, value)
    return value


def text_of(value: Any) -> str | None:
    """A value as Kafka writes it (`ConfigDef.convertToString`)."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    return _double_text(value) if isinstance(value, float) else str(value)


def canonical(key: Key, text: str) -> str | None:
    """A text as Kafka gives it back. One that cannot be, written by another version, stays."""
    try:
        return text_of(parse(key, text))
    except InvalidArgumentError:
        return text


def connections_by_host(text: str) -> dict[str, int]:
    """Reads `max.connections.per.ip.overrides`: `HOST:NUMBER` each, a host by its name or
    address, IPv6 too without brackets. Raises InvalidArgumentError in Kafka's words."""
    limits = {}
    for each in filter(None, map(str.strip, text.split(","))):
        host, colon, number = each.rpartition(":")
        if not colon:
            raise InvalidArgumentError(
                f"Error parsing configuration property '{PER_HOST}': "
                f"begin 0, end -1, length {java_length(each)}"
            )
        limit = java_int(number.strip())
        if limit is None:
            raise InvalidArgumentError(f'For input string: "{number.strip()}"')
        limits[host.strip()] = max(0, limit)
    strange = [host for host in limits if not _HOST.fullmatch(host)]
    if strange:
        raise InvalidArgumentError(f"{PER_HOST} contains invalid addresses : {','.join(strange)}")
    return limits


def refusal(key: Key, value: Any, reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"Invalid value {value} for configuration {key.name}: {reason}")


def _convert(key: Key, given: str) -> Any:
    text = given.strip() if key.kind != "password" else given
    match key.kind:
        case "int" | "long" | "short":
            bits = _BITS[key.kind]
            # Python's int() takes underscores and spaces; Java does not. Both take digits of any
            # script; Java as long as they are one `char`.
            digits = text[1:] if text[:1] in ("-", "+") else text
            if not (digits.isdecimal() and max(digits) < "\U00010000" and len(digits) < 30):
                raise refusal(key, given, f"Not a number of type {key.kind.upper()}")
            number = int(text)
            if not -(1 << bits - 1) <= number < 1 << bits - 1:
                raise refusal(key, given, f"Not a number of type {key.kind.upper()}")
            return number
        case "double":
            try:
                return _double(text)
            except ValueError:
                raise refusal(key, given, "Not a number of type DOUBLE") from None
        case "boolean":
            if text.lower() not in ("true", "false"):
                raise refusal(key, given, "Expected value to be either true or false")
            return text.lower() == "true"
        case "list":
            return [word.strip() for word in text.split(",")] if text else []
        case _:
            return text


def _double(text: str) -> float:
    """As Java's `Double.parseDouble`. Raises ValueError."""
    if text.lstrip("+-") in ("NaN", "Infinity"):
        return float(text)
    # A number may say at its end of what type it is.
    digits = text[:-1] if text[-1:] in tuple("fFdD") else text
    if "x" in digits.lower() and "p" in digits.lower():
        try:
            return float.fromhex(digits)
        except OverflowError:
            return float("-inf" if digits[0] == "-" else "inf")
    if not set(digits) <= set("0123456789+-.eE"):
        raise ValueError(text)
    return float(digits)


def _check(key: Key, value: Any) -> None:
    allowed = key.values
    if allowed == "replicas":
        _check_replicas(key, value)
    elif allowed == "reset":
        _check_reset(key, value)
    elif allowed == "words":
        _check_words(key, value)
    elif allowed[0] == "~":
        choices = allowed[1:].split("|")
        if value.lower() not in choices:
            named = ", ".join(choice.upper() for choice in choices)
            raise refusal(key, value, f"String must be one of (case insensitive): {named}")
    elif ".." in allowed:
        _check_bounds(key, value)
    else:
        if isinstance(value, list):
            _check_words(key, value)
        choices = allowed.split("|")
        for each in value if isinstance(value, list) else [value]:
            if each not in choices:
                raise refusal(key, each, f"String must be one of: {', '.join(choices)}")


def _check_words(key: Key, value: list[str]) -> None:
    if "" in value:
        raise InvalidArgumentError(f"Configuration '{key.name}' values must not be empty.")


def _check_bounds(key: Key, value: float) -> None:
    bounds, _, exception = key.values.partition("|")
    low, _, high = bounds.partition("..")
    if exception:
        if not int(low) <= value <= int(high) and value != int(exception):
            reason = f"Value must be between {low} and {high} or equal to {exception}"
            raise refusal(key, text_of(value), reason)
        return
    if value < int(low):
        raise refusal(key, text_of(value), f"Value must be at least {low}")
    # A NaN is neither below nor above.
    if high and not value <= int(high):
        raise refusal(key, text_of(value), f"Value must be no more than {high}")


def _check_replicas(key: Key, value: list[str]) -> None:
    """`ThrottledReplicaListValidator`"""
    # What is between two commas may also be nothing.
    words = [each for each in value if each]
    if words == ["*"]:
        return
    for each in words:
        partition, colon, broker = each.partition(":")
        if not (each.isascii() and colon and partition.isdigit() and broker.isdigit()):
            form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            raise refusal(
                key,
                f"[{', '.join(value)}]",
                f"{key.name} must be the literal '*' or a list of replicas in the following "
                f"format: {form}",
            )


def _check_reset(key: Key, value: str) -> None:
    """`ShareGroupAutoOffsetResetStrategy`"""
    if value in ("earliest", "latest"):
        return
    kind, _, duration = value.partition(":")
    if kind == "by_duration" and is_duration(duration):
        return
    raise refusal(
        key,
        value,
        f"Invalid value `{value}` for configuration {key.name}. The value must be either "
        "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
    )


def is_duration(text: str) -> bool:
    """True of a duration of days, hours, minutes and seconds, as Java reads ISO-8601."""
    import re

    number = r"[-+]?\d+"
    time = rf"T(?=[-+\d])({number}H)?({number}M)?({number}([.,]\d{{0,9}})?S)?"
    return re.fullmatch(rf"P(?=[-+\dT])({number}D)?({time})?", text, re.IGNORECASE) is not None


def _double_text(value: float) -> str:
    """As Java's `Double.toString`: plain from 0.001 to 10,000,000, else with an exponent."""
    if value == 0 or 1e-3 <= abs(value) < 1e7 or value != value or value in (1e999, -1e999):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))
    digits, _, exponent = f"{value!r}".lower().partition("e")
    if not exponent:
        digits, _, exponent = f"{value:.17e}".partition("e")
        for precision in range(17):
            shorter = f"{value:.{precision}e}"
            if float(shorter) == value:
                digits, _, exponent = shorter.partition("e")
                break
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"

"""What the commands make of their arguments, before anybody is asked."""

import pytest

from kafkalite.cli.groups.reset import parse_datetime, parse_duration
from kafkalite.cli.options import UsageError, parse_settings


@pytest.mark.parametrize(
    ("texts", "settings"),
    [
        (["a=1"], {"a": "1"}),
        (["a=1,b=2", "c=3"], {"a": "1", "b": "2", "c": "3"}),
        (["cleanup.policy=[compact,delete],a=1"], {"cleanup.policy": "compact,delete", "a": "1"}),
        (["cleanup.policy=compact,delete"], {"cleanup.policy": "compact,delete"}),
        (["a="], {"a": ""}),
        (["a = 1 , b = x=y"], {"a": "1", "b": "x=y"}),
    ],
)
def test_settings_are_pairs(texts: list[str], settings: dict[str, str]) -> None:
    assert parse_settings(texts) == settings


@pytest.mark.parametrize("text", ["a", "=1", ",a=1"])
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_settings([text])


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT0S", 0),
        ("PT1.5S", 1_500),
        ("P1D", 86_400_000),
        ("P1DT2H3M4S", 93_784_000),
        ("-PT1M", -60_000),
        ("PT-1H", -3_600_000),
        ("pt2m", 120_000),
    ],
)
def test_durations_are_those_of_iso_8601(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "P1DT", "P1Y", "PT1X", f"P{'9' * 5000}D"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("1970-01-01T00:00:01.5Z", 1_500),
        ("2026-11-21T06:00:00.123+02:00", 1_795_233_600_123),
        ("2026-11-21T06:00:00.123-0100", 1_795_244_400_123),
        ("2026-11-21T06:00", 1_795_240_800_000),
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str, milliseconds: int) -> None:
    assert parse_datetime(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "2026", "2026-13-01T00:00:00", "2026-01-01T00:00+99:99", "now"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_datetime(text)

"""`subscribePattern` is an expression of Java's. `tests/spark/test_patterns.py` asks Java."""

import pytest

from kafkalite.spark.options.java_regex import java_pattern

NAMES = ("orders", "orders-2", "Orders", "a.b", "axb", "aa", "abab", "x_1", "_schemas")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("orders", ["orders", "orders-2"]),
        ("^orders$", ["orders"]),
        ("^rders", []),
        ("orders$|x_\\d", ["orders", "x_1"]),
        ("(?i)ORDERS$", ["orders", "Orders"]),
        ("(?:o|(?i)O)rders", ["orders", "orders-2", "Orders"]),
        ("^[a-z&&[^o]].*", ["a.b", "axb", "aa", "abab", "x_1"]),
        ("\\Qa.b\\E", ["a.b"]),
        ("a\\.b", ["a.b"]),
        ("\\A\\p{Lower}+\\z", ["orders", "axb", "aa", "abab"]),
        ("\\P{Alpha}\\p{L}+", ["a.b", "_schemas"]),
        ("(?<pair>ab)\\k<pair>", ["abab"]),
        ("(a)\\1|(?=o).{6}$", ["orders", "aa"]),
        ("^(?!_).*+", [each for each in NAMES if each != "_schemas"]),
        ("^[a-]+$", ["aa"]),
        ("\\x61\\u0061", ["aa"]),
    ],
)
def test_names_are_found_by_what_java_finds_in_them(pattern: str, found: list[str]) -> None:
    compiled = java_pattern(pattern)
    assert [each for each in NAMES if compiled.search(each)] == found


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("a(", "a group is not closed"),
        ("a)", "a '\\)' that closes nothing"),
        ("*a", "nothing stands before the '\\*'"),
        ("a**", "nothing stands before the '\\*'"),
        ("{2}", "nothing stands before the '{'"),
        ("[a", "it ends too early"),
        ("[b-a]", "a range that is none"),
        ("[&&]", "a class that holds nothing"),
        ("(?P<n>a)", "'\\(\\?P' is not understood"),
        ("(?x)a b", "'\\(\\?x' is not understood"),
        ("\\p{Greek}", "Greek} is not understood"),
        ("\\G", "\\\\G is not understood"),
        ("\\2(a)", "there is no group 2 before it"),
        ("(?<=a*)b", "look-behind"),
        ("\\", "it ends too early"),
    ],
)
def test_what_is_not_understood_is_refused(pattern: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        java_pattern(pattern)

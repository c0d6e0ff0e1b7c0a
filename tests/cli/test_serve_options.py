"""The plain command line of `serve`, which is read without argparse but as argparse reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.cli.serve import Options, parsed_options, plain_options

WORDS = st.sampled_from(
    [
        "file.properties",
        "--data",
        "--listen",
        "--config",
        "--override",
        "--log-level",
        "--log-format",
        "json",
        "127.0.0.1:0",
        "[::1]:9092",
        "9092",
        "a=b",
        "a=-1",
        "-x=1",
        "debug",
        "loud",
        "--data=x",
        "--da",
        "--",
        "-h",
        "",
    ]
)


def test_every_option_is_read() -> None:
    arguments = ["--data", "d", "f", "--config", "a=1", "--override", "b=", "--listen", "h:1"]
    expected = Options("f", "d", "h:1", ["a=1", "b="], "error")
    assert plain_options([*arguments, "--log-level", "error"]) == expected
    assert parsed_options([*arguments, "--log-level=error"]) == expected
    assert plain_options(["--log-format", "json"]) == Options(None, None, None, [], "info", "json")
    assert plain_options([]) == Options(None, None, None, [], "info")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--data=x"], ["--listen", "1"], ["a", "b"], ["--config", "a"]]
)
def test_the_rest_is_left_to_argparse(arguments: list[str]) -> None:
    assert plain_options(arguments) is None


@given(st.lists(WORDS, max_size=6))
def test_what_is_read_is_what_argparse_reads(arguments: list[str]) -> None:
    plain = plain_options(arguments)
    if plain is not None:
        assert parsed_options(arguments) == plain

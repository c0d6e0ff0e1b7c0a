"""The README's table is the one that the tests are made of."""

from clients.neutral import FEATURES
from clients.table import CLIENTS, README, with_table


def test_the_readme_holds_the_table_of_the_tests() -> None:
    text = README.read_text()
    assert text == with_table(text), "run `python -m clients.table` in tests/"


def test_every_client_that_lacks_a_feature_says_why() -> None:
    for client in CLIENTS:
        assert set(client.lacks) <= set(FEATURES)
        assert all(len(reason) > 10 for reason in client.lacks.values())


def test_every_feature_is_tested() -> None:
    tests = "".join(path.read_text() for path in README.parent.glob("test_*.py"))
    assert [feature for feature in FEATURES if f'@behaviour("{feature}")' not in tests] == []

"""How a group's leader shares partitions out."""

import pytest

from kafkalite.client.membership import assign_range

Members = list[tuple[str, str | None, list[str]]]


@pytest.mark.parametrize(
    ("members", "counts", "shares"),
    [
        ([("a", None, ["t"])], {"t": 3}, {"a": [("t", 0), ("t", 1), ("t", 2)]}),
        (
            [("b", None, ["t"]), ("a", None, ["t"])],
            {"t": 3},
            {"a": [("t", 0), ("t", 1)], "b": [("t", 2)]},
        ),
        (
            [("a", None, ["t", "u"]), ("b", None, ["t"])],
            {"t": 2, "u": 1},
            {"a": [("t", 0), ("u", 0)], "b": [("t", 1)]},
        ),
        # A static member comes before the others, by its instance id.
        (
            [("a", None, ["t"]), ("z", "one", ["t"])],
            {"t": 3},
            {"z": [("t", 0), ("t", 1)], "a": [("t", 2)]},
        ),
        ([("a", None, ["t"]), ("b", None, ["t"])], {"t": 1}, {"a": [("t", 0)], "b": []}),
        ([("a", None, ["missing"])], {}, {"a": []}),
    ],
)
def test_partitions_are_shared_out_in_runs(
    members: Members, counts: dict[str, int], shares: dict[str, list[tuple[str, int]]]
) -> None:
    assert assign_range(members, counts) == shares

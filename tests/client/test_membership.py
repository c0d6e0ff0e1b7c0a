"""How a group's leader shares partitions out, and how a member goes."""

import threading

import pytest

import kafkalite
from kafkalite.client.membership import GroupOptions, Membership, assign_range

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


def test_a_member_that_is_interrupted_as_its_heartbeats_begin_leaves_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`kafkalite perf consume` ended with a traceback on Ctrl-C: "cannot join thread before it is
    started"."""

    def interrupt(_thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    with kafkalite.Broker() as broker:
        member = Membership(broker.bootstrap_servers, GroupOptions("group"), "client")
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", interrupt)
            with pytest.raises(KeyboardInterrupt):
                member.join(["orders"], lambda _topics: {})
        member.leave()
        with kafkalite.client.GroupAdmin(broker.bootstrap_servers) as admin:
            assert admin.describe("group").members == []

"""Every public argument, with what cannot be meant: of another type, negative, too large, None. It
is refused by one sentence that names the argument, before anybody is asked."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkalite.client import Admin, Consumer, GroupAdmin, Producer
from kafkalite.errors import InvalidArgumentError

NOWHERE = "127.0.0.1:1"
ORDERS = ("orders", 0)
GIVEN: dict[str, Any] = {
    "assigned": [ORDERS],
    "bootstrap_servers": NOWHERE,
    "changes": {},
    "count": 2,
    "group": "readers",
    "name": "orders",
    "names": ["orders"],
    "offset": 0,
    "offsets": {ORDERS: 0},
    "partitions": [ORDERS],
    "resource_name": "orders",
    "resource_type": 2,
    "timestamps": {ORDERS: 0},
    "topic": "orders",
    "topics": ["orders"],
    "value": b"value",
}
"""What a call needs beside the argument that is wrong."""
PASSED_OVER = {"after_fork", "at_exit", "drive", "wakeup"}
"""Not called by programs, or without arguments."""


def make(kind: type) -> Any:
    if kind is Producer:
        return Producer(NOWHERE, max_block_ms=0)
    group = {"group": "readers"} if kind is Consumer else {}
    return kind(NOWHERE, timeout_ms=0, **group)


def wrong_values(annotation: str) -> Iterator[object]:
    """What the annotation does not take."""
    yield object()
    if "None" not in annotation:
        yield None
    if annotation in ("int", "int | None"):
        yield from (-(2**40), 2**70, 1.5, True, "x")
    if annotation == "str":
        yield from (b"x", 5, "\ud800", "x" * 40_000)
    if annotation == "bool":
        yield from (1, "yes")


def cases() -> Iterator[Any]:
    for kind in (Producer, Consumer, Admin, GroupAdmin):
        calls: list[tuple[str, Callable[..., Any]]] = [("__init__", kind)]
        found = inspect.getmembers(kind, inspect.isfunction)
        calls += [each for each in found if each[0][0] != "_" and each[0] not in PASSED_OVER]
        for name, call in calls:
            for parameter in inspect.signature(call).parameters.values():
                if parameter.name == "self":
                    continue
                annotation = inspect.formatannotation(parameter.annotation)
                for number, value in enumerate(wrong_values(annotation)):
                    yield pytest.param(
                        kind,
                        name,
                        parameter.name,
                        value,
                        id=f"{kind.__name__}.{name}-{parameter.name}-{number}",
                    )


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("kind", "name", "argument", "value"), list(cases()))
def test_what_a_caller_gets_wrong_is_named(
    kind: type, name: str, argument: str, value: object
) -> None:
    call = kind if name == "__init__" else getattr(kind, name)
    parameters = inspect.signature(call).parameters.values()
    given = {
        each.name: GIVEN.get(each.name, ORDERS)
        for each in parameters
        if each.default is each.empty and each.name != "self"
    }
    given[argument] = value
    with pytest.raises((TypeError, InvalidArgumentError)) as refusal:
        if name == "__init__":
            kind(**given)
        else:
            with make(kind) as client:
                getattr(client, name)(**given)
    sentence = str(refusal.value)
    assert argument in sentence
    assert "\n" not in sentence

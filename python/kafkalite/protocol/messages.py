"""The classes of Kafka's messages, made out of the schema table when they are first named.

    from kafkalite.protocol import messages
    response = messages.CreateTopicsResponse(throttle_time_ms=0)
    response.topics.append(messages.CreateTopicsResponse.CreatableTopicResult(name="orders"))

A class is the same for every version of its message: a field that a version lacks holds its default
after decoding and is left out when encoding. Structs are classes inside the class of their message.
Types: integers int, string str, uuid and bytes bytes, arrays list; null is None. What is encoded
may have tuples for structs: their fields in the table's order.
"""

from collections.abc import Callable
from typing import Any, ClassVar, cast

from kafkalite._native import MessageCodec, message_layout


class Message:
    """A message or a struct of one; keyword arguments set fields, the others get their defaults."""

    __slots__ = ()

    _name: ClassVar[str]
    _fields: ClassVar[tuple[str, ...]]
    _structs: ClassVar[tuple[type["Message"] | None, ...]]
    _codec: ClassVar[MessageCodec]

    decode: ClassVar[Callable[[bytes, int], Any]]
    """The message in a body of a version; raises MalformedRequestError where the bytes are none."""
    pack: ClassVar[Callable[[tuple[Any, ...], int], bytes]]
    """The body, in a version, of the message that has these fields, in the table's order."""

    def __init__(self, **fields: Any) -> None:
        self._codec.fill(self, fields)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            getattr(self, name) == getattr(other, name) for name in self._fields
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{self._name}({fields})"

    def encode(self, version: int) -> bytes:
        """The body of the message in `version`."""
        return self._codec.encode(self, version)


def _make(layout: tuple[str, list[Any]], *, is_message: bool) -> type[Message]:
    name, fields = layout
    structs = tuple(inner and _make(inner, is_message=False) for _, _, inner in fields)
    namespace: dict[str, Any] = {
        "__slots__": tuple(field for field, _, _ in fields),
        "__module__": __name__,
        "_name": name,
        "_fields": tuple(field for field, _, _ in fields),
        "_structs": structs,
    }
    for struct in structs:
        if struct is not None:
            namespace[struct._name] = struct
    made = cast("type[Message]", type(name, (Message,), namespace))
    inside = [
        (field, default, None if struct is None else struct._codec)
        for (field, default, _), struct in zip(fields, structs, strict=True)
    ]
    codec = made._codec = MessageCodec(made, name, is_message, inside)
    made.decode, made.pack = codec.decode, codec.encode
    return made


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    made = _make(message_layout(name), is_message=True)
    globals()[name] = made
    return made

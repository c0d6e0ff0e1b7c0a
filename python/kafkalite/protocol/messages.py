"""The classes of Kafka's messages, made out of the schema table when they are first named.

    from kafkalite.protocol import messages
    response = messages.CreateTopicsResponse(throttle_time_ms=0)
    response.topics.append(messages.CreateTopicsResponse.CreatableTopicResult(name="orders"))

A class is the same for every version of its message: a field that a version lacks holds its default
after decoding and is left out when encoding. Structs are classes inside the class of their message.
Types: integers int, string str, uuid and bytes bytes, arrays list; null is None.
"""

from typing import Any, ClassVar

from kafkalite._native import decode_message, encode_message, message_layout


class Message:
    """A message or a struct of one; keyword arguments set fields, the others get their defaults."""

    __slots__ = ()

    _name: ClassVar[str]
    _fields: ClassVar[tuple[str, ...]]
    _structs: ClassVar[tuple[type["Message"] | None, ...]]
    _defaults: ClassVar[tuple[Any, ...]]

    def __init__(self, **fields: Any) -> None:
        for name, default, struct in zip(self._fields, self._defaults, self._structs, strict=True):
            if name in fields:
                value = fields.pop(name)
            elif isinstance(default, list):
                value = []
            elif default is ... and struct is not None:
                value = struct()
            else:
                value = default
            setattr(self, name, value)
        if fields:
            raise TypeError(f"{self._name} has no field {', '.join(fields)}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            getattr(self, name) == getattr(other, name) for name in self._fields
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{self._name}({fields})"

    @classmethod
    def decode(cls, body: bytes, version: int) -> Any:
        """The message in `body`. Raises MalformedRequestError where the bytes are not one."""
        return decode_message(cls, version, body)

    def encode(self, version: int) -> bytes:
        """The body of the message in `version`."""
        return encode_message(self, version)


def _make(layout: tuple[str, list[Any]]) -> type[Message]:
    name, fields = layout
    structs = tuple(inner and _make(inner) for _, _, inner in fields)
    namespace: dict[str, Any] = {
        "__slots__": tuple(field for field, _, _ in fields),
        "__module__": __name__,
        "_name": name,
        "_fields": tuple(field for field, _, _ in fields),
        "_defaults": tuple(default for _, default, _ in fields),
        "_structs": structs,
    }
    for struct in structs:
        if struct is not None:
            namespace[struct._name] = struct
    return type(name, (Message,), namespace)


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    made = _make(message_layout(name))
    globals()[name] = made
    return made

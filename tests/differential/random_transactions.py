"""Transactions of two clients at random: what each does next, and what it does wrongly.

A story is a list of acts. Mostly a client goes on as a producer would: asks for its producer id,
adds partitions, produces, sends offsets, ends the transaction. Else it does something out of turn,
or sends a field that it should not. Both clients may use one transactional id, and so fence each
other. The words of an act are the same for every broker; `transaction_player.py` makes requests of
them by what the broker has answered so far.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NAMES = ("one", "two")

# Versions as clients have them together: before flexible ones, those that add their partitions
# themselves, those whose every transaction has an epoch of its own (KIP-890).
STYLES: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "old": {
        "InitProducerId": (0, 1),
        "AddPartitionsToTxn": (0, 1),
        "AddOffsetsToTxn": (0, 1),
        "TxnOffsetCommit": (0, 2),
        "EndTxn": (0, 1),
        "Produce": (3, 8),
    },
    "adds": {
        "InitProducerId": (2, 4),
        "AddPartitionsToTxn": (2, 3),
        "AddOffsetsToTxn": (2, 4),
        "TxnOffsetCommit": (3, 4),
        "EndTxn": (2, 4),
        "Produce": (9, 11),
    },
    "own epochs": {
        "InitProducerId": (5, 5),
        "AddPartitionsToTxn": (3, 3),
        "AddOffsetsToTxn": (4, 4),
        "TxnOffsetCommit": (5, 5),
        "EndTxn": (5, 5),
        "Produce": (12, 13),
    },
}
OWN_EPOCHS = "own epochs"

PLACES = (("a", 0), ("a", 1), ("b", 0))
GROUPS = ("g", "h")
ODD_PLACES = (("none", 0), ("a", 9), ("b", -1))
STRANGER = 1 << 40
"""A producer id that no broker has given."""
INT_MAX, LONG_MAX, SHORT_MAX = 2**31 - 1, 2**63 - 1, 2**15 - 1


@dataclass(frozen=True)
class Client:
    """A producer as it is for a whole story."""

    name: str
    transactional_id: str
    style: str
    versions: Mapping[str, int]


@dataclass(frozen=True)
class Of:
    """What a client has been told: its `producer_id` or `epoch`, `plus` a number."""

    who: str
    what: str
    plus: int = 0


@dataclass(frozen=True)
class Act:
    """What a client does. `wrong` stands in place of the fields that it would send."""

    who: str
    what: str
    with_: Mapping[str, Any] = field(default_factory=dict)
    wrong: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Story:
    """Clients, and what they do."""

    clients: Mapping[str, Client]
    acts: Sequence[Act]


def story(seed: int, length: int, styles: Sequence[str] = tuple(STYLES)) -> Story:
    """The same for the same arguments."""
    source = random.Random(seed)
    is_shared = source.random() < 0.4
    clients = {}
    for name in NAMES:
        style = source.choice(styles)
        versions = {api: source.randint(*bounds) for api, bounds in STYLES[style].items()}
        transactional_id = NAMES[0] if is_shared else name
        clients[name] = Client(name, transactional_id, style, versions)
    draw = _Draw(source, clients)
    return Story(clients, [draw.act() for _ in range(length)])


class _Draw:
    """Draws acts; remembers what each client should have open, if all goes well."""

    def __init__(self, source: random.Random, clients: Mapping[str, Client]) -> None:
        self._source = source
        self._clients = clients
        self._added: dict[str, set[Any]] = {name: set() for name in clients}
        self._has_begun: dict[str, bool] = dict.fromkeys(clients, False)

    def act(self) -> Act:
        who = self._source.choice(NAMES)
        turn = self._source.random()
        if turn < 0.72:
            return self._good(who)
        return self._any(who, self._source.random() < 0.65)

    def _good(self, who: str) -> Act:
        """The next thing that a producer may do."""
        source, added = self._source, self._added[who]
        if not self._has_begun[who] or source.random() < 0.06:
            self._has_begun[who] = True
            added.clear()
            return Act(who, "InitProducerId", {"expects": source.random() < 0.4})
        adds_itself = self._clients[who].style == OWN_EPOCHS
        turn = source.random()
        if added and turn < 0.3:
            added.clear()
            return Act(who, "EndTxn", {"committed": source.random() < 0.6})
        if turn < 0.45:
            group = source.choice(GROUPS)
            if not adds_itself and group not in added:
                added.add(group)
                return Act(who, "AddOffsetsToTxn", {"group": group})
            added.add(group)
            return Act(who, "TxnOffsetCommit", self._offsets(group))
        places = source.sample(PLACES, source.choice((1, 1, 2)))
        if not adds_itself and not added.issuperset(places):
            added.update(places)
            return Act(who, "AddPartitionsToTxn", {"places": places})
        added.update(places)
        return Act(who, "Produce", {"places": places, "count": source.choice((1, 1, 2))})

    def _offsets(self, group: str) -> dict[str, Any]:
        places = self._source.sample(PLACES, self._source.choice((1, 2)))
        return {"group": group, "places": places, "offset": self._source.randrange(100)}

    def _any(self, who: str, is_wrong: bool) -> Act:
        """What a client would not do now, or not so."""
        source = self._source
        places = source.sample(PLACES, source.choice((1, 2)))
        group = source.choice(GROUPS)
        what, good = source.choice(
            (
                ("InitProducerId", {"expects": source.random() < 0.6}),
                ("AddPartitionsToTxn", {"places": places}),
                ("AddOffsetsToTxn", {"group": group}),
                ("TxnOffsetCommit", self._offsets(group)),
                ("TxnOffsetCommit", self._offsets(group)),
                ("EndTxn", {"committed": source.random() < 0.5}),
                ("EndTxn", {"committed": source.random() < 0.5}),
                ("Produce", {"places": places, "count": 1}),
                ("Produce", {"places": places, "count": 1}),
                ("verify", {"places": places, "only": source.random() < 0.6}),
                ("WriteTxnMarkers", {"places": places, "committed": source.random() < 0.5}),
                ("ListTransactions", {}),
            )
        )
        return Act(who, what, good, self._wrong(who, what) if is_wrong else {})

    def _wrong(self, who: str, what: str) -> Mapping[str, Any]:
        """One field with a value that it should not have."""
        source = self._source
        other = NAMES[who == NAMES[0]]
        producer_id = source.choice((Of(other, "producer_id"), STRANGER, -1, -2, LONG_MAX))
        epoch = source.choice(
            (Of(who, "epoch", -1), Of(who, "epoch", 1), Of(other, "epoch"), -1, -2, SHORT_MAX)
        )
        of_producer = (
            ("transactional_id", source.choice((other, "nobody", ""))),
            ("producer_id", producer_id),
            ("producer_epoch", epoch),
            ("producer_epoch", epoch),
        )
        odd = source.choice(ODD_PLACES)
        places = source.choice(([], [odd], [PLACES[0], odd], [PLACES[0], PLACES[0]]))
        fields: Mapping[str, Sequence[tuple[str, Any]]] = {
            "InitProducerId": (
                *of_producer,
                ("transactional_id", None),
                ("transaction_timeout_ms", source.choice((0, -1, 900_000, 900_001, INT_MAX))),
            ),
            "AddPartitionsToTxn": (*of_producer, ("places", places)),
            "AddOffsetsToTxn": (*of_producer, ("group", source.choice(("", "unknown")))),
            "TxnOffsetCommit": (
                *of_producer,
                ("places", places),
                ("group", source.choice(("", "unknown"))),
                ("generation_id", source.choice((0, 5, -2))),
                ("member_id", source.choice(("nobody", "somebody"))),
                ("group_instance_id", source.choice(("", "instance"))),
                ("committed_metadata", source.choice((None, "word", "x" * 5000))),
                ("offset", source.choice((-1, -2, LONG_MAX))),
            ),
            "EndTxn": of_producer,
            "Produce": (
                *of_producer,
                ("transactional_id", None),
                ("sequence", source.choice((0, -1, 1, 5, INT_MAX))),
                ("is_transactional", False),
                ("acks", 1),
                ("places", places[:1]),
            ),
            "verify": (*of_producer, ("places", places)),
            "WriteTxnMarkers": (
                # Kafka answers no marker for a partition that is named twice.
                # A later epoch in a partition, also of a coordinator, leaves transactions open.
                ("producer_id", source.choice((STRANGER, -1, -2, LONG_MAX))),
                ("producer_epoch", source.choice((Of(who, "epoch", -1), -1, -2))),
                ("places", places if len(set(places)) == len(places) else [odd]),
                ("coordinator_epoch", -1),
                ("transaction_version", source.choice((0, 1, 2, 3, -1))),
            ),
            "ListTransactions": (
                ("state_filters", [source.choice(("Ongoing", "Empty", "CompleteAbort"))]),
                ("producer_id_filters", [producer_id]),
            ),
        }
        name, value = source.choice(fields[what])
        return {name: value}

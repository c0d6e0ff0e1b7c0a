"""Plays a story of `random_transactions.py` against one broker, and shows what is seen: the answers
after each act, and at its end the partitions' batches, `__transaction_state` and the offsets in
`__consumer_offsets`.

A transaction that is decided goes on to its end without anybody asking, and its coordinator tells
nobody when: what ends one is followed by DescribeTransactions until the transaction has ended.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from differential.differences import DIFFERENCES
from differential.group_player import Difference
from differential.random_transactions import (
    GROUPS,
    NAMES,
    PLACES,
    SHORT_MAX,
    STRANGER,
    Act,
    Client,
    Of,
)
from differential.runner import TABLE, Runner, compare
from differential.script import ZERO_ID, Batch, Case, appears, create, id_of
from golden.table import Field
from kafkalite._native import RecordBatch, read_batches
from kafkalite.groups.records import KINDS
from kafkalite.protocol import messages

TOPICS = {"a": 2, "b": 1}
TIMEOUT_MS = 60_000
ENDS_S = 10.0
PREPARED = ("PrepareCommit", "PrepareAbort")
READ_COMMITTED = 1
STATE_TOPIC, OFFSETS_TOPIC = "__transaction_state", "__consumer_offsets"
FETCHED_MAX = 1 << 22
OFFSET_KIND = 1


@dataclass
class Producer:
    """What a client knows of itself."""

    producer_id: int = -1
    epoch: int = -1
    sequences: dict[tuple[int, int, Any], int] = field(default_factory=dict)
    """By producer id, epoch and partition."""


@dataclass(frozen=True)
class Seen:
    """An answer in shared words."""

    api: str
    answer: Any


class TransactionPlayer:
    """One broker, and the clients of a story. A world is a prefix of names."""

    def __init__(self, bootstrap_servers: str, clients: Mapping[str, Client], world: str) -> None:
        self._runner = TransactionRunner(bootstrap_servers)
        self._clients, self._world = clients, world
        self._producers = {name: Producer() for name in clients}
        self._given: set[int] = set()
        self._numbers = 0
        self._seen: dict[str, Seen] = {}

    def play(self, acts: Sequence[Act]) -> list[dict[str, Seen]]:
        """What is seen after each act, and at the end."""
        try:
            self._make_world()
            starts = {name: self._end_of(name) for name in (STATE_TOPIC, OFFSETS_TOPIC)}
            steps = []
            for number, act in enumerate(acts):
                self._seen = {}
                self._act(f"{number:02} {act.who} {act.what}", act)
                self._look(f"{number:02}")
                steps.append(self._seen)
            self._seen = {}
            self._read_partitions()
            self._read_state(starts[STATE_TOPIC])
            self._read_offsets(starts[OFFSETS_TOPIC])
            return [*steps, self._seen]
        finally:
            self._runner.close()

    def _make_world(self) -> None:
        topics = [
            each
            for topic, partitions in TOPICS.items()
            for each in (
                create(topic, self._name(topic), partitions=partitions),
                appears(self._name(topic)),
            )
        ]
        found = [
            Case(
                f"coordinator {kind}",
                "FindCoordinator",
                4,
                {"key_type": kind, "coordinator_keys": [self._world]},
                until={"coordinators.0.error_code": 0},
            )
            for kind in (0, 1)
        ]
        loaded = Case(
            "the coordinator has loaded",
            "InitProducerId",
            4,
            {"transactional_id": "at-random", "transaction_timeout_ms": TIMEOUT_MS},
            until={"error_code": 0},
        )
        groups = Case(
            "the groups are loaded",
            "OffsetFetch",
            9,
            {"groups": [{"group_id": self._world, "topics": []}]},
            until={"groups.0.error_code": 0},
        )
        self._runner.run([*topics, *found, loaded, groups])

    def _name(self, name: str) -> str:
        return f"{self._world}-{name}" if name else name

    def _ask(self, name: str, api: str, version: int, fields: Mapping[str, Any], on: str) -> Any:
        case = Case(name, api, version, fields, on=on)
        answer = self._runner.message(case, self._runner.send(case))
        self._seen[name] = Seen(api, self._shown(case, answer))
        return answer

    def _shown(self, case: Case, answer: Any) -> Any:
        return answer if isinstance(answer, str) else self._runner.shared(case, answer)

    # --- requests ---------------------------------------------------------------------------------

    def _act(self, name: str, act: Act) -> None:
        client, producer = self._clients[act.who], self._producers[act.who]
        of_producer = {
            "transactional_id": self._name(client.transactional_id),
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
        }
        fields = {**of_producer, **act.with_, **self._resolved(act.wrong)}
        if act.what == "Produce":
            self._produce(name, client, fields, is_wrong=bool(act.wrong))
            return
        request = getattr(self, f"_{act.what.lower()}")(client, fields)
        api = "AddPartitionsToTxn" if act.what == "verify" else act.what
        version = {"verify": 4, "WriteTxnMarkers": 2, "ListTransactions": 2}.get(act.what)
        version = client.versions[api] if version is None else version
        answer = self._ask(name, api, version, request, act.who)
        if not isinstance(answer, str):
            self._learn(act, version, answer)

    def _resolved(self, wrong: Mapping[str, Any]) -> dict[str, Any]:
        resolved: dict[str, Any] = {}
        for key, value in wrong.items():
            if key == "transactional_id" and value is not None:
                resolved[key] = self._name(value)
            elif isinstance(value, list):
                resolved[key] = [self._told(each) for each in value]
            else:
                resolved[key] = self._told(value)
        return resolved

    def _told(self, value: Any) -> Any:
        if not isinstance(value, Of):
            return value
        told = getattr(self._producers[value.who], value.what) + value.plus
        return min(told, SHORT_MAX) if value.what == "epoch" else told

    def _learn(self, act: Act, version: int, answer: Any) -> None:
        producer = self._producers[act.who]
        is_end = act.what == "EndTxn" and version >= 5
        if act.what == "InitProducerId" and answer.error_code and not act.wrong:
            producer.producer_id = producer.epoch = -1
        is_own = "transactional_id" not in act.wrong
        if (act.what == "InitProducerId" or is_end) and answer.error_code == 0 and is_own:
            producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
            self._given.add(producer.producer_id)

    def _initproducerid(self, _client: Client, fields: dict[str, Any]) -> dict[str, Any]:
        if not fields.pop("expects"):
            fields.update(producer_id=-1, producer_epoch=-1)
        return {"transaction_timeout_ms": TIMEOUT_MS, **fields}

    def _topics(self, places: Sequence[Any]) -> dict[str, list[int]]:
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(self._name(topic), []).append(partition)
        return topics

    def _addpartitionstotxn(self, _client: Client, fields: dict[str, Any]) -> dict[str, Any]:
        topics = self._topics(fields.pop("places"))
        listed = [{"name": name, "partitions": indexes} for name, indexes in topics.items()]
        fields["topics"] = listed
        return {f"v3_and_below_{key}": value for key, value in fields.items()}

    def _verify(self, _client: Client, fields: dict[str, Any]) -> dict[str, Any]:
        """AddPartitionsToTxn as brokers send it."""
        topics = self._topics(fields.pop("places"))
        listed = [{"name": name, "partitions": indexes} for name, indexes in topics.items()]
        fields["verify_only"] = fields.pop("only")
        return {"transactions": [fields | {"topics": listed}]}

    def _addoffsetstotxn(self, _client: Client, fields: dict[str, Any]) -> dict[str, Any]:
        return fields | {"group_id": self._name(fields.pop("group"))}

    def _txnoffsetcommit(self, _client: Client, fields: dict[str, Any]) -> dict[str, Any]:
        committed = {
            "committed_offset": fields.pop("offset"),
            "committed_metadata": fields.pop("committed_metadata", ""),
        }
        topics = self._topics(fields.pop("places"))
        listed = [
            {"name": name, "partitions": [{"partition_index": i, **committed} for i in indexes]}
            for name, indexes in topics.items()
        ]
        return fields | {"group_id": self._name(fields.pop("group")), "topics": listed}

    def _endtxn(self, _client: Client, fields: dict[str, Any]) -> dict[str, Any]:
        return fields

    def _writetxnmarkers(self, _client: Client, fields: dict[str, Any]) -> dict[str, Any]:
        topics = self._topics(fields.pop("places"))
        fields["transaction_result"] = fields.pop("committed")
        del fields["transactional_id"]
        listed = [{"name": name, "partition_indexes": each} for name, each in topics.items()]
        return {"markers": [fields | {"topics": listed}]}

    def _listtransactions(self, _client: Client, fields: dict[str, Any]) -> dict[str, Any]:
        filters = {key: fields[key] for key in fields if key.endswith("_filters")}
        return {**filters, "transactional_id_pattern": f"{self._world}.*"}

    def _produce(
        self, name: str, client: Client, fields: dict[str, Any], *, is_wrong: bool
    ) -> None:
        version = client.versions["Produce"]
        producer = self._producers[client.name]
        key = (fields["producer_id"], fields["producer_epoch"])
        data: dict[str, list[Any]] = {}
        for place in fields["places"]:
            sequence = fields.get("sequence", producer.sequences.get((*key, place), 0))
            batch = Batch(
                [b"%d" % (self._numbers + n) for n in range(fields["count"])],
                producer=(*key, sequence),
                transactional=fields.get("is_transactional", True),
            )
            self._numbers += fields["count"]
            data.setdefault(place[0], []).append({"index": place[1], "records": [batch]})
        request = {
            "transactional_id": fields["transactional_id"],
            "acks": fields.get("acks", -1),
            "timeout_ms": 10_000,
            "topic_data": [
                {
                    "name": self._name(topic),
                    "topic_id": id_of(self._name(topic)) if version >= 13 else ZERO_ID,
                    "partition_data": partitions,
                }
                for topic, partitions in data.items()
            ],
        }
        answer = self._ask(name, "Produce", version, request, client.name)
        if isinstance(answer, str):
            return
        codes = [row.error_code for topic in answer.responses for row in topic.partition_responses]
        if not is_wrong and not any(codes):
            for place in fields["places"]:
                now = producer.sequences.get((*key, place), 0)
                producer.sequences[*key, place] = now + fields["count"]

    # --- what is seen after each act ------------------------------------------------------------

    def _look(self, name: str) -> None:
        self._settle(f"{name} states")
        places = [
            {"partition_index": index, "timestamp": -1, "current_leader_epoch": -1}
            for index in range(2)
        ]
        topics = [
            {"name": self._name(topic), "partitions": places[:count]}
            for topic, count in TOPICS.items()
        ]
        stable = {"replica_id": -1, "isolation_level": READ_COMMITTED, "topics": topics}
        self._ask(f"{name} stable ends", "ListOffsets", 7, stable, "look")
        indexes = [
            {"name": self._name(topic), "partition_indexes": list(range(count))}
            for topic, count in TOPICS.items()
        ]
        groups = [{"group_id": self._name(group), "topics": indexes} for group in GROUPS]
        for is_stable in (False, True):
            fetched = {"groups": groups, "require_stable": is_stable}
            self._ask(f"{name} offsets, {is_stable}", "OffsetFetch", 9, fetched, "look")
        self._ask(f"{name} producers", "DescribeProducers", 0, {"topics": indexes}, "look")

    def _settle(self, name: str) -> None:
        """Waits until no transaction is about to end."""
        fields = {"transactional_ids": [self._name(each) for each in NAMES]}
        case = Case(name, "DescribeTransactions", 0, fields, on="look")
        deadline = time.monotonic() + ENDS_S
        while True:
            answer = self._runner.message(case, self._runner.send(case))
            assert not isinstance(answer, str), answer
            states = [each.transaction_state for each in answer.transaction_states]
            if not any(each in PREPARED for each in states) or time.monotonic() > deadline:
                break
            time.sleep(0.001)  # polls the coordinator
        self._seen[name] = Seen(case.api, self._shown(case, answer))

    # --- what is seen at the end ----------------------------------------------------------------

    def _end_of(self, topic: str) -> int:
        partition = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
        fields = {"replica_id": -1, "topics": [{"name": topic, "partitions": [partition]}]}
        case = Case("end", "ListOffsets", 7, fields, on="look")
        answer = self._runner.message(case, self._runner.send(case))
        return int(answer.topics[0].partitions[0].offset)

    def _fetch(self, topic: str, partition: int, offset: int, isolation: int) -> tuple[Case, Any]:
        place = {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": FETCHED_MAX,
            "current_leader_epoch": -1,
        }
        fields = {
            "max_bytes": FETCHED_MAX,
            "isolation_level": isolation,
            "topics": [{"topic": topic, "partitions": [place]}],
        }
        case = Case(f"{topic}-{partition} {isolation}", "Fetch", 11, fields, on="look")
        return case, self._runner.message(case, self._runner.send(case))

    def _read_partitions(self) -> None:
        for topic, partition in PLACES:
            for isolation in (0, READ_COMMITTED):
                case, answer = self._fetch(self._name(topic), partition, 0, isolation)
                self._seen[case.name] = Seen("Fetch", self._shown(case, answer))

    def _batches(self, topic: str, start: int) -> list[RecordBatch]:
        _, answer = self._fetch(topic, 0, start, 0)
        return read_batches(answer.responses[0].partitions[0].records or b"")

    def _read_state(self, start: int) -> None:
        """The records of the story's transactional ids, taken apart."""
        rows = []
        for batch in self._batches(STATE_TOPIC, start):
            for _, _, key, value, _ in batch.records:
                name = messages.TransactionLogKey.decode((key or b"")[2:], 0).transactional_id
                if name.startswith(self._world):
                    rows.append({"id": name, **self._value("TransactionLogValue", value)})
        self._seen[STATE_TOPIC] = Seen(STATE_TOPIC, dict(enumerate(rows)))

    def _read_offsets(self, start: int) -> None:
        """The batches with offsets of the story's groups, and the markers behind them."""
        rows = []
        for batch in self._batches(OFFSETS_TOPIC, start):
            if batch.producer_id not in self._given:  # also markers of earlier stories' time-outs
                continue
            shown: dict[str, Any] = {
                "producer": self._runner.known(("producer", batch.producer_id), "offsets"),
                "epoch": batch.producer_epoch,
                "sequence": batch.base_sequence,
                "is_control": batch.is_control,
            }
            for n, (_, _, key, value, _) in enumerate(batch.records):
                shown[f"record {n}"] = (
                    {"key": key, "value": value} if batch.is_control else self._offset(key, value)
                )
            rows.append(shown)
        self._seen[OFFSETS_TOPIC] = Seen(OFFSETS_TOPIC, dict(enumerate(rows)))

    def _offset(self, key: bytes | None, value: bytes | None) -> dict[str, Any]:
        assert key is not None
        kind = int.from_bytes(key[:2])
        assert kind == OFFSET_KIND
        of = messages.OffsetCommitKey.decode(key[2:], 0)
        place = f"{of.group} {of.topic} {of.partition}"
        return {"place": place, **self._value(f"{KINDS[kind]}Value", value)}

    def _value(self, name: str, value: bytes | None) -> dict[str, Any]:
        if value is None:
            return {"value": None}
        version = int.from_bytes(value[:2])
        decoded = getattr(messages, name).decode(value[2:], version)
        case = Case(name, name, version)
        shown = self._runner.struct(case, TABLE[name].fields, decoded)
        return {"version": version, **shown}


class TransactionRunner(Runner):
    """Shows structs that are no answers, and sets of partitions in order."""

    def struct(self, case: Case, fields: Sequence[Field], value: Any) -> dict[str, Any]:
        """A struct in shared words."""
        return self._struct(case, fields, value, case.name)

    def _array(self, case: Case, of: Field, values: list[Any], place: str) -> Any:
        if of.fields is None and of.kind == "int32":
            values = sorted(values)
        if of.name == "aborted_transactions":  # which clients put in order themselves
            values = sorted(values, key=lambda each: (each.first_offset, each.producer_id))
            return [self._struct(case, of.fields or [], each, place) for each in values]
        if of.name == "active_producers" and of.fields is not None:
            shown = [self._struct(case, of.fields, each, place) for each in values]
            return {each["producer_id"]: each for each in shown}
        return super()._array(case, of, values, place)

    def _leaf(self, of: Field, value: Any, place: str) -> Any:
        if of.name.endswith("producer_id") and value >= 0 and value != STRANGER:
            return self.known(("producer", value), place)
        return super()._leaf(of, value, place)


def difference_of_transactions(
    ours: Sequence[Mapping[str, Seen]], theirs: Sequence[Mapping[str, Seen]]
) -> Difference | None:
    """After which act the brokers differ, and in what."""
    for number, (mine, its) in enumerate(zip(ours, theirs, strict=True)):
        assert mine.keys() == its.keys()
        found = [
            (f"{name}: {path}", our, their)
            for name, seen in its.items()
            for path, our, their in compare(mine[name].answer, seen.answer)
            if not any(each.explains(seen.api, path, our, their) for each in DIFFERENCES)
        ]
        if found:
            return Difference(number, found)
    return None

"""Plays the script against one broker and shows its answers in words that two brokers can share.

What no two brokers share is replaced: ports by `port`; ids (topic ids, member ids, cluster ids,
fetch sessions) by the place where each was first seen, so that the same id must come again at the
same places; times that the broker took itself by `now`. Arrays are put in order by name or index,
since Kafka's come out of hash maps. Times of throttling are left out.
"""

import base64
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from api.raw import KEYS, NAMES, Connection, header_is_tagged
from differential.script import START_MS, Batch, Case, Kept
from golden.table import Field, read_table
from kafkalite._native import read_batches
from kafkalite.protocol import messages

CLOSED = "the broker closes the connection"
SILENT = "the broker does not answer"
UNTIL_S = 60.0
UUID_TEXT = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# By these an element of an array is known.
IDENTITIES = (
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "resource_name",
    "group_id",
    "key",
    "api_key",
    "feature",
    "partition_index",
    "partition",
    "index",
    "member_id",
    "group_instance_id",
    "transactional_id",
    "broker_id",
    "node_id",
    "replica_id",
    "last_sequence",
)
TABLE = read_table()


class Runner:
    """One broker, and what the script has learned from it."""

    def __init__(self, bootstrap_servers: str, sources: Mapping[str, str] | None = None) -> None:
        """`sources` are the addresses that connections come from, by their names."""
        self._bootstrap_servers = bootstrap_servers
        self._sources = sources or {}
        self._connections: dict[str, Connection] = {}
        self._kept: dict[str, Any] = {}
        self._seen: dict[Any, str] = {}
        self._started: dict[str, int] = {}

    def run(self, script: Sequence[Case]) -> dict[str, Any]:
        """Name of each case -> its answer, in shared words."""
        answers = {}
        try:
            for case in script:
                answer = self._play(case)
                if case.part != "send":
                    answers[case.name] = answer
        finally:
            self.close()
        return answers

    def close(self) -> None:
        """Closes the connections; the next request opens another."""
        while self._connections:
            self._connections.popitem()[1].socket.close()

    def _play(self, case: Case) -> Any:
        deadline = time.monotonic() + UNTIL_S
        while True:
            if case.part == "receive":
                correlation_id = self._started.pop(case.name)
            else:
                correlation_id = self.send(case)
            if case.part == "send":
                self._started[case.name] = correlation_id
                return None
            if case.api == "Produce" and case.fields.get("acks") == 0:
                return self._unanswered(case)
            answer = self.message(case, correlation_id)
            if isinstance(answer, str):
                return answer
            reached = all(_at(answer, path) == value for path, value in case.until.items())
            if reached or time.monotonic() > deadline:
                break
            time.sleep(0.02)  # polls the broker until the case has what it waits for
        self._keep(case, answer)
        return self.shared(case, answer)

    def connection(self, name: str) -> Connection:
        """The connection of that name, opened when it is first asked for."""
        if name not in self._connections:
            self._connections[name] = Connection(self._bootstrap_servers, self._sources.get(name))
        return self._connections[name]

    def send(self, case: Case) -> int:
        """Sends the request of a case; returns its correlation id."""
        body = case.body
        if body is None:
            schema = TABLE[f"{case.api}Request"]
            kind = getattr(messages, schema.name)
            body = self._message(kind, schema.fields, case.fields).encode(case.version)
        key = KEYS[case.api] if case.api in KEYS else int(case.api)
        try:
            return self.connection(case.on).send(key, case.version, body + case.behind)
        except OSError:  # closed by what went before it on this connection
            self._connections.pop(case.on).socket.close()
            return self.connection(case.on).send(key, case.version, body + case.behind)

    def message(self, case: Case, correlation_id: int) -> Any:
        """The answer to a request that was sent, or CLOSED or SILENT in its place."""
        connection = self.connection(case.on)
        connection.socket.settimeout(case.patience_s)
        try:
            frame = connection.receive_frame()
        except TimeoutError:
            self._connections.pop(case.on).socket.close()
            return SILENT
        if frame is None:
            self._connections.pop(case.on).socket.close()
            return CLOSED
        assert int.from_bytes(frame[:4]) == correlation_id, case.name
        if case.api not in KEYS:
            return f"{len(frame)} bytes"
        key, version = KEYS[case.api], case.version
        if key == 18 and version > 4:
            version = 0
        kind = getattr(messages, f"{NAMES[key]}Response")
        body = frame[5 if header_is_tagged(key, version, True) else 4 :]
        answer = kind.decode(body, version)
        assert answer.encode(version) == body, f"{case.name}: not the bytes that came"
        return answer

    def _unanswered(self, case: Case) -> str:
        """What becomes of the connection, which is all that shows of a request without an answer.
        Waited for, since what is sent next would reach one broker before it closes and not the
        other."""
        probe = Case(f"{case.name}, behind it", "ApiVersions", 0, on=case.on)
        connection = self.connection(case.on)
        try:
            correlation_id = connection.send(KEYS[probe.api], probe.version, b"")
        except OSError:  # closed already
            self._connections.pop(case.on).socket.close()
            return CLOSED
        answer = self.message(probe, correlation_id)
        return answer if isinstance(answer, str) else "no answer is due"

    def _message(self, kind: Any, fields: Sequence[Field], values: Mapping[str, Any]) -> Any:
        made = kind()
        for index, each in enumerate(fields):
            if each.name not in values:
                continue
            value = self._resolve(values[each.name])
            if each.kind == "records" and value is not None:
                value = b"".join(
                    b.encode(self._resolve) if isinstance(b, Batch) else b for b in value
                )
            elif each.fields is not None and value is not None:
                inner = kind._structs[index]
                if each.is_array:
                    value = [self._message(inner, each.fields, element) for element in value]
                else:
                    value = self._message(inner, each.fields, value)
            elif each.is_array and value is not None:
                value = [self._resolve(element) for element in value]
            setattr(made, each.name, value)
        unknown = set(values) - {each.name for each in fields}
        assert not unknown, f"{kind.__name__} has no {unknown}"
        return made

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, Kept):
            kept = self._kept.get(value.name)
            if kept is None:  # The broker refused the case that should have given it.
                return value.otherwise
            return kept + value.plus if value.plus else kept
        return value

    def keep(self, name: str, value: Any) -> None:
        """Lets `Kept(name)` stand for the value."""
        self._kept[name] = value

    def _keep(self, case: Case, answer: Any) -> None:
        for name, path in case.keep.items():
            self._kept[name] = _at(answer, path)
        is_made = case.api == "CreateTopics" and not case.fields.get("validate_only")
        if is_made and case.version >= 7:
            for topic in answer.topics:
                if topic.error_code == 0:
                    self._kept[f"id of {topic.name}"] = topic.topic_id
        if case.api == "Metadata" and case.version >= 10:
            for topic in answer.topics:
                if topic.name and topic.error_code == 0:
                    self._kept[f"id of {topic.name}"] = topic.topic_id

    # --- shared words -----------------------------------------------------------------------------

    def shared(self, case: Case, answer: Any) -> Any:
        """An answer in shared words."""
        fields = TABLE[f"{case.api}Response"].fields
        return self._struct(case, fields, answer, case.name)

    def _struct(self, case: Case, fields: Sequence[Field], value: Any, place: str) -> Any:
        shared: dict[str, Any] = {}
        version = 0 if case.api == "ApiVersions" and case.version > 4 else case.version
        for each in fields:
            if version not in each.versions or each.name == "throttle_time_ms":
                continue
            if each.name in case.without:
                continue
            there = f"{place}.{each.name}"
            part = getattr(value, each.name)
            if part is None:
                shared[each.name] = None
            elif each.is_array:
                shared[each.name] = self._array(case, each, part, there)
            elif each.fields is not None:
                shared[each.name] = self._struct(case, each.fields, part, there)
            elif each.name == "producer_id" and getattr(value, "error_code", 0):
                # Nobody's: 0, which a broker that others have used before gave to somebody else.
                shared[each.name] = part
            else:
                shared[each.name] = self._leaf(each, part, there)
        return shared

    def _array(self, case: Case, of: Field, values: list[Any], place: str) -> Any:
        if of.fields is None:
            return [self._leaf(of, value, place) for value in values]
        elements = {}
        # In the order of what does not change between runs, so that ids are seen in that order.
        for value in sorted(values, key=_order):
            name = _name(value)
            if case.only and name is not None and not name.startswith(case.only):
                continue
            element = self._struct(case, of.fields, value, f"{place}.{name}" if name else place)
            label = next((str(element[name]) for name in IDENTITIES if element.get(name)), "0")
            if "partition_index" in element:
                label = str(element["partition_index"])
            while label in elements:
                label += "+"
            elements[label] = element
        return elements

    def _leaf(self, of: Field, value: Any, place: str) -> Any:
        if of.name == "port":
            return "port"
        if of.kind == "records":
            return [_batch(batch, self) for batch in read_batches(value)]
        if of.kind == "uuid":
            return self.known(value, place) if any(value) else "none"
        if of.name == "producer_id" and value >= 0:
            return self.known(("producer", value), place)
        if of.name == "session_id" and value:
            return self.known(value, place)
        if of.name == "cluster_id" and value:
            return self.known(value, "the cluster")
        if of.kind == "string":
            return self._text(value, place)
        if of.kind == "int64" and START_MS - 1000 <= value <= START_MS + 86_400_000:
            return "now"
        return value

    def _text(self, text: str, place: str) -> str:
        text = UUID_TEXT.sub(lambda found: self.known(found[0], place), text)
        for identity, words in self._seen.items():
            if isinstance(identity, bytes):
                text = text.replace(base64.urlsafe_b64encode(identity).decode()[:22], words)
            elif isinstance(identity, str) and len(identity) == 22:
                text = text.replace(identity, words)
        return text.replace(self._bootstrap_servers.rsplit(":", 1)[1], "port")

    def known(self, identity: Any, place: str) -> str:
        """Words for an id: where it was first seen."""
        return self._seen.setdefault(identity, f"<{place}>")


def _order(value: Any) -> list[Any]:
    keys: list[Any] = []
    for name in IDENTITIES:
        found = getattr(value, name, None)
        if isinstance(found, bytes):
            continue
        text = UUID_TEXT.sub("", str(found))
        keys.append((0, found) if isinstance(found, int) else (1, text))
    keys.append((0, abs(getattr(value, "error_code", 0))))  # of what is answered twice
    return [tuple(map(str, key)) if key[0] else (f"0 {key[1]:020}",) for key in keys]


def _name(value: Any) -> str | None:
    for name in IDENTITIES:
        found = getattr(value, name, None)
        if isinstance(found, str):
            return found
    return None


def _batch(batch: Any, runner: Runner) -> dict[str, Any]:
    records = [
        (offset, "now" if timestamp >= START_MS - 1000 else timestamp, key, value, headers)
        for offset, timestamp, key, value, headers in batch.records
    ]
    return {
        "base_offset": batch.base_offset,
        "leader_epoch": batch.leader_epoch,
        "codec": batch.codec,
        "timestamp_type": batch.timestamp_type,
        "max_timestamp": "now" if batch.max_timestamp >= START_MS - 1000 else batch.max_timestamp,
        "producer_id": runner.known(("producer", batch.producer_id), "batch")
        if batch.producer_id >= 0
        else "none",
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "is_transactional": batch.is_transactional,
        "records": records,
    }


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        if isinstance(value, list):
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = getattr(value, name, None)
    return value


def compare(ours: Any, theirs: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """(path, ours, theirs) of every leaf that is not the same."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = []
        for name in [*theirs, *(name for name in ours if name not in theirs)]:
            at = f"{path}.{name}" if path else str(name)
            if name not in ours or name not in theirs:
                found.append((at, ours.get(name, "absent"), theirs.get(name, "absent")))
            else:
                found += compare(ours[name], theirs[name], at)
        return found
    return [] if ours == theirs else [(path, ours, theirs)]

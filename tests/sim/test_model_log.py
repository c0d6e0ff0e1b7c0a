"""The model of a log against the log: batches and markers, drawn from a seed, are taken and refused
alike, and readers of what is committed see the same. And the model of its verifications, which the
log has no door to, against that of the group coordinator."""

from pathlib import Path
from random import Random

import pytest

from kafkalite import _native
from kafkalite.coordinator.machine import Marker
from kafkalite.errors import KafkaliteError
from kafkalite.groups.verifications import Verifications as VerificationsOfOffsets
from sim.model_log import (
    EPOCH_MAX,
    Aborted,
    Batch,
    ModelLog,
    RefusedError,
    Verifications,
    client_batch,
    parsed_batch,
)

NOW_MS = 1_700_000_000_000
SEEDS = 40
STEPS = 80
PRODUCERS = (7, 8)
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class Pair:
    """A log and its model."""

    def __init__(self, log: _native.Log, random: Random) -> None:
        self.log = log
        self.model = ModelLog("t", 0)
        self.random = random
        self.newest_epoch = random.choice((0, EPOCH_MAX - 3))

    def epoch(self) -> int:
        """Mostly the newest one, at times one before or after it."""
        pick = self.random.random()
        if pick < 0.1:
            self.newest_epoch = min(EPOCH_MAX, self.newest_epoch + 1)
        return max(0, self.newest_epoch - (pick > 0.9))

    def send(self) -> None:
        """A batch of a client, whose coordinator has just agreed."""
        random, model = self.random, self.model
        producer_id, epoch, count = random.choice(PRODUCERS), self.epoch(), random.randint(1, 3)
        known = model.producers.get(producer_id)
        last = known.window[-1] if known is not None and known.window else None
        follows = 0 if last is None or last.producer_epoch != epoch else last.last_sequence + 1
        sequence = random.choice((0, follows, follows, follows, max(0, follows - 1), follows + 1))
        values = [f"{each}" for each in range(count)]
        builder = _native.BatchBuilder(
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        for each in values:
            builder.append(NOW_MS, None, each.encode())
        batch = client_batch(producer_id, epoch, sequence, values)
        model.verifications = Verifications()
        guard = model.verifications.begin(batch, bumps_epochs=False)
        assert guard is not None
        data = builder.finish()
        self.compare(
            lambda: model.append_of_client(batch, guard).base_offset,
            lambda: self.log.append(data, now_ms=NOW_MS).first_offset,
        )

    def send_offsets(self) -> None:
        """Records of a coordinator in a transaction."""
        builder = _native.BatchBuilder(
            producer_id=self.random.choice(PRODUCERS),
            producer_epoch=self.epoch(),
            base_sequence=0,
            transactional=True,
        )
        builder.append(NOW_MS, b"k", b"v")
        self.append_as_coordinator(builder.finish(), None)

    def end(self) -> None:
        """A marker."""
        marker = _native.end_transaction_marker(
            NOW_MS,
            self.random.choice(PRODUCERS),
            self.epoch(),
            commit=self.random.random() < 0.5,
            coordinator_epoch=self.random.randint(0, 2),
        )
        self.append_as_coordinator(marker, self.random.choice((0, 2)))

    def append_as_coordinator(self, data: bytes, version: int | None) -> None:
        batch = parsed_batch(data)
        self.compare(
            lambda: self.model.append_of_coordinator(batch, version).base_offset,
            lambda: (
                self.log.append(
                    data, now_ms=NOW_MS, origin="coordinator", transaction_version=version
                ).first_offset
            ),
        )

    def flush(self) -> None:
        self.log.flush()
        self.model.flush(self.model.end_offset)
        assert self.log.offsets.last_stable_offset == self.model.last_stable_offset

    def compare(self, *calls: object) -> None:
        """Both append, at the same offset, or refuse with the same code."""
        told = [_outcome(call) for call in calls]
        assert told[0] == told[1]

    def check(self) -> None:
        """Both say the same of the whole."""
        log, model = self.log, self.model
        offsets = log.offsets
        assert offsets.log_end_offset == model.end_offset
        assert [
            (each.producer_id, each.producer_epoch, each.coordinator_epoch)
            for each in log.producers()
        ] == [
            (each, known.epoch, known.coordinator_epoch)
            for each, known in sorted(model.producers.items())
        ]
        assert {
            each.producer_id: each.current_transaction_first_offset for each in log.producers()
        } == {each: known.open_offset for each, known in model.producers.items()}
        assert sorted(
            Aborted(each.producer_id, each.first_offset, each.last_offset)
            for each in log.aborted_transactions(0, offsets.log_end_offset)
        ) == sorted(model.aborted)


def _outcome(call: object) -> tuple[str, int]:
    assert callable(call)
    try:
        return "appended at", call()
    except KafkaliteError as error:
        return "refused with", error.kafka_code


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> _native.LogDirectory:
    path: Path = tmp_path_factory.mktemp("logs")
    return _native.LogDirectory.open(
        path, now_ms=NOW_MS, cluster_id="c", node_id=1, directory_id=TOPIC_ID
    )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_model_takes_and_refuses_as_the_log_does(
    directory: _native.LogDirectory, seed: int
) -> None:
    random = Random(seed)
    pair = Pair(directory.create_log("t", seed, TOPIC_ID, now_ms=NOW_MS), random)
    for _ in range(STEPS):
        random.choice((pair.send, pair.send, pair.send, pair.send_offsets, pair.end))()
        if random.random() < 0.2:
            pair.flush()
        pair.check()
    pair.flush()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_offsets_are_verified_as_records_are(seed: int) -> None:
    random = Random(seed)
    model, product = Verifications(), VerificationsOfOffsets()
    guards = [0]
    for _ in range(STEPS):
        producer_id, epoch = random.choice(PRODUCERS), random.randint(0, 2)
        batch = client_batch(producer_id, epoch, 0, ["x"])
        pick = random.random()
        if pick < 0.4:
            guard = model.begin(batch, bumps_epochs=True)
            assert product.begin(producer_id, epoch, 0) == guard
            guards.append(guard or 0)
        elif pick < 0.6:
            guard = random.choice(guards[-4:])
            is_open = model.open.get(producer_id) == epoch
            is_good = is_open or _passes(model, batch, guard)
            assert product.is_verified(producer_id, epoch, guard) == is_good
            if is_good:
                model.note(batch, None)
                product.note_offsets(producer_id, epoch)
        elif pick < 0.8:
            version = random.choice((0, 2))
            model.note(batch._replace(commit=True), version)
            product.note_marker(producer_id, epoch, Marker(True, 0, version))
        else:
            guard = random.choice(guards[-4:])
            model.forget(producer_id, guard)
            product.drop(producer_id, guard)


def _passes(model: Verifications, batch: Batch, guard: int) -> bool:
    begun = model.begun.get(batch.producer_id)
    if begun is None or begun.epoch != batch.producer_epoch:
        return False
    try:
        model.check(batch, guard, is_known=True)
    except RefusedError:
        return False
    return True

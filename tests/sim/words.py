"""Batches and states in a few words, for traces and violations."""

from typing import Any

from kafkalite.metadata.image import TRANSACTIONS_TOPIC
from kafkalite.transactions.records import SERDE, transaction_of
from kafkalite.transactions.states import NO_ID, STATE_NAMES, Transaction
from sim import truth
from sim.model_log import Batch, ModelLog


def states_of(batch: Batch) -> list[tuple[str, Transaction | None]]:
    """The transactional ids of a batch of `__transaction_state`, and their states."""
    ((_, records),) = truth.records_of([batch])
    found = []
    for _, key, data in records:
        read: Any = SERDE.read(key, data)
        value = None if read.value is None else transaction_of(read.value)
        found.append((read.key.transactional_id, value))
    return found


def described(log: ModelLog, batch: Batch) -> str:
    """A batch and where it is written."""
    where = f"{log.name} at {batch.base_offset}"
    if log.topic == TRANSACTIONS_TOPIC:
        states = [f"{name} {in_words(value)}" for name, value in states_of(batch)]
        return f"{where} gets {'; '.join(states)}"
    who = f"{batch.producer_id}/{batch.producer_epoch}"
    if batch.commit is None:
        return f"{where} gets {list(batch.values) or 'offsets'} of {who}#{batch.base_sequence}"
    return f"{where} gets the {'commit' if batch.commit else 'abort'} marker of {who}"


def in_words(state: Transaction | None) -> str:
    """A state: its name, producer id and epoch, partitions, and version of its client."""
    if state is None:
        return "nothing"
    places = ", ".join(sorted(f"{topic}-{index}" for topic, index in state.partitions))
    who = f"{state.producer_id}/{state.producer_epoch}"
    next_id = f", then {state.next_producer_id}" if state.next_producer_id != NO_ID else ""
    return f"{STATE_NAMES[state.state]} {who}{next_id} [{places}] TV{state.client_version}"

"""The states of a classic group, by the names that Kafka's clients are told."""

from typing import Final

EMPTY: Final = "Empty"
PREPARING_REBALANCE: Final = "PreparingRebalance"
COMPLETING_REBALANCE: Final = "CompletingRebalance"
STABLE: Final = "Stable"
DEAD: Final = "Dead"

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""The type of protocol whose subscriptions can be read here."""

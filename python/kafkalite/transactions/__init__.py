"""Transactions: their coordinator, over `__transaction_state` (`kafkalite.coordinator`).

"TV" is Kafka's word for the version of transactions, which the feature `transaction.version` sets:
from 2 on (KIP-890) each transaction of a producer has an epoch of its own.
"""

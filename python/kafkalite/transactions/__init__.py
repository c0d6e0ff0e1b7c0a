"""Transactions: their coordinator, over `__transaction_state` (`kafkalite.coordinator`). Not served
yet: no API key reaches it."""

"""Transactions: their coordinator, over `__transaction_state` (`kafkalite.coordinator`)."""

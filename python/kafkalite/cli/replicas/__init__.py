"""Where replicas are and who leads: `kafkalite reassign` and `kafkalite elect`."""

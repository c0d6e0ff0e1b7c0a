"""Sends records: a producer, the batches that it makes, and the thread that brings them away."""

"""Spark on kafkalite, with Spark's own Kafka connector as the judge."""

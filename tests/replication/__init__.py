"""Brokers of kafkalite under Apache Kafka's own controllers, and their state machines under a
scripted one."""

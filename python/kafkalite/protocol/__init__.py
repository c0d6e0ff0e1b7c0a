"""Kafka's messages: the table of their fields (`schema.txt`) and the classes made of it."""

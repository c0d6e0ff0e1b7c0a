"""Clusters of real brokers, Apache Kafka's and kafkalite's, under one controller of Kafka's."""

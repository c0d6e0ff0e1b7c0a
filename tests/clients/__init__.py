"""Unmodified Kafka clients against kafkalite, or against Apache Kafka itself.

    neutral.py         what a test asks of any client, and the table of features
    librdkafka.py      confluent-kafka                  kcat.py    the program of that name
    pure_python.py     kafka-python                     drivers.py franz-go, kafkajs, Kafka's Java
    asynchronous.py    aiokafka                                    client, each behind a small
    provision.py       fetches and builds them                     program of its own language
    matrix.py          prints the table that README.md holds

`KAFKALITE_TEST_AGAINST=kafka` runs the suite against Apache Kafka 4.3.1: that is how a test proves
that it asks for what Kafka does.
"""

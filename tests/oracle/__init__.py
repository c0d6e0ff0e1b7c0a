"""Apache Kafka as the judge: its jars, a broker of it, and its tools in one resident JVM.

    jars.py    fetches the jars once into the user's cache
    broker.py  a real broker in KRaft combined mode on free ports
    tools.py   Kafka's tools, producer, consumer and admin, milliseconds a call
    wire.py    a produced batch exactly as given
    engine.py  our side: logs written and read by the engine, in the records of tools.py
    story.py   one log directory in turn under Kafka and under us, played once per session

The fixtures `kafka_tools` and `kafka` in tests/conftest.py are one of each per test session.
"""

"""Arrow columns from log files (`records.py`), from brokers (`wire.py`), and into topics
(`writer.py`). No Python object is made per record."""

"""A broker in a cluster whose metadata is written by controllers elsewhere: its registration and
heartbeats, what it forwards, and the metadata that it observes and serves."""

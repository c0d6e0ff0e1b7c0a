"""`kafkalite.read_log` against an encoder and a decoder of its own, written plainly in Python."""

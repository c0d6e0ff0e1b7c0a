"""What reads a log, or talks to a broker, from Python."""

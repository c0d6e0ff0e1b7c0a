"""The process towards its host: lines on stderr, the service manager, how the loading goes."""

"""`kafkalite groups`."""

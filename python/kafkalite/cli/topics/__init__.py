"""`kafkalite topics`."""

"""What the broker knows about its topics beyond their records."""

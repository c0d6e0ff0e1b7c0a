"""A broker for tests: fixtures of pytest that come with the wheel."""

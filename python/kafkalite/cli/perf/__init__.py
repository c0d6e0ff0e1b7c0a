"""Commands that measure how fast records are taken and given."""

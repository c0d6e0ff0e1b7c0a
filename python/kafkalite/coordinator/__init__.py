"""Coordinators: state machines whose state is the records of an internal topic's partitions."""

"""Topics that tests of consumers read, and the members that their groups have."""

from kafkalite.client import Admin, Producer
from kafkalite.client.group_admin import GroupAdmin


def fill(servers: str, topic: str, count: int = 10, partitions: int = 1) -> None:
    """Records 0, 1, … in turn to the partitions."""
    with Admin(servers) as admin:
        admin.create_topic(topic, partitions=partitions)
    with Producer(servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % partitions)


def members(servers: str, group: str) -> int:
    """How many members the group has."""
    with GroupAdmin(servers) as admin:
        return len(admin.describe(group).members)

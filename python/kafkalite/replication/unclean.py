"""Names the partitions that a broker has come to lead by an unclean election, so that its log says
so: no request of Kafka's tells clients that a leader is recovering. Pure.
"""

from kafkalite.metadata.fold import MetadataDelta
from kafkalite.service.listed import listed


def unclean_sentence(delta: MetadataDelta, node_id: int) -> str:
    """A sentence on those of these changes; empty where there is none."""
    found = []
    for topic in delta.changed_topics:
        known = delta.before.topics.get(topic.name)
        before = () if known is None else known.partitions
        for each in topic.partitions:
            if not each.recovery_state or each.leader != node_id:
                continue
            was = before[each.index] if each.index < len(before) else None
            if was is None or was.leader_epoch != each.leader_epoch:
                found.append(f"{topic.name}-{each.index} (epoch {each.leader_epoch})")
    if not found:
        return ""
    return (
        f"this broker leads by an unclean election: {listed(found)}; what the leaders before had "
        "acknowledged and it lacks is lost"
    )

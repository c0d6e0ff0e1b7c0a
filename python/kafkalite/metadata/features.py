"""The features of a cluster: which levels a directory may have, and those of a new one
(`QuorumFeatures`, `MetadataVersion`)."""

from typing import Any, NamedTuple

from kafkalite.protocol import messages

METADATA_VERSION = "metadata.version"
ELR_VERSION = "eligible.leader.replicas.version"
KRAFT_VERSION = "kraft.version"


class Feature(NamedTuple):
    """A feature: lowest and highest level that a directory may have, and that of a new one."""

    name: str
    low: int
    high: int
    own: int


FEATURES = (
    Feature(ELR_VERSION, 0, 1, 1),
    Feature("group.version", 0, 1, 0),
    Feature(KRAFT_VERSION, 0, 1, 0),
    # 4.0-IV3 to 4.3-IV0.
    Feature(METADATA_VERSION, 25, 30, 30),
    Feature("share.version", 0, 1, 0),
    Feature("streams.version", 0, 1, 0),
    Feature("transaction.version", 0, 2, 2),
)


def own_features() -> list[Any]:
    """The levels of a new directory: of those features whose keys work."""
    levels = [(each.name, each.own) for each in FEATURES if each.own]
    levels.sort(key=lambda level: level[0] != METADATA_VERSION)
    return [messages.FeatureLevelRecord(name=name, feature_level=level) for name, level in levels]

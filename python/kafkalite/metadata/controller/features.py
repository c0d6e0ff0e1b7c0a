"""Features of the cluster: which level each may get, and the records that finalise it. Pure
functions.

Kafka: `FeatureControlManager`.
"""

from collections.abc import Mapping
from typing import Any

from kafkalite.metadata.features import FEATURES, KRAFT_VERSION, METADATA_VERSION
from kafkalite.metadata.image import Image
from kafkalite.protocol import messages

UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


def finalized_features(image: Image, kraft_version: int) -> dict[str, int]:
    """Name -> level of the features that are not at level 0, by name. `kraft_version` is the
    quorum's own."""
    levels = dict(image.features)
    if kraft_version:
        levels[KRAFT_VERSION] = kraft_version
    return dict(sorted(levels.items()))


def feature_records(levels: Mapping[str, int]) -> list[Any]:
    """The records that finalise features at levels."""
    record = messages.FeatureLevelRecord
    return [record(name=name, feature_level=level) for name, level in levels.items()]


def feature_refusal(
    name: str, level: int, upgrade_type: int, finalized: Mapping[str, int], node_id: int
) -> str:
    """Why a feature cannot go to a level, in Kafka's words; empty if it can. `node_id` is that of
    the controller."""
    supported = {each.name: (each.low, each.high) for each in FEATURES}
    invalid = f"Invalid update version {level} for feature {name}."
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"{invalid} The controller does not support the given upgrade type."
    if level < 0:
        return f"{invalid} A feature version cannot be less than 0."
    if name not in supported:
        if level == 0:
            return f"{invalid} Feature {name} not found."
        return f"{invalid} Local controller {node_id} does not support this feature."
    low, high = supported[name]
    if not low <= level <= high and (level or name == METADATA_VERSION):
        return f"{invalid} Local controller {node_id} only supports versions {low}-{high}"
    before = finalized.get(name, 0)
    if level < before:
        return _downgrade_refusal(name, level, upgrade_type, before)
    if level > before and upgrade_type != UPGRADE:
        return f"{invalid} Can't downgrade to a newer version."
    if name == KRAFT_VERSION and level > before:
        return f"{invalid} Local controller {node_id} has no listener for a quorum."
    return ""


def _downgrade_refusal(name: str, level: int, upgrade_type: int, before: int) -> str:
    invalid = f"Invalid update version {level} for feature {name}."
    if upgrade_type == UPGRADE:
        return (
            f"{invalid} Can't downgrade the version of this feature without setting the upgrade "
            "type to either safe or unsafe downgrade."
        )
    if name == KRAFT_VERSION:
        return f"{invalid} Can't downgrade the version of this feature."
    if name != METADATA_VERSION:
        return ""
    return f"Unsupported metadata.version downgrade from {before} to {level}. " + (
        "Unsafe metadata downgrade is not supported in this version."
        if upgrade_type == UNSAFE_DOWNGRADE
        else "Refusing to perform the requested downgrade because it might delete metadata "
        "information."
    )

"""UpdateFeatures (key 57), versions 0 to 2.

Behaviour: finalises features at levels, all of them or none; a feature may go up to the highest
level that a directory may have here, which Kafka started on the directory then obeys.
`validate_only` judges and writes nothing.

Refusals, the first of them for the whole request, INVALID_UPDATE_VERSION
(`FeatureControlManager`): an upgrade type that there is not; a level below 0; a feature or level
that is not supported; a lower level without a downgrade; a lower `metadata.version`, which could
lose metadata. `kraft.version` stays: one node without a controller listener gains nothing by it.

Version notes: v0 says by a flag that a level may go down, v1 by an upgrade type (KIP-584,
KIP-778); v2 has no results per feature (KIP-1022).
"""

from collections.abc import Mapping
from typing import Any

from kafkalite.context import Context
from kafkalite.metadata.features import FEATURES, KRAFT_VERSION, METADATA_VERSION
from kafkalite.protocol import codes, messages

NAME = "UpdateFeatures"

UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


def handle(context: Context, request: Any, message: Any) -> Any:
    """Finalises the levels of the request."""
    kind = messages.UpdateFeaturesResponse
    current = dict(context.controller.finalized_features())
    wanted = {}
    for update in message.feature_updates:
        name, level = update.feature, update.max_version_level
        # The flag of version 0 has no effect in Kafka 4.3, which takes every update for an upgrade.
        upgrade_type = update.upgrade_type if request.api_version >= 1 else UPGRADE
        reason = _refusal(name, level, upgrade_type, current, context.node_id)
        if reason:
            return kind(
                error_code=codes.INVALID_UPDATE_VERSION,
                error_message="The update failed for all features since the following feature had "
                f"an error: {reason}",
            )
        wanted[name] = level
    news = {name: level for name, level in wanted.items() if current.get(name, 0) != level}
    if news and not message.validate_only:
        context.controller.update_features(news)
        for name, level in news.items():
            context.log.info(f"finalised {name} at level {level}")
    response = kind(error_message=None)
    if request.api_version < 2:
        response.results = [
            kind.UpdatableFeatureResult(feature=name, error_message="NONE") for name in wanted
        ]
    return response


def _refusal(
    name: str, level: int, upgrade_type: int, current: Mapping[str, int], node_id: int
) -> str:
    """Why a feature cannot go to a level, in Kafka's words; empty if it can."""
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
    before = current.get(name, 0)
    if level < before:
        if name == KRAFT_VERSION:
            return f"{invalid} Can't downgrade the version of this feature."
        if upgrade_type == UPGRADE:
            return (
                f"{invalid} Can't downgrade the version of this feature without setting the "
                "upgrade type to either safe or unsafe downgrade."
            )
        if name == METADATA_VERSION:
            return f"Unsupported metadata.version downgrade from {before} to {level}. " + (
                "Unsafe metadata downgrade is not supported in this version."
                if upgrade_type == UNSAFE_DOWNGRADE
                else "Refusing to perform the requested downgrade because it might delete "
                "metadata information."
            )
    if name == KRAFT_VERSION and level > before:
        return f"{invalid} Local controller {node_id} has no listener for a quorum."
    return ""

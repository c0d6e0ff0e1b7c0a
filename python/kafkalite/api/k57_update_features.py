"""UpdateFeatures (key 57), versions 0 to 2.

Behaviour: finalises features at levels, all of them or none; a feature may go up to the highest
level that a directory may have here, which Kafka started on the directory then obeys.
`validate_only` judges and writes nothing. REQUEST_TIMED_OUT if the directory of the metadata does
not answer within the request's time; what was judged by then may hold later.

Refusals, the first of them for the whole request, INVALID_UPDATE_VERSION
(`FeatureControlManager`): an upgrade type that there is not; a level below 0; a feature or level
that is not supported; a lower level without a downgrade; a lower `metadata.version`, which could
lose metadata. `kraft.version` stays: one node without a controller listener gains nothing by it.

Version notes: v0 says by a flag that a level may go down, v1 by an upgrade type (KIP-584,
KIP-778); v2 has no results per feature (KIP-1022).
"""

from collections.abc import Callable, Mapping

from kafkalite import _native
from kafkalite.api.deadline import CHANGE_WAIT_MS_MIN, Deadline, in_turn, left_ms
from kafkalite.context import Context
from kafkalite.metadata.controller import ControllerError
from kafkalite.metadata.features import FEATURES, KRAFT_VERSION, METADATA_VERSION
from kafkalite.protocol import codes, messages

NAME = "UpdateFeatures"

UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


def handle(
    context: Context, request: _native.Request, message: messages.UpdateFeaturesRequest
) -> None:
    """Finalises the levels of the request when it has its turn."""

    def late() -> None:
        context.plane.respond(request, _failed(ControllerError(codes.REQUEST_TIMED_OUT, "")))

    def judge(due_ms: int) -> None:
        _judge_and_update(context, request, message, late, due_ms)

    in_turn(context, request, max(message.timeout_ms, CHANGE_WAIT_MS_MIN), (), late, judge)


def _failed(refusal: ControllerError) -> messages.UpdateFeaturesResponse:
    kind = messages.UpdateFeaturesResponse
    return kind(error_code=refusal.code, error_message=str(refusal) or None)


def _judge_and_update(
    context: Context,
    request: _native.Request,
    message: messages.UpdateFeaturesRequest,
    late: Callable[[], None],
    due_ms: int,
) -> None:
    kind = messages.UpdateFeaturesResponse
    current = dict(context.controller.finalized_features())
    wanted = {}
    for update in message.feature_updates:
        name, level = update.feature, update.max_version_level
        # The flag of version 0 has no effect in Kafka 4.3, which takes every update for an upgrade.
        upgrade_type = update.upgrade_type if request.api_version >= 1 else UPGRADE
        reason = _refusal(name, level, upgrade_type, current, context.node_id)
        if reason:
            sentence = (
                "The update failed for all features since the following feature had an error: "
                f"{reason}"
            )
            refusal = ControllerError(codes.INVALID_UPDATE_VERSION, sentence)
            context.plane.respond(request, _failed(refusal))
            return
        wanted[name] = level
    news = {name: level for name, level in wanted.items() if current.get(name, 0) != level}
    response = kind(error_message=None)
    if request.api_version < 2:
        response.results = [
            kind.UpdatableFeatureResult(feature=name, error_message="NONE") for name in wanted
        ]

    def updated(refusal: ControllerError | None) -> None:
        for name, level in () if refusal else news.items():
            context.log.info(f"finalised {name} at level {level}")
        if deadline.met():
            context.plane.respond(request, _failed(refusal) if refusal else response)

    if message.validate_only or not news:
        context.plane.respond(request, response)
        return
    context.controller.update_features(news, updated)
    deadline = Deadline(context, left_ms(context, due_ms), late)


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

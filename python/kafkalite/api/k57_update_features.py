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

from collections.abc import Callable

from kafkalite import _native
from kafkalite.api.deadline import CHANGE_WAIT_MS_MIN, Deadline, in_turn, left_ms
from kafkalite.context import Context
from kafkalite.metadata.controller import ControllerError
from kafkalite.metadata.controller.features import UPGRADE, feature_refusal
from kafkalite.protocol import codes, messages

NAME = "UpdateFeatures"


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
    current = context.controller.finalized_features()
    wanted = {}
    for update in message.feature_updates:
        name, level = update.feature, update.max_version_level
        # The flag of version 0 has no effect in Kafka 4.3, which takes every update for an upgrade.
        upgrade_type = update.upgrade_type if request.api_version >= 1 else UPGRADE
        reason = feature_refusal(name, level, upgrade_type, current, context.cluster.node_id)
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

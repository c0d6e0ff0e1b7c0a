"""UpdateFeatures (key 57), versions 0 to 2.

Behaviour: finalises features at levels, all of them or none; a feature may go up to the highest
level that a directory may have here, which Kafka started on the directory then obeys.
`validate_only` judges and writes nothing. REQUEST_TIMED_OUT if the directory of the metadata does
not answer within the request's time; what was judged by then may hold later.

Refusals: CLUSTER_AUTHORIZATION_FAILED; the first of these for the whole request,
INVALID_UPDATE_VERSION (`FeatureControlManager`): an upgrade type that there is not; a level below
0; a feature or level that is not supported; a lower level without a downgrade; a lower
`metadata.version`, which could lose metadata. `kraft.version` stays: one node without a controller
listener gains nothing by it.

Version notes: v0 says by a flag that a level may go down, v1 by an upgrade type (KIP-584,
KIP-778); v2 has no results per feature (KIP-1022).
"""

from kafkalite import _native
from kafkalite.access import ALTER, CLUSTER, DENIALS
from kafkalite.api.deadline import CHANGE_WAIT_MS_MIN, may_change
from kafkalite.context import Context
from kafkalite.metadata.controller import ControllerError
from kafkalite.metadata.controller.features import UPGRADE, feature_refusal, finalized_features
from kafkalite.protocol import codes, messages
from kafkalite.tasks import TimedOutError

NAME = "UpdateFeatures"

Request = messages.UpdateFeaturesRequest
Response = messages.UpdateFeaturesResponse


async def handle(context: Context, request: _native.Request, message: Request) -> Response:
    """Finalises the levels of the request when it has the lock."""
    if not context.may(request, ALTER, CLUSTER):
        code, sentence = DENIALS[CLUSTER]
        return Response(error_code=code, error_message=sentence)
    try:
        with context.time_limit(max(message.timeout_ms, CHANGE_WAIT_MS_MIN)):
            async with may_change(context):
                wanted, news = await _judge(context, request, message)
                if news and not message.validate_only:
                    await context.tasks.start(_update(context, news), holding=request)
    except TimedOutError:
        return Response(error_code=codes.REQUEST_TIMED_OUT, error_message=None)
    except ControllerError as refusal:
        return Response(error_code=refusal.code, error_message=str(refusal) or None)
    response = Response(error_message=None)
    if request.api_version < 2:
        response.results = [
            Response.UpdatableFeatureResult(feature=name, error_message="NONE") for name in wanted
        ]
    return response


async def _judge(
    context: Context, request: _native.Request, message: Request
) -> tuple[dict[str, int], dict[str, int]]:
    """The levels that are asked for, and those of them that are not so already. Raises
    ControllerError."""
    cluster = context.cluster
    current = finalized_features(cluster.image, cluster.quorum.kraft_version)
    wanted = {}
    async for update in context.tasks.sliced(message.feature_updates):
        name, level = update.feature, update.max_version_level
        # The flag of version 0 has no effect in Kafka 4.3, which takes every update for an upgrade.
        upgrade_type = update.upgrade_type if request.api_version >= 1 else UPGRADE
        reason = feature_refusal(name, level, upgrade_type, current, cluster.controller_id)
        if reason:
            sentence = (
                "The update failed for all features since the following feature had an error: "
                f"{reason}"
            )
            raise ControllerError(codes.INVALID_UPDATE_VERSION, sentence)
        wanted[name] = level
    return wanted, {name: at for name, at in wanted.items() if current.get(name, 0) != at}


async def _update(context: Context, levels: dict[str, int]) -> None:
    await context.controller.update_features(levels)
    for name, level in levels.items():
        context.log.info(f"finalised {name} at level {level}")

"""UpdateFeatures by frames. Codes and sentences are those that Kafka 4.3.1 gave to the same
requests."""

from pathlib import Path
from typing import Any

import pytest

import kafkalite
from api.raw import Connection
from kafkalite.protocol import messages

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
KEY = messages.UpdateFeaturesRequest.FeatureUpdateKey
FAILED = "The update failed for all features since the following feature had an error: "


def update(
    connection: Connection,
    *updates: tuple[str, int, int],
    version: int = 2,
    validate_only: bool = False,
) -> Any:
    request = messages.UpdateFeaturesRequest(
        timeout_ms=5000,
        validate_only=validate_only,
        feature_updates=[
            KEY(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ],
    )
    return connection.ask("UpdateFeatures", version, request)


def finalized(connection: Connection) -> dict[str, int]:
    request = messages.ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = connection.ask("ApiVersions", 4, request)
    assert all(
        each.max_version_level == each.min_version_level for each in answer.finalized_features
    )
    return {each.name: each.max_version_level for each in answer.finalized_features}


def test_a_new_directory_has_the_features_whose_keys_work(tmp_path: Path) -> None:
    with (
        kafkalite.Broker(tmp_path / "data") as broker,
        Connection(broker.bootstrap_servers) as connection,
    ):
        assert finalized(connection) == {
            "metadata.version": 30,
            "eligible.leader.replicas.version": 1,
            "transaction.version": 2,
        }


@pytest.mark.parametrize("version", range(3))
def test_a_feature_goes_up_and_down_and_survives_a_kill(tmp_path: Path, version: int) -> None:
    broker = kafkalite.Broker(tmp_path / "data")
    with broker:
        with Connection(broker.bootstrap_servers) as connection:
            answer = update(connection, ("group.version", 1, UPGRADE), version=version)
            assert (answer.error_code, answer.error_message) == (0, None)
            assert [each.feature for each in answer.results] == ["group.version"] * (version < 2)
            assert finalized(connection)["group.version"] == 1
        broker.kill()
        broker.start()
        with Connection(broker.bootstrap_servers) as connection:
            assert finalized(connection)["group.version"] == 1
            if version >= 1:
                down = ("group.version", 0, SAFE_DOWNGRADE)
                assert update(connection, down, version=version).error_code == 0
                assert "group.version" not in finalized(connection)


REFUSED = {
    ("what.version", 1, UPGRADE): "Invalid update version 1 for feature what.version. Local "
    "controller 1 does not support this feature.",
    (
        "what.version",
        0,
        SAFE_DOWNGRADE,
    ): "Invalid update version 0 for feature what.version. Feature what.version not found.",
    ("group.version", 9, UPGRADE): "Invalid update version 9 for feature group.version. Local "
    "controller 1 only supports versions 0-1",
    (
        "group.version",
        -1,
        UPGRADE,
    ): "Invalid update version -1 for feature group.version. A feature "
    "version cannot be less than 0.",
    ("group.version", 0, 9): "Invalid update version 0 for feature group.version. The controller "
    "does not support the given upgrade type.",
    ("eligible.leader.replicas.version", 0, UPGRADE): "Invalid update version 0 for feature "
    "eligible.leader.replicas.version. Can't downgrade the version of this feature without setting "
    "the upgrade type to either safe or unsafe downgrade.",
    ("group.version", 1, UNSAFE_DOWNGRADE): "Invalid update version 1 for feature group.version. "
    "Can't downgrade to a newer version.",
    (
        "metadata.version",
        29,
        SAFE_DOWNGRADE,
    ): "Unsupported metadata.version downgrade from 30 to 29. "
    "Refusing to perform the requested downgrade because it might delete metadata information.",
    ("metadata.version", 29, UNSAFE_DOWNGRADE): "Unsupported metadata.version downgrade from 30 to "
    "29. Unsafe metadata downgrade is not supported in this version.",
}


@pytest.mark.parametrize(("asked", "reason"), REFUSED.items())
def test_what_cannot_be_is_refused_for_the_whole_request(
    connection: Connection, asked: tuple[str, int, int], reason: str
) -> None:
    before = finalized(connection)
    answer = update(connection, ("share.version", 1, UPGRADE), asked)
    assert (answer.error_code, answer.error_message) == (95, FAILED + reason)
    assert finalized(connection) == before


def test_validate_only_and_an_empty_request_change_nothing(connection: Connection) -> None:
    before = finalized(connection)
    asked = ("streams.version", 1, UPGRADE)
    assert update(connection, asked, validate_only=True).error_code == 0
    assert update(connection).error_code == 0
    assert finalized(connection) == before

"""Configurations of resources: the records that change them. Pure functions.

Whether a change may be is judged by `kafkalite.config.changes`, before.

Kafka: `ConfigurationControlManager`.
"""

from collections.abc import Mapping
from typing import Any

from kafkalite.metadata.controller import check_record_count
from kafkalite.metadata.image import Image
from kafkalite.metadata.image_records import config_record

Resource = tuple[int, str]
"""Type and name."""


def config_records(image: Image, changes: Mapping[Resource, Mapping[str, str | None]]) -> list[Any]:
    """The records that set configs of resources; None removes one. What is so already takes none.
    Raises ControllerError if they are too many."""
    records = []
    for resource, wanted in changes.items():
        own = image.configs.get(resource, {})
        records += [
            config_record(*resource, key, value)
            for key, value in wanted.items()
            if own.get(key) != value
        ]
    check_record_count(len(records))
    return records

"""The story that the hand-over tests watch, played once per session."""

import pytest

from oracle.story import Story, tell
from oracle.tools import KafkaTools


@pytest.fixture(scope="session")
def story(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """A log directory that has gone from Kafka to us and back, several times."""
    return tell(kafka_tools, tmp_path_factory.mktemp("story"))

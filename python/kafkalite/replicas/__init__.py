"""The replicas of this node: the logs of partitions, and why one cannot be asked.

Kafka: `ReplicaManager`, `LogManager`.
"""

from pathlib import Path
from typing import Final

from kafkalite import _native
from kafkalite.metadata.cluster import Cluster
from kafkalite.metadata.write_lock import WriteLock
from kafkalite.protocol import codes

PREFERENCES_MAX: Final = 100_000
"""The most partitions whose directory is kept in mind; the oldest is forgotten for another."""


class Replicas:
    """Used by the control thread only."""

    def __init__(self, core: _native.BrokerCore, cluster: Cluster, lock: WriteLock) -> None:
        self._core = core
        self._cluster = cluster
        self._lock = lock
        self._preferred: dict[tuple[str, int], bytes] = {}

    def log(self, topic: str, partition: int) -> _native.Log | None:
        """The log of a partition, if there is one."""
        return self._core.logs.find(topic, partition)

    def refusal(self, topic: str, partition: int) -> int:
        """The code for which the log of a partition cannot be asked for anything; NONE if it can
        (`ReplicaManager.getPartitionOrError`)."""
        log = self.log(topic, partition)
        if log is not None:
            return codes.KAFKA_STORAGE_ERROR if log.is_offline else codes.NONE
        known = self._cluster.image.topics.get(topic)
        if self._lock.is_being_made(topic):
            return codes.UNKNOWN_TOPIC_OR_PARTITION  # it is not there yet
        if known is None or not 0 <= partition < len(known.partitions):
            return codes.UNKNOWN_TOPIC_OR_PARTITION
        if self._cluster.node_id not in known.partitions[partition].replicas:
            return codes.NOT_LEADER_OR_FOLLOWER
        return codes.KAFKA_STORAGE_ERROR  # its log directory is offline since the start

    def leads(self, topic: str, partition: int) -> bool:
        """This node leads a partition, as far as the metadata has come here."""
        known = self._cluster.image.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return False
        return known.partitions[partition].leader == self._cluster.node_id

    def leader_refusal(self, topic: str, partition: int) -> int:
        """As `refusal`, of what only a leader may be asked."""
        code = self.refusal(topic, partition)
        if code == codes.NONE and not self.leads(topic, partition):
            return codes.NOT_LEADER_OR_FOLLOWER
        return code

    def is_offline(self, topic: str, partition: int) -> bool:
        """A partition is there, and its log directory is not, be it since the start."""
        return self.refusal(topic, partition) == codes.KAFKA_STORAGE_ERROR

    def prefer(self, topic: str, partition: int, directory: bytes) -> None:
        """The replica of a partition is to lie in the log directory of this id, once it is made."""
        self._preferred.pop((topic, partition), None)
        if len(self._preferred) >= PREFERENCES_MAX:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[topic, partition] = directory

    def take_preferred(self, topic: str, partition: int) -> bytes | None:
        """The id of the log directory in which a replica lies, of which the metadata does not say
        so; else of that in which a new one is to lie, if that was said; once."""
        preferred = self._preferred.pop((topic, partition), None)
        log = self.log(topic, partition)
        if log is None:
            return preferred
        return self._core.moves.directory_id(str(Path(log.directory).parent)) or preferred

    def offline_directories(self) -> list[str]:
        """The log directories that could not be taken, or have failed since."""
        return self._core.offline_log_dirs()

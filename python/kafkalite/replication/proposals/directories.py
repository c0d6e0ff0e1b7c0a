"""The log directories of this broker's replicas, where the controller has left the choice to it.

A broker with one directory is given that one. One with several is given UNASSIGNED_DIRECTORY for
each new replica: it chooses, and tells the controller by AssignReplicasToDirs (73), again and again
until the metadata says so, too. It chooses also where a replica's directory is gone: its disk was
replaced. Pure. Kafka: `AssignmentsManager`, `ReplicaManager`, `Partition`
(`createLogInAssignedDirectoryId`).
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from kafkalite.metadata.image import UNASSIGNED_DIRECTORY, PartitionImage, TopicImage
from kafkalite.metadata.publisher import TopicState
from kafkalite.protocol import codes, messages

ASSIGNMENTS_MAX: Final = 2_250
"""The most assignments of a request (`AssignReplicasToDirsRequest.MAX_ASSIGNMENTS_PER_REQUEST`)."""

SETTLED: Final = codes.NONE, codes.UNKNOWN_TOPIC_ID, codes.NOT_LEADER_OR_FOLLOWER
"""It is taken in, or there is no such replica of this broker."""

Replica = tuple[bytes, int]
"""The id of a topic, and the index of a partition."""


class Directories:
    """Where replicas lie of which the metadata does not say so yet."""

    def __init__(
        self, node_id: int, is_gone: Callable[[bytes], bool] = lambda _directory: False
    ) -> None:
        """`is_gone(directory)`: that id is none of this broker's, and no directory of its is
        offline that may have it."""
        self._node_id = node_id
        self._is_gone = is_gone
        self._chosen: dict[Replica, bytes] = {}
        self._moving: dict[Replica, bytes] = {}
        """Where replicas are about to lie, or stay after all, until the metadata says so: their
        logs lie elsewhere as long as it does not."""
        self._untold: set[Replica] = set()
        """The replicas among them that the controller has not acknowledged."""

    def is_unassigned(self, partition: PartitionImage) -> bool:
        """Says that this broker is to choose the directory of its replica."""
        if self._node_id not in partition.replicas:
            return False
        told = partition.directory_of(self._node_id)
        return told == UNASSIGNED_DIRECTORY or self._is_gone(told)

    def found(self, topic_id: bytes, index: int, directory: bytes) -> None:
        """A log lies in another directory than the metadata says."""
        self._chosen[topic_id, index] = directory

    def move(self, topic_id: bytes, index: int, directory: bytes) -> None:
        """A replica is about to lie in this directory, or stays there after all."""
        self._moving[topic_id, index] = directory
        self._untold.add((topic_id, index))

    def on_answer(self, answer: Any) -> None:
        """The controller has answered a request: what it has taken in need not be asked again."""
        for directory in answer.directories:
            for topic in directory.topics:
                for each in topic.partitions:
                    replica = topic.topic_id, each.partition_index
                    is_it = self._moving.get(replica) == directory.id
                    if is_it and each.error_code in SETTLED:
                        self._untold.discard(replica)

    def placed(
        self,
        states: Mapping[str, TopicState],
        place: Callable[[int], Sequence[bytes]],
        preferred: Callable[[str, int], bytes | None] = lambda _topic, _index: None,
    ) -> dict[str, TopicState]:
        """The states with a directory for each replica of this broker; `place(count)` chooses,
        where `preferred(topic, index)` has none."""
        missing = {
            (state.id, each.index): name
            for name, state in states.items()
            for each in state.partitions
            if self.is_unassigned(each) and (state.id, each.index) not in self._chosen
        }
        if missing:
            for (replica, name), chosen in zip(missing.items(), place(len(missing)), strict=True):
                self._chosen[replica] = preferred(name, replica[1]) or chosen
        placed = {}
        for name, state in states.items():
            partitions = tuple(self._placed(state.id, each) for each in state.partitions)
            placed[name] = state._replace(partitions=partitions)
        return placed

    def _placed(self, topic_id: bytes, partition: PartitionImage) -> PartitionImage:
        replica = topic_id, partition.index
        if self._node_id not in partition.replicas:
            # What it was to be told is of a log that goes, and would be refused for ever.
            self._chosen.pop(replica, None)
            self._moving.pop(replica, None)
            self._untold.discard(replica)
            return partition
        told = partition.directory_of(self._node_id)
        if told == self._moving.get(replica):
            self._chosen.pop(replica, None)
            if replica not in self._untold:
                # Else a move that is given up may still be on its way to the controller.
                del self._moving[replica]
        chosen = self._chosen.get(replica)
        if told == chosen:
            del self._chosen[replica]
            return partition
        if chosen is None:
            return partition
        at = partition.replicas.index(self._node_id)
        known = [*partition.directories]
        known += [UNASSIGNED_DIRECTORY] * (len(partition.replicas) - len(known))
        known[at] = chosen
        return partition._replace(directories=tuple(known))

    def forget(self, topics: Sequence[TopicImage]) -> None:
        """Topics are gone."""
        gone = {each.id for each in topics}
        self._moving = {key: at for key, at in self._moving.items() if key[0] not in gone}
        self._untold = {key for key in self._untold if key[0] not in gone}
        self._chosen = {key: at for key, at in self._chosen.items() if key[0] not in gone}

    def request(self, epoch: int) -> Any:
        """Gives what the controller is to be told; None where it knows all."""
        kind = messages.AssignReplicasToDirsRequest
        untold = {each: self._moving[each] for each in self._untold if each in self._moving}
        topics: dict[tuple[bytes, bytes], list[int]] = {}
        for (topic_id, index), directory in islice(
            (self._chosen | untold).items(), ASSIGNMENTS_MAX
        ):
            topics.setdefault((directory, topic_id), []).append(index)
        if not topics:
            return None
        data, part = kind.DirectoryData, kind.DirectoryData.TopicData.PartitionData
        directories: dict[bytes, Any] = {}
        for (directory, topic_id), indexes in topics.items():
            found = directories.setdefault(directory, data(id=directory))
            partitions = [part(partition_index=each) for each in indexes]
            found.topics.append(data.TopicData(topic_id=topic_id, partitions=partitions))
        return kind(
            broker_id=self._node_id, broker_epoch=epoch, directories=list(directories.values())
        )

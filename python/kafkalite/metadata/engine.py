"""The seam between a broker and who has its metadata written: this node alone (`solo.py`), or a
quorum of controllers elsewhere, which it observes (`kafkalite.replication`).

Kafka: `MetadataCache`, `ForwardingManager`, `BrokerServer` and `ControllerServer`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from kafkalite import _native
from kafkalite.metadata.cluster import Cluster
from kafkalite.metadata.controller.topics import NewTopic
from kafkalite.metadata.image import Image
from kafkalite.metadata.publisher import Publisher
from kafkalite.metadata.write_lock import WriteLock
from kafkalite.timers import Timers

T = TypeVar("T")


class Engine(Protocol):
    """Has those changes written that a broker makes by itself."""

    async def create_topics(self, wanted: Sequence[NewTopic]) -> dict[str, bytes]:
        """Makes topics that were checked; returns their ids once clients see them. Raises
        ControllerError."""

    def next_producer_id(self) -> int | None:
        """A producer id that nobody else was given; None where this broker has none left."""

    async def allocate_producer_ids(self) -> None:
        """Takes another block of producer ids. Raises ControllerError."""

    async def assign_directories(self, assignments: Sequence[tuple[bytes, int, bytes]]) -> None:
        """Has the metadata say in which log directories replicas of this broker lie: topic id,
        partition, id of the directory. Returns once that is asked for. Raises ControllerError."""


class Metadata(Protocol):
    """The parts by which a node reads, changes and publishes the metadata."""

    @property
    def publisher(self) -> Publisher: ...
    @property
    def lock(self) -> WriteLock: ...
    @property
    def cluster(self) -> Cluster: ...
    @property
    def engine(self) -> Engine: ...
    @property
    def image(self) -> Image: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def timers(self) -> Timers:
        """The timers of the control thread, once it runs."""

    def while_loading(self, load: Callable[[], T], stop: Callable[[], None]) -> T:
        """Calls `load()`, which takes as long as the logs are large, and returns what it does; the
        node's duties go on meanwhile. `stop()` has it end soon."""

    def serve(self, core: _native.BrokerCore, listener_names: Sequence[str]) -> None:
        """From now on changes are published to `core`, which has loaded the topics."""

    def unfence(self) -> None:
        """The broker is ready: returns when clients may be served."""

    def change_by(self, thread: Any) -> None:
        """From now on there can be changes, by the control thread (`kafkalite.context.Context`)."""

    def on_failure(self, watcher: Callable[[str], None]) -> None:
        """`watcher(sentence)` is called when the broker cannot go on."""

    def leave(self) -> None:
        """The broker is about to stop: returns when it may, while it still serves."""

    def leave_at_once(self) -> None:
        """Ends `leave`, by any thread."""

    def stop(self, core: _native.BrokerCore) -> None:
        """The end of a clean stop, when no client is served any more. Raises KafkaliteError."""

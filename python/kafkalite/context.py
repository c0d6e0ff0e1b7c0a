"""The parts of the broker that handlers use, each by its name:

config, log        the configuration, and the broker's log
cluster, image     who leads what; all metadata, as it is now
engine             changes of the metadata that brokers make by themselves
controller         the controller, where this node is it: all changes, under `write_lock`
replicas           logs of this node, and why one cannot be asked
moves              of replicas between the log directories
logs, background   calls of logs, and of threads: futures to await
tasks, timers      what goes on later; `time_limit` for what may take too long
may, operations    what the client of a request may do
groups             the group coordinator
transactions       the transaction coordinator
disks              sizes of the log directories' disks
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kafkalite import _native
from kafkalite.calls import Background, Calls, LogCalls
from kafkalite.config import Config
from kafkalite.disks import Disks
from kafkalite.errors import KafkaliteError
from kafkalite.metadata.controller import ControllerError
from kafkalite.metadata.controller.active import Controller
from kafkalite.metadata.controller.topics import NewTopic
from kafkalite.metadata.engine import Metadata
from kafkalite.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Image, TopicImage
from kafkalite.protocol import codes, messages
from kafkalite.replicas import Replicas
from kafkalite.replicas.moves import Moves
from kafkalite.service.repeated import REFUSALS_INTERVAL_MS, TROUBLES_INTERVAL_MS, Repeated
from kafkalite.service.stderr_log import Log
from kafkalite.tasks import Tasks, TimeLimit
from kafkalite.timers import monotonic_ms, wall_ms

if TYPE_CHECKING:
    from kafkalite.groups.coordinator import GroupCoordinator
    from kafkalite.transactions.coordinator import TransactionCoordinator
    from kafkalite.transactions.other_brokers import Peers


T = TypeVar("T")

Forwarded = Callable[[_native.Request, type[messages.Message]], Coroutine[Any, Any, None] | None]
"""(a request, its kind) -> the work of having another node answer it, if one is to."""

AskController = Callable[[_native.Request, messages.Message], Coroutine[Any, Any, Any]]
"""(a request, what of it is the controller's) -> the answer to that. Raises ControllerError."""


class Context:
    """Used by the control thread only."""

    def __init__(
        self,
        core: _native.BrokerCore,
        config: Config,
        log: Log,
        metadata: Metadata,
    ) -> None:
        self.core = core
        self.cluster = metadata.cluster
        self.engine = metadata.engine
        self.write_lock = metadata.lock
        self.config = config
        self.log = log
        self.cluster_id: str = core.cluster_id
        self._refused_changes = Repeated(log.warning, REFUSALS_INTERVAL_MS)
        self.refused_topics = Repeated(log.info, TROUBLES_INTERVAL_MS, REFUSALS_INTERVAL_MS)
        self.failed_topics = Repeated(log.error, TROUBLES_INTERVAL_MS, REFUSALS_INTERVAL_MS)
        """Tell of topics that clients name: of those that cannot be created, and of those whose
        creation has failed."""
        self.timers = metadata.timers
        self.tasks = Tasks(self.timers, self._report)
        self._calls = Calls(core.logs)
        self.logs = LogCalls(core.logs, self._calls)
        self.background = Background(core.requests, self._calls)
        self.replicas = Replicas(core, metadata.cluster, metadata.lock)
        self.disks = Disks(self.background)
        self.is_closed = False
        """Set when nobody waits for answers any more: what has not begun is left."""
        self.on_number: dict[int, Callable[[], object]] = {}
        """Further numbers that wake the control thread, and what each has it do."""
        self.forwarded: Forwarded | None = None
        """Answers a request that is the active controller's; None: it is this broker's own."""
        self.ask_controller: AskController | None = None
        """Has the active controller answer a part of a request; None: this node is it."""
        self.peers: Peers | None = None
        """The other brokers of the cluster; None on a node that is alone."""
        self.moves = Moves(core, self)
        if isinstance(self.engine, Controller):
            self.engine.preferred = self.replicas.take_preferred
        self._stop_callbacks: list[Callable[[], None]] = []
        """Called in this order."""
        self._groups: GroupCoordinator | None = None
        self._transactions: TransactionCoordinator | None = None

    def now_ms(self) -> int:
        """Monotonic milliseconds, the clock of `timers`."""
        return monotonic_ms()

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for timestamps."""
        return wall_ms()

    @property
    def is_controller(self) -> bool:
        """This node is the controller."""
        return isinstance(self.engine, Controller)

    @property
    def controller(self) -> Controller:
        """The controller. Raises ControllerError where that is another node."""
        if not isinstance(self.engine, Controller):
            raise ControllerError(codes.NOT_CONTROLLER, "the controllers are other nodes")
        return self.engine

    @property
    def groups(self) -> "GroupCoordinator":
        """The group coordinator, which begins to load its groups when it is first asked for."""
        if self._groups is None:
            from kafkalite.groups.coordinator import GroupCoordinator

            self._groups = GroupCoordinator(self)
            self._groups.runtime.start()
        return self._groups

    @property
    def transactions(self) -> "TransactionCoordinator":
        """The transaction coordinator, which begins to load when it is first asked for."""
        if self._transactions is None:
            from kafkalite.transactions.coordinator import TransactionCoordinator

            self._transactions = TransactionCoordinator(self)
            self._transactions.runtime.start()
        return self._transactions

    def load_coordinators(self) -> None:
        """Has the coordinators load what the last process left, if there is anything."""
        if OFFSETS_TOPIC in self.image.topics:
            _ = self.groups
        if TRANSACTIONS_TOPIC in self.image.topics:
            _ = self.transactions
        if self.peers is not None:
            # What is open in a log may be another broker's to end.
            return
        from kafkalite.transactions.hanging import tell_of_hanging

        self.tasks.start(tell_of_hanging(self))

    def topic_counts(self) -> tuple[int, int]:
        """Topics whose logs have been made, and partitions of all of them. Any thread may ask."""
        is_being_made = self.write_lock.is_being_made
        topics = [each for each in self.image.topics.values() if not is_being_made(each.name)]
        return len(topics), sum(len(topic.partitions) for topic in topics)

    def replica_count(self) -> int:
        """How many replicas of these partitions this node has. Any thread may ask."""
        is_being_made, node_id = self.write_lock.is_being_made, self.cluster.node_id
        return sum(
            node_id in partition.replicas
            for topic in self.image.topics.values()
            if not is_being_made(topic.name)
            for partition in topic.partitions
        )

    def group_states(self) -> Mapping[str, int]:
        """How many groups are in each state, of those that are loaded. Any thread may ask."""
        return {} if self._groups is None else self._groups.count_by_state()

    def on_topics_deleted(self, names: Sequence[str]) -> None:
        """Topics are gone: groups forget what they have read of them."""
        if OFFSETS_TOPIC in names and self._groups is not None:
            self._groups.runtime.drop()
        elif OFFSETS_TOPIC in self.image.topics:
            self.groups.runtime.on_topics(names)
        if TRANSACTIONS_TOPIC in names and self._transactions is not None:
            self._transactions.runtime.drop()

    def on_topics_changed(self, topics: Sequence[TopicImage]) -> None:
        """Leaders of partitions may have changed: coordinators come and go with them."""
        names = {each.name for each in topics}
        if OFFSETS_TOPIC in names:
            self.groups.runtime.on_leaders()
        if TRANSACTIONS_TOPIC in names:
            self.transactions.runtime.on_leaders()

    def may(
        self, request: _native.Request, operation: int, kind: int, name: str | None = None
    ) -> bool:
        """Says whether the client of a request may do an operation to a resource
        (`kafkalite.access`). Without a name: to the cluster, or to some topic, whichever."""
        return self.core.requests.may(request, operation, kind, name)

    async def permitted(
        self, request: _native.Request, operation: int, kind: int, names: Iterable[str]
    ) -> set[str]:
        """The names of those resources to which the client may do the operation."""
        sliced = self.tasks.sliced(names)
        return {name async for name in sliced if self.may(request, operation, kind, name)}

    def operations(self, request: _native.Request, kind: int, name: str | None = None) -> int:
        """The operations that the client may do to a resource, a bit each (KIP-430)."""
        return self.core.requests.operations(request, kind, name)

    def tell_refused_change(self, request: str, refusal: ControllerError) -> None:
        """Has the log say why the disk did not take a change, a line a second at most."""
        if refusal.code == codes.KAFKA_STORAGE_ERROR:
            self._refused_changes.tell(f"{request} refused: {refusal}", self.now_ms())

    def time_limit(self, wait_ms: int) -> TimeLimit:
        """Limits the time of a block of a coroutine (`kafkalite.tasks`)."""
        return self.tasks.until(self.now_ms() + wait_ms)

    def _report(self, error: Exception) -> None:
        """A task has failed that nobody waits for. Errors of its work are its own to tell."""
        if not isinstance(error, KafkaliteError):
            import traceback

            self.log.error("a task failed:", "".join(traceback.format_exception(error)))

    def on_stop(self, callback: Callable[[], None]) -> None:
        """`callback()` when the broker begins to stop, at once if it has begun: requests that wait
        are to be answered. Tasks need none: their time limits are over then."""
        if self.tasks.is_stopping:
            callback()
        else:
            self._stop_callbacks.append(callback)

    def begin_stop(self) -> None:
        """Has the callbacks of `on_stop` called by the control thread. Any thread may call it."""
        self.core.requests.wake(_native.STOP_NUMBER)

    def woken(self, number: int) -> None:
        """A number that `core.requests.wait` gave: calls what it stands for."""
        if number == _native.STOP_NUMBER:
            self.tasks.stop()
            for stop in self._stop_callbacks:
                stop()
        elif number in self.on_number:
            self.on_number[number]()
        else:
            self._calls.end(number)

    @property
    def image(self) -> Image:
        """All metadata as it is now."""
        return self.cluster.image

    async def create_topics(self, wanted: Sequence[NewTopic]) -> dict[str, bytes]:
        """Makes topics that were checked, all of them or none (`Engine.create_topics`)."""
        topic_ids = await self.engine.create_topics(wanted)
        async for each in self.tasks.sliced(wanted):
            self.log.info(f"created topic {each.name} with {each.partition_count} partition(s)")
        return topic_ids

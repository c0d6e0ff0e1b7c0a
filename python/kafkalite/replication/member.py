"""A broker in a cluster of Apache Kafka's controllers: joins it, observes its metadata, serves
that, and leaves it.

    join ──► observer caught up ──► features judged ──► registered ──► metadata up to there
    serve, unfence ──► logs loaded ──► heartbeats want it unfenced ──► it is
    change_by ──► the control thread: records committed ──► delta ──► logs made ──► clients see it
    leave ──► controlled shutdown: partitions are led elsewhere, or by nobody ──► stop

`Observer` and `Lifecycle` decide; this drives them by timers and answers: before the control thread
runs by turns of its own (`_run_until`), then on the control thread.

Kafka: `BrokerServer`, `MetadataLoader`, `BrokerMetadataPublisher`.
"""

import signal
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkalite import _native
from kafkalite.errors import CorruptFileError, KafkaliteError, LoadStoppedError, StorageError
from kafkalite.listeners import between_brokers
from kafkalite.metadata.cluster import Cluster
from kafkalite.metadata.fold import MetadataDelta, difference
from kafkalite.metadata.image import Image, TopicImage
from kafkalite.metadata.publisher import LEFT, EngineConfigs, Publisher, slices
from kafkalite.metadata.write_lock import WriteLock
from kafkalite.protocol import messages
from kafkalite.replication.admission import (
    JoinError,
    homeless_logs,
    homeless_sentence,
    judge_cluster,
    lost_logs,
    raise_lost,
    unserved_sentence,
)
from kafkalite.replication.broker_epoch import NO_EPOCH, Previous, forget, remember
from kafkalite.replication.channels import Channels
from kafkalite.replication.forwarding import RemoteEngine
from kafkalite.replication.lifecycle import (
    HEARTBEAT_VERSION,
    NOT_REGISTERED,
    RECOVERY,
    REGISTRATION_VERSION,
    RUNNING,
    STOPPED,
    Identity,
    Lifecycle,
    Silence,
)
from kafkalite.replication.local_copy import Opened
from kafkalite.replication.observer import Address, Observer, ObserverError
from kafkalite.replication.peers import Peers
from kafkalite.replication.proposals.alter_partition import AlterPartition
from kafkalite.replication.proposals.directory_assignments import DirectoryAssignments
from kafkalite.replication.unclean import unclean_sentence
from kafkalite.replication.waiting import Leaving, Published, Waiting, load_beside
from kafkalite.service.repeated import TROUBLES_INTERVAL_MS, Repeated
from kafkalite.service.stderr_log import Log
from kafkalite.tasks import Future
from kafkalite.timers import Timer, Timers, monotonic_ms

if TYPE_CHECKING:
    from kafkalite.context import Context

TURN_MS: Final = 100
LOADING_TURN_MS: Final = 10
WAITING_TOLD_MS: Final = 5_000
UNMADE_MS: Final = 10_000
"""Until logs that could not be made are tried again."""

T = TypeVar("T")


class Member:
    """See above; a `kafkalite.metadata.engine.Metadata`."""

    def __init__(
        self,
        identity: Identity,
        bootstrap: Sequence[Address],
        engine_configs: EngineConfigs,
        log: Log,
        opened: Opened,
        *,
        is_durable: bool,
        heartbeat_ms: int,
        session_ms: int,
        registration_ms: int,
        directory_failure_ms: int,
        lag_ms: int,
        inter_broker_listener: str,
    ) -> None:
        """`opened`: the copy of the metadata's log. `is_durable`: what is acknowledged is on disk.
        `session_ms`: `broker.session.timeout.ms`; an answer is waited for half of it. `lag_ms`:
        `replica.lag.time.max.ms`."""
        self.node_id = identity.node_id
        self.publisher = Publisher(engine_configs, identity.features)
        self.lock = WriteLock()
        self.timers = Timers()
        self.channels = Channels(f"broker-{identity.node_id}")
        self.observer = Observer(
            identity.node_id, identity.cluster_id, bootstrap, *opened[:2], opened.directory_id
        )
        self.lifecycle = Lifecycle(
            identity,
            heartbeat_ms,
            session_ms,
            registration_ms,
            directory_failure_ms,
            self.now_ms(),
        )
        self.image = Image()
        """The metadata that is in force here, or is about to be."""
        self._applied_offset = -1
        """The offset of the last record that is in force completely."""
        self.cluster = Cluster(identity.node_id, self)
        self.engine = RemoteEngine(self)
        self._assignments = DirectoryAssignments(
            self, self.channels, self.timers, self.now_ms, self._is_gone
        )
        self._directory_ids = dict(identity.directories)
        self._previous = identity.previous
        self._is_durable = is_durable
        self._copy = opened.copy
        self._lag_ms = lag_ms
        self._inter_broker_listener = inter_broker_listener
        self._log = log
        self._repeated = Repeated(log.warning, TROUBLES_INTERVAL_MS)
        self._answer_ms = max(1, session_ms // 2)
        self._stop_signals: Collection[signal.Signals] = ()
        self._failure: KafkaliteError | None = None
        self._on_failure: Callable[[str], None] | None = None
        self._context: Context | None = None
        self._core: _native.BrokerCore | None = None
        self._snapshots_loaded = 0
        self._is_publishing = False
        self._unmade: set[str] = set()
        """Topics that lack logs here, which could not be made."""
        self._published = Published()
        self._beat_timer: Timer | None = None
        self._is_beating = False
        self._silence = Silence(self.now_ms())
        self._waiting = Waiting(self.observer, self.lifecycle, self.now_ms())
        self._leaving = Leaving(self._silence, log)

    def now_ms(self) -> int:
        """Monotonic milliseconds."""
        return monotonic_ms()

    # --- as a source of the image (`kafkalite.metadata.cluster`) ----------------------------------

    @property
    def quorum(self) -> "Member":
        """The quorum that writes the metadata, as far as this broker knows it."""
        return self

    @property
    def leader_id(self) -> int:
        """The active controller, or -1."""
        return self.observer.leader.id

    @property
    def leader_epoch(self) -> int:
        """The quorum's."""
        return self.observer.leader.epoch

    @property
    def end_offset(self) -> int:
        """The end offset of the metadata that is in force here."""
        return self.image.last_offset + 1

    @property
    def voter_directory_id(self) -> bytes:
        """This node is no voter."""
        return bytes(16)

    @property
    def kraft_version(self) -> int:
        """The version of the quorum's own records."""
        return self.observer.replay.quorum.kraft_version

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration."""
        return self.lifecycle.epoch

    @property
    def controller_address(self) -> Address | None:
        """Where the active controller is, as far as it is known."""
        return self.observer.leader.address

    # --- the start --------------------------------------------------------------------------------

    def join(self, stop_signals: Collection[signal.Signals]) -> None:
        """Registers the broker; returns once the metadata up to there is known. Raises
        KafkaliteError where the cluster cannot be joined, LoadStoppedError by a signal."""
        self._stop_signals = stop_signals
        self._fetch()
        observer = self.observer
        self._run_until(lambda: self.lifecycle.state == RECOVERY and not observer.has_more)
        self.image = self._take_delta().image
        self._applied_offset = self.image.last_offset
        self._log.info(
            f"registered as broker {self.node_id} in epoch {self.broker_epoch}; the active "
            f"controller is {self.leader_id}"
        )

    def while_loading(self, load: Callable[[], T], stop: Callable[[], None]) -> T:
        """Calls `load()` on a thread of its own, while heartbeats go on: who is silent for a
        session is taken for dead, and logs may take longer. Raises as `load` and `_run_until`."""
        return load_beside(load, stop, lambda is_so: self._run_until(is_so, LOADING_TURN_MS))

    def serve(self, core: _native.BrokerCore, listener_names: Sequence[str]) -> None:
        """From now on changes are published to `core`, which has loaded the topics. Raises
        JoinError where their logs lack what the registration has vouched for."""
        own, offline = self._directory_ids.values(), core.offline_log_dirs()
        homeless = homeless_logs(self.image, self.node_id, own, core.moved)
        if self._previous.epoch != NO_EPOCH:
            lost = lost_logs(self.image, self.node_id, [*core.lost, *homeless])
            if lost or (self._previous.is_of_kill and offline):
                forget(map(Path, self._directory_ids))
                raise_lost([*lost, *offline])
            if core.lost:
                # The load has forgotten it, and nothing of this epoch is lost.
                self._remember_epoch()
        if homeless:
            self._log.warning(homeless_sentence(homeless, offline))
        self._core = core
        self._unmade.update(name for name, _ in core.unmade)
        for topic_id, index, directory in core.moved:
            self._assignments.directories.found(topic_id, index, directory)
        self.publisher.serve(
            core.topics,
            self.image,
            node_id=self.node_id,
            kraft_version=self.kraft_version,
            listener_names=listener_names,
            inter_broker_listener=self._inter_broker_listener,
        )

    def unfence(self) -> None:
        """The broker is ready: returns when the controller has taken that in."""
        self.lifecycle.set_ready()
        self._beat_soon()
        self._run_until(lambda: self.lifecycle.state == RUNNING)

    def _run_until(self, is_so: Callable[[], bool], turn_ms: int = TURN_MS) -> None:
        began_ms = told_ms = self.now_ms()
        while not is_so():
            if self._failure is not None:
                raise self._failure
            if signal.sigpending() & set(self._stop_signals):
                raise LoadStoppedError("stopped")
            now_ms = self.now_ms()
            while (callback := self.timers.pop_due(now_ms)) is not None:
                callback()
            self._waiting.check(now_ms)
            if now_ms - told_ms >= WAITING_TOLD_MS:
                told_ms = now_ms
                waited = f"{(now_ms - began_ms) // 1_000} s so far"
                if self.lifecycle.state == NOT_REGISTERED:
                    waited += f" and {self.lifecycle.registration_ms // 1_000} s at most"
                self._log.info(f"the broker waits, {waited}, for {self._waiting.sentence()}")
            next_ms = self.timers.next_ms()
            wait_ms = turn_ms if next_ms is None else next_ms - self.now_ms()
            self.channels.poll(max(0, min(turn_ms, wait_ms)))

    # --- while it serves --------------------------------------------------------------------------

    def change_by(self, thread: "Context") -> None:
        """From now on changes are published by the control thread, whose timers are `timers`."""
        self._context = thread
        thread.on_number[_native.OUTBOUND_ANSWERS_NUMBER] = lambda: self.channels.poll(0)
        thread.on_number[_native.LEAVE_NUMBER] = self.begin_leaving
        thread.forwarded = self._forwarded
        thread.ask_controller = partial(self.engine.ask_controller, thread)
        thread.peers = Peers(self, self.channels, between_brokers(thread.config))
        self.engine.serve(thread)
        self.publisher.change_logs_by(thread.logs)
        self.channels.wake_by(thread.core.requests)
        self.timers.call_at(self.now_ms(), self._begin_publishing)
        self._lead(thread)

    def _lead(self, thread: "Context") -> None:
        """Has the leaders of this broker change their in-sync replicas by the controller."""
        leaders = thread.core.leaders
        alter_partition = AlterPartition(
            self, leaders, self.channels, self.timers, self.now_ms, self._log, lag_ms=self._lag_ms
        )
        thread.on_number[_native.ISR_CHANGES_NUMBER] = alter_partition.take

    def _forwarded(
        self, request: _native.Request, kind: type[messages.Message]
    ) -> Coroutine[Any, Any, None] | None:
        if self._context is None or not self.engine.is_forwarded(request):
            return None
        return self.engine.forward(self._context, request, kind)

    def on_failure(self, watcher: Callable[[str], None]) -> None:
        """`watcher(sentence)` is called when the broker cannot go on."""
        self._on_failure = watcher

    def leave(self) -> None:
        """The controlled shutdown, while the broker serves: returns when it may stop. Not to be
        called by the control thread."""
        if self._context is None or self._failure is not None:
            return
        self._context.core.requests.wake(_native.LEAVE_NUMBER)
        self._leaving.wait()

    def leave_at_once(self) -> None:
        """Ends `leave`, by any thread."""
        self._leaving.give_up()

    def begin_leaving(self) -> None:
        """As `leave`, on the control thread."""
        self.lifecycle.begin_stop()
        if self._core is not None:
            self._core.begin_controlled_shutdown()
        self._beat_soon()

    def stop(self, _core: _native.BrokerCore) -> None:
        """The end of a clean stop: the copy of the metadata's log is closed. Raises
        KafkaliteError."""
        self._copy.close()

    # --- observer and lifecycle -------------------------------------------------------------------

    def _fetch(self) -> None:
        if self._copy.failure is not None:
            self._fail(self._copy.failure)
            return
        if self._copy.is_behind:
            self.timers.call_at(self.now_ms() + TURN_MS, self._fetch)
            return
        ask = self.observer.ask()
        self.channels.send(
            "observer", ask.address, ask.message, ask.version, ask.timeout_ms, self._on_fetched
        )

    def _on_fetched(self, answer: Any) -> None:
        observer = self.observer
        try:
            if isinstance(answer, str):
                self._log.debug(f"metadata: {answer}")
                self._waiting.trouble = answer
                delay_ms = observer.on_failure()
            else:
                delay_ms = observer.on_answer(answer)
        except (ObserverError, CorruptFileError) as error:
            self._fail(error)
            return
        except KafkaliteError as error:
            # Bytes that were damaged on their way: they are asked for again.
            self._repeated.tell(
                f"an answer of the controllers cannot be read, and is asked for again: {error}",
                self.now_ms(),
                "unread",
            )
            delay_ms = observer.on_failure()
        self._go_on(delay_ms)

    def _go_on(self, delay_ms: int) -> None:
        """Has what is committed added up, some at a time, and come into force; then the next
        Fetch."""
        observer = self.observer
        if observer.has_more:
            try:
                observer.add_up()
            except KafkaliteError as error:
                self._fail(error)
                return
            # Others have their turn meanwhile: heartbeats above all.
            self.timers.call_at(self.now_ms() + 1, partial(self._go_on, delay_ms))
            return
        if observer.is_caught_up and not self._is_beating:
            self._is_beating = True
            try:
                judge_cluster(observer.replay)
            except JoinError as error:
                self._fail(error)
                return
            self._judge_directories()
            self._beat()
        self._publish_if_due()
        self.timers.call_at(self.now_ms() + delay_ms, self._fetch)

    def _beat_soon(self) -> None:
        """A heartbeat now, unless one is under way, whose answer brings the next one."""
        if self._beat_timer is not None:
            self._beat_timer.cancel()
            self._beat_timer = self.timers.call_at(self.now_ms(), self._beat)

    def _beat(self) -> None:
        self._beat_timer = None
        if self.lifecycle.state == STOPPED:
            self._leaving.end()
            return
        address = self.controller_address
        if address is None:
            self._on_beat(f"no active controller is known{self._waiting.why(': {}')}")
            return
        offset = self.observer.replay.offset if self._core is None else self._applied_offset
        offline = self._offline_directories()
        if len(offline) == len(self._directory_ids):
            self._fail(StorageError("all log directories have failed"))
            return
        message = self.lifecycle.ask(offset, offline)
        is_new = self.lifecycle.state == NOT_REGISTERED
        version = REGISTRATION_VERSION if is_new else HEARTBEAT_VERSION
        self.channels.send("lifecycle", address, message, version, self._answer_ms, self._on_beat)

    def _on_beat(self, answer: Any) -> None:
        lifecycle, now_ms = self.lifecycle, self.now_ms()
        self.engine.learn_versions()
        was_fenced, state = lifecycle.is_fenced, lifecycle.state
        told = self._silence.note(answer if isinstance(answer, str) else "", now_ms)
        if told and state == RUNNING:
            self._log.warning(told)
        try:
            if isinstance(answer, str):
                delay_ms = lifecycle.on_failure(answer, now_ms)
            else:
                delay_ms = lifecycle.on_answer(answer, now_ms, self.observer.replay.fold.brokers)
        except KafkaliteError as error:
            self._fail(error)
            return
        if state == NOT_REGISTERED != lifecycle.state:
            self._remember_epoch()
        if lifecycle.is_fenced != was_fenced and state == RUNNING:
            word = "fenced" if lifecycle.is_fenced else "not fenced any more"
            self._log.warning(f"the controller says that this broker is {word}")
        if lifecycle.state == STOPPED:
            delay_ms = 0
        self._beat_timer = self.timers.call_at(now_ms + delay_ms, self._beat)

    def _remember_epoch(self) -> None:
        """At once: the registration has taken the place of the one before, so that a process which
        is killed before it serves must name this one. Its logs are looked at by each start."""
        if self._is_durable:
            try:
                remember(map(Path, self._directory_ids), self.broker_epoch)
            except StorageError as error:
                self._log.warning(
                    f"{error}: after a kill this broker counts as one that lost records"
                )

    def _offline_directories(self) -> list[bytes]:
        paths = [] if self._core is None else self._core.offline_log_dirs()
        return [self._directory_ids[each] for each in paths if each in self._directory_ids]

    def _is_gone(self, directory: bytes) -> bool:
        is_known = directory in self._directory_ids.values()
        return not is_known and self._core is not None and not self._core.offline_log_dirs()

    def _fail(self, error: KafkaliteError) -> None:
        self._failure = error
        self._leaving.end()
        if self._on_failure is not None:
            self._on_failure(str(error))

    def _judge_directories(self) -> None:
        """After a kill all log directories must be back, or what lies in the others is missed."""
        registered = self.observer.replay.fold.brokers.get(self.node_id)
        if registered is None or not self._previous.is_of_kill:
            return
        missing = set(registered.directories) - set(self._directory_ids.values())
        if missing:
            self._log.warning(
                f"{len(missing)} log directories of the last process are not there: this broker "
                "registers as one that may have lost records"
            )
            self._previous = Previous()
            self.lifecycle.forget_previous()

    # --- publishing -------------------------------------------------------------------------------

    def _take_delta(self) -> MetadataDelta:
        """The changes that are committed and not in force yet."""
        replay = self.observer.replay
        delta = replay.fold.take_delta(replay.epoch, replay.offset, replay.timestamp)
        if not replay.fold.in_transaction:
            self._copy.snapshot_if_due(delta.image, replay.quorum)
        if self._snapshots_loaded != self.observer.snapshots_loaded:
            self._snapshots_loaded = self.observer.snapshots_loaded
            return difference(self.image, delta.image)
        return delta

    def _begin_publishing(self) -> None:
        """First what the logs of the start have left open; later what could not be made."""
        if self._is_publishing:
            self.timers.call_at(self.now_ms() + TURN_MS, self._begin_publishing)
        elif self._context is not None:
            self._context.tasks.start(self._place_unassigned(self._context))

    async def _place_unassigned(self, context: "Context") -> None:
        self._is_publishing = True
        unmade, self._unmade = self._unmade, set()
        is_unassigned = self._assignments.directories.is_unassigned
        topics = [
            each
            for each in self.image.topics.values()
            if each.name in unmade or any(map(is_unassigned, each.partitions))
        ]
        try:
            for some in slices(topics):
                await self._show(some)
            context.on_topics_changed([each for each in topics if each.name in unmade])
        except KafkaliteError as error:
            self._fail(error)
        self._is_publishing = False
        self._assignments.tell()
        self._publish_if_due()

    def _publish_if_due(self) -> None:
        context = self._context
        if context is not None and self._is_behind and not self._is_publishing:
            context.tasks.start(self._publish(context))

    @property
    def _is_behind(self) -> bool:
        """Whole batches are added up, and not in force yet."""
        observer = self.observer
        return observer.replay.offset != self.image.last_offset and not observer.has_more

    async def _publish(self, context: "Context") -> None:
        self._is_publishing = True
        try:
            while self._is_behind:
                if told := unserved_sentence(self.observer.replay):
                    self._repeated.tell(told, self.now_ms(), told)
                await self._put_in_force(context, self._take_delta())
                self._applied_offset = self.image.last_offset
                self._published.wake()
        except KafkaliteError as error:
            self._fail(error)
        finally:
            self._is_publishing = False

    async def _put_in_force(self, context: "Context", delta: MetadataDelta) -> None:
        image = self.image = delta.image
        publisher = self.publisher
        gone = [each.name for each in delta.deleted_topics]
        if gone:
            self._assignments.directories.forget(delta.deleted_topics)
            # Nobody waits for that: a directory may have failed, or hang.
            context.tasks.start(self._tell_left(publisher.delete_topics(gone)))
            context.on_topics_deleted(gone)
        publisher.publish(delta)
        if not delta.changed_topics:
            return
        if told := unclean_sentence(delta, self.node_id):
            self._log.warning(told)
        new = {each.name for each in delta.changed_topics if each.name not in delta.before.topics}
        new |= set(gone) & set(image.topics)
        with self.lock.changing(new, are_new=True):
            for topics in slices(delta.changed_topics):
                await self._show(topics)
                # Heartbeats go out between two of them.
                await context.tasks.yield_now()
        context.on_topics_changed(delta.changed_topics)

    async def _tell_left(self, deleted: Future[None]) -> None:
        try:
            await deleted
        except KafkaliteError as error:
            self._log.warning(LEFT.format(error))

    async def _show(self, topics: Sequence[TopicImage]) -> None:
        """Has clients see topics, once the logs that they lack here are made, if they can be."""
        states = self.publisher.states(self.image, topics)
        context = self._context
        preferred = (lambda *_: None) if context is None else context.replicas.take_preferred
        placed = self._assignments.directories.placed(states, self.publisher.place, preferred)
        try:
            await self.publisher.make_each_log(placed)
        except KafkaliteError as error:
            sentence = f"partitions are offline whose logs cannot be created yet: {error}"
            self._repeated.tell(sentence, self.now_ms(), "unmade")
            if not self._unmade:
                self.timers.call_at(self.now_ms() + UNMADE_MS, self._begin_publishing)
            self._unmade.update(placed)
        self.publisher.publish_placed(placed)
        self._assignments.tell()

    def assign_directories(self, assignments: Sequence[tuple[bytes, int, bytes]]) -> None:
        """Replicas move to other log directories, or stay where they were after all."""
        self._assignments.move(assignments)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Returns once `is_so()` after a change of the metadata has come into force."""
        await self._published.until(is_so)

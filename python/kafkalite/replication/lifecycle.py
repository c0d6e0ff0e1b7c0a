"""The life of a broker towards its controllers: registered, fenced, serving, stopped.

    NOT_REGISTERED ─62 ok─► STARTING ─caught up─► RECOVERY ─ready, not fenced─► RUNNING
                                                                                   │ stop wanted
                                             STOPPED ◄─should shut down─ STOPPING ◄┘

Pure: (state, answer, now) → state, and when to ask again. `ask` says what is to be sent. A
registration that is refused because the session of this broker's last process is still valid is
tried again until that is over; one that would be refused for ever raises LifecycleError.

Kafka: `BrokerLifecycleManager`.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kafkalite.errors import KafkaliteError
from kafkalite.metadata.image import BrokerEndpoint
from kafkalite.protocol import codes, messages
from kafkalite.protocol.error_codes import error_code
from kafkalite.replication.broker_epoch import Previous
from kafkalite.replication.registered import Brokers, refusal, session_of

NOT_REGISTERED: Final = "not registered"
STARTING: Final = "starting"
RECOVERY: Final = "recovery"
RUNNING: Final = "running"
STOPPING: Final = "stopping"
STOPPED: Final = "stopped"

REGISTRATION_VERSION: Final = 4
HEARTBEAT_VERSION: Final = 2
RETRY_MS: Final = 250
"""Until a registration or a heartbeat that has failed is sent again."""
STARTING_MS: Final = 10
STOPPING_MS: Final = 50
"""Between heartbeats while the broker waits for the controller's word."""
SILENCE_TOLD_MS: Final = 5_000
SILENCE_AGAIN_MS: Final = 30_000

NOBODY: Final[Brokers] = {}

PERMANENT: Final = frozenset(
    (codes.INCONSISTENT_CLUSTER_ID, codes.UNSUPPORTED_VERSION, codes.INVALID_REGISTRATION)
)


class LifecycleError(KafkaliteError):
    """The controllers do not take this broker."""


class Identity(NamedTuple):
    """A broker's own words when it registers."""

    node_id: int
    cluster_id: str
    incarnation_id: bytes
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[tuple[str, int, int], ...]
    """Name, lowest and highest level."""
    rack: str | None
    directories: tuple[tuple[str, bytes], ...]
    """Paths and ids."""
    previous: Previous
    """The epoch of the last process."""


class Silence:
    """For how long no controller has answered, and when that is worth a line."""

    def __init__(self, now_ms: int) -> None:
        self.reason = ""
        """The reason why the last request had no answer; empty if it had one."""
        self._answered_ms = now_ms
        self._told_ms: int | None = None

    def note(self, reason: str, now_ms: int) -> str:
        """There was an answer, or this is the reason why not. Returns a sentence for the log, or
        none."""
        silent_ms, told_ms = now_ms - self._answered_ms, self._told_ms
        self.reason = reason
        if not reason:
            self._answered_ms, self._told_ms = now_ms, None
            if told_ms is None:
                return ""
            return f"a controller answers again, after {silent_ms // 1_000} s"
        is_due = told_ms is None or now_ms - told_ms >= SILENCE_AGAIN_MS
        if silent_ms < SILENCE_TOLD_MS or not is_due:
            return ""
        self._told_ms = now_ms
        return (
            f"no controller has answered for {silent_ms // 1_000} s ({reason}): this broker serves "
            "on, and is fenced if its session ends meanwhile"
        )


class Lifecycle:
    """See above. Times are milliseconds of a monotonic clock."""

    def __init__(
        self,
        identity: Identity,
        heartbeat_ms: int,
        session_ms: int,
        registration_ms: int,
        directory_failure_ms: int,
        now_ms: int,
    ) -> None:
        """`session_ms`: `broker.session.timeout.ms`; `registration_ms`:
        `initial.broker.registration.timeout.ms`; `directory_failure_ms`:
        `log.dir.failure.timeout.ms`."""
        self.state: str = NOT_REGISTERED
        self.epoch = -1
        self.is_fenced = True
        self.waiting_for = "the controllers to take the registration"
        """The reason why the broker does not serve yet."""
        self._identity = identity
        self._heartbeat_ms = heartbeat_ms
        self._session_ms = session_ms
        self.registration_ms = registration_ms
        self._registration_due_ms = now_ms + registration_ms
        self._duplicate_since_ms: int | None = None
        """When the controllers said first that another process has this id."""
        self._is_ready = False
        self._directory_failure_ms = directory_failure_ms
        self._asked_offline: frozenset[bytes] = frozenset()
        """Log directories of which the last heartbeat has told the controller that they failed."""
        self._told_offline: frozenset[bytes] = frozenset()
        """The failed directories that it has acknowledged."""
        self._untold_since_ms: int | None = None

    def forget_previous(self) -> None:
        """The epoch of the last process does not hold: what that has acknowledged may be lost. To
        be called before the registration."""
        self._identity = self._identity._replace(previous=Previous())

    def set_ready(self) -> None:
        """The logs are loaded: the broker wants to be unfenced."""
        self._is_ready = True

    def begin_stop(self) -> None:
        """The broker wants its partitions to be led elsewhere, and to stop then."""
        if self.state == RUNNING:
            self.state = STOPPING
        elif self.state != STOPPING:
            self.state = STOPPED

    def ask(self, applied_offset: int, offline_directories: Sequence[bytes] = ()) -> Any:
        """Gives the request that is to be sent now; `applied_offset` is that of the last metadata
        record in force."""
        if self.state == NOT_REGISTERED:
            return self._registration()
        self._asked_offline = frozenset(offline_directories)
        return messages.BrokerHeartbeatRequest(
            broker_id=self._identity.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=applied_offset,
            want_fence=not self._is_ready,
            want_shut_down=self.state == STOPPING,
            offline_log_dirs=list(offline_directories),
            cordoned_log_dirs=None if self.state == STARTING else [],
        )

    def on_failure(self, reason: str, now_ms: int) -> int:
        """There was no answer, or one that says to ask again. Returns after how many milliseconds.
        Raises LifecycleError where the time of the registration is over, or that in which the
        controller is to hear of a failed log directory."""
        if self.state == NOT_REGISTERED:
            return self._wait_for(f"an answer of the active controller ({reason})", now_ms)
        if not self._asked_offline <= self._told_offline:
            if self._untold_since_ms is None:
                self._untold_since_ms = now_ms
            if now_ms - self._untold_since_ms >= self._directory_failure_ms:
                raise LifecycleError(
                    "the controller has not heard within log.dir.failure.timeout.ms that a log "
                    f"directory failed: {reason}"
                )
        return RETRY_MS

    def _wait_for(self, what: str, now_ms: int) -> int:
        self.waiting_for = what
        if now_ms >= self._registration_due_ms:
            raise self.overdue(what)
        return RETRY_MS

    def overdue(self, what: str) -> LifecycleError:
        """The error of a broker that has waited for something, and was not registered in time."""
        return LifecycleError(
            f"the broker was not registered within {self.registration_ms} ms "
            f"(initial.broker.registration.timeout.ms); it has waited for {what}"
        )

    def on_answer(self, answer: Any, now_ms: int, brokers: Brokers = NOBODY) -> int:
        """Takes an answer in; `brokers` are those that are registered. Returns after how many
        milliseconds to ask again. Raises LifecycleError."""
        code = answer.error_code
        if answer._name == "BrokerRegistrationResponse":
            return self._on_registration(answer, now_ms, brokers)
        if code == codes.STALE_BROKER_EPOCH:
            return self._on_stale_epoch(now_ms, brokers)
        if code:
            return self.on_failure(f"a heartbeat is refused by {error_code(code).name}", now_ms)
        self._told_offline, self._untold_since_ms = self._asked_offline, None
        self.is_fenced = answer.is_fenced
        if self.state == STARTING and answer.is_caught_up:
            self.state, self.waiting_for = RECOVERY, "its logs"
        if self.state == RECOVERY and self._is_ready:
            self.waiting_for = "the controller to unfence it"
            if not answer.is_fenced:
                self.state = RUNNING
        if self.state == STOPPING and answer.should_shut_down:
            self.state = STOPPED
        return self._interval_ms()

    def _on_stale_epoch(self, now_ms: int, brokers: Brokers) -> int:
        """Kafka's broker sends its heartbeats again and again, and serves nobody."""
        node_id = self._identity.node_id
        known = brokers.get(node_id)
        if known is not None and known.epoch == self.epoch:
            return self.on_failure("its registration ended, the metadata does not say why", now_ms)
        if known is None and self.state != STARTING:
            raise LifecycleError(
                f"broker {node_id} is not registered any more: it was unregistered while it ran; "
                "it registers again when it starts"
            )
        raise LifecycleError(
            f"the controllers know a later registration of broker {node_id} than this one: "
            "another process with its node.id has started"
        )

    def _interval_ms(self) -> int:
        if self.state == STARTING or (self.state == RECOVERY and self._is_ready):
            return STARTING_MS
        return STOPPING_MS if self.state == STOPPING else self._heartbeat_ms

    def _on_registration(self, answer: Any, now_ms: int, brokers: Brokers) -> int:
        code, own = answer.error_code, self._identity
        if code == codes.DUPLICATE_BROKER_REGISTRATION:
            if self._duplicate_since_ms is None:
                self._duplicate_since_ms = now_ms
            waited_ms = now_ms - self._duplicate_since_ms
            session = session_of(own.node_id, brokers, self._session_ms, waited_ms)
            return self._wait_for(session, now_ms)
        if code in PERMANENT:
            raise LifecycleError(refusal(code, own.node_id, own.directories, brokers))
        if code:
            name = error_code(code).name
            return self._wait_for(
                f"the controllers, who refuse it by {name}, to register it", now_ms
            )
        self.state, self.epoch = STARTING, answer.broker_epoch
        self.waiting_for = "the metadata up to its registration"
        # At once: until then another process of this id could register, too.
        return 0

    def _registration(self) -> Any:
        own, kind = self._identity, messages.BrokerRegistrationRequest
        return kind(
            broker_id=own.node_id,
            cluster_id=own.cluster_id,
            incarnation_id=own.incarnation_id,
            listeners=[
                kind.Listener(
                    name=each.name,
                    host=each.host,
                    port=each.port,
                    security_protocol=each.protocol,
                )
                for each in own.endpoints
            ],
            features=[
                kind.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, low, high in own.features
            ],
            rack=own.rack,
            log_dirs=sorted(each for _, each in own.directories),
            previous_broker_epoch=own.previous.epoch,
        )

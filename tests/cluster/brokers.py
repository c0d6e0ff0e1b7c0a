"""A cluster whose brokers may each be Apache Kafka's or kafkalite's, one after the other in place:
the same id, `server.properties` and `log.dirs`. Their controller is Kafka's.

Other brokers come to a broker by a listener of its own (INTERNAL), before which stands a proxy that
tells them apart (`faults/proxy.py`); clients come straight.
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path

from faults.proxy import Mode, Proxy
from kafkalite.client.admin import BROKER
from kafkalite.client.cluster_admin import ClusterAdmin
from kafkalite.client.descriptions import PartitionDescription
from kafkalite.errors import BrokerError
from kafkalite.protocol.codes import UNKNOWN_TOPIC_OR_PARTITION
from oracle.broker import KafkaBroker
from oracle.tools import KafkaTools
from ports import free_ports
from replication.nodes import (
    CONTROLLER_ID,
    SESSION_MS,
    Node,
    cluster_id_of,
    new_controller,
    wait_until,
)

BACK_S = 90.0
LAG_MS = 3_000
MIN_ISR = 2


class Kind(StrEnum):
    """Whose a broker is."""

    KAFKA = "kafka"
    KAFKALITE = "kafkalite"


class Member:
    """A broker, of either kind."""

    def __init__(
        self,
        tools: KafkaTools,
        folder: Path,
        controller: KafkaBroker,
        node_id: int,
        configs: Mapping[str, str],
        *,
        jvm: Sequence[str] | None = None,
        is_proxied: bool = True,
        log_dirs: Sequence[Path] = (),
    ) -> None:
        """Formats its directories, of which there is one unless `log_dirs` names others. Nothing
        runs until `start`. A JVM has the options of a short test unless `jvm` has others."""
        self.id = node_id
        self.kind = Kind.KAFKA
        self.proxy = Proxy(node_id)
        (port,) = free_ports(1)
        self.proxy.target = f"127.0.0.1:{port}"
        internal = self.proxy.address if is_proxied else self.proxy.target
        properties = {
            "process.roles": "broker",
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{{port}},INTERNAL://{self.proxy.target}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{{port}},INTERNAL://{internal}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "inter.broker.listener.name": "INTERNAL",
            "controller.quorum.voters": f"{CONTROLLER_ID}@{controller.bootstrap_servers}",
            "broker.session.timeout.ms": str(SESSION_MS),
            "broker.heartbeat.interval.ms": "500",
            "replica.lag.time.max.ms": str(LAG_MS),
            "replica.fetch.backoff.ms": "200",
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": str(MIN_ISR),
            "transaction.state.log.num.partitions": "4",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "log.segment.bytes": str(1 << 20),
            **configs,
        }
        self._kafka = KafkaBroker(
            tools,
            folder,
            log_dirs=log_dirs,
            properties=properties,
            jvm=jvm,
            cluster_id=cluster_id_of(controller),
        )
        self._kafka.prepare()
        self._kafkalite = Node.over(self._kafka, node_id)
        self.address = self._kafka.bootstrap_servers
        self.log_dirs = self._kafka.log_dirs
        self.is_running = False

    @property
    def pid(self) -> int:
        """Of the running broker."""
        return self._at.pid

    @property
    def _at(self) -> KafkaBroker | Node:
        return self._kafka if self.kind is Kind.KAFKA else self._kafkalite

    def start(self, kind: Kind | None = None) -> None:
        """Starts it, as another kind if need be; returns when clients are served."""
        self.kind = kind or self.kind
        self.is_running = True
        self._at.start()

    def stop(self) -> None:
        """A clean stop (SIGTERM)."""
        self.is_running = False
        self._at.stop()

    def kill(self) -> None:
        """SIGKILL. Nothing happens if it does not run."""
        self.is_running = False
        self._at.kill()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """SIGSTOP, and SIGCONT at the end of the block."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def link(self, mode: Mode, peers: Iterable["Member"]) -> Iterator[None]:
        """What others fetch from this broker meets the mode."""
        prefixes = [f"broker-{each.id}-fetcher-" for each in peers if each is not self]
        for each in prefixes:
            self.proxy.set(mode, each)
        try:
            yield
        finally:
            for each in prefixes:
                self.proxy.set(Mode.ON, each)

    def replica(self, name: str) -> Path:
        """The folder of a partition, `topic-0`, in whichever log directory it is."""
        topic, _, index = name.rpartition("-")
        return self._kafka.partition(topic, int(index))

    def told(self, lines: int = 15) -> str:
        """The end of its output."""
        found = self._at.output.read_text().splitlines() if self._at.output.exists() else []
        return "\n".join(found[-lines:])


class Cluster:
    """The controller and the brokers; numbers from 1 on are the ids of brokers."""

    def __init__(self, controller: KafkaBroker, members: Sequence[Member]) -> None:
        self.controller = controller
        self.members = {each.id: each for each in members}

    @property
    def servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(each.address for each in self.members.values())

    def admin(self) -> ClusterAdmin:
        """A client of the cluster."""
        return ClusterAdmin(self.servers, timeout_ms=30_000)

    def partitions(self, topic: str) -> list[PartitionDescription]:
        """As one of the brokers tells them, once it knows a topic that has been made."""
        found: list[PartitionDescription] = []

        def is_known() -> bool:
            try:
                with self.admin() as admin:
                    found[:] = admin.describe_topics(topic)[0].partitions
            except BrokerError as error:
                if error.code != UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                return False
            return True

        wait_until(is_known, BACK_S)
        return found

    def leader(self, topic: str, partition: int = 0) -> Member:
        """The broker that leads a partition, once one does."""
        found: list[int] = []

        def is_led() -> bool:
            found[:] = [self.partitions(topic)[partition].leader]
            return found[0] in self.members

        wait_until(is_led, BACK_S)
        return self.members[found[0]]

    def wait_for_isr(self, topic: str) -> None:
        """Until all replicas are in sync."""

        def is_whole() -> bool:
            rows = self.partitions(topic)
            return all(sorted(row.isr) == sorted(row.replicas) for row in rows)

        wait_until(is_whole, BACK_S)

    def wait_until_unfenced(self) -> None:
        """Until all brokers that run take clients."""
        running = {each.id for each in self.members.values() if each.is_running}

        def are_there() -> bool:
            with self.admin() as admin:
                return {each.id for each in admin.describe_cluster().brokers} == running

        wait_until(are_there, BACK_S)

    def start(self, *kinds: Kind) -> None:
        """Starts all brokers at once, as these kinds."""
        members = list(self.members.values())
        with ThreadPoolExecutor(len(members)) as pool:
            list(pool.map(Member.start, members, kinds))
        self.wait_until_unfenced()
        with self.admin() as admin:
            # With eligible leader replicas it is the cluster's, whatever brokers' files say.
            admin.alter_configs(BROKER, "", {"min.insync.replicas": MIN_ISR})

    def become(self, *kinds: Kind) -> None:
        """Exchanges, one after the other and in place, the brokers that are of another kind."""
        for member, kind in zip(self.members.values(), kinds, strict=True):
            if member.kind is not kind or not member.is_running:
                if member.is_running:
                    member.stop()
                member.start(kind)
                self.wait_until_unfenced()


@contextmanager
def new_cluster(
    tools: KafkaTools,
    folder: Path,
    count: int = 3,
    configs: Callable[[int], Mapping[str, str]] = lambda _: {},
    *,
    jvm: Sequence[str] | None = None,
    is_proxied: bool = True,
    controller_configs: Mapping[str, str] = {},
    log_dirs: Callable[[int], Sequence[Path]] = lambda _: (),
) -> Iterator[Cluster]:
    """A controller that runs and brokers that do not yet; `configs` and `log_dirs` are those of a
    broker, by its id. All end with the block. Unless it `is_proxied` brokers reach each other
    straight."""
    with ExitStack() as stack:
        quorum = stack.enter_context(
            new_controller(tools, folder / "controller", configs=controller_configs)
        )
        members = [
            Member(
                tools,
                folder / str(each),
                quorum,
                each,
                configs(each),
                jvm=jvm,
                is_proxied=is_proxied,
                log_dirs=log_dirs(each),
            )
            for each in range(1, count + 1)
        ]
        for member in members:
            stack.enter_context(member.proxy)
            stack.callback(member.kill)
        yield Cluster(quorum, members)

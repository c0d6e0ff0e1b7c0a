"""The metrics of a broker, as Prometheus asks for them: `kafkalite.metrics.listener`.

    GET /metrics ──► figures, read out of the broker's memory ──► Prometheus' text format 0.0.4

What Kafka measures too has the name by which Prometheus' JMX exporter shows Kafka's, so that
dashboards go on; the rest begins with `kafkalite_`, and `process_` is what all of Prometheus' own
clients say. Counters count since the start. Nothing is measured for the endpoint: a broker without
one counts the same, and a scrape takes no lock that a request waits for long.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from kafkalite import _native

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Metric(NamedTuple):
    """One metric by its name: a counter since the start, or a gauge."""

    name: str
    kind: str
    doc: str


Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, float]
Family = tuple[Metric, Iterable[Sample]]

_SESSIONS = "kafka_server_fetchsessioncache"
_REPLICAS = "kafka_server_replicamanager"
COUNTS: Final = {
    "connections": Metric(
        "kafka_server_socket_server_metrics_connection_count", "gauge", "Open connections."
    ),
    "moves": Metric(
        "kafkalite_log_directory_moves", "gauge", "Replicas on their way to another log directory."
    ),
    "moving_bytes_per_second": Metric(
        "kafka_server_alterlogdirsreplication_byte_rate",
        "gauge",
        "Bytes a second that such moves copy.",
    ),
    "moved_bytes": Metric(
        "kafkalite_log_directory_moved_bytes_total", "counter", "Bytes that such moves have copied."
    ),
    "moves_lag_max": Metric(
        "kafka_server_replicaalterlogdirsmanager_maxlag",
        "gauge",
        "The largest number of records that a replica lacks where it is on its way to.",
    ),
    "received_bytes": Metric(
        "kafkalite_network_received_bytes_total", "counter", "Bytes received from clients."
    ),
    "sent_bytes": Metric("kafkalite_network_sent_bytes_total", "counter", "Bytes sent to clients."),
    "refused_connections": Metric(
        "kafkalite_connections_refused_total",
        "counter",
        "Connections closed at once, since their address had too many.",
    ),
    "idle_closed_connections": Metric(
        "kafkalite_connections_closed_idle_total",
        "counter",
        "Connections closed since nothing came (connections.max.idle.ms).",
    ),
    "hoarding_closed_connections": Metric(
        "kafkalite_connections_closed_hoarding_total",
        "counter",
        "Connections closed since they held memory, moved little or nothing, and memory was short.",
    ),
    "held_bytes": Metric(
        "kafkalite_request_memory_bytes",
        "gauge",
        "Memory of requests that arrive or wait, and of answers that are not read.",
    ),
    "held_bytes_max": Metric(
        "kafkalite_request_memory_limit_bytes",
        "gauge",
        "The budget of that (queued.max.request.bytes).",
    ),
    "storage_hand_overs": Metric(
        "kafkalite_storage_hand_overs_total",
        "counter",
        "Storage calls that did not return in time, so that another thread went on.",
    ),
    "fetch_sessions": Metric(
        f"{_SESSIONS}_numincrementalfetchsessions", "gauge", "Fetch sessions."
    ),
    "fetch_session_partitions": Metric(
        f"{_SESSIONS}_numincrementalfetchpartitionscached", "gauge", "Partitions in fetch sessions."
    ),
    "leaders": Metric(f"{_REPLICAS}_leadercount", "gauge", "Partitions that this broker leads."),
    "under_replicated_partitions": Metric(
        f"{_REPLICAS}_underreplicatedpartitions",
        "gauge",
        "Of those, the ones of which not all replicas are in sync.",
    ),
    "under_min_isr_partitions": Metric(
        f"{_REPLICAS}_underminisrpartitioncount",
        "gauge",
        "Of those, the ones with fewer in-sync replicas than min.insync.replicas.",
    ),
    "at_min_isr_partitions": Metric(
        f"{_REPLICAS}_atminisrpartitioncount",
        "gauge",
        "Of those, the ones with just as many.",
    ),
    "isr_shrinks": Metric(
        f"{_REPLICAS}_isrshrinks_total", "counter", "In-sync replicas became fewer."
    ),
    "isr_expands": Metric(
        f"{_REPLICAS}_isrexpands_total", "counter", "In-sync replicas became more."
    ),
    "replicating_bytes_per_second": Metric(
        "kafka_server_leaderreplication_byte_rate",
        "gauge",
        "Bytes a second that leaders send for throttled replicas.",
    ),
    "replicated_bytes_per_second": Metric(
        "kafka_server_followerreplication_byte_rate",
        "gauge",
        "Bytes a second that followers fetch for throttled replicas.",
    ),
    "fetch_sessions_evicted": Metric(
        f"{_SESSIONS}_incrementalfetchsessionevictions_total",
        "counter",
        "Fetch sessions that made room for others.",
    ),
}
"""By the names of `Figures.counts`."""

REQUESTS = Metric("kafka_network_requestmetrics_requests_total", "counter", "Requests begun.")
WAITING = Metric(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "gauge",
    "Requests that wait: of Produce for the disk, of Fetch for records.",
)
FLUSHES = Metric(
    "kafkalite_log_flushes_total", "counter", "Flushes that requests and chores have waited for."
)
FLUSH_SECONDS = Metric(
    "kafkalite_log_flush_seconds_total", "counter", "What they have taken together."
)

MESSAGES_IN = Metric(
    "kafka_server_brokertopicmetrics_messagesin_total", "counter", "Records appended."
)
BYTES_IN = Metric(
    "kafka_server_brokertopicmetrics_bytesin_total", "counter", "Bytes of batches appended."
)
BYTES_OUT = Metric(
    "kafka_server_brokertopicmetrics_bytesout_total", "counter", "Bytes of batches fetched."
)
REPLICATED = Metric(
    "kafka_server_brokertopicmetrics_replicationbytesin_total",
    "counter",
    "Bytes of batches that were fetched from leaders.",
)
MAX_LAG = Metric(
    "kafka_server_replicafetchermanager_maxlag",
    "gauge",
    "The largest number of committed records that a partition does not have yet.",
)
LAG = Metric(
    "kafka_server_fetcherlagmetrics_consumerlag",
    "gauge",
    "Records that its leader has committed and a partition does not have yet.",
)
COMMITTED_CUTS = Metric(
    "kafkalite_committed_truncations_total",
    "counter",
    "Truncations below a high watermark, as after an unclean election.",
)
LOG_START = Metric("kafka_log_log_logstartoffset", "gauge", "The first offset of a partition.")
LOG_END = Metric("kafka_log_log_logendoffset", "gauge", "The offset behind its last record.")
LOG_SIZE = Metric("kafka_log_log_size", "gauge", "Bytes of its segments.")
LOG_SEGMENTS = Metric("kafka_log_log_numlogsegments", "gauge", "Its segments.")

_CONTROLLER = "kafka_controller_kafkacontroller"
ACTIVE = Metric(f"{_CONTROLLER}_activecontrollercount", "gauge", "1: the node is the controller.")
TOPICS = Metric(f"{_CONTROLLER}_globaltopiccount", "gauge", "Topics.")
PARTITIONS = Metric(f"{_CONTROLLER}_globalpartitioncount", "gauge", "Partitions.")
OFFLINE = Metric(
    f"{_CONTROLLER}_offlinepartitionscount",
    "gauge",
    "Partitions without a leader, since their log directory is offline.",
)
OFFLINE_DIRECTORIES = Metric(
    "kafka_log_logmanager_offlinelogdirectorycount", "gauge", "Log directories that are offline."
)

REPLICAS = Metric(
    f"{_REPLICAS}_partitioncount", "gauge", "Replicas of partitions that this broker has."
)
OFFLINE_REPLICAS = Metric(
    f"{_REPLICAS}_offlinereplicacount",
    "gauge",
    "Of those, the ones whose log directory is offline.",
)

_GROUPS = "kafka_coordinator_group_groupmetadatamanager"
GROUPS = Metric(f"{_GROUPS}_numgroups", "gauge", "Groups.")
GROUP_STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")
GROUPS_BY_STATE: Final = {
    state: Metric(f"{_GROUPS}_numgroups{state.lower()}", "gauge", f"Groups that are {state}.")
    for state in GROUP_STATES
}

BUILD = Metric("kafkalite_build_info", "gauge", "1, with the version.")
CPU = Metric("process_cpu_seconds_total", "counter", "CPU time of user and system.")
RESIDENT = Metric("process_resident_memory_bytes", "gauge", "Resident memory.")
VIRTUAL = Metric("process_virtual_memory_bytes", "gauge", "Virtual memory.")
DESCRIPTORS = Metric("process_open_fds", "gauge", "Open descriptors.")
DESCRIPTORS_MAX = Metric("process_max_fds", "gauge", "The limit of descriptors.")
STARTED = Metric("process_start_time_seconds", "gauge", "When the process began, since 1970.")


class MetricsHost(Protocol):
    """Answers what is asked beside the figures; any thread may ask
    (`kafkalite.context.Context`)."""

    @property
    def is_controller(self) -> bool:
        """This node is the controller."""

    def topic_counts(self) -> tuple[int, int]:
        """Topics whose logs have been made, and partitions of all of them."""

    def replica_count(self) -> int:
        """Replicas that this node has, of those topics."""

    def group_states(self) -> Mapping[str, int]:
        """How many groups are in each state."""


def page(families: Iterable[Family]) -> bytes:
    """Prometheus' text format. A metric without a sample is left out."""
    lines = []
    for metric, samples in families:
        rows = [f"{metric.name}{_braced(labels)} {value!r}" for labels, value in samples]
        if rows:
            lines.append(f"# HELP {metric.name} {metric.doc}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            lines += rows
    # A path may have bytes that are no text.
    return "\n".join([*lines, ""]).encode(errors="replace")


def _braced(labels: Labels) -> str:
    if not labels:
        return ""
    words = (f'{name}="{_escaped(value)}"' for name, value in labels)
    return "{" + ",".join(words) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def families(
    core: _native.BrokerCore, host: MetricsHost, key_names: Mapping[int, str]
) -> list[Family]:
    """All metrics as they are now."""
    figures = core.figures()
    partitions = figures.partitions()
    return [
        *_of_node(core, host, len(partitions)),
        *_of_requests(figures, key_names),
        *_of_groups(host.group_states()),
        *_of_topics(partitions),
        *_of_partitions(partitions),
        *_of_followers(partitions),
        *_of_process(),
    ]


def _one(metric: Metric, value: float) -> Family:
    return metric, [((), value)]


def _of_node(core: _native.BrokerCore, host: MetricsHost, online_count: int) -> Iterator[Family]:
    yield BUILD, [((("version", _native.__version__),), 1)]
    replica_count = host.replica_count()
    # One may have come or gone between the two looks.
    offline_count = max(0, replica_count - online_count)
    if host.is_controller:
        # Of others they are told by those alone, since dashboards add them up.
        topic_count, partition_count = host.topic_counts()
        yield _one(ACTIVE, 1)
        yield _one(TOPICS, topic_count)
        yield _one(PARTITIONS, partition_count)
        yield _one(OFFLINE, offline_count)
    yield _one(REPLICAS, replica_count)
    yield _one(OFFLINE_REPLICAS, offline_count)
    yield _one(OFFLINE_DIRECTORIES, len(core.offline_log_dirs()))


def _of_requests(figures: _native.Figures, key_names: Mapping[int, str]) -> Iterator[Family]:
    counts = figures.counts()
    for name, metric in COUNTS.items():
        yield _one(metric, counts[name])
    requests = sorted(figures.requests().items())
    names = ((key_names.get(key, str(key)), count) for key, count in requests)
    yield REQUESTS, [((("request", name),), count) for name, count in names]
    kinds = zip(("Produce", "Fetch"), figures.waiting(), strict=True)
    yield WAITING, [((("delayedOperation", kind),), count) for kind, count in kinds]
    flushes = [((("log_dir", str(path)),), each) for path, *each in figures.flushes()]
    yield FLUSHES, [(labels, count) for labels, (count, _) in flushes]
    yield FLUSH_SECONDS, [(labels, seconds) for labels, (_, seconds) in flushes]


def _of_groups(states: Mapping[str, int]) -> Iterator[Family]:
    yield _one(GROUPS, sum(states.values()))
    for state, metric in GROUPS_BY_STATE.items():
        yield _one(metric, states.get(state, 0))


def _of_topics(partitions: Sequence[_native.PartitionFigures]) -> Iterator[Family]:
    sums: dict[str, list[int]] = {}
    for each in partitions:
        counts = sums.setdefault(each.topic, [0, 0, 0])
        for at, more in enumerate((each.appended_records, each.appended_bytes, each.fetched_bytes)):
            counts[at] += more
    topics = sorted(sums.items())
    for at, metric in enumerate((MESSAGES_IN, BYTES_IN, BYTES_OUT)):
        yield metric, [((("topic", topic),), counts[at]) for topic, counts in topics]


def _of_partitions(partitions: list[_native.PartitionFigures]) -> Iterator[Family]:
    partitions.sort(key=lambda each: (each.topic, each.partition))
    labels = [(("topic", each.topic), ("partition", str(each.partition))) for each in partitions]
    for metric, values in (
        (LOG_START, [each.log_start_offset for each in partitions]),
        (LOG_END, [each.log_end_offset for each in partitions]),
        (LOG_SIZE, [each.size_bytes for each in partitions]),
        (LOG_SEGMENTS, [each.segments for each in partitions]),
    ):
        yield metric, list(zip(labels, values, strict=True))


def _of_followers(partitions: Sequence[_native.PartitionFigures]) -> Iterator[Family]:
    yield _one(REPLICATED, sum(each.replicated_bytes for each in partitions))
    yield _one(COMMITTED_CUTS, sum(each.committed_cuts for each in partitions))
    lags = [
        ((("topic", each.topic), ("partition", str(each.partition))), each.lag)
        for each in partitions
        if each.lag is not None
    ]
    yield MAX_LAG, [((("clientId", "Replica"),), max((lag for _, lag in lags), default=0))]
    yield LAG, lags


def _of_process() -> Iterator[Family]:
    import resource

    yield _one(CPU, time.process_time())
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - see config/keys.py
        virtual, resident, *_ = map(int, file.read().split())
    page_bytes = resource.getpagesize()
    yield _one(RESIDENT, resident * page_bytes)
    yield _one(VIRTUAL, virtual * page_bytes)
    yield _one(DESCRIPTORS, len(os.listdir("/proc/self/fd")))  # noqa: PTH208
    yield _one(DESCRIPTORS_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield _one(STARTED, _started_s())


def _started_s() -> float:
    """When this process began, seconds since 1970, to some hundredths."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        # Behind the name of the program, in which there may be anything; the 22nd of all.
        ticks = int(file.read().rpartition(")")[2].split()[19])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s

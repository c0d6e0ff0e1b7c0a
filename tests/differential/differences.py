"""Where an answer of kafkalite may differ from Kafka's.

The reason of each stands under the same words in docs/DIFFERENCES.md, section "In responses". What
nothing needs fails the suite.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

# Keys that Kafka 4.3.1 advertises and kafkalite does not have yet.
ABSENT_KEYS = (
    *(17, 36, 38, 39, 40, 41, 48, 49, 50, 51),
    *(64, 68, 69, 76, 77, 78, 79, 80, 81, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92),
)
OWN_CONFIGS = "configs of the broker in full"


@dataclass(frozen=True)
class Difference:
    """`where`: patterns of a case's name and of a path in its answer, as of `fnmatch`."""

    title: str
    where: Sequence[tuple[str, str]]
    at_random: Sequence[tuple[str, str, str, str]] = ()
    """Of requests at random: patterns of the key, of the path, of our and of Kafka's value."""

    def explains(self, api: str, path: str, ours: Any, theirs: Any) -> bool:
        """Whether it is why an answer to a request at random differs."""
        found = (api, path, str(ours), str(theirs))
        return any(all(map(fnmatchcase, found, patterns)) for patterns in self.at_random)

    def used(self, case: str, path: str) -> list[tuple[str, str]]:
        """Those of the patterns that fit."""
        return [
            (cases, paths)
            for cases, paths in self.where
            if fnmatchcase(case, cases) and fnmatchcase(path, paths)
        ]


DIFFERENCES = [
    Difference("Keys", [("api versions v*", f"api_keys.{key}") for key in ABSENT_KEYS]),
    Difference(
        "Features",
        [
            ("api versions v*", "finalized_features.*"),
            ("api versions v*", "finalized_features_epoch"),
            ("api versions v*", "supported_features.*"),
            ("features: *", "error_message"),
        ],
    ),
    Difference(
        "Words for refused batches",
        [
            ("produce *", "responses.*.error_message"),
            ("produce *", "responses.*.batch_index_error_message"),
            ("idempotent: *", "responses.*.error_message"),
        ],
        at_random=[("Produce", "responses.*error_message", "*", "*")],
    ),
    Difference("Null records", [("produce null records", "")]),
    Difference(
        "Broken compression",
        [
            ("produce an unknown codec", "responses.*.error_code"),
            ("produce no gzip as gzip", "responses.*.error_code"),
        ],
    ),
    Difference(
        "Documentation of configs", [("configs of * with documentation", "*.documentation")]
    ),
    Difference(
        "A broker's own configs",
        [
            (OWN_CONFIGS, "results.1.configs.kafkalite.*"),
            *(
                (OWN_CONFIGS, f"results.1.configs.{key}")
                for key in (
                    "controller.listener.names.config_source",
                    "controller.quorum.voters.*",
                    "listeners.value",
                    "log.dir.value",
                    "log.dirs.value",
                    "process.roles.config_source",
                )
            ),
        ],
    ),
    Difference(
        "Threads",
        [
            (OWN_CONFIGS, f"results.1.configs.{key}.value")
            for key in ("num.network.threads", "num.recovery.threads.per.data.dir")
        ],
    ),
    Difference(
        "Unknown kinds",
        [
            ("coordinator of *", "*error_message"),
            ("configs of an unknown kind", "results.x.error_message"),
            ("configs of kind zero", "results.x.error_message"),
            ("configs of a known and an unknown kind", "results.*.error_message"),
        ],
        at_random=[
            ("DescribeConfigs", "results.*.error_message", "Unknown resource type *", "This most *")
        ],
    ),
    Difference(
        "A partition twice",
        [
            ("produce to one partition twice", "responses.*"),
            ("produce to a topic twice", "responses.*"),
            ("produce to no partition", "responses.*"),
            ("produce to a partition of a topic named twice", "responses.*"),
        ],
    ),
    Difference(
        "Isolation levels",
        [
            ("fetch with an isolation of 2", "error_code"),
            ("fetch with an isolation of 2", "responses.*"),
            ("latest with an isolation of 2", "topics.*"),
        ],
    ),
    Difference(
        "An older epoch under another transactional id",
        [],
        at_random=[
            ("Produce", "responses.*.error_code", "4[29]", "47"),
            ("TxnOffsetCommit", "topics.*.error_code", "4[29]", "47"),
        ],
    ),
    Difference(
        "Negative sizes",
        [
            ("fetch with a size of -1", "responses.*"),
            ("fetch with a partition's size of -1", "responses.*"),
        ],
    ),
    Difference(
        "The zero id", [("fetch the zero id", "error_code"), ("fetch the zero id", "responses.*")]
    ),
    Difference("Names that collide at once", [("create names that collide at once", "topics.*")]),
    Difference(
        "Cordoned directories",
        [("create two replicas", "topics.d-none.error_message")],
        at_random=[("CreateTopics", "*.error_message", "Unable to replicate*", "* cordoned*")],
    ),
    Difference(
        "Loggers",
        [],
        at_random=[("DescribeConfigs", "results.*.configs.*", "absent", "*'config_source': 6*")],
    ),
    Difference(
        "Several wrong values",
        [
            ("alter: two wrong values", "responses.*.error_message"),
            ("alter: two appends to no lists*", "responses.*.error_message"),
        ],
        at_random=[
            (f"{kind}*", "*.error_message", "* *", "* *")
            for kind in ("AlterConfigs", "IncrementalAlterConfigs", "CreateTopics")
        ],
    ),
    Difference(
        "A topic that is only looked at",
        [
            ("create only to see*", "*.topic_id"),
            ("create a name of 249", "*.topic_id"),
        ],
        at_random=[("CreateTopics", "topics.*.topic_id", "none", "<*>")],
    ),
]

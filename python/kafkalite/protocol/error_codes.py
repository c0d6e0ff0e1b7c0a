"""The error codes of Kafka's protocol: one row each (`org.apache.kafka.common.protocol.Errors`).

A row is the name in the protocol guide, whether the same request may succeed later without a change
(`RetriableException`), and, for those that a user meets, what it means in a sentence's half.
"""

from typing import NamedTuple


class ErrorCode(NamedTuple):
    """One row."""

    name: str
    retriable: bool
    sentence: str = ""


ERROR_CODES: dict[int, ErrorCode] = {
    -1: ErrorCode("UNKNOWN_SERVER_ERROR", False, "the broker failed in a way that has no code"),
    0: ErrorCode("NONE", False),
    1: ErrorCode("OFFSET_OUT_OF_RANGE", False, "the offset is outside the partition's log"),
    2: ErrorCode("CORRUPT_MESSAGE", True, "the records are damaged"),
    3: ErrorCode("UNKNOWN_TOPIC_OR_PARTITION", True, "there is no such topic or partition"),
    4: ErrorCode("INVALID_FETCH_SIZE", False),
    5: ErrorCode("LEADER_NOT_AVAILABLE", True, "the partition has no leader at the moment"),
    6: ErrorCode("NOT_LEADER_OR_FOLLOWER", True, "this broker does not lead the partition"),
    7: ErrorCode("REQUEST_TIMED_OUT", True, "the request timed out at the broker"),
    8: ErrorCode("BROKER_NOT_AVAILABLE", False, "the broker is not available"),
    9: ErrorCode("REPLICA_NOT_AVAILABLE", True, "the replica is not available"),
    10: ErrorCode("MESSAGE_TOO_LARGE", False, "the batch is larger than the topic allows"),
    11: ErrorCode("STALE_CONTROLLER_EPOCH", False),
    12: ErrorCode("OFFSET_METADATA_TOO_LARGE", False, "the metadata of the offset is too large"),
    13: ErrorCode("NETWORK_EXCEPTION", True, "the connection broke"),
    14: ErrorCode("COORDINATOR_LOAD_IN_PROGRESS", True, "the coordinator is loading its state"),
    15: ErrorCode("COORDINATOR_NOT_AVAILABLE", True, "the coordinator is not available"),
    16: ErrorCode("NOT_COORDINATOR", True, "this broker is not the coordinator"),
    17: ErrorCode("INVALID_TOPIC_EXCEPTION", False, "the topic's name is not allowed"),
    18: ErrorCode("RECORD_LIST_TOO_LARGE", False, "the batches are larger than a segment"),
    19: ErrorCode(
        "NOT_ENOUGH_REPLICAS", True, "fewer replicas are in sync than min.insync.replicas asks for"
    ),
    20: ErrorCode(
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        True,
        "the records were written, but to fewer replicas than min.insync.replicas asks for",
    ),
    21: ErrorCode("INVALID_REQUIRED_ACKS", False, "acks is not -1, 0 or 1"),
    22: ErrorCode("ILLEGAL_GENERATION", False, "the group has moved on to a new generation"),
    23: ErrorCode(
        "INCONSISTENT_GROUP_PROTOCOL", False, "the group's other members speak another protocol"
    ),
    24: ErrorCode("INVALID_GROUP_ID", False, "the name of the group is not allowed"),
    25: ErrorCode("UNKNOWN_MEMBER_ID", False, "the coordinator does not know this member"),
    26: ErrorCode(
        "INVALID_SESSION_TIMEOUT", False, "the session time-out is outside what the broker allows"
    ),
    27: ErrorCode("REBALANCE_IN_PROGRESS", False, "the group is rebalancing"),
    28: ErrorCode("INVALID_COMMIT_OFFSET_SIZE", False),
    29: ErrorCode("TOPIC_AUTHORIZATION_FAILED", False, "no access to the topic"),
    30: ErrorCode("GROUP_AUTHORIZATION_FAILED", False, "no access to the group"),
    31: ErrorCode("CLUSTER_AUTHORIZATION_FAILED", False, "no access to the cluster"),
    32: ErrorCode("INVALID_TIMESTAMP", False, "the timestamp is outside what the topic allows"),
    33: ErrorCode(
        "UNSUPPORTED_SASL_MECHANISM", False, "the broker does not know this SASL mechanism"
    ),
    34: ErrorCode("ILLEGAL_SASL_STATE", False),
    35: ErrorCode(
        "UNSUPPORTED_VERSION", False, "the broker does not know this version of the request"
    ),
    36: ErrorCode("TOPIC_ALREADY_EXISTS", False, "the topic exists already"),
    37: ErrorCode("INVALID_PARTITIONS", False, "the number of partitions is not allowed"),
    38: ErrorCode("INVALID_REPLICATION_FACTOR", False, "the replication factor is not allowed"),
    39: ErrorCode("INVALID_REPLICA_ASSIGNMENT", False, "the replica assignment is not allowed"),
    40: ErrorCode("INVALID_CONFIG", False, "the configuration is not allowed"),
    41: ErrorCode("NOT_CONTROLLER", True, "this node is not the active controller"),
    42: ErrorCode("INVALID_REQUEST", False, "the request contradicts itself"),
    43: ErrorCode(
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        False,
        "the log's format does not carry what was asked for",
    ),
    44: ErrorCode("POLICY_VIOLATION", False, "a policy of the broker forbids it"),
    45: ErrorCode(
        "OUT_OF_ORDER_SEQUENCE_NUMBER", False, "a sequence number is missing before this batch"
    ),
    46: ErrorCode("DUPLICATE_SEQUENCE_NUMBER", False, "the batch was written before"),
    47: ErrorCode("INVALID_PRODUCER_EPOCH", False, "a newer producer has taken over"),
    48: ErrorCode("INVALID_TXN_STATE", False, "the transaction is in another state"),
    49: ErrorCode(
        "INVALID_PRODUCER_ID_MAPPING", False, "the producer id is not that of the transactional id"
    ),
    50: ErrorCode("INVALID_TRANSACTION_TIMEOUT", False),
    51: ErrorCode(
        "CONCURRENT_TRANSACTIONS", True, "another change of the transaction is under way"
    ),
    52: ErrorCode("TRANSACTION_COORDINATOR_FENCED", False),
    53: ErrorCode(
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", False, "no access to the transactional id"
    ),
    54: ErrorCode("SECURITY_DISABLED", False, "security is off"),
    55: ErrorCode("OPERATION_NOT_ATTEMPTED", False, "the operation was not attempted"),
    56: ErrorCode("KAFKA_STORAGE_ERROR", True, "the broker cannot read or write its disk"),
    57: ErrorCode("LOG_DIR_NOT_FOUND", False, "there is no such log directory"),
    58: ErrorCode("SASL_AUTHENTICATION_FAILED", False, "the authentication failed"),
    59: ErrorCode("UNKNOWN_PRODUCER_ID", False, "the broker has forgotten the producer"),
    60: ErrorCode("REASSIGNMENT_IN_PROGRESS", False),
    61: ErrorCode("DELEGATION_TOKEN_AUTH_DISABLED", False),
    62: ErrorCode("DELEGATION_TOKEN_NOT_FOUND", False),
    63: ErrorCode("DELEGATION_TOKEN_OWNER_MISMATCH", False),
    64: ErrorCode("DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", False),
    65: ErrorCode("DELEGATION_TOKEN_AUTHORIZATION_FAILED", False),
    66: ErrorCode("DELEGATION_TOKEN_EXPIRED", False),
    67: ErrorCode("INVALID_PRINCIPAL_TYPE", False),
    68: ErrorCode("NON_EMPTY_GROUP", False, "the group has members"),
    69: ErrorCode("GROUP_ID_NOT_FOUND", False, "there is no such group"),
    70: ErrorCode("FETCH_SESSION_ID_NOT_FOUND", True, "there is no such fetch session"),
    71: ErrorCode("INVALID_FETCH_SESSION_EPOCH", True, "the fetch session's epoch is wrong"),
    72: ErrorCode("LISTENER_NOT_FOUND", True, "the broker has no such listener"),
    73: ErrorCode("TOPIC_DELETION_DISABLED", False, "the broker does not delete topics"),
    74: ErrorCode("FENCED_LEADER_EPOCH", True, "the leader epoch is an old one"),
    75: ErrorCode("UNKNOWN_LEADER_EPOCH", True, "the leader epoch is not known yet"),
    76: ErrorCode("UNSUPPORTED_COMPRESSION_TYPE", False, "the codec is not supported here"),
    77: ErrorCode("STALE_BROKER_EPOCH", False),
    78: ErrorCode("OFFSET_NOT_AVAILABLE", True, "the leader does not know its offsets yet"),
    79: ErrorCode("MEMBER_ID_REQUIRED", False, "the member has to join again under its new id"),
    80: ErrorCode("PREFERRED_LEADER_NOT_AVAILABLE", True),
    81: ErrorCode("GROUP_MAX_SIZE_REACHED", False, "the group has as many members as it may"),
    82: ErrorCode("FENCED_INSTANCE_ID", False, "another member uses the same group.instance.id"),
    83: ErrorCode("ELIGIBLE_LEADERS_NOT_AVAILABLE", True),
    84: ErrorCode("ELECTION_NOT_NEEDED", True),
    85: ErrorCode("NO_REASSIGNMENT_IN_PROGRESS", False),
    86: ErrorCode("GROUP_SUBSCRIBED_TO_TOPIC", False, "the group is subscribed to the topic"),
    87: ErrorCode("INVALID_RECORD", False, "a record breaks a rule of the topic"),
    88: ErrorCode(
        "UNSTABLE_OFFSET_COMMIT", True, "an offset of an open transaction stands in the way"
    ),
    89: ErrorCode("THROTTLING_QUOTA_EXCEEDED", True, "a quota is used up"),
    90: ErrorCode("PRODUCER_FENCED", False, "a newer producer has taken over"),
    91: ErrorCode("RESOURCE_NOT_FOUND", False, "there is no such resource"),
    92: ErrorCode("DUPLICATE_RESOURCE", False),
    93: ErrorCode("UNACCEPTABLE_CREDENTIAL", False),
    94: ErrorCode("INCONSISTENT_VOTER_SET", False),
    95: ErrorCode("INVALID_UPDATE_VERSION", False),
    96: ErrorCode("FEATURE_UPDATE_FAILED", False),
    97: ErrorCode("PRINCIPAL_DESERIALIZATION_FAILURE", False),
    98: ErrorCode("SNAPSHOT_NOT_FOUND", False),
    99: ErrorCode("POSITION_OUT_OF_RANGE", False),
    100: ErrorCode("UNKNOWN_TOPIC_ID", True, "there is no topic of this id"),
    101: ErrorCode("DUPLICATE_BROKER_REGISTRATION", False),
    102: ErrorCode("BROKER_ID_NOT_REGISTERED", False),
    103: ErrorCode("INCONSISTENT_TOPIC_ID", True, "the topic's id is another one"),
    104: ErrorCode("INCONSISTENT_CLUSTER_ID", False),
    105: ErrorCode("TRANSACTIONAL_ID_NOT_FOUND", False, "the transactional id does not exist"),
    106: ErrorCode("FETCH_SESSION_TOPIC_ID_ERROR", True),
    107: ErrorCode("INELIGIBLE_REPLICA", False),
    108: ErrorCode("NEW_LEADER_ELECTED", False),
    109: ErrorCode("OFFSET_MOVED_TO_TIERED_STORAGE", False),
    110: ErrorCode("FENCED_MEMBER_EPOCH", False, "the member's epoch is an old one"),
    111: ErrorCode("UNRELEASED_INSTANCE_ID", False, "the instance id belongs to another member"),
    112: ErrorCode("UNSUPPORTED_ASSIGNOR", False, "the broker has no such assignor"),
    113: ErrorCode("STALE_MEMBER_EPOCH", False, "the member's epoch has passed"),
    114: ErrorCode("MISMATCHED_ENDPOINT_TYPE", False),
    115: ErrorCode("UNSUPPORTED_ENDPOINT_TYPE", False),
    116: ErrorCode("UNKNOWN_CONTROLLER_ID", False),
    117: ErrorCode("UNKNOWN_SUBSCRIPTION_ID", False),
    118: ErrorCode("TELEMETRY_TOO_LARGE", False),
    119: ErrorCode("INVALID_REGISTRATION", False),
    120: ErrorCode("TRANSACTION_ABORTABLE", False, "the transaction must be aborted"),
    121: ErrorCode("INVALID_RECORD_STATE", False),
    122: ErrorCode("SHARE_SESSION_NOT_FOUND", True),
    123: ErrorCode("INVALID_SHARE_SESSION_EPOCH", True),
    124: ErrorCode("FENCED_STATE_EPOCH", False),
    125: ErrorCode("INVALID_VOTER_KEY", False),
    126: ErrorCode("DUPLICATE_VOTER", False),
    127: ErrorCode("VOTER_NOT_FOUND", False),
    128: ErrorCode("INVALID_REGULAR_EXPRESSION", False, "the regular expression cannot be read"),
    129: ErrorCode("REBOOTSTRAP_REQUIRED", False),
    130: ErrorCode("STREAMS_INVALID_TOPOLOGY", False),
    131: ErrorCode("STREAMS_INVALID_TOPOLOGY_EPOCH", False),
    132: ErrorCode("STREAMS_TOPOLOGY_FENCED", False),
    133: ErrorCode("SHARE_SESSION_LIMIT_REACHED", True),
}


def error_code(code: int) -> ErrorCode:
    """The row of a code, also of one that a newer Kafka has added."""
    return ERROR_CODES.get(code) or ErrorCode(f"ERROR_{code}", False)

"""Records of `__cluster_metadata-0`: the frame around them, and which message each key names.

    value of a record:  frame version (1) │ api key │ version │ body of the message
                        each of the three an unsigned varint

A batch holds records without keys. Control records, which the quorum writes about itself, have a
key of two int16 (version 0, type) and a bare message as their value. Kafka: `MetadataRecordSerde`,
`ControlRecordUtils`.
"""

from typing import Any

from kafkalite.errors import CorruptFileError
from kafkalite.protocol import messages

FRAME_VERSION = 1

NAMES = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
}
"""Api key -> message (`MetadataRecordType`)."""

METADATA_VERSION_MAX = 30
"""4.3-IV0: the newest `metadata.version` whose records we know."""

_KEYS = {name: key for key, name in NAMES.items()}

NO_OP = b"\x01\x14\x00\x00"
"""A NoOpRecord as Kafka writes one twice a second."""

# Types of control records.
LEADER_CHANGE = 2
SNAPSHOT_HEADER = 3
SNAPSHOT_FOOTER = 4
KRAFT_VERSION = 5
VOTERS = 6

CONTROL_NAMES = {
    LEADER_CHANGE: "LeaderChangeMessage",
    SNAPSHOT_HEADER: "SnapshotHeaderRecord",
    SNAPSHOT_FOOTER: "SnapshotFooterRecord",
    KRAFT_VERSION: "KRaftVersionRecord",
    VOTERS: "VotersRecord",
}


def version_of(name: str, metadata_version: int) -> int:
    """In which version a message is written at a `metadata.version` from 25 (4.0-IV3) on."""
    match name:
        case "PartitionRecord" | "PartitionChangeRecord":
            return 2
        case "RegisterBrokerRecord":
            return 4 if metadata_version >= 30 else 3
        case "BrokerRegistrationChangeRecord":
            return 3 if metadata_version >= 30 else 2
        case _:
            return 0


def encode(message: Any, metadata_version: int = METADATA_VERSION_MAX) -> bytes:
    """The value of the record that holds `message`."""
    version = version_of(message._name, metadata_version)
    # Keys and versions are below 128: one byte each as varints.
    frame = bytes((FRAME_VERSION, _KEYS[message._name], version))
    body: bytes = message.encode(version)
    return frame + body


def decode(value: bytes) -> Any:
    """The message in the value of a record. Raises CorruptFileError where it is none that Kafka
    4.3 knows."""
    if len(value) < 3 or max(value[:3]) > 127 or value[0] != FRAME_VERSION:
        raise CorruptFileError(
            f"a metadata record begins with {value[:4].hex(' ')}, no known frame"
        )
    name = NAMES.get(value[1])
    if name is None:
        raise CorruptFileError(f"a metadata record is of the unknown type {value[1]}")
    return getattr(messages, name).decode(value[3:], value[2])


def control_key(control_type: int) -> bytes:
    """The key of a control record."""
    return bytes((0, 0, 0, control_type))


def decode_control(key: bytes, value: bytes) -> Any:
    """The message of a control record of the quorum; None for a type that is not known."""
    name = CONTROL_NAMES.get(int.from_bytes(key[2:4], "big"))
    if name is None:
        return None
    # All are of version 0, which is also their first field.
    return getattr(messages, name).decode(value, 0)

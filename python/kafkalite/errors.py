"""The errors that kafkalite raises, one class per kind of `rust/src/error.rs`.

`rust/src/py/door.rs` picks the class by its name here; a test holds names and codes of the two
files against each other.

    KafkaliteError
    ├── StorageError               an operating-system call failed
    │   ├── DescriptorsExhaustedError  too many files are open
    │   ├── CorruptFileError       bytes on disk contradict the format
    │   ├── LogDirOfflineError     the log directory failed earlier and takes nothing any more
    │   ├── LogDirLockedError      another process uses the log directory
    │   ├── LogDirRefusedError     not Kafka's, of a future version, read-only, foreign
    │   └── MoveNotEndedError      an older log of the name is still moving into the log directory
    ├── LoadStoppedError           the broker was told to stop while it loaded its logs
    ├── CorruptMessageError, InvalidRecordError, …    a batch that Kafka refuses
    ├── OffsetOutOfRangeError, …                      a request that does not fit the log
    └── ClientError                what a client of a broker meets
        ├── ConnectionFailedError      no connection, or it broke
        ├── RequestTimedOutError       no answer in time
        ├── UnsupportedVersionError    the broker does not speak what is needed
        └── BrokerError                the broker answered with an error code
"""

from typing import ClassVar


class KafkaliteError(Exception):
    """Anything that kafkalite raises on purpose; the message is one sentence."""

    kafka_code: ClassVar[int] = -1
    """The code that a client sees (`org.apache.kafka.common.protocol.Errors`)."""


class StorageError(KafkaliteError):
    """A file could not be read or written. The message names the call and the path."""

    kafka_code = 56


class DescriptorsExhaustedError(StorageError):
    """A file could not be opened since too many are open. Nothing was done to it."""


class CorruptFileError(StorageError):
    """Bytes on disk contradict the format. The message names the file and the byte."""


class LogDirOfflineError(StorageError):
    """The log directory failed earlier, a failed fsync above all, and stays out of use."""


class LogDirLockedError(StorageError):
    """The log directory is in use by another process, Apache Kafka included."""


class LogDirRefusedError(StorageError):
    """The directory cannot be used. Nothing in it was changed."""


class MoveNotEndedError(StorageError):
    """A log cannot be created yet: an older one of its name is moving into the log directory, and
    the one that it leaves does not respond."""


class LoadStoppedError(KafkaliteError):
    """The broker was told to stop while it loaded its logs."""


class CorruptMessageError(KafkaliteError):
    """Length, CRC or structure of a batch is wrong."""

    kafka_code = 2


class InvalidRecordError(KafkaliteError):
    """The batch breaks a rule of Kafka's `LogValidator`."""

    kafka_code = 87


class InvalidTimestampError(KafkaliteError):
    """A timestamp is outside what the topic allows."""

    kafka_code = 32


class MessageTooLargeError(KafkaliteError):
    """A batch is larger than `max.message.bytes`."""

    kafka_code = 10


class RecordListTooLargeError(KafkaliteError):
    """The batches of one append do not fit into one segment."""

    kafka_code = 18


class UnsupportedCompressionTypeError(KafkaliteError):
    """The codec is unknown, or not allowed in this format."""

    kafka_code = 76


class UnsupportedForMessageFormatError(KafkaliteError):
    """The batch's format (magic) does not carry what was asked for."""

    kafka_code = 43


class OutOfOrderSequenceError(KafkaliteError):
    """An idempotent producer skipped a sequence number."""

    kafka_code = 45


class InvalidProducerEpochError(KafkaliteError):
    """A newer instance of the producer has taken over."""

    kafka_code = 47


class UnknownProducerIdError(KafkaliteError):
    """The log holds no state of this producer any more."""

    kafka_code = 59


class InvalidTxnStateError(KafkaliteError):
    """The batch does not fit the state of its transaction."""

    kafka_code = 48


class TransactionCoordinatorFencedError(KafkaliteError):
    """A marker came from a transaction coordinator that has been replaced."""

    kafka_code = 52


class OffsetOutOfRangeError(KafkaliteError):
    """The offset is below the log start offset or above the log end offset."""

    kafka_code = 1


class LogDeletedError(KafkaliteError):
    """The partition was deleted while the call was under way."""

    kafka_code = 3


class NotLeaderOrFollowerError(KafkaliteError):
    """Another node leads the partition, perhaps since the call began."""

    kafka_code = 6


class NotEnoughReplicasError(KafkaliteError):
    """Fewer replicas are in sync than `min.insync.replicas` asks for."""

    kafka_code = 19


class NotEnoughReplicasAfterAppendError(KafkaliteError):
    """The records were written, to fewer replicas than `min.insync.replicas` asks for."""

    kafka_code = 20


class UnexpectedAppendOffsetError(KafkaliteError):
    """A follower's batches do not continue at the log end offset."""


class MalformedRequestError(KafkaliteError):
    """A request contradicts the protocol; its connection is closed."""

    kafka_code = 42


class InvalidArgumentError(KafkaliteError, ValueError):
    """An argument is wrong; the sentence says which and why."""

    kafka_code = 42


class ClientError(KafkaliteError):
    """An error that a client of a broker meets. The message names the broker."""


class ConnectionFailedError(ClientError):
    """No connection could be made, or it broke before the answer."""

    kafka_code = 13
    is_refused = False
    """True if nothing listens at the address, or at any of several."""


class RequestTimedOutError(ClientError):
    """No answer in time. What was asked for may have been done all the same."""

    kafka_code = 7


class UnsupportedVersionError(ClientError):
    """The broker lacks a request, or all versions of it that this client speaks."""

    kafka_code = 35


class BrokerError(ClientError):
    """The broker answered with an error code."""

    def __init__(self, message: str, *, code: int, name: str, retriable: bool) -> None:
        super().__init__(message)
        self.code = code
        """The code, as in `kafkalite.protocol.error_codes`."""
        self.name = name
        """Its name in Kafka's protocol, as in `TOPIC_ALREADY_EXISTS`."""
        self.retriable = retriable
        """True if the same request may succeed later."""

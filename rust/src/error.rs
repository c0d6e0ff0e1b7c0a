//! One error enum for the crate. Its two maps, to Kafka's error codes and to Python exceptions
//! (in `py/door.rs`), are exhaustive: a new variant does not compile until both know it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::codes;

pub type Result<T> = std::result::Result<T, Error>;

/// All errors of the crate, named as Kafka names them where Kafka has a name (`Errors.java`).
#[derive(Clone, Debug)]
pub enum Error {
    /// An operating-system call failed. `operation` is the call, as in "fsync".
    Io {
        operation: &'static str,
        path: PathBuf,
        source: Arc<io::Error>,
    },
    /// Bytes on disk contradict the format. Never served; recovery decides what to keep.
    CorruptFile {
        path: PathBuf,
        position_byte: u64,
        reason: String,
    },
    /// The log directory failed earlier (a failed fsync above all) and takes nothing any more.
    LogDirOffline { path: PathBuf, reason: String },
    /// The log directory is in use by another process.
    LogDirLocked { path: PathBuf },
    /// The directory cannot be used: not Kafka's, of a future version, read-only, foreign.
    LogDirRefused { path: PathBuf, reason: String },
    /// The log cannot be made in the log directory yet: an older one of its name is at the end of
    /// a move into it, and the disk that it leaves does not answer.
    MoveNotEnded {
        topic: String,
        partition: i32,
        path: PathBuf,
    },
    /// CORRUPT_MESSAGE: length, CRC or structure of a batch is wrong.
    CorruptMessage(String),
    /// INVALID_RECORD: the batch breaks a rule of Kafka's `LogValidator`.
    InvalidRecord(String),
    /// INVALID_RECORD or INVALID_TIMESTAMP, with the records at fault (KIP-467).
    RecordsRefused(Box<RefusedRecords>),
    /// INVALID_TIMESTAMP.
    InvalidTimestamp(String),
    /// MESSAGE_TOO_LARGE, sizes in bytes.
    MessageTooLarge { size_bytes: usize, max_bytes: usize },
    /// RECORD_LIST_TOO_LARGE: does not fit in one segment, sizes in bytes.
    RecordListTooLarge { size_bytes: usize, max_bytes: usize },
    /// UNSUPPORTED_COMPRESSION_TYPE.
    UnsupportedCompression(String),
    /// UNSUPPORTED_FOR_MESSAGE_FORMAT.
    UnsupportedForMessageFormat(String),
    /// OUT_OF_ORDER_SEQUENCE_NUMBER.
    OutOfOrderSequence(String),
    /// INVALID_PRODUCER_EPOCH.
    InvalidProducerEpoch(String),
    /// UNKNOWN_PRODUCER_ID.
    UnknownProducerId(String),
    /// INVALID_TXN_STATE.
    InvalidTxnState(String),
    /// TRANSACTION_COORDINATOR_FENCED.
    TransactionCoordinatorFenced(String),
    /// OFFSET_OUT_OF_RANGE: `offset` is not within `log_start_offset ..= log_end_offset`.
    OffsetOutOfRange {
        offset: i64,
        log_start_offset: i64,
        log_end_offset: i64,
    },
    /// UNKNOWN_TOPIC_OR_PARTITION: the partition was deleted while the request was under way.
    LogDeleted { topic: String, partition: i32 },
    /// NOT_LEADER_OR_FOLLOWER: another node leads the partition, perhaps since the request came.
    NotLeader { topic: String, partition: i32 },
    /// NOT_ENOUGH_REPLICAS: fewer replicas are in sync than `min.insync.replicas` asks for.
    NotEnoughReplicas { topic: String, partition: i32 },
    /// NOT_ENOUGH_REPLICAS_AFTER_APPEND: as before, found out when the records
    /// were in the log already.
    NotEnoughReplicasAfterAppend { topic: String, partition: i32 },
    /// Offsets of a follower's or coordinator's batches do not follow the log end.
    UnexpectedAppendOffset {
        expected_offset: i64,
        found_offset: i64,
    },
    /// The code for something went against its own assumptions there: what a thread that looks
    /// after other things too tells of a panic (`crash::or_error`).
    Panicked { path: PathBuf, reason: String },
    /// The broker is to stop, and its logs need not be loaded any more.
    LoadStopped,
    /// The batch inflates to more than the caller wants to be inflated at once. Nothing else is
    /// said of it: it is to be judged elsewhere, and no client hears of this.
    TooCostly,
    /// A request that contradicts the protocol; its connection is closed.
    MalformedRequest(String),
    /// INVALID_ARGUMENT of a caller: the sentence says which and why.
    InvalidArgument(String),
}

/// Why a batch was refused for some of its records; all of the batch is. What the `RecordErrors`
/// of a Produce answer are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedRecords {
    /// One timestamp out of range makes the whole answer INVALID_TIMESTAMP.
    pub invalid_timestamp: bool,
    /// All records at fault, of which `errors` names the first `limits::RECORD_ERRORS_MAX`.
    pub errors_count: usize,
    pub errors: Vec<RecordError>,
}

/// One record at fault: its index in the batch, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    pub batch_index: i32,
    pub message: String,
}

impl Error {
    /// Wraps a failed call: `.map_err(Error::io("pwrite", path))`.
    pub fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io {
            operation,
            path,
            source: Arc::new(source),
        }
    }

    /// A file could not be opened since this process, or the machine, has too many open.
    pub fn lacks_descriptors(&self) -> bool {
        matches!(self, Error::Io { source, .. } if lacks_descriptors(source))
    }

    /// The file system has no block left, or the owner's quota is used up.
    pub fn lacks_space(&self) -> bool {
        let is_full = |code| matches!(code, libc::ENOSPC | libc::EDQUOT);
        matches!(self, Error::Io { source, .. } if source.raw_os_error().is_some_and(is_full))
    }

    pub fn corrupt_file(path: &Path, position_byte: u64, reason: impl Into<String>) -> Error {
        Error::CorruptFile {
            path: path.to_path_buf(),
            position_byte,
            reason: reason.into(),
        }
    }

    /// The code that goes on the wire (`org.apache.kafka.common.protocol.Errors`).
    pub fn kafka_code(&self) -> i16 {
        match self {
            Error::OffsetOutOfRange { .. } => codes::OFFSET_OUT_OF_RANGE,
            Error::CorruptMessage(_) => codes::CORRUPT_MESSAGE,
            Error::LogDeleted { .. } => codes::UNKNOWN_TOPIC_OR_PARTITION,
            Error::NotLeader { .. } => codes::NOT_LEADER_OR_FOLLOWER,
            Error::MessageTooLarge { .. } => codes::MESSAGE_TOO_LARGE,
            Error::RecordListTooLarge { .. } => codes::RECORD_LIST_TOO_LARGE,
            Error::NotEnoughReplicas { .. } => codes::NOT_ENOUGH_REPLICAS,
            Error::NotEnoughReplicasAfterAppend { .. } => codes::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            Error::RecordsRefused(refused) if refused.invalid_timestamp => codes::INVALID_TIMESTAMP,
            Error::InvalidTimestamp(_) => codes::INVALID_TIMESTAMP,
            Error::InvalidArgument(_) | Error::MalformedRequest(_) => codes::INVALID_REQUEST,
            Error::UnsupportedForMessageFormat(_) => codes::UNSUPPORTED_FOR_MESSAGE_FORMAT,
            Error::OutOfOrderSequence(_) => codes::OUT_OF_ORDER_SEQUENCE_NUMBER,
            Error::InvalidProducerEpoch(_) => codes::INVALID_PRODUCER_EPOCH,
            Error::InvalidTxnState(_) => codes::INVALID_TXN_STATE,
            Error::TransactionCoordinatorFenced(_) => codes::TRANSACTION_COORDINATOR_FENCED,
            Error::Io { .. }
            | Error::CorruptFile { .. }
            | Error::LogDirOffline { .. }
            | Error::LogDirLocked { .. }
            | Error::LogDirRefused { .. }
            | Error::MoveNotEnded { .. } => codes::KAFKA_STORAGE_ERROR,
            Error::UnknownProducerId(_) => codes::UNKNOWN_PRODUCER_ID,
            Error::UnsupportedCompression(_) => codes::UNSUPPORTED_COMPRESSION_TYPE,
            Error::InvalidRecord(_) | Error::RecordsRefused(_) => codes::INVALID_RECORD,
            // Kafka's UnexpectedAppendOffsetException has no code of its own on the wire.
            Error::UnexpectedAppendOffset { .. }
            | Error::Panicked { .. }
            | Error::LoadStopped
            | Error::TooCostly => codes::UNKNOWN_SERVER_ERROR,
        }
    }
}

/// An open failed since this process, or the machine, has too many files open.
pub fn lacks_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl fmt::Display for RefusedRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records of the batch were refused", self.errors_count)?;
        let mut separator = ": ";
        for error in self.errors.iter().take(3) {
            write!(
                f,
                "{separator}record {}: {}",
                error.batch_index, error.message
            )?;
            separator = "; ";
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io {
                operation,
                path,
                source,
            } => {
                write!(f, "{operation} failed on {}: {source}", path.display())
            }
            Error::CorruptFile {
                path,
                position_byte,
                reason,
            } => {
                write!(
                    f,
                    "{} is corrupt at byte {position_byte}: {reason}",
                    path.display()
                )
            }
            Error::LogDirOffline { path, reason } => {
                write!(f, "log directory {} is offline: {reason}", path.display())
            }
            Error::LogDirLocked { path } => {
                write!(
                    f,
                    "log directory {} is in use by another process",
                    path.display()
                )
            }
            Error::LogDirRefused { path, reason } => {
                write!(
                    f,
                    "log directory {} cannot be used: {reason}",
                    path.display()
                )
            }
            Error::MoveNotEnded {
                topic,
                partition,
                path,
            } => {
                write!(
                    f,
                    "an older log of {topic}-{partition} is moving into {} and cannot leave its log directory, which \
                     does not respond",
                    path.display()
                )
            }
            Error::CorruptMessage(reason) => write!(f, "corrupt message: {reason}"),
            Error::InvalidRecord(reason) => write!(f, "invalid record: {reason}"),
            Error::RecordsRefused(refused) => refused.fmt(f),
            Error::InvalidTimestamp(reason) => write!(f, "invalid timestamp: {reason}"),
            Error::MessageTooLarge {
                size_bytes,
                max_bytes,
            } => write!(
                f,
                "the batch of {size_bytes} bytes is larger than max.message.bytes={max_bytes}"
            ),
            Error::RecordListTooLarge {
                size_bytes,
                max_bytes,
            } => write!(
                f,
                "the record list of {size_bytes} bytes is larger than segment.bytes={max_bytes}"
            ),
            Error::UnsupportedCompression(reason) => write!(f, "unsupported compression: {reason}"),
            Error::UnsupportedForMessageFormat(reason) => {
                write!(f, "unsupported for the message format: {reason}")
            }
            Error::OutOfOrderSequence(reason) => write!(f, "out of order sequence: {reason}"),
            Error::InvalidProducerEpoch(reason) => write!(f, "invalid producer epoch: {reason}"),
            Error::UnknownProducerId(reason) => write!(f, "unknown producer id: {reason}"),
            Error::InvalidTxnState(reason) => write!(f, "invalid transaction state: {reason}"),
            Error::TransactionCoordinatorFenced(reason) => {
                write!(f, "transaction coordinator fenced: {reason}")
            }
            Error::OffsetOutOfRange {
                offset,
                log_start_offset,
                log_end_offset,
            } => write!(
                f,
                "offset {offset} is out of range: the log holds {log_start_offset} to {log_end_offset}"
            ),
            Error::LogDeleted { topic, partition } => {
                write!(f, "{topic}-{partition} was deleted")
            }
            Error::NotLeader { topic, partition } => {
                write!(f, "this node does not lead {topic}-{partition}")
            }
            Error::NotEnoughReplicas { topic, partition } => write!(
                f,
                "fewer replicas of {topic}-{partition} are in sync than min.insync.replicas asks for"
            ),
            Error::NotEnoughReplicasAfterAppend { topic, partition } => write!(
                f,
                "the records were written to {topic}-{partition}, of which fewer replicas are in sync by now than \
                 min.insync.replicas asks for"
            ),
            Error::UnexpectedAppendOffset {
                expected_offset,
                found_offset,
            } => write!(
                f,
                "unexpected offset {found_offset} in an append: the log end offset is {expected_offset}"
            ),
            Error::Panicked { path, reason } => {
                write!(f, "the code for {} panicked: {reason}", path.display())
            }
            Error::LoadStopped => f.write_str("the loading of the logs was stopped"),
            Error::TooCostly => f.write_str("the batch inflates to more than is inflated at once"),
            Error::MalformedRequest(reason) => write!(f, "malformed request: {reason}"),
            Error::InvalidArgument(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

//! Names of files and directories in a log directory, as Kafka writes them (`LogFileUtils`).
//!
//! ```text
//! <log.dir>/orders-3/00000000000000000042.log         records; 42 is the segment's base offset
//!                    00000000000000000042.index       offset → position
//!                    00000000000000000042.timeindex   timestamp → offset
//!                    00000000000000000042.txnindex    aborted transactions, if there are any
//!                    00000000000000000042.snapshot    producer state just before offset 42
//!                    leader-epoch-checkpoint  partition.metadata
//! ```
//! `directory/mod.rs` draws the files of the log directory itself.
//!
//! A suffix says what is under way: `.cleaned` a cleaner's unfinished output, `.swap` its finished
//! output, `.deleted` a file that a reader may still hold.

use std::path::{Path, PathBuf};

use crate::uuid::Uuid;

pub const LOG: &str = ".log";
pub const OFFSET_INDEX: &str = ".index";
pub const TIME_INDEX: &str = ".timeindex";
pub const TRANSACTION_INDEX: &str = ".txnindex";
pub const PRODUCER_SNAPSHOT: &str = ".snapshot";

pub const DELETED: &str = ".deleted";
pub const CLEANED: &str = ".cleaned";
pub const SWAP: &str = ".swap";

pub const LEADER_EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";
pub const PARTITION_METADATA: &str = "partition.metadata";

pub const LOCK: &str = ".lock";
pub const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
/// Written by a broker of a cluster
/// (`python/kafkalite/replication/broker_epoch.py`); Kafka leaves it alone.
pub const BROKER_EPOCH: &str = "kafkalite-broker-epoch";
/// Future replicas of which no start goes on with the move (`directory/cancelled_moves.rs`); Kafka
/// leaves it alone.
pub const CANCELLED_MOVES: &str = "kafkalite-cancelled-moves";
pub const RECOVERY_POINT_CHECKPOINT: &str = "recovery-point-offset-checkpoint";
pub const HIGH_WATERMARK_CHECKPOINT: &str = "replication-offset-checkpoint";
pub const LOG_START_OFFSET_CHECKPOINT: &str = "log-start-offset-checkpoint";
pub const CLEANER_OFFSET_CHECKPOINT: &str = "cleaner-offset-checkpoint";

/// The files of a log directory that say an offset for each partition.
pub const OFFSET_CHECKPOINTS: [&str; 4] = [
    RECOVERY_POINT_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
];

/// Suffixes of partition directories that are on their way out or not yet in.
pub const DELETE_DIRECTORY: &str = "-delete";
pub const FUTURE_DIRECTORY: &str = "-future";
pub const STRAY_DIRECTORY: &str = "-stray";

/// The topic of the controller's log, which the raft quorum keeps and no broker loads
/// (`LogManager`).
pub const METADATA_TOPIC: &str = "__cluster_metadata";

pub const METADATA_DIRECTORY: &str = "__cluster_metadata-0";
/// The last byte is 1 (`Uuid.METADATA_TOPIC_ID`).
pub const METADATA_TOPIC_ID: Uuid = Uuid(1_u128.to_be_bytes());

/// In the top directory of a file system of its own.
pub const LOST_AND_FOUND: &str = "lost+found";
/// Directories in a log directory that are of no partition; the second is the cache of Kafka's
/// tiered storage.
pub const OTHER_DIRECTORIES: [&str; 2] = [LOST_AND_FOUND, "remote-log-index-cache"];

/// The kinds of file that belong to a segment, in the order in which they are renamed: the log last
/// on the way in (`.swap` → final), so that a log never stands without its indexes.
pub const SEGMENT_KINDS: [&str; 4] = [OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, LOG];

/// `00000000000000000042.log` with a suffix behind it, in `directory`.
pub fn segment_path(directory: &Path, base_offset: i64, kind: &str, suffix: &str) -> PathBuf {
    directory.join(format!("{base_offset:020}{kind}{suffix}"))
}

/// `00000000000000000042.log`
pub fn segment_name(base_offset: i64, kind: &str) -> String {
    format!("{base_offset:020}{kind}")
}

/// The base offset in front of `kind`, if `name` is 20 digits, `kind`, `suffix` and nothing else.
pub fn base_offset_of(name: &str, kind: &str, suffix: &str) -> Option<i64> {
    let digits = name.strip_suffix(suffix)?.strip_suffix(kind)?;
    parse_offset(digits)
}

/// The offset that any file of a segment starts with, whatever follows the first dot.
pub fn leading_offset(name: &str) -> Option<i64> {
    parse_offset(name.split('.').next()?)
}

/// Says whether `name` is a file of a segment, of whatever kind, that ends with `suffix`.
pub fn is_of_segment(name: &str, suffix: &str) -> bool {
    name.ends_with(suffix) && leading_offset(name).is_some()
}

fn parse_offset(digits: &str) -> Option<i64> {
    let is_offset = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_offset { digits.parse().ok() } else { None }
}

/// Splits `orders-3` into topic and partition; suffixed directories (`-delete` …) are `None`.
pub fn parse_partition_directory(name: &str) -> Option<(&str, i32)> {
    let (topic, digits) = name.rsplit_once('-')?;
    let canonical = !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'));
    if topic.is_empty() || !canonical {
        return None;
    }
    Some((topic, digits.parse().ok()?))
}

/// `<topic>-<partition>.<unique>-future`. Kafka does not shorten the topic of this one: the
/// name would be another's.
pub fn future_directory(topic: &str, partition: i32, unique: &str) -> String {
    format!("{topic}-{partition}.{unique}{FUTURE_DIRECTORY}")
}

/// Splits `orders-3.<unique>-future` into topic and partition.
pub fn parse_future_directory(name: &str) -> Option<(&str, i32)> {
    parse_suffixed_directory(name, FUTURE_DIRECTORY)
}

/// Splits `orders-3.<unique>-delete` into topic and partition, likewise with the other suffixes. A
/// suffix alone does not make a directory Kafka's (`LocalLog.parseTopicPartitionName`). Of a topic
/// with a long name there may be only the beginning.
pub fn parse_suffixed_directory<'a>(name: &'a str, suffix: &str) -> Option<(&'a str, i32)> {
    let (partition, unique) = name.strip_suffix(suffix)?.rsplit_once('.')?;
    if unique.is_empty() || unique.contains('-') {
        None
    } else {
        parse_partition_directory(partition)
    }
}

/// A directory of a partition that is on its way out or not yet in.
pub fn is_suffixed_directory(name: &str) -> bool {
    let suffixes = [DELETE_DIRECTORY, FUTURE_DIRECTORY, STRAY_DIRECTORY];
    suffixes
        .iter()
        .any(|suffix| parse_suffixed_directory(name, suffix).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_file_name_has_twenty_digits() {
        let path = segment_path(Path::new("t-0"), 42, LOG, SWAP);
        assert_eq!(path, Path::new("t-0/00000000000000000042.log.swap"));
        assert_eq!(
            base_offset_of("00000000000000000042.log.swap", LOG, SWAP),
            Some(42)
        );
        assert_eq!(base_offset_of("42.log", LOG, ""), None);
        assert_eq!(base_offset_of("99999999999999999999.log", LOG, ""), None);
    }

    #[test]
    fn a_topic_may_contain_dashes_and_a_deleted_directory_is_no_partition() {
        assert_eq!(parse_partition_directory("a-b-12"), Some(("a-b", 12)));
        assert_eq!(parse_partition_directory("a-0.4f6b-delete"), None);
        assert_eq!(parse_partition_directory("-1"), None);
        assert_eq!(parse_partition_directory("a-01"), None);
    }

    #[test]
    fn a_future_replica_names_its_partition() {
        let name = future_directory("a.b-c", 12, "4f6b");
        assert_eq!(name, "a.b-c-12.4f6b-future");
        assert_eq!(parse_future_directory(&name), Some(("a.b-c", 12)));
        assert_eq!(parse_partition_directory(&name), None);
        for other in ["a-0", "a-0.-future", "a-0.4f6b-delete", "a.4f6b-future"] {
            assert_eq!(parse_future_directory(other), None, "{other}");
        }
    }

    #[test]
    fn a_suffix_alone_does_not_make_a_directory_one_of_kafkas() {
        for name in ["a-0.4f6b-delete", "a.b-c-12.4f6b-future", "a-0.4f6b-stray"] {
            assert!(is_suffixed_directory(name), "{name}");
        }
        for name in [
            "to-delete",
            "a-0-delete",
            "x-stray",
            "a.4f6b-future",
            "a-0.4f6b-kept",
        ] {
            assert!(!is_suffixed_directory(name), "{name}");
        }
    }
}

//! What a topic's configuration means to its logs (`LogConfig`), with Kafka's names and defaults.
//! The rows with documentation and bounds are in `python/kafkalite/config.py`; this is what the
//! engine reads of them.

use crate::batch::compression::Codec;
use crate::batch::header::TimestampType;
use crate::batch::validate::{AppendOrigin, ValidationRules};
use crate::error::{Error, Result};

/// `cleanup.policy`. Both may be set; Kafka 4 also allows neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupPolicy {
    pub delete: bool,
    pub compact: bool,
}

/// The configuration of one log. Times in milliseconds, sizes in bytes; -1 is Kafka's "no limit".
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// `segment.bytes`
    pub segment_bytes: u64,
    /// `segment.ms`
    pub segment_ms: i64,
    /// `segment.jitter.ms`
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`, of each index file
    pub segment_index_bytes: u64,
    /// `index.interval.bytes`
    pub index_interval_bytes: u64,
    /// `flush.messages`
    pub flush_messages: i64,
    /// `flush.ms`
    pub flush_ms: i64,
    /// `retention.bytes`
    pub retention_bytes: i64,
    /// `retention.ms`
    pub retention_ms: i64,
    /// `max.message.bytes`
    pub max_message_bytes: u64,
    /// `cleanup.policy`
    pub cleanup_policy: CleanupPolicy,
    /// `delete.retention.ms`
    pub delete_retention_ms: i64,
    /// `min.compaction.lag.ms`
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`
    pub max_compaction_lag_ms: i64,
    /// `min.cleanable.dirty.ratio`, 0 to 1
    pub min_cleanable_dirty_ratio: f64,
    /// `file.delete.delay.ms`
    pub file_delete_delay_ms: i64,
    /// `preallocate`
    pub preallocate: bool,
    /// `message.timestamp.type`
    pub message_timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`
    pub message_timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`
    pub message_timestamp_after_max_ms: i64,
    /// `compression.type`, with its `compression.<codec>.level` (`None`: the codec's default);
    /// `None` is "producer"
    pub compression: Option<(Codec, Option<i32>)>,
    /// `producer.id.expiration.ms` (a broker's setting)
    pub producer_id_expiration_ms: i64,
    /// `kafkalite.acks.fsync`: the high watermark follows the flushed offset, not the log end
    pub acks_fsync: bool,
    /// `kafkalite.produce.validation=header`: records are not walked
    pub trust_records: bool,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 * 1024 * 1024,
            index_interval_bytes: 4096,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            retention_bytes: -1,
            retention_ms: 7 * 24 * 3_600_000,
            max_message_bytes: 1024 * 1024 + 12,
            cleanup_policy: CleanupPolicy {
                delete: true,
                compact: false,
            },
            delete_retention_ms: 24 * 3_600_000,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            min_cleanable_dirty_ratio: 0.5,
            file_delete_delay_ms: 60_000,
            preallocate: false,
            message_timestamp_type: TimestampType::CreateTime,
            message_timestamp_before_max_ms: i64::MAX,
            message_timestamp_after_max_ms: 3_600_000,
            compression: None,
            producer_id_expiration_ms: 24 * 3_600_000,
            acks_fsync: true,
            trust_records: false,
        }
    }
}

impl LogConfig {
    /// What the validator must know of this topic.
    pub fn validation_rules(&self, origin: AppendOrigin, now_ms: i64) -> ValidationRules {
        ValidationRules {
            origin,
            now_ms,
            max_message_bytes: usize::try_from(self.max_message_bytes).unwrap_or(usize::MAX),
            compacted: self.cleanup_policy.compact,
            timestamp_type: self.message_timestamp_type,
            timestamp_before_max_ms: self.message_timestamp_before_max_ms,
            timestamp_after_max_ms: self.message_timestamp_after_max_ms,
            compression: self.compression,
            zstd_allowed: true,
            trust_records: self.trust_records,
        }
    }
}

impl LogConfig {
    /// Sets what `key` stands for; the keys are those of a topic (`TopicConfig`), the broker's
    /// `producer.id.expiration.ms`, and kafkalite's own two.
    ///
    /// Errors: `InvalidArgument` for an unknown key or a value that is not of its type. Bounds are
    /// the caller's to check.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let wrong = || Error::InvalidArgument(format!("{key}={value} is not understood"));
        let long = || value.parse::<i64>().map_err(|_| wrong());
        let size = || value.parse::<u64>().map_err(|_| wrong());
        let flag = || value.parse::<bool>().map_err(|_| wrong());
        match key {
            "segment.bytes" => self.segment_bytes = size()?,
            "segment.ms" => self.segment_ms = long()?,
            "segment.jitter.ms" => self.segment_jitter_ms = long()?,
            "segment.index.bytes" => self.segment_index_bytes = size()?,
            "index.interval.bytes" => self.index_interval_bytes = size()?,
            "flush.messages" => self.flush_messages = long()?,
            "flush.ms" => self.flush_ms = long()?,
            "retention.bytes" => self.retention_bytes = long()?,
            "retention.ms" => self.retention_ms = long()?,
            "max.message.bytes" => self.max_message_bytes = size()?,
            "cleanup.policy" => {
                let words: Vec<&str> = value.split(',').map(str::trim).collect();
                let known = ["delete", "compact", ""];
                if words.iter().any(|word| !known.contains(word)) {
                    return Err(wrong());
                }
                self.cleanup_policy = CleanupPolicy {
                    delete: words.contains(&"delete"),
                    compact: words.contains(&"compact"),
                };
            }
            "delete.retention.ms" => self.delete_retention_ms = long()?,
            "min.compaction.lag.ms" => self.min_compaction_lag_ms = long()?,
            "max.compaction.lag.ms" => self.max_compaction_lag_ms = long()?,
            "min.cleanable.dirty.ratio" => {
                self.min_cleanable_dirty_ratio = value.parse().map_err(|_| wrong())?;
            }
            "file.delete.delay.ms" => self.file_delete_delay_ms = long()?,
            "preallocate" => self.preallocate = flag()?,
            "message.timestamp.type" => {
                self.message_timestamp_type = match value {
                    "CreateTime" => TimestampType::CreateTime,
                    "LogAppendTime" => TimestampType::LogAppendTime,
                    _ => return Err(wrong()),
                };
            }
            "message.timestamp.before.max.ms" => self.message_timestamp_before_max_ms = long()?,
            "message.timestamp.after.max.ms" => self.message_timestamp_after_max_ms = long()?,
            "compression.type" => {
                self.compression = match value {
                    "producer" => None,
                    "uncompressed" => Some((Codec::None, None)),
                    "gzip" => Some((Codec::Gzip, None)),
                    "snappy" => Some((Codec::Snappy, None)),
                    "lz4" => Some((Codec::Lz4, None)),
                    "zstd" => Some((Codec::Zstd, None)),
                    _ => return Err(wrong()),
                };
            }
            // The level of one codec counts only where that codec is the topic's; set it later.
            "compression.gzip.level" | "compression.lz4.level" | "compression.zstd.level" => {
                let level = value.parse::<i32>().map_err(|_| wrong())?;
                let codec = match key {
                    "compression.gzip.level" => Codec::Gzip,
                    "compression.lz4.level" => Codec::Lz4,
                    _ => Codec::Zstd,
                };
                if let Some((own, own_level)) = &mut self.compression
                    && *own == codec
                {
                    *own_level = Some(level);
                }
            }
            "producer.id.expiration.ms" => self.producer_id_expiration_ms = long()?,
            "kafkalite.acks.fsync" => {
                self.acks_fsync = match value {
                    "group" => true,
                    "none" => false,
                    _ => return Err(wrong()),
                };
            }
            "kafkalite.produce.validation" => {
                self.trust_records = match value {
                    "full" => false,
                    "header" => true,
                    _ => return Err(wrong()),
                };
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }
}

//! The configuration of a topic as its logs use it (`LogConfig`), with Kafka's names and defaults.
//! The rows with documentation and bounds are in `python/kafkalite/config/`; this is what the
//! engine reads of them.

use std::sync::Arc;

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

/// Replicas of a topic that are throttled (`leader.replication.throttled.replicas`, `follower.…`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ThrottledReplicas {
    #[default]
    None,
    All,
    /// Partition and broker of each, in their order.
    These(Arc<[(i32, i32)]>),
}

impl ThrottledReplicas {
    /// Reads `*`, or PARTITION:BROKER elements. One that is neither, which no controller
    /// lets in, throttles nobody.
    fn read(value: &str) -> ThrottledReplicas {
        let words = || value.split(',').map(str::trim);
        if words().any(|word| word == "*") {
            return ThrottledReplicas::All;
        }
        let replicas = words().filter_map(|word| {
            let (partition, broker) = word.split_once(':')?;
            Some((partition.parse().ok()?, broker.parse().ok()?))
        });
        let mut replicas: Vec<(i32, i32)> = replicas.collect();
        replicas.sort_unstable();
        if replicas.is_empty() {
            ThrottledReplicas::None
        } else {
            ThrottledReplicas::These(replicas.into())
        }
    }

    /// The replica that a broker has of a partition is among them.
    pub fn has(&self, partition: i32, broker: i32) -> bool {
        match self {
            ThrottledReplicas::None => false,
            ThrottledReplicas::All => true,
            ThrottledReplicas::These(replicas) => {
                replicas.binary_search(&(partition, broker)).is_ok()
            }
        }
    }
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
    /// `min.insync.replicas`
    pub min_in_sync_replicas: u32,
    /// `leader.replication.throttled.replicas`
    pub leader_throttled: ThrottledReplicas,
    /// `follower.replication.throttled.replicas`
    pub follower_throttled: ThrottledReplicas,
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
            min_in_sync_replicas: 1,
            leader_throttled: ThrottledReplicas::None,
            follower_throttled: ThrottledReplicas::None,
            acks_fsync: true,
            trust_records: false,
        }
    }
}

impl LogConfig {
    /// For how long a segment takes records: `segment.ms`, or less where `max.compaction.lag.ms`
    /// wants them compacted earlier, which an active segment is not.
    pub fn segment_ms_max(&self) -> i64 {
        if self.cleanup_policy.compact && self.max_compaction_lag_ms > 0 {
            self.segment_ms.min(self.max_compaction_lag_ms)
        } else {
            self.segment_ms
        }
    }

    /// How much earlier a segment may be closed, at random: less than its whole time, whatever
    /// `segment.jitter.ms` says, or each record would get a segment. Kafka's bound is
    /// `segment.ms` (`LogConfig.randomSegmentJitter`), which is no help where
    /// `max.compaction.lag.ms` is shorter.
    pub fn segment_jitter_ms_max(&self) -> i64 {
        self.segment_jitter_ms.min(self.segment_ms_max())
    }

    /// The rules by which the validator judges batches of this topic.
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
            trust_records: self.trust_records,
        }
    }
}

/// `compression.type` and the levels, which name one thing together.
#[derive(Default)]
struct CompressionRows {
    codec: Option<Codec>,
    gzip_level: Option<i32>,
    lz4_level: Option<i32>,
    zstd_level: Option<i32>,
}

impl LogConfig {
    /// Reads properties under Kafka's names, as in `segment.bytes=1048576`, over `self` as the
    /// defaults; each key at most once. Bounds are those of Kafka's `LogConfig`, except that
    /// `segment.bytes` may be as small as its `internal.segment.bytes`.
    ///
    /// Errors: `InvalidArgument` naming the key for one that is unknown or a value that it cannot
    /// have.
    pub fn with_properties<'a>(
        &self,
        properties: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<LogConfig> {
        let mut config = self.clone();
        let mut rows = CompressionRows {
            codec: config.compression.map(|(codec, _)| codec),
            ..CompressionRows::default()
        };
        match config.compression {
            Some((Codec::Gzip, level)) => rows.gzip_level = level,
            Some((Codec::Lz4, level)) => rows.lz4_level = level,
            Some((Codec::Zstd, level)) => rows.zstd_level = level,
            _ => {}
        }
        for (key, value) in properties {
            let value = value.trim();
            if !rows.set(key, value)? {
                config.assign(key, value)?;
            }
        }
        config.compression = rows.codec.map(|codec| match codec {
            Codec::Gzip => (codec, rows.gzip_level),
            Codec::Lz4 => (codec, rows.lz4_level),
            Codec::Zstd => (codec, rows.zstd_level),
            Codec::None | Codec::Snappy => (codec, None),
        });
        Ok(config)
    }

    fn assign(&mut self, key: &str, value: &str) -> Result<()> {
        const INT_MAX: i64 = i32::MAX as i64;
        const ANY: i64 = i64::MAX;
        let number = |least: i64, most: i64| number(key, value, least, most);
        let bytes = |least: i64| number(least, INT_MAX).map(|bytes| bytes as u64);
        match key {
            // 14 is the least record of magic 0, Kafka's bound.
            "segment.bytes" | "internal.segment.bytes" => self.segment_bytes = bytes(14)?,
            "segment.ms" => self.segment_ms = number(1, ANY)?,
            "segment.jitter.ms" => self.segment_jitter_ms = number(0, ANY)?,
            "segment.index.bytes" => self.segment_index_bytes = bytes(4)?,
            "index.interval.bytes" => self.index_interval_bytes = bytes(0)?,
            "flush.messages" => self.flush_messages = number(1, ANY)?,
            "flush.ms" => self.flush_ms = number(0, ANY)?,
            "retention.bytes" => self.retention_bytes = number(i64::MIN, ANY)?,
            "retention.ms" => self.retention_ms = number(-1, ANY)?,
            "max.message.bytes" => self.max_message_bytes = bytes(0)?,
            "cleanup.policy" => self.cleanup_policy = cleanup_policy(key, value)?,
            "delete.retention.ms" => self.delete_retention_ms = number(0, ANY)?,
            "min.compaction.lag.ms" => self.min_compaction_lag_ms = number(0, ANY)?,
            "max.compaction.lag.ms" => self.max_compaction_lag_ms = number(1, ANY)?,
            "min.cleanable.dirty.ratio" => self.min_cleanable_dirty_ratio = ratio(key, value)?,
            "file.delete.delay.ms" => self.file_delete_delay_ms = number(0, ANY)?,
            "preallocate" => self.preallocate = boolean(key, value)?,
            "message.timestamp.type" => {
                self.message_timestamp_type = match value {
                    "CreateTime" => TimestampType::CreateTime,
                    "LogAppendTime" => TimestampType::LogAppendTime,
                    _ => return refuse(key, value, "CreateTime or LogAppendTime"),
                }
            }
            "message.timestamp.before.max.ms" => {
                self.message_timestamp_before_max_ms = number(0, ANY)?;
            }
            "message.timestamp.after.max.ms" => {
                self.message_timestamp_after_max_ms = number(0, ANY)?;
            }
            "producer.id.expiration.ms" => {
                self.producer_id_expiration_ms = number(1, INT_MAX)?;
            }
            "min.insync.replicas" => self.min_in_sync_replicas = number(1, INT_MAX)? as u32,
            "leader.replication.throttled.replicas" => {
                self.leader_throttled = ThrottledReplicas::read(value);
            }
            "follower.replication.throttled.replicas" => {
                self.follower_throttled = ThrottledReplicas::read(value);
            }
            "kafkalite.acks.fsync" => {
                self.acks_fsync = match value {
                    "group" => true,
                    "none" => false,
                    _ => return refuse(key, value, "group or none"),
                }
            }
            "kafkalite.produce.validation" => {
                self.trust_records = match value {
                    "full" => false,
                    "header" => true,
                    _ => return refuse(key, value, "full or header"),
                }
            }
            _ => {
                return Err(Error::InvalidArgument(format!(
                    "{key} is no configuration of a topic"
                )));
            }
        }
        Ok(())
    }
}

impl CompressionRows {
    /// Sets one key. Returns whether the key was one of these.
    fn set(&mut self, key: &str, value: &str) -> Result<bool> {
        let level = |codec: Codec| match value.parse::<i32>() {
            Ok(level) if codec.level_is_valid(level) => Ok(Some(level)),
            _ => refuse(key, value, "a level of the codec"),
        };
        match key {
            "compression.type" => {
                self.codec = match (value, Codec::from_name(value)) {
                    ("producer", _) => None,
                    // Kafka's word for no codec; `none` is the producers' word.
                    ("uncompressed", _) => Some(Codec::None),
                    (_, Some(codec)) if codec != Codec::None => Some(codec),
                    _ => {
                        let names = "producer, uncompressed, gzip, snappy, lz4 or zstd";
                        return refuse(key, value, names);
                    }
                }
            }
            "compression.gzip.level" => self.gzip_level = level(Codec::Gzip)?,
            "compression.lz4.level" => self.lz4_level = level(Codec::Lz4)?,
            "compression.zstd.level" => self.zstd_level = level(Codec::Zstd)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn refuse<T>(key: &str, value: &str, wanted: &str) -> Result<T> {
    Err(Error::InvalidArgument(format!(
        "{key}={value} is not {wanted}"
    )))
}

fn number(key: &str, value: &str, least: i64, most: i64) -> Result<i64> {
    match value.parse::<i64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => refuse(
            key,
            value,
            &format!("a whole number from {least} to {most}"),
        ),
    }
}

fn ratio(key: &str, value: &str) -> Result<f64> {
    match value.parse::<f64>() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
        _ => refuse(key, value, "a number from 0 to 1"),
    }
}

fn boolean(key: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => refuse(key, value, "true or false"),
    }
}

fn cleanup_policy(key: &str, value: &str) -> Result<CleanupPolicy> {
    let mut policy = CleanupPolicy {
        delete: false,
        compact: false,
    };
    for word in value.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        match word {
            "delete" => policy.delete = true,
            "compact" => policy.compact = true,
            _ => return refuse(key, value, "a list of delete and compact"),
        }
    }
    Ok(policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(properties: &[(&str, &str)]) -> Result<LogConfig> {
        LogConfig::default().with_properties(properties.iter().copied())
    }

    #[test]
    fn each_kind_of_value_is_read_under_kafkas_name() {
        let config = read(&[
            ("segment.bytes", "1048576"),
            ("retention.ms", "-1"),
            ("cleanup.policy", "compact, delete"),
            ("min.cleanable.dirty.ratio", "0.01"),
            ("preallocate", "TRUE"),
            ("message.timestamp.type", "LogAppendTime"),
            ("kafkalite.acks.fsync", "none"),
        ])
        .expect("all are good");
        let both = CleanupPolicy {
            delete: true,
            compact: true,
        };
        let expected = LogConfig {
            segment_bytes: 1_048_576,
            retention_ms: -1,
            cleanup_policy: both,
            min_cleanable_dirty_ratio: 0.01,
            preallocate: true,
            message_timestamp_type: TimestampType::LogAppendTime,
            acks_fsync: false,
            ..LogConfig::default()
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn a_level_counts_for_its_codec_only_and_in_any_order() {
        let level_first = [
            ("compression.zstd.level", "7"),
            ("compression.type", "zstd"),
        ];
        let zstd = read(&level_first).expect("good");
        assert_eq!(zstd.compression, Some((Codec::Zstd, Some(7))));
        let producer = zstd.with_properties([("compression.type", "producer")]);
        assert_eq!(producer.expect("good").compression, None);
        let plain = read(&[
            ("compression.type", "uncompressed"),
            ("compression.gzip.level", "3"),
        ]);
        assert_eq!(plain.expect("good").compression, Some((Codec::None, None)));
    }

    #[test]
    fn throttled_replicas_are_all_or_those_that_are_named_by_partition_and_broker() {
        let throttled = |value: &str| {
            let config = read(&[("leader.replication.throttled.replicas", value)]).expect("good");
            [(0, 1), (0, 2), (7, 1), (10, 3)]
                .map(|(partition, broker)| config.leader_throttled.has(partition, broker))
        };
        assert_eq!(throttled("*"), [true; 4]);
        assert_eq!(throttled("10:3, 0:1,,1:2"), [true, false, false, true]);
        assert_eq!(throttled(""), [false; 4]);
        assert_eq!(throttled("none"), [false; 4]);
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        let wrong = [
            ("segment.bytes", "13"),
            ("segment.bytes", "2147483648"),
            ("retention.ms", "-2"),
            ("retention.ms", "a week"),
            ("min.cleanable.dirty.ratio", "1.5"),
            ("preallocate", "yes"),
            ("cleanup.policy", "delete,compress"),
            ("compression.type", "none"),
            ("compression.zstd.level", "99"),
            ("message.timestamp.type", "createtime"),
            ("kafkalite.acks.fsync", "some"),
            ("segment.byte", "1"),
        ];
        for (key, value) in wrong {
            let Err(Error::InvalidArgument(sentence)) = read(&[(key, value)]) else {
                panic!("{key}={value} was taken");
            };
            assert!(sentence.starts_with(key), "{sentence}");
        }
    }
}

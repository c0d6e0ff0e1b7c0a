//! The rules by which batches are judged, and for whom they hold.

use crate::batch::compression::Codec;
use crate::batch::header::TimestampType;

/// The origin of an append; it decides which rules hold (`AppendOrigin`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOrigin {
    /// A producer: all rules.
    Client,
    /// The group or the transaction coordinator: control batches, no sequence numbers.
    Coordinator,
    /// The leader of the partition, or our own disk: it was judged before. What is checked is what
    /// a network or a disk can break.
    Replication,
}

/// The rules of a topic, a broker and the clock about batches. The default is Kafka's for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationRules {
    pub origin: AppendOrigin,
    /// Milliseconds since 1970; what LogAppendTime writes.
    pub now_ms: i64,
    /// `max.message.bytes`, bytes of one batch.
    pub max_message_bytes: usize,
    /// `cleanup.policy` has `compact`.
    pub compacted: bool,
    /// `message.timestamp.type`
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`
    pub timestamp_after_max_ms: i64,
    /// `compression.type` and its level; `None` is "producer".
    pub compression: Option<(Codec, Option<i32>)>,
    /// `kafkalite.produce.validation=header`: the CRC and the header are enough, the records are
    /// the producer's word.
    pub trust_records: bool,
}

impl Default for ValidationRules {
    fn default() -> ValidationRules {
        ValidationRules {
            origin: AppendOrigin::Client,
            now_ms: 0,
            max_message_bytes: 1024 * 1024 + 12,
            compacted: false,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            compression: None,
            trust_records: false,
        }
    }
}

//! The header of a record batch, in each of Kafka's three formats ("magic").
//!
//! Magic 2 (KIP-98), 61 bytes, big-endian:
//!
//! ```text
//!  0 base_offset          i64   patched at append, outside the CRC
//!  8 batch_length         i32   bytes after this field (size = 12 + batch_length)
//! 12 partition_leader_epoch i32 patched at append, outside the CRC
//! 16 magic                i8    2
//! 17 crc                  u32   CRC-32C of bytes 21..size
//! 21 attributes           i16   0-2 codec, 3 timestamp type, 4 transactional, 5 control,
//!                               6 base_timestamp is the delete horizon (KIP-534)
//! 23 last_offset_delta    i32
//! 27 base_timestamp       i64
//! 35 max_timestamp        i64
//! 43 producer_id          i64
//! 51 producer_epoch       i16
//! 53 base_sequence        i32
//! 57 records_count        i32
//! 61 records              (one compressed stream, if a codec is set)
//! ```
//!
//! Magic 0 and 1 are single messages, a compressed set being one message whose value holds the
//! inner ones: offset i64, size i32, crc u32 (CRC-32 of what follows), magic i8, attributes i8,
//! (magic 1: timestamp i64), key, value. The offset of a wrapper is that of its last message.

use crate::error::{Error, Result};
use crate::limits::BATCH_BYTES_MAX;

/// Bytes of offset and length in front of every batch or message (`Records.LOG_OVERHEAD`).
pub const LOG_OVERHEAD: usize = 12;
/// Bytes up to and with the magic: enough to know which format follows.
pub const MAGIC_PREFIX: usize = 17;
/// Bytes of a magic 2 header (`DefaultRecordBatch.RECORD_BATCH_OVERHEAD`).
pub const RECORD_BATCH_OVERHEAD: usize = 61;
/// Smallest magic 0 and 1 messages: header, null key, null value.
pub const LEGACY_OVERHEAD_V0: usize = LOG_OVERHEAD + 14;
pub const LEGACY_OVERHEAD_V1: usize = LOG_OVERHEAD + 22;
/// The least length of a batch, which counts the bytes that follow it (`LegacyRecord`).
pub const LENGTH_MIN: i32 = (LEGACY_OVERHEAD_V0 - LOG_OVERHEAD) as i32;

pub const OFFSET_AT: usize = 0;
pub const LENGTH_AT: usize = 8;
pub const LEADER_EPOCH_AT: usize = 12;
pub const MAGIC_AT: usize = 16;
pub const CRC_AT: usize = 17;
pub const ATTRIBUTES_AT: usize = 21;
pub const LAST_OFFSET_DELTA_AT: usize = 23;
pub const BASE_TIMESTAMP_AT: usize = 27;
pub const MAX_TIMESTAMP_AT: usize = 35;
pub const PRODUCER_ID_AT: usize = 43;
pub const PRODUCER_EPOCH_AT: usize = 51;
pub const BASE_SEQUENCE_AT: usize = 53;
pub const RECORDS_COUNT_AT: usize = 57;

pub const NO_PRODUCER_ID: i64 = -1;
pub const NO_PRODUCER_EPOCH: i16 = -1;
pub const NO_SEQUENCE: i32 = -1;
pub const NO_TIMESTAMP: i64 = -1;
pub const NO_LEADER_EPOCH: i32 = -1;

pub(super) const CODEC_MASK: i16 = 0x07;
const LOG_APPEND_TIME: i16 = 0x08;
pub(super) const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
const DELETE_HORIZON: i16 = 0x40;

/// The values of `message.timestamp.type`; the discriminant is what travels (bit 3 of the
/// attributes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime = 0,
    LogAppendTime = 1,
}

/// The header of one batch (magic 2) or of one message or message set (magic 0 and 1), as it
/// stands on disk. Fields that a format lacks hold Kafka's "none" (-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record. For magic 0 and 1 this is the offset field, which for a
    /// compressed set is the *last* offset (`legacy.rs` knows the first).
    pub base_offset: i64,
    /// All bytes of the batch with offset and length fields.
    pub size_bytes: usize,
    pub partition_leader_epoch: i32,
    pub magic: i8,
    /// As stored; CRC-32C for magic 2, CRC-32 before.
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    /// Records of a magic 2 batch; 1 for a plain legacy message, -1 for a compressed legacy set.
    pub records_count: i32,
}

/// Size of the batch at the start of `bytes`, of which at least the first 12 bytes must be there:
/// `None` if fewer are. Errors: a length no batch of the format can have.
pub fn batch_size(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(field) = bytes.get(LENGTH_AT..LENGTH_AT + 4) else {
        return Ok(None);
    };
    let length = read_i32(field, 0);
    if length < LENGTH_MIN {
        return Err(Error::CorruptMessage(format!(
            "batch length {length} is too small"
        )));
    }
    let size = length as usize + LOG_OVERHEAD;
    if size > BATCH_BYTES_MAX {
        return Err(Error::CorruptMessage(format!(
            "batch length {length} is too large"
        )));
    }
    Ok(Some(size))
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`, which may go on behind the batch.
    ///
    /// `Ok(None)`: fewer bytes than the header needs. The batch's own bytes need not be there;
    /// compare `size_bytes` with what is. Errors: `CorruptMessage` for an impossible length,
    /// magic or count. The CRC is not looked at.
    pub fn parse(bytes: &[u8]) -> Result<Option<BatchHeader>> {
        let Some(header) = Self::parse_unchecked(bytes)? else {
            return Ok(None);
        };
        header.check_ranges()?;
        Ok(Some(header))
    }

    /// As `parse`, but offsets and counts may be any number. The validator needs it, because Kafka
    /// answers for them only after the CRC, with another error code.
    pub(crate) fn parse_unchecked(bytes: &[u8]) -> Result<Option<BatchHeader>> {
        let Some(size_bytes) = batch_size(bytes)? else {
            return Ok(None);
        };
        if bytes.len() < MAGIC_PREFIX {
            return Ok(None);
        }
        match bytes[MAGIC_AT] as i8 {
            2 => Self::parse_current(bytes, size_bytes),
            magic @ (0 | 1) => Self::parse_legacy(bytes, size_bytes, magic),
            magic => Err(Error::CorruptMessage(format!("magic {magic} is unknown"))),
        }
    }

    fn parse_current(bytes: &[u8], size_bytes: usize) -> Result<Option<BatchHeader>> {
        if size_bytes < RECORD_BATCH_OVERHEAD {
            return Err(Error::CorruptMessage(format!(
                "batch of {size_bytes} bytes is smaller than its header"
            )));
        }
        if bytes.len() < RECORD_BATCH_OVERHEAD {
            return Ok(None);
        }
        Ok(Some(BatchHeader {
            base_offset: read_i64(bytes, OFFSET_AT),
            size_bytes,
            partition_leader_epoch: read_i32(bytes, LEADER_EPOCH_AT),
            magic: 2,
            crc: read_i32(bytes, CRC_AT) as u32,
            attributes: read_i16(bytes, ATTRIBUTES_AT),
            last_offset_delta: read_i32(bytes, LAST_OFFSET_DELTA_AT),
            base_timestamp: read_i64(bytes, BASE_TIMESTAMP_AT),
            max_timestamp: read_i64(bytes, MAX_TIMESTAMP_AT),
            producer_id: read_i64(bytes, PRODUCER_ID_AT),
            producer_epoch: read_i16(bytes, PRODUCER_EPOCH_AT),
            base_sequence: read_i32(bytes, BASE_SEQUENCE_AT),
            records_count: read_i32(bytes, RECORDS_COUNT_AT),
        }))
    }

    /// Checks that offsets and counts are possible. Errors: `CorruptMessage`.
    pub(crate) fn check_ranges(&self) -> Result<()> {
        if self.last_offset_delta < 0 || (self.magic == 2 && self.records_count < 0) {
            return Err(Error::CorruptMessage(format!(
                "last offset delta {} or record count {} is negative",
                self.last_offset_delta, self.records_count
            )));
        }
        if !(0..=i64::MAX - (1 << 32)).contains(&self.base_offset) {
            return Err(Error::CorruptMessage(format!(
                "offset {}",
                self.base_offset
            )));
        }
        Ok(())
    }

    fn parse_legacy(bytes: &[u8], size_bytes: usize, magic: i8) -> Result<Option<BatchHeader>> {
        let overhead = if magic == 0 {
            LEGACY_OVERHEAD_V0
        } else {
            LEGACY_OVERHEAD_V1
        };
        if size_bytes < overhead {
            return Err(Error::CorruptMessage(format!(
                "message of {size_bytes} bytes is smaller than its header"
            )));
        }
        if bytes.len() < if magic == 0 { 18 } else { 26 } {
            return Ok(None);
        }
        let offset = read_i64(bytes, OFFSET_AT);
        let attributes = i16::from(bytes[17] as i8) & if magic == 0 { 0x07 } else { 0x0f };
        let timestamp = if magic == 0 {
            NO_TIMESTAMP
        } else {
            read_i64(bytes, 18)
        };
        Ok(Some(BatchHeader {
            base_offset: offset,
            size_bytes,
            partition_leader_epoch: NO_LEADER_EPOCH,
            magic,
            crc: read_i32(bytes, LOG_OVERHEAD) as u32,
            attributes,
            last_offset_delta: 0,
            base_timestamp: timestamp,
            max_timestamp: timestamp,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            base_sequence: NO_SEQUENCE,
            records_count: if attributes & CODEC_MASK == 0 { 1 } else { -1 },
        }))
    }

    /// Says whether the stored CRC is that of `batch`, which must be exactly the batch: CRC-32C of
    /// bytes 21 on for magic 2, CRC-32 of bytes 16 on before.
    pub fn crc_matches(&self, batch: &[u8]) -> bool {
        match self.magic {
            2 => compute_crc(batch) == self.crc,
            _ => crc32fast::hash(&batch[MAGIC_AT..]) == self.crc,
        }
    }

    pub fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    pub fn next_offset(&self) -> i64 {
        self.last_offset() + 1
    }

    /// Codec id, 0 to 7 (`CompressionType`); `Codec::from_id` refuses those without meaning.
    pub fn codec_id(&self) -> u8 {
        (self.attributes & CODEC_MASK) as u8
    }

    pub fn is_compressed(&self) -> bool {
        self.codec_id() != 0
    }

    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & LOG_APPEND_TIME != 0 {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    /// Sets the type in the attributes of a magic 2 header. Bits without meaning go, as they do in
    /// `DefaultRecordBatch.computeAttributes`.
    pub(crate) fn set_timestamp_type(&mut self, timestamp_type: TimestampType) {
        let kept = CODEC_MASK | TRANSACTIONAL | CONTROL | DELETE_HORIZON;
        self.attributes &= kept;
        if timestamp_type == TimestampType::LogAppendTime {
            self.attributes |= LOG_APPEND_TIME;
        }
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// The delete horizon in milliseconds if the cleaner has set one (KIP-534). Timestamps of
    /// records then count from it as they do from a base timestamp.
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        (self.magic == 2 && self.attributes & DELETE_HORIZON != 0).then_some(self.base_timestamp)
    }

    pub fn has_producer_id(&self) -> bool {
        self.producer_id > NO_PRODUCER_ID
    }

    /// Sequence of the last record, wrapping after 2³¹−1 to 0; -1 without a sequence.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence == NO_SEQUENCE {
            return NO_SEQUENCE;
        }
        increment_sequence(self.base_sequence, self.last_offset_delta)
    }
}

/// Adds to a sequence number, wrapping after 2³¹−1 to 0 (`DefaultRecordBatch.incrementSequence`).
pub fn increment_sequence(sequence: i32, increment: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(increment);
    if sum > i64::from(i32::MAX) {
        (sum - i64::from(i32::MAX) - 1) as i32
    } else {
        sum as i32
    }
}

/// CRC-32C of a magic 2 batch: bytes 21 to the end. `batch` must be exactly the batch.
pub fn compute_crc(batch: &[u8]) -> u32 {
    crc32c::crc32c(&batch[ATTRIBUTES_AT..])
}

/// Writes the two fields that lie outside the CRC, in place.
pub fn patch_offset_and_epoch(batch: &mut [u8], base_offset: i64, leader_epoch: i32) {
    batch[OFFSET_AT..OFFSET_AT + 8].copy_from_slice(&base_offset.to_be_bytes());
    batch[LEADER_EPOCH_AT..LEADER_EPOCH_AT + 4].copy_from_slice(&leader_epoch.to_be_bytes());
}

fn read_i16(bytes: &[u8], at: usize) -> i16 {
    i16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn read_i32(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn read_i64(bytes: &[u8], at: usize) -> i64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    i64::from_be_bytes(field)
}

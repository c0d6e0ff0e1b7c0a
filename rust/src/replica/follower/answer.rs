//! Answers of a leader, taken apart: of Fetch v17 and v18, and of ListOffsets v7. Whatever bytes
//! come, they are read within bounds or refused.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::uuid::Uuid;
use crate::wire::cursor::Reader;

/// The answer to a Fetch, apart from its partitions' records, which stay in the
/// bytes that it was read from.
#[derive(Debug, Default)]
pub struct FetchAnswer {
    pub error_code: i16,
    pub session_id: i32,
    pub partitions: Vec<FetchedPartition>,
}

/// A partition of a `FetchAnswer`.
#[derive(Clone, Debug)]
pub struct FetchedPartition {
    pub topic_id: Uuid,
    pub index: i32,
    pub error_code: i16,
    pub high_watermark: i64,
    pub log_start_offset: i64,
    /// Where the logs part: the largest epoch of the leader not above the one that was asked
    /// for, and its end offset.
    pub diverging: Option<(i32, i64)>,
    /// Where in the answer its records lie.
    pub records: Range<usize>,
}

impl FetchAnswer {
    /// Reads the body of an answer to whoever asked for at most `partitions_max` partitions.
    /// Errors: `MalformedRequest`.
    pub fn read(answer: &[u8], partitions_max: usize) -> Result<FetchAnswer> {
        let mut reader = Reader::new(answer);
        let _throttle_ms = reader.i32()?;
        let error_code = reader.i16()?;
        let session_id = reader.i32()?;
        let mut partitions = Vec::new();
        for _ in 0..reader.array_length(true)? {
            let topic_id = reader.uuid()?;
            for _ in 0..reader.array_length(true)? {
                if partitions.len() == partitions_max {
                    let sentence = format!("more than {partitions_max} partitions in an answer");
                    return Err(Error::MalformedRequest(sentence));
                }
                partitions.push(FetchedPartition::read(topic_id, &mut reader)?);
            }
            reader.skip_tags(true)?;
        }
        reader.skip_tags(true)?;
        Ok(FetchAnswer {
            error_code,
            session_id,
            partitions,
        })
    }
}

impl FetchedPartition {
    fn read(topic_id: Uuid, reader: &mut Reader<'_>) -> Result<FetchedPartition> {
        let index = reader.i32()?;
        let error_code = reader.i16()?;
        let high_watermark = reader.i64()?;
        let _last_stable_offset = reader.i64()?;
        let log_start_offset = reader.i64()?;
        for _ in 0..reader.nullable_length(true)?.unwrap_or(0) {
            let _aborted = (reader.i64()?, reader.i64()?);
            reader.skip_tags(true)?;
        }
        let _preferred_read_replica = reader.i32()?;
        let length = reader.nullable_length(true)?.unwrap_or(0);
        let start = reader.position();
        reader.take(length)?;
        let mut diverging = None;
        reader.tags(|tag, field| {
            if tag == 0 {
                diverging = Some((field.i32()?, field.i64()?));
            }
            Ok(())
        })?;
        Ok(FetchedPartition {
            topic_id,
            index,
            error_code,
            high_watermark,
            log_start_offset,
            diverging,
            records: start..start + length,
        })
    }
}

/// A partition of the answer to ListOffsets.
#[derive(Clone, Debug)]
pub struct ListedOffset {
    pub topic: String,
    pub index: i32,
    pub error_code: i16,
    pub offset: i64,
}

/// Reads the body of an answer to a ListOffsets for at most `partitions_max` partitions.
/// Errors: `MalformedRequest`.
pub fn read_list_offsets(answer: &[u8], partitions_max: usize) -> Result<Vec<ListedOffset>> {
    let mut reader = Reader::new(answer);
    let _throttle_ms = reader.i32()?;
    let mut listed = Vec::new();
    for _ in 0..reader.array_length(true)? {
        let topic = reader.string(true)?;
        for _ in 0..reader.array_length(true)? {
            let index = reader.i32()?;
            let error_code = reader.i16()?;
            let _timestamp = reader.i64()?;
            let offset = reader.i64()?;
            let _leader_epoch = reader.i32()?;
            reader.skip_tags(true)?;
            if listed.len() == partitions_max {
                let sentence = format!("more than {partitions_max} partitions in an answer");
                return Err(Error::MalformedRequest(sentence));
            }
            listed.push(ListedOffset {
                topic: topic.to_owned(),
                index,
                error_code,
                offset,
            });
        }
        reader.skip_tags(true)?;
    }
    reader.skip_tags(true)?;
    Ok(listed)
}

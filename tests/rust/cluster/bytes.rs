//! Requests and answers of clients as bytes, and the records in them.

use kafkalite::batch::{BatchBuilder, BatchHeader, BatchOptions, RecordReader};
use kafkalite::error::Result;
use kafkalite::uuid::Uuid;
use kafkalite::wire::{Reader, Writer};

pub const TOPIC: &str = "t";
pub const TOPIC_ID: Uuid = Uuid([7; 16]);
pub const PRODUCE_VERSION: i16 = 12;

/// A record of a log, as far as the simulation tells them apart: each value is sent once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub offset: i64,
    pub leader_epoch: i32,
    pub value: u64,
}

/// Who sends a batch; -1: nobody in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    pub producer_id: i64,
    pub base_sequence: i32,
}

/// A batch of these values.
pub fn batch(sender: Sender, values: &[u64], now_ms: i64) -> Vec<u8> {
    let has_id = sender.producer_id >= 0;
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id: sender.producer_id,
        producer_epoch: if has_id { 0 } else { -1 },
        base_sequence: sender.base_sequence,
        ..BatchOptions::default()
    });
    for value in values {
        let value = value.to_be_bytes();
        builder.append(now_ms, None, Some(&value), &[]).unwrap();
    }
    builder.finish().unwrap()
}

/// The records of whole batches, from `from` on.
pub fn entries(bytes: &[u8], from: i64) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut reader = RecordReader::new();
    let mut rest = bytes;
    while let Some(header) = BatchHeader::parse(rest).unwrap() {
        let Some((batch, behind)) = rest.split_at_checked(header.size_bytes) else {
            break;
        };
        assert!(
            header.crc_matches(batch),
            "a batch of offset {}",
            header.base_offset
        );
        for record in reader.read(batch).unwrap() {
            let record = record.unwrap();
            let value = record.value.and_then(|value| value.first_chunk());
            found.push(Entry {
                offset: record.offset,
                leader_epoch: header.partition_leader_epoch,
                value: u64::from_be_bytes(*value.unwrap()),
            });
        }
        rest = behind;
    }
    found.retain(|entry| entry.offset >= from);
    found
}

/// A Produce request of one batch, behind its header.
pub fn produce(index: usize, acks: i16, batch: &[u8]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.nullable_string(None, true);
    writer.i16(acks);
    writer.i32(1_000);
    writer.array_length(1, true);
    writer.string(TOPIC, true);
    writer.array_length(1, true);
    writer.i32(index as i32);
    writer.nullable_bytes(Some(batch), true);
    for _ in 0..3 {
        writer.no_tags(true);
    }
    writer.bytes
}

/// Error code and base offset of the one partition in an answer, header included.
pub fn produced(answer: &[u8]) -> Result<(i16, i64)> {
    let mut reader = behind_header(answer)?;
    reader.array_length(true)?;
    reader.string(true)?;
    reader.array_length(true)?;
    reader.i32()?;
    Ok((reader.i16()?, reader.i64()?))
}

/// A consumer's Fetch of one partition without a session, behind its header. The rack may be empty.
pub fn fetch(index: usize, offset: i64, rack: &str, max_wait_ms: i32) -> Vec<u8> {
    let mut writer = Writer::default();
    for number in [max_wait_ms, 1, 1 << 16] {
        writer.i32(number);
    }
    writer.i8(0);
    writer.i32(0);
    writer.i32(-1);
    writer.array_length(1, true);
    writer.uuid(&TOPIC_ID);
    writer.array_length(1, true);
    writer.i32(index as i32);
    writer.i32(-1);
    writer.i64(offset);
    writer.i32(-1);
    writer.i64(-1);
    writer.i32(1 << 16);
    writer.no_tags(true);
    writer.no_tags(true);
    writer.array_length(0, true);
    writer.string(rack, true);
    writer.no_tags(true);
    writer.bytes
}

/// The replica from which the consumer is to read instead, in the body of an answer to `fetch`.
pub fn preferred_read_replica(body: &[u8]) -> Result<Option<i32>> {
    let mut reader = Reader::new(body);
    // Throttle time, error code, session.
    reader.take(4 + 2 + 4)?;
    if reader.array_length(true)? == 0 {
        return Ok(None);
    }
    reader.uuid()?;
    reader.array_length(true)?;
    // Index, error code, high watermark, last stable offset, log start.
    reader.take(4 + 2 + 3 * 8)?;
    for _ in 0..reader.nullable_length(true)?.unwrap_or(0) {
        reader.take(2 * 8)?;
        reader.skip_tags(true)?;
    }
    let replica = reader.i32()?;
    Ok((replica >= 0).then_some(replica))
}

/// The bytes of an answer behind its size and header.
pub fn behind_header(answer: &[u8]) -> Result<Reader<'_>> {
    let mut reader = Reader::new(answer);
    reader.take(8)?;
    reader.skip_tags(true)?;
    Ok(reader)
}

/// Index of the one partition in a Produce answer.
pub fn produced_partition(answer: &[u8]) -> Result<usize> {
    let mut reader = behind_header(answer)?;
    reader.array_length(true)?;
    reader.string(true)?;
    reader.array_length(true)?;
    Ok(reader.i32()? as usize)
}

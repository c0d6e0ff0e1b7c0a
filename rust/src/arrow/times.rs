//! From which offset on a partition's records are as late as a time, beside a live broker or a
//! stopped one, without a lock.
//!
//! ```text
//!             last entry of the time index before the time
//! segment     ├────────────────▼──── headers ────▶ first batch as late ─▶ its records
//! ```
//! An entry says that no record up to its offset is later than its timestamp. It counts if the
//! batch at that offset has that timestamp; without one that does, headers are read from the
//! segment's start. What lies behind the entry is looked at in any case, so that an index that lags
//! behind a live log, or was never written, costs time and no record.

use super::batches::BatchWalk;
use super::segments::{LogExtent, Partition, from_floor};
use crate::batch::RecordReader;
use crate::error::{Error, Result};
use crate::log::names::{SWAP, TIME_INDEX, segment_path};
use crate::log::segment::time_index::{ENTRY_BYTES, TimeIndex, TimestampOffset};
use crate::log::storage;

/// Bytes read at once where only headers are wanted.
const HEADER_READ_BYTES: usize = 4096;

/// Offset of the first record of the log whose timestamp is at least `timestamp` (ms since 1970);
/// the log end offset if there is none. Cost: of each segment before it the time index, a header or
/// two. Errors: `CorruptFile` for what is no batch; `Io`.
pub fn offset_of_time(partition: &Partition, extent: LogExtent, timestamp: i64) -> Result<i64> {
    let listing = partition.list()?;
    let mut segments = from_floor(&listing, extent.log_start_offset).peekable();
    while let Some((base_offset, is_swap)) = segments.next() {
        let next = segments.peek().map_or(i64::MAX, |next| next.0);
        let stop = next.min(extent.log_end_offset);
        let mut from = base_offset.max(extent.log_start_offset);
        if let Some(entry) = last_entry_before(partition, base_offset, is_swap, timestamp)?
            && (from..stop).contains(&entry.offset)
            && is_borne_out(partition, entry, stop)?
        {
            from = entry.offset + 1;
        }
        if let Some(offset) = first_as_late(partition, from, stop, timestamp)? {
            return Ok(offset);
        }
    }
    Ok(extent.log_end_offset)
}

fn last_entry_before(
    partition: &Partition,
    base_offset: i64,
    is_swap: bool,
    timestamp: i64,
) -> Result<Option<TimestampOffset>> {
    let suffix = if is_swap { SWAP } else { "" };
    let path = segment_path(&partition.directory, base_offset, TIME_INDEX, suffix);
    let bytes = storage::read_file(&*partition.storage, &path);
    let bytes = bytes.map_err(Error::io("read", &path))?.unwrap_or_default();
    // Kafka's active index is a sparse file: its unused entries are zeros, which ascend no more.
    let used = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
    let used = used.next_multiple_of(ENTRY_BYTES).min(bytes.len());
    let before = timestamp.saturating_sub(1);
    let entry = TimeIndex::new(base_offset, &bytes[..used]).lookup(before);
    Ok(entry.filter(|entry| entry.timestamp <= before))
}

/// True if the batch that an entry speaks of has the entry's timestamp.
fn is_borne_out(partition: &Partition, entry: TimestampOffset, stop: i64) -> Result<bool> {
    let mut walk = BatchWalk::new(partition.clone(), entry.offset, stop, HEADER_READ_BYTES);
    let header = walk.next_header()?;
    Ok(header.is_some_and(|header| {
        header.base_offset <= entry.offset && header.max_timestamp == entry.timestamp
    }))
}

/// The first record of `from .. stop` at or after the timestamp.
fn first_as_late(
    partition: &Partition,
    from: i64,
    stop: i64,
    timestamp: i64,
) -> Result<Option<i64>> {
    let mut walk = BatchWalk::new(partition.clone(), from, stop, HEADER_READ_BYTES);
    let mut reader = RecordReader::new();
    while let Some(header) = walk.next_header()? {
        if header.max_timestamp >= timestamp {
            walk.load(&header)?;
            let found = first_in(&mut reader, walk.loaded(&header), from, timestamp)
                .map_err(|error| walk.corrupt(&header, &error.to_string()))?;
            if found.is_some() {
                return Ok(found);
            }
        }
        walk.pass(&header);
    }
    Ok(None)
}

fn first_in(
    reader: &mut RecordReader,
    batch: &[u8],
    from: i64,
    timestamp: i64,
) -> Result<Option<i64>> {
    for record in reader.read(batch)? {
        let record = record?;
        if record.offset >= from && record.timestamp >= timestamp {
            return Ok(Some(record.offset));
        }
    }
    Ok(None)
}

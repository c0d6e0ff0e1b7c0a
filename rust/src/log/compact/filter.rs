//! The cleaner's filter: one batch goes in, the part of it that is kept comes out.
//!
//! ```text
//!                        all records stay     some stay            none stays
//! plain                  copied               written again        gone
//! + tombstone or marker  written again with   written again with
//!   that may go one day  a delete horizon     a delete horizon
//! + last of its producer or of the round                           its header stays
//! ```
//!
//! A batch that is written again keeps base offset, last offset, sequence, epochs and codec; the
//! offsets of its records keep their gaps. The delete horizon (KIP-534) is the time from which on
//! readers have had `delete.retention.ms` to see a tombstone or marker; it takes the place of the
//! base timestamp. Batches of magic 0 and 1 are written again as magic 2, which Kafka does not
//! do: the engine has no writer for them, and every client of Kafka 4 reads magic 2.
//!
//! Kafka: `MemoryRecords.filterTo` and the `RecordFilter` of `Cleaner.cleanInto`.

use std::collections::HashMap;

use crate::batch::BatchHeader;
use crate::batch::build::{BatchBuilder, BatchOptions, empty_batch};
use crate::batch::stream::RecordStream;
use crate::batch::{ControlRecord, Record, RecordReader};
use crate::error::Result;
use crate::log::state::producers::ProducerState;

use super::offset_map::OffsetMap;
use super::transactions::CleanedTransactions;

/// The rules for all batches of a segment.
pub struct Rules<'a> {
    pub map: &'a OffsetMap,
    pub last_of_producers: &'a LastOfProducers,
    pub now_ms: i64,
    /// `delete.retention.ms`
    pub delete_retention_ms: i64,
    /// True if the segment is too young for tombstones of magic 0 and 1 to go; they carry no
    /// horizon of their own.
    pub keeps_legacy_tombstones: bool,
    /// Where the round ends: the batch in front of it keeps its header, so that the offsets are
    /// not lost.
    pub upper_bound_offset: i64,
}

/// The batch by which each active producer's last sequence, or its epoch, is known.
#[derive(Default)]
pub struct LastOfProducers(HashMap<i64, LastOfProducer>);

enum LastOfProducer {
    /// It holds the last data offset.
    Data(i64),
    /// No data is known, only a marker of this epoch.
    Marker(i16),
}

impl LastOfProducers {
    pub fn of(producers: &ProducerState) -> LastOfProducers {
        let last_of = producers.producers().map(|(producer_id, entry)| {
            let last = match entry.last_batch() {
                Some(batch) if batch.last_offset >= 0 => LastOfProducer::Data(batch.last_offset),
                _ => LastOfProducer::Marker(entry.producer_epoch),
            };
            (producer_id, last)
        });
        LastOfProducers(last_of.collect())
    }

    fn contains(&self, header: &BatchHeader) -> bool {
        header.has_producer_id()
            && match self.0.get(&header.producer_id) {
                Some(LastOfProducer::Data(last_offset)) => header.last_offset() == *last_offset,
                Some(LastOfProducer::Marker(epoch)) => {
                    header.is_control() && header.producer_epoch == *epoch
                }
                None => false,
            }
    }
}

/// Counts of one clean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanCounts {
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub records_read: u64,
    pub records_written: u64,
    /// Records without a key, which a compacted log cannot keep.
    pub keyless_records: u64,
}

/// Appends to `output` what is left of the batch, if anything, and returns its header.
///
/// Errors: those of `RecordReader`; the batch cannot be read.
pub fn filter_batch(
    header: &BatchHeader,
    batch: &[u8],
    rules: &Rules<'_>,
    transactions: &mut CleanedTransactions,
    reader: &mut RecordReader,
    counts: &mut CleanCounts,
    output: &mut Vec<u8>,
) -> Result<Option<BatchHeader>> {
    counts.bytes_read += batch.len() as u64;
    let horizon_ms = header.delete_horizon_ms();
    let horizon_passed = horizon_ms.is_some_and(|horizon_ms| horizon_ms <= rules.now_ms);
    // A marker that may go waits for its horizon; records of an aborted transaction do not.
    let (may_go, drops_records) = if header.is_control() {
        let marker = first_control_record(batch, reader)?;
        let may_go = transactions.on_control_batch(header, marker);
        (may_go, may_go && horizon_passed)
    } else {
        let is_aborted = transactions.on_batch(header);
        (is_aborted, is_aborted)
    };
    let keeps_header = rules.last_of_producers.contains(header)
        || header.next_offset() == rules.upper_bound_offset;
    if drops_records && !keeps_header {
        return Ok(None);
    }
    let is_retained = |record: &Record<'_>, counts: &mut CleanCounts| {
        !drops_records && (header.is_control() || stays(header, record, rules, counts))
    };
    let (mut read, mut retained, mut has_tombstone) = (0, 0, false);
    let mut records = reader.stream(batch)?;
    while let Some(record) = records.next_record()? {
        read += 1;
        if is_retained(&record, counts) {
            retained += 1;
            has_tombstone |= record.value.is_none();
        }
    }
    counts.records_read += read;
    counts.records_written += retained;
    let start = output.len();
    if retained == 0 {
        if !keeps_header {
            return Ok(None);
        }
        output.extend_from_slice(&empty_batch(header));
    } else {
        let ages = has_tombstone || (header.is_control() && may_go);
        let new_horizon_ms = (header.magic >= 2 && ages && horizon_ms.is_none())
            .then(|| rules.now_ms.saturating_add(rules.delete_retention_ms));
        if retained == read && new_horizon_ms.is_none() {
            output.extend_from_slice(batch);
        } else {
            // A second time, since they are not kept.
            records.rewind()?;
            let is_retained =
                |record: &Record<'_>| is_retained(record, &mut CleanCounts::default());
            let rebuilt = rebuild(header, &mut records, is_retained, new_horizon_ms)?;
            output.extend_from_slice(&rebuilt);
        }
    }
    counts.bytes_written += (output.len() - start) as u64;
    BatchHeader::parse(&output[start..])
}

/// A record stays if it is the newest of its key and, being a tombstone, still has to be seen.
/// Says whether a record stays; one that the map has not got to does in any case.
fn stays(
    header: &BatchHeader,
    record: &Record<'_>,
    rules: &Rules<'_>,
    counts: &mut CleanCounts,
) -> bool {
    if record.offset > rules.map.latest_offset() {
        return true;
    }
    let Some(key) = record.key else {
        counts.keyless_records += 1;
        return false;
    };
    if record.offset < rules.map.get(key) {
        return false;
    }
    record.value.is_some()
        || match header.delete_horizon_ms() {
            _ if header.magic < 2 => rules.keeps_legacy_tombstones,
            Some(horizon_ms) => rules.now_ms < horizon_ms,
            None => true,
        }
}

fn first_control_record(batch: &[u8], reader: &mut RecordReader) -> Result<Option<ControlRecord>> {
    match reader.read(batch)?.next() {
        None => Ok(None),
        Some(record) => {
            let record = record?;
            ControlRecord::parse(record.key, record.value).map(Some)
        }
    }
}

fn rebuild(
    header: &BatchHeader,
    records: &mut RecordStream<'_>,
    is_retained: impl Fn(&Record<'_>) -> bool,
    new_horizon_ms: Option<i64>,
) -> Result<Vec<u8>> {
    let mut options = BatchOptions::of(header)?;
    options.delete_horizon_ms = new_horizon_ms.or(options.delete_horizon_ms);
    let mut builder = None;
    while let Some(record) = records.next_record()? {
        if !is_retained(&record) {
            continue;
        }
        let builder = builder.get_or_insert_with(|| {
            if header.magic < 2 {
                // Its header tells the last offset only.
                options.base_offset = record.offset;
            }
            BatchBuilder::new(options.clone())
        });
        builder.append_record(&record)?;
    }
    let builder = builder.unwrap_or_else(|| BatchBuilder::new(options));
    builder.finish_with_last_offset(header.last_offset())
}

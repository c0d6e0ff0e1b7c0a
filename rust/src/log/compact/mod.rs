//! Compaction: of each key the log keeps the newest record (`cleanup.policy=compact`).
//!
//! ```text
//! plan.rs                which log is due, from where to where, in which groups of segments
//! offset_map.rs          pass 1 over the dirty part: key → newest offset, as many as memory holds
//! filter.rs              pass 2 over all from the log's start: what is left of each batch
//! transactions.rs        which batches are of aborted transactions, which markers are without records
//! cleaner_checkpoint.rs  how far each log of a directory is clean
//! left_alone.rs          which logs could not be cleaned, and why
//!
//! 0.log 100.log 200.log ──► 0.log.cleaned ──fsync──► 0.log.swap ──► the old ones .deleted ──► 0.log
//! ```
//!
//! Offsets never change. A crash at any point is cleaned up at the next start (`recover/`); readers
//! hold the files that they read. The cleaner reads closed segments below the last stable offset
//! only, and takes no lock that an append or a read needs, except for an instant at the swap.
//!
//! Kafka: `LogCleaner`, `LogCleanerManager`, `Cleaner`. There, file times tell how old tombstones
//! of magic 0 and 1 are; here the largest timestamp of their segment does, where there is one.

pub mod cleaner_checkpoint;
pub mod filter;
pub mod left_alone;
pub mod offset_map;
pub mod plan;
pub mod transactions;

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::batch::BatchHeader;
use crate::batch::header::compute_crc;
use crate::batch::{ControlRecord, RecordReader};
use crate::crash::or_error;
use crate::error::{Error, Result};
use crate::limits::CLEANER_WRITE_BYTES;

use super::config::LogConfig;
use super::directory::LogDirectory;
use super::log::Log;
use super::names::{CLEANED, LOG};
use super::segment::scan::BatchScanner;
use super::segment::{Segment, WrittenBatch};
use filter::{CleanCounts, LastOfProducers, Rules, filter_batch};
use left_alone::{LeftAlone, NotCompacted};
use offset_map::OffsetMap;
use plan::{CleanPlan, LogFacts, SegmentFacts, group_segments};
use transactions::CleanedTransactions;

/// The work that a round has done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CleanReport {
    pub first_dirty_offset: i64,
    /// The log is clean below: the next round's first dirty offset.
    pub end_offset: i64,
    pub counts: CleanCounts,
    /// Share of the map that was used, 0 to 1.
    pub map_utilization: f64,
    pub groups: usize,
}

/// One cleaner; at most one may work on a log at a time.
pub struct Cleaner {
    map: OffsetMap,
    reader: RecordReader,
    output: Vec<u8>,
    written: Vec<WrittenBatch>,
    left_alone: LeftAlone,
}

impl Cleaner {
    /// At most `dedupe_buffer_bytes` (`log.cleaner.dedupe.buffer.size`) for the map of keys, used
    /// up to `load_factor` (`log.cleaner.io.buffer.load.factor`).
    pub fn new(dedupe_buffer_bytes: usize, load_factor: f64) -> Cleaner {
        Cleaner {
            map: OffsetMap::new(dedupe_buffer_bytes, load_factor),
            reader: RecordReader::new(),
            output: Vec::new(),
            written: Vec::new(),
            left_alone: LeftAlone::default(),
        }
    }

    /// The map of keys from the next log on.
    pub fn resize(&mut self, dedupe_buffer_bytes: usize, load_factor: f64) {
        self.map = OffsetMap::new(dedupe_buffer_bytes, load_factor);
    }

    /// Logs that could not be looked after since the last call, or for another reason than then.
    pub fn take_news(&mut self) -> Vec<NotCompacted> {
        self.left_alone.take_news()
    }

    /// Cleans the dirtiest log of the directory that is due, and notes in the checkpoint file how
    /// far it came. `None`: none is due, or `stop` was set. A log that cannot be cleaned, if only
    /// since the attempt panics, keeps no other waiting: it is left alone for `COMPACTION_RETRY_MS`
    /// (`take_news`). So is one of which the checkpoint file could not take how far it came.
    ///
    /// Errors: a checkpoint file that cannot be read, and whatever took the directory offline.
    pub fn clean_dirtiest(
        &mut self,
        directory: &LogDirectory,
        now_ms: i64,
        stop: &AtomicBool,
    ) -> Result<Option<CleanReport>> {
        directory.health().check()?;
        self.left_alone.retain(&directory.logs());
        while !stop.load(Ordering::Acquire)
            && let Some((log, plan)) = self.dirtiest(directory, now_ms)?
        {
            let report = match self.clean(&log, &plan, now_ms, stop) {
                Ok(Some(report)) => report,
                Ok(None) => return Ok(None),
                Err(error) => {
                    self.leave_alone(&log, error, now_ms)?;
                    continue;
                }
            };
            match cleaner_checkpoint::set(directory, &log, report.end_offset, plan.truncations) {
                Ok(()) => {
                    self.left_alone.remove(&log);
                    return Ok(Some(report));
                }
                // Else it would be the dirtiest again, and all of it cleaned again at once.
                Err(error) => self.leave_alone(&log, error, now_ms)?,
            }
        }
        Ok(None)
    }

    /// Retention of the directory's compacted logs, with `cleanup.policy=compact,delete` or below
    /// their log start offset. It is the cleaner's, so that no segment is deleted under it
    /// (`LogCleanerManager.deletableLogs`); the housekeeper has that of all other logs.
    ///
    /// A log that cannot be looked at is left alone, as one that cannot be cleaned, and no
    /// segment of one that is left alone goes. To be called before `clean_dirtiest`, so that what
    /// hinders it may go by its age.
    ///
    /// Errors: whatever took the directory offline.
    pub fn delete_old_segments(
        &mut self,
        directory: &LogDirectory,
        now_ms: i64,
        stop: &AtomicBool,
    ) -> Result<()> {
        directory.health().check()?;
        for log in directory.logs() {
            if stop.load(Ordering::Acquire) {
                break;
            }
            if !log.config().cleanup_policy.compact || self.left_alone.holds(&log, now_ms) {
                continue;
            }
            let deleted = or_error(&log.directory(), || log.delete_old_segments(now_ms));
            if let Err(error) = deleted {
                self.leave_alone(&log, error, now_ms)?;
            }
        }
        Ok(())
    }

    fn dirtiest(
        &mut self,
        directory: &LogDirectory,
        now_ms: i64,
    ) -> Result<Option<(Arc<Log>, CleanPlan)>> {
        // The logs first: what the file then says of a name, it says of no log that had it before,
        // and it is known which of them were cut after that.
        let logs = directory.logs().into_iter();
        let logs: Vec<_> = logs.map(|log| (log.truncations(), log)).collect();
        let checkpoint = cleaner_checkpoint::read(directory)?;
        let mut dirtiest: Option<(Arc<Log>, CleanPlan)> = None;
        for (truncations, log) in logs {
            let config = log.config();
            let is_passed_over = log.is_moving() || self.left_alone.holds(&log, now_ms);
            if !config.cleanup_policy.compact || is_passed_over {
                continue;
            }
            let first = log.first_base_offset();
            let clean_offset = cleaner_checkpoint::get(&checkpoint, &log);
            let plan = match or_error(&log.directory(), || plan_of(&log, clean_offset, now_ms)) {
                Ok(plan) => plan,
                Err(_) if log.first_base_offset() != first => continue,
                Err(error) => {
                    self.leave_alone(&log, error, now_ms)?;
                    continue;
                }
            };
            if plan.truncations != truncations {
                // What the file says was clean may have been cut off since, and come anew.
                continue;
            }
            if plan.checkpoint_is_invalid
                && let Err(error) =
                    cleaner_checkpoint::set(directory, &log, plan.first_dirty_offset, truncations)
            {
                self.leave_alone(&log, error, now_ms)?;
                continue;
            }
            let most = dirtiest
                .as_ref()
                .map_or(-1.0, |(_, plan)| plan.dirty_ratio());
            if plan.is_due(&config) && plan.dirty_ratio() > most {
                dirtiest = Some((log, plan));
            }
        }
        Ok(dirtiest)
    }

    /// A log that cannot be cleaned is passed over for a while; what takes the directory offline is
    /// an error.
    fn leave_alone(&mut self, log: &Log, error: Error, now_ms: i64) -> Result<()> {
        // Its directory has another name by now, so that any call may have failed.
        if is_deleted(log) {
            return Ok(());
        }
        if matches!(error, Error::LogDirOffline { .. }) || log.health.is_offline() {
            return Err(error);
        }
        self.left_alone.add(log, error.to_string(), now_ms);
        Ok(())
    }

    /// Cleans what `plan` says of `log`. `None`: `stop` was set, or since the plan the log was cut,
    /// or it or some of its segments were deleted; nothing is lost, what was swapped in stays.
    ///
    /// Errors: `CorruptFile` for a batch that cannot be read; `InvalidArgument` if not even one
    /// batch's keys fit in the map; `Io`; `Panicked`.
    pub fn clean(
        &mut self,
        log: &Log,
        plan: &CleanPlan,
        now_ms: i64,
        stop: &AtomicBool,
    ) -> Result<Option<CleanReport>> {
        let (first, replacements) = (log.first_base_offset(), log.replacements());
        let result = or_error(&log.directory(), || {
            log.remove_cleaned_leftovers()?;
            self.clean_with_map(log, plan, now_ms, stop)
        });
        self.map.clear();
        self.output = Vec::new();
        match result {
            // Its first segments have been deleted meanwhile, and perhaps their files.
            Err(_) if is_deleted(log) || log.first_base_offset() != first => Ok(None),
            // It lies in another log directory by now.
            Err(_) if log.replacements() != replacements => Ok(None),
            result => result,
        }
    }

    fn clean_with_map(
        &mut self,
        log: &Log,
        plan: &CleanPlan,
        now_ms: i64,
        stop: &AtomicBool,
    ) -> Result<Option<CleanReport>> {
        if !self.build_map(log, plan, stop)? {
            return Ok(None);
        }
        let end_offset = self.map.latest_offset() + 1;
        if end_offset <= plan.first_dirty_offset {
            return Err(Error::InvalidArgument(format!(
                "the keys of one batch of {} do not fit in log.cleaner.dedupe.buffer.size",
                log.directory().display()
            )));
        }
        let config = log.config();
        let mut segments = log.segments();
        segments.retain(|segment| segment.base_offset() < end_offset);
        let mut facts = Vec::with_capacity(segments.len());
        for segment in &segments {
            facts.push(facts_with_indexes(log, segment)?);
        }
        let legacy_horizon_ms = legacy_horizon_ms(log, &segments, plan, &config)?;
        let mut report = CleanReport {
            first_dirty_offset: plan.first_dirty_offset,
            end_offset,
            map_utilization: self.map.utilization(),
            ..CleanReport::default()
        };
        let mut transactions = CleanedTransactions::default();
        for group in group_segments(&facts, &config, plan.first_uncleanable_offset) {
            let round = Round {
                log,
                truncations: plan.truncations,
                config: &config,
                upper_bound_offset: plan.first_uncleanable_offset,
                legacy_horizon_ms,
                now_ms,
                stop,
            };
            let counts = &mut report.counts;
            if !self.clean_group(&round, &segments[group], &mut transactions, counts)? {
                return Ok(None);
            }
            report.groups += 1;
        }
        Ok(Some(report))
    }

    /// Pass 1. False: stopped.
    fn build_map(&mut self, log: &Log, plan: &CleanPlan, stop: &AtomicBool) -> Result<bool> {
        self.map.clear();
        let (start, end) = (plan.first_dirty_offset, plan.first_uncleanable_offset);
        let mut dirty = log.segments();
        dirty.retain(|segment| segment.base_offset() < end);
        let begun = dirty.partition_point(|segment| segment.base_offset() <= start);
        dirty.drain(..begun.saturating_sub(1));
        let mut transactions = CleanedTransactions::default();
        transactions.add_aborted(&log.aborted_transactions(start, end)?);
        for (slot, segment) in dirty.iter().enumerate() {
            let next = dirty.get(slot + 1).map_or(end, |next| next.base_offset());
            let entry = segment.with_offset_index(|index| index.lookup(start))?;
            let position = entry.map_or(0, |entry| entry.position_byte);
            let (segment_end, _pin, file) = segment.pinned_file()?;
            let path = segment.files().path(LOG);
            let mut scanner = BatchScanner::new(&*file, &path, position, segment_end.size_bytes);
            while let Some((at, header, batch)) = scanner.next_batch()? {
                if stop.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                let mapped = self.map_batch(&header, batch, start, &mut transactions);
                if !mapped.map_err(|error| unreadable(&path, at, &error))? {
                    return Ok(true);
                }
                if header.last_offset() >= start {
                    self.map.set_latest_offset(header.last_offset());
                }
            }
            // Offsets that nobody has are clean.
            self.map.set_latest_offset(next - 1);
        }
        Ok(true)
    }

    /// Adds the keys of a batch to the map. `false`: the map is full.
    fn map_batch(
        &mut self,
        header: &BatchHeader,
        batch: &[u8],
        start: i64,
        transactions: &mut CleanedTransactions,
    ) -> Result<bool> {
        if header.is_control() {
            let record = match self.reader.read(batch)?.next() {
                Some(record) => {
                    let record = record?;
                    Some(ControlRecord::parse(record.key, record.value)?)
                }
                None => None,
            };
            transactions.on_control_batch(header, record);
            return Ok(true);
        }
        if transactions.on_batch(header) {
            return Ok(true);
        }
        let mut records = self.reader.stream(batch)?;
        while let Some(record) = records.next_record()? {
            if let Some(key) = record.key
                && record.offset >= start
                && !self.map.put(key, record.offset)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Pass 2 for one group: cleans it into one segment and swaps that in. `false`: stopped, or the
    /// group is no longer what it was.
    fn clean_group(
        &mut self,
        round: &Round<'_>,
        group: &[Arc<Segment>],
        transactions: &mut CleanedTransactions,
        counts: &mut CleanCounts,
    ) -> Result<bool> {
        let Some(first) = group.first() else {
            return Ok(true);
        };
        let log = round.log;
        let config = LogConfig {
            preallocate: false,
            ..round.config.clone()
        };
        let directory = log.directory();
        let base_offset = first.base_offset();
        let versions: Vec<_> = group.iter().map(|segment| segment.version()).collect();
        let created = Segment::create(
            &log.open_segments,
            &directory,
            base_offset,
            CLEANED,
            &config,
            0,
            round.now_ms,
        );
        let output = match &created {
            Ok(cleaned) => cleaned.files().clone(),
            Err(_) => log.open_segments.segment(&directory, base_offset, CLEANED),
        };
        let replaced = created.and_then(|cleaned| {
            let complete = self.clean_into(round, group, &cleaned, transactions, counts)?;
            let truncations = round.truncations;
            Ok(complete
                && log.replace_segments(&[cleaned], &versions, truncations, round.now_ms)?)
        });
        if let Ok(true) = replaced {
            return Ok(true);
        }
        // What an offline directory has is for the next start to judge.
        if log.health.check().is_ok() {
            let removed = log.open_segments.remove(&output);
            return replaced.and_then(|done| removed.map(|()| done));
        }
        replaced
    }

    fn clean_into(
        &mut self,
        round: &Round<'_>,
        group: &[Arc<Segment>],
        cleaned: &Segment,
        transactions: &mut CleanedTransactions,
        counts: &mut CleanCounts,
    ) -> Result<bool> {
        let log = round.log;
        let last_of_producers = LastOfProducers::of(&log.producers());
        transactions.retained.clear();
        self.output.clear();
        self.written.clear();
        for (slot, segment) in group.iter().enumerate() {
            let end = segment.end();
            let next = group
                .get(slot + 1)
                .map_or(end.next_offset, |next| next.base_offset());
            transactions.add_aborted(&log.aborted_transactions(segment.base_offset(), next)?);
            let keeps_legacy_tombstones = log.last_written_ms(segment)? > round.legacy_horizon_ms;
            let rules = Rules {
                map: &self.map,
                last_of_producers: &last_of_producers,
                now_ms: round.now_ms,
                delete_retention_ms: round.config.delete_retention_ms,
                keeps_legacy_tombstones,
                upper_bound_offset: round.upper_bound_offset,
            };
            let (end, _pin, file) = segment.pinned_file()?;
            let path = segment.files().path(LOG);
            let mut scanner = BatchScanner::new(&*file, &path, 0, end.size_bytes);
            while let Some((at, header, batch)) = scanner.next_batch()? {
                if round.stop.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                check_crc(&header, batch, &path, at)?;
                let (reader, output) = (&mut self.reader, &mut self.output);
                let left =
                    filter_batch(&header, batch, &rules, transactions, reader, counts, output)
                        .map_err(|error| unreadable(&path, at, &error))?;
                if let Some(left) = left {
                    if !cleaned.can_hold(left.last_offset()) {
                        let reason = "its offset is too far from the base offset of the segment";
                        return Err(Error::corrupt_file(&path, at, reason));
                    }
                    self.written.push(WrittenBatch {
                        last_offset: left.last_offset(),
                        size_bytes: left.size_bytes as u64,
                        max_timestamp: left.max_timestamp,
                    });
                }
                if self.output.len() >= CLEANER_WRITE_BYTES {
                    write_out(cleaned, &mut self.output, &mut self.written)?;
                }
            }
        }
        write_out(cleaned, &mut self.output, &mut self.written)?;
        cleaned.close()?;
        if !transactions.retained.is_empty() {
            cleaned.append_aborted(&transactions.retained)?;
        }
        cleaned.sync_log()?;
        cleaned.sync_indexes()?;
        if let Some(newest) = group.last() {
            log.set_modified_ms(cleaned, log.modified_ms(newest)?)?;
        }
        Ok(true)
    }
}

/// The facts that all groups of a round share.
struct Round<'a> {
    log: &'a Log,
    truncations: u64,
    config: &'a LogConfig,
    upper_bound_offset: i64,
    legacy_horizon_ms: i64,
    now_ms: i64,
    stop: &'a AtomicBool,
}

fn write_out(
    segment: &Segment,
    output: &mut Vec<u8>,
    written: &mut Vec<WrittenBatch>,
) -> Result<()> {
    if output.is_empty() {
        return Ok(());
    }
    segment.write(&*segment.file()?, &mut [IoSlice::new(output)])?;
    segment.note_written(written.drain(..));
    output.clear();
    Ok(())
}

/// A batch is not written again under a new CRC if the old one was wrong.
fn check_crc(header: &BatchHeader, batch: &[u8], path: &Path, position_byte: u64) -> Result<()> {
    let computed = match header.magic {
        2 => compute_crc(batch),
        _ => crc32fast::hash(&batch[crate::batch::header::MAGIC_AT..]),
    };
    if computed == header.crc {
        return Ok(());
    }
    let reason = format!("CRC {:08x}, computed {computed:08x}", header.crc);
    Err(Error::corrupt_file(path, position_byte, reason))
}

fn is_deleted(log: &Log) -> bool {
    matches!(log.check_writable(), Err(Error::LogDeleted { .. }))
}

fn unreadable(path: &Path, position_byte: u64, error: &Error) -> Error {
    Error::corrupt_file(path, position_byte, error.to_string())
}

/// Below it, tombstones of magic 0 and 1 may go: `delete.retention.ms` before the last write to the
/// clean part.
fn legacy_horizon_ms(
    log: &Log,
    segments: &[Arc<Segment>],
    plan: &CleanPlan,
    config: &LogConfig,
) -> Result<i64> {
    let clean = segments.partition_point(|s| s.base_offset() < plan.first_dirty_offset);
    match segments[..clean].last() {
        Some(last) => Ok(log
            .last_written_ms(last)?
            .saturating_sub(config.delete_retention_ms)),
        None => Ok(0),
    }
}

/// Plans which part of `log` may be cleaned at `now_ms`; `checkpoint` is where the last round
/// ended.
pub fn plan_of(log: &Log, checkpoint: Option<i64>, now_ms: i64) -> Result<CleanPlan> {
    let truncations = log.truncations();
    let mut facts = Vec::new();
    for segment in log.segments() {
        facts.push(facts_of(log, &segment)?);
    }
    let offsets = log.offsets();
    let log_facts = LogFacts {
        log_start_offset: offsets.log_start_offset,
        log_end_offset: offsets.log_end_offset,
        last_stable_offset: offsets.last_stable_offset,
        truncations,
    };
    Ok(CleanPlan::of(
        &facts,
        log_facts,
        checkpoint,
        &log.config(),
        now_ms,
    ))
}

fn facts_of(log: &Log, segment: &Segment) -> Result<SegmentFacts> {
    Ok(SegmentFacts {
        base_offset: segment.base_offset(),
        size_bytes: segment.size_bytes(),
        largest_timestamp: log.last_written_ms(segment)?,
        first_batch_timestamp: segment.first_batch_timestamp()?,
        offset_index_bytes: 0,
        time_index_bytes: 0,
    })
}

fn facts_with_indexes(log: &Log, segment: &Segment) -> Result<SegmentFacts> {
    let offset_index = segment.with_offset_index(|index| index.len())?;
    let time_index = segment.with_time_index(|index| index.len())?;
    Ok(SegmentFacts {
        offset_index_bytes: (offset_index * super::segment::offset_index::ENTRY_BYTES) as u64,
        time_index_bytes: (time_index * super::segment::time_index::ENTRY_BYTES) as u64,
        ..facts_of(log, segment)?
    })
}

//! A day in the life of a log directory, in which each call of the storage fails once: with ENOSPC,
//! with EIO, with a short write, and with the power going off at that very call.
//!
//! After each failure the process is as it was before the step, or its directory is offline; what
//! the next process finds, after a kill and after a power cut, is what the model allows.

use std::path::Path;
use std::sync::Arc;

use kafkalite::batch::compression::Codec;
use kafkalite::batch::header::BatchHeader;
use kafkalite::error::{Error, Result};
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::LogDirectory;
use kafkalite::log::directory::directories::LogDirectories;
use kafkalite::log::log::Log;
use kafkalite::log::names::CLEANED;
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::segment::{Segment, WrittenBatch};
use kafkalite::log::storage::{Storage, read_full_at};
use kafkalite::uuid::Uuid;

use super::model::Model;
use super::plain::valid_prefix;
use super::workbench::{
    HOME, NOBODY, NOW_MS, Sender, append, append_marker, batch, open_directory, options,
};
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::crash::Crash;
use crate::memory_storage::faults::{Failure, Fault, Operation};
use crate::random::is_long_run;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Open,
    CreateLog,
    /// Records without a producer id.
    Append,
    /// Idempotent records of producer 5.
    Produce,
    /// Transactional records of producer 6.
    Transact,
    Commit,
    Abort,
    Flush,
    Checkpoint,
    NewEpoch,
    /// Cuts off the last few batches.
    Truncate,
    DeleteRecords,
    Retain,
    DeleteFiles,
    /// A batch of the first segment is cleaned away.
    Clean,
    Close,
}

fn script() -> Vec<Step> {
    use Step::*;
    let mut steps = vec![Open, CreateLog, NewEpoch];
    for round in 0..4 {
        steps.extend([Append, Produce, Transact, Append, Produce, Transact]);
        steps.push(if round % 2 == 0 { Abort } else { Commit });
        steps.extend([Append, Flush, Transact, Produce, Abort, Append]);
        match round {
            0 => steps.extend([Checkpoint, NewEpoch]),
            1 => steps.extend([Truncate, Append, Produce, Flush, Truncate, Append, Append]),
            2 => steps.extend([Flush, DeleteRecords, Clean, Checkpoint, Retain, DeleteFiles]),
            _ => steps.extend([Transact, Close, Open, Produce, Transact, Commit, Flush]),
        }
    }
    steps.extend([
        Retain, Append, Checkpoint, Append, Produce, Flush, Append, Close, Open,
    ]);
    steps
}

pub fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1_200,
        index_interval_bytes: 200,
        retention_bytes: 2_000,
        ..LogConfig::default()
    }
}

pub struct World {
    pub open_segments: Arc<OpenSegments>,
    pub directory: Option<LogDirectory>,
    pub log: Option<Arc<Log>>,
    pub model: Model,
    epoch: i32,
    /// Next sequences of producers 5 and 6.
    sequences: [i32; 2],
    number: i64,
}

impl World {
    pub fn new(storage: &MemoryStorage) -> World {
        World {
            open_segments: OpenSegments::new(Arc::new(storage.clone()), 16),
            directory: None,
            log: None,
            model: Model::default(),
            epoch: 0,
            sequences: [0; 2],
            number: 0,
        }
    }

    pub fn log(&self) -> &Arc<Log> {
        self.log.as_ref().unwrap()
    }

    pub fn directory(&self) -> &LogDirectory {
        self.directory.as_ref().unwrap()
    }

    fn is_offline(&self) -> bool {
        self.directory
            .as_ref()
            .is_some_and(|directory| directory.health().is_offline())
    }

    /// Does the step and keeps the model; an error leaves the model as it was, or says what may be.
    pub fn step(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Open => {
                self.directory = None;
                self.log = None;
                let directory = open_directory(&self.open_segments, &config())?;
                self.log = directory.log("t", 0);
                self.directory = Some(directory);
                if let Some(log) = &self.log {
                    self.model.log_start = log.offsets().log_start_offset;
                    self.model.flushed = self.model.log_end;
                }
            }
            Step::CreateLog => {
                let created =
                    self.directory()
                        .create_log("t", 0, Uuid([7; 16]), config(), NOW_MS)?;
                self.log = Some(created);
            }
            Step::Append => self.append(NOBODY, 3)?,
            Step::Produce => self.append(self.sender(0, false), 2)?,
            Step::Transact => self.append(self.sender(1, true), 2)?,
            Step::Commit | Step::Abort => self.end_transaction(step == Step::Commit)?,
            Step::Flush => {
                self.log().flush()?;
                self.model.flushed = self.model.log_end;
            }
            Step::Checkpoint => {
                let log_end = self.model.log_end;
                let done = self.directory().write_checkpoints();
                // It flushes if there is a closed segment; what is flushed stays it.
                self.model.flushed = self.log().offsets().flushed_offset.min(log_end);
                done?;
            }
            Step::NewEpoch => {
                self.log().start_leader_epoch(self.epoch + 1)?;
                self.epoch += 1;
            }
            Step::Truncate => self.truncate()?,
            Step::DeleteRecords => {
                let offset = self.model.log_start + 4;
                self.model.log_start_max = offset;
                let done = self.log().advance_log_start_offset(offset);
                self.model.log_start = self.log().offsets().log_start_offset;
                done?;
            }
            Step::Retain => {
                self.model.log_start_max = self.model.flushed;
                let done = self.log().delete_old_segments(NOW_MS);
                let start = self.log().offsets().log_start_offset;
                assert!(
                    start <= self.model.flushed,
                    "retention passed the high watermark"
                );
                self.model.log_start = start;
                done?;
            }
            Step::DeleteFiles => {
                self.log().delete_due_files(i64::MAX)?;
            }
            Step::Clean => self.clean()?,
            Step::Close => {
                let closed = self.directory().close(1);
                self.model.flushed = self.log().offsets().flushed_offset;
                closed?;
            }
        }
        Ok(())
    }

    fn sender(&self, slot: usize, transactional: bool) -> Sender {
        Sender {
            producer_id: 5 + slot as i64,
            producer_epoch: 0,
            base_sequence: self.sequences[slot],
            transactional,
        }
    }

    fn append(&mut self, sender: Sender, count: i64) -> Result<()> {
        let bytes = batch(Codec::None, sender, self.number, count, 20);
        let appended = append(self.log(), bytes.clone(), self.epoch);
        self.note_roll();
        match appended {
            Ok(info) => {
                self.model
                    .appended(info.first_offset, info.last_offset, &bytes);
                self.number += count;
                if sender.producer_id >= 0 {
                    self.sequences[(sender.producer_id - 5) as usize] += count as i32;
                }
                Ok(())
            }
            Err(error) => {
                self.model.append_failed(count, &bytes);
                Err(error)
            }
        }
    }

    fn end_transaction(&mut self, is_commit: bool) -> Result<()> {
        let sender = self.sender(1, true);
        let marker = kafkalite::batch::EndTransactionMarker {
            is_commit,
            coordinator_epoch: 0,
        };
        let bytes =
            kafkalite::batch::build::end_transaction_marker(NOW_MS, sender.producer_id, 0, marker);
        let appended = append_marker(self.log(), sender, is_commit, self.epoch);
        self.note_roll();
        match appended {
            Ok(info) => self
                .model
                .appended(info.first_offset, info.last_offset, &bytes),
            Err(error) => {
                self.model.append_failed(1, &bytes);
                return Err(error);
            }
        }
        Ok(())
    }

    /// An append that begins a segment has flushed what was there before it.
    fn note_roll(&mut self) {
        let flushed = self.log().offsets().flushed_offset;
        if flushed != self.model.flushed {
            assert_eq!(flushed, self.model.log_end, "flushed by a roll");
            self.model.flushed = flushed;
        }
    }

    fn truncate(&mut self) -> Result<()> {
        let bases: Vec<i64> = self.model.batches.keys().rev().take(5).copied().collect();
        let offset = bases[bases.len() - 1];
        let done = self.log().truncate_to(offset, NOW_MS);
        self.model.truncated(offset, done.is_err());
        done?;
        self.follow_producers();
        self.step(Step::Checkpoint)
    }

    /// The producers go on where the log now is.
    pub fn follow_producers(&mut self) {
        let producers = self.log().producers();
        for slot in 0..2 {
            let entry = producers.get(5 + slot as i64);
            self.sequences[slot] = entry.map_or(0, |entry| entry.last_sequence() + 1);
        }
    }

    /// Whether the step means anything to the log as it is.
    pub fn makes_sense(&self, step: Step) -> bool {
        let (log, model) = (self.log(), &self.model);
        match step {
            // Where a log ends, a batch does: below the high watermark, which compaction alone
            // reaches, no leader makes a follower cut.
            Step::Truncate => {
                let mut last = model.batches.keys().rev().skip(4);
                let (to, before) = (last.next(), last.next());
                to.is_some_and(|to| *to >= model.log_start)
                    && before.is_some_and(|before| !model.holes.contains(before))
            }
            Step::DeleteRecords => model.log_start + 4 <= model.flushed,
            Step::Clean => log.segments().get(1).is_some_and(|segment| {
                let (from, to) = (segment.base_offset(), segment.end().next_offset);
                let has_plain = model.batches.range(from..to).any(|(base, (_, content))| {
                    // The producer id stands at byte 43 of a batch.
                    content[43 - 17..43 - 9] == [0xff; 8] && !model.holes.contains(base)
                });
                log.segments().len() > 2 && to <= model.flushed && has_plain
            }),
            _ => true,
        }
    }

    /// A cleaner that drops the first batch of the second segment without a producer id.
    fn clean(&mut self) -> Result<()> {
        let log = self.log().clone();
        let old = log.segments()[1].clone();
        let version = old.version();
        let file = old.file()?;
        let mut bytes = vec![0; old.size_bytes() as usize];
        read_full_at(&*file, &mut bytes, 0).map_err(Error::io("pread", Path::new("cleaner")))?;
        let batches = valid_prefix(&bytes, 0);
        let dropped = batches
            .iter()
            .position(|batch| batch.producer_id() < 0)
            .unwrap();
        let new = Segment::create(
            &self.open_segments,
            &log.directory(),
            old.base_offset(),
            CLEANED,
            &log.config(),
            0,
            NOW_MS,
        )?;
        for batch in batches
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != dropped)
            .map(|(_, b)| b)
        {
            new.write(&*new.file()?, &mut [std::io::IoSlice::new(&batch.bytes)])?;
            let header = BatchHeader::parse(&batch.bytes).unwrap().unwrap();
            new.note_written(std::iter::once(WrittenBatch {
                last_offset: batch.last_offset,
                size_bytes: batch.bytes.len() as u64,
                max_timestamp: header.max_timestamp,
            }));
        }
        let aborted = old.aborted()?.clone();
        new.replace_aborted(aborted)?;
        new.close()?;
        new.sync_log()?;
        new.sync_indexes()?;
        let hole = batches[dropped].base_offset;
        self.model.holes.push(hole);
        let replaced = log.replace_segments(&[new], &[version], log.truncations(), NOW_MS)?;
        assert!(replaced, "nobody has touched the segment meanwhile");
        Ok(())
    }
}

pub fn new_storage() -> MemoryStorage {
    let storage = MemoryStorage::default();
    storage.create_directory_all(Path::new(HOME)).unwrap();
    storage.sync_directory(Path::new("/")).unwrap();
    storage
}

/// Calls of the whole script when nothing fails.
fn calls_of_a_good_day() -> u64 {
    let storage = new_storage();
    let mut world = World::new(&storage);
    let before = storage.calls();
    for (at, step) in script().into_iter().enumerate() {
        let case = format!("step {at} {step:?}");
        world
            .step(step)
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        if let Some(log) = &world.log {
            storage.watch(|| world.model.check_live(log, &case));
        }
    }
    let model = &world.model;
    assert!(model.holes.len() == 1 && model.log_start > 20 && world.log().segments().len() > 1);
    storage.calls() - before
}

/// Lives the day with a fault; returns the model as it stands at the end, or when the directory
/// went offline or the power off.
fn live(storage: &MemoryStorage, is_power_cut: bool, case: &str) -> Model {
    let mut world = World::new(storage);
    for (at, step) in script().into_iter().enumerate() {
        let case = format!("{case}, step {at} {step:?}");
        let mut done = world.step(step);
        if is_power_cut && storage.has_struck() {
            break;
        }
        if let Err(error) = &done {
            assert!(storage.has_struck(), "{case}: {error}");
            let is_expected = matches!(
                error,
                Error::Io { .. } | Error::LogDirOffline { .. } | Error::LogDirRefused { .. }
            );
            assert!(is_expected, "{case}: {error}");
            if step == Step::Flush {
                assert!(
                    world.is_offline(),
                    "{case}: a failed flush must take the directory offline"
                );
                let again = world.log().flush();
                assert!(
                    matches!(again, Err(Error::LogDirOffline { .. })),
                    "{case}: {again:?}"
                );
            }
            if world.is_offline() {
                break;
            }
            if let Some(log) = &world.log {
                storage.watch(|| world.model.check_live(log, &case));
            }
            // The fault was one of a moment: the same again must work.
            done = world.step(step);
        }
        if world.is_offline() {
            break;
        }
        done.unwrap_or_else(|error| panic!("{case}, second attempt: {error}"));
        if let Some(log) = &world.log {
            storage.watch(|| world.model.check_live(log, &case));
        }
    }
    if world.is_offline()
        && let Some(log) = &world.log
    {
        let refused = append(log, batch(Codec::None, NOBODY, 0, 1, 1), 9);
        assert!(
            matches!(refused, Err(Error::LogDirOffline { .. })),
            "{case}: {refused:?}"
        );
    }
    world.model
}

/// Opens what a crash has left, twice, and appends in between.
fn check_after(storage: &MemoryStorage, crash: Crash, model: &Model, case: &str) {
    let case = format!("{case}, then {crash:?}");
    let found = storage.crash(crash);
    let open_segments = OpenSegments::new(Arc::new(found.clone()), 16);
    let directory =
        open_directory(&open_segments, &config()).unwrap_or_else(|error| panic!("{case}: {error}"));
    let Some(log) = directory.log("t", 0) else {
        assert_eq!(model.flushed, 0, "{case}: the log is gone");
        return;
    };
    model.check_reopened(&log, &case);
    let end = log.offsets().log_end_offset;
    let appended = append(&log, batch(Codec::None, NOBODY, 0, 2, 5), 9).unwrap();
    assert_eq!(appended.first_offset, end, "{case}");
    log.flush().unwrap();
    let start = log.offsets().log_start_offset;
    drop((log, directory));
    for crash in [Crash::Kill, Crash::LoseUnsynced] {
        let open_segments = OpenSegments::new(Arc::new(found.crash(crash)), 16);
        let directory = open_directory(&open_segments, &config()).unwrap();
        let offsets = directory.log("t", 0).unwrap().offsets();
        let ends = (offsets.log_start_offset, offsets.log_end_offset);
        assert_eq!(
            ends,
            (start, end + 2),
            "{case}, opened again after {crash:?}"
        );
    }
}

fn try_every_call(failure: Failure, is_power_cut: bool, stride: usize) {
    let calls = calls_of_a_good_day();
    let stride = if is_long_run() { 1 } else { stride };
    let seeds = if is_long_run() { 20 } else { 2 };
    for nth in (1..=calls).step_by(stride) {
        let case = format!("{failure:?} at call {nth} of {calls}");
        let storage = new_storage();
        let fault = Fault::at_call(nth, failure);
        storage.inject(if is_power_cut { fault.lasting() } else { fault });
        let model = live(&storage, is_power_cut, &case);
        assert!(storage.has_struck(), "{case}");
        check_after(&storage, Crash::Kill, &model, &case);
        check_after(&storage, Crash::LoseUnsynced, &model, &case);
        for seed in 0..seeds {
            check_after(&storage, Crash::Seeded(nth * 100 + seed), &model, &case);
        }
    }
}

#[test]
fn every_call_runs_out_of_space_once() {
    try_every_call(Failure::NoSpace, false, 7);
}

#[test]
fn every_call_fails_with_an_io_error_once() {
    try_every_call(Failure::Io, false, 5);
}

#[test]
fn every_write_is_short_once() {
    try_every_call(Failure::ShortWrite, false, 11);
}

#[test]
fn the_power_goes_off_at_every_call() {
    try_every_call(Failure::NoSpace, true, 3);
}

/// Recovery itself is interrupted by a power cut, at every call, and then runs again.
#[test]
fn the_power_goes_off_at_every_call_of_a_recovery() {
    let storage = new_storage();
    let mut world = World::new(&storage);
    for step in script().into_iter().take(45) {
        world.step(step).unwrap();
    }
    for seed in 0..if is_long_run() { 200 } else { 6 } {
        let torn = storage.crash(Crash::Seeded(seed));
        let before = torn.crash(Crash::Kill);
        let open_segments = OpenSegments::new(Arc::new(before.clone()), 16);
        open_directory(&open_segments, &config()).unwrap();
        let calls = before.calls();
        for nth in 1..=calls {
            let case = format!("seed {seed}, recovery cut at call {nth} of {calls}");
            let again = torn.crash(Crash::Kill);
            again.inject(Fault::at_call(nth, Failure::NoSpace).lasting());
            let open_segments = OpenSegments::new(Arc::new(again.clone()), 16);
            drop(open_directory(&open_segments, &config()));
            check_after(&again, Crash::LoseUnsynced, &world.model, &case);
            check_after(&again, Crash::Seeded(nth), &world.model, &case);
        }
    }
}

/// A write-back error is reported once and the pages then count as clean: whoever asks the kernel
/// again is told that all is well. So nobody may ask again.
#[test]
fn after_a_failed_fsync_nothing_claims_to_be_flushed_ever_again() {
    let storage = new_storage();
    let mut world = World::new(&storage);
    for step in [
        Step::Open,
        Step::CreateLog,
        Step::Append,
        Step::Flush,
        Step::Append,
    ] {
        world.step(step).unwrap();
    }
    storage.inject(Fault::of(Operation::SyncData, ".log", Failure::Io));
    let flushed = world.log().offsets().flushed_offset;
    assert!(world.log().flush().is_err());
    storage.heal();
    assert!(world.log().flush().is_err());
    assert!(world.directory().write_checkpoints().is_err());
    assert!(world.directory().close(1).is_err());
    assert_eq!(world.log().offsets().flushed_offset, flushed);
    assert_eq!(world.log().offsets().high_watermark, flushed);
    check_after(
        &storage,
        Crash::LoseUnsynced,
        &world.model,
        "after the failed fsync",
    );
}

#[test]
fn one_of_several_directories_fails_and_the_others_serve() {
    let storage = MemoryStorage::default();
    let paths = ["/one", "/two", "/three"].map(std::path::PathBuf::from);
    let open_segments = OpenSegments::new(Arc::new(storage.clone()), 64);
    let config_of = |_: &str| config();
    let open = || {
        let mut id = 100;
        let mut claimed =
            LogDirectories::claim(&open_segments, &paths, &mut options(&config_of), || {
                id += 1;
                Uuid([id; 16])
            })?;
        claimed
            .load(&options(&config_of), |_, _| None)
            .map(|_| claimed)
    };
    let directories = open().unwrap();
    let logs: Vec<_> = (0..3)
        .map(|partition| {
            let directory = directories.for_new_logs(1, |_| false).remove(0);
            directory
                .create_log("t", partition, Uuid([7; 16]), config(), NOW_MS)
                .unwrap()
        })
        .collect();
    let good = || batch(Codec::None, NOBODY, 0, 2, 5);
    for log in &logs {
        append(log, good(), 1).unwrap();
    }
    storage.inject(Fault::of(Operation::SyncData, "/two/", Failure::Io));
    let results: Vec<bool> = logs.iter().map(|log| log.flush().is_ok()).collect();
    assert_eq!(results.iter().filter(|ok| **ok).count(), 2, "{results:?}");
    for (log, is_good) in logs.iter().zip(&results) {
        let appended = append(log, good(), 1);
        assert_eq!(appended.is_ok(), *is_good, "{appended:?}");
        assert_eq!(log.flush().is_ok(), *is_good);
        assert_eq!(log.offsets().high_watermark, if *is_good { 4 } else { 0 });
    }
    let next = directories.for_new_logs(1, |_| false).remove(0);
    assert_ne!(next.path(), Path::new("/two"));
    // What is about to be made there counts already.
    next.expect_logs(1);
    let other = directories.for_new_logs(1, |_| false).remove(0);
    assert!(![Path::new("/two"), next.path()].contains(&other.path()));
    next.expect_no_more(1);
    assert_eq!(directories.close(1).len(), 1);
    drop((directories, logs, next, other));
    // The next start finds one directory gone, and the two others stopped cleanly.
    storage.inject(Fault::of(Operation::ReadDirectory, "/two", Failure::Io).lasting());
    let directories = open().unwrap();
    assert_eq!(directories.refused.len(), 1);
    assert!(
        directories
            .online
            .iter()
            .all(|directory| directory.was_clean())
    );
    let served: Vec<i64> = (0..3)
        .filter_map(|partition| directories.log("t", partition, Uuid([7; 16])))
        .map(|(_, log)| log.offsets().high_watermark)
        .collect();
    assert_eq!(served, [4, 4]);
}

//! Makes a log out of a partition's directory, whatever the last process left there (`LogLoader`).
//!
//! ```text
//! 1 heal     finish or undo what `.swap` `.cleaned` `.deleted` say was under way (`heal.rs`)
//! 2 open     one segment per `.log`; an index without a log goes, a log without an index gets one
//! 3 recover  after an unclean stop: every batch from the segment of the recovery point on is read,
//!            its CRC and place in the chain of offsets checked; the first bad byte ends the log
//! 4 state    leader epochs cut to the log; the newest good snapshot, and the batches behind it
//! ```
//! Whatever is cut off or made anew is told in the `LoadReport`.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64};

use parking_lot::{Mutex, RwLock};

use crate::error::{Error, Result};
use crate::uuid::Uuid;

use super::checkpoint::{self, partition_metadata};
use super::config::LogConfig;
use super::epochs::LeaderEpochs;
use super::health::Health;
use super::log::{Appender, Log, LogEnds, NameChanges, Phase, Traffic, next_jitter};
use super::names::{self, LOG, OFFSET_INDEX, TIME_INDEX};
use super::open_segments::OpenSegments;
use super::producers::ProducerState;
use super::rebuild::{Rebuilt, SegmentScan, note_epoch};
use super::replay::{producers_before, replay_segments};
use super::scan::BatchScanner;
use super::segment::{LocatedBatch, LogPosition, Segment, SegmentEnd};
use super::segment_map::SegmentMap;
use super::snapshots::ProducerSnapshots;
use super::storage::{Storage, replace_file_unnamed};
use super::{offset_index, time_index};

/// What is known of a log before its directory is read.
pub struct LogParameters {
    pub directory: PathBuf,
    pub topic: String,
    pub partition: i32,
    pub config: LogConfig,
    /// From `log-start-offset-checkpoint`; 0 if it says nothing.
    pub log_start_offset: i64,
    /// From `recovery-point-offset-checkpoint`; 0 if it says nothing.
    pub recovery_point: i64,
    /// From `replication-offset-checkpoint`, for a replica among others; `None`: this one is alone,
    /// and what is on disk is visible.
    pub high_watermark: Option<i64>,
    /// `.kafka_cleanshutdown` was there.
    pub was_clean: bool,
    pub now_ms: i64,
    /// Seed of the roll jitter.
    pub jitter_seed: u64,
}

impl LogParameters {
    /// Of a log of which no checkpoint says anything, as of a new one.
    pub fn new(
        directory: PathBuf,
        topic: String,
        partition: i32,
        config: LogConfig,
        now_ms: i64,
        jitter_seed: u64,
    ) -> LogParameters {
        LogParameters {
            directory,
            topic,
            partition,
            config,
            log_start_offset: 0,
            recovery_point: 0,
            high_watermark: None,
            was_clean: false,
            now_ms,
            jitter_seed,
        }
    }
}

/// What had to be done to make a log of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// One sentence for each thing that was not as a clean stop leaves it.
    pub notes: Vec<String>,
    pub recovered_segments: usize,
    pub recovered_bytes: u64,
    pub truncated_bytes: u64,
}

impl LoadReport {
    pub(super) fn note(&mut self, sentence: String) {
        self.notes.push(sentence);
    }
}

/// Loads the log of `parameters.directory`, which must exist. An empty directory becomes an empty
/// log that starts at the log start offset.
///
/// After it returns, everything in the log is on disk. Errors: `Io`; `CorruptFile` for a
/// `partition.metadata` that cannot be read, which no data can replace. Corrupt records, indexes,
/// snapshots and epochs are no errors: they are cut off or made anew.
pub fn load(
    open_segments: &Arc<OpenSegments>,
    health: &Arc<Health>,
    parameters: LogParameters,
) -> Result<(Arc<Log>, LoadReport)> {
    let mut jitter_seed = parameters.jitter_seed;
    let roll_jitter_ms = next_jitter(&mut jitter_seed, parameters.config.segment_jitter_ms_max());
    let mut loader = Loader {
        open_segments,
        storage: &*open_segments.storage,
        parameters: &parameters,
        jitter_seed,
        roll_jitter_ms,
        segments: SegmentMap::default(),
        epochs: LeaderEpochs::default(),
        report: LoadReport::default(),
    };
    let topic_id = loader.read_topic_id()?;
    loader.heal()?;
    loader.open_all()?;
    loader.read_epochs()?;
    let mut snapshots = ProducerSnapshots::list(loader.storage, &parameters.directory)?;
    loader.rebuild_missing_indexes(&mut snapshots)?;
    // Recovery has replayed the producers up to the end; it is not done again unless the end moves.
    let mut producers = ProducerState::default();
    if !parameters.was_clean {
        producers = loader.recover(&mut snapshots)?;
    }
    let log_end_offset = loader.find_end(&mut snapshots)?;
    let first = loader.segments.first();
    let first = first.map_or(0, |first| first.base_offset());
    let log_start_offset = parameters.log_start_offset.max(first);
    loader.settle_epochs(log_start_offset, log_end_offset)?;
    let bases = loader.segments.values().map(|one| one.base_offset());
    let bases: BTreeSet<i64> = bases.collect();
    snapshots.remove_stray(loader.storage, &bases)?;
    loader.load_producers(
        &mut snapshots,
        &mut producers,
        log_start_offset,
        log_end_offset,
    )?;
    let ends = loader.ends(log_start_offset, log_end_offset, &producers)?;
    Ok(loader.finish(health, topic_id, ends, producers, snapshots))
}

/// A log on its way out of its directory.
pub(super) struct Loader<'a> {
    open_segments: &'a Arc<OpenSegments>,
    pub(super) storage: &'a dyn Storage,
    parameters: &'a LogParameters,
    jitter_seed: u64,
    /// Of each segment, though only that of the active one counts.
    roll_jitter_ms: i64,
    segments: SegmentMap,
    epochs: LeaderEpochs,
    pub(super) report: LoadReport,
}

impl Loader<'_> {
    pub(super) fn directory(&self) -> &Path {
        &self.parameters.directory
    }

    fn read_topic_id(&self) -> Result<Option<Uuid>> {
        let path = self.directory().join(names::PARTITION_METADATA);
        match checkpoint::read(self.storage, &path)? {
            Some(text) => Ok(Some(partition_metadata::parse(&text, &path)?)),
            None => Ok(None),
        }
    }

    pub(super) fn file_names(&self) -> Result<Vec<String>> {
        let entries = self.storage.read_directory(self.directory());
        let entries = entries.map_err(Error::io("readdir", self.directory()))?;
        let files = entries.into_iter().filter(|entry| !entry.is_directory);
        let mut names: Vec<String> = files.map(|entry| entry.name).collect();
        names.sort();
        Ok(names)
    }

    pub(super) fn remove(&mut self, name: &str, why: &str) -> Result<()> {
        let path = self.directory().join(name);
        self.storage
            .remove_file(&path)
            .map_err(Error::io("unlink", &path))?;
        self.report.note(format!("removed {name}: {why}"));
        Ok(())
    }

    pub(super) fn sync_directory(&self) -> Result<()> {
        self.storage
            .sync_directory(self.directory())
            .map_err(Error::io("fsync", self.directory()))
    }

    pub(super) fn open_segment(
        &self,
        base: i64,
        end: SegmentEnd,
        suffix: &'static str,
    ) -> Arc<Segment> {
        let LogParameters {
            directory,
            config,
            now_ms,
            ..
        } = self.parameters;
        Segment::open_closed(
            self.open_segments,
            self.open_segments.segment(directory, base, suffix),
            end,
            config,
            self.roll_jitter_ms,
            *now_ms,
        )
    }

    /// Step 2.
    fn open_all(&mut self) -> Result<()> {
        let names = self.file_names()?;
        let bases: BTreeSet<i64> = names
            .iter()
            .filter_map(|name| names::base_offset_of(name, LOG, ""))
            .collect();
        for name in &names {
            let kinds = [OFFSET_INDEX, TIME_INDEX, names::TRANSACTION_INDEX];
            let base = kinds
                .iter()
                .find_map(|kind| names::base_offset_of(name, kind, ""));
            if base.is_some_and(|base| !bases.contains(&base)) {
                self.remove(name, "it has no log file")?;
            }
        }
        for base in &bases {
            let path = names::segment_path(self.directory(), *base, LOG, "");
            let size = self
                .storage
                .file_size(&path)
                .map_err(Error::io("stat", &path))?;
            let next = bases.range(base + 1..).next();
            let next_offset = next.copied().unwrap_or(*base);
            let end = SegmentEnd {
                size_bytes: size.unwrap_or(0),
                next_offset,
            };
            self.segments.insert(self.open_segment(*base, end, ""));
        }
        Ok(())
    }

    fn read_epochs(&mut self) -> Result<()> {
        let fault = match LeaderEpochs::read(self.storage, self.directory()) {
            Ok(epochs) if epochs.is_empty() && self.has_emptied_epochs()? => {
                "it is empty".to_owned()
            }
            Ok(epochs) => {
                self.epochs = epochs;
                return Ok(());
            }
            Err(Error::CorruptFile { reason, .. }) => reason,
            Err(error) => return Err(error),
        };
        let name = names::LEADER_EPOCH_CHECKPOINT;
        self.report
            .note(format!("made {name} anew from the records: {fault}"));
        self.epochs = self.epochs_of_records()?;
        Ok(())
    }

    /// The file is there without a byte, although the log has records.
    fn has_emptied_epochs(&self) -> Result<bool> {
        let path = self.directory().join(names::LEADER_EPOCH_CHECKPOINT);
        let size = self.storage.file_size(&path);
        let is_empty = size.map_err(Error::io("stat", &path))? == Some(0);
        Ok(is_empty && self.segments.values().any(|one| one.size_bytes() > 0))
    }

    fn epochs_of_records(&self) -> Result<LeaderEpochs> {
        let mut epochs = LeaderEpochs::default();
        for segment in self.segments.values() {
            let file = segment.file()?;
            let path = segment.files().path(LOG);
            let mut scanner = BatchScanner::new(&*file, &path, 0, segment.size_bytes());
            // What is no batch is recovery's to judge; epochs behind it are found when it has.
            while let Ok(Some((_, header))) = scanner.next_header() {
                note_epoch(&mut epochs, &header)?;
            }
        }
        Ok(epochs)
    }

    /// Segments below the recovery point are not read, but they need indexes that can be theirs.
    fn rebuild_missing_indexes(&mut self, snapshots: &mut ProducerSnapshots) -> Result<()> {
        let unflushed = self.first_unflushed();
        for segment in self.segments.clone().values() {
            let base = segment.base_offset();
            if base >= unflushed {
                break;
            }
            if let Some(fault) = self.index_fault(segment)? {
                self.report
                    .note(format!("rebuilt the indexes of segment {base}: {fault}"));
                let mut producers = self.producers_at(snapshots, base)?;
                let rebuilt = self.scan(segment, &mut producers, base, i64::MAX)?;
                self.adopt(segment, rebuilt, false)?;
            }
        }
        Ok(())
    }

    /// What is wrong with a segment's index files, as far as their sizes and ends tell.
    fn index_fault(&self, segment: &Segment) -> Result<Option<String>> {
        let kinds = [
            (OFFSET_INDEX, offset_index::ENTRY_BYTES),
            (TIME_INDEX, time_index::ENTRY_BYTES),
        ];
        for (kind, entry_bytes) in kinds {
            let path = segment.files().path(kind);
            match self
                .storage
                .file_size(&path)
                .map_err(Error::io("stat", &path))?
            {
                None => return Ok(Some(format!("{kind} is missing"))),
                Some(size) if size % entry_bytes as u64 != 0 => {
                    return Ok(Some(format!("{kind} of {size} bytes ends within an entry")));
                }
                Some(_) => {}
            }
        }
        let path = segment.files().path(names::TRANSACTION_INDEX);
        let size = self.storage.file_size(&path);
        if size.map_err(Error::io("stat", &path))? == Some(0) {
            // It is made with its first entry, so it had one.
            return Ok(Some(format!("{} is empty", names::TRANSACTION_INDEX)));
        }
        match segment.aborted() {
            Err(Error::CorruptFile { reason, .. }) => Ok(Some(reason)),
            Err(error) => Err(error),
            Ok(_) => Ok(None),
        }
    }

    /// Base offset of the segment that holds the recovery point; all from it on are recovered. After
    /// a clean stop none is, but the last one's end is still looked for.
    fn first_unflushed(&self) -> i64 {
        if self.parameters.was_clean {
            return i64::MAX;
        }
        let holder = self.segments.at(self.parameters.recovery_point);
        holder
            .or_else(|| self.segments.first())
            .map_or(i64::MAX, |segment| segment.base_offset())
    }

    /// Step 3. Returns the producer state at the end of what was recovered.
    fn recover(&mut self, snapshots: &mut ProducerSnapshots) -> Result<ProducerState> {
        let from = self.first_unflushed();
        let unflushed: Vec<_> = self
            .segments
            .values()
            .map(|segment| (segment.base_offset(), segment.clone()))
            .filter(|(base, _)| *base >= from)
            .collect();
        let Some((first, _)) = unflushed.first() else {
            return Ok(ProducerState::default());
        };
        // Nothing has made those behind durable: a power cut leaves them empty, or torn.
        snapshots.delete_after(self.storage, *first)?;
        let mut producers = self.producers_at(snapshots, *first)?;
        let expiration_ms = self.parameters.config.producer_id_expiration_ms;
        producers.remove_expired(self.parameters.now_ms, expiration_ms);
        let mut next_offset = *first;
        let mut todo = VecDeque::from(unflushed);
        while let Some((base, segment)) = todo.pop_front() {
            let size = segment.size_bytes();
            if base < next_offset && size == 0 {
                self.discard(&segment, "it is empty and overlaps the one before")?;
                continue;
            }
            let following = todo.iter().find(|(_, other)| other.size_bytes() > 0);
            let limit = following.map_or(i64::MAX, |(base, _)| *base);
            let rebuilt = self.scan(&segment, &mut producers, next_offset.max(base), limit)?;
            self.report.recovered_segments += 1;
            self.report.recovered_bytes += rebuilt.end.size_bytes;
            if let Some(reason) = &rebuilt.cut {
                let lost = size - rebuilt.end.size_bytes;
                self.report.truncated_bytes += lost;
                self.report
                    .note(format!("cut {lost} bytes off segment {base}: {reason}"));
                // These first, the last of them first: a crash before the cut must not leave a
                // log that goes on behind a hole.
                while let Some((_, later)) = todo.pop_back() {
                    self.discard(&later, "the log ends before it")?;
                }
                self.sync_directory()?;
            }
            if base < next_offset && rebuilt.end.size_bytes == 0 {
                segment.set_end(rebuilt.end);
                self.discard(&segment, "all of it overlaps the one before")?;
                continue;
            }
            next_offset = rebuilt.end.next_offset;
            self.adopt(&segment, rebuilt, true)?;
            if base < self.parameters.log_start_offset {
                // The scan has also replayed what DeleteRecords took away. Such batches are nobody's
                // duplicates: neither the state nor its snapshot may know them.
                producers = self.producers_at(snapshots, next_offset)?;
            }
            if !todo.is_empty() {
                snapshots.take(self.storage, &producers, false)?;
            }
        }
        self.sync_directory()?;
        Ok(producers)
    }

    fn discard(&mut self, segment: &Segment, why: &str) -> Result<()> {
        let base = segment.base_offset();
        self.report.truncated_bytes += segment.size_bytes();
        self.report.note(format!("removed segment {base}: {why}"));
        self.segments.remove(base);
        self.open_segments.remove(segment.files())
    }

    /// Puts what a scan has made in the place of the files; with `cut_log`, the log file too.
    fn adopt(&self, segment: &Segment, rebuilt: Rebuilt, cut_log: bool) -> Result<()> {
        let path = segment.files().path(LOG);
        if cut_log {
            let file = segment.file()?;
            if rebuilt.end.size_bytes < segment.size_bytes() {
                let cut = file.set_size(rebuilt.end.size_bytes);
                cut.map_err(Error::io("ftruncate", &path))?;
            }
            file.sync_data().map_err(Error::io("fsync", &path))?;
            segment.set_end(rebuilt.end);
        }
        segment.adopt_indexes(&rebuilt.indexes)?;
        segment.replace_aborted(rebuilt.aborted)
    }

    /// Where the log ends, with a last segment that is active. A tail that is no batch although the
    /// stop was clean is recovered like any other.
    fn find_end(&mut self, snapshots: &mut ProducerSnapshots) -> Result<i64> {
        let start = self.parameters.log_start_offset;
        let mut end_offset = None;
        if let Some(last) = self.segments.last().cloned() {
            let base = last.base_offset();
            let fault = self.index_fault(&last)?;
            let end_after = |batch: &Option<LocatedBatch>| SegmentEnd {
                size_bytes: last.size_bytes(),
                next_offset: batch.map_or(base, |batch| batch.header.next_offset()),
            };
            let ends = last.last_batch().and_then(|batch| {
                // An entry of the time index is judged by where the segment ends.
                last.set_end(end_after(&batch));
                last.largest_timestamp()?;
                Ok(batch)
            });
            let found = match (fault, ends) {
                (None, Ok(batch)) => batch,
                (fault, Ok(_) | Err(Error::CorruptFile { .. })) => {
                    let why = fault.unwrap_or_else(|| "its end is no batch".to_owned());
                    self.report.note(format!("recovered segment {base}: {why}"));
                    let size = last.size_bytes();
                    let mut producers = self.producers_at(snapshots, base)?;
                    let rebuilt = self.scan(&last, &mut producers, base, i64::MAX)?;
                    self.report.truncated_bytes += size - rebuilt.end.size_bytes;
                    self.adopt(&last, rebuilt, true)?;
                    last.last_batch()?
                }
                (_, Err(error)) => return Err(error),
            };
            let end = end_after(&found);
            last.set_end(end);
            end_offset = Some(end.next_offset);
        }
        if end_offset.is_some_and(|end| end < start) {
            for segment in self.segments.values().cloned().collect::<Vec<_>>() {
                self.discard(&segment, "the log starts behind it")?;
            }
            self.epochs.clear();
            end_offset = None;
        }
        let LogParameters {
            directory,
            config,
            now_ms,
            ..
        } = self.parameters;
        match self.segments.last() {
            Some(last) => last.activate()?,
            None => {
                let first = Segment::create(
                    self.open_segments,
                    directory,
                    start,
                    "",
                    config,
                    self.roll_jitter_ms,
                    *now_ms,
                )?;
                self.segments.insert(first);
                self.sync_directory()?;
            }
        }
        Ok(end_offset.unwrap_or(start))
    }

    fn settle_epochs(&mut self, log_start_offset: i64, log_end_offset: i64) -> Result<()> {
        let on_disk = LeaderEpochs::read(self.storage, self.directory()).ok();
        self.epochs.truncate_from_end(log_end_offset);
        self.epochs.truncate_from_start(log_start_offset);
        // With none left, the next batch writes the file, whatever its epoch. So the start of an empty
        // partition, whose last leader's epoch lies at its end, costs no fsync.
        if on_disk.is_some() && self.epochs.is_empty() {
            return Ok(());
        }
        if on_disk.as_ref() != Some(&self.epochs) {
            self.epochs.write(self.storage, self.directory())?;
        }
        Ok(())
    }

    /// Producer state of the log before `offset`, the base of one of its segments.
    fn producers_at(&self, snapshots: &ProducerSnapshots, offset: i64) -> Result<ProducerState> {
        let start = self.parameters.log_start_offset;
        producers_before(self.storage, &self.segments, snapshots, start, offset)
    }

    /// Reads a segment whole, with what is known of the log before it.
    fn scan(
        &mut self,
        segment: &Segment,
        producers: &mut ProducerState,
        expected_offset: i64,
        limit_offset: i64,
    ) -> Result<Rebuilt> {
        let mut scan = SegmentScan {
            producers,
            epochs: &mut self.epochs,
            notes: &mut self.report.notes,
            index_interval_bytes: self.parameters.config.index_interval_bytes,
        };
        scan.run(segment, expected_offset, limit_offset)
    }

    /// Step 4.
    fn load_producers(
        &mut self,
        snapshots: &mut ProducerSnapshots,
        producers: &mut ProducerState,
        log_start_offset: i64,
        log_end_offset: i64,
    ) -> Result<()> {
        snapshots.truncate_and_reload(
            self.storage,
            producers,
            log_start_offset,
            log_end_offset,
            self.parameters.now_ms,
            self.parameters.config.producer_id_expiration_ms,
        )?;
        replay_segments(&self.segments, producers, log_end_offset)
    }

    /// Where the log begins and ends. Visible is what the checkpointed high watermark says, or all.
    fn ends(
        &self,
        log_start_offset: i64,
        log_end_offset: i64,
        producers: &ProducerState,
    ) -> Result<LogEnds> {
        let Some(active) = self.segments.last() else {
            return Err(Error::InvalidArgument(
                "a log has at least one segment".to_owned(),
            ));
        };
        let end = LogPosition {
            offset: log_end_offset,
            segment_base_offset: active.base_offset(),
            position_byte: active.size_bytes(),
        };
        let visible = self.parameters.high_watermark.unwrap_or(log_end_offset);
        let visible = visible.clamp(log_start_offset.min(log_end_offset), log_end_offset);
        let recovery_point = if self.parameters.was_clean {
            log_end_offset
        } else {
            self.parameters.recovery_point.min(log_end_offset)
        };
        Ok(LogEnds {
            log_start_offset,
            log_end: end,
            flushed: end,
            high_watermark: if visible == log_end_offset {
                end
            } else {
                LogPosition::unresolved(visible)
            },
            replicated_offset: self.parameters.high_watermark.unwrap_or(i64::MAX),
            first_unstable_offset: producers
                .first_unstable_offset()
                .map(|unstable| unstable.offset),
            recovery_point,
            cuts: 0,
        })
    }

    fn finish(
        self,
        health: &Arc<Health>,
        topic_id: Option<Uuid>,
        ends: LogEnds,
        producers: ProducerState,
        snapshots: ProducerSnapshots,
    ) -> (Arc<Log>, LoadReport) {
        let Loader {
            open_segments,
            parameters,
            jitter_seed,
            segments,
            epochs,
            report,
            ..
        } = self;
        let log = Log {
            topic: parameters.topic.as_str().into(),
            partition: parameters.partition,
            topic_id: RwLock::new(topic_id),
            directory: RwLock::new(parameters.directory.clone()),
            open_segments: open_segments.clone(),
            health: health.clone(),
            config: RwLock::new(Arc::new(parameters.config.clone())),
            segments: RwLock::new(segments),
            ends: RwLock::new(ends),
            epochs: RwLock::new(epochs),
            leading_epoch: AtomicI32::new(-1),
            appender: Mutex::new(Appender {
                producers,
                snapshots,
                jitter_seed,
            }),
            flushing: Mutex::new(()),
            truncations: AtomicU64::new(0),
            names: NameChanges::default(),
            flush_is_queued: AtomicBool::new(false),
            traffic: Traffic::default(),
            condemned: Mutex::new(Vec::new()),
            phase: AtomicU8::new(Phase::Open as u8),
            observer: RwLock::new(None),
        };
        // Loading may have removed snapshots: they must not come back beside newer records.
        log.names.note();
        (Arc::new(log), report)
    }
}

/// Makes the directory of a new partition: `partition.metadata` is on disk before the first record
/// can be, else Kafka calls the log stray.
pub fn create_directory(storage: &dyn Storage, directory: &Path, topic_id: Uuid) -> Result<()> {
    begin_directory(storage, directory, topic_id)?;
    for named in [Some(directory), directory.parent()].into_iter().flatten() {
        storage
            .sync_directory(named)
            .map_err(Error::io("fsync", named))?;
    }
    Ok(())
}

/// `create_directory` without the two fsyncs of directories: `load` makes that of the partition's
/// own, and that of the parent is the caller's.
pub(super) fn begin_directory(
    storage: &dyn Storage,
    directory: &Path,
    topic_id: Uuid,
) -> Result<()> {
    storage
        .create_directory_all(directory)
        .map_err(Error::io("mkdir", directory))?;
    let path = directory.join(names::PARTITION_METADATA);
    let text = partition_metadata::print(topic_id);
    replace_file_unnamed(storage, &path, text.as_bytes()).map_err(Error::io("replace", &path))
}

//! Makes a log out of a partition's directory, whatever the last process left there (`LogLoader`).
//!
//! ```text
//! 1 clean up finish or undo what `.swap` `.cleaned` `.deleted` say was under way
//! 2 open     one segment per `.log`; an index without a log goes, a log without an index gets one
//! 3 recover  after an unclean stop: every batch from the segment of the recovery point on is read,
//!            its CRC and place in the chain of offsets checked; the first bad byte ends the log
//! 4 state    leader epochs cut to the log; the newest good snapshot, and the batches behind it
//! ```
//! Whatever is cut off or made anew is told in the `LoadReport`.

mod crash_clean_up;
mod leader_epochs;
mod log_end;
mod segment_recovery;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64};

use parking_lot::{Mutex, RwLock};

use crate::error::{Error, Result};
use crate::log::config::LogConfig;
use crate::log::health::{CurrentHealth, Health};
use crate::log::log::{Appender, Log, Phase, next_jitter};
use crate::log::names::{self, LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX};
use crate::log::partition_metadata;
use crate::log::segment::delayed_deletion::CondemnedFiles;
use crate::log::segment::map::SegmentMap;
use crate::log::segment::open_segments::OpenSegments;
use crate::log::segment::replay::{producers_before, replay_segments};
use crate::log::segment::{Segment, SegmentEnd};
use crate::log::state::ends::LogEnds;
use crate::log::state::ends::LogPosition;
use crate::log::state::epochs::LeaderEpochs;
use crate::log::state::name_changes::NameChanges;
use crate::log::state::producers::ProducerState;
use crate::log::state::snapshots::ProducerSnapshots;
use crate::log::state::traffic::Traffic;
use crate::log::state::verification::Verifications;
use crate::log::storage::Storage;
use crate::uuid::Uuid;

/// A log as it is known before its directory is read.
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
    /// The caller syncs the whole file system before anybody relies on what is loaded. Only
    /// where that tells of every failed write (`Storage::file_system`), by a descriptor
    /// that is older than the load.
    pub is_synced_later: bool,
    /// Set from elsewhere: the load is given up soon, with `LoadStopped`.
    pub stop: Arc<AtomicBool>,
    pub now_ms: i64,
    /// Seed of the roll jitter.
    pub jitter_seed: u64,
}

impl LogParameters {
    /// Parameters of a log of which no checkpoint says anything, such as a new one.
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
            is_synced_later: false,
            stop: Arc::default(),
            now_ms,
            jitter_seed,
        }
    }
}

/// The repairs that were needed to make a log of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// One sentence for each thing that was not as a clean stop leaves it.
    pub notes: Vec<String>,
    pub recovered_segments: usize,
    pub recovered_bytes: u64,
    pub truncated_bytes: u64,
    /// The log ends before the high watermark of the checkpoint, which was on disk.
    pub is_cut: bool,
}

impl LoadReport {
    pub(super) fn note(&mut self, sentence: String) {
        self.notes.push(sentence);
    }
}

/// Loads the log of `parameters.directory`, which must exist. An empty directory becomes an empty
/// log that starts at the log start offset.
///
/// After it returns, everything in the log is on disk, unless that `is_synced_later`. Errors: `Io`;
/// `CorruptFile` for a `partition.metadata` that cannot be read, which no data can replace;
/// `LoadStopped`. Corrupt records, indexes, snapshots and epochs are no errors: they are cut off or
/// made anew.
pub fn load(
    open_segments: &Arc<OpenSegments>,
    health: &Arc<Health>,
    parameters: LogParameters,
) -> Result<(Arc<Log>, LoadReport)> {
    let topic_id = partition_metadata::read(&*open_segments.storage, &parameters.directory)?;
    load_of_topic(open_segments, health, parameters, topic_id)
}

/// As `load`, where the directory's topic id has been read.
pub(super) fn load_of_topic(
    open_segments: &Arc<OpenSegments>,
    health: &Arc<Health>,
    parameters: LogParameters,
    topic_id: Option<Uuid>,
) -> Result<(Arc<Log>, LoadReport)> {
    let mut jitter_seed = parameters.jitter_seed;
    let roll_jitter_ms = next_jitter(&mut jitter_seed, parameters.config.segment_jitter_ms_max());
    let mut loader = Loader {
        open_segments,
        storage: &*open_segments.storage,
        parameters: &parameters,
        jitter_seed,
        roll_jitter_ms,
        names: Vec::new(),
        segments: SegmentMap::default(),
        epochs: LeaderEpochs::default(),
        written_epochs: None,
        report: LoadReport::default(),
    };
    loader.list_names()?;
    loader.clean_up_after_crash()?;
    loader.open_all()?;
    loader.read_epochs()?;
    let mut snapshots = ProducerSnapshots::named(&loader.names, &parameters.directory);
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
    loader.load_producers(
        &mut snapshots,
        &mut producers,
        log_start_offset,
        log_end_offset,
    )?;
    let bases = loader.segments.values().map(|one| one.base_offset());
    snapshots.give_up_stray(&bases.collect());
    let ends = loader.ends(log_start_offset, log_end_offset, &producers)?;
    Ok(loader.finish(health, topic_id, ends, producers, snapshots))
}

/// A log on its way out of its directory.
pub(super) struct Loader<'a> {
    pub(super) open_segments: &'a Arc<OpenSegments>,
    pub(super) storage: &'a dyn Storage,
    pub(super) parameters: &'a LogParameters,
    jitter_seed: u64,
    /// The roll jitter of each segment, though only that of the active one counts.
    pub(super) roll_jitter_ms: i64,
    /// Names of the files that were there at the start or after the clean-up and are not removed;
    /// in order.
    pub(super) names: Vec<String>,
    pub(super) segments: SegmentMap,
    pub(super) epochs: LeaderEpochs,
    /// The epochs as their file says them, if it is there and good.
    written_epochs: Option<LeaderEpochs>,
    pub(super) report: LoadReport,
}

impl Loader<'_> {
    pub(super) fn directory(&self) -> &Path {
        &self.parameters.directory
    }

    pub(super) fn list_names(&mut self) -> Result<()> {
        let entries = self.storage.read_directory(self.directory());
        let entries = entries.map_err(Error::io("readdir", self.directory()))?;
        let files = entries.into_iter().filter(|entry| !entry.is_directory);
        self.names = files.map(|entry| entry.name).collect();
        self.names.sort();
        Ok(())
    }

    pub(super) fn is_there(&self, name: &str) -> bool {
        let found = self.names.binary_search_by(|each| each.as_str().cmp(name));
        found.is_ok()
    }

    pub(super) fn remove(&mut self, name: &str, why: &str) -> Result<()> {
        let path = self.directory().join(name);
        self.storage
            .remove_file(&path)
            .map_err(Error::io("unlink", &path))?;
        self.names.retain(|each| each != name);
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
        let bases: BTreeSet<i64> = self
            .names
            .iter()
            .filter_map(|name| names::base_offset_of(name, LOG, ""))
            .collect();
        for name in self.names.clone() {
            let kinds = [OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX];
            let base = kinds
                .iter()
                .find_map(|kind| names::base_offset_of(&name, kind, ""));
            if base.is_some_and(|base| !bases.contains(&base)) {
                self.remove(&name, "it has no log file")?;
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

    /// Producer state of the log before `offset`, the base of one of its segments.
    pub(super) fn producers_at(
        &self,
        snapshots: &ProducerSnapshots,
        offset: i64,
    ) -> Result<ProducerState> {
        let start = self.parameters.log_start_offset;
        producers_before(self.storage, &self.segments, snapshots, start, offset)
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
        let ends = LogEnds {
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
        };
        ends.check_order();
        Ok(ends)
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
            health: CurrentHealth::new(health.clone()),
            config: RwLock::new(Arc::new(parameters.config.clone())),
            segments: RwLock::new(segments),
            ends: RwLock::new(ends),
            epochs: RwLock::new(epochs),
            leading_epoch: AtomicI32::new(-1),
            role_count: AtomicU64::new(0),
            is_unsettled: AtomicBool::new(false),
            appender: Mutex::new(Appender {
                producers,
                snapshots,
                jitter_seed,
            }),
            verifications: Verifications::default(),
            flushing: Mutex::new(()),
            truncations: AtomicU64::new(0),
            replacements: AtomicU64::new(0),
            is_moving: AtomicBool::new(false),
            names: NameChanges::default(),
            flush_is_queued: AtomicBool::new(false),
            traffic: Traffic::default(),
            condemned: RwLock::new(CondemnedFiles::new(open_segments)),
            phase: AtomicU8::new(Phase::Open as u8),
            observer: RwLock::new(None),
        };
        // Loading may have removed snapshots: they must not come back beside newer records.
        log.names.note();
        (Arc::new(log), report)
    }
}

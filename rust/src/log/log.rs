//! The log of one partition.
//!
//! ```text
//! log_start_offset          flushed          log_end_offset
//!       │  segment │ segment │  ·  active segment  │
//!       └──────────┴─────────┴──▲──────────────────┘
//!                  last_stable ≤ high_watermark ≤ flushed (acks.fsync) ≤ log end
//! ```
//!
//! `append.rs` writes at the end, `read.rs` reads, `flush.rs` makes durable, `maintain/` cuts and
//! deletes, `recover/` makes a log out of a directory.
//!
//! Locks, always taken in this order: `flushing` → `appender` → `segments` → `ends`. Readers take
//! the last two only, for an instant. Nothing here reads a clock: `now_ms` comes in.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::error::{Error, Result};
use crate::uuid::Uuid;

use super::config::LogConfig;
use super::health::CurrentHealth;
use super::segment::Segment;
use super::segment::delayed_deletion::CondemnedFiles;
use super::segment::map::SegmentMap;
use super::segment::open_segments::OpenSegments;
use super::state::ends::{LogEnds, LogOffsets, LogPosition};
use super::state::epochs::LeaderEpochs;
use super::state::name_changes::NameChanges;
use super::state::producer_entry::ProducerEntry;
use super::state::producers::ProducerState;
use super::state::snapshots::ProducerSnapshots;
use super::state::traffic::Traffic;
use super::state::verification::{Question, Verifications};
use super::storage::Storage;

/// Told after everything that may have moved an end, without locks, on the thread that did it.
pub trait LogObserver: Send + Sync {
    /// Log end, high watermark or last stable offset may be new. Also called when none is, and when
    /// the log directory has failed: after each append, each flush that was asked for, and each
    /// change of the start or of the high watermark, whatever came of it. Who waits for an end
    /// relies on that: of a failure nothing else wakes it.
    fn advanced(&self, log: &Log, offsets: LogOffsets);
}

pub struct Log {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) topic_id: RwLock<Option<Uuid>>,
    pub(super) directory: RwLock<PathBuf>,
    pub(super) open_segments: Arc<OpenSegments>,
    pub(super) health: CurrentHealth,
    pub(super) config: RwLock<Arc<LogConfig>>,
    pub(super) segments: RwLock<SegmentMap>,
    pub(super) ends: RwLock<LogEnds>,
    pub(super) epochs: RwLock<LeaderEpochs>,
    /// The epoch in which this replica leads; -1 where it does not. Its first record brings it into
    /// `epochs` and the file.
    pub(super) leading_epoch: AtomicI32,
    /// How many roles the replica has had (`begin_role`).
    pub(super) role_count: AtomicU64,
    /// The append lock.
    pub(super) appender: Mutex<Appender>,
    /// Transactions of which the coordinator is asked.
    pub(super) verifications: Verifications,
    /// The flush lock: one flush, truncation or recovery-point move at a time.
    pub(super) flushing: Mutex<()>,
    /// How often the log has been cut at its end.
    pub(super) truncations: AtomicU64,
    /// How often other files have taken the place of all that it had (`replace_by`).
    pub(super) replacements: AtomicU64,
    /// Its records are being copied into another log directory: it is not compacted meanwhile.
    pub(super) is_moving: AtomicBool,
    pub(super) names: NameChanges,
    /// The high watermark has passed the end of a transaction, which nobody has noted yet.
    pub(super) is_unsettled: AtomicBool,
    /// A flush is asked for and has not begun (`Flusher`).
    pub(super) flush_is_queued: AtomicBool,
    pub(super) condemned: RwLock<Arc<CondemnedFiles>>,
    pub(super) traffic: Traffic,
    /// A `Phase`; set under the append lock.
    pub(super) phase: AtomicU8,
    pub(super) observer: RwLock<Option<Arc<dyn LogObserver>>>,
}

/// The phase of a log's life says which work on it is still allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    Open,
    /// After a clean stop: readable. A record appended now would not be looked for at the start.
    Closed,
    /// Its files are on their way out.
    Deleted,
}

/// The append lock, held. Whoever moves the high watermark while it is held does not wait for it
/// (`Log::settle_transactions`), so that its release goes on with what that one has left undone.
pub(super) struct AppendLock<'a> {
    log: &'a Log,
    /// `None` while it is being dropped.
    appender: Option<MutexGuard<'a, Appender>>,
}

impl Deref for AppendLock<'_> {
    type Target = Appender;

    fn deref(&self) -> &Appender {
        match &self.appender {
            Some(appender) => appender,
            None => unreachable!("it is held until it is dropped"),
        }
    }
}

impl DerefMut for AppendLock<'_> {
    fn deref_mut(&mut self) -> &mut Appender {
        match &mut self.appender {
            Some(appender) => appender,
            None => unreachable!("it is held until it is dropped"),
        }
    }
}

impl Drop for AppendLock<'_> {
    fn drop(&mut self) {
        self.appender = None;
        if self.log.is_unsettled.load(Ordering::SeqCst) {
            self.log.notify();
        }
    }
}

pub(super) struct Appender {
    pub producers: ProducerState,
    pub snapshots: ProducerSnapshots,
    /// State of the generator of roll jitter.
    pub jitter_seed: u64,
}

impl Log {
    pub fn topic(&self) -> &str {
        &self.topic
    }

    pub fn partition(&self) -> i32 {
        self.partition
    }

    pub fn topic_id(&self) -> Option<Uuid> {
        *self.topic_id.read()
    }

    pub fn directory(&self) -> PathBuf {
        self.directory.read().clone()
    }

    pub fn config(&self) -> Arc<LogConfig> {
        self.config.read().clone()
    }

    pub fn set_config(&self, config: LogConfig) {
        *self.config.write() = Arc::new(config);
    }

    pub fn set_observer(&self, observer: Arc<dyn LogObserver>) {
        *self.observer.write() = Some(observer);
    }

    pub fn offsets(&self) -> LogOffsets {
        self.ends.read().offsets()
    }

    pub fn high_watermark(&self) -> i64 {
        self.ends.read().high_watermark.offset
    }

    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// All segments, oldest first.
    pub fn segments(&self) -> Vec<Arc<Segment>> {
        self.segments.read().values().cloned().collect()
    }

    /// Moves when retention or DeleteRecords takes segments away.
    pub fn first_base_offset(&self) -> Option<i64> {
        let segments = self.segments.read();
        segments.first().map(|first| first.base_offset())
    }

    pub fn size_bytes(&self) -> u64 {
        self.size().0
    }

    /// Bytes and number of the segments.
    pub fn size(&self) -> (u64, usize) {
        let segments = self.segments.read();
        let sizes = segments.values().map(|segment| segment.size_bytes());
        (sizes.sum(), segments.len())
    }

    /// How often the log has been cut at its end: what was found out about its records before a cut
    /// is not true of those after it.
    pub fn truncations(&self) -> u64 {
        self.truncations.load(Ordering::Acquire)
    }

    /// How often other files have taken the place of all that it had: positions in segments that
    /// were found before mean nothing after.
    pub fn replacements(&self) -> u64 {
        self.replacements.load(Ordering::Acquire)
    }

    /// Says whether its records are being copied into another log directory. The cleaner passes
    /// over such a log, and a round that is under way replaces no segment from then on, as with
    /// Kafka (`LogManager.abortAndPauseCleaning`).
    pub fn is_moving(&self) -> bool {
        self.is_moving.load(Ordering::Acquire)
    }

    pub fn set_moving(&self, is_moving: bool) {
        self.is_moving.store(is_moving, Ordering::Release);
    }

    /// After it returns, no segments are being replaced; none will be if the log `is_moving`.
    pub fn await_replacement(&self) {
        drop(self.flushing.lock());
    }

    /// The replica plays another role from here on, or the same in another leader epoch.
    /// Returns the number of the role: what a follower brings is taken while that is the
    /// last one (`check_role`).
    pub fn begin_role(&self) -> u64 {
        self.role_count.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Errors: `NotLeader` where another role has begun since `role`.
    pub fn check_role(&self, role: u64) -> Result<()> {
        if self.role_count.load(Ordering::Acquire) == role {
            Ok(())
        } else {
            Err(Error::NotLeader {
                topic: self.topic.to_string(),
                partition: self.partition,
            })
        }
    }

    /// Waits for the append lock.
    pub(super) fn lock_appender(&self) -> AppendLock<'_> {
        AppendLock {
            log: self,
            appender: Some(self.appender.lock()),
        }
    }

    /// Nothing is being appended. An append that began in a role before this one may still be under
    /// way otherwise, and end as it began.
    pub fn is_settled(&self) -> bool {
        self.appender.try_lock().is_some()
    }

    /// Waits until `is_settled` has been so once.
    pub fn settle(&self) {
        drop(self.lock_appender());
    }

    /// A copy of the producer state, for the cleaner and tests.
    pub fn producers(&self) -> ProducerState {
        self.lock_appender().producers.clone()
    }

    /// One value per producer, in no order. There may be a million, and appends wait meanwhile.
    pub fn map_producers<T>(&self, of: impl FnMut((i64, &ProducerEntry)) -> T) -> Vec<T> {
        let appender = self.lock_appender();
        appender.producers.producers().map(of).collect()
    }

    /// A producer has begun a transaction here that no marker has ended.
    pub fn has_open_transaction(&self, producer_id: i64) -> bool {
        let appender = self.lock_appender();
        let producer = appender.producers.get(producer_id);
        producer.is_some_and(|entry| entry.current_transaction_first_offset.is_some())
    }

    /// The guard with which a transactional batch is to be appended once its coordinator has
    /// agreed; `None`: it need not be asked. Never waits for the disk.
    pub fn begin_verification(&self, question: Question, now_ms: u64) -> Option<u64> {
        self.verifications.begin(question, now_ms)
    }

    /// The coordinator does not know the producer of a verification.
    pub fn forget_verification(&self, producer_id: i64, guard: u64) {
        self.verifications.forget(producer_id, guard);
    }

    /// Forgets producers that have been silent for `producer.id.expiration.ms`. Returns how many.
    pub fn expire_producers(&self, now_ms: i64) -> usize {
        let expiration_ms = self.config.read().producer_id_expiration_ms;
        self.verifications
            .remove_expired(now_ms.cast_unsigned(), expiration_ms.cast_unsigned());
        let mut appender = self.lock_appender();
        appender.producers.remove_expired(now_ms, expiration_ms)
    }

    /// The log directory has failed: no record is taken any more.
    pub fn is_offline(&self) -> bool {
        self.health.is_offline()
    }

    pub(super) fn is_in(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Acquire) == phase as u8
    }

    pub(super) fn check_not_deleted(&self) -> Result<()> {
        if !self.is_in(Phase::Deleted) {
            return Ok(());
        }
        let topic = self.topic.to_string();
        Err(Error::LogDeleted {
            topic,
            partition: self.partition,
        })
    }

    /// Errors: `LogDirOffline`, also after a clean stop; `LogDeleted`.
    pub(super) fn check_writable(&self) -> Result<()> {
        self.health.check()?;
        self.check_not_deleted()?;
        if self.is_in(Phase::Closed) {
            let reason = "the log is closed".to_owned();
            return Err(Error::LogDirOffline {
                path: self.directory(),
                reason,
            });
        }
        Ok(())
    }

    pub(super) fn storage(&self) -> &dyn Storage {
        &*self.open_segments.storage
    }

    pub(super) fn active_segment(&self) -> Result<Arc<Segment>> {
        let segments = self.segments.read();
        segments
            .last()
            .cloned()
            .ok_or_else(|| Error::LogDirOffline {
                path: self.directory(),
                reason: "the log is closed".to_owned(),
            })
    }

    /// The segment that holds `offset`, or the first one behind it.
    pub(super) fn segment_at(&self, offset: i64) -> Option<Arc<Segment>> {
        let segments = self.segments.read();
        segments.at(offset).or_else(|| segments.first()).cloned()
    }

    pub(super) fn segment_after(&self, base_offset: i64) -> Option<Arc<Segment>> {
        self.segments.read().above(base_offset).cloned()
    }

    /// Publishes the active segment's end as the log's, with the first unstable offset.
    pub(super) fn publish_end(&self, appender: &mut Appender) {
        let Ok(active) = self.active_segment() else {
            return;
        };
        let end = active.end();
        let mut ends = self.ends.write();
        ends.log_end = LogPosition {
            offset: end.next_offset,
            segment_base_offset: active.base_offset(),
            position_byte: end.size_bytes,
        };
        let acks_fsync = self.config.read().acks_fsync;
        if ends.advance_high_watermark(acks_fsync) {
            appender
                .producers
                .on_high_watermark(ends.high_watermark.offset);
        }
        ends.note_unstable(&appender.producers);
        ends.check_order();
    }

    /// Starts a new segment at `base_offset`. The old one is closed; its part of the recovery point
    /// comes with the next `advance_recovery_point`.
    ///
    /// With `acks_fsync`, the old one's records are on disk before its successor has a name: a
    /// power cut that took the end of one and left the other would leave a log with a hole, and a
    /// producer snapshot that calls the lost batches duplicates when they are sent again.
    ///
    /// Errors: those for which `Health::fail_unless_short` takes the log directory
    /// offline. Where the directory of the log is gone, what is appended to the files that
    /// are open here would be nowhere.
    pub(super) fn roll(
        &self,
        appender: &mut Appender,
        base_offset: i64,
        now_ms: i64,
    ) -> Result<Arc<Segment>> {
        self.begin_segment(appender, base_offset, now_ms)
            .inspect_err(|error| self.health.fail_unless_short(error))
    }

    fn begin_segment(
        &self,
        appender: &mut Appender,
        base_offset: i64,
        now_ms: i64,
    ) -> Result<Arc<Segment>> {
        let config = self.config();
        let old = self.active_segment()?;
        let is_flushed = {
            let ends = self.ends.read();
            ends.flushed.offset == ends.log_end.offset
        };
        if config.acks_fsync && !is_flushed {
            old.sync_log()
                .inspect_err(|error| self.health.fail_for_good(error))?;
        }
        appender.producers.set_map_end_offset(base_offset);
        appender
            .snapshots
            .take(self.storage(), &appender.producers, false)?;
        self.names.note();
        let jitter = next_jitter(&mut appender.jitter_seed, config.segment_jitter_ms_max());
        let old_end = old.end().next_offset;
        assert!(
            old.base_offset() < base_offset && old_end <= base_offset,
            "segments ascend"
        );
        old.write_indexes(true)?;
        let directory = self.directory.read().clone();
        let created = Segment::create(
            &self.open_segments,
            &directory,
            base_offset,
            "",
            &config,
            jitter,
            now_ms,
        );
        let new = match created {
            Ok(new) => new,
            Err(error) => {
                // The old segment goes on; a leftover in its way would look like its successor.
                let leftover = self.open_segments.segment(&directory, base_offset, "");
                if let Err(broken) = self.open_segments.remove(&leftover) {
                    self.health.fail(&broken);
                }
                return Err(error);
            }
        };
        old.close()?;
        self.names.note();
        self.segments.write().insert(new.clone());
        Ok(new)
    }

    /// Tells the observer; without locks, and after each use of the append lock.
    pub(super) fn notify(&self) {
        self.settle_transactions();
        let observer = self.observer.read().clone();
        if let Some(observer) = observer {
            observer.advanced(self, self.offsets());
        }
    }

    /// Path of the producer snapshot that stands for the log up to `offset`.
    pub(super) fn snapshot_path(directory: &Path, offset: i64) -> PathBuf {
        super::names::segment_path(directory, offset, super::names::PRODUCER_SNAPSHOT, "")
    }
}

/// A pseudo-random number of milliseconds in `0 .. max` (SplitMix64); 0 if `max` is not positive.
pub(super) fn next_jitter(seed: &mut u64, max_ms: i64) -> i64 {
    if max_ms <= 0 {
        return 0;
    }
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) % max_ms as u64) as i64
}

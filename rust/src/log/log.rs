//! The log of one partition.
//!
//! ```text
//! log_start_offset          flushed          log_end_offset
//!       │  segment │ segment │  ·  active segment  │
//!       └──────────┴─────────┴──▲──────────────────┘
//!                  last_stable ≤ high_watermark ≤ flushed (acks.fsync) ≤ log end
//! ```
//!
//! `append` (here) writes at the end, `read.rs` reads, `flush.rs` makes durable, `maintain.rs` cuts and
//! deletes, `recover.rs` makes a log out of a directory.
//!
//! Locks, always taken in this order: `flushing` → `appender` → `segments` → `ends`. Readers take the
//! last two only, for an instant. Nothing here reads a clock: `now_ms` comes in.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::batch::header::{NO_TIMESTAMP, TimestampType, patch_offset_and_epoch};
use crate::batch::validate::{AppendOrigin, Scratch, Validated, validate};
use crate::error::{Error, Result};

use super::aborted::AbortedTransaction;
use super::checkpoint::Uuid;
use super::config::LogConfig;
use super::epochs::LeaderEpochs;
use super::health::Health;
use super::open_segments::{OpenSegments, SegmentFiles};
use super::producers::{BatchOutcome, PendingUpdates, ProducerState, SegmentPosition};
use super::segment::{LogPosition, Segment, WrittenBatch};
use super::snapshots::ProducerSnapshots;
use super::storage::Storage;

/// The numbers of a log. `log_start_offset ≤ last_stable_offset ≤ high_watermark ≤ log_end_offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOffsets {
    pub log_start_offset: i64,
    pub log_end_offset: i64,
    /// Everything below is on disk.
    pub flushed_offset: i64,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    /// Recovery after an unclean stop starts with the segment that holds this offset.
    pub recovery_point: i64,
}

/// Told when an end has moved; called without locks, on the thread that moved it.
pub trait LogObserver: Send + Sync {
    /// Any of log end, high watermark and last stable offset is new.
    fn advanced(&self, log: &Log, offsets: LogOffsets);
}

/// Records for one partition: one or more batches, back to back.
pub struct AppendRequest<'a> {
    /// Changed in place: base offsets, leader epochs, and a max timestamp that was wrong.
    pub records: &'a mut [u8],
    pub origin: AppendOrigin,
    /// Of the leader that appends; a follower's batches carry their own.
    pub leader_epoch: i32,
    /// Of the transactions (KIP-890); needed for markers of a coordinator only.
    pub transaction_version: Option<i16>,
}

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendInfo {
    pub first_offset: i64,
    pub last_offset: i64,
    /// Milliseconds; -1 unless `message.timestamp.type=LogAppendTime` (or for a duplicate).
    pub log_append_time_ms: i64,
    pub log_start_offset: i64,
    /// The batch was in the log already; the offsets are those of the first time.
    pub is_duplicate: bool,
}

pub struct Log {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) topic_id: RwLock<Option<Uuid>>,
    pub(super) directory: RwLock<PathBuf>,
    pub(super) open_segments: Arc<OpenSegments>,
    pub(super) health: Arc<Health>,
    pub(super) config: RwLock<Arc<LogConfig>>,
    pub(super) segments: RwLock<BTreeMap<i64, Arc<Segment>>>,
    pub(super) ends: RwLock<LogEnds>,
    pub(super) epochs: RwLock<LeaderEpochs>,
    /// The append lock.
    pub(super) appender: Mutex<Appender>,
    /// The flush lock: one flush, truncation or recovery-point move at a time.
    pub(super) flushing: Mutex<()>,
    /// Names were made, renamed or removed in the directory since it was last synced.
    pub(super) directory_is_dirty: AtomicBool,
    /// A flush is asked for and has not begun (`Flusher`).
    pub(super) flush_is_queued: AtomicBool,
    pub(super) condemned: Mutex<Vec<Condemned>>,
    /// A `Stage`; set under the append lock.
    pub(super) stage: AtomicU8,
    pub(super) observer: RwLock<Option<Arc<dyn LogObserver>>>,
}

/// What may still be done with a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    Open,
    /// After a clean stop: readable. A record appended now would not be looked for at the start.
    Closed,
    /// Its files are on their way out.
    Deleted,
}

/// Ends and watermarks, published together.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogEnds {
    pub log_start_offset: i64,
    pub log_end: LogPosition,
    pub flushed: LogPosition,
    pub high_watermark: LogPosition,
    /// The least log end of the in-sync replicas; `i64::MAX` while this replica is alone.
    pub replicated_offset: i64,
    pub first_unstable_offset: Option<i64>,
    pub recovery_point: i64,
}

pub(super) struct Appender {
    pub producers: ProducerState,
    pub snapshots: ProducerSnapshots,
    pub scratch: Scratch,
    /// State of the generator of roll jitter.
    pub jitter_seed: u64,
}

/// Files that are called `.deleted` and wait for `file.delete.delay.ms`.
pub(super) struct Condemned {
    pub due_ms: i64,
    pub files: Arc<SegmentFiles>,
}

/// A run of batches that one `pwritev` will write, all in the active segment.
struct Run {
    pending: PendingUpdates,
    batches: Vec<WrittenBatch>,
    pieces: Vec<Piece>,
    aborted: Vec<AbortedTransaction>,
    size_bytes: u64,
    next_offset: i64,
    /// Requests whose result depends on this write.
    requests: Vec<usize>,
}

/// A batch of the run: which request, and where in its bytes.
struct Piece {
    request: usize,
    start: usize,
    end: usize,
}

impl Run {
    fn new(pending: PendingUpdates, next_offset: i64) -> Run {
        Run {
            pending,
            batches: Vec::new(),
            pieces: Vec::new(),
            aborted: Vec::new(),
            size_bytes: 0,
            next_offset,
            requests: Vec::new(),
        }
    }
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

    /// All segments, oldest first.
    pub fn segments(&self) -> Vec<Arc<Segment>> {
        self.segments.read().values().cloned().collect()
    }

    pub fn size_bytes(&self) -> u64 {
        self.segments
            .read()
            .values()
            .map(|segment| segment.size_bytes())
            .sum()
    }

    pub fn leader_epochs(&self) -> LeaderEpochs {
        self.epochs.read().clone()
    }

    /// A copy of the producer state, for DescribeProducers and tests.
    pub fn producers(&self) -> ProducerState {
        self.appender.lock().producers.clone()
    }

    /// Forgets producers that have been silent for `producer.id.expiration.ms`. Returns how many.
    pub fn expire_producers(&self, now_ms: i64) -> usize {
        let expiration_ms = self.config.read().producer_id_expiration_ms;
        self.appender
            .lock()
            .producers
            .remove_expired(now_ms, expiration_ms)
    }

    pub(super) fn is_in(&self, stage: Stage) -> bool {
        self.stage.load(Ordering::Acquire) == stage as u8
    }

    pub(super) fn check_not_deleted(&self) -> Result<()> {
        if !self.is_in(Stage::Deleted) {
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
        if self.is_in(Stage::Closed) {
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
        let last = segments
            .last_key_value()
            .map(|(_, segment)| segment.clone());
        last.ok_or_else(|| Error::LogDirOffline {
            path: self.directory(),
            reason: "the log is closed".to_owned(),
        })
    }

    /// The segment that holds `offset`, or the first one behind it.
    pub(super) fn segment_at(&self, offset: i64) -> Option<Arc<Segment>> {
        let segments = self.segments.read();
        let floor = segments.range(..=offset).next_back();
        floor
            .or_else(|| segments.first_key_value())
            .map(|(_, segment)| segment.clone())
    }

    pub(super) fn segment_after(&self, base_offset: i64) -> Option<Arc<Segment>> {
        let range = (Bound::Excluded(base_offset), Bound::Unbounded);
        self.segments
            .read()
            .range(range)
            .next()
            .map(|(_, segment)| segment.clone())
    }

    /// Appends the requests in order, several batches by one write.
    ///
    /// After it returns, the records of each `Ok` are in the page cache, have their offsets, and are
    /// seen by readers bounded by the log end; they are durable once `offsets().flushed_offset` has
    /// passed them. A request that is refused changes nothing. If a write fails or is short, every
    /// request of that write fails with it, and file, log end and producer state are what they were
    /// before; if the file cannot be brought back, the log directory goes offline.
    ///
    /// May run beside any other call. Holds the append lock while it writes.
    pub fn append(
        &self,
        requests: &mut [AppendRequest<'_>],
        now_ms: i64,
    ) -> Vec<Result<AppendInfo>> {
        let config = self.config();
        let mut scratch = self.take_scratch();
        let mut results: Vec<Result<Validated>> = Vec::with_capacity(requests.len());
        for request in requests.iter_mut() {
            let rules = config.validation_rules(request.origin, now_ms);
            results.push(validate(request.records, &rules, &mut scratch));
        }
        let mut validated = Vec::with_capacity(requests.len());
        let mut answers = Vec::with_capacity(requests.len());
        for result in results {
            match result {
                Ok(good) => {
                    validated.push(Some(good));
                    answers.push(Err(Error::InvalidArgument("not appended yet".to_owned())));
                }
                Err(error) => {
                    validated.push(None);
                    answers.push(Err(error));
                }
            }
        }
        let mut appender = self.appender.lock();
        appender.scratch = scratch;
        self.append_validated(
            &mut appender,
            requests,
            &mut validated,
            &mut answers,
            &config,
            now_ms,
        );
        drop(appender);
        self.notify();
        let unflushed = {
            let ends = self.ends.read();
            ends.log_end.offset - ends.flushed.offset
        };
        if unflushed > 0 && unflushed >= config.flush_messages {
            // Its failure is the directory's: the records were appended, and `flush` has poisoned it.
            let _ = self.flush();
        }
        answers
    }

    fn take_scratch(&self) -> Scratch {
        // Whoever finds the lock taken validates with a fresh buffer rather than wait.
        self.appender
            .try_lock()
            .map(|mut a| std::mem::take(&mut a.scratch))
            .unwrap_or_default()
    }

    fn append_validated(
        &self,
        appender: &mut Appender,
        requests: &mut [AppendRequest<'_>],
        validated: &mut [Option<Validated>],
        answers: &mut [Result<AppendInfo>],
        config: &LogConfig,
        now_ms: i64,
    ) {
        let mut run = Run::new(
            appender.producers.prepare(),
            self.ends.read().log_end.offset,
        );
        for index in 0..requests.len() {
            if validated[index].is_none() {
                continue;
            }
            if let Err(error) = self.check_writable() {
                answers[index] = Err(error);
                continue;
            }
            let made_room = self.make_room(
                appender, &mut run, requests, validated, answers, index, config, now_ms,
            );
            answers[index] = made_room.and_then(|()| {
                let request = &mut requests[index];
                match &mut validated[index] {
                    Some(good) => {
                        self.stage(appender, &mut run, index, request, good, config, now_ms)
                    }
                    None => Err(Error::InvalidArgument("no records".to_owned())),
                }
            });
        }
        self.write_run(appender, &mut run, requests, validated, answers);
    }

    /// Rolls, writing the run before it, if the next request does not fit in the active segment.
    #[expect(
        clippy::too_many_arguments,
        reason = "the state of one append call, private"
    )]
    fn make_room(
        &self,
        appender: &mut Appender,
        run: &mut Run,
        requests: &[AppendRequest<'_>],
        validated: &[Option<Validated>],
        answers: &mut [Result<AppendInfo>],
        index: usize,
        config: &LogConfig,
        now_ms: i64,
    ) -> Result<()> {
        let Some(good) = &validated[index] else {
            return Ok(());
        };
        let size_bytes = bytes_of(&requests[index], good).len() as u64;
        if size_bytes > config.segment_bytes {
            return Err(Error::RecordListTooLarge {
                size_bytes: size_bytes as usize,
                max_bytes: config.segment_bytes as usize,
            });
        }
        let is_follower = requests[index].origin == AppendOrigin::Replication;
        let count: i64 = good
            .batches
            .iter()
            .map(|b| i64::from(b.header.last_offset_delta) + 1)
            .sum();
        let last_offset = match good.batches.last() {
            Some(batch) if is_follower => batch.header.last_offset(),
            _ => run.next_offset + count - 1,
        };
        let timestamps = good.batches.iter().map(|batch| batch.header.max_timestamp);
        let max_timestamp = timestamps.max().unwrap_or(NO_TIMESTAMP);
        let active = self.active_segment()?;
        let bytes = run.size_bytes + size_bytes;
        if !active.should_roll(bytes, last_offset, max_timestamp, config, now_ms)? {
            return Ok(());
        }
        self.write_run(appender, run, requests, validated, answers);
        self.health.check()?;
        if active.size_bytes() > 0 {
            let first = good
                .batches
                .first()
                .map_or(run.next_offset, |b| b.header.base_offset);
            let base_offset = if is_follower {
                first.max(run.next_offset)
            } else {
                run.next_offset
            };
            self.roll(appender, base_offset, now_ms)?;
        }
        Ok(())
    }

    /// Gives offsets, judges the producers, patches the batches, and adds them to the run.
    #[expect(
        clippy::too_many_arguments,
        reason = "the state of one append call, private"
    )]
    fn stage(
        &self,
        appender: &mut Appender,
        run: &mut Run,
        index: usize,
        request: &mut AppendRequest<'_>,
        good: &mut Validated,
        config: &LogConfig,
        now_ms: i64,
    ) -> Result<AppendInfo> {
        let is_follower = request.origin == AppendOrigin::Replication;
        let active = self.active_segment()?;
        let segment_base_offset = active.base_offset();
        let start_position = active.size_bytes() + run.size_bytes;
        let mut next_offset = run.next_offset;
        for batch in good.batches.iter_mut() {
            if is_follower {
                if batch.header.base_offset < next_offset {
                    return Err(Error::UnexpectedAppendOffset {
                        expected_offset: next_offset,
                        found_offset: batch.header.base_offset,
                    });
                }
            } else {
                batch.header.base_offset = next_offset;
                batch.header.partition_leader_epoch = request.leader_epoch;
            }
            next_offset = batch.header.next_offset();
            let (epoch, offset) = (
                batch.header.partition_leader_epoch,
                batch.header.base_offset,
            );
            if batch.header.magic >= 2 && epoch >= 0 && self.epochs.read().is_new(epoch, offset) {
                self.assign_epoch(epoch, offset)?;
            }
        }
        // A refused batch leaves the overlay as it was. Only where a request has several batches can
        // one be refused behind one that was taken.
        let before = (good.batches.len() > 1).then(|| run.pending.clone());
        let mut aborted = Vec::new();
        for batch in good.batches.iter() {
            let outcome = appender.producers.prepare_batch(
                &mut run.pending,
                &batch.header,
                request.origin,
                request.transaction_version,
                batch.marker,
                Some(SegmentPosition {
                    segment_base_offset,
                    position_byte: start_position + batch.position_byte as u64,
                }),
            );
            match outcome {
                Ok(BatchOutcome::Append { completed }) => {
                    aborted.extend(completed.and_then(|completed| completed.aborted()));
                }
                Ok(BatchOutcome::Duplicate {
                    base_offset,
                    last_offset,
                    timestamp,
                }) => {
                    // A producer's request is one batch, so nothing of it was staged before.
                    run.requests.push(index);
                    return Ok(AppendInfo {
                        first_offset: base_offset,
                        last_offset,
                        log_append_time_ms: timestamp,
                        log_start_offset: self.ends.read().log_start_offset,
                        is_duplicate: true,
                    });
                }
                Err(error) => {
                    if let Some(before) = before {
                        run.pending = before;
                    }
                    return Err(error);
                }
            }
        }
        let first_offset = good
            .batches
            .first()
            .map_or(next_offset, |b| b.header.base_offset);
        run.aborted.extend(aborted);
        run.requests.push(index);
        let bytes = match &mut good.replacement {
            Some(replacement) => replacement.as_mut_slice(),
            None => &mut *request.records,
        };
        for batch in good.batches.iter() {
            let (start, end) = (batch.position_byte, batch.position_byte + batch.size_bytes);
            if !is_follower {
                let header = &batch.header;
                patch_offset_and_epoch(
                    &mut bytes[start..end],
                    header.base_offset,
                    header.partition_leader_epoch,
                );
            }
            run.pieces.push(Piece {
                request: index,
                start,
                end,
            });
            run.batches.push(WrittenBatch {
                last_offset: batch.header.last_offset(),
                size_bytes: batch.size_bytes as u64,
                max_timestamp: batch.header.max_timestamp,
            });
            run.size_bytes += batch.size_bytes as u64;
        }
        run.next_offset = next_offset;
        let is_log_append_time = config.message_timestamp_type == TimestampType::LogAppendTime;
        Ok(AppendInfo {
            first_offset,
            last_offset: next_offset - 1,
            log_append_time_ms: if is_log_append_time {
                now_ms
            } else {
                NO_TIMESTAMP
            },
            log_start_offset: self.ends.read().log_start_offset,
            is_duplicate: false,
        })
    }

    /// Writes the run and publishes it, or fails all its requests and restores what was before.
    /// Leaves an empty run that goes on at the log end.
    fn write_run(
        &self,
        appender: &mut Appender,
        run: &mut Run,
        requests: &[AppendRequest<'_>],
        validated: &[Option<Validated>],
        answers: &mut [Result<AppendInfo>],
    ) {
        if !run.batches.is_empty()
            && let Err(error) = self.write_batches(run, requests, validated)
        {
            for index in &run.requests {
                answers[*index] = Err(error.clone());
            }
            *run = Run::new(
                appender.producers.prepare(),
                self.ends.read().log_end.offset,
            );
            return;
        }
        let next_offset = run.next_offset;
        let done = std::mem::replace(run, Run::new(appender.producers.prepare(), next_offset));
        if done.batches.is_empty() {
            return;
        }
        appender.producers.commit(done.pending, next_offset);
        run.pending = appender.producers.prepare();
        self.publish_end(appender);
    }

    fn write_batches(
        &self,
        run: &Run,
        requests: &[AppendRequest<'_>],
        validated: &[Option<Validated>],
    ) -> Result<()> {
        let active = self.active_segment()?;
        let mut buffers: Vec<IoSlice<'_>> = Vec::with_capacity(run.pieces.len());
        for piece in &run.pieces {
            if let Some(good) = &validated[piece.request] {
                let bytes = bytes_of(&requests[piece.request], good);
                buffers.push(IoSlice::new(&bytes[piece.start..piece.end]));
            }
        }
        let mut written = active.write(&mut buffers);
        if written.is_ok() && !run.aborted.is_empty() {
            written = active.append_aborted(&run.aborted);
        }
        if let Err(error) = written {
            if let Err(broken) = active.cut_back() {
                self.health.fail(&broken);
            }
            return Err(error);
        }
        active.note_written(&run.batches);
        Ok(())
    }

    /// Publishes the active segment's end as the log's, with the first unstable offset.
    fn publish_end(&self, appender: &mut Appender) {
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
        ends.first_unstable_offset = appender
            .producers
            .first_unstable_offset()
            .map(|unstable| unstable.offset);
    }

    pub(super) fn assign_epoch(&self, epoch: i32, start_offset: i64) -> Result<()> {
        let mut epochs = self.epochs.write();
        let before = epochs.clone();
        if epochs.assign(epoch, start_offset)?
            && let Err(error) = self.write_epochs(&epochs)
        {
            *epochs = before;
            return Err(error);
        }
        Ok(())
    }

    /// A new leader's epoch starts at the log end, before its first record.
    pub fn start_leader_epoch(&self, epoch: i32) -> Result<()> {
        let appender = self.appender.lock();
        let log_end_offset = self.ends.read().log_end.offset;
        let result = self.assign_epoch(epoch, log_end_offset);
        drop(appender);
        result
    }

    pub(super) fn write_epochs(&self, epochs: &LeaderEpochs) -> Result<()> {
        epochs.write(self.storage(), &self.directory.read())
    }

    /// Starts a new segment at `base_offset`. The old one is closed; what makes it durable comes
    /// with the next flush, and its part of the recovery point after that.
    pub(super) fn roll(
        &self,
        appender: &mut Appender,
        base_offset: i64,
        now_ms: i64,
    ) -> Result<Arc<Segment>> {
        let config = self.config();
        let old = self.active_segment()?;
        appender.producers.set_map_end_offset(base_offset);
        appender
            .snapshots
            .take(self.storage(), &appender.producers, false)?;
        let jitter = next_jitter(&mut appender.jitter_seed, config.segment_jitter_ms);
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
        self.directory_is_dirty.store(true, Ordering::Release);
        self.segments.write().insert(base_offset, new.clone());
        Ok(new)
    }

    /// Tells the observer; without locks.
    pub(super) fn notify(&self) {
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

impl LogEnds {
    pub fn offsets(&self) -> LogOffsets {
        LogOffsets {
            log_start_offset: self.log_start_offset,
            log_end_offset: self.log_end.offset,
            flushed_offset: self.flushed.offset,
            high_watermark: self.high_watermark.offset,
            last_stable_offset: self.last_stable_offset(),
            recovery_point: self.recovery_point,
        }
    }

    pub fn last_stable_offset(&self) -> i64 {
        let high_watermark = self.high_watermark.offset;
        self.first_unstable_offset
            .map_or(high_watermark, |unstable| {
                high_watermark.min(unstable.max(self.log_start_offset))
            })
    }

    /// Moves the high watermark to what is replicated and, with `acks_fsync`, flushed. It never
    /// goes back here. Returns whether it moved.
    pub fn advance_high_watermark(&mut self, acks_fsync: bool) -> bool {
        let mut target = if acks_fsync {
            self.flushed
        } else {
            self.log_end
        };
        if self.replicated_offset < target.offset {
            // The byte is found when a reader needs it.
            target = LogPosition {
                offset: self.replicated_offset,
                segment_base_offset: -1,
                position_byte: 0,
            };
        }
        let moved = target.offset > self.high_watermark.offset;
        if moved {
            self.high_watermark = target;
        }
        moved
    }
}

fn bytes_of<'a>(request: &'a AppendRequest<'_>, good: &'a Validated) -> &'a [u8] {
    good.replacement.as_deref().unwrap_or(request.records)
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

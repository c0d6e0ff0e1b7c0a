//! Appending: several requests for one partition, each one or more batches, by one `pwritev`.
//!
//! ```text
//! judge (no lock)    → │ append lock │ stage: offsets, leader epoch, producers ─┐
//!                      │             │ … next request of the call …             ├─► write_run ─► publish
//!                      │             │ the segment is full: write_run, roll ────┘
//! ```
//! Staging changes the batches and an overlay of the producer state, nothing else. Only when the
//! bytes are written do overlay, indexes and log end become those of the log; when the write
//! fails, the file is cut back and the overlay dropped.

use std::io::IoSlice;
use std::sync::Arc;

use crate::batch::header::{NO_TIMESTAMP, TimestampType, patch_offset_and_epoch};
use crate::batch::validate::{AppendOrigin, BatchSummary, Validated};
use crate::error::{Error, Result};

use super::config::LogConfig;
use super::log::{Appender, Log};
use super::segment::room::Room;
use super::segment::{Segment, WrittenBatch};
use super::state::producers::AbortedTransaction;
use super::state::producers::{BatchOutcome, PendingUpdates, SegmentPosition};

/// Records for one partition: one or more batches, back to back.
pub struct AppendRequest<'a> {
    /// Changed in place: base offsets, leader epochs, and a max timestamp that was wrong.
    pub records: &'a mut [u8],
    pub origin: AppendOrigin,
    /// The epoch of the leader that appends; a follower's batches carry their own.
    pub leader_epoch: i32,
    /// Version of the transactions (KIP-890); needed for markers of a coordinator only.
    pub transaction_version: Option<i16>,
    /// The verification guard of its transaction, for a client's records; `None` requires
    /// none (`verification.rs`).
    pub guard: Option<u64>,
}

/// The answer to an append.
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

impl Log {
    /// Appends the requests in order, several batches by one write; one answer for each.
    ///
    /// After it returns, the records of each `Ok` are in the page cache, have their offsets, and
    /// are seen by readers bounded by the log end; they are durable once `offsets().flushed_offset`
    /// has passed them. A request that is refused changes nothing. If a write fails or is short,
    /// every request of that write fails with it, and file, log end and producer state are what
    /// they were before; if the file cannot be brought back, the log directory goes offline. Behind
    /// a request of a leader's records that failed, the others of the same leader fail with it.
    ///
    /// May run beside any other call. Holds the append lock while it writes.
    pub fn append(
        &self,
        requests: &mut [AppendRequest<'_>],
        now_ms: i64,
    ) -> Vec<Result<AppendInfo>> {
        let mut any_bytes = usize::MAX;
        self.append_checked(requests, now_ms, &mut any_bytes, |_| Ok(()))
    }

    /// Appends as `append` does, in the leader epoch that `leading_epoch` gives under the append
    /// lock: a change of role or epoch comes between two appends, and no record has an older epoch
    /// than one before it. Its error is each request's. `inflated_bytes_left`: as of `judge`.
    pub fn append_as_leader(
        &self,
        requests: &mut [AppendRequest<'_>],
        now_ms: i64,
        inflated_bytes_left: &mut usize,
        leading_epoch: impl FnOnce() -> Result<i32>,
    ) -> Vec<Result<AppendInfo>> {
        self.append_checked(requests, now_ms, inflated_bytes_left, |requests| {
            let leader_epoch = leading_epoch()?;
            for request in requests {
                request.leader_epoch = leader_epoch;
            }
            Ok(())
        })
    }

    /// Appends what a leader has sent, as `append` does, as long as the role of this number is the
    /// replica's (`begin_role`) and the log still ends at `fetch_offset`: both are looked at under
    /// the append lock. Behind a request that fails the others fail with it.
    ///
    /// Errors, of each: `NotLeader` for another role, `UnexpectedAppendOffset` for another end.
    pub fn append_as_follower(
        &self,
        requests: &mut [AppendRequest<'_>],
        (role, fetch_offset): (u64, i64),
        now_ms: i64,
    ) -> Vec<Result<AppendInfo>> {
        let mut any_bytes = usize::MAX;
        self.append_checked(requests, now_ms, &mut any_bytes, |_| {
            self.check_role(role)?;
            let expected_offset = self.offsets().log_end_offset;
            if expected_offset == fetch_offset {
                Ok(())
            } else {
                Err(Error::UnexpectedAppendOffset {
                    expected_offset,
                    found_offset: fetch_offset,
                })
            }
        })
    }

    fn append_checked(
        &self,
        requests: &mut [AppendRequest<'_>],
        now_ms: i64,
        inflated_bytes_left: &mut usize,
        check: impl FnOnce(&mut [AppendRequest<'_>]) -> Result<()>,
    ) -> Vec<Result<AppendInfo>> {
        let config = self.config();
        let mut judged = self.judge(requests, &config, now_ms, inflated_bytes_left);
        if config.acks_fsync {
            self.flush_before_roll(&judged, &config, now_ms);
        }
        let mut appender = self.lock_appender();
        let active = check(requests).and_then(|()| self.active_segment());
        let answers = match active {
            Ok(active) => Appending::new(self, &config, &mut appender, requests, active, now_ms)
                .append_all(&mut judged),
            Err(error) => judged.iter().map(|_| Err(error.clone())).collect(),
        };
        drop(appender);
        self.notify();
        let ends = *self.ends.read();
        let unflushed = ends.log_end.offset - ends.flushed.offset;
        if unflushed > 0 && unflushed >= config.flush_messages {
            // Its failure is the directory's: the records were appended, and
            // `flush` has poisoned it.
            let _ = self.flush();
        }
        answers
    }

    /// A roll has the old segment on disk before the new one has a name (`roll`). Where these
    /// requests are about to cause one, the wait is made here, before the append lock is taken;
    /// under it, what others have appended meanwhile is left to wait for, most often nothing.
    fn flush_before_roll(&self, judged: &[Result<Validated>], config: &LogConfig, now_ms: i64) {
        let accepted = judged.iter().flatten();
        let max_timestamp = accepted.clone().map(Validated::max_timestamp).max();
        let size_bytes = accepted.clone().map(|good| good.size_bytes() as u64).sum();
        let offsets_count: i64 = accepted.map(Validated::offsets_count).sum();
        // Of a leader's batches, whose offsets are its own, any sum can come.
        let log_end_offset = self.ends.read().log_end.offset;
        let last_offset = log_end_offset.saturating_add(offsets_count - 1);
        let (Some(max_timestamp), Ok(active)) = (max_timestamp, self.active_segment()) else {
            return;
        };
        let room = active.room(config, now_ms);
        if room.is_ok_and(|room| !room.holds(0, size_bytes, last_offset, max_timestamp)) {
            // Its failure is the directory's, and stops the append.
            let _ = self.flush();
        }
    }
}

/// One call of `append`, under the append lock.
struct Appending<'a, 'r> {
    log: &'a Log,
    config: &'a LogConfig,
    appender: &'a mut Appender,
    requests: &'a mut [AppendRequest<'r>],
    active: Arc<Segment>,
    /// Room of the active segment, until it is written to.
    room: Option<Room>,
    log_start_offset: i64,
    run: Run,
    answers: Vec<Result<AppendInfo>>,
    /// Why a request of a leader's records was refused or lost. Those behind it bring their own
    /// offsets, and would leave a gap.
    gap: Option<Error>,
    now_ms: i64,
}

/// The batches of one write, all of them in the active segment.
struct Run {
    /// Requests whose records it writes.
    staged: Vec<usize>,
    pending: PendingUpdates,
    aborted: Vec<AbortedTransaction>,
    size_bytes: u64,
    next_offset: i64,
    /// Requests whose answer depends on this write; duplicates of batches in it are among them.
    requests: Vec<usize>,
    /// Some of the batches belong to transactions.
    has_transactions: bool,
}

impl Run {
    /// With room for so many requests.
    fn new(pending: PendingUpdates, next_offset: i64, requests: usize) -> Run {
        Run {
            staged: Vec::with_capacity(requests),
            pending,
            aborted: Vec::new(),
            size_bytes: 0,
            next_offset,
            requests: Vec::with_capacity(requests),
            has_transactions: false,
        }
    }
}

impl<'a, 'r> Appending<'a, 'r> {
    fn new(
        log: &'a Log,
        config: &'a LogConfig,
        appender: &'a mut Appender,
        requests: &'a mut [AppendRequest<'r>],
        active: Arc<Segment>,
        now_ms: i64,
    ) -> Appending<'a, 'r> {
        let ends = *log.ends.read();
        let pending = appender.producers.prepare();
        let run = Run::new(pending, ends.log_end.offset, requests.len());
        let answers = Vec::with_capacity(requests.len());
        Appending {
            log,
            config,
            appender,
            requests,
            active,
            room: None,
            log_start_offset: ends.log_start_offset,
            run,
            answers,
            gap: None,
            now_ms,
        }
    }

    /// `judged` is what validation said to each request; what it accepted gets its offsets.
    fn append_all(mut self, judged: &mut [Result<Validated>]) -> Vec<Result<AppendInfo>> {
        for request in 0..judged.len() {
            let (before, this) = judged.split_at_mut(request);
            let answer = match &mut this[0] {
                Ok(good) => self.append_one(request, good, before),
                Err(error) => Err(error.clone()),
            };
            if self.is_replicated(request)
                && let Err(error) = &answer
            {
                self.gap.get_or_insert_with(|| error.clone());
            }
            self.answers.push(answer);
        }
        self.write_run(judged);
        self.answers
    }

    fn append_one(
        &mut self,
        request: usize,
        good: &mut Validated,
        before: &[Result<Validated>],
    ) -> Result<AppendInfo> {
        self.log.check_writable()?;
        self.check_no_gap(request)?;
        let start = self.make_room(request, good, before)?;
        let next_offset = self.assign_offsets(request, good)?;
        let first_offset = good
            .batches
            .first()
            .map_or(next_offset, |b| b.header.base_offset);
        if let Some(duplicate) = self.judge_producers(request, good, start)? {
            self.run.requests.push(request);
            return Ok(duplicate);
        }
        if self.requests[request].origin != AppendOrigin::Replication {
            write_offsets(good, self.requests[request].records);
        }
        self.run.size_bytes += good.size_bytes() as u64;
        self.run.next_offset = next_offset;
        self.run.requests.push(request);
        if self.run.staged.is_empty()
            && let Some(room) = &mut self.room
            && let Some(first) = good.batches.first()
        {
            room.begin(first.header.max_timestamp);
        }
        self.run.staged.push(request);
        let stamps = self.config.message_timestamp_type == TimestampType::LogAppendTime;
        Ok(AppendInfo {
            first_offset,
            last_offset: next_offset - 1,
            log_append_time_ms: if stamps { self.now_ms } else { NO_TIMESTAMP },
            log_start_offset: self.log_start_offset,
            is_duplicate: false,
        })
    }

    /// The records come from a leader or another log, which have judged them.
    fn is_replicated(&self, request: usize) -> bool {
        self.requests[request].origin == AppendOrigin::Replication
    }

    /// Errors: what befell the request of the leader's records before this one.
    fn check_no_gap(&self, request: usize) -> Result<()> {
        match &self.gap {
            Some(gap) if self.is_replicated(request) => Err(gap.clone()),
            _ => Ok(()),
        }
    }

    /// Rolls, writing the run before it, if the request does not fit in the active segment. Returns
    /// where in it the request will start, bytes.
    fn make_room(
        &mut self,
        request: usize,
        good: &Validated,
        before: &[Result<Validated>],
    ) -> Result<u64> {
        let size_bytes = good.size_bytes() as u64;
        if size_bytes > self.config.segment_bytes {
            return Err(Error::RecordListTooLarge {
                size_bytes: good.size_bytes(),
                max_bytes: self.config.segment_bytes as usize,
            });
        }
        let (first_offset, last_offset) = self.offsets_of(request, good);
        let staged_bytes = self.run.size_bytes;
        let room = match &self.room {
            Some(room) => room,
            None => {
                let room = self.active.room(self.config, self.now_ms)?;
                self.room.insert(room)
            }
        };
        if room.holds(staged_bytes, size_bytes, last_offset, good.max_timestamp()) {
            return Ok(room.size_bytes + staged_bytes);
        }
        self.write_run(before);
        self.log.check_writable()?;
        self.check_no_gap(request)?;
        // What was to be written may have failed: then the offsets start lower than thought. What a
        // leader has sent may begin above them, where offsets were compacted away. The segment
        // begins at the log end even so, if its index can hold the records: were it to stay empty,
        // another leader's records for the gap would have no place. Kafka begins it at the first
        // offset (`UnifiedLog.maybeRoll`), and takes the directory offline when a write fails.
        let lowest = last_offset.saturating_sub(i64::from(i32::MAX));
        let base_offset = self.run.next_offset.max(lowest.min(first_offset));
        if self.active.size_bytes() > 0 || base_offset > self.active.base_offset() {
            self.active = self.log.roll(self.appender, base_offset, self.now_ms)?;
            self.run.pending = self.appender.producers.prepare();
        }
        // Of the new segment too: what is staged there first begins its time.
        let room = self.active.room(self.config, self.now_ms)?;
        self.room = Some(room);
        Ok(room.size_bytes)
    }

    /// First and last offset of the request: those that it brings, as a
    /// follower's does, or will get.
    fn offsets_of(&self, request: usize, good: &Validated) -> (i64, i64) {
        let next_offset = self.run.next_offset;
        match (good.batches.first(), good.batches.last()) {
            (Some(first), Some(last)) if self.is_replicated(request) => (
                first.header.base_offset.max(next_offset),
                last.header.last_offset(),
            ),
            _ => (next_offset, next_offset + good.offsets_count() - 1),
        }
    }

    /// Gives the batches their offsets and leader epoch, or checks those that a leader gave.
    /// Returns the offset behind them. Errors: `UnexpectedAppendOffset`; `Io` for a new epoch.
    fn assign_offsets(&self, request: usize, good: &mut Validated) -> Result<i64> {
        let mut next_offset = self.run.next_offset;
        for batch in good.batches.iter_mut() {
            let header = &mut batch.header;
            if !self.is_replicated(request) {
                header.base_offset = next_offset;
                header.partition_leader_epoch = self.requests[request].leader_epoch;
            } else if header.base_offset < next_offset {
                return Err(Error::UnexpectedAppendOffset {
                    expected_offset: next_offset,
                    found_offset: header.base_offset,
                });
            }
            let (epoch, offset) = (header.partition_leader_epoch, header.base_offset);
            if header.magic >= 2 && epoch >= 0 && self.log.epochs.read().is_new(epoch, offset) {
                self.log.assign_epoch(epoch, offset)?;
            }
            next_offset = header.next_offset();
        }
        Ok(next_offset)
    }

    /// Brings the batches into the overlay, or nothing if one is refused. `Some`: the request is in
    /// the log already. `start` is where it will start in the segment, bytes.
    fn judge_producers(
        &mut self,
        request: usize,
        good: &Validated,
        start: u64,
    ) -> Result<Option<AppendInfo>> {
        // A refused batch leaves the overlay as it was. Only where a request has several batches
        // can one be refused behind one that was taken.
        let before = (good.batches.len() > 1).then(|| self.run.pending.clone());
        let aborted_before = self.run.aborted.len();
        for batch in good.batches.iter() {
            let outcome = self.judge_producer(request, batch, start);
            match outcome {
                Ok(BatchOutcome::Append { completed }) => {
                    let aborted = completed.and_then(|completed| completed.aborted());
                    self.run.aborted.extend(aborted);
                }
                // A producer's request is one batch, so nothing of it was staged before.
                Ok(BatchOutcome::Duplicate {
                    base_offset,
                    last_offset,
                    timestamp,
                }) => {
                    return Ok(Some(AppendInfo {
                        first_offset: base_offset,
                        last_offset,
                        log_append_time_ms: timestamp,
                        log_start_offset: self.log_start_offset,
                        is_duplicate: true,
                    }));
                }
                Err(error) => {
                    if let Some(before) = before {
                        self.run.pending = before;
                    }
                    self.run.aborted.truncate(aborted_before);
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Judges one batch; `start` is the byte of the segment at which its request's batches begin.
    fn judge_producer(
        &mut self,
        request: usize,
        batch: &BatchSummary,
        start: u64,
    ) -> Result<BatchOutcome> {
        let AppendRequest {
            origin,
            transaction_version,
            guard,
            ..
        } = self.requests[request];
        self.run.has_transactions |= batch.header.is_transactional();
        let position = SegmentPosition {
            segment_base_offset: self.active.base_offset(),
            position_byte: start + batch.position_byte as u64,
        };
        let producers = &self.appender.producers;
        let verifications = &self.log.verifications;
        let pending = &mut self.run.pending;
        if let Some(guard) = guard {
            producers.check_verified(pending, &batch.header, guard, verifications)?;
        }
        producers.prepare_batch(
            pending,
            &batch.header,
            origin,
            transaction_version,
            batch.marker,
            Some(position),
        )
    }

    /// Writes the run and publishes it, or fails all its requests and restores what was before.
    /// Leaves an empty run that goes on at the log end.
    fn write_run(&mut self, judged: &[Result<Validated>]) {
        if self.run.staged.is_empty() {
            return;
        }
        self.room = None;
        let start_byte = self.active.size_bytes();
        let written = self.write_batches(judged);
        let log_end_offset = self.log.ends.read().log_end.offset;
        let empty = Run::new(self.appender.producers.prepare(), log_end_offset, 0);
        let run = std::mem::replace(&mut self.run, empty);
        if let Err(error) = written {
            if run
                .requests
                .iter()
                .any(|request| self.is_replicated(*request))
            {
                self.gap = Some(error.clone());
            }
            for request in run.requests {
                // The request that is being appended has no answer yet, and is not of this run.
                self.answers[request] = Err(error.clone());
            }
            return;
        }
        let records = run.next_offset.saturating_sub(log_end_offset);
        let traffic = &self.log.traffic;
        if run
            .staged
            .iter()
            .any(|request| self.is_replicated(*request))
        {
            traffic.note_replicated(run.size_bytes);
        } else {
            traffic.note_appended(records.cast_unsigned(), run.size_bytes);
        }
        // What was staged is what was written, and what the producers know.
        let end = self.active.end();
        assert_eq!(
            (end.next_offset, end.size_bytes),
            (run.next_offset, start_byte + run.size_bytes)
        );
        assert!(self.appender.producers.map_end_offset() <= run.next_offset);
        self.appender.producers.commit(run.pending, run.next_offset);
        if run.has_transactions {
            self.note_transactions(&run.staged, judged);
        }
        self.log.publish_end(self.appender);
        self.run = Run::new(self.appender.producers.prepare(), run.next_offset, 0);
    }

    /// Tells the verifications of what was written.
    fn note_transactions(&self, staged: &[usize], judged: &[Result<Validated>]) {
        for &request in staged {
            let transaction_version = self.requests[request].transaction_version;
            let batches = judged[request].iter().flat_map(|good| good.batches.iter());
            let batches = batches.filter(|batch| batch.header.has_producer_id());
            for batch in batches.filter(|batch| batch.header.is_transactional()) {
                let verifications = &self.log.verifications;
                verifications.note_written(&batch.header, transaction_version);
            }
        }
    }

    fn write_batches(&self, judged: &[Result<Validated>]) -> Result<()> {
        let staged = self.run.staged.iter();
        let staged = staged.filter_map(|&request| Some((request, judged[request].as_ref().ok()?)));
        let mut buffers: Vec<IoSlice<'_>> = Vec::with_capacity(self.run.staged.len());
        for (request, good) in staged.clone() {
            buffers.push(IoSlice::new(good.bytes(self.requests[request].records)));
        }
        let file = self.active.file();
        let file = file.inspect_err(|error| self.log.health.fail_for_good(error))?;
        let mut written = self.active.write(&*file, &mut buffers);
        if written.is_ok() && !self.run.aborted.is_empty() {
            written = self.active.append_aborted(&self.run.aborted);
        }
        if let Err(error) = written {
            if let Err(broken) = self.active.cut_back(&*file) {
                self.log.health.fail(&broken);
            }
            self.log.health.fail_unless_short(&error);
            return Err(error);
        }
        let batches = staged.flat_map(|(_, good)| good.batches.iter());
        self.active.note_written(batches.map(|batch| WrittenBatch {
            last_offset: batch.header.last_offset(),
            size_bytes: batch.size_bytes as u64,
            max_timestamp: batch.header.max_timestamp,
        }));
        Ok(())
    }
}

/// Writes what the log has given into the batches, outside their CRC.
fn write_offsets(good: &mut Validated, records: &mut [u8]) {
    for slot in 0..good.batches.len() {
        let batch = good.batches[slot];
        let range = batch.position_byte..batch.position_byte + batch.size_bytes;
        let (offset, epoch) = (
            batch.header.base_offset,
            batch.header.partition_leader_epoch,
        );
        patch_offset_and_epoch(&mut good.bytes_mut(records)[range], offset, epoch);
    }
}

//! The changes that a follower makes to its log: it takes a leader's batches, or cuts its own. Each
//! of these looks, under the append lock, whether the replica still follows in the leader epoch in
//! which it was told to: what a former leader has sent must not reach a log that is led by now.

use std::sync::atomic::Ordering;

use crate::batch::AppendOrigin;
use crate::batch::header::{LEADER_EPOCH_AT, MAGIC_AT, MAGIC_PREFIX, batch_size};
use crate::error::{Error, Result};
use crate::log::append::AppendRequest;
use crate::log::compact::cleaner_checkpoint;
use crate::replica::Partition;

/// The place of a follower's Fetch: the leader epoch and the log start offset of the leader, and
/// the offset from which it was asked.
#[derive(Clone, Copy)]
pub struct FetchedFrom {
    pub leader_epoch: i32,
    pub leader_start: i64,
    pub fetch_offset: i64,
}

impl Partition {
    /// Appends batches that the leader has sent for a Fetch. Returns the log end offset. Batches of
    /// a later epoch, and all behind them, are dropped: the log at the leader has changed since
    /// (KAFKA-18723). So is a last batch that is not whole. What a leader has taken fits here,
    /// whatever the size (KAFKA-9617), except that a batch does not exceed a segment.
    ///
    /// Errors: `NotLeader` if the replica plays another role by now, `UnexpectedAppendOffset` if
    /// the log does not end at `fetch_offset` any more or the batches go back; those of
    /// `Log::append`. Batches before the one at fault may have been appended.
    pub fn append_as_follower(
        &self,
        records: &mut [u8],
        fetched: FetchedFrom,
        now_ms: i64,
    ) -> Result<i64> {
        let FetchedFrom {
            leader_epoch,
            leader_start,
            fetch_offset,
        } = fetched;
        let taken = bytes_up_to_epoch(records, leader_epoch)?;
        let records = &mut records[..taken];
        let is_empty = self.is_empty_beside(leader_start);
        if self.ends_within_a_batch(records, fetch_offset, is_empty) {
            let first_offset = base_offset(records);
            if is_empty {
                // The log then starts below the leader's log start until `follow_log_start`, as in
                // Kafka: no log starts above its high watermark. No ListOffsets shows it: this
                // replica is not in sync, and does not lead.
                self.start_anew(first_offset, now_ms)?;
            } else {
                self.truncate_as_follower(first_offset, now_ms)?;
            }
            // Lower, where a batch of its own straddles that offset: the
            // next fetch goes from there.
            let end = self.log.offsets().log_end_offset;
            if end != first_offset {
                return Ok(end);
            }
            return self.append_at(records, leader_epoch, first_offset, now_ms);
        }
        self.append_at(records, leader_epoch, fetch_offset, now_ms)
    }

    fn append_at(
        &self,
        records: &mut [u8],
        leader_epoch: i32,
        fetch_offset: i64,
        now_ms: i64,
    ) -> Result<i64> {
        let segment_bytes = self.log.config().segment_bytes;
        let mut requests: Vec<AppendRequest<'_>> = split(records, segment_bytes)?
            .into_iter()
            .map(|records| AppendRequest {
                records,
                origin: AppendOrigin::Replication,
                leader_epoch,
                transaction_version: None,
                guard: None,
            })
            .collect();
        let place = (self.role_number, fetch_offset);
        let answers = self.log.append_as_follower(&mut requests, place, now_ms);
        answers.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(self.log.offsets().log_end_offset)
    }

    /// The log ends within the leader's first batch: records were deleted there up to the middle of
    /// it. An empty log is to begin with that batch
    /// (`Partition.appendRecordsToFollowerOrFutureReplica`). One that is not empty has other
    /// records in place of the first ones of that batch, none of them committed, which the epochs
    /// of the leader could not tell any more; Kafka's does not follow any more then.
    fn ends_within_a_batch(&self, records: &[u8], fetch_offset: i64, is_empty: bool) -> bool {
        let offsets = self.log.offsets();
        let first = if is_empty { 0 } else { offsets.high_watermark };
        fetch_offset == offsets.log_end_offset
            && !records.is_empty()
            && (first..fetch_offset).contains(&base_offset(records))
            && last_offset(records).is_some_and(|last| last >= fetch_offset)
    }

    /// The log holds nothing, or nothing that is not deleted at the leader: after an unclean
    /// election the batch in which that begins may be another one than that of the same offsets
    /// here, below the high watermark, too.
    fn is_empty_beside(&self, leader_start: i64) -> bool {
        let offsets = self.log.offsets();
        offsets.log_end_offset <= leader_start.max(offsets.log_start_offset)
    }

    /// Cuts the log at `offset`, since the leader does not have what lies behind; a batch that
    /// straddles it goes whole, and the log ends where that began: the leader's log begins at
    /// `offset` then, by records that were deleted.
    ///
    /// Errors: `NotLeader` if the replica plays another role by now, those of `Log::truncate_to`.
    pub fn truncate_as_follower(&self, offset: i64, now_ms: i64) -> Result<()> {
        let offset = self.log.start_of_batch(offset)?;
        let check = || self.log.check_role(self.role_number);
        let directory = || &**self.directory();
        cleaner_checkpoint::truncate(directory, &self.log, offset, now_ms, check)?;
        // What comes in place of the records that were cut off is not committed yet.
        let high_watermark = self.log.high_watermark();
        self.log
            .set_replicated_offset_in(self.role_number, high_watermark);
        Ok(())
    }

    /// Empties the log, since the leader's begins at `offset` only.
    /// Errors: as `truncate_as_follower`.
    pub fn start_anew(&self, offset: i64, now_ms: i64) -> Result<()> {
        let check = || self.log.check_role(self.role_number);
        let directory = || &**self.directory();
        cleaner_checkpoint::start_anew(directory, &self.log, offset, now_ms, check)?;
        self.log.set_replicated_offset_in(self.role_number, offset);
        Ok(())
    }

    /// Takes the leader's log start over, as far as the own high watermark lets it. Errors:
    /// `NotLeader` if the replica plays another role by now, those of
    /// `Log::advance_log_start_offset`.
    pub fn follow_log_start(&self, leader_start: i64) -> Result<()> {
        let offsets = self.log.offsets();
        let start = leader_start.min(offsets.high_watermark);
        if start > offsets.log_start_offset {
            let check = || self.log.check_role(self.role_number);
            self.log.advance_log_start_checked(start, check)?;
        }
        Ok(())
    }

    /// Takes what the leader has told of its high watermark: the own one is no higher, and never
    /// goes back by that. A number that cannot be is 0.
    pub fn follow_high_watermark(&self, leader_high_watermark: i64) {
        let told = leader_high_watermark.max(0);
        self.leader_high_watermark.store(told, Ordering::Relaxed);
        self.log.set_replicated_offset_in(self.role_number, told);
    }

    /// As the leader has told it last; -1: it has not.
    pub(super) fn leader_high_watermark(&self) -> i64 {
        self.leader_high_watermark.load(Ordering::Relaxed)
    }

    /// How many offsets of what the leader has committed are not in the log (Kafka's
    /// `FetcherLagMetrics`). `None`: this replica does not follow, or its leader has not said yet.
    pub fn lag(&self) -> Option<i64> {
        let told = self.leader_high_watermark.load(Ordering::Relaxed);
        let is_known = told >= 0 && self.is_following();
        is_known.then(|| {
            told.saturating_sub(self.log.offsets().log_end_offset)
                .max(0)
        })
    }

    /// This replica is what its partition has here, and follows in this epoch.
    pub fn is_following(&self) -> bool {
        self.log.check_role(self.role_number).is_ok() && self.waiters.ended().is_none()
    }
}

/// How many bytes of `records` lie before the first batch of an epoch above `leader_epoch`, and
/// before one that is not whole. Errors: `CorruptMessage` for a length that no batch has.
pub(in crate::replica) fn bytes_up_to_epoch(records: &[u8], leader_epoch: i32) -> Result<usize> {
    let mut taken = 0;
    loop {
        let rest = &records[taken..];
        let Some(size) = batch_size(rest)?.filter(|size| *size <= rest.len()) else {
            return Ok(taken);
        };
        if epoch_of(rest) > leader_epoch {
            return Ok(taken);
        }
        taken += size;
    }
}

/// The leader epoch of the batch at the start of `batch`; formats before magic 2 have none.
fn epoch_of(batch: &[u8]) -> i32 {
    let has_epoch = batch.get(MAGIC_AT).is_some_and(|magic| *magic >= 2);
    let field = batch.get(LEADER_EPOCH_AT..LEADER_EPOCH_AT + 4);
    match field.and_then(|field| field.first_chunk()) {
        Some(field) if has_epoch => i32::from_be_bytes(*field),
        _ => -1,
    }
}

/// The base offset of the first batch.
pub(in crate::replica) fn base_offset(records: &[u8]) -> i64 {
    records
        .first_chunk()
        .map_or(0, |field| i64::from_be_bytes(*field))
}

/// The last offset of the first batch, if it is one of magic 2.
fn last_offset(records: &[u8]) -> Option<i64> {
    let header = crate::batch::BatchHeader::parse(records).ok().flatten()?;
    (header.magic >= 2).then(|| header.last_offset())
}

/// Cuts whole batches into pieces of at most `piece_bytes`, or of one batch that is larger: a piece
/// goes into one segment as a whole.
pub(in crate::replica) fn split(records: &mut [u8], piece_bytes: u64) -> Result<Vec<&mut [u8]>> {
    if records.len() as u64 <= piece_bytes {
        return Ok(vec![records]);
    }
    let mut pieces = Vec::new();
    let mut rest = records;
    while !rest.is_empty() {
        let mut end = 0;
        while let Some(size) = batch_size(&rest[end..])? {
            if end > 0 && (end + size) as u64 > piece_bytes {
                break;
            }
            end += size;
        }
        let (piece, behind) = std::mem::take(&mut rest)
            .split_at_mut_checked(end)
            .filter(|(piece, _)| piece.len() >= MAGIC_PREFIX)
            .ok_or_else(|| Error::CorruptMessage("a batch is not whole".to_owned()))?;
        pieces.push(piece);
        rest = behind;
    }
    Ok(pieces)
}

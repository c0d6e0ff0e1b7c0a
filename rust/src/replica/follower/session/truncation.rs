//! Cuts a follower's log where it parts from the leader's, and has the log say so before
//! records go that were committed.

use super::fetched::Progress;
use super::{FollowerSession, Tell};
use crate::clock::Now;
use crate::error::{Error, Result};
use crate::replica::Partition;

impl FollowerSession {
    /// Cuts the log where it parts from the leader's, whose largest epoch up to the one that was
    /// asked for ends at `end_offset` (`AbstractFetcherThread.getOffsetTruncationState`). An
    /// epoch that is not known here says nothing of the own ones before it: by its end a log
    /// could be cut within a batch.
    pub(super) fn part(
        &self,
        partition: &Partition,
        epoch: i32,
        end_offset: i64,
        now: Now,
        tell: Tell<'_>,
    ) -> Result<Progress> {
        if epoch < 0 || end_offset < 0 {
            let sentence = format!("epoch {epoch} is said to end at {end_offset}");
            return Err(Error::InvalidArgument(sentence));
        }
        let log = &partition.log;
        let own_end = log.offsets().log_end_offset;
        let own = log.end_of_epoch(epoch);
        let offset = match own {
            Some(own) if own.leader_epoch != epoch => own.end_offset,
            Some(own) => own.end_offset.min(end_offset),
            None => end_offset,
        };
        let before = (own_end, log.latest_epoch());
        self.cut(partition, offset.min(own_end), now, tell)?;
        let after = (log.offsets().log_end_offset, log.latest_epoch());
        Ok(if before == after {
            Progress::None
        } else {
            Progress::Cut
        })
    }

    /// Cuts the log at `offset`, and says so before if that takes committed records: it is right
    /// only after an unclean election.
    pub(super) fn cut(
        &self,
        partition: &Partition,
        offset: i64,
        now: Now,
        tell: Tell<'_>,
    ) -> Result<()> {
        let offsets = partition.log.offsets();
        if offset < offsets.high_watermark {
            tell(format!(
                "{}-{} is cut from offset {} to {offset}, below its high watermark {}: broker {}, \
                 which leads it in epoch {}, does not have the records after that",
                partition.log.topic(),
                partition.index,
                offsets.log_end_offset,
                offsets.high_watermark,
                self.leader_id,
                partition.leader_epoch,
            ));
            partition.log.traffic().note_committed_cut();
        }
        partition.truncate_as_follower(offset, now.wall_ms)
    }

    /// A log of batches without epochs (magic 0 and 1) can show nobody where it parts from the
    /// leader's: it is cut to the high watermark, as Kafka does.
    pub(super) fn cut_without_epochs(
        partition: &Partition,
        now: Now,
        tell: Tell<'_>,
    ) -> Result<()> {
        let offsets = partition.log.offsets();
        if partition.log.latest_epoch().is_some()
            || offsets.high_watermark >= offsets.log_end_offset
        {
            return Ok(());
        }
        tell(format!(
            "{}-{} has no leader epochs: it is cut from offset {} to its high watermark {}",
            partition.log.topic(),
            partition.index,
            offsets.log_end_offset,
            offsets.high_watermark
        ));
        partition.truncate_as_follower(offsets.high_watermark, now.wall_ms)
    }
}

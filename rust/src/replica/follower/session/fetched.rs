//! Takes answers to Fetch: what they say of the leader's fetch session, and of each partition.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{FollowerSession, Key, Tell, Trouble};
use crate::clock::Now;
use crate::codes;
use crate::error::{Error, Result};
use crate::limits::{FOLLOWER_HASTY_ANSWERS_MAX, FOLLOWER_HASTY_SHARE};
use crate::replica::Partition;
use crate::replica::follower::answer::{FetchAnswer, FetchedPartition};
use crate::replica::follower::replicate::FetchedFrom;
use crate::replica::follower::request::Position;

impl FollowerSession {
    pub(super) fn on_fetched(
        &mut self,
        read: &FetchAnswer,
        answer: &mut [u8],
        now: Now,
        tell: Tell<'_>,
    ) -> Result<Vec<Arc<Partition>>> {
        if !self.take_session(read)? {
            return Ok(Vec::new());
        }
        let (mut touched, mut has_news) = (Vec::new(), false);
        for fetched in &read.partitions {
            let key = (fetched.topic_id, fetched.index);
            // Else it was never asked for, or is assigned anew.
            let asked = self.followed.get(&key);
            if let Some((partition, position)) =
                asked.and_then(|each| Some((each.partition.clone(), each.sent?)))
            {
                has_news |= self.is_news(key, &partition, fetched);
                let records = &mut answer[fetched.records.clone()];
                if self.take(key, &partition, position, fetched, records, now, tell) {
                    touched.push(partition);
                }
            }
        }
        self.pace(has_news, now, tell);
        Ok(touched)
    }

    /// The answer says something of the partition that was not known.
    fn is_news(&self, key: Key, partition: &Partition, fetched: &FetchedPartition) -> bool {
        let followed = self.followed.get(&key);
        fetched.error_code != codes::NONE
            || fetched.diverging.is_some()
            || !fetched.records.is_empty()
            || partition.leader_high_watermark() != fetched.high_watermark
            || followed.is_none_or(|each| each.leader_start != fetched.log_start_offset)
    }

    /// Has a leader that does not wait for records, and answers at once with nothing, asked less
    /// often: it would be asked as fast as both can.
    fn pace(&mut self, has_news: bool, now: Now, tell: Tell<'_>) {
        let now_ms = now.monotonic_ms;
        let waited_ms = now_ms.saturating_sub(self.asked_ms);
        let hasty_ms = i64::from(self.settings.max_wait_ms) / FOLLOWER_HASTY_SHARE;
        if has_news || !(0..hasty_ms).contains(&waited_ms) {
            self.hasty_answers = 0;
            return;
        }
        self.hasty_answers = self.hasty_answers.saturating_add(1);
        if self.hasty_answers < FOLLOWER_HASTY_ANSWERS_MAX {
            return;
        }
        let backoff_ms = self.settings.backoff_ms;
        self.rests_until_ms = Some(now_ms.saturating_add(backoff_ms));
        if self.hasty_answers == FOLLOWER_HASTY_ANSWERS_MAX {
            tell(format!(
                "broker {} answers fetches at once with nothing, and does not wait for records: it is asked \
                 every {backoff_ms} ms until it does",
                self.leader_id
            ));
        }
    }

    /// The session goes on, or a full Fetch comes next. False: the answer has nothing
    /// else to say. Errors: `MalformedRequest` for an answer after which the leader is
    /// not to be asked again at once.
    fn take_session(&mut self, answer: &FetchAnswer) -> Result<bool> {
        let is_full = self.session_epoch == 0;
        if answer.error_code != codes::NONE {
            if is_full || !is_of_session(answer.error_code) {
                let sentence = format!("it answers error {}", answer.error_code);
                return Err(Error::MalformedRequest(sentence));
            }
            // By its id the next Fetch closes a session that may still be there.
            self.forget_session();
            return Ok(false);
        }
        if !is_full && answer.session_id != self.session_id {
            // The leader has closed it.
            self.session_id = answer.session_id;
            self.forget_session();
            return Ok(false);
        }
        self.session_id = answer.session_id;
        if answer.session_id == 0 {
            // The leader keeps none.
            self.session_epoch = 0;
            let keys: Vec<Key> = self.followed.keys().copied().collect();
            keys.into_iter().for_each(|key| self.mark(key));
        } else {
            self.session_epoch = self.session_epoch.checked_add(1).unwrap_or(1);
        }
        Ok(true)
    }

    /// Takes what an answer says of a partition. Returns whether its log may
    /// have something to flush.
    #[expect(clippy::too_many_arguments, reason = "one partition of one answer")]
    fn take(
        &mut self,
        key: Key,
        partition: &Arc<Partition>,
        position: Position,
        fetched: &FetchedPartition,
        records: &mut [u8],
        now: Now,
        tell: Tell<'_>,
    ) -> bool {
        if !partition.is_following() || position.leader_epoch != partition.leader_epoch {
            self.stop(key);
            return false;
        }
        if fetched.error_code != codes::NONE {
            self.refused(key, fetched.error_code, now, tell);
            return false;
        }
        if partition.log.offsets().log_end_offset != position.fetch_offset {
            // The answer is to a question of before.
            self.fetch_again(key);
            return false;
        }
        let done = match fetched.diverging {
            // Before anything else of the answer, whose high watermark is that of
            // another log (KAFKA-14704).
            Some((epoch, end_offset)) => self.part(partition, epoch, end_offset, now, tell),
            None => {
                let leader_start = fetched.log_start_offset;
                append(partition, position, leader_start, records, now.wall_ms)
            }
        };
        match done {
            Ok(Progress::None) if fetched.diverging.is_none() && records.is_empty() => {}
            Ok(Progress::None) => {
                let sentence = "its answer holds nothing that could be taken".to_owned();
                self.tell_trouble(key, (Trouble::Empty, sentence), now, tell);
                self.delay(key, now);
                return false;
            }
            Ok(Progress::Cut) => {
                self.fetch_again(key);
                return true;
            }
            Ok(Progress::Grown) => self.order += 1,
            Err(error) => {
                self.on_trouble(key, &error, now, tell);
                // Pieces before the one at fault are in the log, and the next fetch says so.
                return partition.log.offsets().log_end_offset != position.fetch_offset;
            }
        }
        let has_grown = !records.is_empty();
        if has_grown {
            partition.note_received(records.len() as u64, now.monotonic_ms);
        }
        partition.follow_high_watermark(fetched.high_watermark);
        let order = self.order;
        if let Some(followed) = self.followed.get_mut(&key) {
            followed.leader_start = fetched.log_start_offset;
            if has_grown {
                followed.order = order;
            }
        }
        self.mark(key);
        has_grown
    }

    /// The leader has refused the partition.
    pub(super) fn refused(&mut self, key: Key, error_code: i16, now: Now, tell: Tell<'_>) {
        match error_code {
            codes::OFFSET_OUT_OF_RANGE => self.search_ends(key),
            // There is a later epoch, which the metadata will tell.
            codes::FENCED_LEADER_EPOCH => self.stop(key),
            _ => {
                if !is_passing(error_code) {
                    let sentence = format!("it answers error {error_code}");
                    self.tell_trouble(key, (Trouble::Refused(error_code), sentence), now, tell);
                }
                self.delay(key, now);
            }
        }
    }
}

/// The effect of an answer on a log.
pub(super) enum Progress {
    None,
    Grown,
    Cut,
}

fn append(
    partition: &Partition,
    position: Position,
    leader_start: i64,
    records: &mut [u8],
    now_ms: i64,
) -> Result<Progress> {
    if records.is_empty() {
        return Ok(Progress::None);
    }
    let fetched = FetchedFrom {
        leader_epoch: position.leader_epoch,
        leader_start,
        fetch_offset: position.fetch_offset,
    };
    let end = partition.append_as_follower(records, fetched, now_ms)?;
    Ok(match end.cmp(&position.fetch_offset) {
        Ordering::Greater => Progress::Grown,
        Ordering::Equal => Progress::None,
        Ordering::Less => Progress::Cut,
    })
}

/// The leader does not know the fetch session, or not as it is known here.
fn is_of_session(error_code: i16) -> bool {
    matches!(
        error_code,
        codes::FETCH_SESSION_ID_NOT_FOUND
            | codes::INVALID_FETCH_SESSION_EPOCH
            | codes::FETCH_SESSION_TOPIC_ID_ERROR
    )
}

/// An error that comes and goes while metadata is on its way.
fn is_passing(error_code: i16) -> bool {
    matches!(
        error_code,
        codes::UNKNOWN_TOPIC_OR_PARTITION
            | codes::NOT_LEADER_OR_FOLLOWER
            | codes::UNKNOWN_LEADER_EPOCH
            | codes::UNKNOWN_TOPIC_ID
            | codes::INCONSISTENT_TOPIC_ID
    )
}

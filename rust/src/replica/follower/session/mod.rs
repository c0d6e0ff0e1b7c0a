//! One fetcher's dealings with one leader: which partitions it follows there, what it asks next,
//! and what becomes of the answer.
//!
//! ```text
//!            ┌─ due ── Delayed (an error; left out of the fetch session meanwhile)
//!  assign ─► Fetching ── OFFSET_OUT_OF_RANGE ─► Searching: latest, then earliest offset of the leader ─► Fetching
//!            ├─ throttle exceeded ─► Throttled, until it is not (`throttle.rs`)
//!            └─ role over, log gone, directory offline, epoch fenced ─► Stopped, until it is assigned anew
//! ```
//!
//! An answer speaks of what the leader's fetch session knows of a partition (`sent`): an answer
//! counts only if the log still ends where it was fetched from. Only partitions of which something
//! else is to be said are looked at before a request, all of them once in `SWEEP_MS`: a thousand
//! that are idle cost nothing.

mod fetched;
mod search;
mod throttle;
mod truncation;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Assignment;
use super::answer::{FetchAnswer, read_list_offsets};
use super::request::{self, FollowerSettings, Key, Position, Request};
use super::troubles::Troubles;
use crate::batch::header::NO_LEADER_EPOCH;
use crate::clock::Now;
use crate::error::{Error, Result};
use crate::limits::FOLLOWER_SWEEP_MS;
use crate::replica::Partition;

/// Told what an operator should know, a sentence each, before it is done.
pub type Tell<'a> = &'a mut dyn FnMut(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Fetching,
    Delayed {
        until_ms: i64,
    },
    /// The ends of the leader's log are not known: its end is asked for, or its start.
    Searching {
        timestamp: i64,
    },
    /// Left out of the fetch session meanwhile.
    Throttled,
    Stopped,
}

struct Followed {
    partition: Arc<Partition>,
    state: State,
    /// As the leader's session knows it. `None`: it does not, or is to be told anew.
    sent: Option<Position>,
    /// Where it comes in a full request: what has brought records goes behind the others.
    order: u64,
    is_dirty: bool,
    /// The last log start of the leader, which is taken over once the high
    /// watermark has reached it.
    leader_start: i64,
}

/// The kinds of trouble with partitions: of each the first one is told, and then
/// how many more there were.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    /// The leader answers this error.
    Refused(i16),
    /// The leader's bytes, or the own log, have brought an error of this code.
    Error(i16),
    /// Nothing of the answer could be taken.
    Empty,
}

/// The request that is under way.
enum Asked {
    Nothing,
    /// So many partitions may be in the answer, also those that are removed before it comes.
    Fetch {
        partitions_max: usize,
    },
    ListOffsets {
        timestamp: i64,
        partitions_max: usize,
    },
}

/// See the module.
pub struct FollowerSession {
    settings: FollowerSettings,
    leader_id: i32,
    /// In their order, so that a simulation of it repeats itself.
    followed: BTreeMap<Key, Followed>,
    /// The partitions about which something may have to be said, each once.
    dirty: Vec<Key>,
    delayed: BTreeSet<(i64, Key)>,
    searching: BTreeSet<Key>,
    /// In the leader's session, and not wanted there any more.
    forgotten: Vec<Key>,
    session_id: i32,
    /// The epoch of the next request; 0 begins a session.
    session_epoch: i32,
    asked: Asked,
    order: u64,
    swept_ms: i64,
    /// When the throttle is to be looked at again; `None`: it holds nothing back.
    throttled_until_ms: Option<i64>,
    /// When the request that is under way was made.
    asked_ms: i64,
    /// So many answers without news have come at once, one after the other.
    hasty_answers: u32,
    /// Until when a leader that answers so is not asked.
    rests_until_ms: Option<i64>,
    troubles: Troubles<Trouble>,
}

impl FollowerSession {
    pub fn new(settings: FollowerSettings, leader_id: i32) -> FollowerSession {
        FollowerSession {
            settings,
            leader_id,
            followed: BTreeMap::new(),
            dirty: Vec::new(),
            delayed: BTreeSet::new(),
            searching: BTreeSet::new(),
            forgotten: Vec::new(),
            session_id: 0,
            session_epoch: 0,
            asked: Asked::Nothing,
            order: 0,
            swept_ms: i64::MIN,
            throttled_until_ms: None,
            asked_ms: i64::MIN,
            hasty_answers: 0,
            rests_until_ms: None,
            troubles: Troubles::default(),
        }
    }

    /// Follows a partition from now on, at once, in place of what there was of it.
    pub fn assign(&mut self, assignment: Assignment) {
        let key = (assignment.topic_id, assignment.partition.index);
        self.remove(key);
        self.order += 1;
        let followed = Followed {
            partition: assignment.partition,
            state: State::Fetching,
            sent: None,
            order: self.order,
            is_dirty: false,
            leader_start: 0,
        };
        self.followed.insert(key, followed);
        self.mark(key);
    }

    /// Follows a partition no longer.
    pub fn remove(&mut self, key: Key) {
        if let Some(gone) = self.followed.remove(&key) {
            if let State::Delayed { until_ms } = gone.state {
                self.delayed.remove(&(until_ms, key));
            }
            self.searching.remove(&key);
            if gone.sent.is_some() {
                self.forgotten.push(key);
            }
        }
    }

    /// How many partitions are followed, or wait for a new assignment.
    pub fn len(&self) -> usize {
        self.followed.len()
    }

    pub fn is_empty(&self) -> bool {
        self.followed.is_empty()
    }

    /// When there may be something to ask, milliseconds; `None`: when something is assigned. To be
    /// looked at after `next_request` had nothing.
    pub fn next_due_ms(&self) -> Option<i64> {
        let delayed_ms = self.delayed.first().map(|(until_ms, _)| *until_ms);
        let others_ms = self.throttled_until_ms.into_iter().chain(delayed_ms).min();
        // Nothing is asked before.
        others_ms.max(self.rests_until_ms)
    }

    /// The next request, in durable mode once all that was touched before is on disk. `None`:
    /// there is nothing to ask now.
    pub fn next_request(&mut self, now: Now, tell: Tell<'_>) -> Option<Request> {
        let now_ms = now.monotonic_ms;
        self.wake_delayed(now_ms);
        self.throttle(now_ms);
        self.asked_ms = now_ms;
        if self.rests(now_ms) {
            return None;
        }
        if let Some(request) = self.next_search() {
            return Some(request);
        }
        if now_ms.saturating_sub(self.swept_ms) >= FOLLOWER_SWEEP_MS {
            self.swept_ms = now_ms;
            self.mark_all_fetching();
        }
        let mut wanted = self.changed(now, tell);
        if self.session_epoch == 0 {
            wanted = self.all_positions();
            self.forgotten.clear();
            if wanted.is_empty() {
                return None;
            }
        } else if !self.has_fetching() {
            // Nothing is to be fetched; the leader's session is left to itself.
            self.forget_session();
            return None;
        }
        let mut forgotten = std::mem::take(&mut self.forgotten);
        if !forgotten.is_empty() {
            // One that has come back is told with what it is now.
            let is_back = |key: &Key| {
                let followed = self.followed.get(key);
                followed.is_some_and(|each| each.sent.is_some())
            };
            forgotten.retain(|key| !is_back(key));
        }
        let session = (self.session_id, self.session_epoch);
        let body = request::fetch(&self.settings, session, &wanted, &forgotten);
        self.asked = Asked::Fetch {
            partitions_max: self.followed.len(),
        };
        Some(Request::Fetch(body))
    }

    /// Takes an answer, the bytes behind its header. Returns the replicas
    /// whose logs it has touched.
    ///
    /// Errors: `MalformedRequest` for an answer that cannot be read; the connection is to be
    /// closed, and `on_failure` called.
    pub fn on_answer(
        &mut self,
        answer: &mut [u8],
        now: Now,
        tell: Tell<'_>,
    ) -> Result<Vec<Arc<Partition>>> {
        match std::mem::replace(&mut self.asked, Asked::Nothing) {
            Asked::Nothing => Err(Error::MalformedRequest("nothing was asked".to_owned())),
            Asked::Fetch { partitions_max } => {
                let read = FetchAnswer::read(answer, partitions_max)?;
                self.on_fetched(&read, answer, now, tell)
            }
            Asked::ListOffsets {
                timestamp,
                partitions_max,
            } => {
                let listed = read_list_offsets(answer, partitions_max)?;
                Ok(self.on_listed(listed, timestamp, now, tell))
            }
        }
    }

    /// The request has got no answer, or there is no connection: the leader's session is gone.
    pub fn on_failure(&mut self) {
        self.asked = Asked::Nothing;
        self.forget_session();
    }

    /// The leader is not to be asked yet.
    fn rests(&mut self, now_ms: i64) -> bool {
        self.rests_until_ms = self.rests_until_ms.filter(|until_ms| *until_ms > now_ms);
        self.rests_until_ms.is_some()
    }

    // --- what to ask -----------------------------------------------------------------------------

    fn forget_session(&mut self) {
        (self.session_epoch, self.swept_ms) = (0, i64::MIN);
        self.forgotten.clear();
        for followed in self.followed.values_mut() {
            followed.sent = None;
        }
    }

    fn mark(&mut self, key: Key) {
        if let Some(followed) = self.followed.get_mut(&key)
            && !std::mem::replace(&mut followed.is_dirty, true)
        {
            self.dirty.push(key);
        }
    }

    fn mark_all_fetching(&mut self) {
        for (key, followed) in &mut self.followed {
            let is_changed = || {
                let position = position_of(&followed.partition);
                followed.sent != Some(position) || followed.leader_start > position.log_start_offset
            };
            let is_fetching = followed.state == State::Fetching;
            if is_fetching && !followed.is_dirty && is_changed() {
                followed.is_dirty = true;
                self.dirty.push(*key);
            }
        }
    }

    fn has_fetching(&self) -> bool {
        let idle = self.delayed.len() + self.searching.len();
        let mut followed = self.followed.values();
        self.followed.len() > idle && followed.any(|each| each.state == State::Fetching)
    }

    fn wake_delayed(&mut self, now_ms: i64) {
        while let Some((until_ms, key)) = self.delayed.first().copied()
            && until_ms <= now_ms
        {
            self.delayed.remove(&(until_ms, key));
            if let Some(followed) = self.followed.get_mut(&key) {
                followed.state = State::Fetching;
                self.mark(key);
            }
        }
    }

    /// Looks at those that are marked. Returns where they are to be fetched from,
    /// unless the leader knows that.
    fn changed(&mut self, now: Now, tell: Tell<'_>) -> Vec<(Key, Position)> {
        let mut wanted = Vec::new();
        for key in std::mem::take(&mut self.dirty) {
            let Some(followed) = self.followed.get_mut(&key) else {
                continue;
            };
            followed.is_dirty = false;
            if followed.state != State::Fetching {
                continue;
            }
            let partition = followed.partition.clone();
            if !partition.is_following() || partition.is_offline() {
                self.stop(key);
                continue;
            }
            let leader_start = followed.leader_start;
            let is_first = followed.sent.is_none();
            let prepared = partition.follow_log_start(leader_start).and_then(|()| {
                if is_first {
                    Self::cut_without_epochs(&partition, now, tell)
                } else {
                    Ok(())
                }
            });
            if let Err(error) = prepared {
                self.on_trouble(key, &error, now, tell);
                continue;
            }
            let position = position_of(&partition);
            if let Some(followed) = self.followed.get_mut(&key)
                && followed.sent.replace(position) != Some(position)
            {
                wanted.push((key, position));
            }
        }
        wanted
    }

    /// The positions of all partitions that are fetched; those that brought records last come last.
    fn all_positions(&mut self) -> Vec<(Key, Position)> {
        let fetching = self.followed.iter();
        let fetching = fetching.filter(|(_, each)| each.state == State::Fetching);
        let mut all: Vec<(u64, Key, Position)> = fetching
            .filter_map(|(key, each)| Some((each.order, *key, each.sent?)))
            .collect();
        all.sort_unstable_by_key(|(order, ..)| *order);
        all.into_iter()
            .map(|(_, key, position)| (key, position))
            .collect()
    }

    // --- what becomes of a partition -------------------------------------------------------------

    /// Takes it out of the leader's session.
    fn leave_session(&mut self, key: Key) {
        if let Some(followed) = self.followed.get_mut(&key)
            && followed.sent.take().is_some()
        {
            self.forgotten.push(key);
        }
    }

    fn stop(&mut self, key: Key) {
        self.leave_session(key);
        if let Some(followed) = self.followed.get_mut(&key) {
            followed.state = State::Stopped;
        }
    }

    fn delay(&mut self, key: Key, now: Now) {
        self.leave_session(key);
        self.searching.remove(&key);
        if let Some(followed) = self.followed.get_mut(&key) {
            let until_ms = now.monotonic_ms.saturating_add(self.settings.backoff_ms);
            followed.state = State::Delayed { until_ms };
            self.delayed.insert((until_ms, key));
        }
    }

    /// It is fetched again from where its log ends.
    fn fetch_again(&mut self, key: Key) {
        self.searching.remove(&key);
        if let Some(followed) = self.followed.get_mut(&key) {
            followed.state = State::Fetching;
            self.mark(key);
        }
    }

    /// Tells of trouble with a partition, of which there may be a thousand others: of one for all
    /// of its kind, for a while.
    fn tell_trouble(
        &mut self,
        key: Key,
        (kind, sentence): (Trouble, String),
        now: Now,
        tell: Tell<'_>,
    ) {
        if let Some(followed) = self.followed.get(&key)
            && let Some(more) = self.troubles.note(kind, now.monotonic_ms)
        {
            let (topic, index) = (followed.partition.log.topic(), key.1);
            tell(format!(
                "{topic}-{index} cannot be replicated from broker {}: {sentence}{more}",
                self.leader_id
            ));
        }
    }

    /// Trouble that the own log, or the leader's bytes, have brought.
    fn on_trouble(&mut self, key: Key, error: &Error, now: Now, tell: Tell<'_>) {
        let is_over = self.followed.get(&key).is_none_or(|followed| {
            !followed.partition.is_following() || followed.partition.is_offline()
        });
        if is_over || matches!(error, Error::LogDeleted { .. }) {
            // Whoever deletes it, or has it play another role, says so; of a
            // directory its health does.
            return self.stop(key);
        }
        let trouble = (Trouble::Error(error.kafka_code()), error.to_string());
        self.tell_trouble(key, trouble, now, tell);
        self.delay(key, now);
    }
}

fn position_of(partition: &Partition) -> Position {
    let offsets = partition.log.offsets();
    Position {
        leader_epoch: partition.leader_epoch,
        fetch_offset: offsets.log_end_offset,
        // Of the log, not of the answer before, which may have had no records (KAFKA-15510).
        last_fetched_epoch: partition.log.latest_epoch().unwrap_or(NO_LEADER_EPOCH),
        log_start_offset: offsets.log_start_offset,
    }
}

//! Fetch sessions (KIP-227): what a client fetches is remembered, so that its next requests name
//! only what changed and answers only what is new.
//!
//! ```text
//! request             session id  epoch        answer
//! full, no session    0           -1           session id 0
//! full, new session   any         0            a session id, or 0 if there is no room; epoch 1 is next
//! incremental         n           the next     the same id; only partitions with something new
//! close               n           -1           session id 0
//! ```
//!
//! `max.incremental.fetch.session.cache.slots` sessions at most, and so many partitions in all of
//! them. A new one takes the place of the one used longest ago if that was idle for two minutes,
//! else of the smallest one that is older than two minutes and smaller than the new one, else it is
//! not made (`FetchSessionCache.tryEvict`). That of a follower is privileged: it takes the place of
//! a consumer's of any age and size, and gives its own to another follower's only.
//!
//! A client that goes on adding partitions to its session is told at a bound that there is
//! no such session, and asks for all anew; it gets one where there is room. So is who
//! names what can be no topic.

mod cache;
mod session;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::codes;
use crate::limits::FETCH_SESSION_PARTITIONS_MAX;

use cache::{Cache, Shared};
pub use session::{Member, NO_SESSION, PartitionKey, Said, SessionKind, TopicKey, Wanted};

/// The kind of session that a request turned out to have.
pub enum Context {
    /// Without a session: every partition is answered.
    Sessionless,
    /// Wants a session, which is made when the answer is known.
    Full { kind: SessionKind },
    /// The session, and the epoch that it must still have when the answer is made.
    Incremental { id: i32, epoch: i32 },
    /// The whole request is refused.
    Refused(i16),
}

/// The part of an answer that is sent.
pub struct Told {
    pub error_code: i16,
    pub session_id: i32,
    /// For each partition of the answer, whether it is in it.
    pub is_included: Vec<bool>,
}

/// All sessions of the broker, for all network threads.
pub struct FetchSessions {
    slots_max: usize,
    cache: Mutex<Cache>,
}

/// How a request names its session.
#[derive(Clone, Copy, Debug)]
pub struct SessionRequest {
    pub id: i32,
    pub epoch: i32,
    pub kind: SessionKind,
}

const INITIAL_EPOCH: i32 = 0;
const FINAL_EPOCH: i32 = -1;

impl FetchSessions {
    /// `seed` makes the ids hard to guess.
    pub fn new(slots_max: usize, seed: u64) -> FetchSessions {
        FetchSessions {
            slots_max,
            cache: Mutex::new(Cache::new(seed)),
        }
    }

    /// Sessions, partitions in them, and how many sessions made room for others so far.
    pub fn counts(&self) -> (usize, usize, u64) {
        let cache = self.cache.lock();
        (cache.entries.len(), cache.partitions, cache.evicted)
    }

    /// Partitions of a session; none where there is no such session.
    pub fn partitions_of(&self, id: i32) -> usize {
        let cache = self.cache.lock();
        let entry = cache.entries.get(&id);
        entry.map_or(0, |entry| entry.size)
    }

    /// Finds out what a request is, updates its session, and gives the partitions to be read, in
    /// order (`FetchManager.newContext`).
    pub fn open(
        &self,
        request: SessionRequest,
        asked: Vec<Member>,
        forgotten: &[PartitionKey],
        now_ms: u64,
    ) -> (Context, Vec<Member>) {
        if request.epoch == INITIAL_EPOCH || request.epoch == FINAL_EPOCH {
            if request.id != NO_SESSION {
                self.cache.lock().remove(request.id);
            }
            let context = match request.epoch {
                FINAL_EPOCH => Context::Sessionless,
                _ => Context::Full { kind: request.kind },
            };
            return (context, without_repetitions(asked));
        }
        let refuse = |code| (Context::Refused(code), Vec::new());
        let Some((shared, room)) = self.session(request.id) else {
            return refuse(codes::FETCH_SESSION_ID_NOT_FOUND);
        };
        let session = &mut *shared.session.lock();
        if session.epoch() != request.epoch {
            return refuse(codes::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.uses_topic_ids() != request.kind.uses_topic_ids {
            return refuse(codes::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        if !session.may_grow(&asked, room) {
            self.cache.lock().remove(request.id);
            return refuse(codes::FETCH_SESSION_ID_NOT_FOUND);
        }
        let before = session.len();
        session.update(&asked, forgotten);
        let count = session.len();
        if count != before && !self.cache.lock().resize(request.id, count) {
            return refuse(codes::FETCH_SESSION_ID_NOT_FOUND);
        }
        if count == 0 {
            return (Context::Sessionless, without_repetitions(asked));
        }
        shared.last_used_ms.store(now_ms, Ordering::Relaxed);
        let context = Context::Incremental {
            id: request.id,
            epoch: session.next_epoch(),
        };
        (context, session.members())
    }

    /// A session, and how many partitions there is room for.
    fn session(&self, id: i32) -> Option<(Arc<Shared>, usize)> {
        let cache = self.cache.lock();
        let entry = cache.entries.get(&id)?;
        let room = FETCH_SESSION_PARTITIONS_MAX - cache.partitions;
        Some((entry.session.clone(), room))
    }

    /// As `open` for a request that no session remembers: a full one goes on without, one of a
    /// session is told that there is none.
    pub fn open_none(
        &self,
        request: SessionRequest,
        asked: Vec<Member>,
        now_ms: u64,
    ) -> (Context, Vec<Member>) {
        if request.epoch != INITIAL_EPOCH && request.epoch != FINAL_EPOCH {
            let context = Context::Refused(codes::FETCH_SESSION_ID_NOT_FOUND);
            return (context, Vec::new());
        }
        let request = SessionRequest {
            epoch: FINAL_EPOCH,
            ..request
        };
        self.open(request, asked, &[], now_ms)
    }

    /// Which partitions of an answer are sent, and in which session; `said`
    /// says of each what it is.
    pub fn tell(&self, context: &Context, said: &[(&Member, Said)], now_ms: u64) -> Told {
        let all = |session_id| Told {
            error_code: codes::NONE,
            session_id,
            is_included: vec![true; said.len()],
        };
        let none = |error_code, session_id| Told {
            error_code,
            session_id,
            is_included: vec![false; said.len()],
        };
        match *context {
            Context::Sessionless => all(NO_SESSION),
            Context::Refused(error_code) => none(error_code, NO_SESSION),
            Context::Full { kind } => {
                let mut cache = self.cache.lock();
                all(cache.create(self.slots_max, kind, said, now_ms))
            }
            Context::Incremental { id, epoch } => {
                let known = self.session(id);
                let session = known.as_ref().map(|(shared, _)| shared.session.lock());
                let Some(mut session) = session.filter(|session| session.epoch() == epoch) else {
                    return none(codes::INVALID_FETCH_SESSION_EPOCH, id);
                };
                let told = said
                    .iter()
                    .map(|(member, said)| session.tell(&member.key, said));
                Told {
                    error_code: codes::NONE,
                    session_id: id,
                    is_included: told.collect(),
                }
            }
        }
    }
}

/// A partition that is named twice counts once, where it first stood, with what was said last.
fn without_repetitions(asked: Vec<Member>) -> Vec<Member> {
    if asked.len() < 2 {
        return asked;
    }
    let mut places: HashMap<PartitionKey, usize> = HashMap::with_capacity(asked.len());
    let mut members: Vec<Member> = Vec::with_capacity(asked.len());
    for member in asked {
        match places
            .get(&member.key)
            .and_then(|place| members.get_mut(*place))
        {
            Some(known) => *known = member,
            None => {
                places.insert(member.key.clone(), members.len());
                members.push(member);
            }
        }
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{FETCH_SESSION_EVICTION_MS, TOPIC_NAME_BYTES_MAX};

    const NOTHING_NEW: Said = Said {
        error_code: codes::NONE,
        high_watermark: 5,
        log_start_offset: 0,
        has_records: false,
        has_diverged: false,
        has_preferred_replica: false,
    };

    fn member(name: &str, index: i32) -> Member {
        Member {
            key: (TopicKey::Name(name.into()), index),
            name: Some(name.into()),
            wanted: Wanted {
                fetch_offset: 0,
                max_bytes: 1,
                current_leader_epoch: -1,
                last_fetched_epoch: -1,
                log_start_offset: -1,
            },
        }
    }

    fn request(id: i32, epoch: i32) -> SessionRequest {
        SessionRequest {
            id,
            epoch,
            kind: SessionKind::default(),
        }
    }

    /// A session over partitions `0 .. count` of a topic.
    fn opened(sessions: &FetchSessions, count: i32, now_ms: u64) -> i32 {
        let asked: Vec<Member> = (0..count).map(|index| member("t", index)).collect();
        let (context, members) = sessions.open(request(0, 0), asked, &[], now_ms);
        let said: Vec<(&Member, Said)> = members.iter().map(|m| (m, NOTHING_NEW)).collect();
        sessions.tell(&context, &said, now_ms).session_id
    }

    fn indexes(members: &[Member]) -> Vec<i32> {
        members.iter().map(|member| member.key.1).collect()
    }

    fn refusal(context: &Context) -> Option<i16> {
        match context {
            Context::Refused(code) => Some(*code),
            _ => None,
        }
    }

    #[test]
    fn an_incremental_request_reads_all_and_is_told_what_is_new() {
        let sessions = FetchSessions::new(10, 1);
        let id = opened(&sessions, 3, 0);
        let (context, members) = sessions.open(request(id, 1), vec![], &[], 1);
        assert_eq!(indexes(&members), [0, 1, 2]);
        let mut said: Vec<(&Member, Said)> = members.iter().map(|m| (m, NOTHING_NEW)).collect();
        said[0].1.has_records = true;
        said[2].1.high_watermark = 6;
        let told = sessions.tell(&context, &said, 1);
        assert_eq!(told.session_id, id);
        assert_eq!(told.is_included, [true, false, true]);
        // The one that gave records is read last next time.
        let (_, members) = sessions.open(request(id, 2), vec![], &[], 2);
        assert_eq!(indexes(&members), [1, 2, 0]);
    }

    /// All sessions had one lock, under which each poll copied the names of all its partitions.
    #[test]
    fn a_session_that_is_worked_on_holds_up_no_other() {
        let sessions = FetchSessions::new(10, 1);
        let (busy, other) = (opened(&sessions, 3, 0), opened(&sessions, 1, 0));
        let (shared, _) = sessions.session(busy).expect("a session");
        let _working = shared.session.lock();
        let (context, members) = sessions.open(request(other, 1), vec![], &[], 1);
        let said: Vec<(&Member, Said)> = members.iter().map(|m| (m, NOTHING_NEW)).collect();
        assert_eq!(sessions.tell(&context, &said, 1).session_id, other);
        assert_ne!(opened(&sessions, 2, 1), NO_SESSION);
        sessions.open(request(other, FINAL_EPOCH), vec![], &[], 2);
        assert_eq!(sessions.counts(), (2, 5, 0));
    }

    /// Both had found that there is room for what they add.
    #[test]
    fn of_two_sessions_that_grow_at_once_the_second_ends() {
        let sessions = FetchSessions::new(10, 1);
        let (large, small) = (opened(&sessions, 1, 0), opened(&sessions, 1, 0));
        let most = FETCH_SESSION_PARTITIONS_MAX - 2;
        assert!(sessions.cache.lock().resize(large, most));
        assert!(!sessions.cache.lock().resize(small, 3));
        assert_eq!(sessions.counts(), (1, most, 0));
        assert!(!sessions.cache.lock().resize(small, 1), "it is gone");
    }

    #[test]
    fn an_error_is_told_each_time_and_what_follows_it_too() {
        let sessions = FetchSessions::new(10, 1);
        let id = opened(&sessions, 1, 0);
        for (epoch, error_code, is_told) in
            [(1, 6, true), (2, 6, true), (3, 0, true), (4, 0, false)]
        {
            let (context, members) = sessions.open(request(id, epoch), vec![], &[], 1);
            let mut said: Vec<(&Member, Said)> = members.iter().map(|m| (m, NOTHING_NEW)).collect();
            said[0].1.error_code = error_code;
            assert_eq!(sessions.tell(&context, &said, 1).is_included, [is_told]);
        }
    }

    #[test]
    fn epochs_go_up_one_by_one_and_a_wrong_one_is_refused() {
        let sessions = FetchSessions::new(10, 1);
        let id = opened(&sessions, 1, 0);
        for (epoch, error) in [
            (1, None),
            (1, Some(codes::INVALID_FETCH_SESSION_EPOCH)),
            (3, Some(codes::INVALID_FETCH_SESSION_EPOCH)),
            (2, None),
        ] {
            let (context, _) = sessions.open(request(id, epoch), vec![], &[], 1);
            assert_eq!(refusal(&context), error);
        }
        let (context, _) = sessions.open(request(id.wrapping_add(1), 1), vec![], &[], 1);
        assert_eq!(refusal(&context), Some(codes::FETCH_SESSION_ID_NOT_FOUND));
        let by_id = SessionRequest {
            kind: SessionKind {
                uses_topic_ids: true,
                is_privileged: false,
            },
            ..request(id, 3)
        };
        let (context, _) = sessions.open(by_id, vec![], &[], 1);
        assert_eq!(refusal(&context), Some(codes::FETCH_SESSION_TOPIC_ID_ERROR));
    }

    #[test]
    fn an_answer_after_the_session_went_on_is_refused() {
        let sessions = FetchSessions::new(10, 1);
        let id = opened(&sessions, 1, 0);
        let (late, members) = sessions.open(request(id, 1), vec![], &[], 1);
        sessions.open(request(id, 2), vec![], &[], 2);
        let said: Vec<(&Member, Said)> = members.iter().map(|m| (m, NOTHING_NEW)).collect();
        let told = sessions.tell(&late, &said, 3);
        assert_eq!(told.error_code, codes::INVALID_FETCH_SESSION_EPOCH);
        assert_eq!((told.session_id, told.is_included), (id, vec![false]));
    }

    #[test]
    fn partitions_come_and_go_and_an_empty_session_ends() {
        let sessions = FetchSessions::new(10, 1);
        let id = opened(&sessions, 2, 0);
        let forgotten = [member("t", 0).key];
        let added = vec![member("t", 7), member("t", 7)];
        let (_, members) = sessions.open(request(id, 1), added, &forgotten, 1);
        assert_eq!(indexes(&members), [1, 7]);
        assert_eq!(sessions.counts(), (1, 2, 0));
        let forgotten = [member("t", 1).key, member("t", 7).key];
        let (context, members) = sessions.open(request(id, 2), vec![], &forgotten, 1);
        assert!(matches!(context, Context::Sessionless) && members.is_empty());
        assert_eq!(sessions.counts(), (0, 0, 0));
    }

    /// Each incremental request added partitions, and nothing bounded them: a client held 400 MB.
    #[test]
    fn a_session_that_would_outgrow_the_bound_ends_and_a_full_request_follows() {
        let sessions = FetchSessions::new(10, 1);
        let all = FETCH_SESSION_PARTITIONS_MAX as i32;
        opened(&sessions, all - 2, 0);
        let id = opened(&sessions, 1, 0);
        assert_eq!(sessions.counts().1, FETCH_SESSION_PARTITIONS_MAX - 1);
        // The known one takes no room; of the last two there is room for one.
        let add = |epoch, index| {
            let asked = vec![member("t", 0), member("t", index)];
            sessions.open(request(id, epoch), asked, &[], 1).0
        };
        assert_eq!(refusal(&add(1, 1)), None);
        assert_eq!(refusal(&add(2, 0)), None, "nothing is new");
        assert_eq!(refusal(&add(3, 2)), Some(codes::FETCH_SESSION_ID_NOT_FOUND));
        assert_eq!(sessions.counts(), (1, FETCH_SESSION_PARTITIONS_MAX - 2, 0));
        assert_eq!(
            opened(&sessions, 3, 1),
            NO_SESSION,
            "there is no room for all"
        );
        assert_ne!(opened(&sessions, 2, 2), NO_SESSION);
        // Who is gone for good makes room, as where all slots are taken.
        let later = FETCH_SESSION_EVICTION_MS + 2;
        assert_ne!(opened(&sessions, 3, later), NO_SESSION);
        assert_eq!(sessions.counts(), (2, 5, 1));
    }

    /// One request for half a million partitions put out every session that was smaller and two
    /// minutes old, in use or not, even where there was no room for its own in the end.
    #[test]
    fn a_giant_session_takes_no_place_of_others_that_are_in_use() {
        let sessions = FetchSessions::new(10, 1);
        let all = FETCH_SESSION_PARTITIONS_MAX as i32;
        let small = opened(&sessions, 2, 0);
        let later = FETCH_SESSION_EVICTION_MS + 1;
        sessions.open(request(small, 1), vec![], &[], later - 1);
        assert_eq!(opened(&sessions, all - 1, later), NO_SESSION);
        assert_eq!(sessions.counts(), (1, 2, 0));
        assert_ne!(opened(&sessions, all - 2, later), NO_SESSION);
    }

    /// Names of 32 KB, a new one with each partition, were remembered like others.
    #[test]
    fn what_no_topic_can_be_called_is_in_no_session() {
        let sessions = FetchSessions::new(10, 1);
        let id = opened(&sessions, 1, 0);
        let names = [TOPIC_NAME_BYTES_MAX, TOPIC_NAME_BYTES_MAX + 1].map(|size| "n".repeat(size));
        let [longest, longer] = names.map(|name| member(&name, 0));
        let (context, _) = sessions.open(request(id, 1), vec![longest], &[], 1);
        assert_eq!(refusal(&context), None);
        let (context, _) = sessions.open(request(id, 2), vec![longer.clone()], &[], 1);
        assert_eq!(refusal(&context), Some(codes::FETCH_SESSION_ID_NOT_FOUND));
        let (context, members) = sessions.open(request(0, 0), vec![longer], &[], 1);
        let told = sessions.tell(&context, &[(&members[0], NOTHING_NEW)], 1);
        assert_eq!(
            (told.session_id, told.is_included),
            (NO_SESSION, vec![true])
        );
        assert_eq!(sessions.counts(), (0, 0, 0));
    }

    #[test]
    fn a_full_request_closes_the_session_that_it_names() {
        let sessions = FetchSessions::new(10, 1);
        let id = opened(&sessions, 1, 0);
        let (context, _) = sessions.open(request(id, FINAL_EPOCH), vec![], &[], 1);
        assert!(matches!(context, Context::Sessionless));
        assert_eq!(sessions.counts(), (0, 0, 0));
    }

    #[test]
    fn a_full_cache_gives_way_as_kafkas_does() {
        let sessions = FetchSessions::new(2, 1);
        let (small, large) = (opened(&sessions, 1, 0), opened(&sessions, 3, 0));
        assert_eq!(opened(&sessions, 9, 1_000), NO_SESSION, "all are young");
        let later = FETCH_SESSION_EVICTION_MS + 1;
        for id in [small, large] {
            sessions.open(request(id, 1), vec![], &[], later - 1);
        }
        // Old but in use: only a smaller one gives way.
        assert_eq!(opened(&sessions, 0, later), NO_SESSION);
        let second = opened(&sessions, 2, later);
        assert_ne!(second, NO_SESSION);
        let (context, _) = sessions.open(request(small, 2), vec![], &[], later);
        assert_eq!(refusal(&context), Some(codes::FETCH_SESSION_ID_NOT_FOUND));
        // Idle for two minutes: whatever its size.
        assert_ne!(opened(&sessions, 1, 3 * later), NO_SESSION);
        assert_eq!(sessions.counts().2, 2);
    }
}

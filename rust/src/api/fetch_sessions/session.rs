//! One fetch session: what a client fetches of which partitions, and what it was told of each. The
//! sessions of all clients are in `cache.rs`.
//!
//! Partitions are read in the order of the session; one that gave records goes to the end, so that
//! a busy partition in front cannot take every answer's `max_bytes`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ahash::RandomState;

use crate::codes;
use crate::limits::TOPIC_NAME_BYTES_MAX;
use crate::uuid::Uuid;

/// "No session" in requests and answers.
pub const NO_SESSION: i32 = 0;

/// The properties that set sessions apart.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionKind {
    pub uses_topic_ids: bool,
    /// It is a follower's.
    pub is_privileged: bool,
}

/// A topic as requests of one version name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TopicKey {
    Name(Arc<str>),
    Id(Uuid),
}

pub type PartitionKey = (TopicKey, i32);

/// The wishes of a client for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub fetch_offset: i64,
    pub max_bytes: u64,
    pub current_leader_epoch: i32,
    pub last_fetched_epoch: i32,
    /// The log start offset of a follower.
    pub log_start_offset: i64,
}

/// A partition of a request or a session. `name` is the topic's, where it was ever known.
#[derive(Clone, Debug)]
pub struct Member {
    pub key: PartitionKey,
    pub name: Option<Arc<str>>,
    pub wanted: Wanted,
}

impl Member {
    /// A session may remember it. A name that no topic can have may be of any length.
    pub fn is_kept(&self) -> bool {
        let name = self.name.as_ref();
        name.is_none_or(|name| name.len() <= TOPIC_NAME_BYTES_MAX)
    }
}

/// The part of an answer about a partition that decides whether it must be said again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    pub error_code: i16,
    pub high_watermark: i64,
    pub log_start_offset: i64,
    pub has_records: bool,
    pub has_diverged: bool,
    /// It is to be read from another replica.
    pub has_preferred_replica: bool,
}

struct Cached {
    key: PartitionKey,
    name: Option<Arc<str>>,
    wanted: Wanted,
    /// As the client was told last; -1 makes sure that it is told again.
    high_watermark: i64,
    log_start_offset: i64,
}

impl Cached {
    fn new(member: Member) -> Cached {
        Cached {
            key: member.key,
            name: member.name,
            wanted: member.wanted,
            high_watermark: -1,
            log_start_offset: -1,
        }
    }

    /// True where the client must be told; remembers that it is
    /// (`CachedPartition.maybeUpdateResponseData`).
    fn tell(&mut self, said: &Said) -> bool {
        let is_new = said.has_records
            || said.has_diverged
            || said.has_preferred_replica
            || said.error_code != codes::NONE
            || said.high_watermark != self.high_watermark
            || said.log_start_offset != self.log_start_offset;
        // A follower that has diverged takes nothing else of the answer, the high watermark
        // neither (KAFKA-14704): unlike with Kafka it is told again, or would not know of
        // it until the next record.
        self.high_watermark = match said.error_code {
            codes::NONE if !said.has_diverged => said.high_watermark,
            _ => -1,
        };
        self.log_start_offset = said.log_start_offset;
        is_new
    }
}

/// One session. Its partitions stand in the order in which they are read.
pub struct Session {
    epoch: i32,
    uses_topic_ids: bool,
    partitions: BTreeMap<u64, Cached>,
    order: HashMap<PartitionKey, u64, RandomState>,
    next_place: u64,
}

impl Session {
    /// A new one, with the partitions of an answer, of which the client is told this.
    pub fn of(uses_topic_ids: bool, said: &[(&Member, Said)]) -> Session {
        let mut session = Session {
            epoch: 1,
            uses_topic_ids,
            partitions: BTreeMap::new(),
            order: HashMap::default(),
            next_place: 0,
        };
        for (member, said) in said {
            let mut cached = Cached::new(Member::clone(member));
            cached.tell(said);
            session.put(cached);
        }
        session
    }

    /// The epoch that its next request must name.
    pub fn epoch(&self) -> i32 {
        self.epoch
    }

    /// A request has come; returns the epoch of the one after it.
    pub fn next_epoch(&mut self) -> i32 {
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        self.epoch
    }

    pub fn uses_topic_ids(&self) -> bool {
        self.uses_topic_ids
    }

    /// How many partitions it has.
    pub fn len(&self) -> usize {
        self.partitions.len()
    }

    /// Its partitions, in the order in which they are to be read.
    pub fn members(&self) -> Vec<Member> {
        let partitions = self.partitions.values();
        let members = partitions.map(|cached| Member {
            key: cached.key.clone(),
            name: cached.name.clone(),
            wanted: cached.wanted,
        });
        members.collect()
    }

    fn put(&mut self, cached: Cached) {
        let place = self.next_place;
        self.next_place += 1;
        self.order.insert(cached.key.clone(), place);
        self.partitions.insert(place, cached);
    }

    /// It may remember these too, where there is room for so many that are new to it.
    pub fn may_grow(&self, asked: &[Member], room: usize) -> bool {
        let is_new = |member: &&Member| !self.order.contains_key(&member.key);
        let has_room = asked.len() <= room || asked.iter().filter(is_new).count() <= room;
        has_room && asked.iter().all(Member::is_kept)
    }

    /// Takes what a request adds, changes and leaves out.
    pub fn update(&mut self, asked: &[Member], forgotten: &[PartitionKey]) {
        for member in asked {
            let known = self.order.get(&member.key);
            match known.and_then(|place| self.partitions.get_mut(place)) {
                Some(cached) => {
                    if cached.wanted.current_leader_epoch != member.wanted.current_leader_epoch {
                        // A replica that follows anew knows only what it has made its own before.
                        cached.high_watermark = -1;
                    }
                    cached.wanted = member.wanted;
                }
                None => self.put(Cached::new(member.clone())),
            }
        }
        for key in forgotten {
            if let Some(place) = self.order.remove(key) {
                self.partitions.remove(&place);
            }
        }
    }

    /// True where an answer must say this of a partition; from now on it counts to have said it.
    pub fn tell(&mut self, key: &PartitionKey, said: &Said) -> bool {
        let Some(place) = self.order.get(key).copied() else {
            return false;
        };
        let is_new = self
            .partitions
            .get_mut(&place)
            .is_some_and(|cached| cached.tell(said));
        if said.has_records
            && let Some(cached) = self.partitions.remove(&place)
        {
            self.put(cached);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_epoch_follows_the_last_there_is() {
        let mut session = Session::of(false, &[]);
        assert_eq!((session.epoch(), session.next_epoch()), (1, 2));
        session.epoch = i32::MAX;
        assert_eq!(session.next_epoch(), 1);
    }

    /// Both left a follower with an old high watermark until the next record came.
    #[test]
    fn a_follower_that_has_diverged_or_follows_anew_is_told_the_high_watermark_again() {
        let wanted = Wanted {
            fetch_offset: 5,
            max_bytes: 1,
            current_leader_epoch: 3,
            last_fetched_epoch: 2,
            log_start_offset: 0,
        };
        let key = (TopicKey::Name("t".into()), 0);
        let member = |wanted| Member {
            key: key.clone(),
            name: None,
            wanted,
        };
        let said = |has_diverged| Said {
            error_code: codes::NONE,
            high_watermark: 4,
            log_start_offset: 0,
            has_records: false,
            has_diverged,
            has_preferred_replica: false,
        };
        let mut session = Session::of(false, &[(&member(wanted), said(true))]);
        assert!(session.tell(&key, &said(false)));
        assert!(!session.tell(&key, &said(false)));
        session.update(&[member(wanted)], &[]);
        assert!(!session.tell(&key, &said(false)));
        let anew = Wanted {
            current_leader_epoch: 4,
            ..wanted
        };
        session.update(&[member(anew)], &[]);
        assert!(session.tell(&key, &said(false)));
    }
}

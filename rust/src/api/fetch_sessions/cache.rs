//! The sessions of all clients, with their bounds: so many sessions, and so many
//! partitions in all of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::session::{Member, NO_SESSION, Said, Session, SessionKind};
use crate::limits::{FETCH_SESSION_EVICTION_MS, FETCH_SESSION_PARTITIONS_MAX};

pub struct Entry {
    pub session: Arc<Shared>,
    /// How many partitions it has, as far as `Cache::partitions` counts them.
    pub size: usize,
    pub created_ms: u64,
    is_privileged: bool,
}

impl Entry {
    /// The order of eviction: the session with the larger value stays (`EvictableKey`).
    fn value(&self) -> (bool, usize) {
        (self.is_privileged, self.size)
    }
}

/// A session and its lock. Whoever holds that may take the lock of the cache, and not the other way
/// round: what a session of many partitions costs holds up no other session.
pub struct Shared {
    pub session: Mutex<Session>,
    pub last_used_ms: AtomicU64,
}

#[derive(Default)]
pub struct Cache {
    pub entries: HashMap<i32, Entry>,
    pub partitions: usize,
    pub evicted: u64,
    seed: u64,
}

impl Cache {
    pub fn new(seed: u64) -> Cache {
        Cache {
            seed,
            ..Cache::default()
        }
    }

    /// Takes a session out, if it is there.
    pub fn remove(&mut self, id: i32) {
        if let Some(entry) = self.entries.remove(&id) {
            self.partitions -= entry.size;
        }
        self.check();
    }

    /// A session has so many partitions by now; one without any ends. False: it is gone, or ends
    /// since others have taken the room meanwhile.
    pub fn resize(&mut self, id: i32, size: usize) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else {
            return false;
        };
        let partitions = self.partitions - entry.size + size;
        let has_room = partitions <= FETCH_SESSION_PARTITIONS_MAX;
        if has_room && size > 0 {
            entry.size = size;
            self.partitions = partitions;
        } else {
            self.remove(id);
        }
        has_room
    }

    /// Makes a session of an answer to a full request; 0 if there is no room for it.
    pub fn create(
        &mut self,
        slots_max: usize,
        kind: SessionKind,
        said: &[(&Member, Said)],
        now_ms: u64,
    ) -> i32 {
        let size = said.len();
        if size > FETCH_SESSION_PARTITIONS_MAX || !said.iter().all(|(each, _)| each.is_kept()) {
            return NO_SESSION;
        }
        // Only who is gone for good makes room for partitions, or one large session would take the
        // place of all small ones: none is smaller than nothing.
        while self.partitions + size > FETCH_SESSION_PARTITIONS_MAX {
            if !self.evict((false, 0), now_ms) {
                return NO_SESSION;
            }
        }
        if self.entries.len() >= slots_max && !self.evict((kind.is_privileged, size), now_ms) {
            return NO_SESSION;
        }
        let session = Session::of(kind.uses_topic_ids, said);
        let id = self.new_id();
        let size = session.len();
        self.partitions += size;
        let entry = Entry {
            session: Arc::new(Shared {
                session: Mutex::new(session),
                last_used_ms: AtomicU64::new(now_ms),
            }),
            size,
            created_ms: now_ms,
            is_privileged: kind.is_privileged,
        };
        self.entries.insert(id, entry);
        self.check();
        id
    }

    /// The bound holds after each change.
    fn check(&self) {
        assert!(self.partitions <= FETCH_SESSION_PARTITIONS_MAX);
    }

    /// Makes room for a session of this value, if there is one that may go.
    fn evict(&mut self, value: (bool, usize), now_ms: u64) -> bool {
        let is_over = |since_ms: u64| now_ms.saturating_sub(since_ms) > FETCH_SESSION_EVICTION_MS;
        let used = self.entries.iter();
        let used =
            used.map(|(id, entry)| (entry.session.last_used_ms.load(Ordering::Relaxed), *id));
        let mut victim = used
            .min()
            .filter(|(last_used_ms, _)| is_over(*last_used_ms))
            .map(|(_, id)| id);
        if victim.is_none() {
            let old = self.entries.iter().filter(|(_, entry)| {
                is_over(entry.created_ms) || (value.0 && !entry.is_privileged)
            });
            victim = old
                .min_by_key(|(id, entry)| (entry.value(), **id))
                .filter(|(_, entry)| entry.value() < value)
                .map(|(id, _)| *id);
        }
        if let Some(id) = victim {
            self.remove(id);
            self.evicted += 1;
        }
        victim.is_some()
    }

    /// A random id above 0 that is not in use (SplitMix64).
    fn new_id(&mut self) -> i32 {
        loop {
            self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.seed;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let id = ((mixed ^ (mixed >> 31)) >> 33) as i32;
            if id > NO_SESSION && !self.entries.contains_key(&id) {
                return id;
            }
        }
    }
}

//! Which connections may have been idle for too long, and which has been used least recently: found
//! without a look at all the others, of which there may be a hundred thousand.
//!
//! ```text
//! DueConnections    (when it may be due, token), soonest first: one look at each connection in
//!                   `connections.max.idle.ms`; one that has been used since is put back
//! LeastRecent       all connections in the order of their use, as it once was: whatever has been used
//!                   since then comes behind all that has not
//! ```
//!
//! Both are told the time and what was used when, and know no socket; the reactor closes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::limits::IDLE_ENTRIES_FREE;

/// When connections are to be looked at, each once. Entries of connections that are gone stay until
/// their time, or until they are the most.
#[derive(Default)]
pub struct DueConnections {
    entries: BinaryHeap<Reverse<(u64, u64)>>,
}

impl DueConnections {
    /// `token` is to be looked at then; at the end of time means never.
    pub fn put(&mut self, due_ms: u64, token: u64) {
        if due_ms < u64::MAX {
            self.entries.push(Reverse((due_ms, token)));
        }
    }

    /// When the next one is due.
    pub fn next_ms(&self) -> u64 {
        self.entries
            .peek()
            .map_or(u64::MAX, |Reverse((due_ms, _))| *due_ms)
    }

    /// Takes one that is due.
    pub fn take(&mut self, now_ms: u64) -> Option<u64> {
        if self.next_ms() > now_ms {
            return None;
        }
        self.entries.pop().map(|Reverse((_, token))| token)
    }

    /// More than every other entry is of a connection that is gone, where `count` are not.
    pub fn are_mostly_gone(&self, count: usize) -> bool {
        self.entries.len() > IDLE_ENTRIES_FREE + 2 * count
    }

    /// Forgets those that are gone.
    pub fn retain(&mut self, is_there: impl Fn(u64) -> bool) {
        self.entries.retain(|Reverse((_, token))| is_there(*token));
    }
}

/// Connections in the order of their use, the least recent last.
#[derive(Default)]
pub struct LeastRecent {
    used: Vec<(u64, u64)>,
}

impl LeastRecent {
    /// When the connection was used that has been used least recently, and its token.
    /// `used_ms` says when a connection was used, if it is still there; `all` gives everyone
    /// with the time of its use.
    pub fn find(
        &mut self,
        used_ms: impl Fn(u64) -> Option<u64>,
        all: impl FnOnce() -> Vec<(u64, u64)>,
    ) -> Option<(u64, u64)> {
        let is_as_noted = |(noted_ms, token): &(u64, u64)| used_ms(*token) == Some(*noted_ms);
        while self.used.last().is_some_and(|last| !is_as_noted(last)) {
            self.used.pop();
        }
        if self.used.is_empty() {
            self.used = all();
            self.used.sort_unstable_by_key(|entry| Reverse(*entry));
        }
        self.used.last().copied()
    }

    /// Nobody asks any more for a while.
    pub fn forget(&mut self) {
        self.used = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn only_those_that_are_due_are_looked_at_and_the_soonest_first() {
        let mut due = DueConnections::default();
        assert_eq!((due.next_ms(), due.take(u64::MAX)), (u64::MAX, None));
        for (due_ms, token) in [(30, 3), (10, 1), (u64::MAX, 9), (20, 2)] {
            due.put(due_ms, token);
        }
        assert_eq!((due.next_ms(), due.take(9)), (10, None));
        assert_eq!(
            (due.take(20), due.take(20), due.take(20)),
            (Some(1), Some(2), None)
        );
        assert_eq!(due.next_ms(), 30);
    }

    #[test]
    fn connections_that_are_gone_do_not_pile_up() {
        let mut due = DueConnections::default();
        for token in 0..=IDLE_ENTRIES_FREE as u64 + 2 {
            assert!(!due.are_mostly_gone(1));
            due.put(token, token);
        }
        assert!(due.are_mostly_gone(1));
        due.retain(|token| token == 5);
        assert_eq!((due.take(u64::MAX), due.take(u64::MAX)), (Some(5), None));
    }

    /// Each connection that had to go cost a look at all of them: of 100,000
    /// half of them, ten minutes.
    #[test]
    fn the_least_recently_used_are_found_by_one_look_at_all() {
        let used: HashMap<u64, Cell<Option<u64>>> = (0..100)
            .map(|token| (token, Cell::new(Some(1_000 + token))))
            .collect();
        let looks = Cell::new(0);
        let used_ms = |token: u64| used[&token].get();
        let all = || {
            looks.set(looks.get() + 1);
            let there = used
                .iter()
                .filter_map(|(token, at)| Some((at.get()?, *token)));
            there.collect()
        };
        let mut least_recent = LeastRecent::default();
        used[&3].set(Some(5_000));
        for token in (0..90).filter(|token| *token != 3) {
            assert_eq!(
                least_recent.find(used_ms, all),
                Some((1_000 + token, token))
            );
            used[&token].set(None);
        }
        assert_eq!(looks.get(), 1);
        // Whoever has been used since is more recent than all that was noted.
        for token in 90..100 {
            used[&token].set(Some(7_000));
        }
        assert_eq!(least_recent.find(used_ms, all), Some((5_000, 3)));
        used[&3].set(None);
        assert_eq!(least_recent.find(used_ms, all), Some((7_000, 90)));
        assert_eq!(looks.get(), 2);
        used.values().for_each(|each| each.set(None));
        assert_eq!(least_recent.find(used_ms, all), None);
    }
}

//! Timers of connections: soonest first, and looked through now and then, since most are of
//! requests that were answered before their time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::connections::Connections;
use crate::limits::{TIMERS_FREE, TIMERS_PER_CONNECTION};

/// The purpose of a connection's timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The time of a Fetch, in its slot, is over.
    Fetch(u64),
    /// The time of a Produce request may be over.
    Late,
    /// A client that was held back may go on.
    Unmute,
    /// The client has closed its side, and its requests had come so far (`Connection::progress`).
    GiveUp(u64),
}

/// Soonest first; an entry may be of a connection or slot long gone.
#[derive(Default)]
pub struct Timers {
    entries: BinaryHeap<Reverse<(u64, u64, Timer)>>,
}

impl Timers {
    pub fn set(
        &mut self,
        deadline_ms: u64,
        token: u64,
        timer: Timer,
        connections: &mut Connections,
    ) {
        self.entries.push(Reverse((deadline_ms, token, timer)));
        if self.entries.len() > TIMERS_FREE + TIMERS_PER_CONNECTION * connections.places() {
            self.drop_dead(connections);
        }
    }

    /// When the next one is over.
    pub fn next_ms(&self) -> u64 {
        self.entries
            .peek()
            .map_or(u64::MAX, |Reverse((deadline_ms, ..))| *deadline_ms)
    }

    /// Takes one that is over, with the token of its connection.
    pub fn take(&mut self, now_ms: u64) -> Option<(u64, Timer)> {
        if self.next_ms() > now_ms {
            return None;
        }
        let Reverse((_, token, timer)) = self.entries.pop()?;
        Some((token, timer))
    }

    fn drop_dead(&mut self, connections: &mut Connections) {
        let is_alive = |Reverse((deadline_ms, token, timer)): &Reverse<(u64, u64, Timer)>| {
            let connection = connections.by_token(*token);
            connection.is_some_and(|connection| match timer {
                Timer::Fetch(slot) => connection.session.slot(*slot).is_some(),
                Timer::Late => connection.late_timer_ms == *deadline_ms,
                Timer::Unmute => connection.session.muted_until_ms() == *deadline_ms,
                Timer::GiveUp(_) => true,
            })
        };
        let timers = std::mem::take(&mut self.entries).into_vec();
        self.entries = timers.into_iter().filter(is_alive).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soonest_comes_first_and_none_before_its_time() {
        let mut timers = Timers::default();
        let mut connections = Connections::default();
        assert_eq!((timers.next_ms(), timers.take(u64::MAX)), (u64::MAX, None));
        for (deadline_ms, token) in [(30, 3), (10, 1), (20, 2)] {
            timers.set(deadline_ms, token, Timer::Late, &mut connections);
        }
        assert_eq!((timers.next_ms(), timers.take(9)), (10, None));
        assert_eq!(timers.take(20), Some((1, Timer::Late)));
        assert_eq!(timers.take(20), Some((2, Timer::Late)));
        assert_eq!(timers.take(20), None);
    }

    #[test]
    fn those_of_connections_that_are_gone_do_not_pile_up() {
        let mut timers = Timers::default();
        let mut connections = Connections::default();
        for token in 0..=TIMERS_FREE as u64 {
            assert_eq!(timers.entries.len() as u64, token);
            timers.set(token, token, Timer::Unmute, &mut connections);
        }
        assert!(timers.entries.is_empty());
    }
}

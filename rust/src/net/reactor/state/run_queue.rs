//! The order in which a network thread serves its connections: those that have events, then passes
//! over those that are touched, until none is left; what may wait goes on in the next round.
//!
//! ```text
//! poller ─► events ─► touched ─► current ─► served        yielded, wait_for_… ─► the next round
//!                        ▲─────────────────────┘
//! ```

use std::collections::VecDeque;
use std::io;

use crate::net::poller::Event;

#[derive(Default)]
pub struct RunQueue {
    events: Vec<Event>,
    next_event: usize,
    /// Connections to be sent to and gone on with, in this pass and in the one after it.
    current: VecDeque<u64>,
    touched: Vec<u64>,
    /// Connections that had their share of this round and go on in the next.
    yielded: Vec<u64>,
    wait_for_memory: Vec<u64>,
    wait_for_others: Vec<u64>,
    /// Somebody has come to wait for memory, again or anew.
    has_waited: bool,
}

impl RunQueue {
    /// Begins a round with the events that `wait` finds.
    pub fn begin_round(
        &mut self,
        wait: impl FnOnce(&mut Vec<Event>) -> io::Result<()>,
    ) -> io::Result<()> {
        wait(&mut self.events)?;
        self.next_event = 0;
        self.touched.append(&mut self.yielded);
        Ok(())
    }

    pub fn take_event(&mut self) -> Option<Event> {
        let event = self.events.get(self.next_event).copied()?;
        self.next_event += 1;
        Some(event)
    }

    pub fn take_connection(&mut self) -> Option<u64> {
        self.current.pop_front()
    }

    /// Has the connections served that have been touched since the last
    /// pass. False: there are none.
    pub fn begin_pass(&mut self) -> bool {
        self.current.extend(self.touched.drain(..));
        !self.current.is_empty()
    }

    /// Some of the events or connections of a pass are left.
    pub fn is_mid_pass(&self) -> bool {
        self.next_event < self.events.len() || !self.current.is_empty()
    }

    /// The connection is served in the next pass.
    pub fn touch(&mut self, token: u64) {
        self.touched.push(token);
    }

    /// The connection had its share, and is served in the next round.
    pub fn yield_round(&mut self, token: u64) {
        self.yielded.push(token);
    }

    /// The next round begins without a wait.
    pub fn has_yielded(&self) -> bool {
        !self.yielded.is_empty()
    }

    /// The connection is served once `memory_has_come`.
    pub fn wait_for_memory(&mut self, token: u64) {
        self.wait_for_memory.push(token);
        self.has_waited = true;
    }

    /// As `wait_for_memory`, of a connection whose request would get some, but not before a log
    /// directory or Python answers, and is not begun since much is used.
    pub fn wait_for_others(&mut self, token: u64) {
        self.wait_for_others.push(token);
    }

    /// Somebody waits for memory, or has since the last look.
    pub fn has_waited(&mut self) -> bool {
        std::mem::take(&mut self.has_waited) || !self.wait_for_memory.is_empty()
    }

    pub fn memory_has_come(&mut self) {
        self.touched.append(&mut self.wait_for_memory);
        self.touched.append(&mut self.wait_for_others);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(queue: &mut RunQueue) -> Vec<u64> {
        let mut tokens = Vec::new();
        while queue.begin_pass() {
            tokens.extend(std::iter::from_fn(|| queue.take_connection()));
        }
        tokens
    }

    #[test]
    fn who_yields_or_waits_for_memory_is_served_in_a_later_round() -> io::Result<()> {
        let mut queue = RunQueue::default();
        queue.yield_round(1);
        queue.wait_for_memory(2);
        queue.touch(3);
        assert!(queue.has_yielded());
        assert_eq!(served(&mut queue), [3]);
        queue.begin_round(|_| Ok(()))?;
        assert!(!queue.has_yielded());
        assert_eq!(served(&mut queue), [1]);
        assert!(queue.has_waited());
        queue.wait_for_others(4);
        queue.memory_has_come();
        assert_eq!(served(&mut queue), [2, 4]);
        queue.wait_for_others(4);
        assert!(!queue.has_waited(), "not for memory");
        Ok(())
    }

    #[test]
    fn a_pass_is_over_when_its_events_and_connections_are_served() -> io::Result<()> {
        let mut queue = RunQueue::default();
        let event = Event {
            token: 7,
            readiness: crate::net::poller::Readiness::default(),
        };
        queue.begin_round(|events| {
            events.push(event);
            Ok(())
        })?;
        assert!(queue.is_mid_pass());
        assert_eq!(queue.take_event().map(|event| event.token), Some(7));
        assert!(!queue.is_mid_pass() && queue.take_event().is_none());
        queue.touch(7);
        assert!(!queue.is_mid_pass() && queue.begin_pass() && queue.is_mid_pass());
        Ok(())
    }
}

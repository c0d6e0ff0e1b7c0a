//! Staying awake for a client that sends its next request as soon as it has its answer.
//!
//! Between the two lie some 20 us. A network thread that sleeps for them lets its processor halt,
//! and the client has to wake it, which takes longer than the request. So a thread that serves one
//! client alone looks for a while before it sleeps (`kafkalite.busy.poll.us`), as
//! `net.core.busy_poll` has Linux do. Who waits for this processor gets it between two looks, and
//! after a while without an event the thread looks the less often, the less it has found.
//!
//! ```text
//! look … event         the next wait begins with a look again
//! look … nothing       the next 1, 3, 7 … 1,023 waits sleep at once
//! ```

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::net::poller::{Event, Poller};

/// Waits in a row that bring nothing, of which each has doubled the pause.
const MISSES_MAX: u32 = 10;

pub struct BusyPoll {
    /// How long a look takes at most; zero: there is none.
    longest: Duration,
    /// Looks in a row that have found nothing.
    misses: u32,
    /// Waits that are still to begin without a look.
    pause: u32,
}

impl BusyPoll {
    pub fn new(longest: Duration) -> BusyPoll {
        BusyPoll {
            longest,
            misses: 0,
            pause: 0,
        }
    }

    /// Looks for events if it is worth it. False: there are none, and the thread may sleep.
    pub fn finds(&mut self, poller: &mut Poller, events: &mut Vec<Event>) -> io::Result<bool> {
        if !self.is_due() {
            return Ok(false);
        }
        let started = Instant::now();
        let mut found = false;
        while !found && started.elapsed() < self.longest {
            poller.wait(0, events)?;
            found = !events.is_empty();
            if !found {
                thread::yield_now();
            }
        }
        self.note(found);
        Ok(found)
    }

    fn is_due(&mut self) -> bool {
        if self.longest.is_zero() {
            return false;
        }
        let is_due = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        is_due
    }

    fn note(&mut self, found: bool) {
        self.misses = if found {
            0
        } else {
            MISSES_MAX.min(self.misses + 1)
        };
        self.pause = (1 << self.misses) - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::poller::WakeUp;

    /// Counts those of so many waits that begin with a look, if none of them finds anything.
    fn looks(busy_poll: &mut BusyPoll, waits: usize) -> Vec<usize> {
        let mut looks = Vec::new();
        for wait in 0..waits {
            if busy_poll.is_due() {
                busy_poll.note(false);
                looks.push(wait);
            }
        }
        looks
    }

    #[test]
    fn who_finds_nothing_looks_the_less_often_and_who_does_looks_at_once_again() {
        let mut busy_poll = BusyPoll::new(Duration::from_micros(50));
        assert_eq!(looks(&mut busy_poll, 100), [0, 2, 6, 14, 30, 62]);
        let later = looks(&mut busy_poll, 10_000);
        assert!(later.ends_with(&[7_066, 8_090, 9_114]), "{later:?}");
        while !busy_poll.is_due() {}
        busy_poll.note(true);
        assert!(busy_poll.is_due());
        busy_poll.note(true);
        assert!(busy_poll.is_due());
    }

    #[test]
    fn without_a_time_to_look_for_it_never_looks() {
        assert!(looks(&mut BusyPoll::new(Duration::ZERO), 100).is_empty());
    }

    #[test]
    fn an_event_that_is_there_is_found_and_none_is_made_up() -> io::Result<()> {
        let mut poller = Poller::new()?;
        let wake_up = WakeUp::new()?;
        poller.add_wake_up(&wake_up, 7)?;
        let mut events = Vec::new();
        let mut busy_poll = BusyPoll::new(Duration::from_micros(50));
        assert!(!busy_poll.finds(&mut poller, &mut events)?);
        let mut busy_poll = BusyPoll::new(Duration::from_secs(60));
        wake_up.wake();
        assert!(busy_poll.finds(&mut poller, &mut events)?);
        assert_eq!(
            events.iter().map(|event| event.token).collect::<Vec<_>>(),
            [7]
        );
        Ok(())
    }
}

//! Timers of connections: soonest first, and looked through now and then, since most are of requests that were
//! answered before their time.

use std::cmp::Reverse;

use crate::limits::{TIMERS_FREE, TIMERS_PER_CONNECTION};
use crate::net::reactor::{Reactor, Timer};
use crate::net::session::Slot;

impl Reactor {
    pub(super) fn set_timer(&mut self, deadline_ms: u64, token: u64, timer: Timer) {
        self.timers.push(Reverse((deadline_ms, token, timer)));
        if self.timers.len() > TIMERS_FREE + TIMERS_PER_CONNECTION * self.connections.places() {
            self.drop_dead_timers();
        }
    }

    /// Most timers are of requests that were answered before their time.
    fn drop_dead_timers(&mut self) {
        let timers = std::mem::take(&mut self.timers).into_vec();
        let alive = timers
            .into_iter()
            .filter(|Reverse((deadline_ms, token, timer))| {
                let connection = self.connections.by_token(*token);
                connection.is_some_and(|connection| match timer {
                    Timer::Fetch(slot) => connection.session.slot(*slot).is_some(),
                    Timer::Late => connection.late_timer_ms == *deadline_ms,
                    Timer::Unmute => connection.session.muted_until_ms() == *deadline_ms,
                    Timer::GiveUp(_) => true,
                })
            });
        self.timers = alive.collect();
    }

    pub(super) fn run_timers(&mut self) {
        while let Some(Reverse((deadline_ms, token, timer))) = self.timers.peek().copied() {
            if deadline_ms > self.now_ms {
                return;
            }
            self.timers.pop();
            match timer {
                Timer::Fetch(slot) => self.end_wait(token, slot),
                Timer::Late => self.on_late_timer(token),
                Timer::Unmute => self.touch(token),
                Timer::GiveUp(progress) => self.give_up(token, progress),
            }
        }
    }

    /// Answers Produce requests whose time is over, and sets the timer for the next one.
    fn on_late_timer(&mut self, token: u64) {
        let now_ms = self.now_ms;
        let Some(connection) = self.connections.by_token(token) else {
            return;
        };
        if connection.late_timer_ms > now_ms {
            return;
        }
        connection.late_timer_ms = u64::MAX;
        let mut late = Vec::new();
        let mut next_ms = u64::MAX;
        for (slot, state) in connection.session.open_slots() {
            match state {
                Slot::Produce { deadline_ms, .. } if *deadline_ms <= now_ms => late.push(slot),
                Slot::Produce { deadline_ms, .. } => next_ms = next_ms.min(*deadline_ms),
                _ => {}
            }
        }
        for slot in late {
            self.answer_produce(token, slot);
        }
        if next_ms < u64::MAX {
            self.set_late_timer(token, next_ms);
        }
    }

    pub(super) fn set_late_timer(&mut self, token: u64, deadline_ms: u64) {
        if let Some(connection) = self.connections.by_token(token)
            && deadline_ms < connection.late_timer_ms
        {
            connection.late_timer_ms = deadline_ms;
            self.set_timer(deadline_ms, token, Timer::Late);
        }
    }
}

//! The watchdog: a thread that notices storage calls which do not return, and has another thread go
//! on with what was left for the time of the call. It sleeps while nobody is in a call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use super::handoff::Handoff;
use super::watch::Watch;
use crate::crash::or_end_process;
use crate::limits::{STORAGE_BUSY_TICKS, STORAGE_TICK_MS, WATCHDOG_QUIET_TICKS};
use crate::net::poller;

/// Takes over what was left in a handoff.
pub trait Successor: Send + 'static {
    type Left;
    fn handoff(&self) -> &Handoff<Self::Left>;
    /// There is a thread to go on.
    fn has_thread(&self) -> bool;
    fn take_over(&self, left: Self::Left);
}

/// The last tick's look at a handoff.
#[derive(Clone, Copy, Default)]
struct Seen {
    calls: u64,
    /// Ticks for which the same call has been under way.
    ticks: u32,
}

struct Watched<S> {
    successor: S,
    seen: Seen,
}

/// A handoff, whatever is left there.
trait Look: Send {
    fn is_empty(&self) -> bool;
    /// Takes what was left if the call does not return and there is a thread to go on with it.
    /// True: calls have been made since the last tick, or one is under way.
    fn look(&mut self, watch: &Watch) -> bool;
}

impl<S: Successor> Look for Watched<S> {
    fn is_empty(&self) -> bool {
        self.successor.handoff().is_empty()
    }

    fn look(&mut self, watch: &Watch) -> bool {
        let Watched { successor, seen } = self;
        let handoff = successor.handoff();
        let calls = handoff.calls();
        if calls != seen.calls {
            *seen = Seen { calls, ticks: 0 };
            return true;
        }
        let taken = handoff.take_if(|thread_id| {
            seen.ticks += 1;
            // One that computes (a large batch to be inflated) or waits for a
            // processor gets more time.
            let is_stuck = seen.ticks >= STORAGE_BUSY_TICKS || poller::is_blocked(thread_id);
            is_stuck && successor.has_thread()
        });
        let Ok(taken) = taken else {
            return false;
        };
        if let Some(left) = taken {
            watch.hand_overs.fetch_add(1, Ordering::Relaxed);
            successor.take_over(left);
        }
        true
    }
}

pub struct Watchdog {
    watched: Vec<Box<dyn Look>>,
    watch: Arc<Watch>,
}

impl Watchdog {
    pub fn new(watch: Arc<Watch>) -> Watchdog {
        Watchdog {
            watched: Vec::new(),
            watch,
        }
    }

    pub fn add(&mut self, successor: impl Successor) {
        let seen = Seen::default();
        self.watched.push(Box::new(Watched { successor, seen }));
    }

    /// Starts the thread. `retry` starts threads that could not be started a moment
    /// ago; false: still not all.
    pub fn start(
        mut self,
        retry: impl FnMut() -> bool + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        let builder = std::thread::Builder::new().name("watchdog".to_owned());
        builder.spawn(move || or_end_process(|| self.run(retry)))
    }

    fn run(&mut self, mut retry: impl FnMut() -> bool) {
        let tick = Duration::from_millis(STORAGE_TICK_MS);
        let mut quiet_ticks = 0;
        loop {
            let is_quiet = quiet_ticks >= WATCHDOG_QUIET_TICKS;
            let (watched, watch) = (&self.watched, &self.watch);
            let nobody_is_away =
                || watched.iter().all(|each| each.is_empty()) && !watch.lacks_thread();
            if !watch.wait(tick, is_quiet.then_some(nobody_is_away)) {
                return;
            }
            quiet_ticks = if is_quiet { 1 } else { quiet_ticks + 1 };
            for each in &mut self.watched {
                if each.look(&self.watch) {
                    quiet_ticks = 0;
                }
            }
            if !retry() {
                quiet_ticks = 0;
            }
        }
    }
}

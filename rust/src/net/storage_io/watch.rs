//! How the watchdog is woken, and what it is to do again: shared with those that it watches.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Default)]
struct State {
    is_stopping: bool,
}

#[derive(Default)]
pub struct Watch {
    is_asleep: AtomicBool,
    state: Mutex<State>,
    wake: Condvar,
    /// A queue has no thread for the calls that wait there, since none could be started.
    lacks_thread: AtomicBool,
    /// Calls that did not return in time, so that another thread went on, since the start.
    pub hand_overs: AtomicU64,
}

impl Watch {
    /// After something was left for a call.
    pub fn wake_if_asleep(&self) {
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    fn wake(&self) {
        let _state = self.state.lock();
        self.wake.notify_one();
    }

    pub fn stop(&self) {
        self.state.lock().is_stopping = true;
        self.wake.notify_one();
    }

    /// Waits for the next tick, or until it is woken if `may_sleep` agrees. False:
    /// the watchdog has to end.
    pub fn wait(&self, tick: Duration, may_sleep: Option<impl FnOnce() -> bool>) -> bool {
        let mut state = self.state.lock();
        if state.is_stopping {
            return false;
        }
        let Some(may_sleep) = may_sleep else {
            self.wake.wait_for(&mut state, tick);
            return true;
        };
        self.is_asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if may_sleep() {
            self.wake.wait(&mut state);
        }
        self.is_asleep.store(false, Ordering::SeqCst);
        true
    }

    pub fn note_lack_of_thread(&self) {
        self.lacks_thread.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub fn lacks_thread(&self) -> bool {
        self.lacks_thread.load(Ordering::SeqCst)
    }

    /// Some queue has lacked a thread since the last time.
    pub fn take_lack_of_thread(&self) -> bool {
        self.lacks_thread.swap(false, Ordering::SeqCst)
    }
}

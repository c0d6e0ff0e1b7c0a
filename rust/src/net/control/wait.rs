//! How the control thread comes for more to do, and goes on when a log does not answer.
//!
//! ```text
//! Python       requests, timers ── call: queued ──┐                             ┌── answers
//! `wait`       the turn is left in its handoff, pwrite ┘  flushed or not needed: └ the call's number
//! ```
//!
//! The control thread makes the calls of its turn itself: it holds neither the GIL nor any state of
//! Python's here, so the spare thread can have the turn if a log directory does not answer. While
//! that is so, or there is no spare thread, the calls are made by the thread of the directory's
//! queue. A frozen directory holds up its own coordinators only.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::wall_ms;
use crate::net::control::queue::{ControlCall, ControlQueue, Taken, Turn};
use crate::net::storage_io::{
    BlockingCall, Deliver, Here, QueuedCall, Route, StorageIo, Submitted,
};

/// Makes the calls that were queued, and gives what the control thread has to do next: blocks until
/// there is something, at most `timeout`. A thread that had to wait for its turn gets what there is
/// then. `None`: the broker core has stopped.
pub fn wait(
    timeout: Option<Duration>,
    control: &Arc<ControlQueue>,
    storage: &StorageIo,
) -> Option<Taken> {
    loop {
        let turn = control.turn()?;
        // Which timer is due next was another thread's to know.
        let timeout = if turn.is_new {
            Some(Duration::ZERO)
        } else {
            timeout
        };
        if call_all(turn, control, storage).is_some() {
            return control.take(timeout);
        }
    }
}

/// `None`: one call took so long that another thread has gone on with the turn.
fn call_all(mut turn: Turn, control: &Arc<ControlQueue>, storage: &StorageIo) -> Option<Turn> {
    while let Some(call) = control.next_call() {
        let queue = call.queue(storage);
        let route = Some(Route {
            queue,
            by_thread_of: (!control.has_spare()).then_some(queue),
        });
        let control = control.clone();
        let handoff = control.clone();
        let submitted = storage.submit(turn, &handoff.handoff, Asked { call, control }, route);
        turn = match submitted {
            Submitted::Made(turn, ()) | Submitted::Queued(turn) => turn,
            Submitted::HandedOver(()) => {
                storage.returned(route);
                return None;
            }
        };
    }
    Some(turn)
}

/// A call, and the queue that is told what came of it.
struct Asked {
    call: Box<dyn ControlCall>,
    control: Arc<ControlQueue>,
}

impl BlockingCall for Asked {
    type Result = ();

    fn run(self, _: &Here<'_>) {
        self.call.run(&self.control, wall_ms());
    }

    fn queued(self) -> Box<dyn QueuedCall> {
        Box::new(self)
    }
}

impl QueuedCall for Asked {
    fn run(self: Box<Self>, here: &Here<'_>) -> Deliver {
        BlockingCall::run(*self, here);
        Box::new(|| ())
    }

    fn is_for(&self, _: usize, _: u64) -> bool {
        false
    }

    fn cancel(self: Box<Self>) {}
}

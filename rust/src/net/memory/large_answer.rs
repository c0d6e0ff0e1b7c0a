//! Large answers of Python's: each counts as memory from when it is begun. While none is left, one
//! is written only once all others are sent, or their connections gone: their requests may all have
//! begun while there was some. Whoever waits for that may be the client of such an answer, which
//! asks again before it has read all of it: so an answer ends when its last byte has left, whatever
//! comes behind it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{HeldMemory, Memory};
use crate::limits::HOUSEKEEPING_MS;

/// Those that are being written or sent.
#[derive(Default)]
pub struct LargeAnswers {
    count: Mutex<usize>,
    has_left: Condvar,
}

impl LargeAnswers {
    /// Another one is to be written, of which `memory` counts something already.
    pub fn begin(self: &Arc<Self>, memory: HeldMemory) -> LargeAnswer {
        *self.count.lock() += 1;
        LargeAnswer {
            memory,
            among: self.clone(),
        }
    }

    /// Says whether one more may be written.
    pub fn has_room(&self, memory: &Memory) -> bool {
        !memory.is_exhausted() || *self.count.lock() == 0
    }

    /// Blocks until one more may be written. Those whose answers are waited for are known to keep
    /// somebody waiting.
    pub fn wait_for_room(&self, memory: &Memory, now_ms: impl Fn() -> u64) {
        let mut count = self.count.lock();
        while memory.is_exhausted() && *count > 0 {
            memory.note_waiting(now_ms());
            // Of other memory nobody tells.
            let patience = Duration::from_millis(HOUSEKEEPING_MS);
            self.has_left.wait_for(&mut count, patience);
        }
    }
}

/// One of them, with its memory, until it is sent: the outbox that it is in has it.
pub struct LargeAnswer {
    pub memory: HeldMemory,
    among: Arc<LargeAnswers>,
}

impl Drop for LargeAnswer {
    fn drop(&mut self) {
        *self.among.count.lock() -= 1;
        self.among.has_left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::budget::ReceiveBudget;
    use super::*;

    #[test]
    fn while_memory_is_short_an_answer_waits_until_all_others_are_sent() {
        let memory = Memory::new(ReceiveBudget::new(100, None), || ());
        let answers = Arc::new(LargeAnswers::default());
        let begin = |bytes| answers.begin(HeldMemory::new(&memory, bytes));
        let first = begin(60);
        assert!(answers.has_room(&memory));
        let second = begin(60);
        assert!(!answers.has_room(&memory));
        drop(first);
        assert!(answers.has_room(&memory), "there is memory again");
        let _others = HeldMemory::new(&memory, 160);
        assert!(!answers.has_room(&memory));
        thread::scope(|scope| {
            let waits = scope.spawn(|| answers.wait_for_room(&memory, || 7));
            while !memory.is_waited_for(7) {
                thread::yield_now();
            }
            drop(second);
            assert!(waits.join().is_ok());
        });
        assert!(memory.is_exhausted() && answers.has_room(&memory), "alone");
    }
}

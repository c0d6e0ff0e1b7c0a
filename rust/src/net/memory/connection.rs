//! The memory that one connection takes of the budget, and since when it has waited for more.

use std::sync::Arc;

use super::slow_client::SlowClientCheck;
use super::{ExceedingAnswer, Memory};
use crate::limits::{HOUSEKEEPING_MS, MEMORY_FREE_BYTES};

#[derive(Default)]
pub struct ConnectionMemory {
    /// For the frame that arrives and for answers that are not read.
    pub held_bytes: usize,
    /// For what is on our side: requests that wait, answers that wait for earlier ones or are with
    /// another thread.
    pub owed_bytes: usize,
    /// Memory of the outbox while that is with a thread that sends.
    pub sending_bytes: usize,
    /// There is no memory for the rest of a frame.
    pub waits: bool,
    /// Since when there has been none for the rest of a frame.
    pub frame_waits_since_ms: Option<u64>,
    /// Since when a request has waited for memory that is in memory itself.
    request_waits_since_ms: Option<u64>,
    /// The frame that arrives, or waits, is the one that may exceed the budget.
    pub exceeds: bool,
    /// Since when that frame has been whole and waited for a log directory.
    exceeds_since_ms: Option<u64>,
    pub slow_client: SlowClientCheck,
    /// The request that is about to begin, or worked on, is the one whose answer may exceed the
    /// budget; once it is answered, the outbox has this.
    pub exceeding_answer: Option<ExceedingAnswer>,
}

impl ConnectionMemory {
    /// Brings what is held to `target` bytes, of which `present` are in memory already. False:
    /// there is no room for the rest, which is not to be received.
    pub fn account(
        &mut self,
        memory: &Memory,
        target: usize,
        present: usize,
        may_exceed: bool,
    ) -> bool {
        assert!(present <= target, "more is present than is wanted");
        if target > self.held_bytes {
            // What an earlier frame had is in nobody's way while this one waits,
            // least of all in its own.
            self.shrink(memory, present);
        }
        if target <= self.held_bytes {
            self.shrink(memory, target);
            return true;
        }
        let missing = target - self.held_bytes;
        let may_exceed = may_exceed && present < target && memory.is_exhausted();
        if may_exceed && (self.exceeds || memory.exceed()) {
            memory.charge(missing);
            self.exceeds = true;
        } else if !memory.reserve(missing) {
            // What has come in is in memory, room or not.
            memory.charge(present - self.held_bytes);
            self.held_bytes = present;
            return false;
        }
        self.held_bytes = target;
        true
    }

    fn shrink(&mut self, memory: &Memory, bytes: usize) {
        let left_over = self.held_bytes.saturating_sub(bytes);
        self.held_bytes -= left_over;
        memory.release(left_over);
    }

    /// Brings what is owed to so many bytes: they are in memory, room or not.
    pub fn owe(&mut self, memory: &Memory, owed_bytes: usize) {
        let before_bytes = std::mem::replace(&mut self.owed_bytes, owed_bytes);
        if owed_bytes > before_bytes {
            memory.charge(owed_bytes - before_bytes);
        } else {
            memory.release(before_bytes - owed_bytes);
        }
    }

    /// Gives everything back: the connection is gone.
    pub fn give_back(&mut self, memory: &Memory) {
        let all_bytes = std::mem::take(&mut self.held_bytes) + std::mem::take(&mut self.owed_bytes);
        memory.release(all_bytes);
        self.exceeding_answer = None;
    }

    /// The frame that exceeded the budget, if this one did, is whole, or there is none any more.
    pub fn end_exceeding(&mut self, memory: &Memory) {
        self.exceeds_since_ms = None;
        if std::mem::take(&mut self.exceeds) {
            memory.end_exceeding();
        }
    }

    /// Has a request that is in memory itself wait for memory. It may wait for requests that wait
    /// as it does: so after a while one at a time goes on. True: it waits.
    /// `is_for_long`: what exceeds the budget is its answer, until that is sent, and no frame has
    /// to wait for that.
    pub fn request_waits(&mut self, memory: &Arc<Memory>, is_for_long: bool, now_ms: u64) -> bool {
        let since_ms = *self.request_waits_since_ms.get_or_insert(now_ms);
        if now_ms - since_ms < HOUSEKEEPING_MS {
            return true;
        }
        if is_for_long {
            if self.exceeding_answer.is_none() {
                self.exceeding_answer = memory.exceed_by_answer();
            }
            return self.exceeding_answer.is_none();
        }
        self.exceeds = memory.exceed();
        !self.exceeds
    }

    /// The request that is worked on is the one whose answer may exceed the budget.
    pub fn answer_exceeds(&self) -> bool {
        self.exceeding_answer.is_some()
    }

    pub fn request_has_begun(&mut self) {
        self.request_waits_since_ms = None;
    }

    /// The frame that exceeds the budget waits, and has done so for a while, for a log directory
    /// that does not answer, or for Python.
    pub fn is_in_the_way(&mut self, is_blocked: bool, now_ms: u64) -> bool {
        let waits = self.exceeds && is_blocked;
        let since_ms = waits.then(|| *self.exceeds_since_ms.get_or_insert(now_ms));
        self.exceeds_since_ms = since_ms;
        since_ms.is_some_and(|since_ms| now_ms.saturating_sub(since_ms) >= HOUSEKEEPING_MS)
    }
}

/// The bytes that count: a connection has a few kilobytes free.
pub fn counted(bytes: usize) -> usize {
    match bytes {
        ..=MEMORY_FREE_BYTES => 0,
        bytes => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::ReceiveBudget;
    use super::*;

    /// Three frames of 400 bytes have come by halves and fill the memory together.
    #[test]
    fn frames_that_fill_the_memory_half_received_get_the_rest_one_after_the_other() {
        let memory = Memory::new(ReceiveBudget::new(600, None), || ());
        let mut frames: Vec<ConnectionMemory> =
            (0..3).map(|_| ConnectionMemory::default()).collect();
        for frame in &mut frames {
            assert!(frame.account(&memory, 200, 100, true) && !frame.exceeds);
        }
        assert!(frames[0].account(&memory, 400, 200, true) && frames[0].exceeds);
        assert!(!frames[1].account(&memory, 400, 200, true));
        assert_eq!(memory.used_bytes(), 600 + 200);
        for frame in &mut frames {
            assert!(frame.account(&memory, 400, 200, true));
            frame.end_exceeding(&memory);
            frame.give_back(&memory);
        }
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn who_may_not_get_on_or_needs_no_more_does_not_exceed_the_memory() {
        let memory = Memory::new(ReceiveBudget::new(100, None), || ());
        memory.charge(100);
        let mut frame = ConnectionMemory::default();
        assert!(!frame.account(&memory, 400, 0, false));
        assert!(!frame.account(&memory, 400, 400, true));
        assert!(memory.exceed(), "nobody has taken that");
        frame.give_back(&memory);
        memory.release(1);
        assert!(frame.account(&memory, 400, 0, true) && !frame.exceeds);
    }

    #[test]
    fn a_connection_gives_back_all_that_it_took_whatever_it_waited_for() {
        let memory = Memory::new(ReceiveBudget::new(1_000, None), || ());
        let mut first = ConnectionMemory::default();
        let mut second = ConnectionMemory::default();
        assert!(first.account(&memory, 5_000, 10, true), "anything is left");
        assert!(second.account(&memory, 400, 10, true) && second.exceeds);
        assert_eq!(memory.used_bytes(), 5_400);
        let mut third = ConnectionMemory::default();
        assert!(!third.account(&memory, 400, 10, true), "one at a time");
        assert_eq!(third.held_bytes, 10);
        third.owe(&memory, 90);
        assert_eq!(memory.used_bytes(), 5_500);
        second.end_exceeding(&memory);
        assert!(third.account(&memory, 400, 20, true) && third.exceeds);
        for each in [&mut first, &mut second, &mut third] {
            each.give_back(&memory);
        }
        assert_eq!(memory.used_bytes(), 0);
    }
}

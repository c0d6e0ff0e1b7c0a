//! The memory that requests and answers take, bounded for all connections together: a frame while
//! it arrives, what is made of it while it waits for its answer here or in Python, and answers
//! that wait for earlier ones or for their reader. Of a connection the first few kilobytes are
//! free (`MEMORY_FREE_BYTES`).
//!
//! The rule: memory counts from when it is taken until it is given back, and whoever asks while
//! any is left gets all it asks for. Once nothing is left, nothing new begins, and who holds some
//! and does not go on, goes.
//!
//! ```text
//! half is used    what would wait for a log directory or a Python that does not answer is not begun
//! none is left    no frame is received further, no request begun that may take much, until some is given
//!                 back; lest beginnings wait for each other, one frame of all may exceed the budget
//!                 no large answer of Python's is written before those that are written are sent
//!                 waiting fetches that hold much are answered with what there is (each second)
//!                 closed is who holds memory and (each second)
//!                 - exceeds the budget with a frame that waits for what does not answer
//!                 - is to send or to read, and moves nothing, or hardly         slow_client
//!                 and where others wait for memory, until some is left,
//!                 - exceeds the budget, and its frame takes too long            CLIENT_DUTY_MS
//!                 - takes too long to send or to read: the slowest first        CLIENT_DUTY_MS
//!                 - has waited for the rest of a frame as long as clients do    FRAME_WAIT_MS
//! ```
//!
//! Somebody always gets on. Frames that are half received and together hold all memory get the rest
//! beyond it, one after the other; each has its time for that while others wait, so who trickles
//! keeps nobody from it for long; and who merely waits is the last to go.
//!
//! `budget`: how much there is. `connection`: what one takes of it. `large_answer`: which large
//! answers may be written. `slow_client`: who hardly goes on. The network threads keep the rule in
//! `reactor/memory_use.rs`.

pub mod budget;
pub mod connection;
pub mod large_answer;
pub mod slow_client;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::budget::ReceiveBudget;
use crate::limits::HOUSEKEEPING_MS;

/// The budget, and how those are told who wait for some of it.
pub struct Memory {
    budget: ReceiveBudget,
    tell: Box<dyn Fn() + Send + Sync>,
    /// When somebody was last known to wait for memory; 0 is never.
    waited_ms: AtomicU64,
}

impl Memory {
    /// `tell` has those ask again who were refused; it must not block.
    pub fn new(budget: ReceiveBudget, tell: impl Fn() + Send + Sync + 'static) -> Arc<Memory> {
        let tell = Box::new(tell);
        Arc::new(Memory {
            budget,
            tell,
            waited_ms: AtomicU64::new(0),
        })
    }

    /// Somebody has waited for memory: a network thread, which looks once in `HOUSEKEEPING_MS`, has
    /// found so, or a large answer waits, which looks as often.
    pub fn note_waiting(&self, now_ms: u64) {
        self.waited_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// Somebody waits for memory, at whatever thread.
    pub fn is_waited_for(&self, now_ms: u64) -> bool {
        let waited_ms = self.waited_ms.load(Ordering::Relaxed);
        waited_ms > 0 && now_ms.saturating_sub(waited_ms) <= 2 * HOUSEKEEPING_MS
    }

    /// Gives memory back, and tells those who wait for some.
    pub fn release(&self, bytes: usize) {
        if bytes > 0 && self.budget.release(bytes) {
            (self.tell)();
        }
    }

    /// Lets another frame exceed the budget.
    pub fn end_exceeding(&self) {
        if self.budget.end_exceeding() {
            (self.tell)();
        }
    }

    /// The right of one answer at a time to exceed the budget, if no other one has it.
    pub fn exceed_by_answer(self: &Arc<Memory>) -> Option<ExceedingAnswer> {
        let has_right = self.budget.exceed_by_answer();
        has_right.then(|| ExceedingAnswer(self.clone()))
    }

    pub fn reserve(&self, bytes: usize) -> bool {
        self.budget.reserve(bytes)
    }

    pub fn exceed(&self) -> bool {
        self.budget.exceed()
    }

    pub fn charge(&self, bytes: usize) {
        self.budget.charge(bytes);
    }

    pub fn is_exhausted(&self) -> bool {
        self.budget.is_exhausted()
    }

    pub fn is_half_used(&self) -> bool {
        self.budget.is_half_used()
    }

    pub fn used_bytes(&self) -> i64 {
        self.budget.used_bytes()
    }

    pub fn size_bytes(&self) -> i64 {
        self.budget.size_bytes()
    }
}

/// The right of one answer to exceed the budget, until this is dropped.
pub struct ExceedingAnswer(Arc<Memory>);

impl Drop for ExceedingAnswer {
    fn drop(&mut self) {
        if self.0.budget.end_exceeding_answer() {
            (self.0.tell)();
        }
    }
}

/// Memory of the budget that is given back when this is dropped, by whatever thread.
pub struct HeldMemory {
    memory: Arc<Memory>,
    bytes: usize,
}

impl HeldMemory {
    /// Takes so many bytes, whatever is left: they are in memory already.
    pub fn new(memory: &Arc<Memory>, bytes: usize) -> HeldMemory {
        memory.charge(bytes);
        HeldMemory {
            memory: memory.clone(),
            bytes,
        }
    }

    /// Holds nothing yet, of the same memory.
    pub fn beside(&self) -> HeldMemory {
        HeldMemory::new(&self.memory, 0)
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes so many bytes more.
    pub fn grow(&mut self, bytes: usize) {
        self.memory.charge(bytes);
        self.bytes += bytes;
    }

    /// Has so many bytes from now on, more or fewer.
    pub fn resize(&mut self, bytes: usize) {
        let before_bytes = std::mem::replace(&mut self.bytes, bytes);
        if bytes > before_bytes {
            self.memory.charge(bytes - before_bytes);
        } else {
            self.memory.release(before_bytes - bytes);
        }
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.memory.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_given_back_as_it_shrinks_and_at_its_end() {
        let memory = Memory::new(ReceiveBudget::new(100, None), || ());
        let mut held = HeldMemory::new(&memory, 10);
        held.grow(200);
        assert!(memory.used_bytes() == 210 && memory.is_exhausted());
        held.resize(60);
        assert!(memory.used_bytes() == 60 && !memory.is_exhausted());
        held.resize(70);
        assert_eq!(memory.used_bytes(), 70);
        drop(held);
        assert_eq!(memory.used_bytes(), 0);
    }
}

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
//!                 waiting fetches that hold much are answered with what there is (each second)
//!                 closed is who holds memory and (each second)
//!                 - is to send or to read, and moves nothing, or hardly      slow_client
//!                 - has waited for the rest of a frame as long as clients do    FRAME_WAIT_MS
//!                 - exceeds the budget with a frame that waits for what does not answer
//! ```
//!
//! `budget`: how much there is. `connection`: what one takes of it. `slow_client`: who hardly goes
//! on. The network threads keep the rule in `reactor/memory_use.rs`.

pub mod budget;
pub mod connection;
pub mod slow_client;

use std::sync::Arc;

use self::budget::ReceiveBudget;

/// The budget, and how those are told who wait for some of it.
pub struct Memory {
    budget: ReceiveBudget,
    tell: Box<dyn Fn() + Send + Sync>,
}

impl Memory {
    /// `tell` has those ask again who were refused; it must not block.
    pub fn new(budget: ReceiveBudget, tell: impl Fn() + Send + Sync + 'static) -> Arc<Memory> {
        let tell = Box::new(tell);
        Arc::new(Memory { budget, tell })
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

    /// Takes so many bytes more.
    pub fn grow(&mut self, bytes: usize) {
        self.memory.charge(bytes);
        self.bytes += bytes;
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.memory.release(self.bytes);
    }
}

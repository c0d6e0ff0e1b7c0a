//! The memory that requests and answers take, bounded for all connections together.
//!
//! ```text
//! budget        how much there is, and who may have some
//! slow_client   who holds some that others wait for, and hardly goes on
//! ```

pub mod budget;
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
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.memory.release(self.bytes);
    }
}

//! The turns of appends that were put off: what a partition's producers have sent later waits for
//! them, so that no batch overtakes another of its producer.
//!
//! ```text
//! put off   take ─► 7       taken 8, ended 5: 5, 6 and 7 wait, and nobody appends without a turn
//! later     is_at(5)        5 is appended and ends, then 6, then 7, each by whoever has it
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub struct Turns {
    taken: AtomicU64,
    ended: AtomicU64,
}

impl Turns {
    /// Nothing was put off that has not been appended since.
    pub fn nobody_waits(&self) -> bool {
        self.ended.load(Ordering::Acquire) == self.taken.load(Ordering::Acquire)
    }

    /// A turn behind all others. Who takes one has to end it, else nothing is appended any more.
    pub fn take(&self) -> u64 {
        self.taken.fetch_add(1, Ordering::AcqRel)
    }

    /// All turns before this one have ended.
    pub fn is_at(&self, turn: u64) -> bool {
        self.ended.load(Ordering::Acquire) == turn
    }

    pub fn end(&self, turn: u64) {
        let ended = self.ended.swap(turn + 1, Ordering::AcqRel);
        assert_eq!(ended, turn, "turns end in their order");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_in_the_order_in_which_they_were_taken() {
        let turns = Turns::default();
        assert!(turns.nobody_waits());
        let (first, second) = (turns.take(), turns.take());
        assert!(!turns.nobody_waits() && turns.is_at(first) && !turns.is_at(second));
        turns.end(first);
        assert!(!turns.nobody_waits() && turns.is_at(second));
        turns.end(second);
        assert!(turns.nobody_waits());
    }
}

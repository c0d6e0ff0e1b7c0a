//! Numbers by which the control thread of Python is woken. Those of its own calls, which it counts
//! up from `STOP_NUMBER`, are beside them (`python/kafkalite/calls.py`).

/// The broker begins to stop.
pub const STOP_NUMBER: u64 = 0;
/// Controllers or other brokers have answered requests of this broker's own.
pub const OUTBOUND_ANSWERS_NUMBER: u64 = u64::MAX - 1;
/// The controlled shutdown begins.
pub const LEAVE_NUMBER: u64 = u64::MAX - 2;
/// Leaders of this node propose changes of their in-sync replicas (`isr_changes.rs`).
pub const ISR_CHANGES_NUMBER: u64 = u64::MAX - 3;
/// Replicas of this node have moved to other log directories, which the controller is
/// to be told (`moves.rs`).
pub const ASSIGNMENTS_NUMBER: u64 = u64::MAX - 4;

// Two with one number would call each other's code.
const _: () = {
    let all = [
        STOP_NUMBER,
        OUTBOUND_ANSWERS_NUMBER,
        LEAVE_NUMBER,
        ISR_CHANGES_NUMBER,
        ASSIGNMENTS_NUMBER,
    ];
    let mut at = 0;
    while at < all.len() {
        let mut other = at + 1;
        while other < all.len() {
            assert!(all[at] != all[other]);
            other += 1;
        }
        at += 1;
    }
};

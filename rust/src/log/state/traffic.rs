//! Counts of what has gone into a log and out of it, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of records and bytes that have gone in and out since the log was opened.
#[derive(Debug, Default)]
pub struct Traffic {
    appended_records: AtomicU64,
    appended_bytes: AtomicU64,
    replicated_bytes: AtomicU64,
    fetched_bytes: AtomicU64,
    committed_cuts: AtomicU64,
}

impl Traffic {
    /// Under the append lock: nobody else adds.
    pub(in crate::log) fn note_appended(&self, records: u64, bytes: u64) {
        let add = |count: &AtomicU64, more| {
            count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        add(&self.appended_records, records);
        add(&self.appended_bytes, bytes);
    }

    /// So many bytes have come from a leader.
    pub(in crate::log) fn note_replicated(&self, bytes: u64) {
        self.replicated_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The log is cut below its high watermark.
    pub fn note_committed_cut(&self) {
        self.committed_cuts.fetch_add(1, Ordering::Relaxed);
    }

    /// So many bytes of records are in an answer.
    pub fn note_fetched(&self, bytes: u64) {
        self.fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn appended_records(&self) -> u64 {
        self.appended_records.load(Ordering::Relaxed)
    }

    pub fn appended_bytes(&self) -> u64 {
        self.appended_bytes.load(Ordering::Relaxed)
    }

    pub fn replicated_bytes(&self) -> u64 {
        self.replicated_bytes.load(Ordering::Relaxed)
    }

    /// How often the log was cut below its high watermark.
    pub fn committed_cuts(&self) -> u64 {
        self.committed_cuts.load(Ordering::Relaxed)
    }

    pub fn fetched_bytes(&self) -> u64 {
        self.fetched_bytes.load(Ordering::Relaxed)
    }
}

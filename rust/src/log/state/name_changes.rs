//! Changes of names in a log's directory, and how many of them a sync has put on disk.

use std::sync::atomic::{AtomicU64, Ordering};

/// How often names were made, renamed or removed in the directory, and how many of these changes
/// are on disk. Counts, not a flag: whoever syncs the directory may begin long before it is done,
/// and others must not take it for synced meanwhile.
#[derive(Default)]
pub(in crate::log) struct NameChanges {
    count: AtomicU64,
    synced: AtomicU64,
}

impl NameChanges {
    /// After a change, and before what it names holds a record.
    pub fn note(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// Asked before a sync of the directory, for `note_synced`.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    pub fn are_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire) >= self.count()
    }

    /// A sync of the directory that began when there were so many has succeeded.
    pub fn note_synced(&self, count: u64) {
        assert!(
            count <= self.count(),
            "a sync of changes that have not been made"
        );
        self.synced.fetch_max(count, Ordering::AcqRel);
    }
}

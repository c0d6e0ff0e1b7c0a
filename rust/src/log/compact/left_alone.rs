//! Logs that the cleaner could not look after. Each is left alone for a while, so that the others
//! have their turn, and is then tried again: a disk that was full may have room. Kafka calls such a
//! partition uncleanable and leaves it alone until the next start (`LogCleanerManager`).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::limits::COMPACTION_RETRY_MS;
use crate::log::deadline::Deadline;
use crate::log::log::Log;
use crate::uuid::Uuid;

/// A log that could not be compacted, or whose old segments could not be deleted,
/// by its directory, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotCompacted {
    pub directory: PathBuf,
    pub reason: String,
}

impl fmt::Display for NotCompacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is skipped by the log cleaner, which tries again every {} minutes: {}",
            self.directory.display(),
            COMPACTION_RETRY_MS / 60_000,
            self.reason
        )
    }
}

/// The logs that a cleaner leaves alone, by their directories.
#[derive(Default)]
pub struct LeftAlone {
    logs: HashMap<PathBuf, Entry>,
}

struct Entry {
    /// Another topic may get the name, and with it the directory.
    topic_id: Option<Uuid>,
    reason: String,
    until: Deadline,
    is_told: bool,
}

impl LeftAlone {
    pub fn add(&mut self, log: &Log, reason: String, now_ms: i64) {
        let known = self.logs.get(&log.directory());
        let entry = Entry {
            is_told: known.is_some_and(|known| known.is_told && known.reason == reason),
            topic_id: log.topic_id(),
            reason,
            until: Deadline::after(COMPACTION_RETRY_MS, now_ms),
        };
        self.logs.insert(log.directory(), entry);
    }

    /// Says whether the log is to be left alone still. It stays known until `remove`, so that the
    /// same reason is not told twice.
    pub fn holds(&mut self, log: &Log, now_ms: i64) -> bool {
        let entry = self.logs.get_mut(&log.directory());
        entry.is_some_and(|entry| entry.topic_id == log.topic_id() && !entry.until.is_over(now_ms))
    }

    /// The log has been compacted.
    pub fn remove(&mut self, log: &Log) {
        self.logs.remove(&log.directory());
    }

    /// Forgets all but those of `logs`.
    pub fn retain(&mut self, logs: &[Arc<Log>]) {
        if self.logs.is_empty() {
            return;
        }
        let there: HashSet<PathBuf> = logs.iter().map(|log| log.directory()).collect();
        self.logs.retain(|directory, _| there.contains(directory));
    }

    /// The logs that have been added since the last call, or have another reason than then.
    pub fn take_news(&mut self) -> Vec<NotCompacted> {
        let untold = self.logs.iter_mut().filter(|(_, entry)| !entry.is_told);
        let news = untold.map(|(directory, entry)| {
            entry.is_told = true;
            NotCompacted {
                directory: directory.clone(),
                reason: entry.reason.clone(),
            }
        });
        news.collect()
    }
}

//! Logs that Python has made and deleted: a call for each log directory concerned, at
//! whose queue it waits if the directory does not answer. Python goes on meanwhile, and is
//! woken once all are through.
//!
//! ```text
//! Python      make_logs ──► a part for each directory ──► create_logs ─┐ the last one
//!             woken ◄── its number ◄── discarded again, if one failed ◄┘
//! ```
//!
//! Parts in one directory keep the order in which Python asked for them, so that a log is deleted
//! after it was made, and the directory of an older topic has gone before a new one takes its name.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::log::directory::{LogDirectory, NewLog};
use crate::log::log::Log;
use crate::net::control::answer::LogAnswer;
use crate::net::control::queue::{ControlCall, ControlQueue};
use crate::net::storage_io::{QueueId, QueueKind, StorageIo};
use crate::node::ByDirectory;
use crate::replica::Partition;
use crate::replica::park::StopReason;
use crate::uuid::Uuid;

/// Logs in one part of a change. They take some tenths of a second.
const LOGS_PER_PART_MAX: usize = 500;

/// A change of logs of one directory.
enum What {
    Make(Vec<NewLog>),
    /// As many as can be.
    MakeEach(Vec<NewLog>),
    /// Out of use since Python asked.
    Delete(Vec<Arc<Partition>>),
    /// Made, and of no use, since others could not be.
    Discard(Vec<Arc<Log>>),
}

/// The state that all parts of a change share.
struct Change {
    /// By which Python knows it, if it is to be told.
    number: Option<u64>,
    /// Parts that are not through.
    left: AtomicUsize,
    /// The first one.
    failure: Mutex<Option<Error>>,
    made: Mutex<ByDirectory<Arc<Log>>>,
}

/// The part of a change that lies in one log directory.
pub struct DirectoryChange {
    pub directory: Arc<LogDirectory>,
    what: What,
    change: Arc<Change>,
}

/// Has logs made: all of them, or none. Python is woken by the number then.
pub fn make_logs(wanted: ByDirectory<NewLog>, number: u64, control: &ControlQueue) {
    for (directory, logs) in &wanted {
        directory.expect_logs(logs.len());
    }
    begin(parts_of(wanted, What::Make), Some(number), None, control);
}

/// As `make_logs`, but what cannot be made keeps nothing else from being made. The
/// answer is the first failure.
pub fn make_each(wanted: ByDirectory<NewLog>, number: u64, control: &ControlQueue) {
    for (directory, logs) in &wanted {
        directory.expect_logs(logs.len());
    }
    begin(
        parts_of(wanted, What::MakeEach),
        Some(number),
        None,
        control,
    );
}

/// Has the logs of partitions that nobody sees any more deleted, with one sync of each directory. A
/// directory where that fails is offline then; the others have their turn all the same.
pub fn delete_logs(gone: ByDirectory<Arc<Partition>>, number: Option<u64>, control: &ControlQueue) {
    begin(parts_of(gone, What::Delete), number, None, control);
}

/// Parts of a size after which it shows that the directory answers.
fn parts_of<T>(
    by_directory: ByDirectory<T>,
    what: fn(Vec<T>) -> What,
) -> Vec<(Arc<LogDirectory>, What)> {
    let mut parts = Vec::new();
    for (directory, mut rest) in by_directory {
        while !rest.is_empty() {
            let later = rest.split_off(rest.len().min(LOGS_PER_PART_MAX));
            parts.push((directory.clone(), what(rest)));
            rest = later;
        }
    }
    parts
}

fn begin(
    parts: Vec<(Arc<LogDirectory>, What)>,
    number: Option<u64>,
    failure: Option<Error>,
    control: &ControlQueue,
) {
    let change = Arc::new(Change {
        number,
        left: AtomicUsize::new(parts.len()),
        failure: Mutex::new(failure),
        made: Mutex::default(),
    });
    if parts.is_empty() {
        change.end(control);
    }
    for (directory, what) in parts {
        control.call(DirectoryChange {
            directory,
            what,
            change: change.clone(),
        });
    }
}

impl ControlCall for DirectoryChange {
    fn queue(&self, storage: &StorageIo) -> QueueId {
        QueueId::Directory(QueueKind::LogChanges, storage.number_of(&self.directory))
    }

    fn run(self: Box<Self>, control: &ControlQueue, now_ms: i64) {
        let DirectoryChange {
            directory,
            what,
            change,
        } = *self;
        let done = match what {
            What::Make(wanted) => {
                let count = wanted.len();
                let made = directory.create_logs(wanted, now_ms);
                directory.expect_no_more(count);
                made.map(|logs| change.made.lock().push((directory, logs)))
            }
            What::MakeEach(wanted) => {
                let count = wanted.len();
                let failed = directory.create_each(wanted, now_ms);
                directory.expect_no_more(count);
                failed
                    .into_iter()
                    .next()
                    .map_or(Ok(()), |(_, error)| Err(error))
            }
            What::Delete(partitions) => delete(&directory, &partitions, now_ms),
            // What cannot be removed either, the next start calls stray.
            What::Discard(logs) => unique_text().map(|unique| {
                let discarded = directory.discard_logs(&logs, &unique, now_ms);
                discarded.unwrap_or(());
            }),
        };
        if let Err(error) = done {
            change.failure.lock().get_or_insert(error);
        }
        if change.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            change.end(control);
        }
    }
}

impl Change {
    /// All parts are through.
    fn end(&self, control: &ControlQueue) {
        let made = std::mem::take(&mut *self.made.lock());
        let failure = self.failure.lock().take();
        if failure.is_some() && !made.is_empty() {
            return begin(parts_of(made, What::Discard), self.number, failure, control);
        }
        let result = failure.map_or(Ok(()), Err);
        if let Some(number) = self.number {
            // Before Python can be woken.
            control.answer(number, LogAnswer::done(result));
            control.wake(number);
        }
    }
}

/// The first failure, after all partitions have had their turn.
fn delete(directory: &LogDirectory, partitions: &[Arc<Partition>], now_ms: i64) -> Result<()> {
    let unique = unique_text()?;
    let mut outcome = Ok(());
    for partition in partitions {
        let deleted = directory.delete_forgotten(&partition.log, &unique, now_ms);
        outcome = outcome.and(deleted.map(drop));
        // Those that have come since the topic went.
        partition.waiters.end(StopReason::Deleted);
    }
    outcome.and(directory.sync_deleted())
}

/// Text that makes the name of a directory that is to be removed unique.
fn unique_text() -> Result<String> {
    let id = Uuid::random()?;
    Ok(id.0.iter().map(|byte| format!("{byte:02x}")).collect())
}

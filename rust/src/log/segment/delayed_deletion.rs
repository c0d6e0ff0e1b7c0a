//! Files that are out of use and wait for `file.delete.delay.ms` before they are unlinked. Each has
//! its own deadline, and the housekeeper of the log directory is woken for the earliest: files that
//! waited for a look at everything would fill the disk as fast as producers write.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::error::Result;
use crate::log::deadline::Deadline;
use crate::log::segment::open_segments::{OpenSegments, SegmentFiles};

/// Segments of one log whose files are called `.deleted`.
pub struct CondemnedFiles {
    open_segments: Arc<OpenSegments>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Vec<(Deadline, Arc<SegmentFiles>)>,
    /// Deletions of the log directory; `None` for a log without one.
    deletions: Option<Arc<Deletions>>,
    /// True if it is one of `Deletions::logs`.
    is_listed: bool,
}

impl CondemnedFiles {
    pub fn new(open_segments: &Arc<OpenSegments>) -> Arc<CondemnedFiles> {
        Arc::new(CondemnedFiles {
            open_segments: open_segments.clone(),
            state: Mutex::default(),
        })
    }

    /// The housekeeper of a log directory unlinks them from now on.
    pub fn join(&self, deletions: &Arc<Deletions>) {
        let mut state = self.state.lock();
        assert!(state.waiting.is_empty(), "a log that is in use already");
        state.deletions = Some(deletions.clone());
    }

    pub fn add(self: &Arc<Self>, files: Arc<SegmentFiles>, until: Deadline) {
        let mut state = self.state.lock();
        state.waiting.push((until, files));
        let Some(deletions) = state.deletions.clone() else {
            return;
        };
        if !std::mem::replace(&mut state.is_listed, true) {
            deletions.logs.lock().push(self.clone());
        }
        drop(state);
        deletions.expect(until.due_ms());
    }

    /// Takes out the files of the segment at `base_offset`, if they wait here.
    pub fn take(&self, base_offset: i64) -> Option<Arc<SegmentFiles>> {
        let waiting = &mut self.state.lock().waiting;
        let slot = waiting
            .iter()
            .position(|(_, files)| files.base_offset() == base_offset);
        slot.map(|slot| waiting.swap_remove(slot).1)
    }

    /// Unlinks those whose delay is over. Returns how many segments went.
    pub fn remove_due(&self, now_ms: i64) -> Result<usize> {
        let due: Vec<_> = {
            let waiting = &mut self.state.lock().waiting;
            let due = waiting.extract_if(.., |(until, _)| until.is_over(now_ms));
            due.collect()
        };
        let removed = due
            .iter()
            .map(|(_, files)| self.open_segments.remove(files));
        removed.fold(Ok(()), Result::and).map(|()| due.len())
    }

    /// The directory of the log has been renamed.
    pub fn take_to(&self, directory: &Path) {
        for (_, files) in &self.state.lock().waiting {
            files.move_to(directory);
        }
    }

    /// The directory of the log has been renamed and is removed as a whole.
    pub fn move_all_to(&self, directory: &Path) {
        for (_, files) in self.state.lock().waiting.drain(..) {
            files.move_to(directory);
        }
    }

    /// When the next are due. `None`: none wait, and the log is not listed any more.
    fn due_ms_or_unlist(&self) -> Option<i64> {
        let mut state = self.state.lock();
        let due_ms = state.waiting.iter().map(|(until, _)| until.due_ms()).min();
        state.is_listed = due_ms.is_some();
        due_ms
    }
}

/// All that waits in one log directory, and who is told when the first is due.
pub struct Deletions {
    /// Logs with files that wait for their deletion.
    logs: Mutex<Vec<Arc<CondemnedFiles>>>,
    /// Partitions' directories that were renamed.
    directories: Mutex<Vec<(Deadline, PathBuf)>>,
    /// When the housekeeper looks next at the latest, as far as it is for this.
    expected_ms: AtomicI64,
    wake: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl Default for Deletions {
    fn default() -> Deletions {
        Deletions {
            logs: Mutex::default(),
            directories: Mutex::default(),
            expected_ms: AtomicI64::new(i64::MAX),
            wake: Mutex::default(),
        }
    }
}

impl Deletions {
    /// `wake` is called, on any thread, when something is due before all that was known.
    pub fn set_wake(&self, wake: impl Fn() + Send + 'static) {
        *self.wake.lock() = Some(Box::new(wake));
    }

    /// Something is due that is not noted here.
    pub fn wake(&self) {
        if let Some(wake) = &*self.wake.lock() {
            wake();
        }
    }

    pub fn add_directory(&self, path: PathBuf, until: Deadline) {
        self.directories.lock().push((until, path));
        self.expect(until.due_ms());
    }

    /// Takes out renamed directories whose delay is over, at most so many.
    pub fn take_due_directories(&self, now_ms: i64, count_max: usize) -> Vec<PathBuf> {
        let mut directories = self.directories.lock();
        let due = directories.extract_if(.., |(until, _)| until.is_over(now_ms));
        due.map(|(_, path)| path).take(count_max).collect()
    }

    /// Unlinks the files that are due, of each log. Errors: one, after all have had their turn.
    pub fn remove_due_files(&self, now_ms: i64) -> Result<()> {
        let logs = self.logs.lock().clone();
        let removed = logs.iter().map(|log| log.remove_due(now_ms).map(drop));
        removed.fold(Ok(()), Result::and)
    }

    /// When something is due next; whoever asks looks again by then, or when it is woken.
    pub fn next_due_ms(&self) -> i64 {
        // What is added from here on is either seen below or wakes.
        self.expected_ms.store(i64::MAX, Ordering::SeqCst);
        let mut next_ms = i64::MAX;
        let logs = std::mem::take(&mut *self.logs.lock());
        for log in logs {
            if let Some(due_ms) = log.due_ms_or_unlist() {
                next_ms = next_ms.min(due_ms);
                self.logs.lock().push(log);
            }
        }
        let directories = self.directories.lock();
        let due = directories.iter().map(|(until, _)| until.due_ms()).min();
        let next_ms = next_ms.min(due.unwrap_or(i64::MAX));
        self.expected_ms.fetch_min(next_ms, Ordering::SeqCst);
        next_ms
    }

    fn expect(&self, due_ms: i64) {
        if due_ms < self.expected_ms.fetch_min(due_ms, Ordering::SeqCst) {
            self.wake();
        }
    }
}

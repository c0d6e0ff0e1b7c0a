//! Work on a log directory that is due from time to time: retention, flushing by time, files whose
//! delay is over, checkpoints, silent producers; and on a thread of its own, because it takes long,
//! the cleaner, with the retention of what it compacts. Each directory has both for itself, so that
//! a slow disk keeps nobody else's house waiting.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::clock::wall_ms;
use crate::crash::or_error;
use crate::error::{Error, Result};
use crate::limits::DIRECTORIES_PER_TICK;

use crate::log::compact::Cleaner;
use crate::log::deadline::Deadline;
use crate::log::directory::LogDirectory;
use crate::log::log::Log;

/// How often, in milliseconds; the defaults are Kafka's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// `log.retention.check.interval.ms`, of logs that are not compacted
    pub retention_check_ms: i64,
    /// `log.initial.task.delay.ms`: when it is looked at first, if not before. A broker that never
    /// runs for a whole interval deletes too.
    pub first_retention_check_ms: i64,
    /// `log.flush.scheduler.interval.ms`, if any topic has a `flush.ms`; Kafka's default is never
    pub flush_check_ms: i64,
    /// `log.flush.offset.checkpoint.interval.ms`
    pub checkpoint_ms: i64,
    /// `replica.high.watermark.checkpoint.interval.ms`; never where this node is the only replica
    /// of all that it has, since the end of a log is its high watermark then
    pub high_watermark_ms: i64,
    /// `producer.id.expiration.check.interval.ms`
    pub producer_check_ms: i64,
}

impl Default for Intervals {
    fn default() -> Intervals {
        Intervals {
            retention_check_ms: 300_000,
            first_retention_check_ms: 30_000,
            flush_check_ms: i64::MAX,
            checkpoint_ms: 60_000,
            high_watermark_ms: i64::MAX,
            producer_check_ms: 600_000,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Chore {
    Retention,
    Flush,
    Checkpoint,
    HighWatermark,
    Producers,
}

/// The chores of one directory and when each is due. Told the time; sleeps never. What goes wrong
/// with one log, a panic too, keeps no other waiting.
pub struct Housekeeper {
    directory: Arc<LogDirectory>,
    due: Vec<(Chore, Deadline)>,
    /// `flush.ms` of each log from when it was first seen with unflushed records, and its flushed
    /// offset then.
    unflushed: HashMap<PathBuf, (Deadline, i64)>,
    /// Told of every failure; the directory is offline if it was one of its disk.
    on_error: Box<dyn Fn(&Error) + Send>,
}

impl Housekeeper {
    pub fn new(
        directory: Arc<LogDirectory>,
        intervals: Intervals,
        now_ms: i64,
        on_error: Box<dyn Fn(&Error) + Send>,
    ) -> Housekeeper {
        let chores = [
            (Chore::Retention, intervals.retention_check_ms),
            (Chore::Flush, intervals.flush_check_ms),
            (Chore::Checkpoint, intervals.checkpoint_ms),
            (Chore::HighWatermark, intervals.high_watermark_ms),
            (Chore::Producers, intervals.producer_check_ms),
        ];
        let mut due = chores.map(|(chore, every_ms)| (chore, Deadline::after(every_ms, now_ms)));
        let [(_, retention), ..] = &mut due;
        let early_ms = retention.wait_ms - intervals.first_retention_check_ms;
        retention.restart(now_ms.saturating_sub(early_ms.max(0)));
        Housekeeper {
            directory,
            due: due.to_vec(),
            unflushed: HashMap::new(),
            on_error,
        }
    }

    /// Does what is due at `now_ms` and returns when the next chore is, or the next deletion.
    pub fn tick(&mut self, now_ms: i64) -> i64 {
        for slot in 0..self.due.len() {
            let (chore, until) = &mut self.due[slot];
            if until.is_over(now_ms) && !self.directory.health().is_offline() {
                until.restart(now_ms);
                let chore = *chore;
                self.run(chore, now_ms);
            }
        }
        if self.directory.health().is_offline() {
            return i64::MAX;
        }
        self.delete_what_is_due(now_ms);
        let next = self.due.iter().map(|(_, until)| until.due_ms());
        let next_deletion_ms = self.directory.deletions().next_due_ms();
        next.fold(next_deletion_ms, i64::min)
    }

    fn delete_what_is_due(&self, now_ms: i64) {
        let directory = &self.directory;
        self.tell(or_error(directory.path(), || {
            directory.delete_given_up(now_ms)
        }));
        self.tell(or_error(directory.path(), || {
            directory.deletions().remove_due_files(now_ms)
        }));
        let due = directory
            .deletions()
            .take_due_directories(now_ms, DIRECTORIES_PER_TICK);
        for path in due {
            self.tell(or_error(&path, || directory.remove_deleted(&path)));
        }
    }

    fn run(&mut self, chore: Chore, now_ms: i64) {
        let directory = self.directory.clone();
        if chore == Chore::Checkpoint {
            let written = or_error(directory.path(), || directory.write_checkpoints());
            return self.tell(written);
        }
        if chore == Chore::HighWatermark {
            let write = || directory.write_high_watermarks();
            return self.tell(or_error(directory.path(), write));
        }
        let logs = directory.logs();
        if chore == Chore::Flush {
            // Another log may get the directory of one that is gone.
            let there: HashSet<PathBuf> = logs.iter().map(|log| log.directory()).collect();
            self.unflushed.retain(|path, _| there.contains(path));
        }
        for log in logs {
            let of_one = or_error(&log.directory(), || self.look_after(&log, chore, now_ms));
            self.tell(of_one);
        }
    }

    fn look_after(&mut self, log: &Arc<Log>, chore: Chore, now_ms: i64) -> Result<()> {
        match chore {
            Chore::Retention => {
                log.remove_given_up_snapshots()?;
                if log.config().cleanup_policy.compact {
                    return Ok(()); // the cleaner does it (`LogManager.cleanupLogs`)
                }
                log.delete_old_segments(now_ms).map(drop)
            }
            Chore::Flush => {
                self.flush_if_late(log, now_ms);
                Ok(())
            }
            Chore::Producers => {
                log.expire_producers(now_ms);
                Ok(())
            }
            Chore::Checkpoint | Chore::HighWatermark => Ok(()),
        }
    }

    fn tell(&self, done: Result<()>) {
        match done {
            // Deleted between the list and here.
            Ok(()) | Err(Error::LogDeleted { .. }) => {}
            Err(error) => (self.on_error)(&error),
        }
    }

    fn flush_if_late(&mut self, log: &Arc<Log>, now_ms: i64) {
        let offsets = log.offsets();
        let path = log.directory();
        if offsets.flushed_offset >= offsets.log_end_offset {
            self.unflushed.remove(&path);
            return;
        }
        let flush_ms = log.config().flush_ms;
        let first_seen = (Deadline::after(flush_ms, now_ms), offsets.flushed_offset);
        let seen = self.unflushed.entry(path).or_insert(first_seen);
        if seen.1 != offsets.flushed_offset {
            *seen = first_seen;
        }
        seen.0.wait_ms = flush_ms;
        if seen.0.is_over(now_ms) {
            self.directory.request_flush(log);
        }
    }
}

/// How the cleaner of a directory works; the defaults are Kafka's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CleanerSettings {
    /// `log.cleaner.dedupe.buffer.size`, bytes
    pub dedupe_buffer_bytes: usize,
    /// `log.cleaner.io.buffer.load.factor`, 0 to 1
    pub load_factor: f64,
    /// `log.cleaner.backoff.ms`: the pause when no log is due
    pub backoff_ms: i64,
}

impl Default for CleanerSettings {
    fn default() -> CleanerSettings {
        CleanerSettings {
            dedupe_buffer_bytes: 128 << 20,
            load_factor: 0.9,
            backoff_ms: 15_000,
        }
    }
}

/// A chore on a thread of its own, by the wall clock. Dropping it ends the thread.
pub struct HousekeeperThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Looked at by a chore that takes long.
    is_stopping: AtomicBool,
    /// True if it was woken since the chore was called last.
    is_woken: Mutex<bool>,
    is_awake: Condvar,
}

impl Shared {
    fn wake(&self) {
        *self.is_woken.lock() = true;
        self.is_awake.notify_all();
    }
}

impl HousekeeperThread {
    pub fn start(mut housekeeper: Housekeeper) -> std::io::Result<HousekeeperThread> {
        let directory = housekeeper.directory.clone();
        let thread = Self::repeat("housekeeper", move |now_ms, _| housekeeper.tick(now_ms))?;
        let shared = thread.shared.clone();
        directory.deletions().set_wake(move || shared.wake());
        // Its first look may have been before.
        thread.wake();
        Ok(thread)
    }

    /// Deletes what is too old in the directory's compacted logs, and compacts them, the dirtiest
    /// first, as long as one is due. `settings` may change meanwhile; `wake` has them looked at.
    /// `tell` gets each failure, and each log that is left alone, when its reason is new.
    pub fn start_cleaner(
        directory: Arc<LogDirectory>,
        settings: Arc<Mutex<CleanerSettings>>,
        tell: impl Fn(&dyn Display) + Send + 'static,
    ) -> std::io::Result<HousekeeperThread> {
        let mut known = *settings.lock();
        let mut cleaner = Cleaner::new(known.dedupe_buffer_bytes, known.load_factor);
        let mut pause: Option<Deadline> = None;
        let mut told: Option<String> = None;
        Self::repeat("cleaner", move |now_ms, is_stopping| {
            let before = std::mem::replace(&mut known, *settings.lock());
            if known != before {
                cleaner.resize(known.dedupe_buffer_bytes, known.load_factor);
            }
            if let Some(pause) = &mut pause {
                pause.wait_ms = known.backoff_ms;
                if !pause.is_over(now_ms) {
                    return pause.due_ms();
                }
            }
            let later_ms = pause
                .insert(Deadline::after(known.backoff_ms, now_ms))
                .due_ms();
            if directory.health().is_offline() {
                return later_ms;
            }
            let cleaned = or_error(directory.path(), || {
                cleaner.delete_old_segments(&directory, now_ms, is_stopping)?;
                cleaner.clean_dirtiest(&directory, now_ms, is_stopping)
            });
            for not_compacted in cleaner.take_news() {
                tell(&not_compacted);
            }
            let failure = cleaned.as_ref().err().map(ToString::to_string);
            if let Some(news) = failure.as_ref().filter(|news| told.as_ref() != Some(news)) {
                tell(news);
            }
            told = failure;
            match cleaned {
                Ok(Some(_)) => {
                    pause = None;
                    now_ms
                }
                Ok(None) | Err(_) => later_ms,
            }
        })
    }

    /// Calls `chore` with the time; it returns when it wants to be called again.
    fn repeat(
        name: &str,
        mut chore: impl FnMut(i64, &AtomicBool) -> i64 + Send + 'static,
    ) -> std::io::Result<HousekeeperThread> {
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                while !own.is_stopping.load(Ordering::Acquire) {
                    let next_ms = chore(wall_ms(), &own.is_stopping);
                    // At least a pause, whatever the intervals are; at most a minute, should the
                    // clock be set back meanwhile.
                    let pause_ms = next_ms.saturating_sub(wall_ms()).clamp(10, 60_000);
                    let mut is_woken = own.is_woken.lock();
                    if !std::mem::take(&mut *is_woken) {
                        own.is_awake
                            .wait_for(&mut is_woken, Duration::from_millis(pause_ms as u64));
                        *is_woken = false;
                    }
                }
            })?;
        Ok(HousekeeperThread {
            shared,
            thread: Some(thread),
        })
    }

    /// Has the chore called now, or once more if it is under way.
    pub fn wake(&self) {
        self.shared.wake();
    }

    /// Waits for what is under way, which a long chore cuts short.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by its own message.
            let _ = thread.join();
        }
    }
}

impl Drop for HousekeeperThread {
    fn drop(&mut self) {
        self.end();
    }
}

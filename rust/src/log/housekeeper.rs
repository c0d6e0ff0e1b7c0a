//! What a log directory needs done from time to time: retention, flushing by time, files whose delay
//! is over, checkpoints, silent producers. One thread a directory, so that a slow disk keeps
//! nobody else's house waiting.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};

use crate::error::Error;

use super::directory::LogDirectory;
use super::log::Log;

/// How often, in milliseconds; the defaults are Kafka's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// `log.retention.check.interval.ms`
    pub retention_check_ms: i64,
    /// `log.flush.scheduler.interval.ms`, if any topic has a `flush.ms`; Kafka's default is never
    pub flush_check_ms: i64,
    /// `log.flush.offset.checkpoint.interval.ms`
    pub checkpoint_ms: i64,
    /// How often files called `.deleted` are looked at
    pub delete_check_ms: i64,
    /// `producer.id.expiration.check.interval.ms`
    pub producer_check_ms: i64,
}

impl Default for Intervals {
    fn default() -> Intervals {
        Intervals {
            retention_check_ms: 300_000,
            flush_check_ms: i64::MAX,
            checkpoint_ms: 60_000,
            delete_check_ms: 10_000,
            producer_check_ms: 600_000,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Chore {
    Retention,
    Flush,
    Checkpoint,
    Delete,
    Producers,
}

/// The chores of one directory and when each is due. Told the time; sleeps never.
pub struct Housekeeper {
    directory: Arc<LogDirectory>,
    due: Vec<(Chore, i64, i64)>,
    /// When each log was first seen with unflushed records, and its flushed offset then.
    unflushed_since: HashMap<PathBuf, (i64, i64)>,
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
            (Chore::Delete, intervals.delete_check_ms),
            (Chore::Producers, intervals.producer_check_ms),
        ];
        let due = chores.map(|(chore, every)| (chore, every, now_ms.saturating_add(every)));
        Housekeeper {
            directory,
            due: due.to_vec(),
            unflushed_since: HashMap::new(),
            on_error,
        }
    }

    /// Does what is due at `now_ms` and returns when the next chore is.
    pub fn tick(&mut self, now_ms: i64) -> i64 {
        for slot in 0..self.due.len() {
            let (chore, every_ms, due_ms) = self.due[slot];
            if due_ms <= now_ms && !self.directory.health().is_offline() {
                self.run(chore, now_ms);
                self.due[slot].2 = now_ms.saturating_add(every_ms);
            }
        }
        let next = self.due.iter().map(|(_, _, due_ms)| *due_ms).min();
        next.unwrap_or(i64::MAX)
    }

    fn run(&mut self, chore: Chore, now_ms: i64) {
        if chore == Chore::Checkpoint {
            if let Err(error) = self.directory.write_checkpoints() {
                (self.on_error)(&error);
            }
            return;
        }
        for log in self.directory.logs() {
            let done = match chore {
                Chore::Retention => log.delete_old_segments(now_ms).map(drop),
                Chore::Delete => log.delete_due_files(now_ms).map(drop),
                Chore::Flush => {
                    self.flush_if_late(&log, now_ms);
                    Ok(())
                }
                Chore::Producers => {
                    log.expire_producers(now_ms);
                    Ok(())
                }
                Chore::Checkpoint => Ok(()),
            };
            match done {
                // Deleted between the list and here.
                Ok(()) | Err(Error::LogDeleted { .. }) => {}
                Err(error) => (self.on_error)(&error),
            }
        }
    }

    fn flush_if_late(&mut self, log: &Arc<Log>, now_ms: i64) {
        let offsets = log.offsets();
        let path = log.directory();
        if offsets.flushed_offset >= offsets.log_end_offset {
            self.unflushed_since.remove(&path);
            return;
        }
        let since = self
            .unflushed_since
            .entry(path)
            .or_insert((now_ms, offsets.flushed_offset));
        if since.1 != offsets.flushed_offset {
            *since = (now_ms, offsets.flushed_offset);
        }
        if now_ms.saturating_sub(since.0) >= log.config().flush_ms {
            self.directory.request_flush(log);
        }
    }
}

/// A housekeeper on a thread of its own, by the wall clock.
pub struct HousekeeperThread {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl HousekeeperThread {
    pub fn start(mut housekeeper: Housekeeper) -> std::io::Result<HousekeeperThread> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopping = stop.clone();
        let thread = thread::Builder::new()
            .name("housekeeper".to_owned())
            .spawn(move || {
                let mut now_ms = wall_clock_ms();
                loop {
                    let next_ms = housekeeper.tick(now_ms);
                    let mut is_stopping = stopping.0.lock();
                    // At least a pause, whatever the intervals are; at most a minute, should the clock
                    // be set back meanwhile.
                    let pause_ms = next_ms.saturating_sub(wall_clock_ms()).clamp(10, 60_000);
                    if !*is_stopping {
                        let pause = Duration::from_millis(pause_ms as u64);
                        stopping.1.wait_for(&mut is_stopping, pause);
                    }
                    if *is_stopping {
                        return;
                    }
                    now_ms = wall_clock_ms();
                }
            })?;
        Ok(HousekeeperThread {
            stop,
            thread: Some(thread),
        })
    }

    /// Waits for the chore that is under way.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
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

fn wall_clock_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

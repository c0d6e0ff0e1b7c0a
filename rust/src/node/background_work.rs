//! The work in the background of a node's log directories, from `start_background_work` to `close`.

use std::fmt::Display;
use std::path::PathBuf;

use super::Node;
use crate::error::Error;
use crate::log::maintain::housekeeper::{
    CleanerSettings, Housekeeper, HousekeeperThread, Intervals,
};

impl Node {
    /// Has retention, compaction, flushing by time and checkpoints done from now on, until `close`.
    /// `tell` gets what goes wrong.
    pub fn start_background_work(
        &self,
        intervals: Intervals,
        cleaner: CleanerSettings,
        now_ms: i64,
        tell: impl Fn(&dyn Display) + Clone + Send + 'static,
    ) -> std::io::Result<()> {
        *self.cleaner.lock() = cleaner;
        for directory in &self.directories.online {
            let settings = self.cleaner.clone();
            let cleaner =
                HousekeeperThread::start_cleaner(directory.clone(), settings, tell.clone())?;
            self.housekeepers.lock().push(cleaner);
            let tell = tell.clone();
            let on_error = Box::new(move |error: &Error| tell(error));
            let keeper = Housekeeper::new(directory.clone(), intervals, now_ms, on_error);
            self.housekeepers
                .lock()
                .push(HousekeeperThread::start(keeper)?);
        }
        Ok(())
    }

    /// How the cleaners work from now on; a log that is being compacted ends as it began.
    pub fn set_cleaner(&self, settings: CleanerSettings) {
        *self.cleaner.lock() = settings;
        for housekeeper in self.housekeepers.lock().iter() {
            housekeeper.wake();
        }
    }

    /// The clean stop of all directories, after the network threads have ended. Returns those that
    /// could not be stopped cleanly, each with its first failure.
    pub fn close(&self, broker_epoch: i64) -> Vec<(PathBuf, Error)> {
        for housekeeper in std::mem::take(&mut *self.housekeepers.lock()) {
            housekeeper.stop();
        }
        let mut failed = self.directories.close(broker_epoch);
        if let Some(directory) = &self.metadata_directory
            && let Err(error) = directory.close(broker_epoch)
        {
            failed.push((directory.path().to_path_buf(), error));
        }
        failed
    }
}

//! The health of a log directory says whether it may still be written to. A failed fsync, or a
//! file that could not be brought back to what it was, ends that for good: what is on disk is then
//! unknown, and a second fsync would lie about it. So does a write that fails for anything but a
//! lack of space or descriptors, as in Kafka (`LogDirFailureChannel`): a disk that is broken or
//! read-only by now is of no use to the partitions in it, which others can lead. The process has
//! to start anew and recover.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use crate::error::{Error, Result};

/// Shared by all logs of one log directory.
pub struct Health {
    path: PathBuf,
    failure: OnceLock<String>,
}

impl Health {
    pub fn new(path: &Path) -> Health {
        Health {
            path: path.to_path_buf(),
            failure: OnceLock::new(),
        }
    }

    /// Takes the directory offline. The first reason stays.
    pub fn fail(&self, error: &Error) {
        let _ = self.failure.set(error.to_string());
    }

    /// As `fail`, but not where a file could not be opened for lack of descriptors: nothing has
    /// been done to it then, and there may be some again.
    pub fn fail_for_good(&self, error: &Error) {
        if !error.lacks_descriptors() {
            self.fail(error);
        }
    }

    /// As `fail`, of a call that failed before anything was synced, and whose traces are gone: not
    /// where there was a lack of space or descriptors, for there may be some again.
    pub fn fail_unless_short(&self, error: &Error) {
        let is_short = error.lacks_space() || error.lacks_descriptors();
        if matches!(error, Error::Io { .. }) && !is_short {
            self.fail(error);
        }
    }

    /// Errors: `LogDirOffline` with the reason, once the directory has failed.
    pub fn check(&self) -> Result<()> {
        match self.failure.get() {
            None => Ok(()),
            Some(reason) => Err(Error::LogDirOffline {
                path: self.path.clone(),
                reason: reason.clone(),
            }),
        }
    }

    pub fn is_offline(&self) -> bool {
        self.failure.get().is_some()
    }
}

/// The health of the log directory in which a log lies, which may change (`Log::replace_by`).
pub struct CurrentHealth(RwLock<Arc<Health>>);

impl CurrentHealth {
    pub fn new(health: Arc<Health>) -> CurrentHealth {
        CurrentHealth(RwLock::new(health))
    }

    pub fn get(&self) -> Arc<Health> {
        self.0.read().clone()
    }

    /// From now on it is that of another directory. Returns the one before.
    pub fn replace(&self, health: Arc<Health>) -> Arc<Health> {
        std::mem::replace(&mut *self.0.write(), health)
    }

    /// As `Health::fail`.
    pub fn fail(&self, error: &Error) {
        self.0.read().fail(error);
    }

    /// As `Health::fail_for_good`.
    pub fn fail_for_good(&self, error: &Error) {
        self.0.read().fail_for_good(error);
    }

    /// As `Health::fail_unless_short`.
    pub fn fail_unless_short(&self, error: &Error) {
        self.0.read().fail_unless_short(error);
    }

    /// As `Health::check`.
    pub fn check(&self) -> Result<()> {
        self.0.read().check()
    }

    /// As `Health::is_offline`.
    pub fn is_offline(&self) -> bool {
        self.0.read().is_offline()
    }
}

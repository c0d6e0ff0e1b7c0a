//! The health of a log directory says whether it may still be written to. A failed fsync, or a file
//! that could not be brought back to what it was, ends that for good: what is on disk is then
//! unknown, and a second fsync would lie about it. The process has to start anew and recover.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

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

    /// As `fail`, but not where a file could not be opened for lack of descriptors: nothing has been done
    /// to it then, and there may be some again.
    pub fn fail_for_good(&self, error: &Error) {
        if !error.lacks_descriptors() {
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

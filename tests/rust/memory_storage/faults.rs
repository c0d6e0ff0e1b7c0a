//! Which call fails, and how.

use std::io;

/// Each kind of call of `Storage` and `StorageFile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    Open,
    CreateDirectory,
    ReadDirectory,
    FileSize,
    Modified,
    Rename,
    RemoveFile,
    RemoveDirectory,
    SyncDirectory,
    SyncFileSystem,
    Lock,
    AvailableBytes,
    Read,
    Write,
    Size,
    SetSize,
    Preallocate,
    SyncData,
    CheckWritten,
    Map,
}

/// What a failing call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// ENOSPC; of a write nothing is there.
    NoSpace,
    /// EMFILE, of an open.
    TooManyOpen,
    /// EIO; of a write half is there. After a failed sync the pages count as clean, as on Linux:
    /// later syncs succeed and make nothing of them durable.
    Io,
    /// A write takes half of its bytes and says so, and the next write fails with ENOSPC. Other
    /// calls: as `Io`.
    ShortWrite,
    /// The caller panics.
    Panic,
}

impl Failure {
    /// Panics if that is what it does.
    pub(super) fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Failure::NoSpace => 28,
            Failure::TooManyOpen => 24,
            Failure::Io | Failure::ShortWrite => 5,
            Failure::Panic => panic!("a call that nobody expected"),
        })
    }
}

/// Which call fails: the n-th (from 1) of those that the filter lets through.
#[derive(Clone, Debug)]
pub struct Fault {
    pub nth: u64,
    pub operation: Option<Operation>,
    /// The path must contain this.
    pub path_part: String,
    pub failure: Failure,
    /// All calls from the n-th on, until `heal`.
    pub is_lasting: bool,
}

impl Fault {
    pub fn at_call(nth: u64, failure: Failure) -> Fault {
        Fault {
            nth,
            operation: None,
            path_part: String::new(),
            failure,
            is_lasting: false,
        }
    }

    pub fn of(operation: Operation, path_part: &str, failure: Failure) -> Fault {
        Fault {
            nth: 1,
            operation: Some(operation),
            path_part: path_part.to_owned(),
            failure,
            is_lasting: false,
        }
    }

    pub fn lasting(mut self) -> Fault {
        self.is_lasting = true;
        self
    }
}

//! A storage call as callers see it: it carries all it needs, so that any thread can make it.

use std::sync::Arc;

use crate::log::directory::LogDirectory;

/// The queues of one log directory: one for writing and one for reading, since a frozen file system
/// still gives what is in the page cache, and further ones for calls that neither may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    Writes,
    /// Appends that were put off since it takes long to judge them, always on the queue's thread.
    CostlyWrites,
    Reads,
    /// Look-ups by time, always on the queue's thread.
    Searches,
    /// Calls of the control thread: appends of its coordinators above all.
    LogCalls,
    /// Logs that are made and deleted: many take seconds, which the appends need not wait.
    LogChanges,
    /// Long answers out of files, one at a time, always on the queue's thread: the network thread
    /// looks after the others meanwhile.
    LongAnswers,
}

impl QueueKind {
    pub const ALL: [QueueKind; 7] = [
        QueueKind::Writes,
        QueueKind::CostlyWrites,
        QueueKind::Reads,
        QueueKind::Searches,
        QueueKind::LogCalls,
        QueueKind::LogChanges,
        QueueKind::LongAnswers,
    ];

    /// In the name of the queue's thread.
    pub fn letter(self) -> char {
        match self {
            QueueKind::Writes => 'w',
            QueueKind::CostlyWrites => 'p',
            QueueKind::Reads => 'r',
            QueueKind::Searches => 's',
            QueueKind::LogCalls => 'c',
            QueueKind::LogChanges => 'm',
            QueueKind::LongAnswers => 'l',
        }
    }
}

/// A queue; that of a directory by the directory's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueId {
    Directory(QueueKind, usize),
    Metadata,
    LargeRequests,
}

/// The queue that a call has to pass, and the queue whose thread makes it although that is open.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub queue: QueueId,
    pub by_thread_of: Option<QueueId>,
}

/// Where a call is made. It stays within the log directory whose queue it has passed; what
/// concerns several is made by a call each, so that who does not return is known to be
/// stuck in that directory.
pub struct Here<'a> {
    directories: &'a [Arc<LogDirectory>],
    number: usize,
    /// The thread may wait for a socket to have room.
    pub is_patient: bool,
}

impl<'a> Here<'a> {
    pub fn new(directories: &'a [Arc<LogDirectory>], number: usize, is_patient: bool) -> Here<'a> {
        Here {
            directories,
            number,
            is_patient,
        }
    }

    /// In no log directory.
    pub fn nowhere() -> Here<'static> {
        Here::new(&[], 0, false)
    }

    /// The call is made in this directory. A stranger counts as the first one.
    pub fn is(&self, directory: &Arc<LogDirectory>) -> bool {
        match self.directories.len() {
            0 => false,
            1 => true,
            _ => number_of(self.directories, directory) == self.number,
        }
    }
}

pub fn number_of(directories: &[Arc<LogDirectory>], directory: &Arc<LogDirectory>) -> usize {
    let same = |each: &Arc<LogDirectory>| Arc::ptr_eq(each, directory);
    directories.iter().position(same).unwrap_or(0)
}

/// A call that may block.
pub trait BlockingCall: Sized {
    type Result;
    /// Makes the call, as far as it concerns the directory where it is.
    fn run(self, here: &Here<'_>) -> Self::Result;
    /// The call for the thread of a queue.
    fn queued(self) -> Box<dyn QueuedCall>;
}

/// Brings the result of a call to who waits for it.
pub type Deliver = Box<dyn FnOnce() + Send>;

/// A call on a queue.
pub trait QueuedCall: Send {
    fn run(self: Box<Self>, here: &Here<'_>) -> Deliver;
    /// It is of use to that connection of that network thread, and to nobody else.
    fn is_for(&self, thread: usize, connection: u64) -> bool;
    /// That connection is gone: the call is not made.
    fn cancel(self: Box<Self>);
}

//! The log directory of a replica, which may move to another one while it is led and read. Who asks
//! where it is, at each append and each fetch, takes no lock and counts no reference for it.

use std::sync::{Arc, OnceLock};

use crate::log::directory::LogDirectory;

/// The directory in which a replica lay first, and those to which it has moved since: a move takes
/// as long as the log is large, so that they are few.
pub(super) struct Home {
    directory: Arc<LogDirectory>,
    next: OnceLock<Box<Home>>,
}

impl Home {
    pub fn new(directory: Arc<LogDirectory>) -> Home {
        Home {
            directory,
            next: OnceLock::new(),
        }
    }

    fn latest(&self) -> &Home {
        let mut home = self;
        while let Some(next) = home.next.get() {
            home = next;
        }
        home
    }

    pub fn directory(&self) -> &Arc<LogDirectory> {
        &self.latest().directory
    }

    /// One move at a time.
    pub fn move_to(&self, directory: &Arc<LogDirectory>) {
        let next = Box::new(Home::new(directory.clone()));
        let is_last = self.latest().next.set(next).is_ok();
        assert!(is_last, "a replica moves to two places at once");
    }
}

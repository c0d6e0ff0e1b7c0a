//! Names of partitions whose directories are being made, or come from another log directory at the
//! end of a move: one thread at a time has each. A topic can be deleted, and made again under the
//! same name, while the log of the old one is on its way into this directory.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

type Name = (Arc<str>, i32);

#[derive(Default)]
pub(super) struct NamesTaken {
    taken: Mutex<HashSet<Name>>,
    are_free: Condvar,
}

/// Nobody else has these names before this is dropped.
pub struct TakenNames<'a> {
    of: &'a NamesTaken,
    names: Vec<Name>,
}

impl NamesTaken {
    /// Waits for whoever has one of them.
    pub(super) fn take(&self, names: Vec<Name>) -> TakenNames<'_> {
        let mut taken = self.taken.lock();
        while names.iter().any(|name| taken.contains(name)) {
            self.are_free.wait(&mut taken);
        }
        taken.extend(names.iter().cloned());
        TakenNames { of: self, names }
    }

    /// `None`: somebody else has it.
    pub(super) fn try_take(&self, name: Name) -> Option<TakenNames<'_>> {
        let is_free = self.taken.lock().insert(name.clone());
        is_free.then(|| TakenNames {
            of: self,
            names: vec![name],
        })
    }
}

impl Drop for TakenNames<'_> {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock();
        for name in &self.names {
            taken.remove(name);
        }
        self.of.are_free.notify_all();
    }
}

//! Names of partitions whose directories are being made, or come from another log directory at the
//! end of a move: one thread at a time has each. A topic can be deleted, and made again under the
//! same name, while the log of the old one is on its way into this directory.
//!
//! A move has its name for as long as the disk that the log leaves takes, which may not answer at
//! all. This directory has no part in that, and whoever makes logs here waits for it no longer than
//! `HAND_OVER_WAIT`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::limits::HAND_OVER_WAIT;

type Name = (Arc<str>, i32);

#[derive(Default)]
pub(super) struct NamesTaken {
    /// Since when somebody has each.
    taken: Mutex<HashMap<Name, Instant>>,
    are_free: Condvar,
}

/// Nobody else has these names before this is dropped.
pub struct TakenNames<'a> {
    of: &'a NamesTaken,
    names: Vec<Name>,
}

impl NamesTaken {
    /// Waits for whoever has one of them. Errors: the name that somebody has had for
    /// `HAND_OVER_WAIT`, or for which this has waited so long.
    pub(super) fn take(&self, names: Vec<Name>) -> Result<TakenNames<'_>, Name> {
        let begun = Instant::now();
        let mut taken = self.taken.lock();
        let first_of = |taken: &HashMap<Name, Instant>| {
            let mut found = names.iter().map(|name| (name, taken.get(name).copied()));
            found.find_map(|(name, since)| Some((name.clone(), since?)))
        };
        while let Some((name, since)) = first_of(&taken) {
            let due = since.min(begun) + HAND_OVER_WAIT;
            if Instant::now() >= due {
                return Err(name);
            }
            self.are_free.wait_until(&mut taken, due);
        }
        let now = Instant::now();
        taken.extend(names.iter().map(|name| (name.clone(), now)));
        Ok(TakenNames { of: self, names })
    }

    /// `None`: somebody else has it.
    pub(super) fn try_take(&self, name: Name) -> Option<TakenNames<'_>> {
        let mut taken = self.taken.lock();
        if taken.contains_key(&name) {
            return None;
        }
        taken.insert(name.clone(), Instant::now());
        Some(TakenNames {
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

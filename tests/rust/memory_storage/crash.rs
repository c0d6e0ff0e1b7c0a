//! What is left when the process is killed or the power goes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::file::Content;
use super::{Entry, Inode, MemoryStorage, Names, ROOT, State};
use crate::random::Random;

/// The unit in which a power cut keeps or loses bytes.
pub const SECTOR_BYTES: usize = 512;

/// How the machine goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process is killed: everything written stays.
    Kill,
    /// Power cut: nothing that was not synced stays.
    LoseUnsynced,
    /// Power cut: of what was not synced, what the seed says.
    Seeded(u64),
}

impl MemoryStorage {
    /// What the next process finds. This storage is as it was.
    pub fn crash(&self, crash: Crash) -> MemoryStorage {
        let state = self.state.lock();
        let mut random = match crash {
            Crash::Kill | Crash::LoseUnsynced => None,
            Crash::Seeded(seed) => Some(Random::new(seed)),
        };
        let mut found: BTreeMap<PathBuf, Entry> = BTreeMap::new();
        let names = match crash {
            Crash::Kill => state.live.clone(),
            _ => paths(&state.names_after(random.as_mut())),
        };
        for (path, entry) in names {
            let entry = match entry {
                Entry::Directory(inode) => Entry::Directory(inode),
                Entry::File(content) => {
                    let bytes = content.lock().after(crash, random.as_mut());
                    Entry::File(Arc::new(Mutex::new(Content::durable(bytes))))
                }
            };
            found.insert(path, entry);
        }
        let mut next = State {
            live: found,
            inodes: state.inodes,
            modified_ms: state.modified_ms,
            ..State::default()
        };
        next.sync_all_names();
        MemoryStorage {
            state: Arc::new(Mutex::new(next)),
        }
    }
}

impl State {
    /// The names that a power cut leaves in each directory.
    fn names_after(&self, random: Option<&mut Random>) -> BTreeMap<Inode, Names> {
        let mut durable = self.durable.clone();
        let Some(random) = random else {
            return durable;
        };
        let mut directories: Vec<(&Path, Inode)> = Vec::new();
        for (directory, change) in &self.unsynced {
            if !directories.iter().any(|(_, known)| known == directory) {
                directories.push((change.path(), *directory));
            }
        }
        directories.sort();
        for (_, directory) in directories {
            let changes = self.unsynced.iter().filter(|(of, _)| *of == directory);
            let count = changes.clone().count();
            for (_, change) in changes.take(random.below(count as u64 + 1) as usize) {
                change.apply_in(durable.entry(directory).or_default());
            }
        }
        durable
    }
}

/// All paths from the root on: a name in a directory that was lost is lost with it.
fn paths(durable: &BTreeMap<Inode, Names>) -> BTreeMap<PathBuf, Entry> {
    let mut found = BTreeMap::new();
    let mut todo = vec![(PathBuf::new(), ROOT)];
    while let Some((directory, inode)) = todo.pop() {
        for (name, entry) in durable.get(&inode).into_iter().flatten() {
            let path = directory.join(name);
            if let Entry::Directory(inode) = entry {
                todo.push((path.clone(), *inode));
            }
            found.insert(path, entry.clone());
        }
    }
    found
}

impl Content {
    /// What a crash leaves of a file.
    fn after(&self, crash: Crash, random: Option<&mut Random>) -> Arc<Vec<u8>> {
        let Some(random) = random else {
            return match crash {
                Crash::Kill => self.live.clone(),
                _ => self.durable.clone(),
            };
        };
        if self.live == self.durable {
            return self.live.clone();
        }
        let (low, high) = (
            self.live.len().min(self.durable.len()),
            self.live.len().max(self.durable.len()),
        );
        let size = match random.below(4) {
            0 => self.durable.len(),
            1 => self.live.len(),
            _ => low + random.below((high - low) as u64 + 1) as usize,
        };
        let mut bytes = vec![0; size];
        let keeps_all = random.below(3) == 0;
        for start in (0..size).step_by(SECTOR_BYTES) {
            let end = (start + SECTOR_BYTES).min(size);
            let is_new = keeps_all || random.below(2) == 0;
            // A sector that the chosen side does not reach is zeros: the size came first.
            let side = if is_new { &self.live } else { &self.durable };
            let there = side.len().clamp(start, end);
            if start < there {
                bytes[start..there].copy_from_slice(&side[start..there]);
            }
        }
        Arc::new(bytes)
    }
}

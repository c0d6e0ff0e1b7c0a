//! A file system in memory that can fail at any call and lose power at any moment.
//!
//! ```text
//! file        live bytes        what this process reads
//!             durable bytes     what the last `sync_data` has put on disk
//! directory   live names        made, renamed and removed so far
//!             durable names     as of the last `sync_directory`; the changes since stand in a queue, which is
//!                               the directory's, whatever it is called by then
//! ```
//! `crash` makes of it the storage that the next process finds: after a kill all that is live,
//! after a power cut the durable part and of the rest what the seed says: of each file any sectors
//! and any size between the two, of each directory's changes the first few (a journal keeps their
//! order). Names and bytes do not wait for each other. A directory stands for itself only: syncing
//! one says nothing about another.
//!
//! Deterministic: no clock, no thread, no random source but the seed.

pub mod crash;
pub mod faults;
mod file;
mod promises;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kafkalite::log::storage::{
    DirectoryEntry, OpenMode, Storage, StorageFile, StorageFileSystem, StorageLock,
};
use parking_lot::Mutex;

use faults::{Failure, Fault, Operation};
use file::{Content, MemoryFile};

#[derive(Clone, Default)]
pub struct MemoryStorage {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    live: BTreeMap<PathBuf, Entry>,
    /// The names in each directory.
    durable: BTreeMap<Inode, Names>,
    unsynced: Vec<(Inode, NameChange)>,
    /// How many directories there have been.
    inodes: Inode,
    locked: HashSet<PathBuf>,
    faults: Vec<(Fault, u64)>,
    next_write_fails: bool,
    calls: u64,
    is_watching: bool,
    open_files: usize,
    open_files_max: usize,
    modified_ms: i64,
    hook: Option<Hook>,
}

/// Called once, before the next call of this kind to a path with this in it.
type Hook = (Operation, String, Box<dyn FnOnce() + Send>);

/// A directory, which keeps it when it is renamed.
type Inode = u64;
const ROOT: Inode = 0;

/// By their names in one directory (`name_of`).
type Names = BTreeMap<PathBuf, Entry>;

#[derive(Clone)]
enum Entry {
    File(Arc<Mutex<Content>>),
    Directory(Inode),
}

#[derive(Clone)]
enum NameChange {
    Add(PathBuf, Entry),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl MemoryStorage {
    /// A storage that holds these files, durable, and the directories they need.
    pub fn with_files<'f>(files: impl IntoIterator<Item = (&'f Path, &'f [u8])>) -> MemoryStorage {
        let storage = MemoryStorage::default();
        let mut state = storage.state.lock();
        for (path, bytes) in files {
            let content = Content::durable(Arc::new(bytes.to_vec()));
            for parent in path.ancestors().skip(1).filter(|at| at.parent().is_some()) {
                if !state.live.contains_key(parent) {
                    let directory = state.new_directory();
                    state.live.insert(parent.to_path_buf(), directory);
                }
            }
            let entry = Entry::File(Arc::new(Mutex::new(content)));
            state.live.insert(path.to_path_buf(), entry);
        }
        state.sync_all_names();
        drop(state);
        storage
    }

    /// The files as this process sees them.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.state.lock();
        let files = state.live.iter().filter_map(|(path, entry)| match entry {
            Entry::File(content) => Some((path.clone(), content.lock().live.to_vec())),
            Entry::Directory(_) => None,
        });
        files.collect()
    }

    /// From the next call on. Counts from 1 again.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.push((fault, 0));
    }

    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.faults.clear();
        state.next_write_fails = false;
    }

    /// Whether some injected fault has struck.
    pub fn has_struck(&self) -> bool {
        let state = self.state.lock();
        state.faults.iter().any(|(fault, seen)| *seen >= fault.nth)
    }

    pub fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// Lets a test look at what is there: no call in between counts or fails.
    pub fn watch<T>(&self, look: impl FnOnce() -> T) -> T {
        self.state.lock().is_watching = true;
        let seen = look();
        self.state.lock().is_watching = false;
        seen
    }

    /// Has `hook` called, on the thread and without a lock, before the next call of this kind.
    pub fn before(&self, operation: Operation, part: &str, hook: impl FnOnce() + Send + 'static) {
        self.state.lock().hook = Some((operation, part.to_owned(), Box::new(hook)));
    }

    pub fn open_files(&self) -> usize {
        self.state.lock().open_files
    }

    pub fn open_files_max(&self) -> usize {
        self.state.lock().open_files_max
    }

    fn call_hook(&self, operation: Operation, path: &Path) {
        let hook = self.state.lock().take_hook(operation, path);
        if let Some(hook) = hook {
            hook();
        }
    }

    fn call(&self, operation: Operation, path: &Path) -> io::Result<()> {
        self.call_hook(operation, path);
        match self.state.lock().strike(operation, path) {
            None => Ok(()),
            Some(failure) => Err(failure.error()),
        }
    }
}

fn not_found() -> io::Error {
    io::Error::from_raw_os_error(2)
}

impl State {
    fn strike(&mut self, operation: Operation, path: &Path) -> Option<Failure> {
        if self.is_watching {
            return None;
        }
        self.calls += 1;
        let name = path.to_string_lossy();
        let mut struck = None;
        for (fault, seen) in &mut self.faults {
            let is_meant = fault.operation.is_none_or(|wanted| wanted == operation)
                && name.contains(&fault.path_part);
            if is_meant {
                *seen += 1;
                if *seen == fault.nth || fault.is_lasting && *seen > fault.nth {
                    struck = Some(fault.failure);
                }
            }
        }
        struck
    }

    fn take_hook(&mut self, operation: Operation, path: &Path) -> Option<Box<dyn FnOnce() + Send>> {
        let is_meant =
            |hook: &mut Hook| hook.0 == operation && path.to_string_lossy().contains(&hook.1);
        self.hook.take_if(is_meant).map(|(_, _, hook)| hook)
    }

    fn new_directory(&mut self) -> Entry {
        self.inodes += 1;
        Entry::Directory(self.inodes)
    }

    fn change(&mut self, path: &Path, change: NameChange) {
        change.apply(&mut self.live);
        self.queue(path, change);
    }

    fn queue(&mut self, path: &Path, change: NameChange) {
        let directory = self.directory_of(path).expect("its directory is there");
        self.unsynced.push((directory, change));
    }

    fn sync_names(&mut self, directory: Inode) {
        let unsynced = std::mem::take(&mut self.unsynced);
        for (of, change) in unsynced {
            if of == directory {
                change.apply_in(self.durable.entry(of).or_default());
            } else {
                self.unsynced.push((of, change));
            }
        }
    }

    fn sync_all_names(&mut self) {
        self.unsynced.clear();
        self.durable.clear();
        for (path, entry) in &self.live {
            let directory = self.directory_of(path).expect("its directory is there");
            let names = self.durable.entry(directory).or_default();
            names.insert(name_of(path), entry.clone());
        }
    }

    /// The directory at a path.
    fn directory(&self, path: &Path) -> Option<Inode> {
        match self.live.get(path) {
            Some(Entry::Directory(inode)) => Some(*inode),
            _ => is_root(path).then_some(ROOT),
        }
    }

    /// That in which a path lies.
    fn directory_of(&self, path: &Path) -> Option<Inode> {
        self.directory(path.parent().unwrap_or(Path::new("")))
    }

    fn require_directory(&self, path: &Path) -> io::Result<()> {
        match self.directory_of(path) {
            Some(_) => Ok(()),
            None => Err(not_found()),
        }
    }
}

fn is_root(path: &Path) -> bool {
    path == Path::new("") || path == Path::new("/")
}

/// The name of a path in its directory; in the root, the path.
fn name_of(path: &Path) -> PathBuf {
    let is_in_root = path.parent().is_none_or(is_root);
    let name = path.file_name().filter(|_| !is_in_root);
    name.map_or_else(|| path.to_path_buf(), PathBuf::from)
}

impl NameChange {
    fn path(&self) -> &Path {
        match self {
            NameChange::Add(path, _) | NameChange::Rename(path, _) | NameChange::Remove(path) => {
                path
            }
        }
    }

    /// To the names of its directory.
    fn apply_in(&self, names: &mut Names) {
        match self {
            NameChange::Add(path, entry) => {
                names.insert(name_of(path), entry.clone());
            }
            NameChange::Remove(path) => {
                names.remove(&name_of(path));
            }
            NameChange::Rename(from, to) => {
                if let Some(entry) = names.remove(&name_of(from)) {
                    names.insert(name_of(to), entry);
                }
            }
        }
    }

    /// To all paths.
    fn apply(&self, names: &mut BTreeMap<PathBuf, Entry>) {
        match self {
            NameChange::Add(path, entry) => {
                names.insert(path.clone(), entry.clone());
            }
            NameChange::Remove(path) => names.retain(|name, _| !name.starts_with(path)),
            NameChange::Rename(from, to) => {
                let moved: Vec<PathBuf> = names
                    .keys()
                    .filter(|name| name.starts_with(from))
                    .cloned()
                    .collect();
                for name in moved {
                    if let (Some(entry), Ok(rest)) = (names.remove(&name), name.strip_prefix(from))
                    {
                        let new_name = if rest == Path::new("") {
                            to.clone()
                        } else {
                            to.join(rest)
                        };
                        names.insert(new_name, entry);
                    }
                }
            }
        }
    }
}

impl Storage for MemoryStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        self.call(Operation::Open, path)?;
        let mut state = self.state.lock();
        let creates = matches!(mode, OpenMode::CreateOrOpen | OpenMode::CreateOrTruncate);
        let content = match state.live.get(path) {
            Some(Entry::File(content)) => content.clone(),
            Some(Entry::Directory(_)) => return Err(io::Error::from_raw_os_error(21)),
            None if creates => {
                state.require_directory(path)?;
                let content = Arc::new(Mutex::new(Content::default()));
                let change = NameChange::Add(path.to_path_buf(), Entry::File(content.clone()));
                state.change(path, change);
                content
            }
            None => return Err(not_found()),
        };
        if mode == OpenMode::CreateOrTruncate {
            content.lock().set_size(0);
        }
        state.open_files += 1;
        state.open_files_max = state.open_files_max.max(state.open_files);
        Ok(Arc::new(MemoryFile {
            storage: self.clone(),
            path: path.to_path_buf(),
            content,
        }))
    }

    fn create_directory_all(&self, path: &Path) -> io::Result<()> {
        self.call(Operation::CreateDirectory, path)?;
        let mut state = self.state.lock();
        let mut missing: Vec<&Path> = path
            .ancestors()
            .filter(|at| at.parent().is_some() && !state.live.contains_key(*at))
            .collect();
        missing.reverse();
        for at in missing {
            let directory = state.new_directory();
            state.change(at, NameChange::Add(at.to_path_buf(), directory));
        }
        Ok(())
    }

    fn read_directory(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.call(Operation::ReadDirectory, path)?;
        let state = self.state.lock();
        if !matches!(state.live.get(path), Some(Entry::Directory(_))) {
            return Err(not_found());
        }
        let children = state
            .live
            .iter()
            .filter(|(name, _)| name.parent() == Some(path));
        let entries = children.map(|(name, entry)| DirectoryEntry {
            name: name
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            is_directory: matches!(entry, Entry::Directory(_)),
        });
        Ok(entries.collect())
    }

    fn file_size(&self, path: &Path) -> io::Result<Option<u64>> {
        self.call(Operation::FileSize, path)?;
        Ok(match self.state.lock().live.get(path) {
            Some(Entry::File(content)) => Some(content.lock().live.len() as u64),
            Some(Entry::Directory(_)) => Some(0),
            None => None,
        })
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        self.call(Operation::Modified, path)?;
        Ok(self.state.lock().modified_ms)
    }

    /// All files are of one time here; tests of file times use the disk.
    fn set_modified_ms(&self, path: &Path, _modified_ms: i64) -> io::Result<()> {
        self.call(Operation::Modified, path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(Operation::Rename, from)?;
        let mut state = self.state.lock();
        let entry = state.live.get(from).cloned().ok_or_else(not_found)?;
        state.require_directory(to)?;
        let renamed = NameChange::Rename(from.to_path_buf(), to.to_path_buf());
        if from.parent() == to.parent() {
            state.change(from, renamed);
            return Ok(());
        }
        renamed.apply(&mut state.live);
        state.queue(from, NameChange::Remove(from.to_path_buf()));
        state.queue(to, NameChange::Add(to.to_path_buf(), entry));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.call(Operation::RemoveFile, path)?;
        let mut state = self.state.lock();
        if !matches!(state.live.get(path), Some(Entry::File(_))) {
            return Err(not_found());
        }
        state.change(path, NameChange::Remove(path.to_path_buf()));
        Ok(())
    }

    fn remove_directory_all(&self, path: &Path) -> io::Result<()> {
        self.call(Operation::RemoveDirectory, path)?;
        let mut state = self.state.lock();
        if !matches!(state.live.get(path), Some(Entry::Directory(_))) {
            return Err(not_found());
        }
        state.change(path, NameChange::Remove(path.to_path_buf()));
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.call(Operation::SyncDirectory, path)?;
        let mut state = self.state.lock();
        if let Some(directory) = state.directory(path) {
            state.sync_names(directory);
        }
        Ok(())
    }

    fn file_system(&self, directory: &Path) -> io::Result<Option<Box<dyn StorageFileSystem>>> {
        self.call(Operation::Open, directory)?;
        Ok(Some(Box::new(MemoryFileSystem {
            storage: self.clone(),
            directory: directory.to_path_buf(),
        })))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn StorageLock>>> {
        self.call(Operation::Lock, path)?;
        let mut state = self.state.lock();
        if !state.live.contains_key(path) {
            state.require_directory(path)?;
            let content = Arc::new(Mutex::new(Content::default()));
            state.change(
                path,
                NameChange::Add(path.to_path_buf(), Entry::File(content)),
            );
        }
        if !state.locked.insert(path.to_path_buf()) {
            return Ok(None);
        }
        Ok(Some(Box::new(MemoryLock {
            storage: self.clone(),
            path: path.to_path_buf(),
        })))
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        self.call(Operation::AvailableBytes, path)?;
        Ok(1 << 40)
    }

    fn allow_descriptors(&self, wanted: u64) -> u64 {
        wanted
    }
}

struct MemoryFileSystem {
    storage: MemoryStorage,
    directory: PathBuf,
}

impl StorageFileSystem for MemoryFileSystem {
    fn sync(&self) -> io::Result<()> {
        let result = self
            .storage
            .call(Operation::SyncFileSystem, &self.directory);
        let mut state = self.storage.state.lock();
        for entry in state.live.values() {
            if let Entry::File(content) = entry {
                match &result {
                    Ok(()) => content.lock().sync(),
                    Err(_) => content.lock().sync_has_failed = true,
                }
            }
        }
        if result.is_ok() {
            state.sync_all_names();
        }
        result
    }
}

struct MemoryLock {
    storage: MemoryStorage,
    path: PathBuf,
}

impl StorageLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.storage.state.lock().locked.remove(&self.path);
    }
}

//! A file system in memory that can fail at any call and lose power at any moment.
//!
//! ```text
//! file        live bytes        what this process reads
//!             durable bytes     what the last `sync_data` has put on disk
//! directory   live names        made, renamed and removed so far
//!             durable names     as of the last `sync_directory`; the changes since stand in a queue
//! ```
//! `crash` makes of it the storage that the next process finds: after a kill all that is live, after
//! a power cut the durable part and of the rest what the seed says: of each file any sectors and any
//! size between the two, of each directory's changes the first few (a journal keeps their order).
//! Names and bytes do not wait for each other. A directory stands for itself only: syncing one says
//! nothing about another.
//!
//! Deterministic: no clock, no thread, no random source but the seed.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kafkalite::log::storage::{
    DirectoryEntry, Mapping, OpenMode, Storage, StorageFile, StorageFileSystem, StorageLock,
};
use parking_lot::Mutex;

use crate::random::Random;

/// The unit in which a power cut keeps or loses bytes.
pub const SECTOR_BYTES: usize = 512;

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
    Map,
}

/// What a failing call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// ENOSPC; of a write nothing is there.
    NoSpace,
    /// EIO; of a write half is there. After a failed sync the pages count as clean, as on Linux:
    /// later syncs succeed and make nothing of them durable.
    Io,
    /// A write takes half of its bytes and says so, and the next write fails with ENOSPC. Other
    /// calls: as `Io`.
    ShortWrite,
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

#[derive(Clone, Default)]
pub struct MemoryStorage {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    live: BTreeMap<PathBuf, Entry>,
    durable: BTreeMap<PathBuf, Entry>,
    unsynced: Vec<(PathBuf, NameChange)>,
    locked: HashSet<PathBuf>,
    faults: Vec<(Fault, u64)>,
    next_write_fails: bool,
    calls: u64,
    is_watching: bool,
    open_files: usize,
    open_files_max: usize,
    modified_ms: i64,
}

#[derive(Clone)]
enum Entry {
    File(Arc<Mutex<Content>>),
    Directory,
}

#[derive(Clone)]
enum NameChange {
    Add(PathBuf, Entry),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

/// Bytes are shared until they are written to: the long runs make millions of storages of few files.
#[derive(Default)]
struct Content {
    live: Arc<Vec<u8>>,
    durable: Arc<Vec<u8>>,
    /// A sync has failed: what was written before it never becomes durable.
    sync_has_failed: bool,
}

impl MemoryStorage {
    /// A storage that holds these files, durable, and the directories they need.
    pub fn with_files<'f>(files: impl IntoIterator<Item = (&'f Path, &'f [u8])>) -> MemoryStorage {
        let storage = MemoryStorage::default();
        let mut state = storage.state.lock();
        for (path, bytes) in files {
            let bytes = Arc::new(bytes.to_vec());
            let content = Content {
                live: bytes.clone(),
                durable: bytes,
                sync_has_failed: false,
            };
            for parent in path.ancestors().skip(1).filter(|at| at.parent().is_some()) {
                state.live.insert(parent.to_path_buf(), Entry::Directory);
            }
            let entry = Entry::File(Arc::new(Mutex::new(content)));
            state.live.insert(path.to_path_buf(), entry);
        }
        state.durable = state.live.clone();
        drop(state);
        storage
    }

    /// The files as this process sees them.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.state.lock();
        let files = state.live.iter().filter_map(|(path, entry)| match entry {
            Entry::File(content) => Some((path.clone(), content.lock().live.to_vec())),
            Entry::Directory => None,
        });
        files.collect()
    }

    /// What the next process finds. This storage is as it was.
    pub fn crash(&self, crash: Crash) -> MemoryStorage {
        let state = self.state.lock();
        let mut random = match crash {
            Crash::Kill | Crash::LoseUnsynced => None,
            Crash::Seeded(seed) => Some(Random::new(seed)),
        };
        let mut names = if crash == Crash::Kill {
            state.live.clone()
        } else {
            state.durable.clone()
        };
        if let Some(random) = &mut random {
            let mut directories: Vec<&PathBuf> = state
                .unsynced
                .iter()
                .map(|(directory, _)| directory)
                .collect();
            directories.sort();
            directories.dedup();
            for directory in directories {
                let changes = state.unsynced.iter().filter(|(of, _)| of == directory);
                let count = changes.clone().count();
                for (_, change) in changes.take(random.below(count as u64 + 1) as usize) {
                    change.apply(&mut names);
                }
            }
        }
        let mut found: BTreeMap<PathBuf, Entry> = BTreeMap::new();
        for (path, entry) in &names {
            // A name in a directory that was lost is lost with it; parents sort before children.
            let parent = path.parent().filter(|parent| parent.parent().is_some());
            if parent.is_some_and(|parent| !found.contains_key(parent)) {
                continue;
            }
            let entry = match entry {
                Entry::Directory => Entry::Directory,
                Entry::File(content) => {
                    let bytes = content.lock().after(crash, random.as_mut());
                    Entry::File(Arc::new(Mutex::new(Content {
                        live: bytes.clone(),
                        durable: bytes,
                        sync_has_failed: false,
                    })))
                }
            };
            found.insert(path.clone(), entry);
        }
        let next = State {
            live: found.clone(),
            durable: found,
            modified_ms: state.modified_ms,
            ..State::default()
        };
        MemoryStorage {
            state: Arc::new(Mutex::new(next)),
        }
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

    pub fn open_files(&self) -> usize {
        self.state.lock().open_files
    }

    pub fn open_files_max(&self) -> usize {
        self.state.lock().open_files_max
    }

    fn call(&self, operation: Operation, path: &Path) -> io::Result<()> {
        match self.state.lock().strike(operation, path) {
            None => Ok(()),
            Some(failure) => Err(failure.error()),
        }
    }
}

impl Failure {
    fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Failure::NoSpace => 28,
            Failure::Io | Failure::ShortWrite => 5,
        })
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

    fn change(&mut self, path: &Path, change: NameChange) {
        change.apply(&mut self.live);
        let directory = path.parent().unwrap_or(Path::new("")).to_path_buf();
        self.unsynced.push((directory, change));
    }

    fn sync_names(&mut self, directory: &Path) {
        let unsynced = std::mem::take(&mut self.unsynced);
        for (of, change) in unsynced {
            if of == directory {
                change.apply(&mut self.durable);
            } else {
                self.unsynced.push((of, change));
            }
        }
    }

    fn require_directory(&self, path: &Path) -> io::Result<()> {
        let parent = path.parent().unwrap_or(Path::new(""));
        let is_root = parent == Path::new("") || parent == Path::new("/");
        if is_root || matches!(self.live.get(parent), Some(Entry::Directory)) {
            Ok(())
        } else {
            Err(not_found())
        }
    }
}

impl NameChange {
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

impl Content {
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

impl Storage for MemoryStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        self.call(Operation::Open, path)?;
        let mut state = self.state.lock();
        let creates = matches!(mode, OpenMode::CreateOrOpen | OpenMode::CreateOrTruncate);
        let content = match state.live.get(path) {
            Some(Entry::File(content)) => content.clone(),
            Some(Entry::Directory) => return Err(io::Error::from_raw_os_error(21)),
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
            state.change(at, NameChange::Add(at.to_path_buf(), Entry::Directory));
        }
        Ok(())
    }

    fn read_directory(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.call(Operation::ReadDirectory, path)?;
        let state = self.state.lock();
        if !matches!(state.live.get(path), Some(Entry::Directory)) {
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
            is_directory: matches!(entry, Entry::Directory),
        });
        Ok(entries.collect())
    }

    fn file_size(&self, path: &Path) -> io::Result<Option<u64>> {
        self.call(Operation::FileSize, path)?;
        Ok(match self.state.lock().live.get(path) {
            Some(Entry::File(content)) => Some(content.lock().live.len() as u64),
            Some(Entry::Directory) => Some(0),
            None => None,
        })
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        self.call(Operation::Modified, path)?;
        Ok(self.state.lock().modified_ms)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(Operation::Rename, from)?;
        let mut state = self.state.lock();
        if !state.live.contains_key(from) {
            return Err(not_found());
        }
        state.require_directory(to)?;
        state.change(
            from,
            NameChange::Rename(from.to_path_buf(), to.to_path_buf()),
        );
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
        if !matches!(state.live.get(path), Some(Entry::Directory)) {
            return Err(not_found());
        }
        state.change(path, NameChange::Remove(path.to_path_buf()));
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.call(Operation::SyncDirectory, path)?;
        self.state.lock().sync_names(path);
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
            state.durable = state.live.clone();
            state.unsynced.clear();
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

struct MemoryFile {
    storage: MemoryStorage,
    path: PathBuf,
    content: Arc<Mutex<Content>>,
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        self.storage.state.lock().open_files -= 1;
    }
}

impl Content {
    fn sync(&mut self) {
        if !self.sync_has_failed {
            self.durable.clone_from(&self.live);
        }
    }

    fn set_size(&mut self, size: usize) {
        Arc::make_mut(&mut self.live).resize(size, 0);
        // Nothing is left of what was lost: the file is written anew.
        self.sync_has_failed &= size > 0;
    }

    fn write(&mut self, bytes: &[u8], position: usize) {
        let end = position + bytes.len();
        let live = Arc::make_mut(&mut self.live);
        if live.len() < end {
            live.resize(end, 0);
        }
        live[position..end].copy_from_slice(bytes);
    }
}

impl StorageFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], position_byte: u64) -> io::Result<usize> {
        self.storage.call(Operation::Read, &self.path)?;
        let content = self.content.lock();
        let start = (position_byte as usize).min(content.live.len());
        let count = buffer.len().min(content.live.len() - start);
        buffer[..count].copy_from_slice(&content.live[start..start + count]);
        Ok(count)
    }

    fn write_vectored_at(&self, buffers: &[IoSlice<'_>], position_byte: u64) -> io::Result<usize> {
        let bytes: Vec<u8> = buffers
            .iter()
            .flat_map(|buffer| buffer.iter().copied())
            .collect();
        let mut state = self.storage.state.lock();
        let struck = state.strike(Operation::Write, &self.path);
        let is_second = std::mem::take(&mut state.next_write_fails);
        state.next_write_fails = struck == Some(Failure::ShortWrite);
        drop(state);
        let half = &bytes[..bytes.len() / 2];
        let mut content = self.content.lock();
        match struck {
            None if is_second => Err(Failure::NoSpace.error()),
            None => {
                content.write(&bytes, position_byte as usize);
                Ok(bytes.len())
            }
            Some(Failure::NoSpace) => Err(Failure::NoSpace.error()),
            Some(Failure::Io) => {
                content.write(half, position_byte as usize);
                Err(Failure::Io.error())
            }
            Some(Failure::ShortWrite) => {
                content.write(half, position_byte as usize);
                Ok(half.len())
            }
        }
    }

    fn size(&self) -> io::Result<u64> {
        self.storage.call(Operation::Size, &self.path)?;
        Ok(self.content.lock().live.len() as u64)
    }

    fn set_size(&self, size_bytes: u64) -> io::Result<()> {
        self.storage.call(Operation::SetSize, &self.path)?;
        self.content.lock().set_size(size_bytes as usize);
        Ok(())
    }

    fn preallocate(&self, _size_bytes: u64) -> io::Result<()> {
        self.storage.call(Operation::Preallocate, &self.path)
    }

    fn sync_data(&self) -> io::Result<()> {
        let result = self.storage.call(Operation::SyncData, &self.path);
        let mut content = self.content.lock();
        match result {
            Ok(()) => content.sync(),
            Err(_) => content.sync_has_failed = true,
        }
        result
    }

    fn map(&self) -> io::Result<Mapping> {
        self.storage.call(Operation::Map, &self.path)?;
        Ok(Mapping::Owned(self.content.lock().live.to_vec()))
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}

const FILE: &str = "/d/file";

fn storage_with_directory() -> MemoryStorage {
    let storage = MemoryStorage::default();
    storage.create_directory_all(Path::new("/d")).unwrap();
    storage.sync_directory(Path::new("/")).unwrap();
    storage
}

fn write(storage: &MemoryStorage, path: &str, bytes: &[u8]) -> Arc<dyn StorageFile> {
    let file = storage
        .open(Path::new(path), OpenMode::CreateOrOpen)
        .unwrap();
    file.write_vectored_at(&[IoSlice::new(bytes)], 0).unwrap();
    file
}

#[test]
fn a_power_cut_takes_what_was_not_synced_and_a_kill_takes_nothing() {
    let storage = storage_with_directory();
    let file = write(&storage, FILE, b"durable");
    file.sync_data().unwrap();
    let lost = storage.crash(Crash::LoseUnsynced);
    assert!(lost.files().is_empty(), "the name was not synced");
    storage.sync_directory(Path::new("/d")).unwrap();
    file.write_vectored_at(&[IoSlice::new(b"volatile")], 0)
        .unwrap();
    let path = Path::new(FILE);
    assert_eq!(storage.crash(Crash::LoseUnsynced).files()[path], b"durable");
    assert_eq!(storage.crash(Crash::Kill).files()[path], b"volatile");
}

#[test]
fn a_seeded_power_cut_keeps_some_sectors_and_the_first_names_and_repeats_itself() {
    let storage = storage_with_directory();
    let file = write(&storage, FILE, &[1; 4 * SECTOR_BYTES]);
    file.sync_data().unwrap();
    storage.sync_directory(Path::new("/d")).unwrap();
    file.write_vectored_at(&[IoSlice::new(&[2; 6 * SECTOR_BYTES])], 0)
        .unwrap();
    write(&storage, "/d/first", b"x");
    write(&storage, "/d/second", b"x");
    let mut outcomes = HashSet::new();
    for seed in 0..200 {
        let files = storage.crash(Crash::Seeded(seed)).files();
        assert_eq!(files, storage.crash(Crash::Seeded(seed)).files());
        let has = |name: &str| files.contains_key(Path::new(name));
        assert!(
            has("/d/first") || !has("/d/second"),
            "names come in their order"
        );
        let bytes = files[Path::new(FILE)].clone();
        assert!((4 * SECTOR_BYTES..=6 * SECTOR_BYTES).contains(&bytes.len()));
        outcomes.insert(bytes);
    }
    assert!(outcomes.len() > 50);
}

#[test]
fn the_nth_call_fails_and_a_failed_sync_is_never_made_good() {
    let storage = storage_with_directory();
    let file = write(&storage, FILE, b"one");
    storage.sync_directory(Path::new("/d")).unwrap();
    storage.inject(Fault::of(Operation::SyncData, "file", Failure::Io));
    assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(5));
    assert!(storage.has_struck());
    file.sync_data().unwrap();
    let files = storage.crash(Crash::LoseUnsynced).files();
    assert_eq!(files[Path::new(FILE)], b"");
    storage.heal();
    storage.inject(Fault::of(Operation::Write, "file", Failure::ShortWrite));
    assert_eq!(
        file.write_vectored_at(&[IoSlice::new(b"abcd")], 0).unwrap(),
        2
    );
    let second = file.write_vectored_at(&[IoSlice::new(b"cd")], 2);
    assert_eq!(second.unwrap_err().raw_os_error(), Some(28));
    assert_eq!(
        file.write_vectored_at(&[IoSlice::new(b"cd")], 2).unwrap(),
        2
    );
}

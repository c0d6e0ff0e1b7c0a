//! Descriptors and maps of segments, at most so many at once (`kafkalite.open.segments.max`).
//!
//! A segment's files are opened when first needed and closed when many others have been used since;
//! whoever holds an `Arc` of a file keeps that descriptor until it lets go, and shares it with
//! whoever needs the file meanwhile: a segment has one descriptor, however many answers wait for
//! their readers. A file is found again by its present name: `rename` here and on disk go together,
//! under one lock.
//!
//! ```text
//! slots.log ── evicted ──► slots.held (Weak) ── needed again, somebody still holds it ──► slots.log
//!     └────── removed, or replaced by rename: neither is ever given out again
//! ```

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use crate::batch::validate::ScratchPool;
use crate::error::{Error, Result, lacks_descriptors};
use crate::limits::{DESCRIPTORS_RESERVED, DESCRIPTORS_SPARE, HELD_DESCRIPTORS_DIVISOR};
use crate::log::names::{self, DELETED, LOG, OFFSET_INDEX, SEGMENT_KINDS, TIME_INDEX};
use crate::log::segment::counted_file::CountedFile;
use crate::log::storage::{Mapping, OpenMode, Storage, StorageFile};

/// The bound and who is open; shared by all logs of a broker, with what else they share.
pub struct OpenSegments {
    pub storage: Arc<dyn Storage>,
    pub scratches: ScratchPool,
    segments_max: usize,
    /// `.log` files that may be open, those included that only answers still hold.
    files_max: usize,
    open_files: Arc<AtomicUsize>,
    connections_max: usize,
    clock: AtomicU64,
    next_id: AtomicU64,
    open: Mutex<HashMap<u64, Weak<SegmentFiles>>>,
}

/// The files of one segment: their names, and those that are open.
pub struct SegmentFiles {
    id: u64,
    base_offset: i64,
    name: RwLock<Name>,
    slots: Mutex<Slots>,
    last_used: AtomicU64,
}

struct Name {
    directory: PathBuf,
    suffix: &'static str,
}

#[derive(Default)]
struct Slots {
    log: Option<Arc<dyn StorageFile>>,
    /// The `.log` that was evicted from here, which others may hold still.
    held: Option<Weak<dyn StorageFile>>,
    /// How often the `.log` was removed or replaced: one opened before is not to be kept after.
    replacements: u64,
    offset_index: Option<Arc<Mapping>>,
    time_index: Option<Arc<Mapping>>,
}

impl Slots {
    /// The `.log` if it is open, here or in somebody's hands; it is kept here from now on.
    fn open_log(&mut self) -> Option<Arc<dyn StorageFile>> {
        if self.log.is_none() {
            self.log = self.held.as_ref().and_then(Weak::upgrade);
        }
        self.log.clone()
    }

    /// Keeps a `.log` that was opened when there had been so many replacements, unless another
    /// thread has been faster. `None`: it is not the segment's any more.
    fn keep_log(
        &mut self,
        opened: Arc<dyn StorageFile>,
        replacements: u64,
    ) -> Option<Arc<dyn StorageFile>> {
        if self.replacements != replacements {
            return None;
        }
        Some(self.open_log().unwrap_or_else(|| {
            self.log = Some(opened.clone());
            opened
        }))
    }

    fn forget_log(&mut self) {
        self.log = None;
        self.held = None;
        self.replacements += 1;
    }

    fn forget_indexes(&mut self) {
        self.offset_index = None;
        self.time_index = None;
    }

    /// Closes what nobody else holds.
    fn evict(&mut self) {
        if let Some(log) = self.log.take() {
            self.held = Some(Arc::downgrade(&log));
        }
        self.forget_indexes();
    }
}

impl OpenSegments {
    /// Raises the process's limit of descriptors to what is asked for; where that may not be, fewer
    /// segments stay open, but at least 16.
    pub fn new(storage: Arc<dyn Storage>, segments_max: usize) -> Arc<OpenSegments> {
        let reserved = DESCRIPTORS_RESERVED + DESCRIPTORS_SPARE;
        let wanted = (segments_max as u64).saturating_add(reserved);
        let for_answers = reserved / (HELD_DESCRIPTORS_DIVISOR - 1);
        let descriptors = storage.allow_descriptors(wanted.saturating_add(for_answers));
        let affordable = if descriptors >= wanted {
            segments_max
        } else {
            segments_max.min((descriptors / 2) as usize)
        };
        let left = descriptors.saturating_sub(affordable as u64);
        let spare = DESCRIPTORS_SPARE.min(left / 2);
        let segments_max = affordable.max(16);
        let held = left / HELD_DESCRIPTORS_DIVISOR;
        Arc::new(OpenSegments {
            storage,
            scratches: ScratchPool::default(),
            segments_max,
            files_max: segments_max + held as usize,
            open_files: Arc::default(),
            connections_max: usize::try_from(left - spare - held).unwrap_or(usize::MAX),
            clock: AtomicU64::new(1),
            next_id: AtomicU64::new(1),
            open: Mutex::new(HashMap::new()),
        })
    }

    /// How many connections leave enough descriptors for files: one that cannot be opened may take
    /// its log directory offline.
    pub fn connections_max(&self) -> usize {
        self.connections_max
    }

    /// Names the files of a segment; nothing is opened.
    pub fn segment(
        &self,
        directory: &Path,
        base_offset: i64,
        suffix: &'static str,
    ) -> Arc<SegmentFiles> {
        Arc::new(SegmentFiles {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            base_offset,
            name: RwLock::new(Name {
                directory: directory.to_path_buf(),
                suffix,
            }),
            slots: Mutex::new(Slots::default()),
            last_used: AtomicU64::new(0),
        })
    }

    /// How many segments hold a descriptor or a map.
    pub fn open_count(&self) -> usize {
        self.open.lock().len()
    }

    /// Answers that wait for their readers hold so many files open, beside those that the cache
    /// may, that further ones are to hold bytes instead: those are counted as memory, which whoever
    /// does not read is closed for.
    pub fn is_crowded(&self) -> bool {
        self.open_files.load(Ordering::Relaxed) > self.files_max
    }

    /// How many `.log` files are open, whoever holds them.
    pub fn open_files(&self) -> usize {
        self.open_files.load(Ordering::Relaxed)
    }

    /// The `.log` file, for reading and writing if the file system lets us.
    pub fn log_file(&self, files: &Arc<SegmentFiles>) -> Result<Arc<dyn StorageFile>> {
        self.touch(files);
        loop {
            let mut slots = files.slots.lock();
            if let Some(file) = &slots.log {
                return Ok(file.clone());
            }
            let (mut kept, replacements) = (slots.open_log(), slots.replacements);
            drop(slots);
            if kept.is_none() {
                let name = files.name.read();
                let path = files.path_at(&name, LOG);
                let opened = self.open(&path, OpenMode::ReadWrite);
                let opened = opened.map_err(Error::io("open", &path))?;
                let opened = CountedFile::new(opened, &self.open_files);
                kept = files.slots.lock().keep_log(opened, replacements);
            }
            if let Some(file) = kept {
                self.register(files);
                return Ok(file);
            }
        }
    }

    /// Opens a file; where there is no descriptor for it, closes some of what is open and unused,
    /// and tries once more.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        match self.storage.open(path, mode) {
            Err(error) if lacks_descriptors(&error) => {
                let mut open = self.open.lock();
                let count = open.len().div_ceil(8);
                self.evict_oldest(&mut open, count, None);
                drop(open);
                self.storage.open(path, mode)
            }
            opened => opened,
        }
    }

    /// The mapped `.index` of a closed segment; empty if the file is missing.
    pub fn offset_index(&self, files: &Arc<SegmentFiles>) -> Result<Arc<Mapping>> {
        self.index(files, OFFSET_INDEX, |slots| &mut slots.offset_index)
    }

    /// Both of the above, by one lock where they are open.
    pub fn log_and_offset_index(
        &self,
        files: &Arc<SegmentFiles>,
    ) -> Result<(Arc<dyn StorageFile>, Arc<Mapping>)> {
        {
            let slots = files.slots.lock();
            if let (Some(log), Some(index)) = (&slots.log, &slots.offset_index) {
                self.touch(files);
                return Ok((log.clone(), index.clone()));
            }
        }
        Ok((self.log_file(files)?, self.offset_index(files)?))
    }

    /// The mapped `.timeindex` of a closed segment; empty if the file is missing.
    pub fn time_index(&self, files: &Arc<SegmentFiles>) -> Result<Arc<Mapping>> {
        self.index(files, TIME_INDEX, |slots| &mut slots.time_index)
    }

    fn index(
        &self,
        files: &Arc<SegmentFiles>,
        kind: &str,
        slot: impl Fn(&mut Slots) -> &mut Option<Arc<Mapping>>,
    ) -> Result<Arc<Mapping>> {
        self.touch(files);
        if let Some(mapping) = slot(&mut files.slots.lock()) {
            return Ok(mapping.clone());
        }
        let name = files.name.read();
        let path = files.path_at(&name, kind);
        let mapping = match self.open(&path, OpenMode::Read) {
            Ok(file) => Arc::new(file.map().map_err(Error::io("mmap", &path))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Arc::new(Mapping::Owned(Vec::new()))
            }
            Err(error) => return Err(Error::io("open", &path)(error)),
        };
        *slot(&mut files.slots.lock()) = Some(mapping.clone());
        drop(name);
        self.register(files);
        Ok(mapping)
    }

    fn touch(&self, files: &SegmentFiles) {
        files.last_used.store(
            self.clock.fetch_add(1, Ordering::Relaxed),
            Ordering::Relaxed,
        );
    }

    /// Notes that `files` holds something open and closes an eighth of all if that is too many: one
    /// look at everything now and then is cheaper than a list kept in order at each use.
    fn register(&self, files: &Arc<SegmentFiles>) {
        let mut open = self.open.lock();
        open.insert(files.id, Arc::downgrade(files));
        if open.len() <= self.segments_max {
            return;
        }
        let count = open.len() - self.segments_max + self.segments_max / 8;
        self.evict_oldest(&mut open, count, Some(files.id));
    }

    /// Closes what so many segments hold that have not been used for longest, `spared` aside.
    fn evict_oldest(
        &self,
        open: &mut HashMap<u64, Weak<SegmentFiles>>,
        count: usize,
        spared: Option<u64>,
    ) {
        let mut by_age: Vec<(u64, u64)> = open
            .iter()
            .map(|(id, weak)| {
                let used = weak
                    .upgrade()
                    .map_or(0, |files| files.last_used.load(Ordering::Relaxed));
                (used, *id)
            })
            .collect();
        let count = count.min(by_age.len());
        if count == 0 {
            return;
        }
        by_age.select_nth_unstable(count - 1);
        for (_, id) in by_age.into_iter().take(count) {
            if Some(id) == spared {
                continue;
            }
            if let Some(evicted) = open.remove(&id).and_then(|weak| weak.upgrade()) {
                evicted.slots.lock().evict();
            }
        }
    }

    /// Renames all files of a segment from their present suffix to another and closes none: readers
    /// go on with what they hold. A missing index or transaction index is passed over. The caller
    /// syncs the directory.
    pub fn change_suffix(&self, files: &SegmentFiles, suffix: &'static str) -> Result<()> {
        let mut name = files.name.write();
        for kind in SEGMENT_KINDS {
            let from = files.path_at(&name, kind);
            let to = names::segment_path(&name.directory, files.base_offset, kind, suffix);
            match self.storage.rename(&from, &to) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && kind != LOG => {}
                Err(error) => return Err(Error::io("rename", &from)(error)),
                Ok(()) => {}
            }
        }
        name.suffix = suffix;
        Ok(())
    }

    /// Renames all files of a segment to `.deleted`. `false`: the file system has no block for the
    /// names, and the files are unlinked at once, which takes none.
    pub fn set_aside(&self, files: &SegmentFiles) -> Result<bool> {
        match self.change_suffix(files, DELETED) {
            Err(error) if error.lacks_space() => {
                self.remove(files)?;
                // Some may have their new name already.
                files.name.write().suffix = DELETED;
                self.remove(files)?;
                Ok(false)
            }
            renamed => renamed.map(|()| true),
        }
    }

    /// Unlinks all files of a segment; missing ones are passed over.
    pub fn remove(&self, files: &SegmentFiles) -> Result<()> {
        let name = files.name.read();
        for kind in SEGMENT_KINDS {
            let path = files.path_at(&name, kind);
            match self.storage.remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io("unlink", &path)(error));
                }
                _ => {}
            }
        }
        files.forget_all();
        self.open.lock().remove(&files.id);
        Ok(())
    }
}

impl SegmentFiles {
    pub fn base_offset(&self) -> i64 {
        self.base_offset
    }

    /// The present path of a file of the segment; `kind` as in `names`.
    pub fn path(&self, kind: &str) -> PathBuf {
        self.path_at(&self.name.read(), kind)
    }

    /// Does `work` with the present paths of the segment's files, which no rename changes
    /// meanwhile. It must not ask the segment for its files or paths in another way.
    pub fn hold_name<T>(&self, work: impl FnOnce(&dyn Fn(&str) -> PathBuf) -> T) -> T {
        let name = self.name.read();
        work(&|kind| self.path_at(&name, kind))
    }

    /// After the partition's directory was renamed.
    pub fn move_to(&self, directory: &Path) {
        self.name.write().directory = directory.to_path_buf();
    }

    /// Lets go of the maps, so that indexes that were replaced by rename are read anew.
    pub fn forget_indexes(&self) {
        self.slots.lock().forget_indexes();
    }

    /// Lets go of the `.log` file, which was replaced by rename. Whoever reads
    /// the old one has it open.
    pub fn forget_log(&self) {
        self.slots.lock().forget_log();
    }

    fn forget_all(&self) {
        let mut slots = self.slots.lock();
        slots.forget_log();
        slots.forget_indexes();
    }

    fn path_at(&self, name: &Name, kind: &str) -> PathBuf {
        names::segment_path(&name.directory, self.base_offset, kind, name.suffix)
    }
}

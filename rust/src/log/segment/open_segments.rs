//! Descriptors and maps of segments, at most so many at once (`kafkalite.open.segments.max`).
//!
//! A segment's files are opened when first needed and closed when many others have been used since;
//! whoever holds an `Arc` of a file keeps that descriptor until it lets go. A file is found again
//! by its present name: `rename` here and on disk go together, under one lock.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use crate::batch::validate::ScratchPool;
use crate::error::{Error, Result};
use crate::limits::{DESCRIPTORS_RESERVED, DESCRIPTORS_SPARE};
use crate::log::names::{self, DELETED, LOG, OFFSET_INDEX, SEGMENT_KINDS, TIME_INDEX};
use crate::log::storage::{Mapping, OpenMode, Storage, StorageFile};

/// The bound and who is open; shared by all logs of a broker, with what else they share.
pub struct OpenSegments {
    pub storage: Arc<dyn Storage>,
    pub scratches: ScratchPool,
    segments_max: usize,
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
    offset_index: Option<Arc<Mapping>>,
    time_index: Option<Arc<Mapping>>,
}

impl OpenSegments {
    /// Raises the process's limit of descriptors to what is asked for; where that may not be, fewer
    /// segments stay open, but at least 16.
    pub fn new(storage: Arc<dyn Storage>, segments_max: usize) -> Arc<OpenSegments> {
        let reserved = DESCRIPTORS_RESERVED + DESCRIPTORS_SPARE;
        let wanted = (segments_max as u64).saturating_add(reserved);
        let descriptors = storage.allow_descriptors(wanted);
        let affordable = if descriptors >= wanted {
            segments_max
        } else {
            segments_max.min((descriptors / 2) as usize)
        };
        let left = descriptors.saturating_sub(affordable as u64);
        let spare = DESCRIPTORS_SPARE.min(left / 2);
        Arc::new(OpenSegments {
            storage,
            scratches: ScratchPool::default(),
            segments_max: affordable.max(16),
            connections_max: usize::try_from(left - spare).unwrap_or(usize::MAX),
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

    /// The `.log` file, for reading and writing if the file system lets us.
    pub fn log_file(&self, files: &Arc<SegmentFiles>) -> Result<Arc<dyn StorageFile>> {
        self.touch(files);
        if let Some(file) = &files.slots.lock().log {
            return Ok(file.clone());
        }
        let name = files.name.read();
        let path = files.path_at(&name, LOG);
        let file = self
            .storage
            .open(&path, OpenMode::ReadWrite)
            .map_err(Error::io("open", &path))?;
        files.slots.lock().log = Some(file.clone());
        drop(name);
        self.register(files);
        Ok(file)
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
        let mapping = match self.storage.open(&path, OpenMode::Read) {
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
        let mut by_age: Vec<(u64, u64)> = open
            .iter()
            .map(|(id, weak)| {
                let used = weak
                    .upgrade()
                    .map_or(0, |files| files.last_used.load(Ordering::Relaxed));
                (used, *id)
            })
            .collect();
        let count = (by_age.len() - self.segments_max + self.segments_max / 8).min(by_age.len());
        by_age.select_nth_unstable(count.saturating_sub(1));
        for (_, id) in by_age.into_iter().take(count) {
            if id == files.id {
                continue;
            }
            if let Some(evicted) = open.remove(&id).and_then(|weak| weak.upgrade()) {
                evicted.close();
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
        files.close();
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
        let mut slots = self.slots.lock();
        slots.offset_index = None;
        slots.time_index = None;
    }

    /// Lets go of the `.log` file, which was replaced by rename. Whoever reads
    /// the old one has it open.
    pub fn forget_log(&self) {
        self.slots.lock().log = None;
    }

    fn close(&self) {
        *self.slots.lock() = Slots::default();
    }

    fn path_at(&self, name: &Name, kind: &str) -> PathBuf {
        names::segment_path(&name.directory, self.base_offset, kind, name.suffix)
    }
}

//! The `.log` files that are open, counted until the last holder lets go. The cache knows what it
//! holds itself; an answer that nobody reads holds a file for longer, and that takes a descriptor
//! as well.

use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::log::storage::{Mapping, StorageFile};

/// A file that counts as open as long as it lives.
pub struct CountedFile {
    file: Arc<dyn StorageFile>,
    open_files: Arc<AtomicUsize>,
}

impl CountedFile {
    pub fn new(file: Arc<dyn StorageFile>, open_files: &Arc<AtomicUsize>) -> Arc<CountedFile> {
        open_files.fetch_add(1, Ordering::Relaxed);
        Arc::new(CountedFile {
            file,
            open_files: open_files.clone(),
        })
    }
}

impl Drop for CountedFile {
    fn drop(&mut self) {
        let before = self.open_files.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "it was counted in");
    }
}

impl StorageFile for CountedFile {
    fn read_at(&self, buffer: &mut [u8], position_byte: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position_byte)
    }

    fn write_vectored_at(&self, buffers: &[IoSlice<'_>], position_byte: u64) -> io::Result<usize> {
        self.file.write_vectored_at(buffers, position_byte)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn set_size(&self, size_bytes: u64) -> io::Result<()> {
        self.file.set_size(size_bytes)
    }

    fn preallocate(&self, size_bytes: u64) -> io::Result<()> {
        self.file.preallocate(size_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn check_written(&self) -> io::Result<()> {
        self.file.check_written()
    }

    fn map(&self) -> io::Result<Mapping> {
        self.file.map()
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.file.descriptor()
    }
}

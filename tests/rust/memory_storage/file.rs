//! A file: what this process reads and what is on disk.

use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;

use kafkalite::log::storage::{Mapping, StorageFile};
use parking_lot::Mutex;

use super::MemoryStorage;
use super::faults::{Failure, Operation};

/// Bytes are shared until they are written to: the long runs make millions
/// of storages of few files.
#[derive(Default)]
pub(super) struct Content {
    pub(super) live: Arc<Vec<u8>>,
    pub(super) durable: Arc<Vec<u8>>,
    /// A sync has failed: what was written before it never becomes durable.
    pub(super) sync_has_failed: bool,
}

pub(super) struct MemoryFile {
    pub(super) storage: MemoryStorage,
    pub(super) path: PathBuf,
    pub(super) content: Arc<Mutex<Content>>,
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        self.storage.state.lock().open_files -= 1;
    }
}

impl Content {
    /// A file that is on disk as it is.
    pub(super) fn durable(bytes: Arc<Vec<u8>>) -> Content {
        Content {
            live: bytes.clone(),
            durable: bytes,
            sync_has_failed: false,
        }
    }

    pub(super) fn sync(&mut self) {
        if !self.sync_has_failed {
            self.durable.clone_from(&self.live);
        }
    }

    pub(super) fn set_size(&mut self, size: usize) {
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
        self.storage.call_hook(Operation::Write, &self.path);
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
            Some(failure @ (Failure::NoSpace | Failure::TooManyOpen | Failure::Panic)) => {
                Err(failure.error())
            }
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

    fn check_written(&self) -> io::Result<()> {
        let result = self.storage.call(Operation::CheckWritten, &self.path);
        if result.is_err() {
            self.content.lock().sync_has_failed = true;
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

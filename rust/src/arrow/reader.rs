//! Batches out of one segment's file, in order, through one buffer that stays in the cache.
//!
//! `pread` and not a map: the file may be cut while it is read (a follower's truncation), which in
//! a map is SIGBUS; and the copy is paid back, since CRC and columns then read warm memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::batch::BatchHeader;
use crate::batch::header::{MAGIC_PREFIX, RECORD_BATCH_OVERHEAD, batch_size};
use crate::error::{Error, Result};
use crate::log::storage::{StorageFile, read_full_at};

/// The thing at a reader's position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A batch; whether its bytes are all there is seen when they are loaded.
    Batch(BatchHeader),
    /// The end of the file.
    End,
    /// Bytes that are no batch, and why.
    Broken(String),
}

pub struct SegmentReader {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    chunk_bytes: usize,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were read.
    filled: usize,
    /// Position in the file of the buffer's first byte.
    buffer_position: u64,
    position: u64,
}

impl SegmentReader {
    /// Reads at least `chunk_bytes` at a time, from `position` on. `buffer` is one to use again.
    pub fn new(
        file: Arc<dyn StorageFile>,
        path: &Path,
        position: u64,
        chunk_bytes: usize,
        buffer: Vec<u8>,
    ) -> SegmentReader {
        SegmentReader {
            file,
            path: path.to_path_buf(),
            chunk_bytes: chunk_bytes.max(RECORD_BATCH_OVERHEAD),
            buffer,
            filled: 0,
            buffer_position: position,
            position,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn position_byte(&self) -> u64 {
        self.position
    }

    /// The buffer, for the reader of the next segment.
    pub fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    /// Looks at the header at the position. Errors: `Io` only.
    pub fn peek(&mut self) -> Result<Next> {
        self.fill(MAGIC_PREFIX)?;
        if self.bytes().is_empty() {
            return Ok(Next::End);
        }
        let size = match batch_size(self.bytes()) {
            Ok(Some(size)) => size,
            Ok(None) => return Ok(self.cut_off()),
            Err(error) => return Ok(Next::Broken(error.to_string())),
        };
        // A message of the old formats can be shorter than the header of a batch.
        self.fill(size.min(RECORD_BATCH_OVERHEAD))?;
        match BatchHeader::parse(self.bytes()) {
            Ok(Some(header)) => Ok(Next::Batch(header)),
            Ok(None) => Ok(self.cut_off()),
            Err(error) => Ok(Next::Broken(error.to_string())),
        }
    }

    /// Size now; a live log's last file grows.
    pub fn file_size(&self) -> Result<u64> {
        self.file.size().map_err(Error::io("fstat", &self.path))
    }

    /// The first `size_bytes` at the position; `None`: the file ends before. Errors: `Io` only.
    pub fn load(&mut self, size_bytes: usize) -> Result<Option<&[u8]>> {
        if size_bytes > self.chunk_bytes {
            // A garbled length must not make the buffer grow.
            if self.position.saturating_add(size_bytes as u64) > self.file_size()? {
                return Ok(None);
            }
        }
        self.fill(size_bytes)?;
        Ok(self.bytes().get(..size_bytes))
    }

    /// The bytes that `load` has read, without reading: empty if they are not all there.
    pub fn loaded(&self, size_bytes: usize) -> &[u8] {
        self.bytes().get(..size_bytes).unwrap_or_default()
    }

    /// Moves on; what is passed over is not read.
    pub fn skip(&mut self, size_bytes: usize) {
        self.position += size_bytes as u64;
    }

    pub fn seek(&mut self, position: u64) {
        self.position = position;
    }

    /// `CorruptFile` at the position.
    pub fn corrupt(&self, reason: impl Into<String>) -> Error {
        Error::corrupt_file(&self.path, self.position, reason)
    }

    fn cut_off(&self) -> Next {
        Next::Broken(format!("only {} bytes of a batch", self.bytes().len()))
    }

    /// All bytes that were read from the position on, be they a batch or not.
    pub fn buffered(&self) -> &[u8] {
        self.bytes()
    }

    /// Buffered bytes from the position on.
    #[inline]
    fn bytes(&self) -> &[u8] {
        let skipped = self.position.wrapping_sub(self.buffer_position);
        let start = usize::try_from(skipped).unwrap_or(usize::MAX);
        self.buffer.get(start..self.filled).unwrap_or_default()
    }

    /// Sees to it that `wanted` bytes from the position on are buffered, or all up to the end.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        let kept = self.bytes().len();
        if kept >= wanted {
            return Ok(());
        }
        if kept > 0 {
            self.buffer.copy_within(self.filled - kept..self.filled, 0);
        }
        self.buffer_position = self.position;
        self.filled = kept;
        let size = wanted.max(self.chunk_bytes);
        if self.buffer.is_empty() {
            // Fresh zeros come without being touched; of a small file little is.
            self.buffer = vec![0; size];
        } else if self.buffer.len() < size {
            self.buffer.resize(size, 0);
        } else if self.buffer.len() > size.saturating_mul(4) {
            // One huge batch must not hold its memory, nor spoil the cache, for the rest.
            self.buffer.truncate(size);
            self.buffer.shrink_to_fit();
        }
        let position = self.position + kept as u64;
        let read = read_full_at(&*self.file, &mut self.buffer[kept..size], position)
            .map_err(Error::io("pread", &self.path))?;
        self.filled = kept + read;
        Ok(())
    }
}

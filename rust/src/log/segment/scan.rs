//! Walks the batches of a segment's file in order, headers only or whole, through one buffer.

use std::borrow::Cow;
use std::path::Path;

use crate::batch::BatchHeader;
use crate::batch::header::{MAGIC_PREFIX, RECORD_BATCH_OVERHEAD, batch_size};
use crate::error::{Error, Result};
use crate::limits::SCAN_CHUNK_BYTES;
use crate::log::names::LOG;
use crate::log::segment::open_segments::SegmentFiles;
use crate::log::storage::{StorageFile, read_full_at};

/// Reads forward from one position to an end fixed at the start. After an error the walk is over.
///
/// `CorruptFile` says what is wrong at which byte: an impossible header, a batch that ends behind
/// the end, fewer bytes than a header. `Io` says that the bytes could not be had.
pub struct BatchScanner<'f> {
    file: &'f dyn StorageFile,
    name: Name<'f>,
    position: u64,
    end: u64,
    chunk_bytes: usize,
    buffer: Vec<u8>,
    /// Position in the file of `buffer[0]`.
    buffer_position: u64,
}

/// The file's name, for errors: a look-up does not make a path that nobody reads.
enum Name<'f> {
    Path(&'f Path),
    LogOf(&'f SegmentFiles),
}

impl<'f> BatchScanner<'f> {
    /// For whole batches: reads `SCAN_CHUNK_BYTES` at a time.
    pub fn new(
        file: &'f dyn StorageFile,
        path: &'f Path,
        position: u64,
        end: u64,
    ) -> BatchScanner<'f> {
        Self::named(file, Name::Path(path), position, end)
    }

    /// Over the `.log` file of a segment.
    pub fn of_segment(
        file: &'f dyn StorageFile,
        files: &'f SegmentFiles,
        position: u64,
        end: u64,
    ) -> BatchScanner<'f> {
        Self::named(file, Name::LogOf(files), position, end)
    }

    fn named(file: &'f dyn StorageFile, name: Name<'f>, position: u64, end: u64) -> Self {
        BatchScanner {
            file,
            name,
            position,
            end,
            chunk_bytes: SCAN_CHUNK_BYTES,
            buffer: Vec::new(),
            buffer_position: 0,
        }
    }

    /// For a look-up of a few headers: reads `chunk_bytes` at a time.
    pub fn with_chunk_bytes(mut self, chunk_bytes: usize) -> BatchScanner<'f> {
        self.chunk_bytes = chunk_bytes.max(RECORD_BATCH_OVERHEAD);
        self
    }

    fn path(&self) -> Cow<'f, Path> {
        match self.name {
            Name::Path(path) => Cow::Borrowed(path),
            Name::LogOf(files) => Cow::Owned(files.path(LOG)),
        }
    }

    /// Position of the next batch, or of the bytes that are none.
    pub fn position_byte(&self) -> u64 {
        self.position
    }

    /// The next header and its position; the batch's other bytes are not read, but must be there.
    pub fn next_header(&mut self) -> Result<Option<(u64, BatchHeader)>> {
        if self.position >= self.end {
            return Ok(None);
        }
        let at = self.position;
        self.fill(MAGIC_PREFIX)?;
        let prefix = self.bytes();
        // A legacy message can be shorter than the header of a batch: no more
        // is asked for than it has.
        let wanted = match batch_size(prefix).map_err(|error| self.corrupt(&error))? {
            Some(size) => size.min(RECORD_BATCH_OVERHEAD),
            None => return Err(self.torn(prefix.len())),
        };
        self.fill(wanted)?;
        let header = match BatchHeader::parse(self.bytes()) {
            Ok(Some(header)) => header,
            Ok(None) => return Err(self.torn(self.bytes().len())),
            Err(error) => return Err(self.corrupt(&error)),
        };
        let left = self.end - at;
        if header.size_bytes as u64 > left {
            let reason = format!("a batch of {} bytes has only {left}", header.size_bytes);
            return Err(Error::corrupt_file(&self.path(), at, reason));
        }
        self.position = at + header.size_bytes as u64;
        Ok(Some((at, header)))
    }

    /// The next batch whole, CRC not looked at: position, header, bytes.
    pub fn next_batch(&mut self) -> Result<Option<(u64, BatchHeader, &[u8])>> {
        let Some((at, header)) = self.next_header()? else {
            return Ok(None);
        };
        self.position = at;
        self.fill(header.size_bytes)?;
        let start = (at - self.buffer_position) as usize;
        if self.buffer.len() < start + header.size_bytes {
            return Err(self.torn(self.buffer.len() - start));
        }
        self.position = at + header.size_bytes as u64;
        Ok(Some((
            at,
            header,
            &self.buffer[start..start + header.size_bytes],
        )))
    }

    /// Buffered bytes from the current position on.
    fn bytes(&self) -> &[u8] {
        let start = self.position.saturating_sub(self.buffer_position) as usize;
        self.buffer.get(start..).unwrap_or_default()
    }

    /// Sees to it that `wanted` bytes from the position on are buffered, or all up to the end.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        if self.position >= self.buffer_position && self.bytes().len() >= wanted {
            return Ok(());
        }
        let left = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
        let size = wanted.max(self.chunk_bytes).min(left);
        let kept = self.bytes().len();
        let start = self.buffer.len() - kept;
        self.buffer.copy_within(start.., 0);
        self.buffer.resize(size.max(kept), 0);
        self.buffer_position = self.position;
        let read = kept
            + read_full_at(
                self.file,
                &mut self.buffer[kept..],
                self.position + kept as u64,
            )
            .map_err(|error| Error::io("pread", &self.path())(error))?;
        self.buffer.truncate(read);
        Ok(())
    }

    fn torn(&self, found: usize) -> Error {
        Error::corrupt_file(
            &self.path(),
            self.position,
            format!("only {found} bytes of a batch"),
        )
    }

    fn corrupt(&self, error: &Error) -> Error {
        Error::corrupt_file(&self.path(), self.position, error.to_string())
    }
}

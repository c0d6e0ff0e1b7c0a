//! The batches of a partition between two offsets, across its segments. Each is proved by its CRC
//! and by its place in the order of offsets (the CRC leaves the base offset out).

use std::collections::VecDeque;
use std::io;

use super::reader::{Next, SegmentReader};
use super::segments::{OpenSegment, Partition};
use crate::batch::BatchHeader;
use crate::error::{Error, Result};
use crate::log::names::{LOG, segment_path};

/// Walks forward once. After an error it is to be dropped.
pub struct BatchWalk {
    partition: Partition,
    stop: i64,
    chunk_bytes: usize,
    /// Every offset below has been returned, passed over, or does not exist.
    next_offset: i64,
    /// Opened segments that are still to be read, in order.
    ahead: VecDeque<OpenSegment>,
    current: Option<(OpenSegment, SegmentReader)>,
    /// Offset that the next batch of the segment must not begin before.
    chain_offset: i64,
    /// Position and base offset of the batch before the one at hand.
    passed: (u64, i64),
    /// Segment and `next_offset` when the last segment there was had been read to its end.
    ended: Option<(i64, i64)>,
    /// The buffer between two segments.
    buffer: Vec<u8>,
}

impl BatchWalk {
    /// Batches with offsets in `start .. stop`, all of which exist or existed: the log's end is
    /// taken for damage. `chunk_bytes` are read at once; few, if headers are all that is wanted.
    pub fn new(partition: Partition, start: i64, stop: i64, chunk_bytes: usize) -> BatchWalk {
        BatchWalk {
            partition,
            stop,
            chunk_bytes,
            next_offset: start,
            ahead: VecDeque::new(),
            current: None,
            chain_offset: 0,
            passed: (0, 0),
            ended: None,
            buffer: Vec::new(),
        }
    }

    /// Offset that is due next; records of the batch at hand below it are not wanted.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    pub fn stop(&self) -> i64 {
        self.stop
    }

    /// Header of the next batch that reaches into the range; it stays the next one until `pass`.
    ///
    /// Errors: `CorruptFile` where no batch, or not one with a possible offset, stands; `Io`, also
    /// for offsets that were deleted or cut off since the range was chosen.
    pub fn next_header(&mut self) -> Result<Option<BatchHeader>> {
        while self.next_offset < self.stop {
            if self.current.is_none() {
                self.open_next()?;
            }
            let Some((_, reader)) = &mut self.current else {
                continue;
            };
            let header = match reader.peek()? {
                Next::Batch(header) => header,
                Next::End => {
                    self.refuse_cut_batch()?;
                    self.leave_segment()?;
                    continue;
                }
                Next::Broken(reason) => {
                    self.refuse_unless_zeros_follow(&reason)?;
                    self.leave_segment()?;
                    continue;
                }
            };
            self.check_order(&header)?;
            if header.last_offset() < self.next_offset {
                self.pass(&header);
                continue;
            }
            // The first offset of a compressed set of magic 0 or 1 is not known yet.
            let first_is_known = header.magic == 2 || !header.is_compressed();
            if first_is_known && header.base_offset >= self.stop {
                self.pass(&header);
                break;
            }
            return Ok(Some(header));
        }
        self.confirm_complete()?;
        Ok(None)
    }

    /// Reads the batch at hand and checks its CRC; its bytes are then had from `loaded`.
    pub fn load(&mut self, header: &BatchHeader) -> Result<()> {
        let Some((_, reader)) = &mut self.current else {
            return Ok(());
        };
        let whole = match reader.load(header.size_bytes)? {
            Some(batch) => header.crc_matches(batch),
            None => {
                let reason = format!(
                    "the file ends within the batch of {} bytes at offset {}",
                    header.size_bytes, header.base_offset
                );
                return Err(reader.corrupt(reason));
            }
        };
        if !whole {
            let reason = format!(
                "the CRC of the batch at offset {} is wrong",
                header.base_offset
            );
            return Err(reader.corrupt(reason));
        }
        Ok(())
    }

    /// All bytes of the batch at hand, once loaded.
    #[inline]
    pub fn loaded(&self, header: &BatchHeader) -> &[u8] {
        match &self.current {
            Some((_, reader)) => reader.loaded(header.size_bytes),
            None => &[],
        }
    }

    /// The batch at hand is done with.
    pub fn pass(&mut self, header: &BatchHeader) {
        if let Some((_, reader)) = &mut self.current {
            self.passed = (reader.position_byte(), header.base_offset);
            reader.skip(header.size_bytes);
        }
        self.chain_offset = header.next_offset();
        self.next_offset = self.next_offset.max(header.next_offset());
    }

    /// `CorruptFile` at the batch at hand.
    pub fn corrupt(&self, header: &BatchHeader, reason: &str) -> Error {
        let reason = format!("in the batch at offset {}: {reason}", header.base_offset);
        match &self.current {
            Some((_, reader)) => reader.corrupt(reason),
            None => Error::corrupt_file(&self.partition.directory, 0, reason),
        }
    }

    fn check_order(&self, header: &BatchHeader) -> Result<()> {
        let Some((segment, reader)) = &self.current else {
            return Ok(());
        };
        let below = header.base_offset < self.chain_offset.max(segment.base_offset);
        let above = segment
            .next_base_offset
            .is_some_and(|next| header.last_offset() >= next);
        if below || above {
            let reason = format!(
                "a batch with offsets {} to {} is out of order",
                header.base_offset,
                header.last_offset()
            );
            return Err(reader.corrupt(reason));
        }
        Ok(())
    }

    /// The CRC does not cover the base offset: before the range is taken for complete, the batch
    /// behind it must not lie before it, else rows would be missing without an error.
    fn confirm_complete(&mut self) -> Result<()> {
        let Some((_, reader)) = &mut self.current else {
            return Ok(());
        };
        match reader.peek()? {
            Next::Batch(next) if next.base_offset < self.chain_offset => {
                Err(reader.corrupt(format!(
                    "a batch at offset {} stands behind one that ends at {}",
                    next.base_offset,
                    self.chain_offset - 1
                )))
            }
            _ => Ok(()),
        }
    }

    fn open_next(&mut self) -> Result<()> {
        if self.ahead.is_empty() {
            let segments = self.partition.open_segments(self.next_offset, self.stop)?;
            if let Some(first) = segments.first()
                && first.base_offset > self.next_offset
            {
                let name = segment_path("".as_ref(), first.base_offset, LOG, "");
                return Err(self.gone(&format!("the log now begins with {}", name.display())));
            }
            self.ahead = segments.into();
        }
        let Some(segment) = self.ahead.pop_front() else {
            return Err(self.gone("the partition has no segments any more"));
        };
        let position = self.partition.seek_hint(&segment, self.next_offset)?;
        let buffer = std::mem::take(&mut self.buffer);
        let reader = SegmentReader::new(
            segment.file.clone(),
            &segment.path,
            position,
            self.chunk_bytes,
            buffer,
        );
        self.chain_offset = segment.base_offset;
        self.current = Some((segment, reader));
        Ok(())
    }

    /// The segment at hand has no more batches.
    fn leave_segment(&mut self) -> Result<()> {
        let Some((segment, reader)) = self.current.take() else {
            return Ok(());
        };
        self.buffer = reader.into_buffer();
        match segment.next_base_offset {
            // What is missing before the next segment was compacted away.
            Some(next) => self.next_offset = self.next_offset.max(next),
            None if self.ahead.is_empty() => {
                // The last one; it may have been rolled since it was opened, so look again, once.
                let here = (segment.base_offset, self.next_offset);
                if self.ended.replace(here) == Some(here) {
                    return Err(Error::io("pread", &segment.path)(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        format!(
                            "the log ends at offset {} now, before {}: it was cut meanwhile",
                            self.next_offset, self.stop
                        ),
                    )));
                }
            }
            None => {}
        }
        Ok(())
    }

    /// A batch that was passed over unread may have claimed more bytes than there are.
    fn refuse_cut_batch(&self) -> Result<()> {
        let Some((_, reader)) = &self.current else {
            return Ok(());
        };
        if reader.position_byte() <= reader.file_size()? {
            return Ok(());
        }
        let (position, offset) = self.passed;
        let reason = format!("the file ends within the batch at offset {offset}");
        Err(Error::corrupt_file(reader.path(), position, reason))
    }

    /// A preallocated segment has zeros behind its last batch. They are no damage if nothing is
    /// missing before the next segment.
    fn refuse_unless_zeros_follow(&mut self, reason: &str) -> Result<()> {
        let Some((segment, reader)) = &mut self.current else {
            return Ok(());
        };
        let complete = segment.next_base_offset == Some(self.next_offset);
        if complete && reader.buffered().iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let reason = format!(
            "no batch where offset {} is due: {reason}",
            self.next_offset
        );
        Err(reader.corrupt(reason))
    }

    fn gone(&self, reason: &str) -> Error {
        let reason = format!(
            "offset {} was deleted while it was being read: {reason}",
            self.next_offset
        );
        Error::io("read", &self.partition.directory)(io::Error::new(
            io::ErrorKind::NotFound,
            reason,
        ))
    }
}

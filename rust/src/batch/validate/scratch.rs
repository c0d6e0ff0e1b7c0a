//! The memory that compressed batches are inflated with and into while they are judged.

use parking_lot::Mutex;

use crate::batch::compression::Codec;
use crate::batch::header::RECORD_BATCH_OVERHEAD;
use crate::batch::inflate::Inflater;
use crate::batch::stream::RawRecords;
use crate::error::Result;
use crate::limits::{INFLATED_BYTES_MAX, SCRATCH_BYTES_KEPT_MAX, SCRATCHES_KEPT_MAX};

/// The readers and memory that compressed batches are inflated with and into. Memory for it is
/// taken when the first of them comes, out of a pool if there is one, and goes back there.
#[derive(Debug, Default)]
pub struct Scratch<'p> {
    pool: Option<&'p ScratchPool>,
    memory: Option<ScratchMemory>,
    /// Bytes that may be inflated, beyond which batches are `TooCostly`; `None`: any.
    bytes_max: Option<usize>,
}

#[derive(Debug, Default)]
struct ScratchMemory {
    inflater: Inflater,
    inflated: Vec<u8>,
}

/// Memory that validation keeps for the next batches, whichever log they are for: as much as
/// `SCRATCHES_KEPT_MAX` threads need at once, each cut down to `SCRATCH_BYTES_KEPT_MAX`.
#[derive(Debug, Default)]
pub struct ScratchPool {
    spare: Mutex<Vec<ScratchMemory>>,
}

impl ScratchPool {
    /// Scratch memory through which no more than `bytes_max` bytes may be inflated.
    pub fn scratch(&self, bytes_max: usize) -> Scratch<'_> {
        Scratch {
            pool: Some(self),
            memory: None,
            bytes_max: Some(bytes_max),
        }
    }

    fn take(&self) -> Option<ScratchMemory> {
        self.spare.lock().pop()
    }

    fn put(&self, mut memory: ScratchMemory) {
        memory.inflater.left_bytes = usize::MAX;
        memory.inflated.clear();
        memory.inflated.shrink_to(SCRATCH_BYTES_KEPT_MAX);
        let mut spare = self.spare.lock();
        if spare.len() < SCRATCHES_KEPT_MAX {
            spare.push(memory);
        }
    }
}

impl Scratch<'_> {
    /// Bytes that may still be inflated.
    pub fn left_bytes(&self) -> usize {
        let of_memory = self
            .memory
            .as_ref()
            .map(|memory| memory.inflater.left_bytes);
        of_memory.or(self.bytes_max).unwrap_or(usize::MAX)
    }

    /// The records of a batch, through this memory if they are compressed.
    pub(super) fn inflate<'a>(
        &'a mut self,
        batch: &'a [u8],
        codec: Codec,
    ) -> Result<RawRecords<'a>> {
        let records = &batch[RECORD_BATCH_OVERHEAD..];
        if codec == Codec::None {
            return Ok(RawRecords::Whole(records, 0));
        }
        let (pool, bytes_max) = (self.pool, self.bytes_max);
        let memory = self.memory.get_or_insert_with(|| {
            let mut memory = pool.and_then(ScratchPool::take).unwrap_or_default();
            memory.inflater.left_bytes = bytes_max.unwrap_or(usize::MAX);
            memory.inflater.stream_bytes_max = INFLATED_BYTES_MAX;
            memory
        });
        let ScratchMemory { inflater, inflated } = memory;
        RawRecords::inflate(codec, records, inflater, inflated)
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        if let (Some(pool), Some(memory)) = (self.pool, self.memory.take()) {
            pool.put(memory);
        }
    }
}

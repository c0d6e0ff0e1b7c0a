//! Group write: the records of a turn's Produce requests on their way into the logs, one batch of work
//! for each log directory.
//!
//! Records stay in the buffer in which they were received, which goes with the work. A buffer with
//! records for several directories goes to the first of them; for the others they are copied.

use std::sync::Arc;

use crate::limits::{RECEIVE_BUFFERS_KEPT, STAGED_BYTES_MAX};
use crate::net::storage_call::{AppendBatch, Piece};
use crate::replica::Partition;

/// Where records come from: a request's partition.
pub struct Source {
    pub connection: u64,
    pub slot: Option<u64>,
    pub at: usize,
    pub partition: Arc<Partition>,
    pub directory: usize,
}

#[derive(Default)]
pub struct PendingAppends {
    batches: Vec<Building>,
    bytes: usize,
    buffers: usize,
    /// The directory whose batch gets the buffer that is being read.
    owner: Option<usize>,
}

#[derive(Default)]
struct Building {
    batch: AppendBatch,
    /// The last buffer holds copies and may take more.
    takes_copies: bool,
}

impl PendingAppends {
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// So much is staged that it has to be written, even in mid-turn.
    pub fn is_full(&self) -> bool {
        self.bytes >= STAGED_BYTES_MAX || self.buffers >= RECEIVE_BUFFERS_KEPT
    }

    /// Something of the buffer that is being read was staged.
    pub fn has_buffer(&self) -> bool {
        self.owner.is_some()
    }

    /// Stages `buffer[start..start + length]`; `end_buffer` must follow with that buffer.
    pub fn add(&mut self, source: Source, buffer: &[u8], start: usize, length: usize) {
        let owner = *self.owner.get_or_insert(source.directory);
        let building = match self
            .batches
            .iter()
            .position(|each| each.batch.directory == source.directory)
        {
            Some(at) => &mut self.batches[at],
            None => {
                self.batches.push(Building {
                    batch: AppendBatch {
                        directory: source.directory,
                        ..AppendBatch::default()
                    },
                    takes_copies: false,
                });
                let last = self.batches.len() - 1;
                &mut self.batches[last]
            }
        };
        let batch = &mut building.batch;
        let mut place = (batch.buffers.len(), start);
        if owner != source.directory {
            if !building.takes_copies {
                batch.buffers.push(Vec::new());
                building.takes_copies = true;
                self.buffers += 1;
            }
            let number = batch.buffers.len() - 1;
            let copies = &mut batch.buffers[number];
            place = (number, copies.len());
            copies.extend_from_slice(buffer.get(start..start + length).unwrap_or_default());
            batch.size_bytes += length;
        }
        batch.pieces.push(Piece {
            connection: source.connection,
            slot: source.slot,
            at: source.at,
            partition: source.partition,
            buffer: place.0,
            start: place.1,
            length,
        });
        self.bytes += length;
    }

    /// The buffer of the `add`s before is read. Gives it back if nothing of it was staged.
    pub fn end_buffer(&mut self, buffer: Vec<u8>) -> Option<Vec<u8>> {
        let owner = self.owner.take();
        let building = self
            .batches
            .iter_mut()
            .find(|each| Some(each.batch.directory) == owner);
        let Some(building) = building else {
            return Some(buffer);
        };
        building.takes_copies = false;
        building.batch.size_bytes += buffer.len();
        building.batch.buffers.push(buffer);
        self.buffers += 1;
        None
    }

    /// The work, one for each directory.
    pub fn take(&mut self) -> Vec<AppendBatch> {
        (self.bytes, self.buffers) = (0, 0);
        let batches = std::mem::take(&mut self.batches);
        batches.into_iter().map(|each| each.batch).collect()
    }
}

//! Append batching: the records of a round's Produce requests on their way into the logs, one
//! storage call for each log directory, one call of the log for each partition.
//!
//! Records stay in the buffer in which they were received, which goes with the call. A buffer with
//! records for several directories goes to the first of them; for the others they are copied.

use std::sync::Arc;

use crate::error::Result;
use crate::limits::{RECEIVE_BUFFERS_KEPT, STAGED_BYTES_MAX};
use crate::log::append::AppendInfo;
use crate::replica::{Batches, Partition};

/// A request's partition, from which records come.
pub struct Source {
    pub connection: u64,
    pub slot: Option<u64>,
    pub at: usize,
    pub partition: Arc<Partition>,
    pub directory: usize,
    /// The verification guard of its transaction, if there is one.
    pub guard: u64,
    pub acks_all: bool,
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

    /// So much is staged that it has to be written, even in mid-round.
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
            guard: source.guard,
            acks_all: source.acks_all,
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

/// Records of one partition in one Produce request.
pub struct Piece {
    pub connection: u64,
    /// `None` with acks 0.
    pub slot: Option<u64>,
    /// Which partition of the request.
    pub at: usize,
    pub partition: Arc<Partition>,
    /// Where they lie: the buffer's number, from where, how many bytes.
    pub buffer: usize,
    pub start: usize,
    pub length: usize,
    guard: u64,
    acks_all: bool,
}

/// Records to be appended to logs of one directory. Pieces stand in the order of their requests,
/// which is also that of the buffers and of the bytes in each.
#[derive(Default)]
pub struct AppendBatch {
    pub directory: usize,
    pub pieces: Vec<Piece>,
    pub buffers: Vec<Vec<u8>>,
    /// Bytes of the buffers.
    pub size_bytes: usize,
    /// The appending thread also flushes, where a flush is due, instead of
    /// leaving it to the flusher.
    pub flushes: bool,
}

/// The logs' answers, piece by piece.
pub struct Appended {
    pub pieces: Vec<Piece>,
    pub results: Vec<Option<Result<AppendInfo>>>,
    pub buffers: Vec<Vec<u8>>,
    pub size_bytes: usize,
}

impl AppendBatch {
    /// Appends all, the records of one partition by one call, and asks for a flush where it is due.
    pub fn append(mut self, now_ms: i64) -> Appended {
        let mut results: Vec<Option<Result<AppendInfo>>> = Vec::new();
        results.resize_with(self.pieces.len(), || None);
        let mut slices = slices(&self.pieces, &mut self.buffers);
        // A stable sort keeps the order of the requests.
        slices.sort_by_key(|slice| Arc::as_ptr(slice.partition).addr());
        for group in slices.chunk_by_mut(|one, other| Arc::ptr_eq(one.partition, other.partition)) {
            let Some(partition) = group.first().map(|slice| slice.partition.clone()) else {
                continue;
            };
            let batches = group.iter_mut().map(|slice| Batches::OfClient {
                records: &mut *slice.records,
                guard: slice.guard,
                acks_all: slice.acks_all,
            });
            let appended = partition.append(batches, now_ms);
            if partition.log.config().acks_fsync {
                if self.flushes {
                    partition.flush()
                } else {
                    partition.request_flush()
                }
            }
            for (slice, result) in group.iter().zip(appended) {
                if let Some(place) = results.get_mut(slice.piece) {
                    *place = Some(result);
                }
            }
        }
        drop(slices);
        Appended {
            pieces: self.pieces,
            results,
            buffers: self.buffers,
            size_bytes: self.size_bytes,
        }
    }
}

struct Slice<'a> {
    piece: usize,
    partition: &'a Arc<Partition>,
    guard: u64,
    acks_all: bool,
    records: &'a mut [u8],
}

/// Cuts the buffers into the pieces.
fn slices<'a>(pieces: &'a [Piece], buffers: &'a mut [Vec<u8>]) -> Vec<Slice<'a>> {
    let mut slices = Vec::with_capacity(pieces.len());
    let mut pieces = pieces.iter().enumerate().peekable();
    for (number, buffer) in buffers.iter_mut().enumerate() {
        let mut rest: &mut [u8] = buffer;
        let mut rest_at = 0;
        while let Some((index, piece)) = pieces.next_if(|(_, piece)| piece.buffer == number) {
            let (_, tail) = std::mem::take(&mut rest).split_at_mut(piece.start - rest_at);
            let (records, tail) = tail.split_at_mut(piece.length);
            rest = tail;
            rest_at = piece.start + piece.length;
            slices.push(Slice {
                piece: index,
                partition: &piece.partition,
                guard: piece.guard,
                acks_all: piece.acks_all,
                records,
            });
        }
    }
    slices
}

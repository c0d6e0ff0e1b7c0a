//! Append batching: the records of a round's Produce requests on their way into the logs, one
//! storage call for each log directory, one call of the log for each partition.
//!
//! Records stay in the buffer in which they were received, which goes with the call. A buffer with
//! records for several directories goes to the first of them; for the others they are copied.
//!
//! Compressed records that inflate to much are put off (`APPEND_INFLATED_BYTES`): copied to a batch
//! a connection, which the thread of another queue appends. A piece that was put off has a turn at
//! its partition, and what comes later for that partition is put off behind it.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::limits::{
    APPEND_INFLATED_BYTES, APPEND_INFLATED_BYTES_IF_PUT_OFF, APPEND_WINDOWS_BESIDE,
    INFLATE_WINDOW_BYTES, RECEIVE_BUFFERS_KEPT, STAGED_BYTES_MAX, TURN_WAIT,
};
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
            turn: None,
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
    /// It was put off, and may be appended when it is its turn at the partition.
    turn: Option<u64>,
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
    /// The pieces without a result, to be appended.
    pub put_off: Vec<AppendBatch>,
}

impl AppendBatch {
    /// Its pieces were put off.
    pub fn was_put_off(&self) -> bool {
        self.pieces
            .first()
            .is_some_and(|piece| piece.turn.is_some())
    }

    /// Appends what does not take long, or of what was put off a part, and asks for a flush where
    /// it is due.
    pub fn append(self, now_ms: i64) -> Appended {
        if self.was_put_off() {
            self.append_in_turn(now_ms)
        } else {
            self.append_at_once(now_ms)
        }
    }

    /// Appends the records of one partition by one call. Puts off what inflates to much, and what
    /// is for a partition where something waits that was put off.
    fn append_at_once(mut self, now_ms: i64) -> Appended {
        let one = self.pieces.first().map(|piece| &piece.partition);
        let others_are_put_off = one.is_some_and(|partition| partition.turns_open() > 0);
        let mut inflated_bytes_left = if others_are_put_off {
            APPEND_INFLATED_BYTES_IF_PUT_OFF
        } else {
            APPEND_INFLATED_BYTES
        };
        // Small batches of others do not have to wait where one partition's have taken all of it.
        let mut windows_left = APPEND_WINDOWS_BESIDE;
        let mut put_off = Vec::new();
        let mut results: Vec<Option<Result<AppendInfo>>> = Vec::new();
        results.resize_with(self.pieces.len(), || None);
        let mut slices = slices(&self.pieces, &mut self.buffers);
        // A stable sort keeps the order of the requests.
        slices.sort_by_key(|slice| Arc::as_ptr(slice.partition).addr());
        for group in slices.chunk_by_mut(|one, other| Arc::ptr_eq(one.partition, other.partition)) {
            let Some(partition) = group.first().map(|slice| slice.partition.clone()) else {
                continue;
            };
            if !partition.nobody_waits() {
                let turns = group
                    .iter()
                    .map(|slice| (slice.piece, partition.take_turn()));
                put_off.extend(turns);
                continue;
            }
            if inflated_bytes_left < INFLATE_WINDOW_BYTES && windows_left > 0 {
                windows_left -= 1;
                inflated_bytes_left = INFLATE_WINDOW_BYTES;
            }
            let batches = group.iter_mut().map(Slice::batches);
            let appended = partition.append_within(batches, now_ms, &mut inflated_bytes_left);
            flush(&partition, self.flushes);
            for (slice, result) in group.iter().zip(appended) {
                if let Err(Error::TooCostly) = result {
                    put_off.push((slice.piece, partition.take_turn()));
                } else if let Some(place) = results.get_mut(slice.piece) {
                    *place = Some(result);
                }
            }
        }
        drop(slices);
        let put_off = if put_off.is_empty() {
            Vec::new()
        } else {
            self.put_off(put_off)
        };
        Appended {
            pieces: self.pieces,
            results,
            buffers: self.buffers,
            size_bytes: self.size_bytes,
            put_off,
        }
    }

    /// Copies pieces into a batch for each connection, so that none waits for another one's.
    #[cold]
    fn put_off(&mut self, mut turns: Vec<(usize, u64)>) -> Vec<AppendBatch> {
        turns.sort_unstable();
        let mut batches: Vec<AppendBatch> = Vec::new();
        for (index, turn) in turns {
            let Some(piece) = self.pieces.get(index) else {
                continue;
            };
            let is_its = |batch: &AppendBatch| batch.pieces[0].connection == piece.connection;
            let batch = match batches.iter().position(is_its) {
                Some(at) => &mut batches[at],
                None => {
                    batches.push(AppendBatch {
                        directory: self.directory,
                        buffers: vec![Vec::new()],
                        ..AppendBatch::default()
                    });
                    let last = batches.len() - 1;
                    &mut batches[last]
                }
            };
            let copies = &mut batch.buffers[0];
            let start = copies.len();
            let records = self.buffers.get(piece.buffer);
            let records = records.and_then(|buffer| buffer.get(piece.start..)?.get(..piece.length));
            copies.extend_from_slice(records.unwrap_or_default());
            batch.size_bytes = copies.len();
            batch.pieces.push(Piece {
                partition: piece.partition.clone(),
                buffer: 0,
                start,
                turn: Some(turn),
                ..*piece
            });
        }
        batches
    }

    /// Appends pieces that were put off whose turn it is, until enough was inflated for others to
    /// have theirs.
    fn append_in_turn(mut self, now_ms: i64) -> Appended {
        let mut results: Vec<Option<Result<AppendInfo>>> = Vec::new();
        results.resize_with(self.pieces.len(), || None);
        let mut inflated_bytes_left = usize::MAX;
        let one = self.pieces.first().map(|piece| piece.partition.clone());
        let is_enough = |left: usize| usize::MAX - left >= APPEND_INFLATED_BYTES;
        for mut slice in slices(&self.pieces, &mut self.buffers) {
            let (partition, turn) = (slice.partition, slice.turn.unwrap_or_default());
            if is_enough(inflated_bytes_left) || !partition.is_at(turn) {
                continue;
            }
            let batches = std::iter::once(slice.batches());
            let appended = partition.append_within(batches, now_ms, &mut inflated_bytes_left);
            partition.end_turn(turn);
            flush(partition, self.flushes);
            if let Some(place) = results.get_mut(slice.piece) {
                *place = appended.into_iter().next();
            }
        }
        let pieces = std::mem::take(&mut self.pieces).into_iter().zip(results);
        let (done, left): (Vec<_>, Vec<_>) = pieces.partition(|(_, result)| result.is_some());
        if done.is_empty() {
            // All that wait together sleep so long before the first of them is asked again.
            let turns_open = one.map_or(1, |partition| partition.turns_open()).max(1);
            std::thread::sleep(TURN_WAIT / u32::try_from(turns_open).unwrap_or(u32::MAX));
        }
        let (pieces, results) = done.into_iter().unzip();
        self.pieces = left.into_iter().map(|(piece, _)| piece).collect();
        let mut appended = Appended {
            pieces,
            results,
            buffers: Vec::new(),
            size_bytes: self.size_bytes,
            put_off: Vec::new(),
        };
        if self.pieces.is_empty() {
            appended.buffers = self.buffers;
        } else {
            appended.put_off.push(self);
        }
        appended
    }
}

/// Has the partition's records flushed, here or by the flusher.
fn flush(partition: &Arc<Partition>, is_here: bool) {
    if partition.log.config().acks_fsync {
        if is_here {
            partition.flush()
        } else {
            partition.request_flush()
        }
    }
}

struct Slice<'a> {
    piece: usize,
    partition: &'a Arc<Partition>,
    guard: u64,
    acks_all: bool,
    turn: Option<u64>,
    records: &'a mut [u8],
}

impl Slice<'_> {
    fn batches(&mut self) -> Batches<'_> {
        Batches::OfClient {
            records: self.records,
            guard: self.guard,
            acks_all: self.acks_all,
        }
    }
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
                turn: piece.turn,
                records,
            });
        }
    }
    slices
}

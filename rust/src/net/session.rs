//! One connection without its socket: bytes come in, frames go out to whoever answers them, answers
//! come back in any order and leave in the order of the requests.
//!
//! ```text
//! input ─► frame ─► slot ─► (staged, parked, at Python) ─► answered ─► outbox
//! ```
//!
//! As in Kafka one request at a time is worked on, with one exception: Produce requests may follow
//! each other without waiting for the earlier answers, so that one `fdatasync` serves many. A parked
//! Fetch, or a request that Python has, holds back what follows it.

use std::collections::VecDeque;

use super::outbox::Outbox;
use crate::api::Chunk;
use crate::api::k00_produce::Produce;
use crate::api::k01_fetch::Fetch;
use crate::error::Result;
use crate::limits::{PARKED_SLOTS_MAX, UNSENT_BYTES_MAX};
use crate::wire::frame;
use crate::wire::header::PRODUCE;

/// What a request waits for.
pub enum Slot {
    /// Its records are about to be appended.
    Staged,
    /// The high watermark; after `deadline_ms` the time is over.
    Produce {
        produce: Produce,
        deadline_ms: u64,
    },
    /// Records, or the end of its time.
    Fetch(Fetch),
    /// Python. The frame's content is kept, since Python may hand it back.
    Control(Vec<u8>),
    Answered(Vec<Chunk>),
}

impl Slot {
    fn is_produce(&self) -> bool {
        matches!(self, Slot::Staged | Slot::Produce { .. })
    }
}

#[derive(Default)]
pub struct Session {
    /// Received and not yet worked on: a frame that is cut off, or frames that must wait.
    pub input: Vec<u8>,
    slots: VecDeque<Slot>,
    /// Number of the first slot; slots are numbered in the order of the requests.
    first_slot: u64,
    /// Slots that are not Produce requests.
    others: usize,
    pub outbox: Outbox,
}

impl Session {
    /// Whether a request of this key may be worked on now. If not, it may once an answer has left.
    pub fn may_begin(&self, api_key: i16) -> bool {
        if self.outbox.queued_bytes() > UNSENT_BYTES_MAX {
            return false;
        }
        let follows = api_key == PRODUCE && self.others == 0 && self.slots.len() < PARKED_SLOTS_MAX;
        self.slots.is_empty() || follows
    }

    /// Opens a slot behind the others and gives its number.
    pub fn begin(&mut self, slot: Slot) -> u64 {
        self.others += usize::from(!slot.is_produce());
        self.slots.push_back(slot);
        self.first_slot + self.slots.len() as u64 - 1
    }

    /// The slot of this number, unless it was answered.
    pub fn slot(&mut self, number: u64) -> Option<&mut Slot> {
        let index = usize::try_from(number.checked_sub(self.first_slot)?).ok()?;
        self.slots
            .get_mut(index)
            .filter(|slot| !matches!(slot, Slot::Answered(_)))
    }

    /// Answers a slot; answers that are due leave to the outbox. A slot that is not open (any more)
    /// is left alone.
    pub fn answer(&mut self, number: u64, chunks: Vec<Chunk>) {
        let Some(slot) = self.slot(number) else {
            return;
        };
        let was_produce = slot.is_produce();
        *slot = Slot::Answered(chunks);
        self.others -= usize::from(!was_produce);
        while let Some(Slot::Answered(chunks)) = self.slots.front_mut() {
            for chunk in chunks.drain(..) {
                self.outbox.push(chunk);
            }
            self.slots.pop_front();
            self.first_slot += 1;
        }
    }

    /// Open slots with their numbers, in order.
    pub fn open_slots(&mut self) -> impl Iterator<Item = (u64, &mut Slot)> {
        let first = self.first_slot;
        self.slots
            .iter_mut()
            .enumerate()
            .map(move |(index, slot)| (first + index as u64, slot))
    }

    /// No request is being worked on and nothing is to be sent.
    pub fn is_idle(&self) -> bool {
        self.slots.is_empty() && self.outbox.is_empty()
    }

    /// How much of `input` the next frame needs in all, as far as that is known.
    pub fn wanted_bytes(&self, request_bytes_max: usize) -> Result<usize> {
        Ok(frame::frame_size(&self.input, request_bytes_max)?.unwrap_or(frame::SIZE_BYTES))
    }
}

//! One connection without its socket: frames come in, answers come back in any order and leave in
//! the order of the requests.
//!
//! ```text
//! input ─► frame ─► slot ─► (appended, parked, at Python) ─► answered ─► outbox
//! ```
//!
//! As in Kafka one request at a time is worked on, with one exception: Produce requests may follow
//! each other without waiting for the earlier answers, so that one `fdatasync` serves many. A
//! parked Fetch, a Produce request whose coordinator is asked, or a request that Python has, holds
//! back what follows it. A client that exceeded a quota is answered and then held back for the time
//! that the answer says (KIP-219).

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::access::{Caller, Identity};
use crate::api::Chunk;
use crate::api::k00_produce::Produce;
use crate::api::k01_fetch::Fetch;
use crate::error::Result;
use crate::limits::{MEMORY_FREE_BYTES, PARKED_SLOTS_MAX, UNSENT_BYTES_MAX};
use crate::net::outbox::{Outbox, SpareAnswers};
use crate::wire::frame;
use crate::wire::header::PRODUCE;

/// A request, by what it waits for.
pub enum Slot {
    /// Its records to be appended, `pending` partitions of them, and then the high watermark; after
    /// `deadline_ms` the time is over.
    Produce {
        produce: Produce,
        deadline_ms: u64,
        pending: usize,
    },
    /// Records, or the end of its time.
    Fetch(Box<Fetch>),
    /// The logs are being read for a Fetch. Meanwhile something has come (`again`), or its time
    /// (`must_answer`).
    ReadingLogs {
        again: bool,
        must_answer: bool,
        /// Bytes that the Fetch takes in memory meanwhile.
        memory_bytes: usize,
    },
    /// The logs are being searched, for a request that takes so much memory.
    SearchingLogs {
        memory_bytes: usize,
    },
    /// It is large, and is being read.
    ReadingRequest {
        memory_bytes: usize,
    },
    /// The coordinator of its transaction, by Python; then it is a `Produce`.
    Verifying(Box<Verifying>),
    /// Python. The frame's content, of so many bytes, is kept where Python may hand it back. What
    /// Python itself holds is counted where that is (`HeldMemory`).
    Control {
        content: Vec<u8>,
        memory_bytes: usize,
    },
    Answered(Vec<Chunk>),
}

/// A Produce request whose coordinator is asked.
pub struct Verifying {
    pub produce: Produce,
    /// The frame that the ranges of its records count in.
    pub content: Vec<u8>,
    /// Partitions that are asked for, and their guards.
    pub asked: Vec<(usize, u64)>,
    /// So long is waited for the coordinator.
    pub deadline_ms: u64,
}

impl Verifying {
    fn memory_bytes(&self) -> usize {
        self.content.len() + self.produce.memory_bytes() + size_of_val(&*self.asked)
    }
}

impl Slot {
    fn is_produce(&self) -> bool {
        matches!(self, Slot::Produce { .. })
    }

    /// Bytes that it takes in memory. Records that are to be appended count where they wait.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Slot::Produce { produce, .. } => produce.memory_bytes(),
            Slot::Fetch(fetch) => fetch.memory_bytes(),
            Slot::Verifying(verifying) => verifying.memory_bytes(),
            Slot::ReadingLogs { memory_bytes, .. }
            | Slot::SearchingLogs { memory_bytes }
            | Slot::ReadingRequest { memory_bytes }
            | Slot::Control { memory_bytes, .. } => *memory_bytes,
            Slot::Answered(chunks) => chunks.iter().map(Chunk::memory_bytes).sum(),
        }
    }

    /// Bytes of records in a Produce request.
    pub fn size_bytes(&self) -> usize {
        match self {
            Slot::Produce { produce, .. } => produce.size_bytes(),
            _ => 0,
        }
    }
}

/// Bytes that were received and not yet worked on: `buffer[start..end]`. The rest of the buffer is
/// initialised, so that it need not be cleared to be received into.
#[derive(Default)]
pub struct Input {
    pub buffer: Vec<u8>,
    pub start: usize,
    pub end: usize,
}

impl Input {
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }
}

/// How far a client has come in saying who it is.
enum Login {
    /// It need not: the listener has no authentication.
    Open(Arc<Identity>),
}

pub struct Session {
    login: Login,
    /// Nobody else keeps it: whoever has a `Weak` of it learns that the session has ended.
    life: Arc<()>,
    /// As the last request named it.
    client_id: Option<Arc<str>>,
    pub input: Input,
    slots: VecDeque<Slot>,
    /// Number of the first slot; slots are numbered in the order of the requests.
    first_slot: u64,
    /// Slots that are not answered and not Produce requests.
    others: usize,
    /// Bytes that all slots take in memory: requests that wait, and answers
    /// that wait for earlier ones.
    waiting_bytes: usize,
    muted_until_ms: u64,
    pub outbox: Outbox,
}

impl Session {
    /// The session of a client that may ask at once.
    pub fn open(identity: Identity) -> Session {
        Session {
            login: Login::Open(Arc::new(identity)),
            life: Arc::default(),
            client_id: None,
            input: Input::default(),
            slots: VecDeque::new(),
            first_slot: 0,
            others: 0,
            waiting_bytes: 0,
            muted_until_ms: 0,
            outbox: Outbox::default(),
        }
    }

    /// A request of this key may be worked on now. If not, it may once an answer has left, or
    /// when the client need not wait any more.
    pub fn may_begin(&self, api_key: i16, now_ms: u64) -> bool {
        if self.is_owed_much() || self.is_muted(now_ms) {
            return false;
        }
        let follows = api_key == PRODUCE && self.others == 0 && self.slots.len() < PARKED_SLOTS_MAX;
        self.slots.is_empty() || follows
    }

    /// A frame that arrives may be worked on as soon as it is whole, or once earlier records are
    /// on disk: nothing else holds it back.
    pub fn may_continue(&self, now_ms: u64) -> bool {
        self.others == 0 && !self.is_muted(now_ms) && !self.is_owed_much()
    }

    /// Answers that are not sent, or wait for earlier ones, and requests that wait for theirs, are
    /// so large that nothing is begun beside them.
    fn is_owed_much(&self) -> bool {
        self.outbox.queued_bytes() + self.waiting_bytes > UNSENT_BYTES_MAX
    }

    /// Bytes that requests that wait, and answers that wait for earlier ones, take in memory.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Holds back what follows for so long.
    pub fn mute(&mut self, throttle_ms: u32, now_ms: u64) {
        let until_ms = now_ms + u64::from(throttle_ms);
        self.muted_until_ms = self.muted_until_ms.max(until_ms);
    }

    pub fn is_muted(&self, now_ms: u64) -> bool {
        now_ms < self.muted_until_ms
    }

    pub fn muted_until_ms(&self) -> u64 {
        self.muted_until_ms
    }

    /// Remembers how the client calls itself.
    pub fn name_client(&mut self, client_id: Option<&str>) {
        if self.client_id.as_deref() != client_id {
            self.client_id = client_id.map(Into::into);
        }
    }

    /// Each request names the client again: a long name takes no memory while none is worked on.
    pub fn forget_long_name(&mut self) {
        if self.slots.is_empty() && self.client_id_bytes() > MEMORY_FREE_BYTES {
            self.client_id = None;
        }
    }

    /// How the client calls itself.
    pub fn client_id(&self) -> Option<Arc<str>> {
        self.client_id.clone()
    }

    /// Bytes that the client's name takes.
    pub fn client_id_bytes(&self) -> usize {
        self.client_id.as_deref().map_or(0, str::len)
    }

    /// The client's identity.
    pub fn identity(&self) -> &Arc<Identity> {
        let Login::Open(identity) = &self.login;
        identity
    }

    /// Is gone once the session is.
    pub fn life(&self) -> Weak<()> {
        Arc::downgrade(&self.life)
    }

    pub fn caller(&self, listener: usize) -> Caller<'_> {
        Caller {
            identity: self.identity(),
            client_id: self.client_id.as_deref(),
            listener,
        }
    }

    /// Opens a slot behind the others and gives its number.
    pub fn begin(&mut self, slot: Slot) -> u64 {
        self.others += usize::from(!slot.is_produce());
        self.waiting_bytes += slot.memory_bytes();
        self.slots.push_back(slot);
        self.first_slot + self.slots.len() as u64 - 1
    }

    /// Has a request wait for something else; opens a slot where there is no number.
    pub fn place(&mut self, number: Option<u64>, slot: Slot) -> u64 {
        let Some(number) = number else {
            return self.begin(slot);
        };
        self.replace(number, slot);
        number
    }

    /// Has a request wait for something else. A slot that is not open is left alone.
    pub fn replace(&mut self, number: u64, slot: Slot) {
        self.take(number, slot);
    }

    /// As `replace`, and gives what it has waited for until now.
    pub fn take(&mut self, number: u64, slot: Slot) -> Option<Slot> {
        let (is_other, memory_bytes) = (!slot.is_produce(), slot.memory_bytes());
        let place = self.slot(number)?;
        let before = std::mem::replace(place, slot);
        self.others += usize::from(is_other);
        self.others -= usize::from(!before.is_produce());
        self.waiting_bytes += memory_bytes;
        self.waiting_bytes -= before.memory_bytes();
        Some(before)
    }

    /// The number of the slot that is opened next.
    pub fn next_slot(&self) -> u64 {
        self.first_slot + self.slots.len() as u64
    }

    /// The number of the request that is to be answered next, come or not.
    pub fn oldest_slot(&self) -> u64 {
        self.first_slot
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
        let before_bytes = slot.memory_bytes();
        *slot = Slot::Answered(chunks);
        self.waiting_bytes += slot.memory_bytes();
        self.waiting_bytes -= before_bytes;
        self.others -= usize::from(!was_produce);
        self.leave();
    }

    /// Answers a Produce request by what `write` puts behind the bytes it is given, in the outbox
    /// itself if it is this one's turn. Gives the request back; `None` if no such slot is open.
    pub fn answer_produce(
        &mut self,
        number: u64,
        spare: &mut SpareAnswers,
        write: impl FnOnce(&Produce, &mut Vec<u8>),
    ) -> Option<Produce> {
        if number != self.first_slot {
            return self.answer_produce_later(number, write);
        }
        if !self.slots.front().is_some_and(Slot::is_produce) {
            return None;
        }
        let Slot::Produce { produce, .. } = self.slots.pop_front()? else {
            return None;
        };
        self.first_slot += 1;
        self.waiting_bytes -= produce.memory_bytes();
        self.outbox.write(spare, |bytes| write(&produce, bytes));
        self.leave();
        Some(produce)
    }

    /// Answers it where an earlier request is not answered yet.
    fn answer_produce_later(
        &mut self,
        number: u64,
        write: impl FnOnce(&Produce, &mut Vec<u8>),
    ) -> Option<Produce> {
        let slot = self.slot(number).filter(|slot| slot.is_produce())?;
        let answered = Slot::Answered(Vec::new());
        let Slot::Produce { produce, .. } = std::mem::replace(slot, answered) else {
            return None;
        };
        let mut bytes = Vec::new();
        write(&produce, &mut bytes);
        let answer_bytes = bytes.len();
        *slot = Slot::Answered(vec![Chunk::Bytes(bytes)]);
        self.waiting_bytes += answer_bytes;
        self.waiting_bytes -= produce.memory_bytes();
        Some(produce)
    }

    /// Answers that are due go to the outbox.
    fn leave(&mut self) {
        while let Some(Slot::Answered(chunks)) = self.slots.front_mut() {
            for chunk in chunks.drain(..) {
                self.waiting_bytes -= chunk.memory_bytes();
                self.outbox.push(chunk);
            }
            self.slots.pop_front();
            self.first_slot += 1;
        }
        let is_counted_out = self.others == 0 && self.waiting_bytes == 0;
        assert!(is_counted_out || !self.slots.is_empty(), "slots miscounted");
    }

    /// Open slots with their numbers, in order.
    pub fn open_slots(&mut self) -> impl Iterator<Item = (u64, &mut Slot)> {
        let first = self.first_slot;
        self.slots
            .iter_mut()
            .enumerate()
            .map(move |(index, slot)| (first + index as u64, slot))
            .filter(|(_, slot)| !matches!(slot, Slot::Answered(_)))
    }

    /// Requests that are being worked on.
    pub fn has_open_slots(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Records of a Produce request are on their way into a log.
    pub fn is_appending(&self) -> bool {
        let is_appending =
            |slot: &Slot| matches!(slot, Slot::Produce { pending, .. } if *pending > 0);
        self.slots.iter().any(is_appending)
    }

    /// How much of `input` the next frame needs in all, as far as that is known.
    pub fn wanted_bytes(&self, request_bytes_max: usize) -> Result<usize> {
        let size = frame::frame_size(self.input.bytes(), request_bytes_max)?;
        Ok(size.unwrap_or(frame::SIZE_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::wire::header::{FETCH, METADATA};

    fn new_session() -> Session {
        Session::open(Identity::anonymous(IpAddr::V4(Ipv4Addr::LOCALHOST)))
    }

    fn control() -> Slot {
        Slot::Control {
            content: Vec::new(),
            memory_bytes: 0,
        }
    }

    fn produce() -> Slot {
        Slot::Produce {
            produce: Produce::of_nothing(),
            deadline_ms: 0,
            pending: 0,
        }
    }

    fn answer(byte: u8) -> Vec<Chunk> {
        vec![Chunk::Bytes(vec![byte])]
    }

    fn sent(session: &Session) -> Vec<u8> {
        session.outbox.bytes()
    }

    #[test]
    fn answers_leave_in_the_order_of_the_requests() {
        let mut session = new_session();
        let slots: Vec<u64> = (0..4).map(|_| session.begin(produce())).collect();
        session.answer(slots[2], answer(2));
        session.answer(slots[1], answer(1));
        assert!(sent(&session).is_empty());
        session.answer(slots[0], answer(0));
        assert_eq!(sent(&session), [0, 1, 2]);
        session.answer(slots[3], answer(3));
        assert_eq!(sent(&session), [0, 1, 2, 3]);
        assert!(!session.has_open_slots());
    }

    #[test]
    fn produce_requests_answered_in_place_keep_the_order_too() {
        let mut session = new_session();
        let mut spare = SpareAnswers::default();
        let slots: Vec<u64> = (0..4).map(|_| session.begin(produce())).collect();
        assert_eq!(session.next_slot(), slots[3] + 1);
        for (slot, left) in [(2, &[][..]), (0, &[0]), (1, &[0, 1, 2]), (3, &[0, 1, 2, 3])] {
            let write = |_: &Produce, bytes: &mut Vec<u8>| bytes.push(slot);
            let number = slots[usize::from(slot)];
            let given = session.answer_produce(number, &mut spare, write);
            assert!(given.is_some());
            assert_eq!(sent(&session), left);
            let again = session.answer_produce(number, &mut spare, write);
            assert!(again.is_none());
        }
        let other = session.begin(control());
        let refused = session.answer_produce(other, &mut spare, |_, bytes| bytes.push(9));
        assert!(refused.is_none() && session.has_open_slots());
        assert_eq!(sent(&session), [0, 1, 2, 3]);
    }

    #[test]
    fn a_second_answer_and_one_to_no_request_are_left_alone() {
        let mut session = new_session();
        let (first, second) = (session.begin(produce()), session.begin(produce()));
        session.answer(second, answer(2));
        session.answer(second, answer(9));
        session.answer(77, answer(9));
        session.answer(first, answer(1));
        session.answer(first, answer(9));
        assert_eq!(sent(&session), [1, 2]);
    }

    #[test]
    fn a_long_name_is_kept_as_long_as_a_request_of_it_is_worked_on() {
        let mut session = new_session();
        let slot = session.begin(produce());
        session.name_client(Some(&"x".repeat(MEMORY_FREE_BYTES + 1)));
        session.forget_long_name();
        assert_eq!(session.client_id_bytes(), MEMORY_FREE_BYTES + 1);
        session.answer(slot, answer(1));
        session.forget_long_name();
        assert_eq!(session.client_id(), None);
        session.name_client(Some("short"));
        session.forget_long_name();
        assert_eq!(session.client_id().as_deref(), Some("short"));
    }

    #[test]
    fn produce_requests_follow_each_other_and_nothing_else_does() {
        let mut session = new_session();
        assert!(session.may_begin(METADATA, 0));
        let first = session.begin(produce());
        assert!(session.may_begin(PRODUCE, 0) && !session.may_begin(FETCH, 0));
        session.answer(first, answer(1));
        let other = session.begin(control());
        assert!(!session.may_begin(PRODUCE, 0) && !session.may_begin(METADATA, 0));
        session.answer(other, answer(2));
        assert!(session.may_begin(FETCH, 0));
    }

    #[test]
    fn requests_that_wait_are_bounded_and_so_are_answers_that_nobody_reads() {
        let mut session = new_session();
        for _ in 0..PARKED_SLOTS_MAX {
            assert!(session.may_begin(PRODUCE, 0));
            session.begin(produce());
        }
        assert!(!session.may_begin(PRODUCE, 0));
        let mut session = new_session();
        let slot = session.begin(control());
        session.answer(slot, vec![Chunk::Bytes(vec![0; UNSENT_BYTES_MAX + 1])]);
        assert!(!session.may_begin(METADATA, 0));
    }

    #[test]
    fn answers_that_wait_for_an_earlier_one_are_bounded_and_what_waits_is_counted() {
        let mut session = new_session();
        let mut spare = SpareAnswers::default();
        let slots: Vec<u64> = (0..3).map(|_| session.begin(produce())).collect();
        let requests_bytes = session.waiting_bytes();
        let large = |_: &Produce, bytes: &mut Vec<u8>| bytes.resize(UNSENT_BYTES_MAX / 2 + 1, 0);
        session.answer_produce(slots[1], &mut spare, large);
        assert!(session.waiting_bytes() > requests_bytes + UNSENT_BYTES_MAX / 2);
        assert!(session.may_begin(PRODUCE, 0));
        session.answer(slots[2], vec![Chunk::Bytes(vec![0; UNSENT_BYTES_MAX / 2])]);
        assert!(!session.may_begin(PRODUCE, 0) && !session.may_continue(0));
        session.answer(slots[0], answer(0));
        assert_eq!(session.waiting_bytes(), 0);
        let looking = Slot::ReadingLogs {
            again: false,
            must_answer: false,
            memory_bytes: 100,
        };
        let slot = session.begin(looking);
        assert_eq!(session.waiting_bytes(), 100);
        session.answer(slot, answer(1));
        assert_eq!(session.waiting_bytes(), 0);
    }

    #[test]
    fn a_frame_that_python_may_hand_back_is_counted_until_it_is_answered() {
        let mut session = new_session();
        let slot = session.begin(Slot::Control {
            content: vec![0; 100],
            memory_bytes: 100,
        });
        assert_eq!(session.waiting_bytes(), 100);
        if let Some(Slot::Control { content, .. }) = session.slot(slot) {
            content.clear();
        }
        session.answer(slot, answer(1));
        assert_eq!(session.waiting_bytes(), 0);
    }

    #[test]
    fn a_client_over_its_quota_is_held_back_for_the_time() {
        let mut session = new_session();
        session.mute(100, 1_000);
        session.mute(50, 1_000);
        assert!(!session.may_begin(PRODUCE, 1_099));
        assert!(session.may_begin(PRODUCE, 1_100));
    }

    #[test]
    fn a_frame_that_is_cut_off_wants_its_size_and_then_all_of_it() {
        let mut session = new_session();
        let feed = |session: &mut Session, bytes: &[u8]| {
            session.input.buffer.extend_from_slice(bytes);
            session.input.end = session.input.buffer.len();
        };
        feed(&mut session, &[0, 0]);
        assert_eq!(session.wanted_bytes(1000).ok(), Some(4));
        feed(&mut session, &[0, 100, 1, 2, 3]);
        assert_eq!(session.wanted_bytes(1000).ok(), Some(104));
        assert!(session.wanted_bytes(99).is_err());
    }
}

//! One request: to the code that answers its key, here or in Python.

use std::ops::Range;
use std::sync::Arc;

use crate::api::k00_produce::{self, Outcome, Produce};
use crate::api::k01_fetch::Fetch;
use crate::api::k02_list_offsets::ListOffsets;
use crate::api::{
    self, ApiKey, Chunk, HOT_KEYS, k01_fetch, k02_list_offsets, k03_metadata, k18_api_versions,
};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::limits::{
    BYTES_PER_WORK, CONTROL_ANSWER_BYTES_MAX, CONTROL_BODY_COPIES, CONTROL_LIST_COPIES,
    CONTROL_REQUEST_BYTES, LARGE_REQUEST_BYTES, MEMORY_FREE_BYTES, PARTITIONS_PER_WORK,
    WORK_OF_OTHERS, WORK_OF_PRODUCE, WORK_PER_TURN,
};
use crate::net::control::queue::ControlFrame;
use crate::net::disconnect::DisconnectReason;
use crate::net::memory::HeldMemory;
use crate::net::reactor::Reactor;
use crate::net::reactor::state::pending_calls::PendingCalls;
use crate::net::reactor::state::timers::Timer;
use crate::net::request_context::read_header;
use crate::net::session::Slot;
use crate::net::shared::Shared;
use crate::net::storage_call::StorageCall;
use crate::net::storage_call::append_batch::Source;
use crate::net::storage_call::large_request::is_large;
use crate::net::storage_io::StorageIo;
use crate::wire::header::{API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, OFFSET_FETCH, PRODUCE};
use crate::wire::{Reader, RequestHeader};

/// Keys of Python's that tell of much, however small the request: DescribeGroups, ListGroups,
/// DescribeConfigs, DescribeLogDirs, DescribeProducers, DescribeTransactions, ListTransactions,
/// ListConfigResources, DescribeTopicPartitions.
pub(super) const LONG_ANSWERS: [i16; 9] = [15, 16, 32, 35, 61, 65, 66, 74, 75];

impl Reactor {
    /// Works on the frame whose content is `bytes[content]`. False: not begun, since an earlier
    /// answer must leave first, it is the next connection's turn, or memory is short. An error
    /// ends the connection, as in Kafka: a request that cannot be read, an unknown key, a
    /// version that is not spoken.
    pub(super) fn dispatch(
        &mut self,
        index: usize,
        bytes: &[u8],
        content: Range<usize>,
        image: &Image,
        shared: &Arc<Shared>,
    ) -> std::result::Result<bool, DisconnectReason> {
        let base = content.start;
        let frame = bytes.get(content).unwrap_or_default();
        if is_large(frame, &shared.context.keys) {
            let is_hot = |key: &ApiKey| frame.starts_with(&key.key.to_be_bytes());
            if !HOT_KEYS.iter().any(is_hot) && self.hold_for_python(index) {
                return Ok(false);
            }
            return Ok(self.set_aside(index, base..base + frame.len()));
        }
        let mut reader = Reader::new(frame);
        let header = read_header(&mut reader, &shared.context.keys)?;
        let ahead_bytes = |shared: &Shared| match header.api_key {
            FETCH => {
                let sessions = &shared.context.fetch_sessions;
                let records_bytes_max = shared.copied_bytes_max();
                k01_fetch::memory_bytes_ahead(&header, reader.clone(), sessions, records_bytes_max)
            }
            LIST_OFFSETS => Ok(k02_list_offsets::memory_bytes_ahead(reader.remaining())),
            METADATA => k03_metadata::memory_bytes_ahead(&header, reader.clone(), image),
            key => Ok(answer_bytes_ahead(key, reader.remaining())),
        };
        if !self.try_begin(index, header.api_key, frame.len(), ahead_bytes)? {
            return Ok(false);
        }
        let Some(connection) = self.connections.get(index) else {
            return Ok(true);
        };
        connection.session.name_client(header.client_id);
        let answer = match header.api_key {
            PRODUCE => return self.produce(index, &header, &mut reader, bytes, base, image),
            FETCH => {
                self.fetch(index, &header, &mut reader, image, shared)?;
                return Ok(true);
            }
            LIST_OFFSETS => match self.list_offsets(index, &header, &mut reader, image)? {
                Some(answer) => {
                    self.answer_at_once(index, header.api_key, answer)?;
                    return Ok(true);
                }
                None => return Ok(true),
            },
            METADATA => {
                let creates = shared.context.settings.auto_create_topics;
                let ask = connection.ask(image);
                if creates && k03_metadata::missing_topics(&header, reader.clone(), &ask)? {
                    let kept = frame.to_vec();
                    return Ok(self.hand_over(index, &header, &reader, frame, kept));
                }
                k03_metadata::answer(&header, reader, &ask, creates)?
            }
            API_VERSIONS => k18_api_versions::answer(
                &header,
                &mut reader,
                shared.context.keys.all(),
                &image.features,
            )?,
            _ => return Ok(self.hand_over(index, &header, &reader, frame, Vec::new())),
        };
        self.answer_at_once(index, header.api_key, vec![Chunk::Bytes(answer)])?;
        Ok(true)
    }

    /// Begins the request's share of the round, if it may begin now: no earlier answer must leave
    /// first, there is memory for it, and the connection has not had its share. False: it waits.
    /// `ahead_bytes` is what it may take in memory while it waits.
    pub(super) fn try_begin(
        &mut self,
        index: usize,
        api_key: i16,
        frame_bytes: usize,
        ahead_bytes: impl FnOnce(&Shared) -> Result<usize>,
    ) -> Result<bool> {
        let token = self.connections.token_of(index);
        let (now_ms, round) = (self.now_ms, self.round);
        let connection = self.connections.get(index);
        if !connection.is_some_and(|connection| connection.session.may_begin(api_key, now_ms))
            || self.hold_for_memory(index, api_key, ahead_bytes)?
        {
            return Ok(false);
        }
        let Some(connection) = self.connections.get(index) else {
            return Ok(false);
        };
        if connection.round != round {
            (connection.round, connection.work_in_round) = (round, 0);
        }
        if connection.work_in_round >= WORK_PER_TURN {
            self.queue.yield_round(token);
            return Ok(false);
        }
        connection.work_in_round += match api_key {
            PRODUCE => WORK_OF_PRODUCE,
            // As many names as it has room for; of a Produce request they are
            // counted when it is read.
            _ => WORK_OF_OTHERS + (frame_bytes.min(LARGE_REQUEST_BYTES) / BYTES_PER_WORK) as u32,
        };
        Ok(true)
    }

    /// An answer that waits for nothing.
    fn answer_at_once(&mut self, index: usize, api_key: i16, mut answer: Vec<Chunk>) -> Result<()> {
        let token = self.connections.token_of(index);
        api::finish(&mut answer, self.shared.context.settings.answer_bytes_max)?;
        let Some(connection) = self.connections.get(index) else {
            return Ok(());
        };
        let session = &mut connection.session;
        let caller = session.caller(connection.listener);
        let quotas = &self.image.permits.quotas;
        let throttle_ms = quotas.requested(&caller, api_key, self.now_ms);
        for chunk in answer {
            session.outbox.push(chunk);
        }
        self.hold_back(token, throttle_ms);
        self.touch(token);
        Ok(())
    }

    /// Begins a Produce request in the frame whose content begins at
    /// `bytes[base]`. False: not begun.
    fn produce(
        &mut self,
        index: usize,
        header: &RequestHeader<'_>,
        reader: &mut Reader<'_>,
        bytes: &[u8],
        base: usize,
        image: &Image,
    ) -> std::result::Result<bool, DisconnectReason> {
        let token = self.connections.token_of(index);
        let frame_bytes = reader.position() + reader.remaining();
        let Some(connection) = self.connections.get(index) else {
            return Ok(true);
        };
        let ask = connection.ask(image);
        let produce = k00_produce::read(header, reader, &ask, &mut self.spare_requests, None)?;
        connection.work_in_round += produce.partitions.len() as u32 / PARTITIONS_PER_WORK;
        if self.waits_for_directory(&produce) {
            self.spare_requests.put(produce);
            self.queue.wait_for_others(token);
            return Ok(false);
        }
        let content = bytes.get(base..).unwrap_or_default();
        if let Some(verification) = produce.begin_verification(content) {
            if self.hold_for_python(index) {
                produce.forget_verification(&verification.asked);
                self.spare_requests.put(produce);
                return Ok(false);
            }
            let content = content.get(..frame_bytes).unwrap_or_default().to_vec();
            self.verify(index, produce, content, verification, None);
            return Ok(true);
        }
        self.begin_produce(index, produce, bytes, base, None)?;
        Ok(true)
    }

    fn fetch(
        &mut self,
        index: usize,
        header: &RequestHeader<'_>,
        reader: &mut Reader<'_>,
        image: &Image,
        shared: &Arc<Shared>,
    ) -> Result<()> {
        let now_ms = self.now_ms;
        let Some(connection) = self.connections.get(index) else {
            return Ok(());
        };
        let fetch = k01_fetch::read(
            header,
            reader,
            &connection.ask(image),
            &shared.context.fetch_sessions,
            shared.context.settings.fetch_bytes_max,
            now_ms,
        )?;
        self.begin_fetch(index, Box::new(fetch), None)
    }

    /// A Fetch that has been read; one that was large has its slot already.
    pub(super) fn begin_fetch(
        &mut self,
        index: usize,
        fetch: Box<Fetch>,
        at: Option<u64>,
    ) -> Result<()> {
        let token = self.connections.token_of(index);
        let (now_ms, shared) = (self.now_ms, self.shared.clone());
        let Some(connection) = self.connections.get(index) else {
            return Ok(());
        };
        let exceeds_memory = connection.memory.exceeds;
        // Others wait for it.
        let must_answer =
            fetch.max_wait_ms == 0 || exceeds_memory || connection.memory.answer_exceeds();
        let session = &mut connection.session;
        let deadline_ms = now_ms + fetch.max_wait_ms as u64;
        if exceeds_memory && !shared.storage.are_open() {
            // It might hold its memory for as long as a log directory does not answer.
            let mut chunks = fetch.throttled_answer(0);
            api::finish(&mut chunks, shared.context.settings.answer_bytes_max)?;
            let slot = session.place(at, Slot::Fetch(fetch));
            session.answer(slot, chunks);
            self.touch(token);
            return Ok(());
        }
        let slot = session.place(at, Slot::Fetch(fetch));
        if session.waiting_bytes() > MEMORY_FREE_BYTES {
            self.account_owed(index);
        }
        if !must_answer {
            self.set_timer(deadline_ms, token, Timer::Fetch(slot));
        }
        self.read_logs(token, slot, must_answer);
        Ok(())
    }

    /// The answer, unless logs are to be searched for it.
    fn list_offsets(
        &mut self,
        index: usize,
        header: &RequestHeader<'_>,
        reader: &mut Reader<'_>,
        image: &Image,
    ) -> Result<Option<Vec<Chunk>>> {
        let Some(connection) = self.connections.get(index) else {
            return Ok(None);
        };
        let ask = connection.ask(image);
        let mut request = k02_list_offsets::read(header, reader, &ask, None)?;
        if request.next_directory().is_none() {
            request.search(|_| false);
            return Ok(Some(request.answer()));
        }
        self.begin_search(index, Box::new(request), None);
        Ok(None)
    }

    /// A ListOffsets that has been read, for which logs are to be searched; one that was
    /// large has its slot already.
    pub(super) fn begin_search(
        &mut self,
        index: usize,
        request: Box<ListOffsets>,
        at: Option<u64>,
    ) {
        let token = self.connections.token_of(index);
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        let memory_bytes = request.memory_bytes();
        let slot = connection
            .session
            .place(at, Slot::SearchingLogs { memory_bytes });
        if memory_bytes > MEMORY_FREE_BYTES {
            self.account_owed(index);
        }
        self.calls.push(StorageCall::ListOffsets {
            parked: self.parked(token, slot),
            request,
        });
    }

    /// Stages the records of a Produce request, whose content begins at `base`; one that was
    /// large has its slot already.
    pub(super) fn begin_produce(
        &mut self,
        index: usize,
        produce: Produce,
        bytes: &[u8],
        base: usize,
        at: Option<u64>,
    ) -> std::result::Result<(), DisconnectReason> {
        let token = self.connections.token_of(index);
        let now_ms = self.now_ms;
        let Some(connection) = self.connections.get(index) else {
            return Ok(());
        };
        let is_silent = produce.acks == 0;
        let refusal = if is_silent { produce.refusal() } else { None };
        let deadline_ms = now_ms + produce.wait_ms();
        let slot = at.unwrap_or_else(|| connection.session.next_slot());
        let slot = (!is_silent).then_some(slot);
        let pending = stage(
            &mut self.calls,
            &self.shared.storage,
            &produce,
            token,
            slot,
            bytes,
            base,
        );
        if is_silent {
            self.spare_requests.put(produce);
            if let Some(large) = at {
                connection.session.answer(large, Vec::new());
                self.touch(token);
            }
        } else {
            let state = Slot::Produce {
                produce,
                deadline_ms,
                pending,
            };
            connection.session.place(at, state);
            if connection.session.waiting_bytes() > MEMORY_FREE_BYTES {
                self.account_owed(index);
            }
        }
        if slot.is_some() && pending > 0 {
            self.set_late_timer(token, deadline_ms);
        }
        if let Some(error) = refusal {
            return Err(DisconnectReason::Unheard(error));
        }
        if let (Some(slot), 0) = (slot, pending) {
            self.try_complete_produce(token, slot);
        }
        Ok(())
    }

    /// Gives a request to Python, which may give it back if `kept` holds the frame's content.
    /// False: not begun, since it would wait in memory.
    fn hand_over(
        &mut self,
        index: usize,
        header: &RequestHeader<'_>,
        reader: &Reader<'_>,
        frame: &[u8],
        kept: Vec<u8>,
    ) -> bool {
        if self.hold_for_python(index) {
            return false;
        }
        let body = frame.get(reader.position()..).unwrap_or_default().to_vec();
        self.give_to_python(index, header, body, kept, None);
        true
    }

    /// Puts a request on Python's queue; one that was large has its slot already.
    pub(super) fn give_to_python(
        &mut self,
        index: usize,
        header: &RequestHeader<'_>,
        body: Vec<u8>,
        kept: Vec<u8>,
        at: Option<u64>,
    ) {
        let token = self.connections.token_of(index);
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        let control = Slot::Control {
            memory_bytes: kept.len(),
            content: kept,
        };
        let slot = connection.session.place(at, control);
        let (listener, peer) = (connection.listener, connection.peer);
        let identity = connection.session.identity().clone();
        let session = connection.session.life();
        let client_id = connection.session.client_id();
        if connection.session.waiting_bytes() > MEMORY_FREE_BYTES {
            self.account_owed(index);
        }
        let name_bytes = client_id.as_deref().map_or(0, str::len);
        let copies = match header.api_key {
            OFFSET_FETCH => CONTROL_LIST_COPIES,
            _ => CONTROL_BODY_COPIES,
        };
        let memory_bytes = CONTROL_REQUEST_BYTES + name_bytes + copies * body.len();
        let parked = self.parked(token, slot);
        self.shared.control().put(ControlFrame {
            parked,
            api_key: header.api_key,
            api_version: header.api_version,
            correlation_id: header.correlation_id,
            client_id,
            listener,
            listener_name: self.shared.listener_name(listener),
            identity,
            peer,
            session,
            is_internal: false,
            body,
            memory: HeldMemory::new(&self.shared.memory, memory_bytes),
        });
    }

    /// The answer to a Metadata request whose topics Python has made since; `None`: it is large.
    pub(super) fn answer_again(&mut self, index: usize, slot: u64) -> Result<Option<Vec<u8>>> {
        let image = self.shared.image();
        let gone = || Error::InvalidArgument("no request to be answered again".to_owned());
        let connection = self.connections.get(index).ok_or_else(gone)?;
        let content = match connection.session.slot(slot) {
            Some(Slot::Control { content, .. }) => std::mem::take(content),
            _ => return Err(gone()),
        };
        if content.len() > LARGE_REQUEST_BYTES {
            self.read_again(index, slot, content);
            return Ok(None);
        }
        let mut reader = Reader::new(&content);
        let header = RequestHeader::read(&mut reader, |_| Some(k03_metadata::KEY.first_flexible))?;
        let creates = self.shared.context.settings.auto_create_topics;
        k03_metadata::answer(&header, reader, &connection.ask(&image), creates).map(Some)
    }
}

/// Bytes that Python's answer to a body of so many may take, where it may be much more than that.
fn answer_bytes_ahead(api_key: i16, body_bytes: usize) -> usize {
    match api_key {
        OFFSET_FETCH => CONTROL_LIST_COPIES * body_bytes,
        _ if LONG_ANSWERS.contains(&api_key) => CONTROL_ANSWER_BYTES_MAX,
        _ => 0,
    }
}

/// Stages the records of a request for appending, whose content begins at `base`.
/// Returns of how many partitions.
fn stage(
    calls: &mut PendingCalls,
    storage: &StorageIo,
    produce: &Produce,
    connection: u64,
    slot: Option<u64>,
    bytes: &[u8],
    base: usize,
) -> usize {
    let mut staged = 0;
    for (number, each) in produce.partitions.iter().enumerate() {
        let Outcome::Accepted(partition, _) = &each.outcome else {
            continue;
        };
        staged += 1;
        let source = Source {
            connection,
            slot,
            at: number,
            directory: storage.number_of(partition.directory()),
            partition: partition.clone(),
            guard: each.guard,
            acks_all: produce.acks == -1,
        };
        // The ranges count from the start of the content, as the reader did.
        let records = &each.records;
        calls.stage(source, bytes, base + records.start, records.len());
    }
    staged
}

//! Requests that wait, and what becomes of them: woken, over their time, or with what a storage
//! call or Python gave for them.

use crate::api::k00_produce::Produce;
use crate::api::k01_fetch::{Fetch, FetchRead};
use crate::api::{self, Chunk};
use crate::codes;
use crate::error::{Error, Result};
use crate::net::control::queue::ControlAnswer;
use crate::net::disconnect::DisconnectReason;
use crate::net::memory::HeldMemory;
use crate::net::memory::connection::counted;
use crate::net::reactor::Reactor;
use crate::net::reactor::lifecycle::deregister;
use crate::net::reactor::state::timers::Timer;
use crate::net::session::Slot;
use crate::net::storage_call::append_batch::Appended;
use crate::net::storage_call::{CallResult, FetchCall, StorageCall, deregister_fetch};
use crate::replica::park::{Parked, WaitFor};
use crate::wire::frame;
use crate::wire::header::{FETCH, PRODUCE};

impl Reactor {
    pub(super) fn slot(&mut self, token: u64, slot: u64) -> Option<&mut Slot> {
        self.connections.by_token(token)?.session.slot(slot)
    }

    /// Something that a parked request waits for may have come.
    pub(super) fn wake(&mut self, token: u64, slot: u64) {
        match self.slot(token, slot) {
            Some(Slot::Fetch(_)) => self.read_logs(token, slot, false),
            Some(Slot::ReadingLogs { again, .. }) => *again = true,
            Some(Slot::Produce { .. }) => self.try_complete_produce(token, slot),
            _ => {}
        }
    }

    /// Answers the waiting Fetches of a connection with what there is.
    pub(super) fn end_waits(&mut self, index: usize) {
        let token = self.connections.token_of(index);
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        let open = connection.session.open_slots().map(|(slot, _)| slot);
        for slot in open.collect::<Vec<u64>>() {
            self.end_wait(token, slot);
        }
    }

    /// Answers a waiting Fetch with what there is.
    pub(super) fn end_wait(&mut self, token: u64, slot: u64) {
        match self.slot(token, slot) {
            Some(Slot::Fetch(_)) => self.read_logs(token, slot, true),
            Some(Slot::ReadingLogs { must_answer, .. }) => *must_answer = true,
            _ => {}
        }
    }

    /// Has the logs looked at for a Fetch. `must_answer`: it is answered with what there is.
    pub(super) fn read_logs(&mut self, token: u64, slot: u64, must_answer: bool) {
        let (parked, now_ms) = (self.parked(token, slot), self.now_ms);
        let waits_for_nothing = self.stop_deadline_ms.is_some()
            || self
                .connections
                .by_token(token)
                .is_some_and(|connection| connection.peer_has_closed);
        let must_answer = must_answer || waits_for_nothing;
        if let Some(state @ Slot::Fetch(_)) = self.slot(token, slot) {
            let looking = Slot::ReadingLogs {
                again: false,
                must_answer,
                memory_bytes: state.memory_bytes(),
            };
            let Slot::Fetch(mut fetch) = std::mem::replace(state, looking) else {
                return;
            };
            fetch.note_time(now_ms);
            let call = FetchCall::new(parked, fetch, must_answer);
            self.calls.push(StorageCall::Fetch(call));
        }
    }

    /// Answers a Produce request if it is through; else it waits for its high watermarks.
    pub(super) fn try_complete_produce(&mut self, token: u64, slot: u64) {
        let parked = self.parked(token, slot);
        if let Some(Slot::Produce {
            produce, pending, ..
        }) = self.slot(token, slot)
            && *pending == 0
            && is_committed(produce, parked)
        {
            self.answer_produce(token, slot);
        }
    }

    /// Answers a Produce request with what has become of it so far.
    pub(super) fn answer_produce(&mut self, token: u64, slot: u64) {
        let parked = self.parked(token, slot);
        let (image, shared, now_ms) = (&self.image, &self.shared, self.now_ms);
        let Some(connection) = self.connections.by_token(token) else {
            return;
        };
        let listener = connection.listener;
        let session = &mut connection.session;
        let size_bytes = match session.slot(slot) {
            Some(state @ Slot::Produce { .. }) => {
                deregister(state, parked);
                state.size_bytes()
            }
            _ => return,
        };
        let (caller, quotas) = (session.caller(listener), &image.permits.quotas);
        let throttle_ms = quotas
            .produced(&caller, size_bytes, now_ms)
            .max(quotas.requested(&caller, PRODUCE, now_ms));
        if let Some(Slot::Produce { produce, .. }) = session.slot(slot)
            && produce.has_rest()
        {
            let chunks = produce.large_answer(throttle_ms, image, listener);
            self.answer(parked, chunks);
            return self.hold_back(token, throttle_ms);
        }
        let mut finished = Ok(());
        let write = |produce: &Produce, bytes: &mut Vec<u8>| {
            let start = bytes.len();
            produce.answer(bytes, throttle_ms, image, listener);
            let answer = bytes.get_mut(start..).unwrap_or_default();
            finished = frame::finish(answer, 0, shared.context.settings.answer_bytes_max);
        };
        let answered = session.answer_produce(slot, &mut self.spare_answers, write);
        if let Some(produce) = answered {
            self.spare_requests.put(produce);
        }
        if let Err(error) = finished
            && let Some(index) = self.connections.place_of(token)
        {
            // What cannot be sent is in the outbox.
            self.log_disconnect(index, &DisconnectReason::Refused(error));
            return self.close(index);
        }
        self.hold_back(token, throttle_ms);
        self.touch(token);
    }

    /// The connection is to be sent to and gone on with, once however many of
    /// its requests are answered.
    pub(super) fn touch(&mut self, token: u64) {
        if let Some(connection) = self.connections.by_token(token)
            && !std::mem::replace(&mut connection.is_touched, true)
        {
            self.queue.touch(token);
        }
    }

    pub(super) fn set_timer(&mut self, deadline_ms: u64, token: u64, timer: Timer) {
        self.timers
            .set(deadline_ms, token, timer, &mut self.connections);
    }

    /// Answers Produce requests whose time is over, and those whose coordinator has not answered in
    /// it, and sets the timer for the next one.
    pub(super) fn on_late_timer(&mut self, token: u64) {
        let now_ms = self.now_ms;
        let Some(connection) = self.connections.by_token(token) else {
            return;
        };
        if connection.late_timer_ms > now_ms {
            return;
        }
        connection.late_timer_ms = u64::MAX;
        let mut late = Vec::new();
        let mut next_ms = u64::MAX;
        for (slot, state) in connection.session.open_slots() {
            match state {
                Slot::Produce { deadline_ms, .. } if *deadline_ms <= now_ms => late.push(slot),
                Slot::Produce { deadline_ms, .. } => next_ms = next_ms.min(*deadline_ms),
                Slot::Verifying(each) if each.deadline_ms <= now_ms => late.push(slot),
                Slot::Verifying(each) => next_ms = next_ms.min(each.deadline_ms),
                _ => {}
            }
        }
        for slot in late {
            self.answer_produce(token, slot);
            self.end_verification(token, slot);
        }
        if next_ms < u64::MAX {
            self.set_late_timer(token, next_ms);
        }
    }

    pub(super) fn set_late_timer(&mut self, token: u64, deadline_ms: u64) {
        if let Some(connection) = self.connections.by_token(token)
            && deadline_ms < connection.late_timer_ms
        {
            connection.late_timer_ms = deadline_ms;
            self.set_timer(deadline_ms, token, Timer::Late);
        }
    }

    /// Does not go on with the connection's requests for so long.
    pub(super) fn hold_back(&mut self, token: u64, throttle_ms: u32) {
        if throttle_ms == 0 {
            return;
        }
        let now_ms = self.now_ms;
        if let Some(connection) = self.connections.by_token(token) {
            connection.session.mute(throttle_ms, now_ms);
            let until_ms = connection.session.muted_until_ms();
            self.set_timer(until_ms, token, Timer::Unmute);
        }
    }

    pub(super) fn complete(&mut self, done: CallResult) {
        match done {
            CallResult::Unfinished(work) => self.go_on(work),
            CallResult::Appended(appended) => self.on_appended(appended),
            CallResult::Fetched {
                parked,
                fetch,
                fetch_read,
                copies,
            } => self.on_logs_read(parked, fetch, fetch_read, copies),
            CallResult::ListedOffsets {
                parked,
                mut request,
            } => self.answer(parked, request.answer()),
            CallResult::LargeRead { parked, read } => self.on_read(parked, read.map(|read| *read)),
            CallResult::Sent {
                connection: token,
                mut outbox,
                sent_bytes,
                result,
            } => {
                let Some(index) = self.connections.place_of(token) else {
                    return;
                };
                if let Some(connection) = self.connections.get(index) {
                    connection.is_sending = false;
                    connection.memory.sending_bytes = 0;
                    // What was answered while another thread sent: nobody else goes on with it.
                    let later = std::mem::take(&mut connection.session.outbox);
                    if !later.is_empty() {
                        self.queue.touch(token);
                    }
                    outbox.append(later);
                    connection.session.outbox = outbox;
                }
                self.after_flush(index, sent_bytes, result);
            }
        }
    }

    /// A call goes on, in another log directory or behind others, unless nobody waits for it.
    fn go_on(&mut self, mut work: StorageCall) {
        match &mut work {
            StorageCall::Fetch(call) => {
                let state = self.slot(call.parked.connection, call.parked.slot);
                let Some(Slot::ReadingLogs { must_answer, .. }) = state else {
                    deregister_fetch(&mut call.fetch, call.parked);
                    return;
                };
                call.must_answer |= *must_answer;
            }
            StorageCall::ListOffsets { parked, .. }
                if self.slot(parked.connection, parked.slot).is_none() =>
            {
                return;
            }
            _ => {}
        }
        self.calls.push(work);
    }

    fn on_appended(&mut self, appended: Appended) {
        self.shared.memory.release(appended.size_bytes);
        for batch in appended.put_off {
            self.calls.push(StorageCall::Append(batch));
        }
        for buffer in appended.buffers {
            self.buffers.recycle(buffer);
        }
        for (piece, result) in appended.pieces.into_iter().zip(appended.results) {
            let Some(result) = result else {
                continue;
            };
            if let Err(error) = &result
                && error.kafka_code() == codes::KAFKA_STORAGE_ERROR
            {
                self.shared.control().storage_notice(error, self.now_ms);
            }
            let Some(slot) = piece.slot else {
                // The only way to tell a producer with acks 0.
                if let Err(error) = result {
                    self.end_unheard(piece.connection, error);
                }
                continue;
            };
            let parked = self.parked(piece.connection, slot);
            let Some(Slot::Produce {
                produce, pending, ..
            }) = self.slot(piece.connection, slot)
            else {
                continue;
            };
            if let Some(partition) = produce.partitions.get_mut(piece.at) {
                partition.apply(result);
            }
            *pending -= 1;
            if *pending == 0 && is_committed(produce, parked) {
                self.answer_produce(piece.connection, slot);
            }
        }
    }

    fn end_unheard(&mut self, token: u64, error: Error) {
        if let Some(index) = self.connections.place_of(token) {
            self.log_disconnect(index, &DisconnectReason::Unheard(error));
            self.end(token);
        }
    }

    fn on_logs_read(
        &mut self,
        parked: Parked,
        mut fetch: Box<Fetch>,
        fetch_read: Option<FetchRead>,
        copies: Option<HeldMemory>,
    ) {
        let Parked {
            connection, slot, ..
        } = parked;
        let state = self.slot(connection, slot);
        let Some(Slot::ReadingLogs {
            again, must_answer, ..
        }) = state
        else {
            // The connection is gone.
            deregister_fetch(&mut fetch, parked);
            return;
        };
        let (again, must_answer) = (*again, *must_answer);
        match fetch_read {
            Some(fetch_read) if fetch_read.lacking_bytes() > 0 => {
                self.copy_records(parked, fetch, fetch_read);
            }
            Some(fetch_read) => {
                self.answer_fetch(parked, &mut fetch, fetch_read);
                if let (Some(_), Some(index)) = (&copies, self.connections.place_of(connection)) {
                    // What is not sent at once counts as the connection's before that is
                    // given back.
                    self.advance(index);
                    self.account_owed(index);
                }
            }
            None => {
                if let Some(state) = self.slot(connection, slot) {
                    *state = Slot::Fetch(fetch);
                }
                if again || must_answer {
                    self.read_logs(connection, slot, must_answer);
                }
            }
        }
    }

    /// Has the records of an answer copied that hold no file, if there is memory for that; else it
    /// goes without them. They count from now on: the requests may all have begun while there was
    /// some.
    fn copy_records(&mut self, parked: Parked, mut fetch: Box<Fetch>, mut fetch_read: FetchRead) {
        let memory = &self.shared.memory;
        let connection = self.connections.by_token(parked.connection);
        let may_exceed = connection.is_some_and(|connection| connection.memory.answer_exceeds());
        let memory_bytes = counted(fetch_read.lacking_bytes());
        if memory_bytes > 0 && memory.is_exhausted() && !may_exceed {
            fetch_read.drop_lacking();
            return self.answer_fetch(parked, &mut fetch, fetch_read);
        }
        self.calls.push(StorageCall::Fetch(FetchCall {
            fetch_read: FetchRead::of_copies(),
            copies: Some(HeldMemory::new(memory, memory_bytes)),
            ..FetchCall::new(parked, fetch, true)
        }));
    }

    fn answer_fetch(&mut self, parked: Parked, fetch: &mut Fetch, fetch_read: FetchRead) {
        let (image, shared, now_ms) = (self.image.clone(), self.shared.clone(), self.now_ms);
        let Some(connection) = self.connections.by_token(parked.connection) else {
            return;
        };
        let caller = connection.session.caller(connection.listener);
        let quotas = &image.permits.quotas;
        let throttle_ms = if fetch.is_of_follower() {
            0
        } else {
            quotas
                .fetched(&caller, fetch.size_bytes(&fetch_read), now_ms)
                .max(quotas.requested(&caller, FETCH, now_ms))
        };
        let chunks = match throttle_ms {
            0 => fetch.answer(fetch_read, &shared.context.fetch_sessions, &image, now_ms),
            throttle_ms => fetch.throttled_answer(throttle_ms),
        };
        self.answer(parked, chunks);
        if let Some(connection) = self.connections.by_token(parked.connection)
            && let Some(exceeding) = connection.memory.exceeding_answer.take()
            && !connection.session.outbox.is_empty()
        {
            connection
                .session
                .outbox
                .keep_until_sent(None, Some(exceeding));
        }
        self.hold_back(parked.connection, throttle_ms);
    }

    /// An answer that waited for nothing but to be read.
    pub(super) fn answer_at(
        &mut self,
        parked: Parked,
        api_key: i16,
        mut chunks: Vec<Chunk>,
    ) -> Result<()> {
        api::finish(&mut chunks, self.shared.context.settings.answer_bytes_max)?;
        if let Some(connection) = self.connections.by_token(parked.connection) {
            let caller = connection.session.caller(connection.listener);
            let quotas = &self.image.permits.quotas;
            let throttle_ms = quotas.requested(&caller, api_key, self.now_ms);
            connection.session.answer(parked.slot, chunks);
            self.hold_back(parked.connection, throttle_ms);
            self.touch(parked.connection);
        }
        Ok(())
    }

    fn answer(&mut self, parked: Parked, mut chunks: Vec<Chunk>) {
        let finished = api::finish(&mut chunks, self.shared.context.settings.answer_bytes_max);
        if let Err(error) = finished {
            return self.refuse(parked, error);
        }
        if let Some(connection) = self.connections.by_token(parked.connection) {
            connection.session.answer(parked.slot, chunks);
            self.touch(parked.connection);
        }
    }

    /// Closes a connection that was waiting for what cannot be answered, once it has the answers to
    /// what it asked before.
    fn refuse(&mut self, parked: Parked, error: Error) {
        if let Some(index) = self.connections.place_of(parked.connection) {
            self.log_disconnect(index, &DisconnectReason::Refused(error));
            self.end_unanswered(parked);
        }
    }

    /// As `refuse`, where the log says why already.
    fn end_unanswered(&mut self, parked: Parked) {
        if let Some(connection) = self.connections.by_token(parked.connection) {
            connection.session.answer(parked.slot, Vec::new());
            self.end(parked.connection);
        }
    }

    pub(super) fn on_control_answer(&mut self, parked: Parked, answer: ControlAnswer) {
        let Some(index) = self.connections.place_of(parked.connection) else {
            return;
        };
        let mut large = None;
        let answer = match answer {
            ControlAnswer::Response(bytes, answer) => {
                large = answer;
                Ok(bytes)
            }
            ControlAnswer::Verified(codes) => return self.on_verified(index, parked.slot, &codes),
            // Python has said why.
            ControlAnswer::Close => return self.end_unanswered(parked),
            ControlAnswer::Refused(error) => Err(error),
            ControlAnswer::Again => match self.answer_again(index, parked.slot) {
                Ok(Some(bytes)) => Ok(bytes),
                // It is large, and is being read again.
                Ok(None) => return,
                Err(error) => Err(error),
            },
        };
        let queued_bytes = |reactor: &mut Reactor| {
            let connection = reactor.connections.by_token(parked.connection);
            connection.map_or(0, |each| each.session.outbox.queued_bytes())
        };
        let before_bytes = queued_bytes(self);
        match answer {
            Ok(bytes) => self.answer(parked, vec![Chunk::Bytes(bytes)]),
            Err(error) => self.refuse(parked, error),
        }
        // Python has one request of a connection at a time, so this is the one with the right, if
        // that was given, and its answer is the last in the outbox.
        if queued_bytes(self) > before_bytes
            && let Some(connection) = self.connections.by_token(parked.connection)
        {
            let exceeding = connection.memory.exceeding_answer.take();
            connection.session.outbox.keep_until_sent(large, exceeding);
        }
    }
}

/// The high watermarks have passed the records; else the request waits for the first that has not.
fn is_committed(produce: &mut Produce, parked: Parked) -> bool {
    if produce.acks != -1 {
        return true;
    }
    while let Some((partition, target)) = produce.uncommitted() {
        partition
            .waiters
            .register(parked, WaitFor::Committed(target));
        if partition.log.high_watermark() < target && !partition.waiters.has_failed() {
            produce.is_parked = true;
            return false;
        }
        partition.waiters.deregister(parked);
    }
    true
}

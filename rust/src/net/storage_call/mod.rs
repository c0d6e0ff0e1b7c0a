//! Storage calls of a network thread: they carry all they need, so that any thread can make them
//! (`storage_io/`), and what becomes of them goes back to the reactor.
//!
//! A call stays within the log directory whose queue it has passed. What concerns several is made
//! by a call each (`CallResult::Unfinished`), and so is what would keep others waiting in one.

pub mod append_batch;
pub mod large_request;

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Instant;

use crate::api::k01_fetch::{Fetch, FetchRead};
use crate::api::k02_list_offsets::ListOffsets;
use crate::clock::wall_ms;
use crate::error::Result;
use crate::limits::{
    APPEND_PIECES_AT_ONCE, LONG_ANSWER_BYTES, LONG_ANSWER_BYTES_IF_OTHERS_WAIT,
    LONG_ANSWER_BYTES_PER_TURN, LONG_ANSWER_WAIT_MS, SEARCH_PER_TURN,
};
use crate::log::directory::LogDirectory;
use crate::net::memory::HeldMemory;
use crate::net::memory::connection::counted;
use crate::net::outbox::{Flushed, Outbox, SpareAnswers};
use crate::net::poller;
use crate::net::storage_call::append_batch::{AppendBatch, Appended};
use crate::net::storage_call::large_request::{LargeRead, LargeRequest};
use crate::net::storage_io::{Here, QueueId, QueueKind, Route, StorageIo};
use crate::net::transport::Transport;
use crate::replica::park::Parked;

pub enum StorageCall {
    /// The Produce requests of a round, as far as they concern one log directory.
    Append(AppendBatch),
    /// Reads the logs for a Fetch.
    Fetch(FetchCall),
    /// Offsets by time.
    ListOffsets {
        parked: Parked,
        request: Box<ListOffsets>,
    },
    /// A request that takes long to be read.
    LargeRequest(Box<LargeRequest>),
    /// Ranges of files to a socket.
    Send {
        connection: u64,
        transport: Arc<Transport>,
        outbox: Outbox,
    },
}

/// A Fetch whose logs are being looked at.
pub struct FetchCall {
    pub parked: Parked,
    pub fetch: Box<Fetch>,
    /// Its time has come, so it does not wait any more.
    pub must_answer: bool,
    /// Found so far.
    pub fetch_read: FetchRead,
    /// It waits at its partitions already; what came before that is looked for.
    pub is_registered: bool,
    /// Its answer is due, whose records are copied into this memory.
    pub copies: Option<HeldMemory>,
}

/// The result of a storage call.
pub enum CallResult {
    /// It has to go on in another log directory, or in the same behind others.
    Unfinished(StorageCall),
    Appended(Appended),
    Fetched {
        parked: Parked,
        fetch: Box<Fetch>,
        /// `None`: it waits at its partitions.
        fetch_read: Option<FetchRead>,
        /// In which copies of the records are.
        copies: Option<HeldMemory>,
    },
    ListedOffsets {
        parked: Parked,
        request: Box<ListOffsets>,
    },
    LargeRead {
        parked: Parked,
        read: Result<Box<LargeRead>>,
    },
    Sent {
        connection: u64,
        outbox: Outbox,
        sent_bytes: usize,
        result: io::Result<Flushed>,
    },
}

impl StorageCall {
    /// The queue that it has to pass, if any of it lies in a log directory. `others_wait`: other
    /// connections wait for the network thread.
    pub fn route(&self, storage: &StorageIo, others_wait: bool) -> Option<Route> {
        let queue = match self {
            StorageCall::Append(batch) if batch.was_put_off() => {
                QueueId::Directory(QueueKind::CostlyWrites, batch.directory)
            }
            StorageCall::Append(batch) => QueueId::Directory(QueueKind::Writes, batch.directory),
            StorageCall::LargeRequest(_) => QueueId::LargeRequests,
            StorageCall::Fetch(call) => {
                storage.reads_of(|| call.fetch.next_directory(&call.fetch_read))?
            }
            StorageCall::ListOffsets { request, .. } => {
                let number = storage.number_of(request.next_directory()?);
                QueueId::Directory(QueueKind::Searches, number)
            }
            StorageCall::Send { outbox, .. } => storage.reads_of(|| outbox.directory())?,
        };
        let by_thread_of = if self.is_long() {
            Some(queue)
        } else {
            self.long_answer_queue(storage, others_wait)
        };
        Some(Route {
            queue,
            by_thread_of,
        })
    }

    /// It reads and perhaps inflates whole batches, or names by the million:
    /// never for a network thread.
    fn is_long(&self) -> bool {
        match self {
            StorageCall::ListOffsets { .. } | StorageCall::LargeRequest(_) => true,
            StorageCall::Append(batch) => {
                batch.was_put_off() || batch.pieces.len() > APPEND_PIECES_AT_ONCE
            }
            StorageCall::Fetch(_) | StorageCall::Send { .. } => false,
        }
    }

    /// The directory's queue for long answers, if this is one, which is a question of whether
    /// others wait for the network thread, and if no other is being sent there.
    fn long_answer_queue(&self, storage: &StorageIo, others_wait: bool) -> Option<QueueId> {
        let long_bytes = if others_wait {
            LONG_ANSWER_BYTES_IF_OTHERS_WAIT
        } else {
            LONG_ANSWER_BYTES
        };
        let StorageCall::Send { outbox, .. } = self else {
            return None;
        };
        if !outbox.is_long(long_bytes) {
            return None;
        }
        let number = storage.number_of(outbox.directory()?);
        let queue = QueueId::Directory(QueueKind::LongAnswers, number);
        storage.is_open(queue).then_some(queue)
    }

    /// It is of use to that connection, and to nobody else.
    pub fn is_for(&self, connection: u64) -> bool {
        match self {
            StorageCall::Append(_) => false,
            StorageCall::Fetch(FetchCall { parked, .. })
            | StorageCall::ListOffsets { parked, .. } => parked.connection == connection,
            StorageCall::LargeRequest(request) => request.parked.connection == connection,
            StorageCall::Send {
                connection: other, ..
            } => *other == connection,
        }
    }

    /// Bytes of memory that it holds while it waits.
    pub fn size_bytes(&self) -> usize {
        match self {
            StorageCall::Append(batch) => batch.size_bytes,
            _ => 0,
        }
    }

    /// Leaves nothing behind of a call that is not made.
    pub fn cancel(self) {
        if let StorageCall::Fetch(mut call) = self {
            deregister_fetch(&mut call.fetch, call.parked);
        }
    }

    /// Makes the call, as far as it concerns the log directory `here`.
    pub fn run(self, here: &Here<'_>) -> CallResult {
        let is_here = |directory: &Arc<LogDirectory>| here.is(directory);
        match self {
            StorageCall::Append(batch) => CallResult::Appended(batch.append(wall_ms())),
            StorageCall::Fetch(call) => call.run(is_here),
            StorageCall::LargeRequest(request) => CallResult::LargeRead {
                parked: request.parked,
                read: request.read().map(Box::new),
            },
            StorageCall::ListOffsets {
                parked,
                mut request,
            } => {
                // From the first log on, so that each turn searches one.
                let mut begun = None;
                request.search(|directory| {
                    is_here(directory)
                        && begun.get_or_insert_with(Instant::now).elapsed() < SEARCH_PER_TURN
                });
                match request.next_directory() {
                    Some(_) => CallResult::Unfinished(StorageCall::ListOffsets { parked, request }),
                    None => CallResult::ListedOffsets { parked, request },
                }
            }
            StorageCall::Send {
                connection,
                transport,
                mut outbox,
            } => {
                let before = outbox.queued_bytes();
                let result = if here.is_patient {
                    send_patiently(&transport, &mut outbox, is_here)
                } else {
                    outbox.flush_from(&*transport, &mut SpareAnswers::default(), is_here)
                };
                CallResult::Sent {
                    connection,
                    sent_bytes: before - outbox.queued_bytes(),
                    outbox,
                    result,
                }
            }
        }
    }
}

/// Sends until nothing is left here, the socket has had no room for a while, or much has gone.
fn send_patiently(
    transport: &Transport,
    outbox: &mut Outbox,
    is_here: impl Fn(&Arc<LogDirectory>) -> bool,
) -> io::Result<Flushed> {
    let before = outbox.queued_bytes();
    loop {
        let flushed = outbox.flush_from(transport, &mut SpareAnswers::default(), &is_here)?;
        let has_had_its_share = before - outbox.queued_bytes() >= LONG_ANSWER_BYTES_PER_TURN;
        if flushed != Flushed::Part
            || has_had_its_share
            || !poller::wait_for_room(transport.as_raw_fd(), LONG_ANSWER_WAIT_MS)?
        {
            return Ok(flushed);
        }
    }
}

impl FetchCall {
    pub fn new(parked: Parked, fetch: Box<Fetch>, must_answer: bool) -> FetchCall {
        FetchCall {
            parked,
            fetch,
            must_answer,
            fetch_read: FetchRead::default(),
            is_registered: false,
            copies: None,
        }
    }

    /// Goes on where the logs are `is_here`. Gives what they hold if the answer is due; else the
    /// request is registered at its partitions.
    fn run(mut self, is_here: impl Fn(&Arc<LogDirectory>) -> bool) -> CallResult {
        if !self.fetch.read_logs(&mut self.fetch_read, &is_here) {
            return CallResult::Unfinished(StorageCall::Fetch(self));
        }
        if let Some(copies) = &mut self.copies {
            // What is copied now need not be what lacked then.
            copies.resize(counted(self.fetch_read.copied_bytes()));
            return self.end(true);
        }
        if !self.is_registered {
            deregister_fetch(&mut self.fetch, self.parked);
            if self.is_due() {
                return self.end(true);
            }
            register_fetch(&mut self.fetch, &self.fetch_read, self.parked);
            self.is_registered = true;
            // What came between the look and the registration woke nobody.
            if !self.fetch.has_moved(&self.fetch_read) {
                return self.end(false);
            }
            self.fetch_read.clear();
            if !self.fetch.read_logs(&mut self.fetch_read, &is_here) {
                return CallResult::Unfinished(StorageCall::Fetch(self));
            }
        }
        let is_due = self.is_due();
        if is_due {
            deregister_fetch(&mut self.fetch, self.parked);
        }
        self.end(is_due)
    }

    fn is_due(&self) -> bool {
        self.must_answer || self.fetch.is_due(&self.fetch_read)
    }

    fn end(self, is_due: bool) -> CallResult {
        CallResult::Fetched {
            parked: self.parked,
            fetch: self.fetch,
            fetch_read: is_due.then_some(self.fetch_read),
            copies: self.copies,
        }
    }
}

fn register_fetch(fetch: &mut Fetch, fetch_read: &FetchRead, parked: Parked) {
    fetch.is_parked = true;
    for (partition, wait_for) in fetch.wait_for(fetch_read) {
        partition.waiters.register(parked, wait_for);
    }
}

pub fn deregister_fetch(fetch: &mut Fetch, parked: Parked) {
    if std::mem::take(&mut fetch.is_parked) {
        for partition in fetch.parked_at() {
            partition.waiters.deregister(parked);
        }
    }
}

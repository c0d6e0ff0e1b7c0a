//! Large requests on the network thread: set aside for the thread that reads them, and gone on with
//! once they are read, where any other request goes on; meanwhile the connection does nothing else.

use std::ops::Range;

use crate::error::Result;
use crate::limits::{LARGE_REQUEST_COPIES, RECEIVE_BYTES};
use crate::net::disconnect::DisconnectReason;
use crate::net::reactor::Reactor;
use crate::net::session::Slot;
use crate::net::storage_call::StorageCall;
use crate::net::storage_call::large_request::{Content, LargeRead, LargeRequest};
use crate::replica::park::Parked;
use crate::wire::RequestHeader;
use crate::wire::header::METADATA;

impl Reactor {
    /// Begins a request that is large, once its buffer is free (`read_aside`). False: not begun.
    pub(super) fn set_aside(&mut self, index: usize, content: Range<usize>) -> bool {
        let ahead_bytes = (LARGE_REQUEST_COPIES - 1) * content.len();
        // Any key but Produce: nothing goes on beside it.
        if !self
            .try_begin(index, METADATA, content.len(), |_| Ok(ahead_bytes))
            .unwrap_or(false)
        {
            return false;
        }
        if let Some(connection) = self.connections.get(index) {
            let memory_bytes = content.len() + ahead_bytes;
            let slot = connection
                .session
                .begin(Slot::ReadingRequest { memory_bytes });
            self.account_owed(index);
            self.aside = Some((slot, content));
        }
        true
    }

    /// Has the request read that was set aside. Gives the buffer back,
    /// unless it is the frame's own.
    pub(super) fn read_aside(&mut self, index: usize, buffer: Vec<u8>) -> Option<Vec<u8>> {
        let Some((slot, content)) = self.aside.take() else {
            return Some(buffer);
        };
        let is_own = buffer.len() > RECEIVE_BYTES && !self.calls.has_buffer();
        let (frame, content, back) = if is_own {
            (buffer, content, None)
        } else {
            let frame = buffer.get(content.clone()).unwrap_or_default().to_vec();
            let content = 0..content.len();
            (frame, content, Some(buffer))
        };
        self.put_large(index, slot, frame, content, false);
        back
    }

    fn put_large(
        &mut self,
        index: usize,
        slot: u64,
        frame: Vec<u8>,
        content: Range<usize>,
        is_again: bool,
    ) {
        let parked = self.parked(self.connections.token_of(index), slot);
        let image = self.shared.image();
        if let Some(connection) = self.connections.get(index) {
            self.calls
                .push(StorageCall::LargeRequest(Box::new(LargeRequest {
                    parked,
                    frame,
                    content,
                    image,
                    identity: connection.session.identity().clone(),
                    listener: connection.listener,
                    is_again,
                    now_ms: self.now_ms,
                    context: self.shared.context.clone(),
                })));
        }
    }

    /// Has a large Metadata request answered whose topics Python has made since.
    pub(super) fn read_again(&mut self, index: usize, slot: u64, content: Vec<u8>) {
        let memory_bytes = LARGE_REQUEST_COPIES * content.len();
        if let Some(connection) = self.connections.get(index) {
            connection
                .session
                .replace(slot, Slot::ReadingRequest { memory_bytes });
            self.account_owed(index);
            let all = 0..content.len();
            self.put_large(index, slot, content, all, true);
        }
    }

    /// Goes on with a large request that has been read.
    pub(super) fn on_read(&mut self, parked: Parked, read: Result<LargeRead>) {
        let Parked {
            connection: token,
            slot,
            ..
        } = parked;
        let (Some(index), Some(Slot::ReadingRequest { .. })) =
            (self.connections.place_of(token), self.slot(token, slot))
        else {
            return;
        };
        let begun = read
            .map_err(DisconnectReason::from)
            .and_then(|read| self.begin_read_request(index, slot, read));
        if let Err(why) = begun {
            self.log_disconnect(index, &why);
            if let Some(connection) = self.connections.get(index) {
                connection.session.answer(slot, Vec::new());
            }
            self.end(token);
        }
        if self.connections.place_of(token).is_some() {
            self.account_owed(index);
        }
    }

    fn begin_read_request(
        &mut self,
        index: usize,
        slot: u64,
        read: LargeRead,
    ) -> std::result::Result<(), DisconnectReason> {
        let parked = self.parked(self.connections.token_of(index), slot);
        let LargeRead {
            api_key,
            client_id,
            content,
            ..
        } = read;
        let Some(connection) = self.connections.get(index) else {
            return Ok(());
        };
        connection.session.name_client(client_id.as_deref());
        match content {
            Content::Answer(chunks) => self.answer_at(parked, api_key, chunks)?,
            Content::Fetch(fetch) => self.begin_fetch(index, fetch, Some(slot))?,
            Content::ListOffsets(mut request) => match request.next_directory() {
                None => {
                    request.search(|_| false);
                    self.answer_at(parked, api_key, request.answer())?;
                }
                Some(_) => self.begin_search(index, request, Some(slot)),
            },
            Content::Produce(produce, buffer, base) => {
                let content = buffer.get(base..).unwrap_or_default();
                if let Some(verification) = produce.begin_verification(content) {
                    let content = content.to_vec();
                    self.verify(index, produce, content, verification, Some(slot));
                    return Ok(());
                }
                let begun = self.begin_produce(index, produce, &buffer, base, Some(slot));
                if let Some(buffer) = self.calls.end_buffer(buffer) {
                    self.buffers.recycle(buffer);
                }
                begun?;
            }
            Content::Control(body, kept) => {
                let header = RequestHeader {
                    api_key,
                    api_version: read.api_version,
                    correlation_id: read.correlation_id,
                    client_id: None,
                    flexible: false,
                };
                self.give_to_python(index, &header, body, kept, Some(slot));
            }
        }
        Ok(())
    }
}

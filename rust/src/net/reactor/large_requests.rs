//! Large requests (`LARGE_REQUEST_BYTES`): read by a thread beside the network threads, one at a time, so
//! that nobody waits for it whose own requests are small. What a request came to goes on where any other
//! does; meanwhile its connection does nothing else.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use crate::access::{Caller, Principal};
use crate::api::k00_produce::{self, Produce};
use crate::api::k01_fetch::{self, Fetch};
use crate::api::k02_list_offsets::{self, ListOffsets};
use crate::api::large::{Kept, metadata};
use crate::api::{Ask, Chunk, k03_metadata, k18_api_versions};
use crate::error::Result;
use crate::image::Image;
use crate::limits::{LARGE_REQUEST_BYTES, LARGE_REQUEST_COPIES, RECEIVE_BYTES};
use crate::net::disconnect::DisconnectReason;
use crate::net::reactor::Reactor;
use crate::net::reactor::dispatch::read_header;
use crate::net::session::Slot;
use crate::net::shared::Shared;
use crate::net::storage_call::StorageCall;
use crate::park::Parked;
use crate::wire::header::{API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, PRODUCE};
use crate::wire::{Reader, RequestHeader};

/// A request that is to be read.
pub struct LargeRequest {
    pub parked: Parked,
    frame: Vec<u8>,
    content: Range<usize>,
    image: Arc<Image>,
    principal: Principal,
    address: IpAddr,
    listener: usize,
    /// Python has made the topics that were missing.
    is_again: bool,
    now_ms: u64,
}

/// What it came to.
pub struct LargeRead {
    api_key: i16,
    api_version: i16,
    correlation_id: i32,
    client_id: Option<Arc<str>>,
    content: Content,
}

enum Content {
    Answer(Vec<Chunk>),
    Fetch(Box<Fetch>),
    ListOffsets(Box<ListOffsets>),
    /// With the buffer in which the records lie, and where the content begins in it.
    Produce(Produce, Vec<u8>, usize),
    /// For Python: the body, and the content of the frame if Python may hand it back.
    Control(Vec<u8>, Vec<u8>),
}

/// Whether a frame's content takes long to be read. Records do not.
pub fn is_large(content: &[u8], shared: &Shared) -> bool {
    if content.len() <= LARGE_REQUEST_BYTES {
        return false;
    }
    // Where the header itself is so large, nobody looks at it here.
    let Some(beginning) = content.get(..LARGE_REQUEST_BYTES) else {
        return true;
    };
    let mut reader = Reader::new(beginning);
    match read_header(&mut reader, shared) {
        Ok(header) if header.api_key == PRODUCE => {
            let reader = Reader::at(content, reader.position());
            k00_produce::names_much(&header, &reader, content).unwrap_or(true)
        }
        _ => true,
    }
}

impl LargeRequest {
    pub fn read(self, shared: &Shared) -> Result<LargeRead> {
        let kept = Kept::new(self.frame, self.content);
        let image = &self.image;
        let mut reader = kept.reader_at(0);
        let header = read_header(&mut reader, shared)?;
        let read = |content| LargeRead {
            api_key: header.api_key,
            api_version: header.api_version,
            correlation_id: header.correlation_id,
            client_id: header.client_id.map(Into::into),
            content,
        };
        let ask = Ask {
            image,
            caller: Caller {
                principal: &self.principal,
                client_id: header.client_id,
                address: self.address,
                listener: self.listener,
            },
            authorizer: &*shared.authorizer,
        };
        let at = (&kept, image);
        let content = match header.api_key {
            PRODUCE => {
                let mut produce = k00_produce::read_large(&header, &mut reader, &ask, at)?;
                let read = read(Content::Answer(Vec::new()));
                let (buffer, base) = produce.take_records(kept);
                let content = Content::Produce(produce, buffer, base);
                return Ok(LargeRead { content, ..read });
            }
            FETCH => {
                let sessions = &shared.fetch_sessions;
                let bounds = (shared.settings.fetch_bytes_max, self.now_ms);
                let fetch =
                    k01_fetch::read_large(&header, &mut reader, &ask, at, sessions, bounds)?;
                Content::Fetch(Box::new(fetch))
            }
            LIST_OFFSETS => {
                let request = k02_list_offsets::read_large(&header, &mut reader, &ask, at)?;
                Content::ListOffsets(Box::new(request))
            }
            METADATA => {
                let creates = shared.settings.auto_create_topics && !self.is_again;
                let large = metadata::Large::read(&header, reader.clone(), &kept)?;
                let missing = if creates { large.missing(image)? } else { None };
                match missing {
                    None => Content::Answer(match large.answer(&ask, image)? {
                        Some(chunks) => chunks,
                        None => vec![Chunk::Bytes(k03_metadata::answer(&header, reader, &ask)?)],
                    }),
                    Some(body) => {
                        let read = read(Content::Answer(Vec::new()));
                        let content = Content::Control(body, cut(kept, 0));
                        return Ok(LargeRead { content, ..read });
                    }
                }
            }
            API_VERSIONS => {
                let features = &image.features;
                let answer =
                    k18_api_versions::answer(&header, &mut reader, &shared.keys, features)?;
                Content::Answer(vec![Chunk::Bytes(answer)])
            }
            _ => {
                let body_at = reader.position();
                let read = read(Content::Answer(Vec::new()));
                let content = Content::Control(cut(kept, body_at), Vec::new());
                return Ok(LargeRead { content, ..read });
            }
        };
        Ok(read(content))
    }
}

/// The content from a byte on, where it was.
fn cut(kept: Kept, from: usize) -> Vec<u8> {
    let (mut frame, content) = kept.into_frame();
    frame.truncate(content.end);
    frame.drain(..content.start + from);
    frame
}

impl Reactor {
    /// Begins a request that is large, once its buffer is free (`read_aside`). False: not begun.
    pub(super) fn set_aside(&mut self, index: usize, content: Range<usize>) -> bool {
        let ahead_bytes = (LARGE_REQUEST_COPIES - 1) * content.len();
        // Any key but Produce: nothing goes on beside it.
        if !self
            .may_begin(index, METADATA, content.len(), |_| Ok(ahead_bytes))
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

    /// Has the request read that was set aside. Gives the buffer back, unless it is the frame's own.
    pub(super) fn read_aside(&mut self, index: usize, buffer: Vec<u8>) -> Option<Vec<u8>> {
        let Some((slot, content)) = self.aside.take() else {
            return Some(buffer);
        };
        let is_own = buffer.len() > RECEIVE_BYTES && !self.appends.has_buffer();
        let (frame, content, back) = match is_own {
            true => (buffer, content, None),
            false => {
                let frame = buffer.get(content.clone()).unwrap_or_default().to_vec();
                let content = 0..content.len();
                (frame, content, Some(buffer))
            }
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
            self.work
                .push_back(StorageCall::LargeRequest(Box::new(LargeRequest {
                    parked,
                    frame,
                    content,
                    image,
                    principal: connection.session.principal.clone(),
                    address: connection.peer.ip(),
                    listener: connection.listener,
                    is_again,
                    now_ms: self.now_ms,
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
            .and_then(|read| self.go_on(index, slot, read));
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

    fn go_on(
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
                let begun = self.begin_produce(index, produce, &buffer, base, Some(slot));
                if let Some(buffer) = self.appends.end_buffer(buffer) {
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

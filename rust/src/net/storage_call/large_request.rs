//! Large requests (`LARGE_REQUEST_BYTES`), as they are read by a thread beside the network threads.
//! It reads one at a time, and nobody waits for it whose own requests are small.

use std::ops::Range;
use std::sync::Arc;

use crate::access::{Caller, Identity};
use crate::api::k00_produce::{self, Produce};
use crate::api::k01_fetch::{self, Fetch};
use crate::api::k02_list_offsets::{self, ListOffsets};
use crate::api::large::Kept;
use crate::api::{Ask, Chunk, k03_metadata, k18_api_versions};
use crate::error::Result;
use crate::image::Image;
use crate::limits::LARGE_REQUEST_BYTES;
use crate::net::request_context::{ApiKeys, RequestContext, read_header};
use crate::replica::park::Parked;
use crate::wire::Reader;
use crate::wire::header::{API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, PRODUCE};

/// A large request that is to be read.
pub struct LargeRequest {
    pub parked: Parked,
    pub frame: Vec<u8>,
    pub content: Range<usize>,
    pub image: Arc<Image>,
    pub identity: Arc<Identity>,
    pub listener: usize,
    /// Python has made the topics that were missing.
    pub is_again: bool,
    pub now_ms: u64,
    pub context: Arc<RequestContext>,
}

/// The outcome of reading it.
pub struct LargeRead {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<Arc<str>>,
    pub content: Content,
}

pub enum Content {
    Answer(Vec<Chunk>),
    Fetch(Box<Fetch>),
    ListOffsets(Box<ListOffsets>),
    /// With the buffer in which the records lie, and where the content begins in it.
    Produce(Produce, Vec<u8>, usize),
    /// For Python: the body, and the content of the frame if Python may hand it back.
    Control(Vec<u8>, Vec<u8>),
}

/// A frame's content takes long to be read. Records do not.
pub fn is_large(content: &[u8], keys: &ApiKeys) -> bool {
    if content.len() <= LARGE_REQUEST_BYTES {
        return false;
    }
    // Where the header itself is so large, nobody looks at it here.
    let Some(beginning) = content.get(..LARGE_REQUEST_BYTES) else {
        return true;
    };
    let mut reader = Reader::new(beginning);
    match read_header(&mut reader, keys) {
        Ok(header) if header.api_key == PRODUCE => {
            let reader = Reader::at(content, reader.position());
            k00_produce::names_much(&header, &reader, content).unwrap_or(true)
        }
        _ => true,
    }
}

impl LargeRequest {
    pub fn read(self) -> Result<LargeRead> {
        let kept = Kept::new(self.frame, self.content);
        let (image, context) = (&self.image, &*self.context);
        let mut reader = kept.reader_at(0);
        let header = read_header(&mut reader, &context.keys)?;
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
                identity: &self.identity,
                client_id: header.client_id,
                listener: self.listener,
            },
        };
        let content = match header.api_key {
            PRODUCE => {
                let mut produce =
                    k00_produce::read_large(&header, &mut reader, &ask, &kept, image)?;
                let read = read(Content::Answer(Vec::new()));
                let (buffer, base) = produce.take_records(kept);
                let content = Content::Produce(produce, buffer, base);
                return Ok(LargeRead { content, ..read });
            }
            FETCH => {
                let sessions = &context.fetch_sessions;
                let bounds = (context.settings.fetch_bytes_max, self.now_ms);
                let fetch = k01_fetch::read_large(
                    &header,
                    &mut reader,
                    &ask,
                    &kept,
                    image,
                    sessions,
                    bounds,
                )?;
                Content::Fetch(Box::new(fetch))
            }
            LIST_OFFSETS => {
                let request =
                    k02_list_offsets::read_large(&header, &mut reader, &ask, &kept, image)?;
                Content::ListOffsets(Box::new(request))
            }
            METADATA => {
                let large = k03_metadata::Large::read(&header, reader.clone(), &kept)?;
                let is_enabled = context.settings.auto_create_topics;
                let creates = is_enabled && !self.is_again;
                match if creates { large.missing(&ask)? } else { None } {
                    Some(body) => {
                        let read = read(Content::Answer(Vec::new()));
                        let content = Content::Control(body, cut(kept, 0));
                        return Ok(LargeRead { content, ..read });
                    }
                    None => Content::Answer(match large.answer(&ask, image, is_enabled)? {
                        Some(chunks) => chunks,
                        None => vec![Chunk::Bytes(k03_metadata::answer(
                            &header, reader, &ask, is_enabled,
                        )?)],
                    }),
                }
            }
            API_VERSIONS => {
                let features = &image.features;
                let answer =
                    k18_api_versions::answer(&header, &mut reader, context.keys.all(), features)?;
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

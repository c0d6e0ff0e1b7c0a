//! A large Fetch request: partitions that there are not are answered from its frame.

use std::sync::Arc;

use super::fetch::{Fetch, Part};
use super::{KEY, answer, begin, may_replicate, read, request};
use crate::api::fetch_sessions::{Context, FetchSessions};
use crate::api::handler::Ask;
use crate::api::large::Kept;
use crate::api::large::partitions::{Customs, Marked, Marks, Rule};
use crate::codes;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::limits::FETCH_UNKNOWN_MAX;
use crate::wire::{Reader, RequestHeader, Writer};

/// Reads a large request, whose content is `kept`. One that names more than `FETCH_UNKNOWN_MAX`
/// partitions that there are not has no session.
pub fn read_large(
    header: &RequestHeader<'_>,
    reader: &mut Reader<'_>,
    ask: &Ask<'_>,
    kept: &Kept,
    image: &Arc<Image>,
    sessions: &FetchSessions,
    (bytes_max, now_ms): (u64, u64),
) -> Result<Fetch> {
    let start = reader.clone();
    let body_bytes = reader.remaining();
    let mut marks = Marks::new(kept.bytes().len());
    let request = request::parse(header, reader, ask, Some(&mut marks))?;
    let kept_partitions = sessions.partitions_of(request.session.id);
    if request.forgotten.len() > kept_partitions + FETCH_UNKNOWN_MAX {
        let reason = "a Fetch that forgets more than its session holds".to_owned();
        return Err(Error::MalformedRequest(reason));
    }
    if marks.count <= FETCH_UNKNOWN_MAX {
        drop(request);
        return read(header, &mut start.clone(), ask, sessions, bytes_max, now_ms);
    }
    let opened = sessions.open_none(request.session, request.asked, now_ms);
    let asks = request.asks;
    let rest = match opened.0 {
        Context::Refused(_) => None,
        _ => {
            let is_denied = asks.replica_id >= 0 && !may_replicate(ask);
            let rule = Unknown {
                version: header.api_version,
                is_denied,
            };
            let customs = Customs {
                answers_once: true,
                answers_empty_topics: false,
            };
            let list = request::list(header, &start)?;
            let grammar = request::grammar(header);
            Some(marks.rest(grammar, &list, kept, image, customs, rule)?)
        }
    };
    let bounds = (bytes_max, body_bytes);
    begin(header, &asks, ask, opened, rest, (bounds, now_ms))
}

/// Partitions of a large request that there are not.
struct Unknown {
    version: i16,
    /// All of them.
    is_denied: bool,
}

impl Rule for Unknown {
    fn write(&self, writer: &mut Writer, marked: Marked<'_>) -> Result<()> {
        let Marked {
            topic,
            is_denied,
            mut partition,
            ..
        } = marked;
        let by_id = request::TOPIC_IDS_SINCE <= self.version;
        let error_code = match topic.error_code(by_id) {
            _ if self.is_denied => codes::TOPIC_AUTHORIZATION_FAILED,
            codes::UNKNOWN_TOPIC_ID => codes::UNKNOWN_TOPIC_ID,
            _ if is_denied => codes::TOPIC_AUTHORIZATION_FAILED,
            _ => codes::UNKNOWN_TOPIC_OR_PARTITION,
        };
        let part = Part {
            aborted: Some(Vec::new()),
            ..Part::refused(error_code)
        };
        let flexible = self.version >= KEY.first_flexible;
        answer::write_partition(writer, (self.version, flexible), partition.i32()?, &part);
        writer.no_tags(flexible);
        Ok(())
    }
}

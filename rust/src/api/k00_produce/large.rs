//! A large Produce request: what is refused in it is answered from its frame.

use std::sync::Arc;

use super::read::{Judge, read};
use super::{Produce, ProducePartition, Spare, TOPIC_IDS_SINCE, refuse, write_partition};
use crate::api::handler::Ask;
use crate::api::large::Kept;
use crate::api::large::partitions::{Customs, Grammar, Marked, Marks, Rule};
use crate::error::Result;
use crate::image::Image;
use crate::limits::LARGE_REQUEST_NAMES;
use crate::log::state::verification::NO_GUARD;
use crate::wire::{Reader, RequestHeader, Writer};

fn grammar(header: &RequestHeader<'_>) -> Grammar {
    Grammar {
        by_id: header.api_version >= TOPIC_IDS_SINCE,
        flexible: header.flexible,
        partition_bytes: size_of::<i32>(),
        has_records: true,
    }
}

/// A reader that stands at the list of topics. `reader` stands behind the header.
fn list<'a>(header: &RequestHeader<'_>, reader: &Reader<'a>) -> Result<Reader<'a>> {
    let mut list = reader.clone();
    list.nullable_string(header.flexible)?;
    list.take(size_of::<i16>() + size_of::<i32>())?;
    Ok(list)
}

/// A request names so much that it takes long to be read. `content` is the frame's.
pub fn names_much(header: &RequestHeader<'_>, reader: &Reader<'_>, content: &[u8]) -> Result<bool> {
    grammar(header).names_more_than(LARGE_REQUEST_NAMES, &list(header, reader)?, content)
}

/// Reads a large request, whose content is `kept`.
pub fn read_large(
    header: &RequestHeader<'_>,
    reader: &mut Reader<'_>,
    ask: &Ask<'_>,
    kept: &Kept,
    image: &Arc<Image>,
) -> Result<Produce> {
    let list = list(header, reader)?;
    let mut marks = Marks::new(kept.bytes().len());
    let mut produce = read(header, reader, ask, &mut Spare::default(), Some(&mut marks))?;
    let is_answered = produce.acks != 0;
    if produce.refusal.is_some() && is_answered {
        marks.mark_all(grammar(header), &list, kept)?;
        (produce.topics, produce.partitions) = (Vec::new(), Vec::new());
    }
    if (marks.count > 0 || produce.partitions.is_empty()) && is_answered {
        let customs = Customs {
            answers_once: false,
            answers_empty_topics: true,
        };
        let rule = Refused {
            judge: Judge::new(header, produce.acks),
            of_all: produce.refusal,
            image: image.clone(),
        };
        let rest = marks.rest(grammar(header), &list, kept, image, customs, rule)?;
        produce.rest_bytes = rest.later.memory_bytes();
        produce.rest = Some(Box::new(rest));
    }
    Ok(produce)
}

/// Partitions of a large request that are refused before any log is asked.
struct Refused {
    judge: Judge,
    of_all: Option<i16>,
    image: Arc<Image>,
}

impl Rule for Refused {
    fn write(&self, writer: &mut Writer, marked: Marked<'_>) -> Result<()> {
        let Marked {
            topic,
            is_denied,
            mut partition,
            ..
        } = marked;
        let Judge { version, acks, .. } = self.judge;
        let flexible = version >= super::KEY.first_flexible;
        let index = partition.i32()?;
        let records = partition.nullable_bytes(flexible)?.unwrap_or_default();
        let refused = ProducePartition {
            index,
            records: 0..0,
            guard: NO_GUARD,
            outcome: match self.of_all {
                Some(code) => refuse(code, None),
                None => self.judge.outcome(topic, !is_denied, index, records),
            },
        };
        write_partition(writer, version, acks, topic, &refused, &self.image);
        Ok(())
    }
}

//! The reader of Metadata requests: the topics that are named, each once,
//! and the flags behind them.

use std::collections::HashSet;

use crate::access::{Operation, Resource};
use crate::api::handler::Ask;
use crate::codes;
use crate::error::Result;
use crate::limits::TOPIC_NAME_BYTES_MAX;
use crate::uuid::Uuid;
use crate::wire::{Reader, RequestHeader, Writer};

/// "Not asked for" in a field of authorized operations.
pub const OPERATIONS_OMITTED: i32 = i32::MIN;

/// First version in which an id may stand for a name.
pub const ALONE_SINCE: i16 = 12;
/// A topic that a request names.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Asked<'a> {
    pub name: Option<&'a str>,
    pub id: Uuid,
}

impl<'a> Asked<'a> {
    pub fn has_id(&self) -> bool {
        self.id != Uuid::ZERO
    }

    /// The part of it that counts, where only ids do.
    pub fn counted(self, only_ids: bool) -> Self {
        if only_ids {
            Asked { name: None, ..self }
        } else {
            self
        }
    }

    /// Its name, if it is missing, there may be such a topic, and the client may have it made.
    pub fn missing_name(&self, ask: &Ask<'_>) -> Option<&'a str> {
        let is_missing = |name: &&str| ask.image.topic(name).is_none() && is_topic_name(name);
        let name = self.name.filter(is_missing)?;
        let may_see = ask.may(Operation::Describe, Resource::Topic(name));
        (may_see && may_create(ask, name)).then_some(name)
    }
}

pub struct Request<'a> {
    /// `None`: all topics.
    pub topics: Option<Vec<Asked<'a>>>,
    pub flags: Flags,
}

/// The flags that stand behind the topics.
#[derive(Clone, Copy)]
pub struct Flags {
    pub allows_creation: bool,
    cluster_operations: bool,
    topic_operations: bool,
}

impl Flags {
    pub fn read(header: &RequestHeader<'_>, reader: &mut Reader<'_>) -> Result<Flags> {
        let version = header.api_version;
        let flags = Flags {
            allows_creation: version < 4 || reader.bool()?,
            cluster_operations: (8..=10).contains(&version) && reader.bool()?,
            topic_operations: version >= 8 && reader.bool()?,
        };
        reader.skip_tags(header.flexible)?;
        Ok(flags)
    }

    /// The field of the operations on a topic.
    pub fn topic_operations(&self, ask: &Ask<'_>, name: &str) -> i32 {
        if self.topic_operations {
            ask.operations(Resource::Topic(name))
        } else {
            OPERATIONS_OMITTED
        }
    }

    /// The field of the operations on the cluster.
    fn cluster_operations(&self, ask: &Ask<'_>) -> i32 {
        if !self.cluster_operations {
            OPERATIONS_OMITTED
        } else if ask.may(Operation::Describe, Resource::Cluster) {
            ask.operations(Resource::Cluster)
        } else {
            0
        }
    }

    /// Writes the end of an answer, behind the topics, to a request that may be refused as a whole.
    pub fn write_tail(
        &self,
        writer: &mut Writer,
        header: &RequestHeader<'_>,
        ask: &Ask<'_>,
        refusal: Option<i16>,
    ) {
        let version = header.api_version;
        if (8..=10).contains(&version) {
            writer.i32(match refusal {
                None => self.cluster_operations(ask),
                Some(_) => OPERATIONS_OMITTED,
            });
        }
        if version >= 13 {
            writer.i16(refusal.unwrap_or(codes::NONE));
        }
        writer.no_tags(header.flexible);
    }
}

/// How many topics are named; `None`: all are meant.
pub fn read_count(header: &RequestHeader<'_>, reader: &mut Reader<'_>) -> Result<Option<usize>> {
    match header.api_version {
        0 => Ok(Some(reader.array_length(header.flexible)?).filter(|count| *count > 0)),
        _ => reader.nullable_length(header.flexible),
    }
}

pub fn read_topic<'a>(header: &RequestHeader<'_>, reader: &mut Reader<'a>) -> Result<Asked<'a>> {
    let (version, flexible) = (header.api_version, header.flexible);
    let id = if version >= 10 {
        reader.uuid()?
    } else {
        Uuid::ZERO
    };
    let name = if version >= 10 {
        reader.nullable_string(flexible)?
    } else {
        Some(reader.string(flexible)?)
    };
    reader.skip_tags(flexible)?;
    Ok(Asked { name, id })
}

/// The body of a request of this version that has these topics made.
pub fn request_of(header: &RequestHeader<'_>, names: &HashSet<&str>) -> Vec<u8> {
    let (version, flexible) = (header.api_version, header.flexible);
    let mut writer = Writer::default();
    writer.array_length(names.len(), flexible);
    for name in names {
        if version >= 10 {
            writer.uuid(&Uuid::ZERO);
        }
        writer.string(name, flexible);
        writer.no_tags(flexible);
    }
    if version >= 4 {
        writer.bool(true);
    }
    if (8..=10).contains(&version) {
        writer.bool(false);
    }
    if version >= 8 {
        writer.bool(false);
    }
    writer.no_tags(flexible);
    writer.bytes
}

pub fn read<'a>(header: &RequestHeader<'_>, reader: &mut Reader<'a>) -> Result<Request<'a>> {
    let mut topics = None;
    if let Some(count) = read_count(header, reader)? {
        let asked = topics.insert(Vec::new());
        for _ in 0..count {
            asked.push(read_topic(header, reader)?);
        }
    }
    Ok(Request {
        topics,
        flags: Flags::read(header, reader)?,
    })
}

/// Each topic once, and only those with an id if there is one.
pub fn once(mut asked: Vec<Asked<'_>>) -> Vec<Asked<'_>> {
    if asked.iter().any(|each| each.id != Uuid::ZERO) {
        asked.retain(|each| each.id != Uuid::ZERO);
        asked.iter_mut().for_each(|each| each.name = None);
    }
    let mut seen = HashSet::new();
    asked.retain(|each| seen.insert(*each));
    asked
}

/// Why the whole request is refused.
pub fn refusal(header: &RequestHeader<'_>, asked: &[Asked<'_>]) -> Option<i16> {
    let has_id = |each: &Asked<'_>| each.id != Uuid::ZERO;
    let is_nothing = |each: &Asked<'_>| each.name.is_none() && !has_id(each);
    let is_young = |each: &Asked<'_>| has_id(each) || each.name.is_none();
    refusal_of(
        header,
        asked.iter().any(is_young),
        asked.iter().any(has_id),
        asked.iter().any(is_nothing),
    )
}

/// Refuses by what is among the topics: an id or no name; an id; neither.
pub fn refusal_of(
    header: &RequestHeader<'_>,
    has_young: bool,
    has_ids: bool,
    has_nothing: bool,
) -> Option<i16> {
    if header.api_version < ALONE_SINCE && has_young {
        return Some(codes::INVALID_REQUEST);
    }
    (!has_ids && has_nothing).then_some(codes::UNKNOWN_SERVER_ERROR)
}

/// Kafka's rule for topic names (`Topic.validate`): 1 to 249 of `[a-zA-Z0-9._-]`, not `.` or `..`.
pub fn is_topic_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=TOPIC_NAME_BYTES_MAX).contains(&name.len())
        && name != "."
        && name != ".."
        && name.bytes().all(legal)
}

pub fn may_create(ask: &Ask<'_>, name: &str) -> bool {
    ask.may(Operation::Create, Resource::Cluster)
        || ask.may(Operation::Create, Resource::Topic(name))
}

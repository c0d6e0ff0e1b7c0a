//! Topics of a request that names some that there are not.

use std::sync::Arc;

use crate::codes;
use crate::error::Result;
use crate::image::{Image, Topic};
use crate::uuid::Uuid;
use crate::wire::{Reader, Writer, utf8};

/// A topic as a request names it.
pub enum TopicRef {
    Known(Arc<Topic>),
    /// The name, or empty where the request has the id.
    Unknown {
        name: Box<str>,
        id: Uuid,
    },
}

impl TopicRef {
    /// Reads the topic's name or, `by_id`, its id.
    pub fn read(
        reader: &mut Reader<'_>,
        by_id: bool,
        flexible: bool,
        image: &Image,
    ) -> Result<TopicRef> {
        if by_id {
            let id = reader.uuid()?;
            return Ok(match image.topic_by_id(&id) {
                Some(topic) => TopicRef::Known(topic.clone()),
                None => TopicRef::Unknown {
                    name: "".into(),
                    id,
                },
            });
        }
        let name = reader.string_bytes(flexible)?;
        Ok(match image.topic_by_bytes(name) {
            Some(topic) => TopicRef::Known(topic.clone()),
            None => TopicRef::Unknown {
                name: utf8(name)?.into(),
                id: Uuid::ZERO,
            },
        })
    }

    pub fn write(&self, writer: &mut Writer, by_id: bool, flexible: bool) {
        match (self, by_id) {
            (TopicRef::Known(topic), true) => writer.uuid(&topic.id),
            (TopicRef::Known(topic), false) => writer.string(&topic.name, flexible),
            (TopicRef::Unknown { id, .. }, true) => writer.uuid(id),
            (TopicRef::Unknown { name, .. }, false) => writer.string(name, flexible),
        }
    }

    /// There is such a partition, wherever it is led.
    pub fn has(&self, index: i32) -> bool {
        matches!(self, TopicRef::Known(topic) if topic.has(index))
    }

    /// Empty where the request has an unknown id.
    pub fn name(&self) -> &str {
        match self {
            TopicRef::Known(topic) => &topic.name,
            TopicRef::Unknown { name, .. } => name,
        }
    }

    pub fn error_code(&self, by_id: bool) -> i16 {
        match (self, by_id) {
            (TopicRef::Known(_), _) => codes::NONE,
            (TopicRef::Unknown { .. }, true) => codes::UNKNOWN_TOPIC_ID,
            (TopicRef::Unknown { .. }, false) => codes::UNKNOWN_TOPIC_OR_PARTITION,
        }
    }
}

//! Partitions that a large request names and that are answered from its frame alone: those that
//! there are not, above all. Requests and answers of Produce, Fetch and ListOffsets have one shape:
//! topics, and in each its partitions.

use std::sync::Arc;

use ahash::RandomState;

use super::repetitions::{Bits, find};
use super::{Kept, Later, Slices};
use crate::api::topic_ref::TopicRef;
use crate::error::Result;
use crate::image::Image;
use crate::limits::{REPETITIONS_BYTES_FREE, SLICE_BYTES};
use crate::wire::{Reader, Writer};

/// How topics and partitions stand in a request of some version.
#[derive(Clone, Copy)]
pub struct Grammar {
    pub by_id: bool,
    pub flexible: bool,
    /// Bytes of a partition before its records and tags; its index stands first.
    pub partition_bytes: usize,
    /// Nullable bytes follow (Produce).
    pub has_records: bool,
}

/// Goes through topics and partitions of a request.
#[derive(Clone)]
struct Walk {
    grammar: Grammar,
    at: usize,
    topics_left: usize,
    /// `None`: between topics.
    partitions_left: Option<usize>,
}

enum Step {
    /// A topic stands here, with so many partitions.
    Topic {
        at: usize,
        count: usize,
    },
    Partition {
        at: usize,
    },
    EndOfTopic,
    End,
}

impl Walk {
    /// `reader` stands at the list of topics.
    fn new(grammar: Grammar, mut reader: Reader<'_>) -> Result<Walk> {
        Ok(Walk {
            grammar,
            topics_left: reader.array_length(grammar.flexible)?,
            at: reader.position(),
            partitions_left: None,
        })
    }

    fn next(&mut self, content: &[u8]) -> Result<Step> {
        let Grammar { flexible, .. } = self.grammar;
        let mut reader = Reader::at(content, self.at);
        let at = self.at;
        let step = match (self.partitions_left, self.topics_left) {
            (None, 0) => return Ok(Step::End),
            (None, _) => {
                self.grammar.topic_bytes(&mut reader)?;
                let count = reader.array_length(flexible)?;
                self.topics_left -= 1;
                self.partitions_left = Some(count);
                Step::Topic { at, count }
            }
            (Some(0), _) => {
                reader.skip_tags(flexible)?;
                self.partitions_left = None;
                Step::EndOfTopic
            }
            (Some(left), _) => {
                self.grammar.skip_partition(&mut reader)?;
                self.partitions_left = Some(left - 1);
                Step::Partition { at }
            }
        };
        self.at = reader.position();
        Ok(step)
    }
}

impl Grammar {
    /// The topic's name, or its id, as bytes.
    fn topic_bytes<'a>(&self, reader: &mut Reader<'a>) -> Result<&'a [u8]> {
        if self.by_id {
            reader.take(size_of::<crate::uuid::Uuid>())
        } else {
            reader.string_bytes(self.flexible)
        }
    }

    fn skip_partition(&self, reader: &mut Reader<'_>) -> Result<()> {
        reader.take(self.partition_bytes)?;
        if self.has_records {
            reader.nullable_bytes(self.flexible)?;
        }
        reader.skip_tags(self.flexible)
    }

    /// A request names more than so many topics and partitions, all together. Errors: it cannot be
    /// read. `reader` stands at the list of topics.
    pub fn names_more_than(
        &self,
        most: usize,
        reader: &Reader<'_>,
        content: &[u8],
    ) -> Result<bool> {
        let mut walk = Walk::new(*self, reader.clone())?;
        for _ in 0..=2 * most {
            if matches!(walk.next(content)?, Step::End) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The part of a request that is answered from its frame alone, noted while it is read.
pub struct Marks {
    marked: Bits,
    pub count: usize,
    denied: Vec<u32>,
}

impl Marks {
    /// Notes for a request whose content has so many bytes.
    pub fn new(content_bytes: usize) -> Marks {
        Marks {
            marked: Bits::new(content_bytes),
            count: 0,
            denied: Vec::new(),
        }
    }

    /// A partition that stands here.
    pub fn mark(&mut self, partition_at: usize) {
        self.marked.set(partition_at);
        self.count += 1;
    }

    /// The caller may not do what it asks to do to the topic that stands here. In order.
    pub fn deny(&mut self, topic_at: usize) {
        self.denied.push(place(topic_at));
    }

    /// All partitions of a request. `reader` stands at the list of topics.
    pub fn mark_all(&mut self, grammar: Grammar, reader: &Reader<'_>, kept: &Kept) -> Result<()> {
        let mut walk = Walk::new(grammar, reader.clone())?;
        self.count = 0;
        loop {
            match walk.next(kept.bytes())? {
                Step::Partition { at } => self.mark(at),
                Step::End => return Ok(()),
                _ => {}
            }
        }
    }
}

/// A place in a frame, which is no longer than its size can say.
fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// A partition that is answered from its frame.
pub struct Marked<'a> {
    pub topic: &'a TopicRef,
    /// The caller may not do what it asks to do to the topic.
    pub is_denied: bool,
    /// A reader that stands at its index.
    pub partition: Reader<'a>,
    /// The request names it again.
    pub is_repeated: bool,
}

/// The way in which one partition is answered.
pub trait Rule: Send + Sync {
    fn write(&self, writer: &mut Writer, marked: Marked<'_>) -> Result<()>;
}

/// The treatment of what is named more than once, and of topics without partitions.
#[derive(Clone, Copy)]
pub struct Customs {
    pub answers_once: bool,
    pub answers_empty_topics: bool,
}

/// The part of an answer that is made from the frame, and how many topics are in it.
pub struct Rest {
    pub later: Later,
    pub topics: usize,
}

struct Plan {
    kept: Kept,
    image: Arc<Image>,
    marked: Bits,
    repeated: Bits,
    denied: Vec<u32>,
    /// Topics of whose partitions not all are marked, and how many are; in order.
    counts: Vec<(u32, u32)>,
    customs: Customs,
}

impl Marks {
    /// The answer to what is marked. `reader` stands at the list of topics; the request has
    /// been read without an error.
    pub fn rest(
        self,
        grammar: Grammar,
        reader: &Reader<'_>,
        kept: &Kept,
        image: &Arc<Image>,
        customs: Customs,
        rule: impl Rule + 'static,
    ) -> Result<Rest> {
        let walk = Walk::new(grammar, reader.clone())?;
        let mut plan = Plan {
            kept: kept.clone(),
            image: image.clone(),
            marked: self.marked,
            repeated: Bits::default(),
            denied: self.denied,
            counts: Vec::new(),
            customs,
        };
        if customs.answers_once {
            plan.drop_repetitions(&walk, self.count);
        }
        let topics = plan.count_topics(walk.clone())?;
        let memory_bytes = plan.kept.bytes().len()
            + plan.marked.memory_bytes()
            + plan.repeated.memory_bytes()
            + plan.counts.capacity() * size_of::<(u32, u32)>();
        let refused = Refused {
            plan: Arc::new(plan),
            rule: Arc::new(rule),
            walk,
            topic: None,
            is_denied: false,
            counts_at: 0,
            denied_at: 0,
        };
        Ok(Rest {
            later: Later::new(refused, memory_bytes)?,
            topics,
        })
    }
}

impl Plan {
    /// Leaves the first of each partition marked, and notes which of those were named again.
    fn drop_repetitions(&mut self, start: &Walk, count: usize) {
        let content = self.kept.bytes();
        let grammar = start.grammar;
        let state = RandomState::new();
        let mut repeated = Bits::new(content.len());
        let mut dropped = Bits::new(content.len());
        let marked = &self.marked;
        let go_through = |each: &mut dyn FnMut(u64, u64)| {
            let mut walk = start.clone();
            let (mut topic_at, mut topic_hash) = (0, 0);
            loop {
                match walk.next(content) {
                    Ok(Step::Topic { at, .. }) => {
                        let name = grammar.topic_bytes(&mut Reader::at(content, at));
                        topic_hash = state.hash_one(name.unwrap_or_default());
                        topic_at = u64::from(place(at)) << 32;
                    }
                    Ok(Step::Partition { at }) if marked.get(at) => {
                        let index = Reader::at(content, at).i32().unwrap_or_default();
                        let hash = state.hash_one((topic_hash, index));
                        each(hash, topic_at | u64::from(place(at)));
                    }
                    Ok(Step::End) | Err(_) => return,
                    Ok(_) => {}
                }
            }
        };
        let key = |place: u64| {
            let topic = grammar.topic_bytes(&mut Reader::at(content, (place >> 32) as usize));
            let index = Reader::at(content, place as u32 as usize).i32();
            (topic.unwrap_or_default(), index.unwrap_or_default())
        };
        find(
            count,
            REPETITIONS_BYTES_FREE + content.len(),
            go_through,
            |one, other| key(one) == key(other),
            |first, later| {
                repeated.set(first as u32 as usize);
                dropped.set(later as u32 as usize);
            },
        );
        self.marked.clear_all(&dropped);
        self.repeated = repeated;
    }

    /// Notes how many partitions of each topic are marked; how many topics are answered.
    fn count_topics(&mut self, mut walk: Walk) -> Result<usize> {
        let (mut topics, mut topic, mut marked) = (0, (0, 0), 0);
        loop {
            match walk.next(self.kept.bytes())? {
                Step::Topic { at, count } => (topic, marked) = ((at, count), 0),
                Step::Partition { at } => marked += usize::from(self.marked.get(at)),
                Step::EndOfTopic => {
                    let (at, count) = topic;
                    if marked != count {
                        self.counts.push((place(at), place(marked)));
                    }
                    topics += usize::from(self.is_answered(marked, count));
                }
                Step::End => return Ok(topics),
            }
        }
    }

    /// A topic is, with so many partitions marked of those that it has.
    fn is_answered(&self, marked: usize, count: usize) -> bool {
        marked > 0 || count == 0 && self.customs.answers_empty_topics
    }
}

/// The answer to what is marked, made slice by slice.
#[derive(Clone)]
struct Refused {
    plan: Arc<Plan>,
    rule: Arc<dyn Rule>,
    walk: Walk,
    /// That is being answered.
    topic: Option<Arc<TopicRef>>,
    is_denied: bool,
    counts_at: usize,
    denied_at: usize,
}

impl Refused {
    fn begin_topic(&mut self, at: usize, count: usize, writer: &mut Writer) -> Result<()> {
        let Grammar {
            by_id, flexible, ..
        } = self.walk.grammar;
        let plan = &self.plan;
        let marked = match plan.counts.get(self.counts_at) {
            Some((topic_at, marked)) if *topic_at == place(at) => {
                self.counts_at += 1;
                *marked as usize
            }
            _ => count,
        };
        self.is_denied = plan.denied.get(self.denied_at) == Some(&place(at));
        self.denied_at += usize::from(self.is_denied);
        self.topic = None;
        if plan.is_answered(marked, count) {
            let mut reader = plan.kept.reader_at(at);
            let topic = TopicRef::read(&mut reader, by_id, flexible, &plan.image)?;
            topic.write(writer, by_id, flexible);
            writer.array_length(marked, flexible);
            self.topic = Some(Arc::new(topic));
        }
        Ok(())
    }
}

impl Slices for Refused {
    fn next(&mut self, bytes: &mut Vec<u8>) -> Result<bool> {
        let plan = self.plan.clone();
        let content = plan.kept.bytes();
        let mut writer = Writer {
            bytes: std::mem::take(bytes),
        };
        let until = (writer.bytes.len() + SLICE_BYTES, self.walk.at + SLICE_BYTES);
        let mut goes_on = true;
        while goes_on && writer.bytes.len() < until.0 && self.walk.at < until.1 {
            match self.walk.next(content)? {
                Step::Topic { at, count } => self.begin_topic(at, count, &mut writer)?,
                Step::Partition { at } => {
                    if let Some(topic) = self.topic.as_ref().filter(|_| plan.marked.get(at)) {
                        let marked = Marked {
                            topic,
                            is_denied: self.is_denied,
                            partition: Reader::at(content, at),
                            is_repeated: plan.repeated.get(at),
                        };
                        self.rule.write(&mut writer, marked)?;
                    }
                }
                Step::EndOfTopic if self.topic.is_some() => {
                    writer.no_tags(self.walk.grammar.flexible);
                }
                Step::EndOfTopic => {}
                Step::End => goes_on = false,
            }
        }
        *bytes = writer.bytes;
        Ok(goes_on)
    }
}

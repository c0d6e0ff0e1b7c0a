//! A large Metadata request: topics that there are come first in its answer, each once; those that
//! there are not are made of the frame as it leaves.

use std::collections::HashSet;
use std::sync::Arc;

use ahash::RandomState;

use super::answer;
use super::request::{self, Asked, Flags};
use crate::access::{Caller, Identity};
use crate::api::chunk::Chunk;
use crate::api::handler::Ask;
use crate::api::large::repetitions::{Bits, find};
use crate::api::large::{Kept, Later, Slices};
use crate::error::Result;
use crate::image::Image;
use crate::limits::{CREATED_TOPICS_MAX, REPETITIONS_BYTES_FREE, SLICE_BYTES};
use crate::wire::{Reader, RequestHeader, Writer};

/// Goes through the topics of a request.
#[derive(Clone)]
struct Walk {
    header: RequestHeader<'static>,
    at: usize,
    left: usize,
}

impl Walk {
    /// The next topic and where it stands; `None` behind the last.
    fn next<'a>(&mut self, content: &'a [u8]) -> Result<Option<(usize, Asked<'a>)>> {
        if self.left == 0 {
            return Ok(None);
        }
        let at = self.at;
        let mut reader = Reader::at(content, at);
        let asked = request::read_topic(&self.header, &mut reader)?;
        (self.at, self.left) = (reader.position(), self.left - 1);
        Ok(Some((at, asked)))
    }

    fn each<'a>(mut self, content: &'a [u8], mut each: impl FnMut(usize, Asked<'a>)) -> Result<()> {
        while let Some((at, asked)) = self.next(content)? {
            each(at, asked);
        }
        Ok(())
    }
}

/// A large request that has been read.
pub struct Large<'a> {
    kept: &'a Kept,
    /// `None`: all topics.
    walk: Option<Walk>,
    flags: Flags,
    /// Some topic has an id, so that only ids count.
    has_ids: bool,
    refusal: Option<i16>,
}

impl<'a> Large<'a> {
    /// `reader` stands behind the header; the request's content is `kept`.
    pub fn read(
        header: &RequestHeader<'_>,
        mut reader: Reader<'a>,
        kept: &'a Kept,
    ) -> Result<Large<'a>> {
        let header = RequestHeader {
            api_key: header.api_key,
            api_version: header.api_version,
            correlation_id: header.correlation_id,
            client_id: None,
            flexible: header.flexible,
        };
        let mut walk = None;
        let (mut has_ids, mut is_early_nothing, mut has_nothing) = (false, false, false);
        if let Some(left) = request::read_count(&header, &mut reader)? {
            let at = reader.position();
            let mut going = walk.insert(Walk { header, at, left }).clone();
            while let Some((_, asked)) = going.next(kept.bytes())? {
                has_ids |= asked.has_id();
                is_early_nothing |= asked.has_id() || asked.name.is_none();
                has_nothing |= !asked.has_id() && asked.name.is_none();
            }
            reader = kept.reader_at(going.at);
        }
        let flags = Flags::read(&header, &mut reader)?;
        let refusal = request::refusal_of(&header, is_early_nothing, has_ids, has_nothing);
        Ok(Large {
            kept,
            walk,
            flags,
            has_ids,
            refusal,
        })
    }

    /// Tells what Python is to make before this is answered: the body of a request that names only
    /// that. `None`: nothing, or more than is made at once.
    pub fn missing(&self, ask: &Ask<'_>) -> Result<Option<Vec<u8>>> {
        let Some(walk) = self.walk.as_ref().filter(|_| self.flags.allows_creation) else {
            return Ok(None);
        };
        let mut missing: HashSet<&str> = HashSet::new();
        if !self.has_ids {
            let mut walk = walk.clone();
            while missing.len() <= CREATED_TOPICS_MAX
                && let Some((_, asked)) = walk.next(self.kept.bytes())?
            {
                missing.extend(asked.missing_name(ask));
            }
        }
        let is_made = (1..=CREATED_TOPICS_MAX).contains(&missing.len());
        Ok(is_made.then(|| request::request_of(&walk.header, &missing)))
    }

    /// The answer; `None` where all topics are meant. `creates` as in `k03_metadata::answer`.
    pub fn answer(
        self,
        ask: &Ask<'_>,
        image: &Arc<Image>,
        creates: bool,
    ) -> Result<Option<Vec<Chunk>>> {
        let Some(walk) = self.walk else {
            return Ok(None);
        };
        let header = walk.header;
        let content = self.kept.bytes();
        let mut first = Firsts::new(self.has_ids, content.len());
        let creates = creates && self.flags.allows_creation;
        let mut writer;
        if self.refusal.is_some() {
            first.mark_all(&walk, content)?;
            writer = answer::begin_refusal(&header, first.count);
        } else {
            first.mark(&walk, content)?;
            writer = answer::begin_answer(&header, image, ask.caller.listener);
            writer.array_length(first.count, header.flexible);
            // What is answered here is not left for later.
            let mut known = Bits::new(content.len());
            walk.clone().each(content, |at, asked| {
                if !first.bits.get(at) {
                    return;
                }
                let asked = asked.counted(self.has_ids);
                if let Ok(topic) = super::find(ask, &asked, creates) {
                    known.set(at);
                    let listener = ask.caller.listener;
                    let operations = self.flags.topic_operations(ask, &topic.name);
                    answer::write_topic(&mut writer, &header, topic, image, listener, operations);
                }
            })?;
            first.bits.clear_all(&known);
        }
        let memory_bytes = content.len() + first.bits.memory_bytes();
        let unknown = Unknown {
            kept: self.kept.clone(),
            marked: Arc::new(first.bits),
            walk,
            has_ids: self.has_ids,
            refusal: self.refusal,
            flags: self.flags,
            creates,
            asker: Asker::new(ask, image),
        };
        let mut tail = Writer::default();
        self.flags.write_tail(&mut tail, &header, ask, self.refusal);
        Ok(Some(vec![
            Chunk::Bytes(writer.bytes),
            Chunk::Later(Later::new(unknown, memory_bytes)?),
            Chunk::Bytes(tail.bytes),
        ]))
    }
}

/// Topics that are answered: each where it stands first.
struct Firsts {
    bits: Bits,
    count: usize,
    has_ids: bool,
}

impl Firsts {
    fn new(has_ids: bool, content_bytes: usize) -> Firsts {
        Firsts {
            bits: Bits::new(content_bytes),
            count: 0,
            has_ids,
        }
    }

    /// A topic counts at all.
    fn counts(&self, asked: &Asked<'_>) -> bool {
        !self.has_ids || asked.has_id()
    }

    fn mark_all(&mut self, walk: &Walk, content: &[u8]) -> Result<()> {
        self.count = walk.left;
        walk.clone().each(content, |at, _| self.bits.set(at))
    }

    fn mark(&mut self, walk: &Walk, content: &[u8]) -> Result<()> {
        let mut marked = 0;
        walk.clone().each(content, |at, asked| {
            if self.counts(&asked) {
                self.bits.set(at);
                marked += 1;
            }
        })?;
        let state = RandomState::new();
        let mut repeated = Bits::new(content.len());
        let key = |asked: &Asked<'_>| {
            if self.has_ids {
                state.hash_one(asked.id)
            } else {
                state.hash_one(asked.name)
            }
        };
        let topic_at = |place: u64| {
            let mut reader = Reader::at(content, place as usize);
            let asked = request::read_topic(&walk.header, &mut reader);
            asked.map(|asked| asked.counted(self.has_ids)).ok()
        };
        let mut dropped = 0;
        find(
            marked,
            REPETITIONS_BYTES_FREE + content.len(),
            |each| {
                // It has been read without an error.
                let _ = walk.clone().each(content, |at, asked| {
                    if self.counts(&asked) {
                        each(key(&asked), at as u64);
                    }
                });
            },
            |one, other| topic_at(one) == topic_at(other),
            |_, later| {
                let later = later as usize;
                dropped += usize::from(!repeated.get(later));
                repeated.set(later);
            },
        );
        self.bits.clear_all(&repeated);
        self.count = marked - dropped;
        Ok(())
    }
}

/// The topics that there are not, slice by slice.
#[derive(Clone)]
struct Unknown {
    kept: Kept,
    marked: Arc<Bits>,
    walk: Walk,
    has_ids: bool,
    refusal: Option<i16>,
    flags: Flags,
    creates: bool,
    asker: Asker,
}

/// The client that asks, kept until the answer has left: judged by the image of the
/// request, the same each time.
#[derive(Clone)]
struct Asker {
    image: Arc<Image>,
    identity: Arc<Identity>,
    client_id: Option<Arc<str>>,
    listener: usize,
}

impl Asker {
    fn new(ask: &Ask<'_>, image: &Arc<Image>) -> Asker {
        Asker {
            image: image.clone(),
            identity: Arc::new(ask.caller.identity.clone()),
            client_id: ask.caller.client_id.map(Into::into),
            listener: ask.caller.listener,
        }
    }

    fn ask(&self) -> Ask<'_> {
        Ask {
            image: &self.image,
            caller: Caller {
                identity: &self.identity,
                client_id: self.client_id.as_deref(),
                listener: self.listener,
            },
        }
    }
}

impl Slices for Unknown {
    fn next(&mut self, bytes: &mut Vec<u8>) -> Result<bool> {
        let kept = self.kept.clone();
        let mut writer = Writer {
            bytes: std::mem::take(bytes),
        };
        let until = (writer.bytes.len() + SLICE_BYTES, self.walk.at + SLICE_BYTES);
        let mut goes_on = true;
        while goes_on && writer.bytes.len() < until.0 && self.walk.at < until.1 {
            match self.walk.next(kept.bytes())? {
                Some((at, asked)) if self.marked.get(at) => self.write(&mut writer, asked),
                Some(_) => {}
                None => goes_on = false,
            }
        }
        *bytes = writer.bytes;
        Ok(goes_on)
    }
}

impl Unknown {
    fn write(&self, writer: &mut Writer, asked: Asked<'_>) {
        let header = &self.walk.header;
        if let Some(error_code) = self.refusal {
            return answer::write_refused(writer, header, &asked, error_code);
        }
        let asked = asked.counted(self.has_ids);
        let ask = self.asker.ask();
        let Err(error_code) = super::find(&ask, &asked, self.creates) else {
            unreachable!("a topic that there is has been answered");
        };
        answer::write_unknown(writer, header, &asked, error_code, (&self.flags, &ask));
    }
}

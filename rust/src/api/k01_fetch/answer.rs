//! What a Fetch request is answered: chunks in order, the records being ranges of segment files.

use super::{Fetch, FetchPartition, Looked, Part};
use crate::api::fetch_sessions::{Context, FetchSessions, Member, NO_SESSION, Said, TopicKey};
use crate::api::{Chunk, code, write_node_endpoints};
use crate::image::Image;
use crate::wire::header::begin_response;
use crate::wire::{Writer, frame};

const LEADERS_SINCE: i16 = 16;
/// Tags of a partition in the answer.
const DIVERGING_EPOCH_TAG: u32 = 0;
const CURRENT_LEADER_TAG: u32 = 1;
/// Tag of the node endpoints at the top of the answer.
const NODE_ENDPOINTS_TAG: u32 = 0;

impl Fetch {
    /// The answer to a client that has to wait so long: nothing, and its session stays as it is.
    pub fn throttled_answer(&self, throttle_ms: u32) -> Vec<Chunk> {
        let session_id = match self.context {
            Context::Incremental { id, .. } => id,
            _ => NO_SESSION,
        };
        let mut writer = self.begin(throttle_ms, code::NONE, session_id);
        writer.array_length(0, self.flexible);
        writer.no_tags(self.flexible);
        frame::finish(&mut writer.bytes, 0);
        vec![Chunk::Bytes(writer.bytes)]
    }

    /// The response, as chunks in order. Brings the session up to date.
    pub fn answer(
        &self,
        looked: Looked,
        sessions: &FetchSessions,
        image: &Image,
        now_ms: u64,
    ) -> Vec<Chunk> {
        let said: Vec<(&Member, Said)> = self
            .partitions
            .iter()
            .zip(&looked.parts)
            .map(|(asked, part)| (&asked.member, part.said()))
            .collect();
        let told = sessions.tell(&self.context, &said, now_ms);
        let answered: Vec<(&FetchPartition, Part)> = self
            .partitions
            .iter()
            .zip(looked.parts)
            .zip(&told.is_included)
            .filter_map(|(each, is_included)| is_included.then_some(each))
            .collect();
        let mut leaders = Vec::new();
        if self.version >= LEADERS_SINCE {
            leaders.extend(answered.iter().filter_map(|(asked, part)| {
                self.current_leader(asked, part)
                    .map(|(leader_id, _)| leader_id)
            }));
            leaders.sort_unstable();
            leaders.dedup();
        }
        let mut writer = self.begin(0, told.error_code, told.session_id);
        let mut chunks = Vec::new();
        self.write_topics(&mut writer, answered, &mut chunks);
        self.write_endpoints(&mut writer, &leaders, image);
        chunks.push(Chunk::Bytes(writer.bytes));
        let total: usize = chunks.iter().map(Chunk::size_bytes).sum();
        if let Some(Chunk::Bytes(first)) = chunks.first_mut() {
            let rest_bytes = total - first.len();
            frame::finish(first, rest_bytes);
        }
        chunks
    }

    fn begin(&self, throttle_ms: u32, error_code: i16, session_id: i32) -> Writer {
        let mut writer = begin_response(self.correlation_id, self.flexible, 128);
        writer.i32(i32::try_from(throttle_ms).unwrap_or(i32::MAX));
        if self.version >= 7 {
            writer.i16(error_code);
            writer.i32(session_id);
        }
        writer
    }

    /// Neighbours of one topic share its entry.
    fn write_topics(
        &self,
        writer: &mut Writer,
        answered: Vec<(&FetchPartition, Part)>,
        chunks: &mut Vec<Chunk>,
    ) {
        let topic_of = |asked: &FetchPartition| -> TopicKey { asked.member.key.0.clone() };
        let mut groups: Vec<(TopicKey, usize)> = Vec::new();
        for (asked, _) in &answered {
            match groups.last_mut() {
                Some((topic, count)) if *topic == asked.member.key.0 => *count += 1,
                _ => groups.push((topic_of(asked), 1)),
            }
        }
        writer.array_length(groups.len(), self.flexible);
        let mut answered = answered.into_iter();
        for (topic, count) in groups {
            match &topic {
                TopicKey::Id(id) => writer.uuid(id),
                TopicKey::Name(name) => writer.string(name, self.flexible),
            }
            writer.array_length(count, self.flexible);
            for (asked, part) in answered.by_ref().take(count) {
                self.write_partition(writer, asked, &part);
                let leader = self.current_leader(asked, &part);
                let diverging = part.diverging;
                let range = part.range.filter(|range| !range.is_empty());
                if let (Some(range), Some(partition)) = (range, &asked.partition) {
                    chunks.push(Chunk::Bytes(std::mem::take(&mut writer.bytes)));
                    chunks.push(Chunk::File(range, partition.directory.clone()));
                }
                self.write_partition_tags(writer, diverging, leader);
            }
            writer.no_tags(self.flexible);
        }
    }

    /// All of a partition up to the records themselves.
    fn write_partition(&self, writer: &mut Writer, asked: &FetchPartition, part: &Part) {
        let (version, flexible) = (self.version, self.flexible);
        writer.i32(asked.member.key.1);
        writer.i16(part.error_code);
        writer.i64(part.high_watermark);
        writer.i64(part.last_stable_offset);
        if version >= 5 {
            writer.i64(part.log_start_offset);
        }
        writer.nullable_length(part.aborted.as_ref().map(Vec::len), flexible);
        for aborted in part.aborted.iter().flatten() {
            writer.i64(aborted.producer_id);
            writer.i64(aborted.first_offset);
            writer.no_tags(flexible);
        }
        if version >= 11 {
            // Preferred read replica: none.
            writer.i32(-1);
        }
        writer.nullable_length(Some(part.size_bytes() as usize), flexible);
    }

    fn write_partition_tags(
        &self,
        writer: &mut Writer,
        diverging: Option<(i32, i64)>,
        leader: Option<(i32, i32)>,
    ) {
        if !self.flexible {
            return;
        }
        writer.uvarint(u32::from(diverging.is_some()) + u32::from(leader.is_some()));
        if let Some((epoch, end_offset)) = diverging {
            writer.tag(DIVERGING_EPOCH_TAG, |field| {
                field.i32(epoch);
                field.i64(end_offset);
                field.no_tags(true);
            });
        }
        if let Some((leader_id, leader_epoch)) = leader {
            writer.tag(CURRENT_LEADER_TAG, |field| {
                field.i32(leader_id);
                field.i32(leader_epoch);
                field.no_tags(true);
            });
        }
    }

    /// Leader and epoch for a client that had them wrong.
    fn current_leader(&self, asked: &FetchPartition, part: &Part) -> Option<(i32, i32)> {
        let is_wrong = matches!(
            part.error_code,
            code::NOT_LEADER_OR_FOLLOWER | code::FENCED_LEADER_EPOCH
        );
        let partition = asked.partition.as_ref()?;
        (is_wrong && self.version >= LEADERS_SINCE)
            .then_some((partition.leader_id, partition.leader_epoch))
    }

    fn write_endpoints(&self, writer: &mut Writer, leaders: &[i32], image: &Image) {
        write_node_endpoints(
            writer,
            self.flexible,
            NODE_ENDPOINTS_TAG,
            leaders,
            image,
            self.listener,
        );
    }
}

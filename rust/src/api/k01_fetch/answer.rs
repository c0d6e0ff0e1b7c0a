//! The answer to a Fetch request: chunks in order, the records being ranges of segment files.

use super::fetch::{Fetch, FetchPartition, FetchRead, Part};
use crate::api::chunk::{Chunk, put_rest};
use crate::api::fetch_sessions::{Context, FetchSessions, Member, NO_SESSION, Said, TopicKey};
use crate::api::leader::{current_leader, write_current_leader, write_node_endpoints};
use crate::codes;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::limits::{ANSWER_BYTES_MAX, BATCH_BYTES_MAX};
use crate::wire::Writer;
use crate::wire::header::begin_response;

const LEADERS_SINCE: i16 = 16;
/// Tags of a partition in the answer.
const DIVERGING_EPOCH_TAG: u32 = 0;
const CURRENT_LEADER_TAG: u32 = 1;
/// Tag of the node endpoints at the top of the answer.
const NODE_ENDPOINTS_TAG: u32 = 0;

/// The most that the parts of an answer take, in the version in which they take most, bytes: a
/// partition without its records, an entry of a topic without its name, and what there is once, in
/// which the endpoints of leaders are.
const PARTITION_BYTES: u64 = 72;
const TOPIC_BYTES: u64 = 32;
const ENVELOPE_BYTES: u64 = 64 * 1024;
/// Bytes that an answer of these partitions takes at most, without what it says of their contents.
pub(super) fn frame_bytes(partitions: &[FetchPartition]) -> u64 {
    let mut frame_bytes = ENVELOPE_BYTES + partitions.len() as u64 * PARTITION_BYTES;
    let mut before = None;
    for asked in partitions {
        let topic = Some(&asked.member.key.0);
        // Each entry of a topic ends where the next partition is another one's.
        if topic != std::mem::replace(&mut before, topic) {
            frame_bytes += TOPIC_BYTES;
            if let TopicKey::Name(name) = &asked.member.key.0 {
                frame_bytes += name.len() as u64;
            }
        }
    }
    frame_bytes
}

/// The bytes that are left in the largest frame for records and lists of aborted transactions.
///
/// Errors: `MalformedRequest` where that may be too little for a batch, which is then never read:
/// so many partitions, millions, are not asked for.
pub(super) fn content_bytes_max(frame_bytes: u64) -> Result<u64> {
    let left_bytes = (ANSWER_BYTES_MAX as u64).saturating_sub(frame_bytes);
    if left_bytes >= BATCH_BYTES_MAX as u64 {
        Ok(left_bytes)
    } else {
        Err(Error::MalformedRequest(format!(
            "a Fetch whose partitions alone may take {frame_bytes} bytes in the answer"
        )))
    }
}

impl Fetch {
    /// The answer to a client that has to wait so long: nothing, and its session stays as it is.
    pub fn throttled_answer(&self, throttle_ms: u32) -> Vec<Chunk> {
        let session_id = match self.context {
            Context::Incremental { id, .. } => id,
            _ => NO_SESSION,
        };
        let mut writer = self.begin(throttle_ms, codes::NONE, session_id);
        writer.array_length(0, self.flexible);
        writer.no_tags(self.flexible);
        vec![Chunk::Bytes(writer.bytes)]
    }

    /// The response, as chunks in order, once. Brings the session up to date.
    pub fn answer(
        &mut self,
        fetch_read: FetchRead,
        sessions: &FetchSessions,
        image: &Image,
        now_ms: u64,
    ) -> Vec<Chunk> {
        assert!(fetch_read.lacking_bytes == 0, "they are copied first");
        let said: Vec<(&Member, Said)> = self
            .partitions
            .iter()
            .zip(&fetch_read.parts)
            .map(|(asked, part)| (&asked.member, part.said()))
            .collect();
        let rest = self.rest.take();
        let told = sessions.tell(&self.context, &said, now_ms);
        let answered: Vec<(&FetchPartition, Part)> = self
            .partitions
            .iter()
            .zip(fetch_read.parts)
            .zip(&told.is_included)
            .filter_map(|(each, is_included)| is_included.then_some(each))
            .collect();
        let mut leaders = Vec::new();
        if self.version >= LEADERS_SINCE {
            leaders.extend(answered.iter().filter_map(|(asked, part)| {
                self.current_leader(asked, part, image)
                    .map(|(leader_id, _)| leader_id)
            }));
        }
        let mut writer = self.begin(0, told.error_code, told.session_id);
        let mut chunks = Vec::new();
        let of_rest = rest.as_ref().map_or(0, |rest| rest.topics);
        self.write_topics(&mut writer, answered, of_rest, (image, now_ms), &mut chunks);
        put_rest(&mut writer, rest, &mut chunks);
        write_node_endpoints(
            &mut writer,
            self.flexible,
            NODE_ENDPOINTS_TAG,
            &leaders,
            image,
            self.listener,
        );
        chunks.push(Chunk::Bytes(writer.bytes));
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

    /// Neighbours of one topic share its entry. So many topics follow that are not among them.
    fn write_topics(
        &self,
        writer: &mut Writer,
        answered: Vec<(&FetchPartition, Part)>,
        further: usize,
        (image, now_ms): (&Image, u64),
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
        writer.array_length(groups.len() + further, self.flexible);
        let now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
        let mut answered = answered.into_iter();
        for (topic, count) in groups {
            match &topic {
                TopicKey::Id(id) => writer.uuid(id),
                TopicKey::Name(name) => writer.string(name, self.flexible),
            }
            writer.array_length(count, self.flexible);
            for (asked, part) in answered.by_ref().take(count) {
                let version = (self.version, self.flexible);
                write_partition(writer, version, asked.member.key.1, &part);
                let leader = self.current_leader(asked, &part, image);
                let diverging = part.diverging;
                let range = part.range.filter(|range| !range.is_empty());
                if let (Some(range), Some(partition)) = (range, &asked.partition) {
                    partition.log.traffic().note_fetched(range.length_bytes);
                    if self.is_of_follower() {
                        partition.note_sent(range.length_bytes, now_ms);
                    }
                    chunks.push(Chunk::Bytes(std::mem::take(&mut writer.bytes)));
                    chunks.push(match range.into_copy() {
                        Ok(bytes) => Chunk::Bytes(bytes),
                        Err(range) => Chunk::File(range, partition.directory().clone()),
                    });
                }
                self.write_partition_tags(writer, diverging, leader);
            }
            writer.no_tags(self.flexible);
        }
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
        if let Some(leader) = leader {
            write_current_leader(writer, CURRENT_LEADER_TAG, leader);
        }
    }

    /// Leader and epoch for a client that had them wrong.
    fn current_leader(
        &self,
        asked: &FetchPartition,
        part: &Part,
        image: &Image,
    ) -> Option<(i32, i32)> {
        let is_wrong = matches!(
            part.error_code,
            codes::NOT_LEADER_OR_FOLLOWER | codes::FENCED_LEADER_EPOCH
        );
        if !is_wrong || self.version < LEADERS_SINCE {
            return None;
        }
        let topic_id = match &asked.member.key.0 {
            TopicKey::Id(id) => *id,
            TopicKey::Name(name) => image.topic(name)?.id,
        };
        Some(current_leader(image, &topic_id, asked.member.key.1))
    }
}

/// All of a partition up to the records themselves.
pub(super) fn write_partition(
    writer: &mut Writer,
    (version, flexible): (i16, bool),
    index: i32,
    part: &Part,
) {
    writer.i32(index);
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
        writer.i32(part.preferred_read_replica.unwrap_or(-1));
    }
    writer.nullable_length(Some(part.size_bytes() as usize), flexible);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::fetch_sessions::Wanted;
    use crate::codes;
    use crate::log::read::ReadIsolation;
    use crate::log::state::producers::AbortedTransaction;
    use crate::uuid::Uuid;

    fn asked(key: TopicKey, index: i32) -> FetchPartition {
        let wanted = Wanted {
            fetch_offset: 0,
            max_bytes: 1,
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
            log_start_offset: -1,
        };
        let member = Member {
            key: (key, index),
            name: None,
            wanted,
        };
        FetchPartition {
            member,
            error_code: codes::NONE,
            partition: None,
        }
    }

    fn part(aborted: usize) -> Part {
        let transaction = AbortedTransaction {
            producer_id: i64::MAX,
            first_offset: i64::MAX,
            last_offset: i64::MAX,
            last_stable_offset: i64::MAX,
        };
        Part {
            diverging: Some((i32::MAX, i64::MAX)),
            aborted: Some(vec![transaction; aborted]),
            ..Part::refused(codes::NONE)
        }
    }

    fn answered(version: i16, partitions: Vec<FetchPartition>, aborted: usize) -> u64 {
        let fetch_read = FetchRead {
            parts: partitions.iter().map(|_| part(aborted)).collect(),
            ..FetchRead::default()
        };
        let mut fetch = Fetch {
            version,
            flexible: version >= 12,
            correlation_id: 1,
            max_wait_ms: 0,
            min_bytes: 0,
            max_bytes: 0,
            content_bytes_max: 0,
            isolation: ReadIsolation::LastStable,
            listener: 0,
            context: Context::Sessionless,
            readable: partitions.len(),
            follower: None,
            rack: Box::default(),
            is_parked: false,
            partitions,
            body_bytes: 0,
            rest: None,
            rest_bytes: 0,
        };
        let chunks = fetch.answer(fetch_read, &FetchSessions::new(0, 0), &Image::default(), 0);
        chunks.iter().map(|chunk| chunk.size_bytes() as u64).sum()
    }

    /// A Fetch of almost 2 GiB: records filled the frame, its headers had no room, and the network
    /// thread died of a size that is no i32.
    #[test]
    fn what_an_answer_takes_beside_its_contents_is_known_before_anything_is_read() {
        /// Bytes of the tag that names a leader, which no part here has.
        const LEADER_BYTES: u64 = 11;
        let name = |name: &str| TopicKey::Name(name.into());
        for version in 4..=18 {
            let keys = match version {
                13.. => [TopicKey::Id(Uuid([1; 16])), TopicKey::Id(Uuid([2; 16]))],
                _ => [name("a"), name(&"long".repeat(50))],
            };
            // By turns, so that each has an entry of its topic.
            let partitions = || (0..600).map(|at| asked(keys[at % 2].clone(), at as i32));
            let foreseen = frame_bytes(&partitions().collect::<Vec<_>>());
            let taken = answered(version, partitions().collect(), 3) - 600 * 3 * 16;
            let of_leaders = 600 * LEADER_BYTES;
            assert!(taken + of_leaders <= foreseen, "version {version}: {taken}");
            assert!(foreseen < 2 * taken + ENVELOPE_BYTES, "version {version}");
        }
    }

    #[test]
    fn a_frame_has_room_for_a_batch_or_the_request_is_refused() {
        for (partitions, expected) in [
            (0, Some(i32::MAX as u64 - 65_536)),
            (1_000, Some(i32::MAX as u64 - 65_536 - 104_000)),
            (10_323_000, Some(1_073_826_111)),
            (11_000_000, None),
            (u64::MAX / 104 - 1_000, None),
        ] {
            let frame_bytes = ENVELOPE_BYTES + partitions * (PARTITION_BYTES + TOPIC_BYTES);
            assert_eq!(content_bytes_max(frame_bytes).ok(), expected);
        }
    }
}

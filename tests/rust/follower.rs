//! A follower's session with a leader that says what the test has it say.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafkalite::batch::header::patch_offset_and_epoch;
use kafkalite::clock::Now;
use kafkalite::error::Result;
use kafkalite::log::config::{LogConfig, ThrottledReplicas};
use kafkalite::replica::follower::replicate::FetchedFrom;
use kafkalite::replica::follower::{Assignment, FollowerSession, FollowerSettings, Request};
use kafkalite::replica::{Partition, Role};
use kafkalite::uuid::Uuid;
use kafkalite::wire::Writer;
use kafkalite::wire::cursor::Reader;

use crate::fuzz_batch::run;
use crate::log::batch;
use crate::log_directory::NOW_MS;
use crate::node::{TOPIC_ID, World, append_one};

const BACKOFF_MS: i64 = 1_000;
/// Of the leader in these tests; node 1 follows.
const LEADER: i32 = 2;
const SESSION: i32 = 77;
const NOT_LEADER_OR_FOLLOWER: i16 = 6;
const OFFSET_OUT_OF_RANGE: i16 = 1;

/// What is asked of a partition in a Fetch: leader epoch, fetch offset, last fetched
/// epoch, log start offset.
type Asked = (i32, i64, i32, i64);

/// A Fetch, taken apart.
#[derive(Debug, Default, PartialEq)]
pub struct Fetch {
    session: (i32, i32),
    /// By the index of the partition, and in their order.
    pub wanted: BTreeMap<i32, Asked>,
    order: Vec<i32>,
    forgotten: Vec<i32>,
}

impl Fetch {
    pub fn read(body: &[u8]) -> Fetch {
        let mut reader = Reader::new(body);
        let mut fetch = Fetch::default();
        for _ in 0..3 {
            reader.i32().unwrap();
        }
        reader.i8().unwrap();
        fetch.session = (reader.i32().unwrap(), reader.i32().unwrap());
        for _ in 0..reader.array_length(true).unwrap() {
            assert_eq!(reader.uuid().unwrap(), TOPIC_ID);
            for _ in 0..reader.array_length(true).unwrap() {
                let index = reader.i32().unwrap();
                let leader_epoch = reader.i32().unwrap();
                let fetch_offset = reader.i64().unwrap();
                let last_epoch = reader.i32().unwrap();
                let log_start = reader.i64().unwrap();
                reader.i32().unwrap();
                reader.skip_tags(true).unwrap();
                fetch.order.push(index);
                let asked = (leader_epoch, fetch_offset, last_epoch, log_start);
                fetch.wanted.insert(index, asked);
            }
            reader.skip_tags(true).unwrap();
        }
        for _ in 0..reader.array_length(true).unwrap() {
            reader.uuid().unwrap();
            for _ in 0..reader.array_length(true).unwrap() {
                fetch.forgotten.push(reader.i32().unwrap());
            }
            reader.skip_tags(true).unwrap();
        }
        fetch
    }
}

/// What a leader answers of a partition.
#[derive(Clone)]
pub struct Part {
    index: i32,
    topic_id: Uuid,
    error_code: i16,
    high_watermark: i64,
    log_start: i64,
    diverging: Option<(i32, i64)>,
    records: Vec<u8>,
}

pub fn part(index: i32, high_watermark: i64, records: Vec<u8>) -> Part {
    Part {
        index,
        topic_id: TOPIC_ID,
        error_code: 0,
        high_watermark,
        log_start: 0,
        diverging: None,
        records,
    }
}

fn refused(index: i32, error_code: i16) -> Part {
    Part {
        error_code,
        ..part(index, -1, Vec::new())
    }
}

fn parting(index: i32, high_watermark: i64, epoch: i32, end_offset: i64) -> Part {
    Part {
        diverging: Some((epoch, end_offset)),
        ..part(index, high_watermark, Vec::new())
    }
}

pub fn answer(error_code: i16, session_id: i32, parts: &[Part]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.i32(0);
    writer.i16(error_code);
    writer.i32(session_id);
    writer.array_length(parts.len(), true);
    for part in parts {
        writer.uuid(&part.topic_id);
        writer.array_length(1, true);
        writer.i32(part.index);
        writer.i16(part.error_code);
        writer.i64(part.high_watermark);
        writer.i64(part.high_watermark);
        writer.i64(part.log_start);
        writer.nullable_length(None, true);
        writer.i32(-1);
        writer.nullable_bytes(Some(&part.records), true);
        match part.diverging {
            Some((epoch, end_offset)) => {
                writer.uvarint(1);
                writer.tag(0, |field| {
                    field.i32(epoch);
                    field.i64(end_offset);
                    field.no_tags(true);
                });
            }
            None => writer.no_tags(true),
        }
        writer.no_tags(true);
    }
    writer.no_tags(true);
    writer.bytes
}

fn listed(index: i32, offset: i64) -> Vec<u8> {
    listed_with(index, offset, 0)
}

fn listed_with(index: i32, offset: i64, error_code: i16) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.i32(0);
    writer.array_length(1, true);
    writer.string("t", true);
    writer.array_length(1, true);
    writer.i32(index);
    writer.i16(error_code);
    writer.i64(-1);
    writer.i64(offset);
    writer.i32(0);
    for _ in 0..3 {
        writer.no_tags(true);
    }
    writer.bytes
}

/// A Fetch from `fetch_offset` of a leader whose log begins at 0.
pub fn fetched_from(leader_epoch: i32, fetch_offset: i64) -> FetchedFrom {
    FetchedFrom {
        leader_epoch,
        leader_start: 0,
        fetch_offset,
    }
}

/// A batch of `count` records as a leader of `epoch` has it at `offset`.
pub fn led(offset: i64, count: i64, epoch: i32) -> Vec<u8> {
    let mut bytes = batch(offset, count);
    patch_offset_and_epoch(&mut bytes, offset, epoch);
    bytes
}

/// Both clocks say this.
pub fn at(now_ms: i64) -> Now {
    Now {
        wall_ms: now_ms,
        monotonic_ms: now_ms,
    }
}

/// Node 1, which follows broker 2 in the partitions of a topic.
struct Following {
    world: World,
    session: FollowerSession,
    told: Vec<String>,
    now_ms: i64,
}

impl Following {
    /// So many partitions, in leader epoch `epoch`.
    fn new(count: usize, epoch: i32) -> Following {
        let following = Following {
            world: World::new(&vec![(LEADER, epoch, &[1, 2][..]); count]),
            session: FollowerSession::new(settings(), LEADER),
            told: Vec::new(),
            now_ms: NOW_MS,
        };
        following.world.node.set_topic_config("t", &unflushed());
        following.assigned()
    }

    fn assigned(mut self) -> Following {
        let topic = self.world.node.image().topic("t").unwrap().clone();
        for replica in topic.replicas().filter(|each| each.role == Role::Follower) {
            self.session.assign(Assignment {
                topic_id: TOPIC_ID,
                partition: replica.clone(),
                leader_id: LEADER,
            });
        }
        self
    }

    /// The metadata says this of the topic now.
    fn publish(self, partitions: &[(i32, i32, &[i32])]) -> Following {
        self.world.publish(partitions);
        self.world.node.set_topic_config("t", &unflushed());
        self.assigned()
    }

    fn replica(&self, index: i32) -> Arc<Partition> {
        let topic = self.world.node.image().topic("t").unwrap().clone();
        topic.replica(index).unwrap().clone()
    }

    fn next(&mut self) -> Option<Request> {
        let told = &mut self.told;
        let mut tell = |sentence| told.push(sentence);
        self.session.next_request(at(self.now_ms), &mut tell)
    }

    fn fetch(&mut self) -> Fetch {
        match self.next() {
            Some(Request::Fetch(body)) => Fetch::read(&body),
            other => panic!("{other:?}"),
        }
    }

    fn take(&mut self, mut bytes: Vec<u8>) -> Result<Vec<i32>> {
        let told = &mut self.told;
        let mut tell = |sentence| told.push(sentence);
        let touched = self
            .session
            .on_answer(&mut bytes, at(self.now_ms), &mut tell)?;
        Ok(touched.iter().map(|each| each.index).collect())
    }

    /// Fetches, and has this answered. Returns what was asked.
    fn turn(&mut self, parts: &[Part]) -> Fetch {
        let fetch = self.fetch();
        self.take(answer(0, SESSION, parts)).unwrap();
        fetch
    }

    /// Start, end and high watermark of a log.
    fn offsets(&self, index: i32) -> (i64, i64, i64) {
        let offsets = self.replica(index).log.offsets();
        let (start, end) = (offsets.log_start_offset, offsets.log_end_offset);
        (start, end, offsets.high_watermark)
    }
}

pub fn settings() -> FollowerSettings {
    FollowerSettings {
        node_id: 1,
        broker_epoch: 9,
        max_wait_ms: 500,
        min_bytes: 1,
        response_bytes_max: 10 << 20,
        partition_bytes_max: 1 << 20,
        backoff_ms: BACKOFF_MS,
    }
}

/// A log that does not wait for the disk.
fn unflushed() -> LogConfig {
    LogConfig {
        acks_fsync: false,
        ..LogConfig::default()
    }
}

#[test]
fn a_session_says_only_what_its_leader_does_not_know() {
    let mut one = Following::new(2, 4);
    let first = one.turn(&[part(0, 0, led(0, 5, 4)), part(1, 0, Vec::new())]);
    assert_eq!(first.session, (0, 0));
    assert_eq!(
        first.wanted,
        BTreeMap::from([(0, (4, 0, -1, 0)), (1, (4, 0, -1, 0))])
    );
    let second = one.turn(&[part(0, 5, Vec::new())]);
    assert_eq!(second.session, (SESSION, 1));
    assert_eq!(second.wanted, BTreeMap::from([(0, (4, 5, 4, 0))]));
    // The high watermark comes one Fetch late, and is no news to the leader.
    assert_eq!(one.offsets(0), (0, 5, 5));
    let third = one.turn(&[]);
    assert_eq!((third.session, third.wanted.len()), ((SESSION, 2), 0));
    assert!(one.told.is_empty(), "{:?}", one.told);
}

/// A follower's append raised the high watermark of a log that had been alone to its end.
#[test]
fn what_a_follower_appends_is_committed_when_its_leader_says_so() {
    let mut one = Following::new(1, 4);
    one.turn(&[part(0, 3, led(0, 5, 4))]);
    assert_eq!(one.offsets(0), (0, 5, 3));
    // A lower one, of a leader that has just been elected, takes nothing back.
    one.turn(&[part(0, 1, Vec::new())]);
    assert_eq!(one.offsets(0), (0, 5, 3));
    // One beyond the own end is believed as far as there are records.
    one.turn(&[part(0, 1_000, Vec::new())]);
    assert_eq!(one.offsets(0), (0, 5, 5));
}

#[test]
fn in_durable_mode_the_high_watermark_waits_for_the_disk() {
    let mut one = Following::new(1, 4);
    one.world.node.set_topic_config("t", &LogConfig::default());
    one.turn(&[part(0, 5, led(0, 5, 4))]);
    assert_eq!(one.offsets(0), (0, 5, 0));
    one.replica(0).log.flush().unwrap();
    assert_eq!(one.offsets(0), (0, 5, 5));
}

/// KAFKA-14704: the high watermark of an answer that says where the logs part
/// was taken before the cut.
#[test]
fn a_log_is_cut_before_anything_else_of_the_answer() {
    let mut one = Following::new(1, 4);
    one.turn(&[part(0, 2, [led(0, 2, 1), led(2, 3, 3)].concat())]);
    let asked = one.turn(&[parting(0, 5, 2, 2)]);
    assert_eq!(asked.wanted[&0], (4, 5, 3, 0));
    assert_eq!(one.offsets(0), (0, 2, 2));
    let again = one.turn(&[part(0, 4, led(2, 2, 2))]);
    assert_eq!(again.wanted[&0], (4, 2, 1, 0));
    assert_eq!(one.offsets(0), (0, 4, 4));
    assert!(
        one.told.is_empty(),
        "no committed record was cut: {:?}",
        one.told
    );
}

/// A log with a batch of offsets 3 to 6 was cut at 5, where the leader's ended an epoch that was
/// unknown here: the log ended at 5 then, and what lies there began with 3.
#[test]
fn an_epoch_that_only_the_leader_has_cuts_no_batch_in_two() {
    let mut one = Following::new(1, 4);
    let own = [led(0, 3, 1), led(3, 4, 1), led(7, 1, 3)].concat();
    one.turn(&[part(0, 2, own)]);
    one.turn(&[parting(0, 2, 2, 5)]);
    assert_eq!(one.offsets(0), (0, 7, 2));
    let again = one.turn(&[parting(0, 2, 1, 3)]);
    assert_eq!(again.wanted[&0], (4, 7, 1, 0));
    assert_eq!(one.offsets(0), (0, 3, 2));
}

/// A leader that went before it had a record left an epoch without one: the next leader answered
/// that the logs part at the end, which cut nothing, for ever.
#[test]
fn an_epoch_without_a_record_is_forgotten() {
    let mut one = Following::new(1, 4);
    one.turn(&[part(0, 5, led(0, 5, 4))]);
    let one = one.publish(&[(1, 5, &[1, 2])]);
    one.replica(0).log.start_leader_epoch(5).unwrap();
    let mut one = one.publish(&[(LEADER, 6, &[1, 2])]);
    assert_eq!(one.turn(&[parting(0, 5, 4, 5)]).wanted[&0], (6, 5, 5, 0));
    let again = one.turn(&[part(0, 7, led(5, 2, 6))]);
    assert_eq!(again.wanted[&0], (6, 5, 4, 0));
    assert_eq!(one.offsets(0), (0, 7, 7));
}

/// KAFKA-19474: records below the high watermark went without a word.
#[test]
fn a_cut_below_the_high_watermark_is_told_with_its_numbers() {
    let mut one = Following::new(1, 4);
    one.turn(&[part(0, 5, led(0, 5, 4))]);
    let mut one = one.publish(&[(LEADER, 7, &[1, 2])]);
    one.turn(&[parting(0, 0, 3, 0)]);
    assert_eq!(one.offsets(0), (0, 0, 0));
    let told = one.told.join("\n");
    assert!(
        told.contains("t-0 is cut from offset 5 to 0, below its high watermark 5"),
        "{told}"
    );
}

/// KAFKA-18723: batches of a later epoch than the one that was fetched in came into the log.
#[test]
fn batches_of_a_later_epoch_are_dropped() {
    let mut one = Following::new(1, 4);
    let records = [led(0, 2, 3), led(2, 2, 4), led(4, 2, 5), led(6, 2, 4)].concat();
    one.turn(&[part(0, 8, records)]);
    assert_eq!(one.offsets(0), (0, 4, 4));
    assert_eq!(one.replica(0).log.latest_epoch(), Some(4));
}

/// KAFKA-9617: a batch that the leader had taken was too large for its follower.
#[test]
fn no_limit_of_sizes_stops_a_follower() {
    let mut one = Following::new(1, 4);
    one.world.node.set_topic_config(
        "t",
        &LogConfig {
            max_message_bytes: 100,
            segment_bytes: 3_000,
            ..unflushed()
        },
    );
    let records: Vec<Vec<u8>> = (0..6).map(|each| led(each * 20, 20, 4)).collect();
    assert!(records[0].len() > 1_000, "{}", records[0].len());
    one.turn(&[part(0, 120, records.concat())]);
    assert_eq!(one.offsets(0), (0, 120, 120));
    assert!(one.replica(0).log.segments().len() >= 3);
}

/// KAFKA-15510: an answer without records took the last fetched epoch away, and
/// with it the notice of a cut.
#[test]
fn an_answer_without_records_leaves_the_last_epoch() {
    let mut one = Following::new(1, 4);
    one.turn(&[part(0, 0, led(0, 5, 2))]);
    one.turn(&[part(0, 5, Vec::new())]);
    one.session.on_failure();
    assert_eq!(one.fetch().wanted[&0], (4, 5, 2, 0));
}

/// KAFKA-9491: a log that had started anew raised its high watermark below its start, and the
/// fetcher ended. KAFKA-7414: out of range, it ended the broker.
#[test]
fn a_follower_that_is_behind_the_leaders_log_starts_anew() {
    let mut one = Following::new(1, 4);
    one.turn(&[part(0, 5, led(0, 5, 4))]);
    one.turn(&[refused(0, OFFSET_OUT_OF_RANGE)]);
    assert!(matches!(one.next(), Some(Request::ListOffsets(_))));
    assert_eq!(one.take(listed(0, 200)).unwrap(), [0; 0]);
    assert!(matches!(one.next(), Some(Request::ListOffsets(_))));
    assert_eq!(one.take(listed(0, 100)).unwrap(), [0]);
    assert_eq!(one.offsets(0), (100, 100, 100));
    let asked = one.turn(&[part(0, 90, led(100, 5, 4))]);
    assert_eq!(asked.wanted[&0], (4, 100, -1, 100));
    assert_eq!(one.offsets(0), (100, 105, 100));
    assert!(
        one.told[0].contains("starts anew at offset 100"),
        "{:?}",
        one.told
    );
}

/// A leader that calls its own ends out of range was asked for them again without a
/// pause. One whose log begins near the largest number had the next batch add up to
/// more, and the broker ended.
#[test]
fn ends_that_no_log_has_are_asked_for_again_after_a_while() {
    for (offset, error_code) in [(-1, OFFSET_OUT_OF_RANGE), (i64::MAX - 1, 0)] {
        let mut one = Following::new(1, 4);
        one.turn(&[part(0, 5, led(0, 5, 4))]);
        one.turn(&[refused(0, OFFSET_OUT_OF_RANGE)]);
        assert!(matches!(one.next(), Some(Request::ListOffsets(_))));
        one.take(listed_with(0, offset, error_code)).unwrap();
        assert_eq!(one.session.next_due_ms(), Some(one.now_ms + BACKOFF_MS));
        assert_eq!(one.offsets(0), (0, 5, 5));
    }
}

/// KAFKA-7414: a leader whose log is shorter, after an unclean election.
#[test]
fn a_follower_that_is_ahead_of_the_leader_is_cut() {
    let mut one = Following::new(1, 4);
    one.turn(&[part(0, 3, [led(0, 3, 4), led(3, 3, 4)].concat())]);
    one.turn(&[refused(0, OFFSET_OUT_OF_RANGE)]);
    assert!(matches!(one.next(), Some(Request::ListOffsets(_))));
    one.take(listed(0, 3)).unwrap();
    assert_eq!(one.offsets(0), (0, 3, 3));
    assert_eq!(one.fetch().wanted[&0], (4, 3, 4, 0));
}

/// The leader's records were deleted up to the middle of a batch, which it sends whole.
#[test]
fn an_empty_log_takes_the_batch_in_which_it_starts() {
    let mut one = Following::new(1, 4);
    one.turn(&[refused(0, OFFSET_OUT_OF_RANGE)]);
    for offset in [10, 3] {
        assert!(matches!(one.next(), Some(Request::ListOffsets(_))));
        one.take(listed(0, offset)).unwrap();
    }
    let mut first = part(0, 10, [led(0, 5, 4), led(5, 5, 4)].concat());
    first.log_start = 3;
    one.turn(&[first]);
    assert_eq!(one.offsets(0).1, 10);
    // The leader's start is taken over before the next request says what the own one is.
    assert_eq!(one.fetch().wanted[&0], (4, 10, 4, 3));
    assert_eq!(one.offsets(0), (3, 10, 10));
}

/// Behind an unclean election all that it has is deleted at the leader, up to the middle of a batch
/// that is another one there. It asked for that batch for ever, and refused it.
#[test]
fn a_log_of_which_the_leader_has_nothing_takes_the_batch_in_which_that_begins() {
    let mut one = Following::new(1, 4);
    one.turn(&[part(0, 1, led(0, 1, 4))]);
    assert_eq!(one.offsets(0), (0, 1, 1));
    let mut first = part(0, 10, [led(0, 3, 4), led(3, 7, 4)].concat());
    first.log_start = 1;
    one.turn(&[first]);
    assert_eq!(one.offsets(0).1, 10);
    assert_eq!(one.fetch().wanted[&0], (4, 10, 4, 1));
    assert_eq!(one.offsets(0), (1, 10, 10));
}

#[test]
fn a_partition_in_error_leaves_the_session_until_its_back_off_is_over() {
    let mut one = Following::new(2, 4);
    one.turn(&[refused(0, NOT_LEADER_OR_FOLLOWER), part(1, 0, Vec::new())]);
    let meanwhile = one.turn(&[]);
    assert_eq!(
        (meanwhile.wanted.len(), &*meanwhile.forgotten),
        (0, &[0][..])
    );
    one.now_ms += BACKOFF_MS;
    let back = one.turn(&[]);
    assert_eq!(back.wanted, BTreeMap::from([(0, (4, 0, -1, 0))]));
    assert!(one.told.is_empty(), "it passes by itself: {:?}", one.told);
    // With none left the leader is let alone.
    one.turn(&[
        refused(0, NOT_LEADER_OR_FOLLOWER),
        refused(1, NOT_LEADER_OR_FOLLOWER),
    ]);
    assert_eq!(one.next(), None);
    assert_eq!(one.session.next_due_ms(), Some(one.now_ms + BACKOFF_MS));
    one.now_ms += BACKOFF_MS;
    assert_eq!(one.fetch().wanted.len(), 2);
}

#[test]
fn a_session_that_the_leader_does_not_know_begins_anew_with_all() {
    for code in [70, 71, 106] {
        let mut one = Following::new(3, 4);
        one.turn(&[]);
        one.fetch();
        one.take(answer(code, 0, &[])).unwrap();
        let full = one.turn(&[]);
        assert_eq!((full.session.1, full.wanted.len()), (0, 3));
        assert_eq!(one.fetch().wanted.len(), 0);
    }
}

/// Else it would be asked again and again, without a pause.
#[test]
fn a_leader_that_refuses_a_fetch_as_a_whole_is_let_alone() {
    let mut one = Following::new(1, 4);
    for code in [70, 31, -1] {
        one.fetch();
        assert!(one.take(answer(code, 0, &[])).is_err(), "{code}");
        one.session.on_failure();
    }
    one.turn(&[]);
    one.fetch();
    assert!(one.take(answer(31, 0, &[])).is_err());
}

#[test]
fn partitions_that_have_brought_records_come_last() {
    let mut one = Following::new(3, 4);
    assert_eq!(one.turn(&[part(0, 0, led(0, 1, 4))]).order, [0, 1, 2]);
    one.session.on_failure();
    assert_eq!(one.turn(&[part(1, 0, led(0, 1, 4))]).order, [1, 2, 0]);
    one.session.on_failure();
    assert_eq!(one.fetch().order, [2, 0, 1]);
}

#[test]
fn damaged_bytes_are_told_once_and_fetched_again() {
    let mut one = Following::new(1, 4);
    one.turn(&[part(0, 0, led(0, 5, 4))]);
    for _ in 0..3 {
        let mut damaged = led(5, 5, 4);
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        assert_eq!(one.turn(&[part(0, 10, damaged)]).wanted[&0], (4, 5, 4, 0));
        assert_eq!(one.next(), None);
        one.now_ms += BACKOFF_MS;
    }
    assert_eq!(one.told.len(), 1, "{:?}", one.told);
    assert!(one.told[0].contains("CRC"), "{:?}", one.told);
    one.turn(&[part(0, 10, led(5, 5, 4))]);
    assert_eq!(one.offsets(0), (0, 10, 10));
}

/// Each of them was a line of the log.
#[test]
fn partitions_that_are_refused_for_one_reason_are_told_of_together() {
    let mut one = Following::new(50, 4);
    let parts: Vec<Part> = (0..50).map(|index| refused(index, -1)).collect();
    one.turn(&parts);
    assert_eq!(one.told.len(), 1, "{:?}", one.told);
    one.now_ms += 61_000;
    one.turn(&parts);
    assert_eq!(one.told.len(), 2, "{:?}", one.told);
    let more = "answers error -1 (and 49 more since the last such line)";
    assert!(one.told[1].ends_with(more), "{:?}", one.told);
}

/// The pieces of an answer before the one at fault were in the log, and in durable mode on no disk,
/// while the next fetch offset said so.
#[test]
fn what_comes_before_damaged_bytes_is_to_be_flushed() {
    let mut one = Following::new(1, 4);
    let config = LogConfig {
        segment_bytes: 3_000,
        ..LogConfig::default()
    };
    one.world.node.set_topic_config("t", &config);
    let mut records: Vec<Vec<u8>> = (0..6).map(|each| led(each * 20, 20, 4)).collect();
    *records[5].last_mut().unwrap() ^= 1;
    one.fetch();
    let damaged = answer(0, SESSION, &[part(0, 0, records.concat())]);
    assert_eq!(one.take(damaged).unwrap(), [0]);
    assert_eq!(one.offsets(0), (0, 80, 0));
    one.now_ms += BACKOFF_MS;
    assert_eq!(one.fetch().wanted[&0], (4, 80, 4, 0));
}

/// Each of these is bounded, is told, and takes nothing away.
#[test]
fn a_leader_that_lies_takes_nothing_away() {
    let foreign = Part {
        topic_id: Uuid([1; 16]),
        ..part(0, 9, led(5, 5, 4))
    };
    let lies = [
        part(0, 9, led(3, 5, 4)),
        part(0, 9, vec![0; 200]),
        parting(0, 9, -2, -9),
        parting(0, 9, 4, 5_000),
        refused(0, 999),
        refused(0, -1),
    ];
    for lie in lies {
        let mut one = Following::new(1, 4);
        one.turn(&[part(0, 5, led(0, 5, 4))]);
        one.turn(&[lie]);
        assert_eq!(one.offsets(0), (0, 5, 5));
        assert_eq!((one.told.len(), one.next()), (1, None), "{:?}", one.told);
        one.now_ms += BACKOFF_MS;
        assert_eq!(
            one.turn(&[part(0, 9, led(5, 5, 4))]).wanted[&0],
            (4, 5, 4, 0)
        );
        assert_eq!(one.offsets(0), (0, 10, 9));
    }
    let mut one = Following::new(1, 4);
    one.turn(&[foreign, part(5, 1, led(0, 1, 4))][..1]);
    assert_eq!(one.offsets(0), (0, 0, 0));
    // More partitions than there are, and a negative start and high watermark.
    one.fetch();
    let many = vec![part(0, 0, Vec::new()); 2];
    assert!(one.take(answer(0, SESSION, &many)).is_err());
    one.session.on_failure();
    let mut negative = part(0, -7, led(0, 5, 4));
    negative.log_start = -3;
    one.turn(&[negative]);
    assert_eq!(one.offsets(0), (0, 5, 0));
}

/// A leader's answer came while this node was elected: its records would have stood behind
/// the start of the new epoch.
#[test]
fn nothing_is_taken_for_a_role_that_is_over() {
    let mut one = Following::new(1, 4);
    one.turn(&[part(0, 5, led(0, 5, 4))]);
    let before = one.replica(0);
    one.fetch();
    one.world.publish(&[(1, 5, &[1, 2])]);
    one.take(answer(0, SESSION, &[part(0, 10, led(5, 5, 4))]))
        .unwrap();
    assert_eq!(one.offsets(0).1, 5);
    // Nor does a high watermark come behind the one that the leader goes by.
    append_one(&one.replica(0)).unwrap();
    before.follow_high_watermark(6);
    assert_eq!(one.offsets(0).2, 5);
    assert_eq!(one.next(), None);
    assert!(before.truncate_as_follower(0, NOW_MS).is_err());
    assert!(before.start_anew(9, NOW_MS).is_err());
    let late = before.append_as_follower(&mut led(6, 1, 4), fetched_from(4, 6), NOW_MS);
    assert!(late.is_err());
    assert_eq!(one.offsets(0).1, 6);
}

#[test]
fn a_partition_that_is_removed_leaves_the_session() {
    let mut one = Following::new(2, 4);
    one.turn(&[]);
    one.session.remove((TOPIC_ID, 1));
    let fetch = one.turn(&[part(1, 5, led(0, 5, 4))]);
    assert_eq!(fetch.forgotten, [1]);
    assert_eq!(one.offsets(1), (0, 0, 0));
    one.session.remove((TOPIC_ID, 0));
    assert!(one.session.is_empty());
    assert_eq!(one.next(), None);
}

/// Its answer was called malformed, and the connection closed: the session had no partitions any
/// more. Found by the cluster simulation. Of two partitions the first is throttled; what is in
/// sync, or not throttled, is fetched on whatever the rate.
#[test]
fn a_throttled_partition_that_is_behind_leaves_the_session_until_the_rate_is_down() {
    let mut one = Following::new(2, 4);
    let replication = one.world.node.replication().clone();
    replication.follower_throttle.set_bytes_per_second_max(100);
    let throttled = LogConfig {
        follower_throttled: ThrottledReplicas::These([(0, 1), (1, 2)].into()),
        ..unflushed()
    };
    one.world.node.set_topic_config("t", &throttled);
    let size_bytes = led(0, 5, 4).len() as i64;
    assert!(size_bytes > 100, "{size_bytes}");
    one.turn(&[part(0, 9, led(0, 5, 4)), part(1, 9, led(0, 5, 4))]);
    let held_back = one.turn(&[part(1, 9, led(5, 1, 4))]);
    assert_eq!(held_back.wanted.keys().collect::<Vec<_>>(), [&1]);
    assert_eq!(held_back.forgotten, [0]);
    // An answer from before says nothing of it any more.
    assert!(
        one.turn(&[part(0, 9, led(5, 1, 4))])
            .wanted
            .contains_key(&1)
    );
    assert_eq!(one.offsets(0).1, 5);
    one.session.remove((TOPIC_ID, 1));
    assert!(one.next().is_none(), "nothing else is followed");
    let due_ms = one.session.next_due_ms().unwrap();
    assert!(
        due_ms > NOW_MS && due_ms <= NOW_MS + BACKOFF_MS,
        "no busy loop"
    );
    // In whole seconds, of which the first is one whatever came in it.
    one.now_ms = NOW_MS + 1_000 * (size_bytes / 100) + 1_000;
    let again = one.turn(&[part(0, 6, led(5, 1, 4))]);
    assert_eq!(again.wanted[&0], (4, 5, 4, 0));
    // It has what is committed: the throttle must not take it out of the in-sync replicas.
    replication.follower_throttle.record(1 << 20, one.now_ms);
    assert_eq!(one.fetch().wanted[&0], (4, 6, 4, 0));
    assert!(one.told.is_empty(), "{:?}", one.told);
}

/// A leader that answered at once with nothing, as one that stops does, was
/// asked as fast as both could.
#[test]
fn a_leader_that_does_not_wait_for_records_is_asked_less_often() {
    let mut one = Following::new(1, 4);
    let mut asked = 0;
    while one.next().is_some() {
        asked += 1;
        assert!(asked < 100, "it is asked on and on");
        one.take(answer(0, SESSION, &[])).unwrap();
        one.now_ms += 1;
    }
    assert_eq!(asked, 10);
    assert_eq!(one.session.next_due_ms(), Some(one.now_ms - 1 + BACKOFF_MS));
    assert_eq!(one.told.len(), 1, "{:?}", one.told);
    one.now_ms += BACKOFF_MS;
    one.fetch();
    // It still does not wait: that is no news.
    one.take(answer(0, SESSION, &[])).unwrap();
    assert!(one.next().is_none());
    assert_eq!(one.told.len(), 1, "{:?}", one.told);
    one.now_ms += BACKOFF_MS;
    one.turn(&[part(0, 0, led(0, 1, 4))]);
    one.fetch();
    one.now_ms += 500;
    one.take(answer(0, SESSION, &[])).unwrap();
    assert!(one.next().is_some(), "it has waited");
}

#[test]
fn a_rate_that_is_taken_away_holds_nothing_back() {
    let mut one = Following::new(1, 4);
    let replication = one.world.node.replication().clone();
    let throttled = LogConfig {
        follower_throttled: ThrottledReplicas::All,
        ..unflushed()
    };
    one.world.node.set_topic_config("t", &throttled);
    replication.follower_throttle.set_bytes_per_second_max(0);
    one.turn(&[part(0, 9, led(0, 1, 4))]);
    assert!(one.next().is_none());
    one.world.node.set_topic_config("t", &unflushed());
    assert!(one.fetch().wanted.contains_key(&0), "no topic names it");
    one.world.node.set_topic_config("t", &throttled);
    one.take(answer(0, SESSION, &[])).unwrap();
    assert!(one.next().is_none());
    replication
        .follower_throttle
        .set_bytes_per_second_max(i64::MAX);
    assert!(one.fetch().wanted.contains_key(&0), "there is no rate");
}

#[test]
fn an_answer_may_speak_of_what_was_removed_meanwhile() {
    let mut one = Following::new(2, 4);
    one.fetch();
    one.session.remove((TOPIC_ID, 0));
    one.session.remove((TOPIC_ID, 1));
    let parts = [part(0, 5, led(0, 5, 4)), part(1, 5, led(0, 5, 4))];
    assert!(one.take(answer(0, 7, &parts)).unwrap().is_empty());
    assert_eq!(one.offsets(0), (0, 0, 0));
}

/// Any bytes as answers, which are changes of good ones.
#[test]
fn no_answer_breaks_a_follower() {
    fn try_one(data: &[u8]) {
        thread_local! {
            static ONE: std::cell::RefCell<Following> = std::cell::RefCell::new(Following::new(2, 4));
        }
        ONE.with_borrow_mut(|one| {
            one.now_ms += BACKOFF_MS;
            one.told.clear();
            if one.next().is_some() && one.take(data.to_vec()).is_err() {
                one.session.on_failure();
            }
            for index in 0..2 {
                let (start, end, high_watermark) = one.offsets(index);
                assert!(start <= high_watermark && high_watermark <= end);
            }
        });
    }
    run(&seeds(), false, try_one);
}

/// Good answers to Fetch and to ListOffsets.
pub fn seeds() -> Vec<Vec<u8>> {
    let parts = |offset| {
        let mut started = part(1, offset + 3, led(offset, 4, 4));
        started.log_start = offset;
        vec![
            part(
                0,
                offset,
                [led(offset, 2, 3), led(offset + 2, 1, 4)].concat(),
            ),
            started,
        ]
    };
    let mut seeds: Vec<Vec<u8>> = (0..8).map(|at| answer(0, SESSION, &parts(at))).collect();
    seeds.extend((0..8).map(|end| answer(0, SESSION, &[parting(0, end, 3, end)])));
    seeds.push(answer(
        0,
        SESSION,
        &[refused(0, OFFSET_OUT_OF_RANGE), refused(1, 6)],
    ));
    seeds.extend([0, 3, 50].map(|offset| listed(0, offset)));
    seeds
}

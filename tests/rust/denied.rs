//! Answers of Rust's keys to clients that may not do what they ask for.

use std::sync::Arc;

use kafkalite::access::{Authorizer, Caller, Operation, Resource};
use kafkalite::api::fetch_sessions::FetchSessions;
use kafkalite::api::k01_fetch::FetchRead;
use kafkalite::api::large::Kept;
use kafkalite::api::{Chunk, k00_produce, k01_fetch, k02_list_offsets, k03_metadata};
use kafkalite::image::{Image, Permits};
use kafkalite::uuid::Uuid;
use kafkalite::wire::{Reader, Writer};

use crate::log::batch;
use crate::node::{TOPIC_ID, World, header, with_ask};

const NO_TOPIC_ID: Uuid = Uuid([9; 16]);

type May = fn(Operation, Resource<'_>) -> bool;

struct Rights(May);

impl Authorizer for Rights {
    fn authorize(&self, _: &Caller<'_>, operation: Operation, resource: Resource<'_>) -> bool {
        (self.0)(operation, resource)
    }
}

/// A broker with the topic `t`, to which clients may do what `may` says.
fn world(may: May) -> World {
    let world = World::new(&[(1, 4, &[1])]);
    world.node.set_permits(Permits {
        authorizer: Arc::new(Rights(may)),
        ..Permits::default()
    });
    world
}

fn nothing(_: Operation, _: Resource<'_>) -> bool {
    false
}

fn whole(chunks: Vec<Chunk>) -> Vec<u8> {
    let mut whole = Vec::new();
    for chunk in chunks {
        match chunk {
            Chunk::Bytes(bytes) => whole.extend(bytes),
            Chunk::Later(mut later) => {
                while later.left_bytes() > 0 {
                    whole.extend(later.make().unwrap());
                }
            }
            Chunk::File(..) => panic!("no records are read here"),
        }
    }
    whole
}

fn behind_header(answer: &[u8], flexible: bool) -> Reader<'_> {
    let mut reader = Reader::new(answer);
    reader.take(8).unwrap();
    reader.skip_tags(flexible).unwrap();
    reader
}

/// Two topics, one that there is and one that there is not, by id or by name.
fn topics(writer: &mut Writer, by_id: bool, flexible: bool, partition: impl Fn(&mut Writer)) {
    writer.array_length(2, flexible);
    for (name, id) in [("t", TOPIC_ID), ("missing", NO_TOPIC_ID)] {
        if by_id {
            writer.uuid(&id);
        } else {
            writer.string(name, flexible);
        }
        writer.array_length(1, flexible);
        writer.i32(0);
        partition(writer);
        writer.no_tags(flexible);
        writer.no_tags(flexible);
    }
}

/// Error codes of the partitions of an answer; `partition` reads what stands behind each.
fn codes(
    reader: &mut Reader<'_>,
    (by_id, flexible): (bool, bool),
    partition: impl Fn(&mut Reader<'_>),
) -> Vec<i16> {
    let mut codes = Vec::new();
    for _ in 0..reader.array_length(flexible).unwrap() {
        if by_id {
            reader.uuid().unwrap();
        } else {
            reader.string(flexible).unwrap();
        }
        for _ in 0..reader.array_length(flexible).unwrap() {
            reader.i32().unwrap();
            codes.push(reader.i16().unwrap());
            partition(reader);
            reader.skip_tags(flexible).unwrap();
        }
        reader.skip_tags(flexible).unwrap();
    }
    codes
}

fn produced(image: &Image, version: i16, acks: i16) -> (Vec<i16>, bool) {
    let mut writer = Writer::default();
    writer.nullable_string(None, true);
    writer.i16(acks);
    writer.i32(1_000);
    let by_id = version >= 13;
    topics(&mut writer, by_id, true, |writer| {
        writer.nullable_bytes(Some(&batch(0, 1)), true);
    });
    writer.no_tags(true);
    let mut reader = Reader::new(&writer.bytes);
    let request = with_ask(image, |ask| {
        let mut spare = k00_produce::Spare::default();
        k00_produce::read(&header(0, version, 9), &mut reader, ask, &mut spare, None).unwrap()
    });
    let mut answer = Vec::new();
    request.answer(&mut answer, 0, image, 0);
    let mut reader = behind_header(&answer, true);
    let codes = codes(&mut reader, (by_id, true), |reader| {
        assert_eq!(reader.i64().unwrap(), -1, "no offset");
        reader.take(16).unwrap();
        reader.array_length(true).unwrap();
        reader.nullable_string(true).unwrap();
    });
    (codes, request.refusal().is_some())
}

#[test]
fn who_may_not_write_is_not_told_whether_a_topic_exists() {
    let world = world(nothing);
    let image = world.node.image();
    assert_eq!(produced(&image, 12, -1).0, [29, 29]);
    assert_eq!(produced(&image, 13, -1).0, [29, 100], "ids are no secret");
    assert!(produced(&image, 12, 0).1, "with acks 0 it is heard at all");
    world.node.set_permits(Permits::default());
    assert_eq!(produced(&world.node.image(), 12, -1).0, [7, 3]);
    assert_eq!(produced(&image, 12, -1).0, [29, 29], "as it began");
    world.node.close(1);
}

fn fetched(image: &Image, version: i16, replica_id: i32) -> Vec<i16> {
    let by_id = version >= 13;
    let mut writer = Writer::default();
    for number in [replica_id, 1_000, 1, 1 << 20] {
        writer.i32(number);
    }
    writer.i8(0);
    writer.i32(0);
    writer.i32(-1);
    topics(&mut writer, by_id, true, |writer| {
        writer.i32(-1);
        writer.i64(0);
        writer.i32(-1);
        writer.i64(-1);
        writer.i32(1 << 20);
    });
    writer.array_length(0, true);
    writer.string("", true);
    writer.no_tags(true);
    let sessions = FetchSessions::new(0, 1);
    let mut reader = Reader::new(&writer.bytes);
    let mut request = with_ask(image, |ask| {
        let header = header(1, version, 12);
        k01_fetch::read(&header, &mut reader, ask, &sessions, 1 << 20, 0).unwrap()
    });
    let mut fetch_read = FetchRead::default();
    assert!(request.read_logs(&mut fetch_read, |_| true));
    assert!(request.is_due(&fetch_read), "a refusal waits for nothing");
    let answer = whole(request.answer(fetch_read, &sessions, image, 0));
    let mut reader = behind_header(&answer, true);
    reader.take(10).unwrap();
    let mut found = codes(&mut reader, (by_id, true), |reader| {
        reader.take(24).unwrap();
        reader.nullable_length(true).unwrap();
        reader.i32().unwrap();
        assert_eq!(reader.nullable_bytes(true).unwrap(), Some(&b""[..]));
    });
    found.sort_unstable();
    found
}

#[test]
fn who_may_not_read_is_not_told_whether_a_topic_exists() {
    let world = world(nothing);
    let image = world.node.image();
    assert_eq!(fetched(&image, 12, -1), [29, 29]);
    assert_eq!(fetched(&image, 13, -1), [29, 100], "ids are no secret");
    world.node.close(1);
}

/// CVE-2018-1288: a client that calls itself a replica reads with the rights of a broker only.
#[test]
fn a_replica_without_cluster_action_is_refused_every_partition() {
    let world = world(|operation, _| operation == Operation::Read);
    let image = world.node.image();
    assert_eq!(fetched(&image, 12, 2), [29, 29]);
    assert_eq!(fetched(&image, 13, 2), [29, 29]);
    world.node.close(1);
}

#[test]
fn who_may_not_describe_is_told_no_offsets() {
    let world = world(nothing);
    let image = world.node.image();
    let mut writer = Writer::default();
    writer.i32(-1);
    topics(&mut writer, false, false, |writer| writer.i64(-1));
    let mut reader = Reader::new(&writer.bytes);
    let mut request = with_ask(&image, |ask| {
        k02_list_offsets::read(&header(2, 1, 6), &mut reader, ask, None).unwrap()
    });
    assert!(request.next_directory().is_none(), "no log is searched");
    request.search(|_| true);
    let answer = whole(request.answer());
    let mut reader = behind_header(&answer, false);
    let codes = codes(&mut reader, (false, false), |reader| {
        assert_eq!((reader.i64().unwrap(), reader.i64().unwrap()), (-1, -1));
    });
    assert_eq!(codes, [29, 29]);
    world.node.close(1);
}

type Told = (i16, Option<String>, Uuid, bool, usize, i32);

/// A Metadata request; `None`: of all topics.
fn metadata_request(version: i16, asked: Option<&[(Option<&str>, Uuid)]>) -> Writer {
    let flexible = version >= 9;
    let mut writer = Writer::default();
    match asked {
        Some(asked) => writer.array_length(asked.len(), flexible),
        None => writer.nullable_length(None, flexible),
    }
    for (name, id) in asked.unwrap_or_default() {
        if version >= 10 {
            writer.uuid(id);
        }
        if version >= 10 {
            writer.nullable_string(*name, flexible);
        } else {
            writer.string(name.unwrap_or_default(), flexible);
        }
        writer.no_tags(flexible);
    }
    writer.bool(true);
    if (8..=10).contains(&version) {
        writer.bool(true);
    }
    writer.bool(true);
    writer.no_tags(flexible);
    writer
}

/// Of each topic error, name, id, whether it is internal, partitions, operations;
/// operations on the cluster.
fn told(
    image: &Arc<Image>,
    version: i16,
    asked: Option<&[(Option<&str>, Uuid)]>,
) -> (Vec<Told>, i32) {
    let flexible = version >= 9;
    let writer = metadata_request(version, asked);
    let header = header(3, version, 9);
    let kept = Kept::new(writer.bytes.clone(), 0..writer.bytes.len());
    let (answer, large) = with_ask(image, |ask| {
        let reader = Reader::new(&writer.bytes);
        let large = k03_metadata::Large::read(&header, reader.clone(), &kept).unwrap();
        let large = large.answer(ask, image, true).unwrap();
        (
            k03_metadata::answer(&header, reader, ask, true).unwrap(),
            large,
        )
    });
    let mut reader = behind_header(&answer, flexible);
    reader.i32().unwrap();
    for _ in 0..reader.array_length(flexible).unwrap() {
        reader.i32().unwrap();
        reader.string(flexible).unwrap();
        reader.i32().unwrap();
        reader.nullable_string(flexible).unwrap();
        reader.skip_tags(flexible).unwrap();
    }
    reader.nullable_string(flexible).unwrap();
    reader.i32().unwrap();
    let mut topics = Vec::new();
    for _ in 0..reader.array_length(flexible).unwrap() {
        let error_code = reader.i16().unwrap();
        let name = reader.nullable_string(flexible).unwrap().map(str::to_owned);
        let id = if version >= 10 {
            reader.uuid().unwrap()
        } else {
            Uuid::ZERO
        };
        let is_internal = reader.bool().unwrap();
        let partitions = reader.array_length(flexible).unwrap();
        if partitions > 0 {
            reader.take(14).unwrap();
            for _ in 0..3 {
                let nodes = reader.array_length(flexible).unwrap();
                reader.take(4 * nodes).unwrap();
            }
            reader.skip_tags(flexible).unwrap();
        }
        let operations = reader.i32().unwrap();
        reader.skip_tags(flexible).unwrap();
        topics.push((error_code, name, id, is_internal, partitions, operations));
    }
    let cluster = if version <= 10 {
        reader.i32().unwrap()
    } else {
        0
    };
    if let Some(large) = large {
        let mut large = whole(large);
        // What there is comes first in it.
        assert_eq!(large.len(), answer.len());
        large.sort_unstable();
        let mut answer = answer.clone();
        answer.sort_unstable();
        assert_eq!(large, answer);
    }
    (topics, cluster)
}

const OMITTED: i32 = i32::MIN;

#[test]
fn who_may_not_describe_is_told_of_no_topic() {
    let world = world(nothing);
    let image = world.node.image();
    let hidden = |name: &str| (29, Some(name.to_owned()), Uuid::ZERO, false, 0, OMITTED);
    let named = ["t", "missing", "__consumer_offsets", "no topic"];
    let asked = named.map(|name| (Some(name), Uuid::ZERO));
    let (topics, cluster) = told(&image, 10, Some(&asked));
    assert_eq!(topics, named.map(hidden));
    assert_eq!(cluster, 0, "nothing may be done to the cluster");
    let by_id = [(None, TOPIC_ID), (None, NO_TOPIC_ID)];
    let (topics, _) = told(&image, 12, Some(&by_id));
    let told_ids = [
        (29, None, TOPIC_ID, false, 0, OMITTED),
        (100, None, NO_TOPIC_ID, false, 0, OMITTED),
    ];
    assert_eq!(topics, told_ids);
    assert_eq!(
        told(&image, 12, None).0,
        [],
        "left out where all are asked for"
    );
    world.node.close(1);
}

#[test]
fn operations_are_those_that_a_client_may_do() {
    let world = world(|operation, _| matches!(operation, Operation::Describe | Operation::Read));
    let image = world.node.image();
    let asked = [(Some("t"), Uuid::ZERO)];
    let (topics, cluster) = told(&image, 10, Some(&asked));
    let bits = 1 << 3 | 1 << 8;
    assert_eq!(
        topics,
        [(0, Some("t".to_owned()), TOPIC_ID, false, 1, bits)]
    );
    assert_eq!(cluster, 1 << 8);
    world.node.close(1);
}

#[test]
fn topics_are_made_for_those_who_may_see_and_make_them() {
    let rights: [(May, bool, i16); 4] = [
        (|operation, _| operation == Operation::Describe, false, 29),
        (|operation, _| operation == Operation::Create, false, 29),
        (
            |operation, resource| {
                let is_cluster = resource == Resource::Cluster;
                operation == Operation::Describe || operation == Operation::Create && is_cluster
            },
            true,
            3,
        ),
        (
            |operation, resource| {
                let is_topic = resource == Resource::Topic("missing");
                operation == Operation::Describe || operation == Operation::Create && is_topic
            },
            true,
            3,
        ),
    ];
    for (may, is_made, error_code) in rights {
        let world = world(may);
        let image = world.node.image();
        let asked = [(Some("missing"), Uuid::ZERO)];
        let (topics, _) = told(&image, 12, Some(&asked));
        assert_eq!(topics[0].0, error_code);
        let writer = metadata_request(12, Some(&asked));
        let kept = Kept::new(writer.bytes.clone(), 0..writer.bytes.len());
        let header = header(3, 12, 9);
        with_ask(&image, |ask| {
            let reader = Reader::new(&writer.bytes);
            let missing = k03_metadata::missing_topics(&header, reader.clone(), ask).unwrap();
            let large = k03_metadata::Large::read(&header, reader, &kept).unwrap();
            assert_eq!(
                (missing, large.missing(ask).unwrap().is_some()),
                (is_made, is_made)
            );
        });
        world.node.close(1);
    }
}

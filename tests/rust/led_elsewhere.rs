//! Produce, Fetch, ListOffsets and Metadata where partitions are led by another broker.

use kafkalite::api::fetch_sessions::FetchSessions;
use kafkalite::api::k01_fetch::{Fetch, FetchRead};
use kafkalite::api::{Chunk, k00_produce, k01_fetch, k02_list_offsets, k03_metadata};
use kafkalite::error::Error;
use kafkalite::image::Image;
use kafkalite::replica::park::WaitFor;
use kafkalite::wire::{Reader, Writer};

use crate::log::batch;
use crate::node::{TOPIC_ID, World, append_one, header, parked, with_ask};

/// Led here; elsewhere, with no replica here; elsewhere, with a follower here; by nobody.
const PARTITIONS: &[(i32, i32, &[i32])] = &[
    (1, 4, &[1]),
    (2, 5, &[2, 3]),
    (2, 6, &[2, 1]),
    (-1, 2, &[3]),
];

fn whole(chunks: Vec<Chunk>) -> Vec<u8> {
    let bytes = chunks.into_iter().map(|chunk| match chunk {
        Chunk::Bytes(bytes) => bytes,
        _ => panic!("no records are read here"),
    });
    bytes.collect::<Vec<_>>().concat()
}

/// Behind the size and the header of an answer.
fn behind_header(answer: &[u8], flexible: bool) -> Reader<'_> {
    let mut reader = Reader::new(answer);
    reader.take(8).unwrap();
    reader.skip_tags(flexible).unwrap();
    reader
}

/// Id and epoch of the leader in a partition's tags.
fn leader_in(reader: &mut Reader<'_>, wanted: u32) -> Option<(i32, i32)> {
    let mut found = None;
    let read = reader.tags(|tag, field| {
        if tag == wanted {
            found = Some((field.i32()?, field.i32()?));
        }
        Ok(())
    });
    read.unwrap();
    found
}

/// Ids and hosts in the tag of the node endpoints.
fn endpoints_in(reader: &mut Reader<'_>) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    let read = reader.tags(|tag, field| {
        assert_eq!(tag, 0);
        for _ in 0..field.array_length(true)? {
            let node = (field.i32()?, field.string(true)?.to_owned());
            found.push(node);
            field.i32()?;
            field.nullable_string(true)?;
            field.skip_tags(true)?;
        }
        Ok(())
    });
    read.unwrap();
    found
}

type Row = (i32, i16, Option<(i32, i32)>);

/// A Produce request, version 12, to partitions of `t`.
fn produce(image: &Image, indexes: &[i32]) -> k00_produce::Produce {
    let mut writer = Writer::default();
    writer.nullable_string(None, true);
    writer.i16(-1);
    writer.i32(1_000);
    writer.array_length(1, true);
    writer.string("t", true);
    writer.array_length(indexes.len(), true);
    for index in indexes {
        writer.i32(*index);
        writer.nullable_bytes(Some(&batch(0, 1)), true);
        writer.no_tags(true);
    }
    writer.no_tags(true);
    writer.no_tags(true);
    let mut spare = k00_produce::Spare::default();
    let mut reader = Reader::new(&writer.bytes);
    with_ask(image, |ask| {
        k00_produce::read(&header(0, 12, 9), &mut reader, ask, &mut spare, None).unwrap()
    })
}

fn produced(produce: &k00_produce::Produce, image: &Image) -> (Vec<Row>, Vec<(i32, String)>) {
    let mut answer = Vec::new();
    produce.answer(&mut answer, 0, image, 0);
    let mut reader = behind_header(&answer, true);
    let mut rows = Vec::new();
    for _ in 0..reader.array_length(true).unwrap() {
        reader.string(true).unwrap();
        for _ in 0..reader.array_length(true).unwrap() {
            let (index, error_code) = (reader.i32().unwrap(), reader.i16().unwrap());
            reader.take(24).unwrap();
            reader.array_length(true).unwrap();
            reader.nullable_string(true).unwrap();
            rows.push((index, error_code, leader_in(&mut reader, 0)));
        }
        reader.skip_tags(true).unwrap();
    }
    reader.i32().unwrap();
    (rows, endpoints_in(&mut reader))
}

#[test]
fn a_produce_is_told_who_leads_a_partition_that_is_led_elsewhere() {
    let world = World::new(PARTITIONS);
    let image = world.node.image();
    let request = produce(&image, &[0, 1, 2, 3, 9]);
    let (rows, endpoints) = produced(&request, &image);
    // The first one is not appended here, so that its time is over.
    assert_eq!(
        rows,
        [
            (0, 7, None),
            (1, 6, Some((2, 5))),
            (2, 6, Some((2, 6))),
            (3, 6, Some((-1, 2))),
            (9, 3, None)
        ]
    );
    assert_eq!(endpoints, [(2, "two".to_owned())]);
}

#[test]
fn a_produce_that_waits_is_told_that_another_node_leads_now() {
    let world = World::new(&[(1, 4, &[1, 2])]);
    let mut request = produce(&world.node.image(), &[0]);
    let partition = world.leader(0);
    partition.log.set_config(kafkalite::log::config::LogConfig {
        acks_fsync: true,
        ..Default::default()
    });
    request.partitions[0].apply(append_one(&partition));
    let (at, target) = request.uncommitted().unwrap();
    at.waiters.register(parked(1), WaitFor::Committed(target));
    world.publish(&[(2, 5, &[1, 2])]);
    assert_eq!(world.woken(), [1]);
    assert!(request.uncommitted().is_none());
    let expected = [(0, 6, Some((2, 5)))];
    assert_eq!(produced(&request, &world.node.image()).0, expected);
    // Nor is it told success once the records of a later leader are committed.
    world.publish(&[(1, 6, &[1, 2])]);
    append_one(&world.leader(0)).unwrap();
    world.leader(0).flush();
    let expected = [(0, 6, Some((1, 6)))];
    assert_eq!(produced(&request, &world.node.image()).0, expected);
    world.node.close(1);
}

/// A Fetch request, version 16, that waits for a record in partitions of `t`, for whose
/// leader epochs it takes these.
fn fetch(image: &Image, asked: &[(i32, i32)], sessions: &FetchSessions) -> Fetch {
    let mut writer = Writer::default();
    for number in [1_000, 1, 1 << 20] {
        writer.i32(number);
    }
    writer.i8(0);
    writer.i32(0);
    writer.i32(-1);
    writer.array_length(1, true);
    writer.uuid(&TOPIC_ID);
    writer.array_length(asked.len(), true);
    for (index, leader_epoch) in asked {
        writer.i32(*index);
        writer.i32(*leader_epoch);
        writer.i64(0);
        writer.i32(-1);
        writer.i64(-1);
        writer.i32(1 << 20);
        writer.no_tags(true);
    }
    writer.no_tags(true);
    writer.array_length(0, true);
    writer.string("", true);
    writer.no_tags(true);
    let mut reader = Reader::new(&writer.bytes);
    with_ask(image, |ask| {
        k01_fetch::read(&header(1, 16, 12), &mut reader, ask, sessions, 1 << 20, 0).unwrap()
    })
}

fn fetched(
    fetch: &mut Fetch,
    image: &Image,
    sessions: &FetchSessions,
) -> (Vec<Row>, Vec<(i32, String)>) {
    let mut fetch_read = FetchRead::default();
    assert!(fetch.read_logs(&mut fetch_read, |_| true));
    assert!(fetch.is_due(&fetch_read));
    let answer = whole(fetch.answer(fetch_read, sessions, image, 0));
    let mut reader = behind_header(&answer, true);
    reader.take(10).unwrap();
    let mut rows = Vec::new();
    for _ in 0..reader.array_length(true).unwrap() {
        reader.uuid().unwrap();
        for _ in 0..reader.array_length(true).unwrap() {
            let (index, error_code) = (reader.i32().unwrap(), reader.i16().unwrap());
            reader.take(24).unwrap();
            assert_eq!(reader.nullable_length(true).unwrap().unwrap_or(0), 0);
            reader.i32().unwrap();
            assert_eq!(reader.nullable_bytes(true).unwrap(), Some(&b""[..]));
            rows.push((index, error_code, leader_in(&mut reader, 1)));
        }
        reader.skip_tags(true).unwrap();
    }
    (rows, endpoints_in(&mut reader))
}

#[test]
fn a_fetch_is_told_who_leads_a_partition_that_is_led_elsewhere() {
    let world = World::new(PARTITIONS);
    let (image, sessions) = (world.node.image(), FetchSessions::new(0, 1));
    // Of the follower here, whose epoch is 6, a consumer may read.
    let asked = [(0, 4), (1, 4), (2, 5), (2, 6), (2, 7), (3, 0), (9, 0)];
    let mut answers = Vec::new();
    for one in asked {
        let mut request = fetch(&image, &[one, (9, -1)], &sessions);
        let mut fetch_read = FetchRead::default();
        assert!(request.read_logs(&mut fetch_read, |_| true));
        if one.0 != 0 && one.0 != 9 && one != (2, 6) {
            let (rows, endpoints) = fetched(&mut request, &image, &sessions);
            answers.push((rows[0], endpoints.len()));
        } else {
            assert_eq!(request.is_due(&fetch_read), one.0 == 9);
        }
    }
    assert_eq!(
        answers,
        [
            // Which epoch it knows is of no interest where there is no replica.
            ((1, 6, Some((2, 5))), 1),
            ((2, 74, Some((2, 6))), 1),
            ((2, 75, None), 0),
            ((3, 6, Some((-1, 2))), 0),
        ]
    );
}

/// The Fetch was woken by its timer alone.
#[test]
fn a_fetch_that_waits_is_told_that_another_node_leads_now() {
    let world = World::new(&[(1, 4, &[1, 2])]);
    let sessions = FetchSessions::new(0, 1);
    for (known_epoch, error_code) in [(4, 74), (-1, 6)] {
        let mut request = fetch(&world.node.image(), &[(0, known_epoch)], &sessions);
        let mut fetch_read = FetchRead::default();
        assert!(request.read_logs(&mut fetch_read, |_| true));
        assert!(!request.is_due(&fetch_read) && !request.has_moved(&fetch_read));
        for (partition, wait_for) in request.wait_for(&fetch_read) {
            partition.waiters.register(parked(7), wait_for);
        }
        let leader_epoch = world.leader(0).leader_epoch;
        world.publish(&[(2, leader_epoch + 1, &[1, 2])]);
        assert_eq!(world.woken(), [7]);
        assert!(request.has_moved(&fetch_read));
        let (rows, endpoints) = fetched(&mut request, &world.node.image(), &sessions);
        assert_eq!(rows, [(0, error_code, Some((2, leader_epoch + 1)))]);
        assert_eq!(endpoints.len(), 1);
        world.publish(&[(1, leader_epoch + 2, &[1, 2])]);
    }
    world.node.close(1);
}

/// It was looked at again and again: its partition is of an older epoch for ever.
#[test]
fn a_fetch_of_no_epoch_waits_on_where_its_partition_is_led_in_another_one() {
    let world = World::new(&[(1, 4, &[1])]);
    let sessions = FetchSessions::new(0, 1);
    let mut request = fetch(&world.node.image(), &[(0, -1)], &sessions);
    let mut fetch_read = FetchRead::default();
    assert!(request.read_logs(&mut fetch_read, |_| true));
    world.publish(&[(1, 5, &[1])]);
    assert!(request.has_moved(&fetch_read));
    fetch_read.clear();
    assert!(request.read_logs(&mut fetch_read, |_| true));
    assert!(!request.is_due(&fetch_read) && !request.has_moved(&fetch_read));
    world.node.close(1);
}

#[test]
fn a_list_offsets_is_refused_where_another_node_leads() {
    let world = World::new(PARTITIONS);
    let asked = [
        (0, 4),
        (0, 3),
        (1, 1),
        (2, -1),
        (2, 5),
        (2, 7),
        (3, -1),
        (9, -1),
    ];
    let image = world.node.image();
    let codes = asked.map(|(index, leader_epoch): (i32, i32)| {
        let mut writer = Writer::default();
        writer.i32(-1);
        writer.i8(0);
        writer.array_length(1, false);
        writer.string("t", false);
        writer.array_length(1, false);
        writer.i32(index);
        writer.i32(leader_epoch);
        writer.i64(-1);
        let mut reader = Reader::new(&writer.bytes);
        let mut request = with_ask(&image, |ask| {
            k02_list_offsets::read(&header(2, 4, 6), &mut reader, ask, None).unwrap()
        });
        request.search(|_| true);
        let answer = whole(request.answer());
        let mut reader = behind_header(&answer, false);
        reader.i32().unwrap();
        reader.array_length(false).unwrap();
        reader.string(false).unwrap();
        reader.array_length(false).unwrap();
        assert_eq!(reader.i32().unwrap(), index);
        reader.i16().unwrap()
    });
    assert_eq!(codes, [0, 74, 6, 6, 74, 75, 6, 3]);
}

type Told = (i16, i32, i32, i32, Vec<i32>, Vec<i32>, Vec<i32>);

/// Of each partition error, index, leader, leader epoch, replicas, ISR, offline replicas.
fn metadata(image: &Image, version: i16) -> Vec<Told> {
    let mut writer = Writer::default();
    writer.array_length(1, false);
    writer.string("t", false);
    if version >= 4 {
        writer.bool(false);
    }
    let answer = with_ask(image, |ask| {
        let reader = Reader::new(&writer.bytes);
        k03_metadata::answer(&header(3, version, 9), reader, ask, false).unwrap()
    });
    let mut reader = behind_header(&answer, false);
    if version >= 3 {
        reader.i32().unwrap();
    }
    for _ in 0..reader.array_length(false).unwrap() {
        reader.i32().unwrap();
        reader.string(false).unwrap();
        reader.i32().unwrap();
        if version >= 1 {
            reader.nullable_string(false).unwrap();
        }
    }
    if version >= 2 {
        reader.nullable_string(false).unwrap();
        reader.i32().unwrap();
    }
    assert_eq!(reader.array_length(false).unwrap(), 1);
    assert_eq!(reader.i16().unwrap(), 0);
    reader.string(false).unwrap();
    if version >= 1 {
        reader.bool().unwrap();
    }
    let nodes = |reader: &mut Reader<'_>| -> Vec<i32> {
        let count = reader.array_length(false).unwrap();
        (0..count).map(|_| reader.i32().unwrap()).collect()
    };
    let count = reader.array_length(false).unwrap();
    let partitions = (0..count).map(|_| {
        let error_code = reader.i16().unwrap();
        let (index, leader_id) = (reader.i32().unwrap(), reader.i32().unwrap());
        let leader_epoch = if version >= 7 {
            reader.i32().unwrap()
        } else {
            -1
        };
        let (replicas, in_sync) = (nodes(&mut reader), nodes(&mut reader));
        let offline = if version >= 5 {
            nodes(&mut reader)
        } else {
            vec![]
        };
        (
            error_code,
            index,
            leader_id,
            leader_epoch,
            replicas,
            in_sync,
            offline,
        )
    });
    partitions.collect()
}

#[test]
fn metadata_tells_all_partitions_of_the_cluster() {
    let world = World::new(PARTITIONS);
    let image = world.node.image();
    assert_eq!(
        metadata(&image, 7),
        [
            (0, 0, 1, 4, vec![1], vec![1], vec![]),
            (0, 1, 2, 5, vec![2, 3], vec![2, 3], vec![3]),
            (0, 2, 2, 6, vec![2, 1], vec![2, 1], vec![]),
            (5, 3, -1, 2, vec![3], vec![3], vec![3]),
        ]
    );
    // A client of version 0 does not hear of brokers that are not alive.
    assert_eq!(
        metadata(&image, 0),
        [
            (0, 0, 1, -1, vec![1], vec![1], vec![]),
            (9, 1, 2, -1, vec![2], vec![2], vec![]),
            (0, 2, 2, -1, vec![2, 1], vec![2, 1], vec![]),
            (5, 3, -1, -1, vec![], vec![], vec![]),
        ]
    );
    world
        .leader(0)
        .directory()
        .health()
        .fail(&Error::LoadStopped);
    let told = metadata(&image, 7);
    assert_eq!(told[0], (5, 0, -1, 4, vec![1], vec![1], vec![1]));
    assert_eq!(told[2], (0, 2, 2, 6, vec![2, 1], vec![2, 1], vec![1]));
}

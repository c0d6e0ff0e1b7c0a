//! Batches built, read and damaged: against a plain second reader and against Kafka's own bytes.

use kafkalite::batch::build::{empty_batch, end_transaction_marker};
use kafkalite::batch::header::{TimestampType, compute_crc};
use kafkalite::batch::validate::Scratch;
use kafkalite::batch::{
    AppendOrigin, BatchBuilder, BatchHeader, BatchOptions, Codec, ControlRecord,
    EndTransactionMarker, Record, RecordReader, ValidationRules, validate,
};
use kafkalite::error::Error;
use proptest::prelude::*;

use crate::plain_reader::{PlainRecord, read_batch};

/// "batch NAME HEX" and "verdict NAME RULES HEX ANSWER", printed by Kafka 4.3.1
/// (tests/golden/GoldenBatches.java).
const GOLDEN: &str = include_str!("../golden/batches.txt");
const T: i64 = 1_700_000_000_000;

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

pub fn golden_batches() -> Vec<(&'static str, Vec<u8>)> {
    let lines = GOLDEN
        .lines()
        .filter_map(|line| line.strip_prefix("batch "));
    lines
        .map(|line| {
            line.split_once(' ')
                .map(|(name, bytes)| (name, hex(bytes)))
                .unwrap()
        })
        .collect()
}

fn golden_batch(name: &str) -> Vec<u8> {
    golden_batches()
        .into_iter()
        .find(|(found, _)| *found == name)
        .unwrap()
        .1
}

fn plain(record: &Record<'_>) -> PlainRecord {
    PlainRecord {
        offset: record.offset,
        timestamp: record.timestamp,
        key: record.key.map(<[u8]>::to_vec),
        value: record.value.map(<[u8]>::to_vec),
        headers: record
            .headers
            .iter()
            .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
            .collect(),
    }
}

fn read(batch: &[u8]) -> Result<Vec<PlainRecord>, Error> {
    let mut reader = RecordReader::new();
    let records = reader.read(batch)?;
    records
        .map(|record| record.map(|record| plain(&record)))
        .collect()
}

fn record(offset: i64, timestamp: i64, key: Option<&str>, value: Option<&str>) -> PlainRecord {
    PlainRecord {
        offset,
        timestamp,
        key: key.map(|text| text.as_bytes().to_vec()),
        value: value.map(|text| text.as_bytes().to_vec()),
        headers: Vec::new(),
    }
}

/// The records of GoldenBatches.java, as a format and its timestamp type keep them.
fn golden_records(magic: u8, log_append_time: bool) -> Vec<PlainRecord> {
    let mut records = vec![
        record(100, T, Some("key"), Some("value")),
        record(101, T + 900, None, Some("no key")),
        record(102, T - 5, Some("tombstone"), None),
        record(103, T + 10, Some(""), Some("")),
        record(104, T + 20, Some(&"k".repeat(70)), Some(&"v".repeat(9000))),
    ];
    if magic == 2 {
        records[3].headers = vec![
            (b"trace".to_vec(), Some(b"abc".to_vec())),
            (b"null".to_vec(), None),
        ];
    }
    for record in &mut records {
        if log_append_time {
            record.timestamp = T + 77;
        } else if magic == 0 {
            record.timestamp = -1;
        }
    }
    records
}

fn build(options: BatchOptions, records: &[PlainRecord]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for record in records {
        let headers: Vec<_> = record
            .headers
            .iter()
            .map(|(key, value)| (&key[..], value.as_deref()))
            .collect();
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        builder
            .append(record.timestamp, key, value, &headers)
            .unwrap();
    }
    builder.finish().unwrap()
}

#[test]
fn what_kafka_builds_is_read_record_for_record() {
    let mut seen = 0;
    for (name, batch) in golden_batches() {
        let Some(rest) = name.strip_prefix("magic-") else {
            continue;
        };
        let magic = rest.as_bytes()[0] - b'0';
        let expected = golden_records(magic, rest.ends_with("log-append-time"));
        // Without a codec, old formats are one message after the other.
        let messages = if magic < 2 && rest.ends_with("none") {
            5
        } else {
            1
        };
        let (mut found, mut rest_of_batch) = (Vec::new(), &batch[..]);
        for _ in 0..messages {
            let header = BatchHeader::parse(rest_of_batch).unwrap().unwrap();
            let (one, rest) = rest_of_batch.split_at(header.size_bytes);
            assert!(header.crc_matches(one), "{name}");
            let records = read(one).unwrap();
            assert_eq!(
                Some(&records),
                read_batch(one).as_ref(),
                "{name}: the readers differ"
            );
            found.extend(records);
            rest_of_batch = rest;
        }
        assert!(rest_of_batch.is_empty());
        assert_eq!(found, expected, "{name}");
        seen += 1;
    }
    assert_eq!(seen, 4 + 5 + 6);
}

#[test]
fn what_is_built_here_is_byte_for_byte_what_kafka_builds() {
    let options = BatchOptions {
        base_offset: 100,
        partition_leader_epoch: 5,
        ..BatchOptions::default()
    };
    let records = golden_records(2, false);
    assert_eq!(
        build(options.clone(), &records),
        golden_batch("magic-2-none")
    );
    // Coders differ between libraries and versions; headers and inflated records must not.
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut header = BatchHeader::parse(&build(
            BatchOptions {
                codec,
                ..options.clone()
            },
            &records,
        ))
        .unwrap()
        .unwrap();
        let golden = golden_batch(&format!("magic-2-{}", codec.name()));
        let expected = BatchHeader::parse(&golden).unwrap().unwrap();
        (header.size_bytes, header.crc) = (expected.size_bytes, expected.crc);
        assert_eq!(header, expected);
    }
}

#[test]
fn markers_are_byte_for_byte_kafkas_and_read_back() {
    for (name, is_commit) in [("marker-commit", true), ("marker-abort", false)] {
        let marker = EndTransactionMarker {
            is_commit,
            coordinator_epoch: 9,
        };
        let batch = end_transaction_marker(T, 4711, 3, marker);
        assert_eq!(batch, golden_batch(name));
        let mut reader = RecordReader::new();
        let record = reader.read(&batch).unwrap().next().unwrap().unwrap();
        let parsed = ControlRecord::parse(record.key, record.value).unwrap();
        assert_eq!(parsed, ControlRecord::EndTransaction(marker));
    }
}

#[test]
fn control_records_of_other_kinds_are_named_and_broken_ones_refused() {
    for (type_id, expected) in [
        (2, ControlRecord::LeaderChange),
        (3, ControlRecord::SnapshotHeader),
        (4, ControlRecord::SnapshotFooter),
        (5, ControlRecord::KraftVersion),
        (6, ControlRecord::KraftVoters),
        (7, ControlRecord::Unknown { type_id: 7 }),
    ] {
        assert_eq!(
            ControlRecord::parse(Some(&[0, 0, 0, type_id]), None).unwrap(),
            expected
        );
    }
    let marker = Some(&[0, 0, 0, 0, 0, 9][..]);
    let newer = ControlRecord::parse(Some(&[0, 9, 0, 0, 7, 7]), Some(&[0, 9, 0, 0, 0, 4, 5]));
    assert!(
        matches!(newer, Ok(ControlRecord::EndTransaction(_))),
        "newer versions are read as 0"
    );
    for (key, value) in [
        (None, marker),
        (Some(&[0, 0, 0][..]), marker),
        (Some(&[0x80, 0, 0, 1]), marker),
        (Some(&[0, 0, 0, 1]), None),
        (Some(&[0, 0, 0, 1]), Some(&[0, 0, 0, 0, 0][..])),
        (Some(&[0, 0, 0, 1]), Some(&[0xff, 0, 0, 0, 0, 0])),
    ] {
        let refused = ControlRecord::parse(key, value);
        assert!(
            matches!(refused, Err(Error::InvalidRecord(_))),
            "{key:?} {value:?}"
        );
    }
}

#[test]
fn kafkas_verdicts_on_good_and_bad_batches_are_ours() {
    let mut seen = 0;
    for line in GOLDEN
        .lines()
        .filter_map(|line| line.strip_prefix("verdict "))
    {
        let fields: Vec<&str> = line.split(' ').collect();
        let (name, rules, mut batch) = (fields[0], golden_rules(fields[1]), hex(fields[2]));
        let answer = match validate(&mut batch, &rules, &mut Scratch::default()) {
            Ok(validated) => {
                let bytes = validated.replacement.unwrap_or(batch);
                assert_eq!(validated.batches.len(), 1);
                let summary = &validated.batches[0];
                assert_eq!(
                    BatchHeader::parse(&bytes).unwrap().unwrap(),
                    summary.header,
                    "{name}"
                );
                Ok(bytes)
            }
            Err(error) => Err(error),
        };
        seen += 1;
        // Kafka falls over its own repair of such offsets; we carry it out.
        if name == "offsets-with-a-gap" {
            assert_eq!(fields[3], "UNKNOWN_SERVER_ERROR");
            let offsets: Vec<i64> = read(&answer.unwrap())
                .unwrap()
                .iter()
                .map(|record| record.offset)
                .collect();
            assert_eq!(offsets, [0, 1]);
            continue;
        }
        match (answer, fields[3]) {
            (Ok(bytes), expected) if expected.len() > 100 => {
                assert_same_batch(name, &bytes, &hex(expected));
            }
            (Ok(_), expected) => panic!("{name} was accepted, Kafka says {expected}"),
            (Err(error), expected) => assert_eq!(kafka_answer(&error), expected, "{name}: {error}"),
        }
    }
    assert!(seen > 80, "{seen} verdicts");
}

fn golden_rules(text: &str) -> ValidationRules {
    let fields: Vec<&str> = text.split(',').collect();
    ValidationRules {
        origin: match fields[0] {
            "client" => AppendOrigin::Client,
            _ => AppendOrigin::Coordinator,
        },
        now_ms: T + 60_000,
        timestamp_type: match fields[1] {
            "append" => TimestampType::LogAppendTime,
            _ => TimestampType::CreateTime,
        },
        compacted: fields[2] == "compact",
        compression: Codec::from_name(fields[3]).map(|codec| (codec, None)),
        ..ValidationRules::default()
    }
}

/// The error as GoldenBatches.java prints it.
fn kafka_answer(error: &Error) -> String {
    let mut answer = match error.kafka_code() {
        2 => String::from("CORRUPT_MESSAGE"),
        32 => String::from("INVALID_TIMESTAMP"),
        87 => String::from("INVALID_RECORD"),
        code => format!("{code}"),
    };
    if let Error::RecordsRefused(refused) = error {
        assert_eq!(refused.errors_count, refused.errors.len());
        for error in &refused.errors {
            answer += &format!(":{}", error.batch_index);
        }
    }
    answer
}

/// The same bytes, or, if a codec made them, the same header and records. The leader epoch is the
/// log's to write.
fn assert_same_batch(name: &str, found: &[u8], expected: &[u8]) {
    let mut found_header = BatchHeader::parse(found).unwrap().unwrap();
    let expected_header = BatchHeader::parse(expected).unwrap().unwrap();
    found_header.partition_leader_epoch = expected_header.partition_leader_epoch;
    if found_header.codec_id() != 0 {
        assert_eq!(read(found).unwrap(), read(expected).unwrap(), "{name}");
        found_header.size_bytes = expected_header.size_bytes;
        found_header.crc = expected_header.crc;
    } else {
        assert_eq!(found[16..], expected[16..], "{name}");
    }
    assert_eq!(found_header, expected_header, "{name}");
    assert_eq!(
        compute_crc(found),
        BatchHeader::parse(found).unwrap().unwrap().crc,
        "{name}"
    );
}

#[test]
fn a_cleaned_batch_keeps_its_range_of_offsets_and_its_delete_horizon() {
    let batch = golden_batch("transactional");
    let header = BatchHeader::parse(&batch).unwrap().unwrap();
    let options = BatchOptions {
        delete_horizon_ms: Some(T + 5),
        ..BatchOptions::of(&header).unwrap()
    };
    let mut reader = RecordReader::new();
    let mut builder = BatchBuilder::new(options);
    for record in reader.read(&batch).unwrap().map(Result::unwrap) {
        if record.key.is_some_and(|key| key == b"tombstone") {
            builder.append_record(&record).unwrap();
            assert!(builder.append_record(&record).is_err(), "offsets only grow");
        }
    }
    let cleaned = builder
        .finish_with_last_offset(header.last_offset())
        .unwrap();
    let found = BatchHeader::parse(&cleaned).unwrap().unwrap();
    assert_eq!((found.base_offset, found.last_offset()), (100, 104));
    assert_eq!(found.delete_horizon_ms(), Some(T + 5));
    assert_eq!((found.records_count, found.max_timestamp), (1, T - 5));
    assert_eq!(found.last_sequence(), header.last_sequence());
    assert_eq!(read(&cleaned).unwrap(), golden_records(2, false)[2..3]);
}

#[test]
fn an_empty_batch_keeps_the_header_and_has_no_records() {
    let header = BatchHeader::parse(&golden_batch("transactional"))
        .unwrap()
        .unwrap();
    let batch = empty_batch(&header);
    let found = BatchHeader::parse(&batch).unwrap().unwrap();
    assert!(found.crc_matches(&batch));
    assert_eq!((found.records_count, found.size_bytes), (0, 61));
    assert_eq!(found.last_sequence(), header.last_sequence());
    assert_eq!(found.last_offset(), header.last_offset());
    assert_eq!(found.max_timestamp, header.max_timestamp);
    assert!(found.is_transactional() && !found.is_compressed());
    assert_eq!(read(&batch).unwrap(), []);
}

/// librdkafka once wrote 0 as the wrapper's offset of what it produced.
#[test]
fn a_legacy_set_with_wrapper_offset_0_keeps_its_inner_offsets() {
    let mut batch = golden_batch("magic-1-gzip");
    batch[..8].copy_from_slice(&0_i64.to_be_bytes());
    let offsets: Vec<i64> = read(&batch)
        .unwrap()
        .iter()
        .map(|record| record.offset)
        .collect();
    assert_eq!(offsets, [0, 1, 2, 3, 4]);
    batch[..8].copy_from_slice(&3_i64.to_be_bytes());
    assert!(
        matches!(read(&batch), Err(Error::InvalidRecord(_))),
        "offsets below 0"
    );
}

/// Offset (8 bytes) and leader epoch (4) lie outside the CRC; the length (4) and the magic (1) are
/// refused or make another batch of it, whose CRC then fails.
#[test]
fn a_flipped_bit_is_noticed_unless_it_is_outside_of_the_crc() {
    for (name, batch) in golden_batches() {
        let size = BatchHeader::parse(&batch).unwrap().unwrap().size_bytes;
        let batch = &batch[..size];
        let magic = batch[16];
        let mut silent = Vec::new();
        for bit in 0..size * 8 {
            // One bit of each byte of long bodies, all bits of the header.
            if bit / 8 > 200 && bit % 8 != (bit / 8) % 8 {
                continue;
            }
            let mut flipped = batch.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let noticed = match BatchHeader::parse(&flipped) {
                Ok(Some(header)) => header.size_bytes != size || !header.crc_matches(&flipped),
                Ok(None) | Err(_) => true,
            };
            if !noticed && silent.last() != Some(&(bit / 8)) {
                silent.push(bit / 8);
            }
        }
        let unprotected: Vec<usize> = if magic == 2 {
            (0..8).chain(12..16).collect()
        } else {
            (0..8).collect()
        };
        assert_eq!(silent, unprotected, "{name}");
    }
}

#[test]
fn a_batch_cut_at_any_byte_is_refused_or_cut_off() {
    let mut scratch = Scratch::default();
    for (name, batch) in golden_batches() {
        let size = BatchHeader::parse(&batch).unwrap().unwrap().size_bytes;
        for length in 0..size {
            assert!(read(&batch[..length]).is_err(), "{name} {length}");
            for origin in [AppendOrigin::Client, AppendOrigin::Replication] {
                let rules = ValidationRules {
                    origin,
                    ..ValidationRules::default()
                };
                match validate(&mut batch[..length].to_vec(), &rules, &mut scratch) {
                    Ok(validated) => {
                        assert_eq!(origin, AppendOrigin::Replication);
                        assert_eq!((validated.batches.len(), validated.valid_bytes), (0, 0));
                    }
                    Err(error) => assert!(matches!(error, Error::InvalidRecord(_)), "{error}"),
                }
            }
        }
    }
}

fn any_record() -> impl Strategy<Value = PlainRecord> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
    let headers = proptest::collection::vec((bytes(), proptest::option::of(bytes())), 0..4);
    let timestamp = prop_oneof![T - 1_000..T + 1_000, 0..i64::MAX / 4, Just(-1)];
    let slice = || proptest::option::of(bytes());
    (timestamp, slice(), slice(), headers).prop_map(|(timestamp, key, value, headers)| {
        PlainRecord {
            offset: 0,
            timestamp,
            key,
            value,
            headers,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 2))]

    #[test]
    fn any_records_survive_building_validating_and_reading(
        mut records in proptest::collection::vec(any_record(), 1..40),
        codec in 0_u8..5,
        target in 0_u8..6,
        idempotent in any::<bool>(),
        append_time in any::<bool>(),
    ) {
        let options = BatchOptions {
            codec: Codec::from_id(codec).unwrap(),
            producer_id: if idempotent { 7 } else { -1 },
            producer_epoch: if idempotent { 0 } else { -1 },
            base_sequence: if idempotent { i32::MAX - 3 } else { -1 },
            transactional: idempotent,
            ..BatchOptions::default()
        };
        let mut batch = build(options, &records);
        let rules = ValidationRules {
            now_ms: T,
            timestamp_after_max_ms: i64::MAX,
            compression: Codec::from_id(target).ok().map(|codec| (codec, None)),
            timestamp_type: if append_time {
                TimestampType::LogAppendTime
            } else {
                TimestampType::CreateTime
            },
            ..ValidationRules::default()
        };
        let before = BatchHeader::parse(&batch).unwrap().unwrap();
        let validated = validate(&mut batch, &rules, &mut Scratch::default()).unwrap();
        let rebuilt = validated.replacement.is_some();
        prop_assert_eq!(rebuilt, target < 5 && target != codec);
        let batch = validated.replacement.unwrap_or(batch);
        for (index, record) in records.iter_mut().enumerate() {
            record.offset = index as i64;
            if append_time {
                record.timestamp = T;
            }
        }
        let header = validated.batches[0].header;
        prop_assert_eq!(header.last_sequence(), before.last_sequence());
        prop_assert_eq!(header.producer_id, before.producer_id);
        prop_assert_eq!(header.is_transactional(), idempotent);
        prop_assert_eq!(&read(&batch).unwrap(), &records);
        prop_assert_eq!(read_batch(&batch), Some(records));
    }

    /// Damage behind the CRC: both readers refuse, or read the same.
    #[test]
    fn both_readers_agree_on_damaged_records(
        records in proptest::collection::vec(any_record(), 1..5),
        codec in 0_u8..5,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let options = BatchOptions {
            codec: Codec::from_id(codec).unwrap(),
            ..BatchOptions::default()
        };
        let mut batch = build(options, &records);
        for (at, byte) in damage {
            let at = 61 + at.index(batch.len() - 61);
            batch[at] = byte;
        }
        let crc = compute_crc(&batch);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        // Codecs are free to tolerate what follows their end, or a checksum that Kafka ignores.
        if let (0, expected) = (codec, read_batch(&batch)) {
            prop_assert_eq!(read(&batch).ok(), expected);
        } else if let (Ok(found), Some(expected)) = (read(&batch), read_batch(&batch)) {
            prop_assert_eq!(found, expected);
        }
    }
}

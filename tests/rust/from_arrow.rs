//! Arrow rows become batches that hold the same records: every kind of array, every column, the
//! partitions of Kafka's default partitioner, and the bounds.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, ListBuilder, StringBuilder, StructBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BinaryArray, BinaryViewArray, DictionaryArray, Int32Array, Int64Array,
    LargeBinaryArray, LargeStringArray, NullArray, RecordBatch, StringArray, StringViewArray,
    TimestampMicrosecondArray, TimestampNanosecondArray, TimestampSecondArray,
};
use arrow_schema::{DataType, Field};
use kafkalite::batch::{BatchHeader, Codec, RecordReader};
use kafkalite::client::partitioner::partition_for_key;
use kafkalite::client::{ArrowEncoder, EncodeOptions, EncodedBatch};
use kafkalite::limits::ENCODED_BYTES_MAX;
use proptest::prelude::*;

const NOW_MS: i64 = 1_700_000_000_000;

type Header = (String, Option<Vec<u8>>);

#[derive(Clone, Debug, PartialEq)]
struct Row {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    topic: String,
    partition: Option<i32>,
    headers: Vec<Header>,
    timestamp_ms: Option<i64>,
}

fn options() -> EncodeOptions {
    EncodeOptions {
        topic: None,
        codec: Codec::None,
        level: None,
        batch_bytes: 16_384,
        record_bytes_max: 1 << 20,
        open_bytes_max: 32 << 20,
        transactional: false,
        seed: 7,
    }
}

fn to_arrow(rows: &[Row]) -> RecordBatch {
    let entry = vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("value", DataType::Binary, true),
    ];
    let mut headers = ListBuilder::new(StructBuilder::from_fields(entry, 0));
    for row in rows {
        for (name, value) in &row.headers {
            let entries = headers.values();
            let names = entries.field_builder::<StringBuilder>(0).unwrap();
            names.append_value(name);
            let values = entries.field_builder::<BinaryBuilder>(1).unwrap();
            values.append_option(value.as_ref());
            entries.append(true);
        }
        headers.append(!row.headers.is_empty());
    }
    let keys: Vec<_> = rows.iter().map(|row| row.key.as_deref()).collect();
    let values: Vec<_> = rows.iter().map(|row| row.value.as_deref()).collect();
    let topics: Vec<_> = rows.iter().map(|row| row.topic.as_str()).collect();
    let partitions: Vec<_> = rows.iter().map(|row| row.partition).collect();
    let times: Vec<_> = rows
        .iter()
        .map(|row| row.timestamp_ms.map(|time| time * 1000 + 999))
        .collect();
    RecordBatch::try_from_iter([
        ("headers", Arc::new(headers.finish()) as ArrayRef),
        ("key", Arc::new(BinaryArray::from(keys))),
        ("value", Arc::new(BinaryArray::from(values))),
        ("topic", Arc::new(StringArray::from(topics))),
        ("partition", Arc::new(Int32Array::from(partitions))),
        (
            "timestamp",
            Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")),
        ),
        ("offset", Arc::new(Int64Array::from(vec![0; rows.len()]))),
    ])
    .unwrap()
}

fn encode(encoder: &mut ArrowEncoder, batch: &RecordBatch) -> Result<Vec<EncodedBatch>, String> {
    let mut made = Vec::new();
    for topic in encoder.load(batch).map_err(|error| error.to_string())? {
        encoder.set_topic(&topic, 3, &[0, 1, 2]).unwrap();
    }
    while encoder
        .encode(NOW_MS, &mut made)
        .map_err(|error| error.to_string())?
    {}
    Ok(made)
}

fn encode_all(options: EncodeOptions, batches: &[RecordBatch]) -> Vec<EncodedBatch> {
    let mut encoder = ArrowEncoder::new(options).unwrap();
    let mut made = Vec::new();
    for batch in batches {
        made.extend(encode(&mut encoder, batch).unwrap());
    }
    encoder.finish(&mut made).unwrap();
    made
}

/// The records of each partition, in order.
fn decode(made: &[EncodedBatch]) -> HashMap<(String, u32), Vec<Row>> {
    let mut reader = RecordReader::new();
    let mut found: HashMap<(String, u32), Vec<Row>> = HashMap::new();
    for batch in made {
        let header = BatchHeader::parse(&batch.records).unwrap().unwrap();
        assert!(header.crc_matches(&batch.records));
        assert_eq!(header.records_count, batch.records_count);
        assert_eq!(header.size_bytes, batch.records.len());
        let place = (batch.topic.to_string(), batch.partition);
        let rows = found.entry(place.clone()).or_default();
        for record in reader.read(&batch.records).unwrap() {
            let record = record.unwrap();
            let headers = record.headers.iter().map(|(name, value)| {
                let name = String::from_utf8(name.to_vec()).unwrap();
                (name, value.map(<[u8]>::to_vec))
            });
            rows.push(Row {
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                topic: place.0.clone(),
                partition: Some(place.1 as i32),
                headers: headers.collect(),
                timestamp_ms: Some(record.timestamp),
            });
        }
    }
    found
}

fn any_row() -> impl Strategy<Value = Row> {
    let bytes = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40));
    let header = ("[a-z]{0,4}", bytes());
    (
        bytes(),
        bytes(),
        "[ab]",
        proptest::option::of(0..3_i32),
        proptest::collection::vec(header, 0..3),
        proptest::option::of(-1..4_000_000_000_000_i64),
    )
        .prop_map(
            |(key, value, topic, partition, headers, timestamp_ms)| Row {
                key,
                value,
                topic,
                partition,
                headers,
                timestamp_ms,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(ProptestConfig::default().cases / 2)
    })]

    #[test]
    fn batches_hold_the_rows_where_kafkas_partitioner_puts_them(
        rows in proptest::collection::vec(any_row(), 0..80),
        split in 0..80_usize,
        codec in 0..5_usize,
        batch_bytes in 0..2_000_usize,
        open_bytes_max in 0..4_000_usize,
        transactional: bool,
    ) {
        let codec = Codec::ALL[codec];
        let options = EncodeOptions { codec, batch_bytes, open_bytes_max, transactional, ..options() };
        let batch = to_arrow(&rows);
        let split = split.min(rows.len());
        let made = encode_all(options, &[batch.slice(0, split), batch.slice(split, rows.len() - split)]);
        for each in &made {
            let header = BatchHeader::parse(&each.records).unwrap().unwrap();
            prop_assert_eq!(header.codec_id(), codec.id());
            prop_assert_eq!(header.is_transactional(), transactional);
            if codec == Codec::None && each.records_count > 1 {
                prop_assert!(each.records.len() <= batch_bytes + 61);
            }
        }
        let mut found = decode(&made);
        let mut without_place: Vec<Row> = Vec::new();
        for row in &rows {
            let expected = Row { timestamp_ms: row.timestamp_ms.or(Some(NOW_MS)), ..row.clone() };
            let by_key = row.key.as_ref().map(|key| partition_for_key(key, 3) as i32);
            let Some(partition) = row.partition.or(by_key) else {
                without_place.push(expected);
                continue;
            };
            let records = found.get_mut(&(row.topic.clone(), partition as u32)).unwrap();
            let expected = Row { partition: Some(partition), ..expected };
            let at = records.iter().position(|record| *record == expected);
            prop_assert!(at.is_some(), "{expected:?} is missing");
            records.remove(at.unwrap());
        }
        let mut left: Vec<Row> = found.into_values().flatten()
            .map(|row| Row { partition: None, ..row }).collect();
        let sorted = |rows: &mut Vec<Row>| rows.sort_by_key(|row| format!("{row:?}"));
        sorted(&mut left);
        sorted(&mut without_place);
        prop_assert_eq!(left, without_place);
    }
}

/// A full batch sent the row to another partition at random, whose own batch was not looked at.
#[test]
fn a_row_that_finds_two_batches_full_begins_a_third() {
    let row = |key: Option<&str>, size: usize| Row {
        key: key.map(|key| key.as_bytes().to_vec()),
        value: Some(vec![7; size]),
        topic: String::from("a"),
        partition: None,
        headers: Vec::new(),
        timestamp_ms: None,
    };
    let keyed = (0..60).map(|number| row(Some(&format!("{number}")), 20));
    let without_key = (0..60).map(|_| row(None, 90));
    let rows: Vec<Row> = keyed.zip(without_key).flat_map(<[Row; 2]>::from).collect();
    let options = EncodeOptions {
        batch_bytes: 200,
        ..options()
    };
    for each in encode_all(options, &[to_arrow(&rows)]) {
        assert!(each.records.len() <= 200 || each.records_count == 1);
    }
}

fn one_topic(topic: &str) -> EncodeOptions {
    EncodeOptions {
        topic: Some(topic.to_owned()),
        ..options()
    }
}

fn values_of(column: ArrayRef) -> Vec<Option<Vec<u8>>> {
    let partition: ArrayRef = Arc::new(Int32Array::from(vec![2; column.len()]));
    let batch = RecordBatch::try_from_iter([("value", column), ("partition", partition)]).unwrap();
    let mut found = decode(&encode_all(one_topic("t"), &[batch]));
    let rows = found.remove(&("t".to_owned(), 2)).unwrap();
    rows.into_iter().map(|row| row.value).collect()
}

#[test]
fn every_kind_of_text_and_bytes_is_taken() {
    let texts = vec![
        Some("one"),
        None,
        Some(""),
        Some("a longer text than a view holds"),
    ];
    let bytes: Vec<_> = texts.iter().map(|text| text.map(str::as_bytes)).collect();
    let expected: Vec<_> = bytes.iter().map(|each| each.map(<[u8]>::to_vec)).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(texts.clone())),
        Arc::new(LargeStringArray::from(texts.clone())),
        Arc::new(StringViewArray::from(texts.clone())),
        Arc::new(
            texts
                .iter()
                .copied()
                .collect::<DictionaryArray<Int32Type>>(),
        ),
        Arc::new(BinaryArray::from(bytes.clone())),
        Arc::new(LargeBinaryArray::from(bytes.clone())),
        Arc::new(BinaryViewArray::from(bytes)),
    ];
    for column in columns {
        let kind = column.data_type().clone();
        assert_eq!(values_of(column), expected, "{kind}");
    }
    assert_eq!(values_of(Arc::new(NullArray::new(2))), [None, None]);
}

#[test]
fn a_sliced_batch_gives_its_own_rows() {
    let column = StringArray::from_iter_values((0..10).map(|number| number.to_string()));
    let found = values_of(Arc::new(column.slice(3, 2)));
    assert_eq!(found, [Some(b"3".to_vec()), Some(b"4".to_vec())]);
}

#[test]
fn times_of_every_unit_become_milliseconds() {
    let columns: [ArrayRef; 3] = [
        Arc::new(TimestampSecondArray::from(vec![5])),
        Arc::new(TimestampMicrosecondArray::from(vec![5_000_999])),
        Arc::new(TimestampNanosecondArray::from(vec![5_000_999_999])),
    ];
    for column in columns {
        let value: ArrayRef = Arc::new(StringArray::from(vec!["v"]));
        let batch = RecordBatch::try_from_iter([("value", value), ("timestamp", column)]).unwrap();
        let found = decode(&encode_all(one_topic("t"), &[batch]));
        let rows: Vec<_> = found.into_values().flatten().collect();
        assert_eq!(rows[0].timestamp_ms, Some(5_000));
    }
}

#[test]
fn rows_without_a_key_fill_a_batch_of_one_partition_then_one_of_another() {
    let value = "v".repeat(100);
    let values = StringArray::from_iter_values((0..20_000).map(|_| &value));
    let batch = RecordBatch::try_from_iter([("value", Arc::new(values) as ArrayRef)]).unwrap();
    let made = encode_all(one_topic("t"), &[batch]);
    assert!(made.len() > 100);
    let (last, full) = made.split_last().unwrap();
    assert!(
        full.iter().all(|batch| batch.records.len() > 16_000),
        "{}",
        last.records.len()
    );
    for partition in 0..3 {
        let count = made
            .iter()
            .filter(|batch| batch.partition == partition)
            .count();
        let share = count as f64 / made.len() as f64;
        assert!((0.2..0.47).contains(&share), "{partition}: {share}");
    }
}

#[test]
fn one_call_gives_a_bounded_number_of_bytes() {
    let value = "v".repeat(1_000);
    let values = StringArray::from_iter_values((0..20_000).map(|_| &value));
    let batch = RecordBatch::try_from_iter([("value", Arc::new(values) as ArrayRef)]).unwrap();
    let mut encoder = ArrowEncoder::new(one_topic("t")).unwrap();
    assert_eq!(encoder.load(&batch).unwrap(), ["t"]);
    encoder.set_topic("t", 3, &[]).unwrap();
    let mut calls = 0;
    loop {
        let mut made = Vec::new();
        let has_more = encoder.encode(NOW_MS, &mut made).unwrap();
        let bytes: usize = made.iter().map(|batch| batch.records.len()).sum();
        assert!(bytes < ENCODED_BYTES_MAX + 20_000);
        calls += 1;
        if !has_more {
            break;
        }
    }
    assert!(calls > 4, "{calls}");
}

type Columns = Vec<(&'static str, ArrayRef)>;

fn refusal(options: EncodeOptions, columns: Columns) -> String {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut encoder = ArrowEncoder::new(options).unwrap();
    encode(&mut encoder, &batch).expect_err("it is refused")
}

#[test]
fn what_cannot_be_written_is_refused_in_a_sentence() {
    let text = |value: &'static str| Arc::new(StringArray::from(vec!["v", value])) as ArrayRef;
    let number: ArrayRef = Arc::new(Int32Array::from(vec![0, 1]));
    let cases: Vec<(EncodeOptions, Columns, &str)> = vec![
        (
            options(),
            vec![("value", text("v"))],
            "topic option required when no 'topic' attribute",
        ),
        (
            one_topic("t"),
            vec![("key", text("v"))],
            "Required attribute 'value' not found",
        ),
        (
            one_topic("t"),
            vec![("value", Arc::clone(&number))],
            "value attribute unsupported type Int32. value must be a string or binary",
        ),
        (
            options(),
            vec![("value", text("v")), ("topic", Arc::clone(&number))],
            "topic attribute unsupported type Int32. topic must be a string",
        ),
        (
            options(),
            vec![
                ("value", text("v")),
                ("topic", Arc::new(StringArray::from(vec![Some("t"), None]))),
            ],
            "row 1: The Kafka message data sent to the producer contains a null topic",
        ),
        (
            one_topic("t"),
            vec![("value", text("v")), ("partition", text("1"))],
            "partition attribute unsupported type Utf8. partition must be an int",
        ),
        (
            one_topic("t"),
            vec![
                ("value", text("v")),
                ("partition", Arc::new(Int64Array::from(vec![0, 3]))),
            ],
            "row 1, topic 't': there is no partition 3, but 0 to 2",
        ),
        (
            one_topic("t"),
            vec![
                ("value", text("v")),
                ("partition", Arc::new(Int32Array::from(vec![0, -1]))),
            ],
            "row 1, topic 't': there is no partition -1, but 0 to 2",
        ),
        (
            one_topic("t"),
            vec![
                ("value", text("v")),
                (
                    "timestamp",
                    Arc::new(TimestampMicrosecondArray::from(vec![0, -5_000])),
                ),
            ],
            "row 1, topic 't': invalid timestamp",
        ),
        (
            one_topic("t"),
            vec![("value", text("v")), ("headers", number)],
            "headers attribute unsupported type Int32. headers must be an array<struct<key:string",
        ),
        (
            EncodeOptions {
                record_bytes_max: 200,
                ..one_topic("t")
            },
            vec![(
                "value",
                Arc::new(StringArray::from(vec!["v".repeat(10), "v".repeat(200)])),
            )],
            "row 1, topic 't': the record is 286 bytes when serialized, which is more than \
             max.request.size (200)",
        ),
    ];
    for (options, columns, expected) in cases {
        let told = refusal(options, columns);
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn a_header_without_a_key_is_refused() {
    let entry = vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("value", DataType::Binary, true),
    ];
    let mut headers = ListBuilder::new(StructBuilder::from_fields(entry, 0));
    let entries = headers.values();
    entries
        .field_builder::<StringBuilder>(0)
        .unwrap()
        .append_null();
    entries
        .field_builder::<BinaryBuilder>(1)
        .unwrap()
        .append_value(b"x");
    entries.append(true);
    headers.append(true);
    let value: ArrayRef = Arc::new(StringArray::from(vec!["v"]));
    let columns = vec![
        ("value", value),
        ("headers", Arc::new(headers.finish()) as ArrayRef),
    ];
    assert!(refusal(one_topic("t"), columns).contains("row 0, topic 't': a header has no key"));
}

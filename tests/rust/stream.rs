//! Batches that inflate to more than is held at a time: what is said of them is what is said of the
//! same records uncompressed, which are looked at as a whole.

use kafkalite::batch::header::compute_crc;
use kafkalite::batch::validate::Scratch;
use kafkalite::batch::{
    BatchBuilder, BatchHeader, BatchOptions, Codec, RecordReader, ValidationRules, validate,
};
use kafkalite::error::Error;
use kafkalite::limits::{INFLATE_WINDOW_BYTES, INFLATED_BYTES_MAX};
use proptest::prelude::*;

use crate::random::Random;

const T: i64 = 1_700_000_000_000;
const CODECS: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

/// Bytes of key and value of each record, and its time after `T`.
type Row = (Option<usize>, Option<usize>, i64);

fn build(codec: Codec, rows: &[Row]) -> Vec<u8> {
    let mut random = Random::new(1);
    let mut builder = BatchBuilder::new(BatchOptions {
        codec,
        ..BatchOptions::default()
    });
    // No bomb: some of it is noise.
    let mut bytes = |length: &Option<usize>| {
        let noise = |at: usize| {
            if at.is_multiple_of(200) {
                random.byte()
            } else {
                0
            }
        };
        length.map(|length| (0..length).map(noise).collect::<Vec<u8>>())
    };
    for (key, value, time) in rows {
        let (key, value) = (bytes(key), bytes(value));
        let headers: &[(&[u8], Option<&[u8]>)] = &[(b"h", value.as_deref()), (b"", None)];
        let headers = if time % 5 == 0 { headers } else { &[] };
        builder
            .append(T + time, key.as_deref(), value.as_deref(), headers)
            .unwrap();
    }
    builder.finish().unwrap()
}

fn rules() -> ValidationRules {
    ValidationRules {
        now_ms: T,
        max_message_bytes: 1 << 29,
        ..ValidationRules::default()
    }
}

/// What of a verdict does not depend on the codec.
fn verdict(batch: &[u8], rules: &ValidationRules) -> Result<(i64, i32, Vec<Row>), String> {
    let mut bytes = batch.to_vec();
    let validated = validate(&mut bytes, rules, &mut Scratch::default());
    let validated = validated.map_err(|error| match error {
        Error::MessageTooLarge { .. } => "too large".to_owned(),
        error => error.to_string(),
    })?;
    let summary = validated.batches[0];
    let rows = rows_of(validated.bytes(&bytes));
    Ok((
        summary.header.max_timestamp,
        summary.offset_delta_of_max_timestamp,
        rows,
    ))
}

fn rows_of(batch: &[u8]) -> Vec<Row> {
    let mut reader = RecordReader::new();
    let records = reader.read(batch).unwrap().map(Result::unwrap);
    records
        .map(|record| {
            (
                record.key.map(<[u8]>::len),
                record.value.map(<[u8]>::len),
                record.timestamp - T,
            )
        })
        .collect()
}

/// Some small ones between some that are larger than the window.
fn any_rows() -> impl Strategy<Value = Vec<Row>> {
    let window = INFLATE_WINDOW_BYTES;
    let length = prop_oneof![
        4 => 0..200_usize,
        3 => 60_000..700_000_usize,
        2 => window - 20..window + 20,
        1 => 2 * window..2 * window + 100_000,
    ];
    let slice = || proptest::option::weighted(0.9, length.clone());
    proptest::collection::vec((slice(), slice(), -50..50_i64), 3..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn a_large_batch_is_judged_as_the_same_records_without_a_codec(
        rows in any_rows(),
        compacted in any::<bool>(),
        before_max_ms in prop_oneof![Just(10), Just(i64::MAX)],
        recompress in any::<bool>(),
    ) {
        let rules = ValidationRules {
            compacted,
            timestamp_before_max_ms: before_max_ms,
            compression: recompress.then_some((Codec::Lz4, None)),
            ..rules()
        };
        let expected = verdict(&build(Codec::None, &rows), &rules);
        for codec in CODECS {
            let found = verdict(&build(codec, &rows), &rules);
            prop_assert_eq!(&found, &expected, "{:?}", codec);
        }
    }

    #[test]
    fn a_stream_gives_what_a_reader_gives_and_gives_it_again(rows in any_rows()) {
        for codec in CODECS {
            let batch = build(codec, &rows);
            let (mut reader, mut whole) = (RecordReader::new(), RecordReader::new());
            let mut stream = reader.stream(&batch).unwrap();
            for record in whole.read(&batch).unwrap() {
                prop_assert_eq!(stream.next_record().unwrap(), Some(record.unwrap()));
            }
            prop_assert_eq!(stream.next_record().unwrap(), None);
            stream.rewind().unwrap();
            for record in whole.read(&batch).unwrap() {
                let record = record.unwrap();
                let expected = Some((record.offset, record.timestamp));
                prop_assert_eq!(stream.next_offset_and_timestamp().unwrap(), expected);
            }
            prop_assert_eq!(stream.next_offset_and_timestamp().unwrap(), None);
        }
    }
}

type Damage<'a> = dyn Fn(&mut Vec<u8>) + 'a;

/// The batch, with its inflated records changed and compressed again.
fn damaged(batch: &[u8], codec: Codec, damage: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut records = batch[61..].to_vec();
    damage(&mut records);
    let mut damaged = batch[..61].to_vec();
    damaged.extend(kafkalite::batch::compression::compress(codec, None, &records).unwrap());
    let length = (damaged.len() - 12) as u32;
    damaged[8..12].copy_from_slice(&length.to_be_bytes());
    damaged[22] = damaged[22] & !7 | codec.id();
    let crc = compute_crc(&damaged);
    damaged[17..21].copy_from_slice(&crc.to_be_bytes());
    damaged
}

#[test]
fn what_is_wrong_behind_the_first_window_is_found() {
    let large = INFLATE_WINDOW_BYTES + 1_000;
    for rows in [
        vec![(Some(9), Some(large), 1); 3],
        vec![(Some(9), Some(90_000), 1); 150],
    ] {
        let plain = build(Codec::None, &rows);
        let length = plain.len() - 61;
        let wrong: [&Damage<'_>; 5] = [
            &|records| records.truncate(length - 1),
            &|records| records.push(0),
            &|records| records.truncate(length - 80_000),
            // The headers' count of the last record.
            &|records| records[length - 1] = 2,
            &|records| records[length - 1] = 1,
        ];
        for codec in CODECS {
            let good = damaged(&plain, codec, |_| {});
            assert!(verdict(&good, &rules()).is_ok());
            for (index, damage) in wrong.iter().enumerate() {
                let bad = damaged(&plain, codec, damage);
                let answer = verdict(&bad, &rules());
                assert!(answer.is_err(), "{codec:?} {index}");
                let mut reader = RecordReader::new();
                let mut stream = reader.stream(&bad).unwrap();
                let error = loop {
                    match stream.next_offset_and_timestamp() {
                        Ok(Some(_)) => {}
                        Ok(None) => panic!("{codec:?} {index}"),
                        Err(error) => break error,
                    }
                };
                assert!(matches!(error, Error::InvalidRecord(_)), "{error}");
            }
        }
    }
}

#[test]
fn a_batch_that_is_too_large_when_it_is_built_again_is_not_built() {
    let rows = [(Some(9), Some(90_000), 1); 150];
    let rules = ValidationRules {
        max_message_bytes: 1 << 20,
        compression: Some((Codec::None, None)),
        ..rules()
    };
    let batch = build(Codec::Zstd, &rows);
    assert_eq!(verdict(&batch, &rules).unwrap_err(), "too large");
    let size = BatchHeader::parse(&batch).unwrap().unwrap().size_bytes;
    assert!(size < 1 << 20);
}

/// Says whether both batches have the same records, to the byte.
fn are_same(one: &[u8], other: &[u8]) -> bool {
    let (mut reader, mut other_reader) = (RecordReader::new(), RecordReader::new());
    let records = reader.read(one).unwrap().map(Result::unwrap);
    records.eq(other_reader.read(other).unwrap().map(Result::unwrap))
}

#[test]
fn a_record_larger_than_the_window_is_built_again_to_the_byte() {
    let large = 2 * INFLATE_WINDOW_BYTES + 1_000;
    let rows = [
        (Some(9), Some(large), 5),
        (None, Some(9), 0),
        (Some(large), None, -7),
    ];
    let plain = build(Codec::None, &rows);
    for codec in CODECS {
        for target in [Codec::None].into_iter().chain(CODECS) {
            // Where the codec stays, the first offset delta is 1 instead of 0.
            let mut batch = damaged(&plain, codec, |records| {
                records[6] = 2 * u8::from(codec == target);
            });
            let rules = ValidationRules {
                compression: Some((target, None)),
                ..rules()
            };
            let validated = validate(&mut batch, &rules, &mut Scratch::default()).unwrap();
            let rebuilt = validated.replacement.expect("it is built again");
            let header = BatchHeader::parse(&rebuilt).unwrap().unwrap();
            assert_eq!(header.codec_id(), target.id());
            assert!(are_same(&rebuilt, &plain), "{codec:?} to {target:?}");
        }
    }
}

/// The cleaner may have to write a batch again with longer time deltas: one of a gigabyte became
/// more than a batch may be, and its partition was never compacted again.
#[test]
fn a_batch_that_inflates_to_more_than_can_be_written_again_is_refused() {
    let value = vec![0; 1 << 20];
    let batch = |values: usize| {
        let mut builder = BatchBuilder::new(BatchOptions {
            codec: Codec::Lz4,
            ..BatchOptions::default()
        });
        for _ in 0..values {
            builder.append(T, None, Some(&value), &[]).unwrap();
        }
        builder.finish().unwrap()
    };
    let values_max = INFLATED_BYTES_MAX / value.len();
    let judge = |mut batch: Vec<u8>| validate(&mut batch, &rules(), &mut Scratch::default());
    assert!(judge(batch(values_max - 1)).is_ok());
    assert!(matches!(
        judge(batch(values_max)),
        Err(Error::InvalidRecord(_))
    ));
}

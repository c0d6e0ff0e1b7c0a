//! What accepts or refuses a produced batch, where `batch.rs` has no verdict of Kafka's for it:
//! how many batches, origins, sizes, CRC, corrections.

use kafkalite::batch::build::end_transaction_marker;
use kafkalite::batch::header::{TimestampType, compute_crc, patch_offset_and_epoch};
use kafkalite::batch::validate::{Scratch, Validated};
use kafkalite::batch::{
    AppendOrigin, BatchBuilder, BatchHeader, BatchOptions, Codec, EndTransactionMarker,
    ValidationRules, validate,
};
use kafkalite::error::Error;
use kafkalite::limits::RECORD_ERRORS_MAX;

const T: i64 = 1_700_000_000_000;

fn client() -> ValidationRules {
    ValidationRules {
        now_ms: T,
        ..ValidationRules::default()
    }
}

fn origin(origin: AppendOrigin) -> ValidationRules {
    ValidationRules { origin, ..client() }
}

fn check(records: &[u8], rules: &ValidationRules) -> Result<Validated, Error> {
    validate(&mut records.to_vec(), rules, &mut Scratch::default())
}

fn batch_of(options: BatchOptions, records: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for index in 0..records {
        builder
            .append(T + index as i64, None, Some(b"value"), &[])
            .unwrap();
    }
    builder.finish().unwrap()
}

fn batch(base_offset: i64, records: usize) -> Vec<u8> {
    batch_of(
        BatchOptions {
            base_offset,
            ..BatchOptions::default()
        },
        records,
    )
}

fn with_crc(mut batch: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut batch);
    let crc = compute_crc(&batch);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

#[test]
fn a_client_sends_exactly_one_batch_at_base_offset_0() {
    assert!(matches!(
        check(&[], &client()),
        Err(Error::InvalidRecord(_))
    ));
    let two = [batch(0, 3), batch(0, 3)].concat();
    assert!(matches!(
        check(&two, &client()),
        Err(Error::InvalidRecord(_))
    ));
    assert!(matches!(
        check(&batch(1, 3), &client()),
        Err(Error::InvalidRecord(_))
    ));
    let mut magic_1 = batch(0, 3);
    magic_1[16] = 1;
    assert!(matches!(
        check(&magic_1, &client()),
        Err(Error::InvalidRecord(_))
    ));
    let mut magic_3 = batch(0, 3);
    magic_3[16] = 3;
    assert!(matches!(
        check(&magic_3, &client()),
        Err(Error::CorruptMessage(_))
    ));
}

#[test]
fn an_accepted_batch_keeps_its_bytes_and_a_cut_batch_behind_it_is_cut_off() {
    let one = batch(0, 3);
    for tail in [0, 1, 16, 60] {
        let mut records = [&one[..], &one[..tail]].concat();
        let validated = validate(&mut records, &client(), &mut Scratch::default()).unwrap();
        assert_eq!(validated.valid_bytes, one.len());
        assert_eq!(validated.batches.len(), 1);
        assert_eq!(validated.batches[0].size_bytes, one.len());
        assert_eq!(validated.batches[0].offset_delta_of_max_timestamp, 2);
        assert_eq!(records[..one.len()], one);
    }
}

#[test]
fn a_wrong_crc_is_corrupt_and_is_seen_before_the_fields_it_guards() {
    let mut wrong = batch(0, 3);
    wrong[57..61].copy_from_slice(&(-1_i32).to_be_bytes());
    for origin_of in [
        AppendOrigin::Client,
        AppendOrigin::Coordinator,
        AppendOrigin::Replication,
    ] {
        let refused = check(&wrong, &origin(origin_of));
        assert!(
            matches!(refused, Err(Error::CorruptMessage(_))),
            "{origin_of:?}"
        );
    }
    let fixed = with_crc(wrong, |_| {});
    assert!(matches!(
        check(&fixed, &client()),
        Err(Error::InvalidRecord(_))
    ));
    let replicated = check(&fixed, &origin(AppendOrigin::Replication));
    assert!(matches!(replicated, Err(Error::CorruptMessage(_))));
}

#[test]
fn a_batch_of_max_message_bytes_is_taken_and_one_byte_more_is_not() {
    let one = batch(0, 30);
    let of = |max_message_bytes, origin| ValidationRules {
        max_message_bytes,
        origin,
        ..client()
    };
    for origin in [AppendOrigin::Client, AppendOrigin::Coordinator] {
        assert!(check(&one, &of(one.len(), origin)).is_ok());
        let refused = check(&one, &of(one.len() - 1, origin));
        assert!(matches!(
            refused,
            Err(Error::MessageTooLarge { size_bytes, .. }) if size_bytes == one.len()
        ));
    }
    assert!(
        check(&one, &of(1, AppendOrigin::Replication)).is_ok(),
        "the leader took it"
    );
}

#[test]
fn a_batch_that_grows_beyond_max_message_bytes_when_inflated_is_refused() {
    let gzip = BatchOptions {
        codec: Codec::Gzip,
        ..BatchOptions::default()
    };
    let one = batch_of(gzip, 500);
    let rules = ValidationRules {
        max_message_bytes: one.len(),
        compression: Some((Codec::None, None)),
        ..client()
    };
    assert!(matches!(
        check(&one, &rules),
        Err(Error::MessageTooLarge { .. })
    ));
}

#[test]
fn codecs_without_meaning_are_refused() {
    for id in 5..8 {
        let unknown = with_crc(batch(0, 3), |batch| batch[22] |= id);
        assert!(matches!(
            check(&unknown, &client()),
            Err(Error::UnsupportedCompression(_))
        ));
    }
}

#[test]
fn a_follower_takes_several_batches_whose_offsets_grow_and_walks_no_record() {
    let broken_record = with_crc(batch(7, 2), |batch| batch[61] = 0xff);
    let records = [batch(3, 4), broken_record.clone(), batch(100, 1)].concat();
    let validated = check(&records, &origin(AppendOrigin::Replication)).unwrap();
    let found: Vec<(usize, i64)> = validated
        .batches
        .iter()
        .map(|batch| (batch.position_byte, batch.header.last_offset()))
        .collect();
    let first = batch(3, 4).len();
    assert_eq!(
        found,
        [(0, 6), (first, 8), (first + broken_record.len(), 100)]
    );
    assert_eq!(validated.valid_bytes, records.len());
    let backwards = [batch(3, 4), batch(6, 1)].concat();
    assert!(matches!(
        check(&backwards, &origin(AppendOrigin::Replication)),
        Err(Error::UnexpectedAppendOffset {
            expected_offset: 7,
            found_offset: 6
        })
    ));
}

#[test]
fn markers_of_a_coordinator_are_summarised_and_stay_as_they_are() {
    let commit = EndTransactionMarker {
        is_commit: true,
        coordinator_epoch: 5,
    };
    let abort = EndTransactionMarker {
        is_commit: false,
        coordinator_epoch: 6,
    };
    let mut second = end_transaction_marker(T, 8, 1, abort);
    patch_offset_and_epoch(&mut second, 1, 0);
    let records = [end_transaction_marker(T, 7, 1, commit), second].concat();
    for origin in [AppendOrigin::Coordinator, AppendOrigin::Replication] {
        let rules = ValidationRules {
            origin,
            compression: Some((Codec::Gzip, None)),
            ..client()
        };
        let validated = check(&records, &rules).unwrap();
        let markers: Vec<_> = validated.batches.iter().map(|batch| batch.marker).collect();
        assert_eq!(markers, [Some(commit), Some(abort)]);
        assert_eq!(validated.replacement, None);
    }
    let refused = check(&records[..78], &client());
    assert!(
        matches!(refused, Err(Error::InvalidRecord(_))),
        "clients write no markers"
    );
}

#[test]
fn a_wrong_max_timestamp_is_put_right_and_the_crc_with_it() {
    let right = batch(0, 5);
    let mut wrong = with_crc(right.clone(), |batch| {
        batch[35..43].copy_from_slice(&(T + 1_000).to_be_bytes());
    });
    let validated = validate(&mut wrong, &client(), &mut Scratch::default()).unwrap();
    assert_eq!(wrong, right);
    assert_eq!(
        validated.batches[0].header,
        BatchHeader::parse(&right).unwrap().unwrap()
    );
}

#[test]
fn log_append_time_stamps_the_batch_in_place() {
    let mut records = batch(0, 5);
    let rules = ValidationRules {
        timestamp_type: TimestampType::LogAppendTime,
        now_ms: T + 99,
        ..client()
    };
    let validated = validate(&mut records, &rules, &mut Scratch::default()).unwrap();
    let header = BatchHeader::parse(&records).unwrap().unwrap();
    assert_eq!(validated.batches[0].header, header);
    assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(header.max_timestamp, T + 99);
    assert!(header.crc_matches(&records));
}

#[test]
fn offsets_that_do_not_count_from_0_are_repaired() {
    // Offset deltas of the 1st to 3rd record: 0, 0, 0. Each record is 12 bytes long.
    let same_offsets = with_crc(batch(0, 3), |batch| {
        batch[61 + 12 + 3] = 0;
        batch[61 + 24 + 3] = 0;
    });
    let validated = check(&same_offsets, &client()).unwrap();
    assert_eq!(validated.replacement, Some(batch(0, 3)));
    assert_eq!(
        validated.batches[0].header,
        BatchHeader::parse(&batch(0, 3)).unwrap().unwrap()
    );
}

#[test]
fn one_batch_built_again_takes_its_neighbours_along() {
    let gzip = |base_offset| {
        let options = BatchOptions {
            base_offset,
            codec: Codec::Gzip,
            ..BatchOptions::default()
        };
        batch_of(options, 3)
    };
    let rules = ValidationRules {
        compression: Some((Codec::None, None)),
        ..origin(AppendOrigin::Coordinator)
    };
    for parts in [
        [batch(0, 3), gzip(0), batch(0, 2)],
        [gzip(0), batch(0, 2), gzip(0)],
        [batch(0, 1), batch(0, 2), gzip(0)],
    ] {
        let validated = check(&parts.concat(), &rules).unwrap();
        let bytes = validated.replacement.unwrap();
        let mut end = 0;
        for summary in validated.batches.iter() {
            assert_eq!(summary.position_byte, end);
            end += summary.size_bytes;
            let found = BatchHeader::parse(&bytes[summary.position_byte..])
                .unwrap()
                .unwrap();
            assert_eq!(found, summary.header);
            assert!(!found.is_compressed());
        }
        assert_eq!(end, bytes.len());
        assert_eq!(validated.valid_bytes, parts.concat().len());
    }
}

#[test]
fn with_header_validation_records_are_the_producers_word() {
    let broken = with_crc(batch(0, 3), |batch| batch[61] = 0xff);
    assert!(matches!(
        check(&broken, &client()),
        Err(Error::InvalidRecord(_))
    ));
    let trusting = ValidationRules {
        trust_records: true,
        ..client()
    };
    assert!(check(&broken, &trusting).is_ok());
    let mut wrong_crc = broken.clone();
    wrong_crc[17] ^= 1;
    assert!(matches!(
        check(&wrong_crc, &trusting),
        Err(Error::CorruptMessage(_))
    ));
    let recompressing = ValidationRules {
        compression: Some((Codec::Lz4, None)),
        ..trusting
    };
    assert!(
        check(&broken, &recompressing).is_err(),
        "what is recompressed is walked"
    );
}

#[test]
fn refused_records_are_counted_in_full_and_named_up_to_a_bound() {
    let records = RECORD_ERRORS_MAX + 10;
    let compacted = ValidationRules {
        compacted: true,
        ..client()
    };
    let Err(Error::RecordsRefused(refused)) = check(&batch(0, records), &compacted) else {
        panic!("a compacted topic takes no records without keys");
    };
    assert!(!refused.invalid_timestamp);
    assert_eq!(
        (refused.errors_count, refused.errors.len()),
        (records, RECORD_ERRORS_MAX)
    );
    assert_eq!(refused.errors[7].batch_index, 7);
}

#[test]
fn timestamps_are_allowed_up_to_the_bounds_of_the_topic_and_no_further() {
    let one = batch(0, 1);
    let at = |now_ms, before, after| ValidationRules {
        now_ms,
        timestamp_before_max_ms: before,
        timestamp_after_max_ms: after,
        ..client()
    };
    assert!(check(&one, &at(T + 10, 10, 0)).is_ok());
    assert!(check(&one, &at(T - 10, 0, 10)).is_ok());
    for rules in [at(T + 11, 10, 0), at(T - 11, 0, 10)] {
        let refused = check(&one, &rules);
        assert_eq!(refused.unwrap_err().kafka_code(), 32);
    }
}

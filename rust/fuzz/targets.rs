//! What is fuzzed, and what must hold for any bytes at all. cargo-fuzz (`fuzz_targets/`) and the
//! bounded run on stable Rust (`tests/rust/fuzz.rs`) call the same functions. A broken promise is
//! a panic.

use kafkalite::batch::compression::Codec;
use kafkalite::batch::header::{TimestampType, compute_crc};
use kafkalite::batch::inflate::{decompress, inflated_bytes_max};
use kafkalite::batch::validate::{Scratch, Validated};
use kafkalite::batch::{AppendOrigin, BatchHeader, RecordReader, ValidationRules, validate};
use kafkalite::error::Error;
use kafkalite::replica::follower::answer::{FetchAnswer, read_list_offsets};

/// The first byte chooses the rules, the others are the records of a Produce request. What is
/// accepted has right headers and CRCs, can be read record for record, and is accepted again.
pub fn validation(data: &[u8]) {
    let Some((&choice, records)) = data.split_first() else {
        return;
    };
    let rules = rules(choice);
    let mut records = records.to_vec();
    let untouched = records.clone();
    let mut scratch = Scratch::default();
    let Ok(validated) = validate(&mut records, &rules, &mut scratch) else {
        return;
    };
    assert!(validated.valid_bytes <= records.len());
    let accepted = accepted_bytes(&records, &validated);
    let mut end = 0;
    for summary in validated.batches.iter() {
        assert_eq!(
            summary.position_byte, end,
            "batches lie one behind the other"
        );
        end += summary.size_bytes;
        let batch = &accepted[summary.position_byte..end];
        let header = BatchHeader::parse(batch).expect("a header that is possible");
        assert_eq!(header, Some(summary.header));
        assert!(summary.header.crc_matches(batch));
        if rules.origin != AppendOrigin::Replication && !rules.trust_records {
            assert_readable(batch, &summary.header);
        }
    }
    assert_eq!(end, accepted.len());
    if validated
        .batches
        .iter()
        .any(|batch| claims_append_time(&untouched, batch.position_byte))
    {
        return;
    }
    let again = validate(&mut accepted.clone(), &rules, &mut scratch);
    let again = again.expect("what was accepted is accepted again");
    assert_eq!(again.replacement, None);
    assert_eq!(again.batches.len(), validated.batches.len());
}

/// As in Kafka, a batch that claims LogAppendTime for itself is judged by that time on a topic of
/// CreateTime, and then keeps its records' own times, which nobody has judged.
fn claims_append_time(records: &[u8], position_byte: usize) -> bool {
    records
        .get(position_byte + 22)
        .is_none_or(|attributes| attributes & 8 != 0)
}

fn rules(choice: u8) -> ValidationRules {
    ValidationRules {
        origin: match choice & 3 {
            0 | 1 => AppendOrigin::Client,
            2 => AppendOrigin::Coordinator,
            _ => AppendOrigin::Replication,
        },
        now_ms: 1_700_000_060_000,
        compacted: choice & 4 != 0,
        // With LogAppendTime, a batch says so once it was accepted, and is refused for it then.
        timestamp_type: TimestampType::CreateTime,
        compression: (choice & 8 != 0).then_some((Codec::ALL[usize::from(choice >> 4) % 5], None)),
        trust_records: choice & 0xf0 == 0xf0,
        ..ValidationRules::default()
    }
}

fn accepted_bytes(records: &[u8], validated: &Validated) -> Vec<u8> {
    match &validated.replacement {
        Some(bytes) => bytes.clone(),
        None => records[..validated.valid_bytes].to_vec(),
    }
}

fn assert_readable(batch: &[u8], header: &BatchHeader) {
    let mut reader = RecordReader::new();
    let mut next_offset = header.base_offset;
    for record in reader.read(batch).expect("records that inflate") {
        let record = record.expect("a whole record");
        assert_eq!(record.offset, next_offset);
        assert_eq!(record.headers.iter().count(), record.headers.count());
        next_offset += 1;
    }
    assert_eq!(
        next_offset - header.base_offset,
        i64::from(header.records_count)
    );
}

/// Any bytes as batches of a segment: they are read to the end or refused, and what is read lies
/// within bounds.
pub fn records(data: &[u8]) {
    let mut reader = RecordReader::new();
    let mut rest = data;
    while let Ok(Some(header)) = BatchHeader::parse(rest) {
        if header.size_bytes > rest.len() {
            break;
        }
        let (batch, behind) = rest.split_at(header.size_bytes);
        rest = behind;
        let Ok(records) = reader.read(batch) else {
            continue;
        };
        let mut count = 0;
        for record in records {
            let Ok(record) = record else { break };
            count += 1;
            let slices = [record.key, record.value, Some(record.headers.raw_bytes())];
            let length: usize = slices.into_iter().flatten().map(<[u8]>::len).sum();
            assert!(length <= inflated_bytes_max(batch.len()).max(batch.len()));
            assert_eq!(record.headers.iter().count(), record.headers.count());
        }
        assert!(header.magic < 2 || count <= header.records_count);
    }
}

/// Any bytes as the answer of a leader to its follower: what is read lies within them, and is no
/// more than was asked for.
pub fn follower_answers(data: &[u8]) {
    const PARTITIONS_MAX: usize = 64;
    if let Ok(answer) = FetchAnswer::read(data, PARTITIONS_MAX) {
        assert!(answer.partitions.len() <= PARTITIONS_MAX);
        let mut end = 0;
        for partition in &answer.partitions {
            let records = &partition.records;
            assert!(
                end <= records.start && records.start <= records.end && records.end <= data.len()
            );
            end = records.end;
        }
    }
    if let Ok(listed) = read_list_offsets(data, PARTITIONS_MAX) {
        assert!(listed.len() <= PARTITIONS_MAX);
    }
}

/// The first byte chooses codec and magic, the others are the stream.
pub fn decompression(data: &[u8]) {
    let Some((&choice, stream)) = data.split_first() else {
        return;
    };
    let codec = Codec::ALL[usize::from(choice) % 5];
    let magic = (choice / 5 % 3) as i8;
    let mut output = Vec::new();
    match decompress(codec, magic, stream, &mut output) {
        Ok(()) => assert!(output.len() <= inflated_bytes_max(stream.len()).max(stream.len())),
        Err(Error::InvalidRecord(_)) => {}
        Err(other) => panic!("{other}"),
    }
}

/// Makes the lengths and CRCs of magic 2 batches right, so that a mutation gets past them.
pub fn repair(records: &mut [u8]) {
    let mut at = 0;
    while let Ok(Some(header)) = BatchHeader::parse(&records[at..]) {
        let end = (at + header.size_bytes).min(records.len());
        let batch = &mut records[at..end];
        if header.magic != 2 {
            at = end;
            continue;
        }
        let length = (batch.len() - 12) as i32;
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        let crc = compute_crc(batch);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        at = end;
    }
}

//! Each bit of a segment flipped, one at a time, found at the next unclean start.
//!
//! After recovery everything that is served is what was written, at its offset, or it is cut off.
//! The CRC of a batch leaves out its first 21 bytes; what of them can be changed without anybody
//! being able to tell is counted here by field, and is these fields only:
//!
//! ```text
//! base_offset             of the last batch of the log, upwards: a gap, as compaction leaves one
//! partition_leader_epoch  any bit
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kafkalite::batch::compression::Codec;
use kafkalite::log::config::LogConfig;
use kafkalite::log::read::ReadIsolation;

use super::plain::{PlainBatch, valid_prefix};
use super::workbench::{
    NOBODY, Opening, PARTITION, append, batch, contents, create, open, serve, serve_bytes,
};
use crate::memory_storage::MemoryStorage;
use crate::random::{Random, is_long_run};

const SEGMENT_BYTES: u64 = 64 * 1024;

type Counts = BTreeMap<&'static str, usize>;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: SEGMENT_BYTES,
        index_interval_bytes: 1024,
        ..LogConfig::default()
    }
}

fn field_at(byte: usize) -> &'static str {
    match byte {
        0..8 => "base_offset",
        8..12 => "batch_length",
        12..16 => "partition_leader_epoch",
        16 => "magic",
        17..21 => "crc",
        _ => "covered by the CRC",
    }
}

/// Which bits: all, or those of the first and last header and of the rest a sample.
fn places(size: usize, batches: &[PlainBatch]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..size * 8).collect();
    if !is_long_run() {
        let mut random = Random::new(size as u64);
        let in_header =
            |batch: &PlainBatch, byte| (batch.position..batch.position + 21).contains(&byte);
        let (first, last) = (&batches[0], &batches[batches.len() - 1]);
        places.retain(|place| {
            let byte = place / 8;
            let chance = if batches.iter().any(|batch| in_header(batch, byte)) {
                40
            } else {
                1500
            };
            in_header(first, byte) || in_header(last, byte) || random.below(chance) == 0
        });
    }
    places
}

/// Flips bits of the segment at `base`; counts, by field, the flips that are served.
fn undetected(
    files: &BTreeMap<PathBuf, Vec<u8>>,
    base: i64,
    whole: &[PlainBatch],
    counts: &mut Counts,
) {
    let path = Path::new(PARTITION).join(format!("{base:020}.log"));
    let batches = valid_prefix(&files[&path], base);
    let whole_bytes: Vec<u8> = whole.iter().flat_map(|batch| batch.bytes.clone()).collect();
    for place in places(files[&path].len(), &batches) {
        let (byte, bit) = (place / 8, place % 8);
        let mut flipped = files[&path].clone();
        flipped[byte] ^= 1 << bit;
        let storage = MemoryStorage::with_files(files.iter().map(|(at, bytes)| {
            let bytes = if *at == path { &flipped } else { bytes };
            (at.as_path(), bytes.as_slice())
        }));
        let hit = batches.iter().find(|batch| byte < batch.end()).unwrap();
        let field = field_at(byte - hit.position);
        let case = format!(
            "bit {bit} of byte {byte}: {field} of the batch at {}",
            hit.base_offset
        );
        let opened = open(&storage, &Opening::unclean(&config()));
        let opened = opened.unwrap_or_else(|error| panic!("{case}: {error}"));
        let served = serve_bytes(&opened.log, ReadIsolation::LogEnd, 8192);
        if whole_bytes.starts_with(&served) {
            assert!(served.len() < whole_bytes.len(), "{case}: the flip is gone");
            // One batch below the one that was hit may look like the wrong one of the two.
            let intact: usize = whole
                .iter()
                .filter(|batch| batch.next_offset() < hit.base_offset)
                .map(|batch| batch.bytes.len())
                .sum();
            assert!(
                served.len() >= intact,
                "{case}: {} bytes are left",
                served.len()
            );
            continue;
        }
        let served = serve(&opened.log, ReadIsolation::LogEnd, 8192);
        *counts.entry(field).or_default() += 1;
        let known = contents(whole);
        let changed: Vec<&PlainBatch> = served
            .iter()
            .filter(|batch| !known.contains(&(batch.base_offset, batch.bytes.clone())))
            .collect();
        assert_eq!(changed.len(), 1, "{case}: not only the batch that was hit");
        assert_eq!(
            changed[0].content(),
            hit.content(),
            "{case}: records have changed"
        );
        if field == "base_offset" {
            assert_eq!(served.last(), Some(changed[0]), "{case}: amid the log");
            assert_eq!(
                whole.last().map(PlainBatch::content),
                Some(hit.content()),
                "{case}"
            );
            assert!(
                changed[0].base_offset > hit.base_offset,
                "{case}: backwards"
            );
        }
    }
}

#[test]
fn a_flipped_bit_is_cut_off_unless_it_lies_where_no_crc_reaches() {
    let storage = MemoryStorage::default();
    let log = create(&storage, &config()).unwrap().log;
    let mut number = 0;
    while log.segments().len() < 3 {
        append(&log, batch(Codec::None, NOBODY, number, 5, 150), 3).unwrap();
        number += 5;
    }
    let files = storage.files();
    let whole = serve(&log, ReadIsolation::LogEnd, 1 << 20);
    let mut counts = Counts::new();
    for segment in log.segments() {
        undetected(&files, segment.base_offset(), &whole, &mut counts);
    }
    println!("flips that nobody can tell: {counts:?}");
    let fields: Vec<&str> = counts.keys().copied().collect();
    assert_eq!(fields, ["base_offset", "partition_leader_epoch"]);
}

//! The index of aborted transactions.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafkalite::log::config::LogConfig;
use kafkalite::log::segment::Segment;
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::segment::transaction_index::AbortedIndex;
use kafkalite::log::state::producers::AbortedTransaction;
use kafkalite::log::storage::DiskStorage;
use proptest::prelude::*;

fn aborted(producer_id: i64, first: i64, last: i64, stable: i64) -> AbortedTransaction {
    AbortedTransaction {
        producer_id,
        first_offset: first,
        last_offset: last,
        last_stable_offset: stable,
    }
}

fn index(entries: &[AbortedTransaction]) -> AbortedIndex {
    let mut index = AbortedIndex::default();
    for entry in entries {
        index.append(*entry).unwrap();
    }
    index
}

/// The four entries of Kafka's own picture: overlapping transactions of several producers.
fn sample() -> AbortedIndex {
    index(&[
        aborted(0, 0, 10, 2),
        aborted(1, 2, 13, 3),
        aborted(2, 3, 25, 26),
        aborted(3, 30, 35, 36),
    ])
}

fn collect(index: &AbortedIndex, from: i64, upper: i64) -> (Vec<i64>, bool) {
    let mut found = Vec::new();
    let complete = index.collect(from, upper, &mut found);
    (
        found.iter().map(|entry| entry.producer_id).collect(),
        complete,
    )
}

#[test]
fn an_entry_has_34_bytes_in_kafkas_order() {
    let bytes = aborted(1, 2, 3, 4).encode();
    let mut expected = vec![0, 0];
    for field in 1..=4i64 {
        expected.extend_from_slice(&field.to_be_bytes());
    }
    assert_eq!(bytes.to_vec(), expected);
}

#[test]
fn a_fetch_learns_of_the_transactions_that_overlap_it() {
    let index = sample();
    assert_eq!(collect(&index, 0, 5), (vec![0, 1, 2], true));
    assert_eq!(collect(&index, 11, 12), (vec![1, 2], true));
    assert_eq!(collect(&index, 14, 26), (vec![2], true));
    assert_eq!(collect(&index, 26, 30), (vec![], true));
    assert_eq!(collect(&index, 35, 36), (vec![3], true));
}

#[test]
fn the_search_goes_on_in_the_next_segment_until_a_stable_offset_reaches_the_bound() {
    let index = sample();
    assert_eq!(collect(&index, 0, 2), (vec![0], true));
    assert_eq!(collect(&index, 26, 100), (vec![3], false));
    assert_eq!(collect(&index, 36, 37), (vec![], false));
    assert_eq!(collect(&AbortedIndex::default(), 0, 10), (vec![], false));
}

#[test]
fn a_cut_forgets_the_markers_at_and_behind_it() {
    let mut index = sample();
    index.truncate_to(26);
    assert_eq!(index.entries().len(), 3);
    index.truncate_to(13);
    assert_eq!(index.entries().len(), 1);
    assert_eq!(index.size_bytes(), 34);
    index.append(aborted(9, 5, 20, 21)).unwrap();
}

#[test]
fn a_marker_must_lie_behind_the_last_one() {
    assert!(sample().append(aborted(9, 30, 35, 36)).is_err());
}

#[test]
fn the_file_reads_as_it_was_written_and_refuses_what_contradicts_itself() {
    let (index, path) = (sample(), Path::new("x.txnindex"));
    let bytes = index.encode();
    assert_eq!(AbortedIndex::parse(&bytes, 0, path).unwrap(), index);
    for end in 0..bytes.len() {
        let cut = AbortedIndex::parse(&bytes[..end], 0, path);
        assert_eq!(cut.is_ok(), end % 34 == 0, "cut at {end}");
    }
    assert!(
        AbortedIndex::parse(&bytes, 11, path).is_err(),
        "a marker before the segment"
    );
    let mut versioned = bytes.clone();
    versioned[34 + 1] = 1;
    let error = AbortedIndex::parse(&versioned, 0, path)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("byte 34") && error.contains("version 1"),
        "{error}"
    );
    let mut twice = bytes.clone();
    twice.extend_from_slice(&bytes[102..]);
    assert!(
        AbortedIndex::parse(&twice, 0, path).is_err(),
        "a marker twice"
    );
}

proptest! {
    #[test]
    fn a_search_finds_all_that_a_look_at_every_entry_finds(
        steps in prop::collection::vec((1..6i64, 0..20i64, 0..12i64), 0..20),
        from in 0..80i64,
        length in 0..40i64,
    ) {
        let mut index = AbortedIndex::default();
        let (mut marker, mut stable) = (0, 0);
        for (step, back, lag) in steps {
            marker += step;
            stable = stable.max(marker + 1 - lag);
            // What is aborted later begins at or behind the stable offset of the entry before.
            let before = index.entries().last().map_or(0, |entry| entry.last_stable_offset);
            let first = (marker - back).max(before).min(marker);
            index.append(aborted(marker, first, marker, stable)).unwrap();
        }
        let (found, _) = collect(&index, from, from + length);
        let overlaps = |entry: &&AbortedTransaction| entry.last_offset >= from && entry.first_offset < from + length;
        let all: Vec<i64> = index.entries().iter().filter(overlaps).map(|entry| entry.producer_id).collect();
        prop_assert_eq!(found, all);
    }
}

/// Each marker copied all that were before it in its segment: with 80,000 of them, 437 us.
#[test]
fn an_abort_marker_costs_as_much_whatever_was_aborted_before_it() {
    let home = tempfile::tempdir().unwrap();
    let open_segments = OpenSegments::new(Arc::new(DiskStorage), 16);
    let config = LogConfig::default();
    let segment = Segment::create(&open_segments, home.path(), 0, "", &config, 0, 0).unwrap();
    let fastest_of_100 = |start: i64| {
        let mut offset = start;
        let blocks = (0..20).map(|_| {
            let started = Instant::now();
            for _ in 0..100 {
                let marker = aborted(1, offset, offset + 1, offset + 2);
                segment.append_aborted(&[marker]).unwrap();
                offset += 2;
            }
            started.elapsed()
        });
        blocks.min().unwrap_or(Duration::MAX)
    };
    let first = fastest_of_100(0);
    let many: Vec<_> = (0..60_000)
        .map(|number| {
            let offset = 1_000_000 + 2 * number;
            aborted(1, offset, offset + 1, offset + 2)
        })
        .collect();
    segment.append_aborted(&many).unwrap();
    let last = fastest_of_100(2_000_000);
    assert!(
        last < first * 4,
        "{last:?} after 60,000 aborts, {first:?} before"
    );
}

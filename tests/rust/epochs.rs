//! Leader epochs: Kafka's rules by name, then random calls against a plain sorted map.

use std::collections::BTreeMap;
use std::path::Path;

use kafkalite::log::state::epochs::{EpochEndOffset, LeaderEpochs};
use proptest::prelude::*;

fn epochs(entries: &[(i32, i64)]) -> LeaderEpochs {
    let mut epochs = LeaderEpochs::default();
    for (epoch, start_offset) in entries {
        assert!(epochs.assign(*epoch, *start_offset).unwrap());
    }
    epochs
}

fn pairs(epochs: &LeaderEpochs) -> Vec<(i32, i64)> {
    let entries = epochs.entries().iter();
    entries
        .map(|entry| (entry.epoch, entry.start_offset))
        .collect()
}

fn end(leader_epoch: i32, end_offset: i64) -> Option<EpochEndOffset> {
    Some(EpochEndOffset {
        leader_epoch,
        end_offset,
    })
}

#[test]
fn an_epoch_ends_where_the_next_one_begins_and_the_latest_at_the_log_end() {
    let epochs = epochs(&[(3, 0), (5, 40), (8, 95)]);
    assert_eq!(epochs.end_offset_for(3, 120), end(3, 40));
    assert_eq!(epochs.end_offset_for(5, 120), end(5, 95));
    assert_eq!(epochs.end_offset_for(8, 120), end(8, 120));
}

#[test]
fn an_epoch_that_wrote_nothing_here_ends_with_the_one_below_it() {
    let epochs = epochs(&[(3, 0), (5, 40), (8, 95)]);
    assert_eq!(epochs.end_offset_for(4, 120), end(3, 40));
    assert_eq!(epochs.end_offset_for(7, 120), end(5, 95));
}

#[test]
fn an_epoch_older_than_all_that_is_kept_ends_where_the_log_begins() {
    assert_eq!(epochs(&[(3, 10)]).end_offset_for(1, 120), end(1, 10));
}

#[test]
fn no_epoch_and_one_newer_than_all_known_have_no_end() {
    let epochs = epochs(&[(3, 0)]);
    assert_eq!(epochs.end_offset_for(-1, 120), None);
    assert_eq!(
        epochs.end_offset_for(-2, 120).map(|end| end.leader_epoch),
        Some(-2)
    );
    assert_eq!(epochs.end_offset_for(4, 120), None);
    assert_eq!(LeaderEpochs::default().end_offset_for(0, 0), None);
}

#[test]
fn an_epoch_keeps_its_start_when_it_is_assigned_again() {
    let mut epochs = epochs(&[(3, 10)]);
    assert!(!epochs.is_new(3, 50));
    assert!(!epochs.assign(3, 50).unwrap());
    assert_eq!(pairs(&epochs), [(3, 10)]);
}

#[test]
fn a_new_entry_displaces_those_that_would_not_ascend() {
    let mut known = epochs(&[(3, 0), (5, 40), (8, 95)]);
    assert!(known.assign(9, 40).unwrap());
    assert_eq!(pairs(&known), [(3, 0), (9, 40)]);
    let mut known = epochs(&[(3, 0), (5, 40), (8, 95)]);
    assert!(known.assign(4, 200).unwrap());
    assert_eq!(pairs(&known), [(3, 0), (4, 200)]);
    assert!(known.assign(-1, 0).is_err());
    assert!(known.assign(1, -1).is_err());
}

/// Nothing but a record brought the leader's epoch in: whoever named it before
/// the first one was refused.
#[test]
fn a_leader_without_records_has_an_epoch_that_begins_at_the_log_end() {
    let mut known = epochs(&[(3, 0), (5, 40)]);
    known.lead(5, 120);
    known.lead(-1, 120);
    assert_eq!(pairs(&known), [(3, 0), (5, 40)]);
    known.lead(8, 120);
    assert_eq!(pairs(&known), [(3, 0), (5, 40), (8, 120)]);
    // Of a log without records.
    let mut emptied = epochs(&[(5, 120)]);
    emptied.lead(8, 120);
    assert_eq!(pairs(&emptied), [(8, 120)]);
}

#[test]
fn a_cut_at_the_end_forgets_the_epochs_that_begin_there_or_later() {
    let mut epochs = epochs(&[(3, 0), (5, 40), (8, 95)]);
    assert!(!epochs.truncate_from_end(96));
    assert!(epochs.truncate_from_end(95));
    assert_eq!(pairs(&epochs), [(3, 0), (5, 40)]);
    assert!(!epochs.truncate_from_end(-1));
    assert!(epochs.truncate_from_end(0));
    assert!(epochs.is_empty());
}

#[test]
fn a_cut_at_the_start_moves_the_start_of_the_epoch_that_holds_it() {
    let mut epochs = epochs(&[(3, 0), (5, 40), (8, 95)]);
    assert!(epochs.truncate_from_start(50));
    assert_eq!(pairs(&epochs), [(5, 50), (8, 95)]);
    assert!(!epochs.truncate_from_start(50));
    assert!(!epochs.truncate_from_start(20));
    assert!(epochs.truncate_from_start(500));
    assert_eq!(pairs(&epochs), [(8, 500)]);
}

#[test]
fn an_offset_belongs_to_the_last_epoch_that_began_at_or_before_it() {
    let epochs = epochs(&[(3, 10), (5, 40)]);
    let found = [9, 10, 39, 40, 1000].map(|offset| epochs.epoch_for_offset(offset));
    assert_eq!(found, [None, Some(3), Some(3), Some(5), Some(5)]);
}

#[test]
fn the_checkpoint_reads_what_it_prints() {
    let epochs = epochs(&[(3, 0), (5, 40)]);
    assert_eq!(epochs.print(), "0\n2\n3 0\n5 40\n");
    let path = Path::new("leader-epoch-checkpoint");
    assert_eq!(
        LeaderEpochs::parse(epochs.print().as_bytes(), path).unwrap(),
        epochs
    );
    assert!(LeaderEpochs::parse(b"", path).unwrap().is_empty());
}

#[test]
fn a_malformed_checkpoint_is_refused_with_its_line() {
    let path = Path::new("leader-epoch-checkpoint");
    for (text, line) in [
        ("0\n1\n3\n", "line 3"),
        ("0\n1\n3 4 5\n", "line 3"),
        ("0\n2\n3 4\nx 5\n", "line 4"),
        ("0\n1\n-3 4\n", "line 3"),
        ("0\nmany\n", "line 2"),
        ("0\n2\n3 4\n", "line 2 announces 2 entries, 1 follow"),
        ("1\n0\n", "version 1 is unknown"),
    ] {
        let error = LeaderEpochs::parse(text.as_bytes(), path)
            .unwrap_err()
            .to_string();
        assert!(error.contains(line), "{text:?}: {error}");
    }
}

#[derive(Clone, Debug)]
enum Call {
    Assign(i32, i64),
    CutEnd(i64),
    CutStart(i64),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = prop_oneof![
        4 => (0..12i32, 0..60i64).prop_map(|(epoch, offset)| Call::Assign(epoch, offset)),
        1 => (-1..60i64).prop_map(Call::CutEnd),
        1 => (-1..60i64).prop_map(Call::CutStart),
    ];
    prop::collection::vec(call, 0..30)
}

proptest! {
    #[test]
    fn random_calls_end_as_in_a_sorted_map(calls in calls()) {
        let mut epochs = LeaderEpochs::default();
        let mut model: BTreeMap<i32, i64> = BTreeMap::new();
        for call in calls {
            let before = model.clone();
            let changed = match call {
                Call::Assign(epoch, offset) => {
                    let last = model.last_key_value().map(|(epoch, offset)| (*epoch, *offset));
                    if last.is_none_or(|(latest, start)| latest != epoch || offset < start) {
                        model.retain(|old, start| *old < epoch && *start < offset);
                        model.insert(epoch, offset);
                    }
                    epochs.assign(epoch, offset).unwrap()
                }
                Call::CutEnd(offset) => {
                    model.retain(|_, start| offset < 0 || *start < offset);
                    epochs.truncate_from_end(offset)
                }
                Call::CutStart(offset) => {
                    let holder = model.iter().filter(|(_, start)| **start <= offset).map(|(epoch, _)| *epoch).max();
                    if let Some(holder) = holder {
                        model.retain(|epoch, _| *epoch >= holder);
                        model.insert(holder, offset);
                    }
                    epochs.truncate_from_start(offset)
                }
            };
            prop_assert_eq!(pairs(&epochs), model.clone().into_iter().collect::<Vec<_>>());
            prop_assert_eq!(changed, before != model);
            for asked in 0..13 {
                let latest = model.last_key_value().map(|(epoch, _)| *epoch);
                let next = model.iter().find(|(epoch, _)| **epoch > asked).map(|(_, start)| *start);
                let floor = model.keys().copied().filter(|epoch| *epoch <= asked).max();
                let expected = match (latest == Some(asked), next) {
                    (true, _) => end(asked, 99),
                    (false, Some(next)) => end(floor.unwrap_or(asked), next),
                    (false, None) => None,
                };
                prop_assert_eq!(epochs.end_offset_for(asked, 99), expected);
            }
            for offset in 0..60 {
                let holder = model.iter().filter(|(_, start)| **start <= offset).map(|(epoch, _)| *epoch).max();
                prop_assert_eq!(epochs.epoch_for_offset(offset), holder);
            }
        }
    }
}

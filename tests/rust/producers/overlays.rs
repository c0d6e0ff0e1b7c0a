//! What an append prepares before it writes: seen by its later batches, dropped if the write fails.

use kafkalite::batch::AppendOrigin;
use kafkalite::log::state::producers::{
    BatchOutcome, PendingUpdates, ProducerState, SegmentPosition,
};

use super::partition::{ABORT, APPENDED, Partition, batch, marker, transactional};

#[test]
fn a_later_batch_of_one_write_sees_the_earlier_ones_and_a_refused_one_leaves_them() {
    let state = ProducerState::default();
    let mut pending = state.prepare();
    let prepare = |pending: &mut PendingUpdates, header| {
        let client = AppendOrigin::Client;
        state.prepare_batch(pending, &header, client, None, None, None)
    };
    assert_eq!(
        prepare(&mut pending, batch(7, 0, 0, 0, 2)).unwrap(),
        APPENDED
    );
    assert!(prepare(&mut pending, batch(7, 0, 5, 2, 1)).is_err());
    assert_eq!(
        prepare(&mut pending, batch(7, 0, 2, 2, 1)).unwrap(),
        APPENDED
    );
    let again = prepare(&mut pending, batch(7, 0, 0, 3, 2)).unwrap();
    assert!(matches!(
        again,
        BatchOutcome::Duplicate {
            base_offset: 0,
            last_offset: 1,
            ..
        }
    ));
}

#[test]
fn a_failed_write_drops_its_overlay_and_nothing_has_changed() {
    let mut partition = Partition::default();
    partition.send(transactional(batch(7, 0, 0, 0, 1))).unwrap();
    let state = &mut partition.state;
    let mut pending = state.prepare();
    let end = marker(7, 0, 1);
    let origin = AppendOrigin::Coordinator;
    state
        .prepare_batch(&mut pending, &end, origin, Some(1), Some(ABORT), None)
        .unwrap();
    drop(pending);
    assert_eq!(partition.unstable(), Some(0));
    assert_eq!(partition.state.map_end_offset(), 1);
    assert!(partition.end(end, 1, ABORT).unwrap().is_some());
}

#[test]
fn the_first_unstable_offset_knows_where_its_batch_lies_in_the_segment() {
    let mut state = ProducerState::default();
    let mut pending = state.prepare();
    let at = SegmentPosition {
        segment_base_offset: 0,
        position_byte: 4242,
    };
    let header = transactional(batch(7, 0, 0, 10, 1));
    let client = AppendOrigin::Client;
    state
        .prepare_batch(&mut pending, &header, client, None, None, Some(at))
        .unwrap();
    state.commit(pending, 11);
    assert_eq!(state.first_unstable_offset().unwrap().position, Some(at));
    let mut pending = state.prepare();
    let (end, origin) = (marker(7, 0, 11), AppendOrigin::Coordinator);
    state
        .prepare_batch(&mut pending, &end, origin, Some(1), Some(ABORT), None)
        .unwrap();
    state.commit(pending, 12);
    assert_eq!(state.first_unstable_offset().unwrap().position, Some(at));
}

#[test]
#[should_panic(expected = "prepared on")]
fn an_overlay_made_for_another_state_is_not_committed() {
    let mut partition = Partition::default();
    let stale = partition.state.prepare();
    partition.send(batch(7, 0, 0, 0, 1)).unwrap();
    partition.state.commit(stale, 5);
}

//! Records that inflate to much are put off, and nothing of their producers overtakes them.

use std::sync::Arc;

use kafkalite::batch::{BatchBuilder, BatchOptions, Codec};
use kafkalite::limits::APPEND_INFLATED_BYTES;
use kafkalite::log::state::verification::NO_GUARD;
use kafkalite::net::storage_call::append_batch::{AppendBatch, Appended, PendingAppends, Source};
use kafkalite::replica::Partition;

use crate::log::batch;
use crate::log_directory::NOW_MS;
use crate::node::World;

/// One record that inflates to more than a network thread inflates at once.
fn costly() -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        codec: Codec::Lz4,
        ..BatchOptions::default()
    });
    let value = vec![0; APPEND_INFLATED_BYTES + 1];
    builder.append(NOW_MS, None, Some(&value), &[]).unwrap();
    builder.finish().unwrap()
}

/// One storage call with these records: each of a connection, for a partition.
fn call(rows: &[(u64, &Arc<Partition>, Vec<u8>)]) -> AppendBatch {
    let mut pending = PendingAppends::default();
    for (at, (connection, partition, records)) in rows.iter().enumerate() {
        let source = Source {
            connection: *connection,
            slot: Some(0),
            at,
            partition: Arc::clone(partition),
            directory: 0,
            guard: NO_GUARD,
            acks_all: false,
        };
        pending.add(source, records, 0, records.len());
        assert!(pending.end_buffer(records.clone()).is_none());
    }
    pending.take().remove(0)
}

/// Connection, which of its call's rows, and first offset of each piece that was appended.
fn offsets(appended: &Appended) -> Vec<(u64, usize, i64)> {
    let pieces = appended.pieces.iter().zip(&appended.results);
    let made = pieces.filter_map(|(piece, result)| Some((piece, result.as_ref()?)));
    made.map(|(piece, result)| {
        let info = result.as_ref().expect("it is accepted");
        (piece.connection, piece.at, info.first_offset)
    })
    .collect()
}

/// They waited behind all that had been put off before.
#[test]
fn small_compressed_records_of_other_partitions_do_not_wait_with_costly_ones() {
    let world = World::new(&[(1, 4, &[1]), (1, 4, &[1])]);
    let (hot, calm) = (&world.leader(0), &world.leader(1));
    let mut builder = BatchBuilder::new(BatchOptions {
        codec: Codec::Lz4,
        ..BatchOptions::default()
    });
    builder.append(NOW_MS, None, Some(b"small"), &[]).unwrap();
    let small = builder.finish().unwrap();
    let appended = call(&[(1, hot, costly()), (2, calm, small)]).append(NOW_MS);
    assert_eq!(offsets(&appended), [(2, 1, 0)]);
}

#[test]
fn what_follows_records_that_were_put_off_is_appended_behind_them() {
    let world = World::new(&[(1, 4, &[1]), (1, 4, &[1])]);
    let (hot, calm) = (&world.leader(0), &world.leader(1));
    let small = || batch(0, 1);
    let mut first = call(&[
        (1, hot, costly()),
        (1, calm, small()),
        (1, hot, small()),
        (2, hot, small()),
    ])
    .append(NOW_MS);
    assert_eq!(offsets(&first), [(1, 1, 0)], "the other partition's");
    let mut second = call(&[(1, hot, small()), (2, calm, small())]).append(NOW_MS);
    assert_eq!(offsets(&second), [(2, 1, 1)]);

    let (of_two, of_one) = (first.put_off.remove(1), first.put_off.remove(0));
    assert!(of_one.was_put_off() && first.put_off.is_empty());
    // Those behind come first: they go back.
    let mut early = second.put_off.remove(0).append(NOW_MS);
    assert_eq!(offsets(&early), []);
    let mut of_two = of_two.append(NOW_MS);
    assert_eq!(offsets(&of_two), []);

    // The costly ones alone are enough for one call.
    let mut costly = of_one.append(NOW_MS);
    assert_eq!(offsets(&costly), [(1, 0, 0)]);
    let rest = costly.put_off.remove(0).append(NOW_MS);
    assert_eq!(offsets(&rest), [(1, 2, 1)]);
    assert!(rest.put_off.is_empty());
    let of_two = of_two.put_off.remove(0).append(NOW_MS);
    assert_eq!(offsets(&of_two), [(2, 3, 2)]);
    assert!(!hot.nobody_waits());
    let last = early.put_off.remove(0).append(NOW_MS);
    assert_eq!(offsets(&last), [(1, 0, 3)]);

    assert!(hot.nobody_waits());
    assert_eq!(hot.turns_open(), 0);
    let at_once = call(&[(1, hot, small())]).append(NOW_MS);
    assert_eq!(offsets(&at_once), [(1, 0, 4)]);
}

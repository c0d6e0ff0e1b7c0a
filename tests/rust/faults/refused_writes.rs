//! A disk that takes no writes any more, though no fsync has failed: a read-only file
//! system, a broken device.

use kafkalite::error::Error;

use super::io_failures::{Step, World, new_storage};
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::faults::{Failure, Fault, Operation};

/// A log with records, and its storage.
fn begun() -> (MemoryStorage, World) {
    let storage = new_storage();
    let mut world = World::new(&storage);
    for step in [Step::Open, Step::CreateLog, Step::Append] {
        world.step(step).unwrap();
    }
    (storage, world)
}

fn is_offline_after(step: Step, fault: Fault) -> bool {
    let (storage, mut world) = begun();
    storage.inject(fault.lasting());
    let case = format!("{step:?}");
    // A roll comes with one of the next appends.
    let failed = (0..50).find_map(|_| world.step(step).err());
    assert!(
        matches!(failed, Some(Error::Io { .. })),
        "{case}: {failed:?}"
    );
    storage.heal();
    let is_offline = world.directory().health().is_offline();
    let again = world.step(Step::Append);
    assert_eq!(again.is_err(), is_offline, "{case}: {again:?}");
    is_offline
}

/// The partitions stayed with a leader that could not write, where Kafka's go to another one.
#[test]
fn a_disk_that_refuses_writes_is_offline_and_one_that_is_full_goes_on() {
    for (step, operation, path) in [
        (Step::Append, Operation::Write, ".log"),
        (Step::Append, Operation::Open, ".log"),
        (Step::Checkpoint, Operation::Write, "recovery-point"),
        (Step::Checkpoint, Operation::Rename, "replication-offset"),
    ] {
        let fault = |failure| Fault::of(operation, path, failure);
        assert!(is_offline_after(step, fault(Failure::Io)), "{operation:?}");
        assert!(
            !is_offline_after(step, fault(Failure::NoSpace)),
            "{operation:?}"
        );
    }
}

#[test]
fn a_disk_on_which_no_log_can_be_made_is_offline_unless_it_is_full() {
    for (failure, expected) in [(Failure::Io, true), (Failure::NoSpace, false)] {
        let storage = new_storage();
        let mut world = World::new(&storage);
        world.step(Step::Open).unwrap();
        storage.inject(Fault::of(Operation::CreateDirectory, "t-0", failure).lasting());
        assert!(world.step(Step::CreateLog).is_err());
        assert_eq!(world.directory().health().is_offline(), expected);
        storage.heal();
        assert_eq!(world.step(Step::CreateLog).is_err(), expected);
    }
}

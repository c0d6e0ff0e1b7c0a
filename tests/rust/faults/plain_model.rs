//! Any sequence of what a log can be told, with clean stops, kills and power cuts in between,
//! against the plain model. A sequence that fails is cut down to the shortest that does.

use std::sync::Arc;

use kafkalite::log::segment::open_segments::OpenSegments;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::io_failures::{Step, World, config, new_storage};
use super::workbench::open_directory;
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::crash::Crash;
use crate::random::is_long_run;

#[derive(Clone, Copy, Debug)]
enum Event {
    Step(Step),
    CleanRestart,
    Crash(Crash),
}

fn event() -> impl Strategy<Value = Event> {
    let step = |step| Just(Event::Step(step));
    prop_oneof![
        6 => step(Step::Append),
        6 => step(Step::Produce),
        6 => step(Step::Transact),
        2 => step(Step::Commit),
        2 => step(Step::Abort),
        4 => step(Step::Flush),
        1 => step(Step::Checkpoint),
        1 => step(Step::NewEpoch),
        1 => step(Step::Truncate),
        1 => step(Step::DeleteRecords),
        1 => step(Step::Retain),
        1 => step(Step::DeleteFiles),
        1 => step(Step::Clean),
        1 => Just(Event::CleanRestart),
        1 => Just(Event::Crash(Crash::Kill)),
        1 => Just(Event::Crash(Crash::LoseUnsynced)),
        1 => any::<u64>().prop_map(|seed| Event::Crash(Crash::Seeded(seed))),
    ]
}

fn start(storage: &MemoryStorage) -> World {
    let mut world = World::new(storage);
    for step in [Step::Open, Step::CreateLog, Step::NewEpoch] {
        world.step(step).unwrap();
    }
    world
}

fn live(events: &[Event]) {
    let mut storage = new_storage();
    let mut world = start(&storage);
    for (at, event) in events.iter().enumerate() {
        let case = format!("event {at} {event:?}");
        match event {
            Event::Step(step) if world.makes_sense(*step) => world.step(*step).unwrap(),
            Event::Step(_) => {}
            Event::CleanRestart => {
                world.step(Step::Close).unwrap();
                world.step(Step::Open).unwrap();
            }
            Event::Crash(crash) => {
                world.directory = None;
                world.log = None;
                storage = storage.crash(*crash);
                world.open_segments = OpenSegments::new(Arc::new(storage.clone()), 16);
                let directory = open_directory(&world.open_segments, &config()).unwrap();
                let log = directory.log("t", 0).unwrap();
                world.model.check_reopened(&log, &case);
                world.model.goes_on(&log);
                (world.log, world.directory) = (Some(log), Some(directory));
                world.follow_producers();
            }
        }
        world.model.check_live(world.log(), &case);
    }
}

#[test]
fn whatever_a_log_is_told_it_holds_what_the_plain_model_holds() {
    let cases = if is_long_run() { 20_000 } else { 150 };
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(config, random);
    let events = prop::collection::vec(event(), 1..120);
    let outcome = runner.run(&events, |events| {
        live(&events);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// DeleteRecords had taken a producer's batches, a truncation all that was left, and the producer
/// had begun again with sequence 0. Recovery replayed the deleted batches, too, since their segment
/// was still there: the producer's next batch was answered as a duplicate of one of them, and lost.
#[test]
fn a_batch_that_was_deleted_is_nobodys_duplicate_after_a_restart() {
    use Step::{Append, DeleteRecords, Flush, Produce, Truncate};
    let steps = [
        Produce,
        Produce,
        Append,
        Flush,
        Append,
        Append,
        DeleteRecords,
        Append,
        Append,
        Truncate,
        Produce,
        Flush,
    ];
    let mut events: Vec<Event> = steps.into_iter().map(Event::Step).collect();
    events.extend([Event::Crash(Crash::Kill), Event::Step(Produce)]);
    live(&events);
}

/// As above, but recovery wrote the deleted batches into the snapshot that it took behind their
/// segment, and the next step of the same start read them there.
#[test]
fn a_snapshot_of_recovery_knows_no_batch_that_was_deleted() {
    use Step::{Append, Commit, DeleteRecords, Flush, NewEpoch, Produce, Transact, Truncate};
    let before = [
        Append, Transact, Transact, Append, Append, Append, Append, Produce, Append, Append,
    ];
    let between = [
        Append,
        Flush,
        DeleteRecords,
        Append,
        Append,
        Append,
        Append,
        DeleteRecords,
        Append,
        Truncate,
        Append,
        Truncate,
        Produce,
        Append,
        Append,
        Append,
        Append,
        NewEpoch,
        Commit,
        Commit,
        Transact,
        Flush,
    ];
    let mut events: Vec<Event> = before.into_iter().map(Event::Step).collect();
    events.push(Event::Crash(Crash::Seeded(7286279842162804010)));
    events.extend(between.map(Event::Step));
    events.extend([Event::Crash(Crash::Kill), Event::Step(Transact)]);
    live(&events);
}

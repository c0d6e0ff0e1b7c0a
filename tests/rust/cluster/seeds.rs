//! Seeds are run here: five hundred in each `make test`, a hundred thousand in the long
//! run, or what `make sim-cluster` asks for. A failing seed prints its last steps and the
//! command that repeats it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::Instant;

use super::planted::{self, Planted};
use super::world::World;
use crate::random::is_long_run;

const SEEDS: u64 = 500;
const SEEDS_LONG: u64 = 100_000;

/// What happens in any five hundred seeds: a simulation that does nothing finds nothing.
const HAPPENINGS: [&str; 12] = [
    "acknowledged",
    "controlled stop",
    "directory failure",
    "joined the ISR",
    "kill",
    "log cut",
    "moved",
    "power cut",
    "read from a follower",
    "records deleted",
    "unclean election",
    "consumed",
];

/// What a planted bug has to violate; that nothing comes to rest is not enough.
const SAFETY: [&str; 12] = [
    "StrongIsr",
    "LeaderCompleteness",
    "LogMatching",
    "ConsistentRead",
    "OneWriter",
    "Durable",
    "CommittedRead",
    "LogStart",
    "Deleted",
    "EpochsGrow",
    "MetadataLogMatching",
    "Readable",
];

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    static PLACE: Cell<Option<String>> = const { Cell::new(None) };
}

/// A violation is a panic, the checker's or the engine's own. It is told with the steps before
/// it, not when it happens.
fn keep_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if IS_QUIET.get() {
                PLACE.set(
                    info.location()
                        .map(|at| format!("{}:{}", at.file(), at.line())),
                )
            } else {
                loud(info)
            }
        }));
    });
}

/// The sentence of a violation, if `body` ends with one.
fn guarded(world: &mut World, body: impl FnOnce(&mut World)) -> Option<String> {
    keep_quiet();
    IS_QUIET.set(true);
    let ended = catch_unwind(AssertUnwindSafe(|| body(world)));
    IS_QUIET.set(false);
    let panic = ended.err()?;
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    let place = PLACE.take().unwrap_or_default();
    Some(format!("{} ({place})", text.unwrap_or_default()))
}

fn run(seed: u64, planted: Option<Planted>, is_traced: bool) -> (World, Option<String>) {
    let mut world = World::new(seed, planted, is_traced);
    let violation = guarded(&mut world, World::run);
    (world, violation)
}

/// Runs a seed that fails once more, for its steps.
fn told(seed: u64, planted: Option<Planted>) -> String {
    let (world, violation) = run(seed, planted, true);
    let bug = planted.map_or(String::new(), |bug| format!(" PLANTED={}", bug.name()));
    let violation = violation.unwrap_or_else(|| {
        "It does not fail again: something in it is not determined by its seed.".to_owned()
    });
    let steps = world.trace.end().join("\n");
    format!("seed {seed}\n{steps}\n{violation}\nagain: make sim-cluster SEED={seed}{bug}")
}

/// The first of the seeds in which a planted bug breaks what it must.
fn find(planted: Planted, seeds: u64) -> Option<(u64, String)> {
    let is_safety = |sentence: &String| SAFETY.iter().any(|name| sentence.starts_with(name));
    (1..=seeds).find_map(|seed| {
        let violation = run(seed, Some(planted), false).1;
        Some((seed, violation.filter(is_safety)?))
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn wanted_bug() -> Option<Planted> {
    let name = std::env::var("SIM_PLANTED")
        .ok()
        .filter(|name| !name.is_empty())?;
    Some(Planted::of_name(&name).expect("a bug of planted.rs"))
}

#[test]
fn no_seed_violates_an_invariant() {
    let planted = wanted_bug();
    if let Some(seed) = number("SIM_SEED") {
        let (world, violation) = run(seed, planted, true);
        println!("{}", world.trace.lines().join("\n"));
        assert!(violation.is_none(), "{}", violation.unwrap_or_default());
        return;
    }
    let count = if is_long_run() { SEEDS_LONG } else { SEEDS };
    let (first, count) = (
        number("SIM_FIRST").unwrap_or(1),
        number("SIM_SEEDS").unwrap_or(count),
    );
    let began = Instant::now();
    let (mut events, mut seen) = (0, BTreeMap::new());
    for seed in first..first + count {
        let (world, violation) = run(seed, planted, false);
        assert!(violation.is_none(), "{}", told(seed, planted));
        events += world.event_count;
        for (what, times) in world.seen {
            *seen.entry(what).or_insert(0) += times;
        }
    }
    let took_s = began.elapsed().as_secs_f64();
    println!(
        "{count} seeds, {events} events, {:.0} seeds/s: {seen:?}",
        count as f64 / took_s
    );
    if count >= SEEDS {
        let missing = HAPPENINGS.iter().find(|what| !seen.contains_key(*what));
        assert_eq!(missing, None, "never happened");
    }
}

#[test]
fn a_seed_is_the_same_history_each_time() {
    for seed in 1..=10 {
        let (one, _) = run(seed, None, true);
        let (other, _) = run(seed, None, true);
        let mut both = one.trace.lines().iter().zip(other.trace.lines());
        assert_eq!(both.find(|(one, other)| one != other), None, "seed {seed}");
        assert_eq!(one.event_count, other.event_count);
    }
}

#[test]
fn each_planted_bug_is_found() {
    // Most are found in a hundred: none is to be missed because something
    // else has changed a little.
    let seeds = if is_long_run() { 20 * SEEDS } else { 4 * SEEDS };
    let wanted = wanted_bug();
    let bugs = planted::ALL.iter().copied();
    for (name, planted) in bugs.filter(|(_, bug)| wanted.is_none_or(|wanted| wanted == *bug)) {
        let began = Instant::now();
        let found = find(planted, seeds);
        let took_s = began.elapsed().as_secs_f64();
        let (seed, violation) =
            found.unwrap_or_else(|| panic!("{name} is not found in {seeds} seeds"));
        println!("{name}: seed {seed}, {took_s:.1} s: {violation}");
    }
}

//! Benchmarks of the log engine against what the machine gives without it; README.md says how.
//!
//! `cargo bench --no-default-features --bench log [-- append look-up recovery flush start-up]`

#![expect(
    clippy::unwrap_used,
    reason = "a benchmark stops at the first thing that goes wrong"
)]

mod append;
mod flush;
mod look_up;
mod measure;
mod recovery;
mod start_up;
mod world;

use measure::{Table, Verdict};

/// Prints a section's tables and says what of its targets was reached.
type Section = fn() -> Vec<Verdict>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [child, path] = &arguments[..]
        && child == start_up::CHILD
    {
        return start_up::child(path);
    }
    // Cargo adds `--bench`.
    let wanted: Vec<&String> = arguments.iter().filter(|a| !a.starts_with("--")).collect();
    let sections: [(&str, Section); 5] = [
        ("append", append::run),
        ("look-up", look_up::run),
        ("recovery", recovery::run),
        ("flush", flush::run),
        ("start-up", start_up::run),
    ];
    println!("{}", measure::machine());
    let mut verdicts = Vec::new();
    for (name, section) in sections {
        if wanted.is_empty() || wanted.iter().any(|one| *one == name) {
            verdicts.extend(section());
        }
    }
    let table = Table::new("Targets", &["What", "Target", "Found", "Verdict"]);
    for verdict in &verdicts {
        let word = if verdict.reached { "reached" } else { "missed" };
        table.row(&[
            &verdict.what,
            &verdict.target,
            &verdict.found,
            &word.to_owned(),
        ]);
    }
}

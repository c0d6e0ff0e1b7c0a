//! Clocks, rounds and tables. CPU seconds are those of the calling thread, so other work on the
//! machine counts only as far as it cools the caches.
#![expect(unsafe_code, reason = "the CPU clock of a thread is a system call")]

use std::fmt::Display;
use std::fs;
use std::time::Instant;

/// Rounds of every comparison; each measures all sides once, in alternating order.
pub const ROUNDS: usize = 9;

/// What one run of one side took, seconds.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub cpu: f64,
    pub wall: f64,
}

/// Runs `work` and measures this thread.
pub fn timed<T>(work: impl FnOnce() -> T) -> (Sample, T) {
    let (cpu, wall) = (cpu_seconds(libc::CLOCK_THREAD_CPUTIME_ID), Instant::now());
    let result = work();
    let sample = Sample {
        wall: wall.elapsed().as_secs_f64(),
        cpu: cpu_seconds(libc::CLOCK_THREAD_CPUTIME_ID) - cpu,
    };
    (sample, result)
}

/// CPU seconds of all threads of this process.
pub fn process_cpu_seconds() -> f64 {
    cpu_seconds(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn cpu_seconds(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec that lives through the call.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(result, 0, "the CPU clock can be read");
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Lets this process open as many files as it may at most, and says how many.
pub fn raise_descriptor_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointers are to an rlimit that lives through both calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    limit.rlim_cur
}

/// Two sides of a comparison, the i-th samples taken right after each other.
pub struct Pair {
    pub engine: Vec<Sample>,
    pub bare: Vec<Sample>,
}

/// One round unmeasured, then `ROUNDS`, the sides taking turns to go first.
pub fn compare(mut engine: impl FnMut() -> Sample, mut bare: impl FnMut() -> Sample) -> Pair {
    engine();
    bare();
    let mut pair = Pair {
        engine: Vec::new(),
        bare: Vec::new(),
    };
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            pair.engine.push(engine());
            pair.bare.push(bare());
        } else {
            pair.bare.push(bare());
            pair.engine.push(engine());
        }
    }
    pair
}

impl Pair {
    /// Median over the rounds of engine / bare.
    pub fn ratio(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        let sides = self.engine.iter().zip(&self.bare);
        median(sides.map(|(engine, bare)| of(engine) / of(bare)).collect())
    }

    /// The engine's best round against the bare side's best.
    pub fn ratio_of_minima(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        min(self.engine.iter().map(&of)) / min(self.bare.iter().map(&of))
    }
}

pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

pub fn min(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(f64::INFINITY, f64::min)
}

/// "min / median" of a number of each sample, with `digits` behind the point.
pub fn min_and_median(samples: &[Sample], digits: usize, of: impl Fn(&Sample) -> f64) -> String {
    let least = min(samples.iter().map(&of));
    let middle = median(samples.iter().map(&of).collect());
    format!("{least:.digits$} / {middle:.digits$}")
}

/// Prints a table that Markdown understands.
pub struct Table {
    widths: Vec<usize>,
}

impl Table {
    pub fn new(title: &str, columns: &[&str]) -> Table {
        println!("\n### {title}\n");
        let widths = columns.iter().map(|column| column.chars().count().max(9));
        let mut widths: Vec<usize> = widths.collect();
        widths[0] = widths[0].max(52);
        let table = Table { widths };
        table.row(columns);
        let dashes: Vec<String> = table
            .widths
            .iter()
            .map(|width| "-".repeat(*width))
            .collect();
        table.row(&dashes);
        table
    }

    pub fn row<T: Display>(&self, cells: &[T]) {
        let cells = cells.iter().zip(&self.widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        println!("| {} |", line.join(" | "));
    }
}

/// What was asked for and what was found.
pub struct Verdict {
    pub what: String,
    pub target: String,
    pub found: String,
    pub reached: bool,
}

/// The value of a field of `/proc/self/status`, MiB.
pub fn resident_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1024.0
}

/// Processor, kernel and file system, without names of hosts or paths.
pub fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap();
    let models: Vec<&str> = cpu
        .lines()
        .filter(|line| line.starts_with("model name"))
        .filter_map(|line| line.split(": ").nth(1))
        .collect();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let load = fs::read_to_string("/proc/loadavg").unwrap();
    format!(
        "{} x {}, Linux {}, {}, load {}",
        models.len(),
        models.first().unwrap_or(&"?"),
        kernel.trim(),
        file_system(),
        load.split(' ').next().unwrap_or("?"),
    )
}

/// The type of the file system that the benchmarks write to.
fn file_system() -> String {
    let place = fs::canonicalize(super::world::PLACE).unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let holder = mounts
        .filter(|(point, _)| place.starts_with(point))
        .max_by_key(|(point, _)| point.len());
    holder.map_or_else(|| "?".to_owned(), |(_, kind)| kind.to_owned())
}

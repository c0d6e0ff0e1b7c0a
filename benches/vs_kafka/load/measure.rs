//! The window of time that counts, the broker's CPU and memory in it from `/proc`, and the line of
//! JSON that tells them.

use std::io;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::arguments::Arguments;

/// Names and numbers for one line of JSON.
#[derive(Default)]
pub struct Report(Vec<(&'static str, f64)>);

impl Report {
    pub fn set(&mut self, name: &'static str, value: f64) {
        self.0.push((name, value));
    }

    pub fn json(&self) -> String {
        let fields = self.0.iter().map(|(name, value)| match value {
            value if value.is_finite() => format!("\"{name}\": {value:.3}"),
            _ => format!("\"{name}\": null"),
        });
        format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
    }
}

/// What a process has used so far.
pub struct Usage {
    cpu_s: f64,
    pub resident_bytes: f64,
}

impl Usage {
    /// Nothing where `pid` is 0.
    pub fn of(pid: u32) -> io::Result<Usage> {
        if pid == 0 {
            return Ok(Usage {
                cpu_s: f64::NAN,
                resident_bytes: f64::NAN,
            });
        }
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // Fields after the name, which may hold anything, in brackets.
        let fields: Vec<&str> = match stat.rsplit_once(')') {
            Some((_, rest)) => rest.split_ascii_whitespace().collect(),
            None => Vec::new(),
        };
        let field = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok());
        let (user, system) = (field(11).unwrap_or(0.0), field(12).unwrap_or(0.0));
        Ok(Usage {
            cpu_s: (user + system) / 100.0,
            resident_bytes: field(21).unwrap_or(0.0) * 4096.0,
        })
    }
}

/// The time that counts: from the end of the warm-up to the end.
pub struct Window {
    pid: u32,
    starts: Instant,
    ends: Instant,
    opened: Option<(Instant, Usage)>,
}

impl Window {
    pub fn new(arguments: &Arguments) -> Result<Window, Failure> {
        let warmup = Duration::from_secs_f64(arguments.number("warmup", 0.5)?);
        let seconds = Duration::from_secs_f64(arguments.number("seconds", 3.0)?);
        let starts = Instant::now() + warmup;
        Ok(Window {
            pid: arguments.number("pid", 0)?,
            starts,
            ends: starts + seconds,
            opened: None,
        })
    }

    /// Whether what happens now counts.
    pub fn is_open(&mut self, now: Instant) -> io::Result<bool> {
        if self.opened.is_none() && now >= self.starts {
            self.opened = Some((now, Usage::of(self.pid)?));
        }
        Ok(self.opened.is_some())
    }

    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.ends
    }

    /// Rates and the broker's share, of what was counted.
    pub fn report(&self, requests: u64, bytes: u64) -> Result<Report, Failure> {
        let Some((opened, before)) = &self.opened else {
            return Err("the warm-up did not end".into());
        };
        let seconds = opened.elapsed().as_secs_f64();
        let after = Usage::of(self.pid)?;
        let cpu_s = after.cpu_s - before.cpu_s;
        let mut report = Report::default();
        report.set("seconds", seconds);
        report.set("requests_per_s", requests as f64 / seconds);
        report.set("mb_per_s", bytes as f64 / seconds / 1e6);
        report.set("server_us_per_request", cpu_s * 1e6 / requests as f64);
        report.set("server_ms_per_gb", cpu_s * 1e3 / (bytes as f64 / 1e9));
        report.set("server_cores", cpu_s / seconds);
        report.set("server_rss_mb", after.resident_bytes / 1e6);
        Ok(report)
    }
}

/// Three percentiles of latencies, in milliseconds.
pub fn percentiles(report: &mut Report, mut latencies_us: Vec<u64>) {
    latencies_us.sort_unstable();
    for (name, share) in [("p50_ms", 0.5), ("p99_ms", 0.99), ("p999_ms", 0.999)] {
        let at = ((latencies_us.len() as f64 * share) as usize).min(latencies_us.len().max(1) - 1);
        let value = latencies_us.get(at).map_or(f64::NAN, |us| *us as f64 / 1e3);
        report.set(name, value);
    }
}

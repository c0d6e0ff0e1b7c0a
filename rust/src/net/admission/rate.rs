//! How often something has happened of late, a second, and how long the next must wait so that it
//! is no more than a limit. Told the time; reads no clock.
//!
//! ```text
//!          │◄── windows before: what happened in them counts ──►│◄─ now ─►│
//! time ────┼────────┼────────┼────────┼────────┼─ … ─┼──────────┼─────────┼──►
//!          oldest                                                         now
//! ```
//!
//! The rate is that of all windows: with Kafka's defaults, 11 of a second each, the time that
//! counts is at least 10 s, however little of it has passed. So ten times the limit may come at
//! once, and what comes afterwards comes by the limit. Kafka: `Rate`, `SampledStat`,
//! `QuotaUtils.boundedThrottleTime`.

use std::collections::VecDeque;

/// The windows that are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// `quota.window.size.seconds`, in milliseconds; at least 1. Nothing waits for longer.
    pub window_ms: u64,
    /// `quota.window.num`, that at hand among them; at least 1
    pub count: u64,
}

impl Default for Windows {
    fn default() -> Windows {
        Windows {
            window_ms: 1_000,
            count: 11,
        }
    }
}

/// Events, counted by windows.
#[derive(Debug)]
pub struct Rate {
    windows: Windows,
    /// Oldest first. Without events there is no window.
    samples: VecDeque<Sample>,
}

#[derive(Debug)]
struct Sample {
    begun_ms: u64,
    last_ms: u64,
    events: u64,
}

impl Rate {
    pub fn new(windows: Windows) -> Rate {
        Rate {
            windows,
            samples: VecDeque::new(),
        }
    }

    /// Counts an event. Returns how long it has to wait, milliseconds, 0 if at most
    /// `max_per_s` happen in a second; no longer than a window, so that even with a
    /// limit of 0 something happens.
    pub fn record(&mut self, max_per_s: u32, now_ms: u64) -> u64 {
        let Windows { window_ms, count } = self.windows;
        match self.samples.back_mut() {
            Some(sample) if now_ms.saturating_sub(sample.begun_ms) < window_ms => {
                sample.events += 1;
                sample.last_ms = now_ms;
            }
            _ => self.samples.push_back(Sample {
                begun_ms: now_ms,
                last_ms: now_ms,
                events: 1,
            }),
        }
        // One that lies within the time to its last event only counts whole.
        let memory_ms = count.saturating_mul(window_ms);
        self.samples
            .retain(|sample| now_ms.saturating_sub(sample.last_ms) < memory_ms);
        let events: u64 = self.samples.iter().map(|sample| sample.events).sum();
        let oldest_ms = self.samples.front().map_or(now_ms, |first| first.begun_ms);
        let elapsed_ms = now_ms.saturating_sub(oldest_ms);
        let missing = count
            .saturating_sub(1)
            .saturating_sub(elapsed_ms / window_ms);
        let span_ms = elapsed_ms.saturating_add(missing.saturating_mul(window_ms));
        let wait_ms = events as f64 * 1_000.0 / f64::from(max_per_s) - span_ms.max(1) as f64;
        // A negative one becomes 0, an infinite one the longest there is.
        (wait_ms.round() as u64).min(window_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When each of `events` events that all want to happen at once may,
    /// milliseconds from the first.
    fn times(max_per_s: u32, events: usize) -> Vec<u64> {
        let mut rate = Rate::new(Windows::default());
        let mut now_ms = 50_000;
        let mut wait = || {
            now_ms += rate.record(max_per_s, now_ms);
            now_ms - 50_000
        };
        (0..events).map(|_| wait()).collect()
    }

    #[test]
    fn ten_seconds_worth_may_come_at_once_and_what_comes_then_comes_by_the_limit() {
        assert_eq!(times(1, 13)[8..], [0, 0, 1_000, 2_000, 3_000]);
        assert_eq!(times(10, 103)[98..], [0, 0, 100, 200, 300]);
        assert_eq!(times(u32::MAX, 1_000)[999], 0);
    }

    #[test]
    fn nothing_waits_for_longer_than_a_window() {
        assert_eq!(times(0, 3), [1_000, 2_000, 3_000]);
        let mut rate = Rate::new(Windows::default());
        let waits = (0..50).map(|_| rate.record(1, 7));
        assert_eq!(waits.max(), Some(1_000));
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut rate = Rate::new(Windows::default());
        for _ in 0..10 {
            assert_eq!(rate.record(1, 1_000), 0);
        }
        assert_eq!(rate.record(1, 11_999), 1);
        let mut rate = Rate::new(Windows::default());
        for _ in 0..10 {
            assert_eq!(rate.record(1, 1_000), 0);
        }
        assert_eq!(rate.record(1, 12_000), 0);
        assert_eq!(rate.samples.len(), 1);
    }

    #[test]
    fn a_steady_rate_below_the_limit_never_waits_and_takes_no_more_memory() {
        let mut rate = Rate::new(Windows::default());
        for number in 0..1_000 {
            assert_eq!(rate.record(11, number * 100), 0);
        }
        assert!(rate.samples.len() <= 12);
    }
}

//! The bytes a second that replication may take for throttled replicas (KIP-73,
//! `ReplicationQuotaManager`): one bound for what this broker sends as a leader, one for what
//! it fetches as a follower.
//!
//! ```text
//! topic   leader.replication.throttled.replicas    which replicas (`LogConfig`)
//! broker  leader.replication.throttled.rate        how many bytes a second, of all of them together
//!
//!  rate = bytes in the samples ÷ time since the oldest of them began (one sample's span at least)
//!  │ 1 s │ 1 s │ … │ 1 s │  replication.quota.window.num of replication.quota.window.size.seconds each
//! ```
//!
//! All that goes for a throttled replica is counted, of one in sync too; held back is only one that
//! is not in sync, so that no throttle takes a replica out of the in-sync ones. Who asks gives the
//! time, of a clock that is not set back (`clock::monotonic_ms`). Where no rate is set, that is one
//! look at a number. Moves between log directories have a bound of their own (`node/moves/`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::replica::{Partition, Role};

/// No bound (`QuotaConfig.QUOTA_BYTES_PER_SECOND_DEFAULT`).
pub const UNBOUNDED: i64 = i64::MAX;

/// Kafka's defaults of `replication.quota.window.num` and, in milliseconds,
/// `replication.quota.window.size.seconds`.
pub const THROTTLE_SAMPLES: (usize, i64) = (11, 1_000);

struct Sample {
    start_ms: i64,
    /// When something was counted last.
    last_ms: i64,
    bytes: u64,
}

/// The bytes of the last while (`SimpleRate`).
struct Rate {
    sample_ms: i64,
    samples_max: usize,
    samples: VecDeque<Sample>,
}

impl Rate {
    fn span_ms(&self) -> i64 {
        let count = i64::try_from(self.samples_max).unwrap_or(i64::MAX);
        self.sample_ms.saturating_mul(count)
    }

    /// Forgets samples that are over.
    fn expire(&mut self, now_ms: i64) {
        let span_ms = self.span_ms();
        let is_over = |oldest: &Sample| now_ms.saturating_sub(oldest.last_ms) >= span_ms;
        while self.samples.front().is_some_and(is_over) {
            self.samples.pop_front();
        }
    }

    fn record(&mut self, bytes: u64, now_ms: i64) {
        self.expire(now_ms);
        let sample_ms = self.sample_ms;
        let newest = self.samples.back_mut();
        match newest.filter(|newest| now_ms.saturating_sub(newest.start_ms) < sample_ms) {
            Some(newest) => {
                newest.bytes = newest.bytes.saturating_add(bytes);
                // A thread may have looked at the clock before another one
                // that has counted already.
                newest.last_ms = newest.last_ms.max(now_ms);
            }
            None => self.samples.push_back(Sample {
                start_ms: now_ms,
                last_ms: now_ms,
                bytes,
            }),
        }
        // One that overlaps the span counts with it.
        while self.samples.len() > self.samples_max + 1 {
            self.samples.pop_front();
        }
    }

    fn total_bytes(&self) -> u64 {
        let sizes = self.samples.iter().map(|sample| sample.bytes);
        sizes.fold(0, u64::saturating_add)
    }

    fn bytes_per_second(&mut self, now_ms: i64) -> f64 {
        self.expire(now_ms);
        let Some(oldest) = self.samples.front() else {
            return 0.0;
        };
        let elapsed_ms = now_ms.saturating_sub(oldest.start_ms).max(self.sample_ms);
        self.total_bytes() as f64 * 1_000.0 / elapsed_ms as f64
    }

    /// In how many milliseconds the rate is down to `bytes_per_second` if nothing is added, or
    /// something else has changed: the oldest sample is over.
    fn falls_in_ms(&mut self, bytes_per_second: i64, now_ms: i64) -> i64 {
        self.expire(now_ms);
        let Some(oldest) = self.samples.front() else {
            return 0;
        };
        let is_over_ms = oldest.last_ms.saturating_add(self.span_ms());
        let needed_ms = self.total_bytes() as f64 * 1_000.0 / bytes_per_second.max(1) as f64;
        // A number that is no i64 is its largest.
        let is_down_ms = oldest.start_ms.saturating_add(needed_ms.ceil() as i64);
        is_over_ms.min(is_down_ms).saturating_sub(now_ms).max(0)
    }
}

/// See the module.
pub struct Throttle {
    bytes_per_second_max: AtomicI64,
    rate: Mutex<Rate>,
}

impl Default for Throttle {
    fn default() -> Throttle {
        let (samples_max, sample_ms) = THROTTLE_SAMPLES;
        Throttle {
            bytes_per_second_max: AtomicI64::new(UNBOUNDED),
            rate: Mutex::new(Rate {
                sample_ms,
                samples_max,
                samples: VecDeque::new(),
            }),
        }
    }
}

impl Throttle {
    /// `replication.quota.window.num`, and `replication.quota.window.size.seconds` in milliseconds.
    pub fn set_samples(&self, samples_max: usize, sample_ms: i64) {
        let mut rate = self.rate.lock();
        rate.samples_max = samples_max.max(1);
        rate.sample_ms = sample_ms.max(1);
        rate.samples.clear();
    }

    /// `leader.replication.throttled.rate`, `follower.replication.throttled.rate`,
    /// `replica.alter.log.dirs.io.max.bytes.per.second`
    pub fn set_bytes_per_second_max(&self, bytes_per_second: i64) {
        self.bytes_per_second_max
            .store(bytes_per_second, Ordering::Relaxed);
    }

    /// Counts bytes that went for a throttled replica.
    pub fn record(&self, bytes: u64, now_ms: i64) {
        self.rate.lock().record(bytes, now_ms);
    }

    /// More goes than may.
    pub fn is_exceeded(&self, now_ms: i64) -> bool {
        let most = self.bytes_per_second_max();
        most != UNBOUNDED && self.rate.lock().bytes_per_second(now_ms) > most as f64
    }

    pub fn bytes_per_second_max(&self) -> i64 {
        self.bytes_per_second_max.load(Ordering::Relaxed)
    }

    pub fn bytes_per_second(&self, now_ms: i64) -> f64 {
        self.rate.lock().bytes_per_second(now_ms)
    }

    /// After how many milliseconds it is worth while to ask again whether it is exceeded, if
    /// nothing is counted meanwhile.
    pub fn falls_in_ms(&self, now_ms: i64) -> i64 {
        let most = self.bytes_per_second_max();
        self.rate.lock().falls_in_ms(most, now_ms)
    }
}

impl Partition {
    /// A follower is sent nothing now (`ReplicaManager.shouldLeaderThrottle`).
    pub fn holds_back(&self, follower_id: i32, now_ms: i64) -> bool {
        self.replication.leader_throttle.is_exceeded(now_ms)
            && self.is_throttled(Role::Leader)
            && !self.has_in_sync(follower_id)
    }

    /// Counts bytes that a follower is sent.
    pub fn note_sent(&self, bytes: u64, now_ms: i64) {
        if self.is_throttled(Role::Leader) {
            self.replication.leader_throttle.record(bytes, now_ms);
        }
    }

    /// This follower is to fetch nothing while the throttle is exceeded
    /// (`RemoteLeaderEndPoint.shouldFollowerThrottle`).
    pub(super) fn is_held_back(&self) -> bool {
        self.is_throttled(Role::Follower) && self.lag() != Some(0)
    }

    /// Counts bytes that this follower has got.
    pub(super) fn note_received(&self, bytes: u64, now_ms: i64) {
        if self.is_throttled(Role::Follower) {
            self.replication.follower_throttle.record(bytes, now_ms);
        }
    }

    pub(super) fn follower_throttle(&self) -> &Throttle {
        &self.replication.follower_throttle
    }

    /// The topic names this replica, as one that leads or one that follows.
    fn is_throttled(&self, role: Role) -> bool {
        let config = self.log.config();
        let throttled = match role {
            Role::Leader => &config.leader_throttled,
            Role::Follower => &config.follower_throttled,
        };
        throttled.has(self.index, self.replication.node_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    /// The milliseconds that `total` bytes take in answers of `answer` bytes, asked
    /// for as soon as they may be.
    fn time_of(throttle: &Throttle, total: u64, answer: u64) -> i64 {
        let (mut now_ms, mut sent) = (1_000_000, 0);
        while sent < total {
            if throttle.is_exceeded(now_ms) {
                let wait_ms = throttle.falls_in_ms(now_ms);
                assert!(wait_ms > 0, "no busy loop");
                now_ms += wait_ms;
            } else {
                throttle.record(answer, now_ms);
                sent += answer;
                now_ms += 1;
            }
        }
        now_ms - 1_000_000
    }

    #[test]
    fn bytes_take_their_time_at_the_rate_whatever_the_size_of_an_answer() {
        for (rate, answer) in [
            (MB, MB / 100),
            (MB, MB),
            (5 * MB, MB),
            (100 * MB, MB),
            (MB, 10 * MB),
        ] {
            let throttle = Throttle::default();
            throttle.set_bytes_per_second_max(rate as i64);
            let total = 60 * rate;
            let took_ms = time_of(&throttle, total, answer);
            // The last answer is not waited for, and the first is free.
            let least_ms = (60_000 - 1_000 - 2_000 * (answer / rate) as i64).max(40_000);
            assert!(
                (least_ms..=63_000).contains(&took_ms),
                "{took_ms} at {rate}, {answer}"
            );
        }
    }

    /// They were read and checked, and nobody would have noticed had they done nothing.
    #[test]
    fn the_number_and_size_of_samples_say_for_how_long_an_answer_is_remembered() {
        let took_ms = |samples_max, sample_ms| {
            let throttle = Throttle::default();
            throttle.set_bytes_per_second_max(MB as i64);
            throttle.set_samples(samples_max, sample_ms);
            time_of(&throttle, 60 * MB, 10 * MB)
        };
        // Six answers, of which the last is not waited for: ten seconds each at the rate, and less
        // where an answer is forgotten before.
        assert!((50_000..=51_000).contains(&took_ms(11, 1_000)));
        assert!((50_000..=51_000).contains(&took_ms(2, 30_000)));
        assert!((10_000..=10_100).contains(&took_ms(2, 1_000)));
        assert!((25_000..=25_100).contains(&took_ms(5, 1_000)));
        assert!((5_000..=5_100).contains(&took_ms(2, 500)));
    }

    #[test]
    fn without_a_rate_nothing_is_ever_exceeded_and_the_rate_is_told_all_the_same() {
        let throttle = Throttle::default();
        throttle.record(u64::MAX, 1_000);
        assert!(!throttle.is_exceeded(1_000));
        let throttle = Throttle::default();
        throttle.record(4 * MB, 1_000);
        assert_eq!(throttle.bytes_per_second(3_000), 2e6);
        throttle.set_bytes_per_second_max(MB as i64);
        assert!(throttle.is_exceeded(3_000));
        assert_eq!(
            throttle.bytes_per_second(12_000),
            0.0,
            "all samples are over"
        );
    }

    /// All that was counted was forgotten, as if the clock had been put back.
    #[test]
    fn a_thread_that_has_looked_at_the_clock_a_moment_before_another_one_loses_nothing() {
        let throttle = Throttle::default();
        throttle.set_bytes_per_second_max(MB as i64);
        throttle.record(2 * MB, 5_000);
        assert!(throttle.is_exceeded(4_999));
        throttle.record(2 * MB, 4_998);
        assert_eq!(throttle.bytes_per_second(6_000), 4e6);
    }
}

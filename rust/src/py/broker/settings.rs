//! Settings of the node as Python gives them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use pyo3::prelude::*;

use crate::error::{Error, Result};
use crate::limits::{ANSWER_BYTES_MAX, FETCH_BYTES_MAX, FETCH_SESSIONS_MAX, REPLICA_LAG_MS_MAX};
use crate::log::maintain::housekeeper::{CleanerSettings, Intervals};
use crate::net::admission::ConnectionLimits;
use crate::net::admission::rate::Windows;
use crate::net::replication::ReplicationSettings;
use crate::net::settings::Settings;
use crate::replica::follower::FollowerSettings;
use crate::replica::throttle::THROTTLE_SAMPLES;

/// The settings of a broker's integers and flags, by their keys.
pub fn settings_of(given: &HashMap<String, i64>, cleaner: CleanerSettings) -> Result<Settings> {
    let setting = |key: &str| match given.get(key) {
        Some(value) => Ok(*value),
        None => Err(Error::InvalidArgument(format!(
            "the setting {key} is missing"
        ))),
    };
    let count = |key: &str| Ok(usize::try_from(setting(key)?).unwrap_or(usize::MAX));
    let count_or = |key: &str, default: usize| {
        let value = given.get(key);
        value.map_or(default, |value| usize::try_from(*value).unwrap_or(default))
    };
    Ok(Settings {
        network_threads: count("num.network.threads")?,
        busy_poll: Duration::from_micros(count_or("kafkalite.busy.poll.us", 0) as u64),
        request_bytes_max: count("socket.request.max.bytes")?,
        answer_bytes_max: ANSWER_BYTES_MAX,
        listener_names: Vec::new(),
        connections: ConnectionLimits {
            windows: Windows {
                window_ms: 1_000 * count("quota.window.size.seconds")?.max(1) as u64,
                count: count("quota.window.num")?.max(1) as u64,
            },
            ..ConnectionLimits::default()
        },
        queued_bytes_max: given.get("queued.max.request.bytes").copied().unwrap_or(-1),
        // A negative limit is none, as in Kafka.
        idle_ms_max: u64::try_from(setting("connections.max.idle.ms")?).unwrap_or(u64::MAX),
        fetch_bytes_max: given
            .get("fetch.max.bytes")
            .map_or(FETCH_BYTES_MAX, |bytes| u64::try_from(*bytes).unwrap_or(0)),
        fetch_sessions_max: given
            .get("max.incremental.fetch.session.cache.slots")
            .map_or(FETCH_SESSIONS_MAX, |slots| {
                usize::try_from(*slots).unwrap_or(0)
            }),
        auto_create_topics: setting("auto.create.topics.enable")? != 0,
        is_rack_aware: given
            .get("replica.selector.class")
            .is_some_and(|value| *value != 0),
        replica_lag_ms_max: given
            .get("replica.lag.time.max.ms")
            .copied()
            .unwrap_or(REPLICA_LAG_MS_MAX),
        throttle_samples: samples_of(given, "replication.quota.window"),
        intervals: Intervals {
            retention_check_ms: setting("log.retention.check.interval.ms")?,
            first_retention_check_ms: setting("log.initial.task.delay.ms")?,
            flush_check_ms: setting("log.flush.scheduler.interval.ms")?,
            checkpoint_ms: setting("log.flush.offset.checkpoint.interval.ms")?,
            high_watermark_ms: i64::MAX,
            producer_check_ms: setting("producer.id.expiration.check.interval.ms")?,
        },
        cleaner,
        moving_threads: count_or("num.replica.alter.log.dirs.threads", 1),
        moving_rate_bytes: given
            .get("replica.alter.log.dirs.io.max.bytes.per.second")
            .copied()
            .unwrap_or(i64::MAX),
        moving_samples: samples_of(given, "alter.log.dirs.replication.quota.window"),
        replication: None,
    })
}

/// How many samples a rate has, and of how many milliseconds, by the two keys that begin so.
fn samples_of(given: &HashMap<String, i64>, keys: &str) -> (usize, i64) {
    let (samples_max, sample_ms) = THROTTLE_SAMPLES;
    let count = given.get(&format!("{keys}.num")).copied();
    let seconds = given.get(&format!("{keys}.size.seconds")).copied();
    (
        count.map_or(samples_max, |count| usize::try_from(count).unwrap_or(1)),
        seconds.map_or(sample_ms, |seconds| seconds.saturating_mul(1_000)),
    )
}

/// How the partitions of a node that is a broker among others are replicated: by the settings of its integers,
/// the epoch of its registration, and the place of its inter-broker listener.
pub fn replication_of(
    given: &HashMap<String, i64>,
    node_id: i32,
    (broker_epoch, listener): (i64, usize),
) -> ReplicationSettings {
    let number = |key: &str, default: i32| {
        let value = given.get(key).copied().unwrap_or(i64::from(default));
        i32::try_from(value.max(0)).unwrap_or(i32::MAX)
    };
    let unsigned = |key: &str, default: i32| usize::try_from(number(key, default)).unwrap_or(0);
    let follower = FollowerSettings {
        node_id,
        broker_epoch,
        max_wait_ms: number("replica.fetch.wait.max.ms", 500),
        min_bytes: number("replica.fetch.min.bytes", 1),
        response_bytes_max: number("replica.fetch.response.max.bytes", 10 << 20),
        partition_bytes_max: number("replica.fetch.max.bytes", 1 << 20),
        backoff_ms: i64::from(number("replica.fetch.backoff.ms", 1_000)),
    };
    let timeout_ms = unsigned("replica.socket.timeout.ms", 30_000).max(1);
    ReplicationSettings {
        follower,
        fetchers: unsigned("num.replica.fetchers", 1).max(1),
        socket_timeout: Duration::from_millis(timeout_ms as u64),
        listener,
    }
}

/// `kafkalite.listeners.ConnectionLimits`.
#[derive(FromPyObject)]
pub struct GivenLimits {
    total: usize,
    by_listener: Vec<usize>,
    rate: i64,
    rate_by_listener: Vec<i64>,
    per_address: usize,
    by_address: HashMap<String, usize>,
}

impl GivenLimits {
    pub fn parsed(self) -> Result<ConnectionLimits> {
        let by_address = self.by_address.into_iter().map(|(address, limit)| {
            let parsed: IpAddr = address
                .parse()
                .map_err(|_| Error::InvalidArgument(format!("{address} is no address")))?;
            // As those of connections are.
            Ok((parsed.to_canonical(), limit))
        });
        Ok(ConnectionLimits {
            total: self.total,
            by_listener: self.by_listener,
            rate: per_second(self.rate),
            rate_by_listener: self.rate_by_listener.into_iter().map(per_second).collect(),
            per_address: self.per_address,
            by_address: by_address.collect::<Result<_>>()?,
            ..ConnectionLimits::default()
        })
    }
}

/// `kafkalite.broker.CleanerSettings`.
#[derive(FromPyObject)]
pub struct GivenCleaner {
    dedupe_buffer_bytes: i64,
    load_factor: f64,
    backoff_ms: i64,
}

impl From<GivenCleaner> for CleanerSettings {
    fn from(given: GivenCleaner) -> CleanerSettings {
        CleanerSettings {
            dedupe_buffer_bytes: usize::try_from(given.dedupe_buffer_bytes).unwrap_or_default(),
            load_factor: given.load_factor,
            backoff_ms: given.backoff_ms,
        }
    }
}

/// A rate of connections; beyond what a number of Kafka's may be, there is none.
fn per_second(rate: i64) -> u32 {
    u32::try_from(rate).unwrap_or(u32::MAX)
}

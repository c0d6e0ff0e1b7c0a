//! Settings of the node as Python gives them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use pyo3::prelude::*;

use crate::error::{Error, Result};
use crate::limits::ANSWER_BYTES_MAX;
use crate::log::maintain::housekeeper::{CleanerSettings, Intervals};
use crate::net::admission::ConnectionLimits;
use crate::net::admission::rate::Windows;
use crate::net::replication::ReplicationSettings;
use crate::net::settings::Settings;
use crate::replica::follower::FollowerSettings;

/// The integers and flags of the configuration by their keys, all of them (`Config.settings`):
/// their defaults are in `python/kafkalite/config/`.
pub struct GivenSettings(HashMap<String, i64>);

impl GivenSettings {
    pub fn new(by_key: HashMap<String, i64>) -> GivenSettings {
        GivenSettings(by_key)
    }

    /// The threads of the network, without which there are no mailboxes.
    pub fn network_threads(&self) -> Result<usize> {
        self.count("num.network.threads")
    }

    /// The settings of a broker. `connections` limits those of its listeners.
    pub fn settings(
        &self,
        cleaner: CleanerSettings,
        listener_names: &[String],
        connections: ConnectionLimits,
        replication: Option<ReplicationSettings>,
    ) -> Result<Settings> {
        // A node that has no other brokers needs no checkpoint of high watermarks.
        let high_watermark_ms = match replication {
            Some(_) => self.integer("replica.high.watermark.checkpoint.interval.ms")?,
            None => i64::MAX,
        };
        Ok(Settings {
            network_threads: self.network_threads()?,
            busy_poll: Duration::from_micros(self.count("kafkalite.busy.poll.us")? as u64),
            request_bytes_max: self.count("socket.request.max.bytes")?,
            answer_bytes_max: ANSWER_BYTES_MAX,
            listener_names: listener_names
                .iter()
                .map(|name| name.as_str().into())
                .collect(),
            connections: ConnectionLimits {
                windows: Windows {
                    window_ms: 1_000 * self.count("quota.window.size.seconds")?.max(1) as u64,
                    count: self.count("quota.window.num")?.max(1) as u64,
                },
                ..connections
            },
            queued_bytes_max: self.integer("queued.max.request.bytes")?,
            // A negative limit is none, as in Kafka.
            idle_ms_max: u64::try_from(self.integer("connections.max.idle.ms")?)
                .unwrap_or(u64::MAX),
            fetch_bytes_max: self.count("fetch.max.bytes")? as u64,
            fetch_sessions_max: self.count("max.incremental.fetch.session.cache.slots")?,
            auto_create_topics: self.flag("auto.create.topics.enable")?,
            is_rack_aware: self.flag("replica.selector.class")?,
            replica_lag_ms_max: self.integer("replica.lag.time.max.ms")?,
            throttle_samples: self.samples("replication.quota.window")?,
            intervals: Intervals {
                retention_check_ms: self.integer("log.retention.check.interval.ms")?,
                first_retention_check_ms: self.integer("log.initial.task.delay.ms")?,
                flush_check_ms: self.integer("log.flush.scheduler.interval.ms")?,
                checkpoint_ms: self.integer("log.flush.offset.checkpoint.interval.ms")?,
                high_watermark_ms,
                producer_check_ms: self.integer("producer.id.expiration.check.interval.ms")?,
            },
            cleaner,
            moving_threads: usize::try_from(self.integer("num.replica.alter.log.dirs.threads")?)
                .unwrap_or(1),
            moving_rate_bytes: self.integer("replica.alter.log.dirs.io.max.bytes.per.second")?,
            moving_samples: self.samples("alter.log.dirs.replication.quota.window")?,
            replication,
        })
    }

    /// How the partitions of a node that is a broker among others are replicated, by the epoch of
    /// its registration and the index of its inter-broker listener.
    pub fn replication(
        &self,
        node_id: i32,
        broker_epoch: i64,
        listener: usize,
    ) -> Result<ReplicationSettings> {
        let follower = FollowerSettings {
            node_id,
            broker_epoch,
            max_wait_ms: self.natural("replica.fetch.wait.max.ms")?,
            min_bytes: self.natural("replica.fetch.min.bytes")?,
            response_bytes_max: self.natural("replica.fetch.response.max.bytes")?,
            partition_bytes_max: self.natural("replica.fetch.max.bytes")?,
            backoff_ms: i64::from(self.natural("replica.fetch.backoff.ms")?),
        };
        let timeout_ms = self.natural("replica.socket.timeout.ms")?.max(1);
        Ok(ReplicationSettings {
            follower,
            fetchers: self.natural("num.replica.fetchers")?.max(1) as usize,
            socket_timeout: Duration::from_millis(timeout_ms as u64),
            listener,
        })
    }

    fn integer(&self, key: &str) -> Result<i64> {
        let missing = || Error::InvalidArgument(format!("the setting {key} is missing"));
        self.0.get(key).copied().ok_or_else(missing)
    }

    fn flag(&self, key: &str) -> Result<bool> {
        Ok(self.integer(key)? != 0)
    }

    /// A negative number is no bound.
    fn count(&self, key: &str) -> Result<usize> {
        Ok(usize::try_from(self.integer(key)?).unwrap_or(usize::MAX))
    }

    /// A number for a field of a request; a negative one is 0.
    fn natural(&self, key: &str) -> Result<i32> {
        Ok(i32::try_from(self.integer(key)?.max(0)).unwrap_or(i32::MAX))
    }

    /// The samples of a rate and the milliseconds of each, by the two keys that begin so.
    fn samples(&self, keys: &str) -> Result<(usize, i64)> {
        let count = self.count(&format!("{keys}.num"))?;
        let seconds = self.integer(&format!("{keys}.size.seconds"))?;
        Ok((count, seconds.saturating_mul(1_000)))
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

//! Settings of the broker core, as Python reads them from the configuration and
//! hands them over at the start.

use std::sync::Arc;
use std::time::Duration;

use crate::log::maintain::housekeeper::{CleanerSettings, Intervals};
use crate::net::admission::ConnectionLimits;
use crate::net::replication::ReplicationSettings;

/// Settings of the broker core; the names of Kafka's keys are in `python/kafkalite/config/`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `num.network.threads`
    pub network_threads: usize,
    /// `kafkalite.busy.poll.us`
    pub busy_poll: Duration,
    /// `socket.request.max.bytes`
    pub request_bytes_max: usize,
    /// The largest answer; who asks for a larger one is closed.
    pub answer_bytes_max: i32,
    /// Names of the listeners, in their order.
    pub listener_names: Vec<Arc<str>>,
    pub connections: ConnectionLimits,
    /// `queued.max.request.bytes`; not positive: a share of the memory.
    pub queued_bytes_max: i64,
    /// `connections.max.idle.ms`
    pub idle_ms_max: u64,
    /// `fetch.max.bytes`
    pub fetch_bytes_max: u64,
    /// `max.incremental.fetch.session.cache.slots`
    pub fetch_sessions_max: usize,
    /// `auto.create.topics.enable`
    pub auto_create_topics: bool,
    /// `replica.selector.class` is Kafka's that goes by racks.
    pub is_rack_aware: bool,
    /// `replica.lag.time.max.ms`
    pub replica_lag_ms_max: i64,
    /// `replication.quota.window.num`, and `replication.quota.window.size.seconds` in milliseconds.
    pub throttle_samples: (usize, i64),
    /// How often the logs are looked after.
    pub intervals: Intervals,
    pub cleaner: CleanerSettings,
    /// `num.replica.alter.log.dirs.threads`
    pub moving_threads: usize,
    /// `replica.alter.log.dirs.io.max.bytes.per.second`
    pub moving_rate_bytes: i64,
    /// `alter.log.dirs.replication.quota.window.num`, and
    /// `alter.log.dirs.replication.quota.window.size.seconds` in milliseconds.
    pub moving_samples: (usize, i64),
    /// `None`: there are no other brokers.
    pub replication: Option<ReplicationSettings>,
}

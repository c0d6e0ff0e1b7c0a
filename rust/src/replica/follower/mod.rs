//! Following the leaders of partitions, without a socket and without a clock: bytes of a
//! leader's answers come in, bytes of requests go out, and the logs of this node's replicas
//! become as the leaders' are.
//!
//! ```text
//!  shell (net/replication/)                     session                               logs
//!  ── assign, remove ─────────────────────────► which partitions, by topic id and index
//!  ◄─ next_request: Fetch or ListOffsets ────── what of each the leader is to be asked ◄── ends, epochs
//!  ── on_answer ──────────────────────────────► answer.rs ─ truncate, else append ──────► replicate.rs
//!     flush of what was touched                             high watermark, log start
//! ```
//!
//! The fetch offset of a partition is the end of its log, and so says to the leader what this node
//! holds. In durable mode (`kafkalite.acks.fsync=group`) whoever drives a session flushes what an
//! answer has touched before it asks for the next request: then that offset says what is on disk. A
//! replica that has less than its leader has committed (`Partition::lag`) need not wait for that:
//! nothing is counted on it yet.
//!
//! There is no truncation before the first fetch, as in Kafka since KIP-595: a Fetch carries the
//! epoch of the last batch, and the leader answers with the end of that epoch where the two logs
//! part. Kafka: `AbstractFetcherThread`, `ReplicaFetcherThread`, `FetchSessionHandler`.

pub mod answer;
pub mod replicate;
mod request;
mod session;
mod troubles;

use std::sync::Arc;

pub use request::{
    FETCH_VERSION_MAX, FETCH_VERSION_MIN, FollowerSettings, LIST_OFFSETS_VERSION, Request,
};
pub use session::FollowerSession;
pub use troubles::Troubles;

use crate::replica::Partition;
use crate::uuid::Uuid;

/// A replica of this node and whom it follows. Another leader, leader epoch
/// or endpoint is told anew.
#[derive(Clone)]
pub struct Assignment {
    pub topic_id: Uuid,
    pub partition: Arc<Partition>,
    pub leader_id: i32,
}

/// Makes replicas follow their leaders. Called while the image changes; must not block.
pub trait Followers: Send + Sync {
    /// These follow from now on, instead of what their partitions did before, and those of
    /// `removed`, by topic id and index, follow nobody any more.
    fn assign(&self, assigned: Vec<Assignment>, removed: Vec<(Uuid, i32)>);

    /// Starts what could not be started before. Called from time to time.
    fn look_again(&self);

    /// Brokers, or their endpoints, may have changed.
    fn brokers_changed(&self);
}

//! Counters of the network threads since the start, read by `kafkalite.service.metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::wire::frame;

/// Keys are below; Kafka 4.3's highest is 92.
pub const COUNTED_KEYS: usize = 128;

/// Counters since the start; the names are in `python/kafkalite/service/metrics.py`.
pub struct Counts {
    /// Begun, by their key.
    pub requests: [AtomicU64; COUNTED_KEYS],
    pub received_bytes: AtomicU64,
    pub sent_bytes: AtomicU64,
    /// Connections closed: at once, for their address had too many; idle; holding
    /// memory when it was short.
    pub refused_connections: AtomicU64,
    pub idle_closed: AtomicU64,
    pub hoarders_closed: AtomicU64,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            requests: std::array::from_fn(|_| AtomicU64::default()),
            received_bytes: AtomicU64::default(),
            sent_bytes: AtomicU64::default(),
            refused_connections: AtomicU64::default(),
            idle_closed: AtomicU64::default(),
            hoarders_closed: AtomicU64::default(),
        }
    }
}

impl Counts {
    /// Another request has begun. `frame` is all of it, from its size on.
    pub fn note_request(&self, frame: &[u8]) {
        if let Some(low_byte) = frame.get(KEY_BYTE)
            && let Some(count) = self.requests.get(usize::from(*low_byte))
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The lower of the two that the key is, behind the size of the frame.
const KEY_BYTE: usize = frame::SIZE_BYTES + 1;

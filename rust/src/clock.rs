//! The clocks, read by threads that begin something, never by the log: the wall clock, which may be
//! set back, and one that is not, by which pauses and rates are counted.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime};

static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Milliseconds since 1970.
pub fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

/// Milliseconds since this was asked first.
pub fn monotonic_ms() -> i64 {
    i64::try_from(BEGAN.elapsed().as_millis()).unwrap_or(i64::MAX)
}

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For what is written.
    pub wall_ms: i64,
    /// For pauses and rates.
    pub monotonic_ms: i64,
}

impl Now {
    pub fn read() -> Now {
        Now {
            wall_ms: wall_ms(),
            monotonic_ms: monotonic_ms(),
        }
    }
}

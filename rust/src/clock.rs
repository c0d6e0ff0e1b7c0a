//! The wall clock, which may be set back: read by threads that begin something, never by the log.

use std::time::SystemTime;

/// Milliseconds since 1970.
pub fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

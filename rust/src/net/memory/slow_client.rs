//! How fast a client goes on that holds memory which others wait for: one that moves a byte now and
//! then holds it as well as one that moves none.
//!
//! ```text
//! moved nothing for SLOW_FRAME_MS                        ─► too slow
//! moved less than SLOW_CLIENT_BYTES in SLOW_CLIENT_MS    ─► too slow
//! ```
//!
//! A client with a slow link is not too slow: the limit is about a kilobyte a second, whatever the
//! size of the frame. The time counts from the first look, which is when memory has become short.

use crate::limits::{SLOW_CLIENT_BYTES, SLOW_CLIENT_MS, SLOW_FRAME_MS};

/// How far the client has come with what it is to do so that memory becomes free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientProgress {
    /// Bytes of frames that it has sent, or of answers that it has taken, since it is connected.
    pub moved_bytes: u64,
    /// When it last did.
    pub moved_ms: u64,
}

/// The check of one connection. To be made anew (`default`) whenever the client
/// has done what it was to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlowClientCheck {
    /// Where the present measurement began: time, and bytes moved by then.
    begun: Option<(u64, u64)>,
}

impl SlowClientCheck {
    /// Looks at the client now and then while memory is short.
    pub fn is_too_slow(&mut self, duty: ClientProgress, now_ms: u64) -> bool {
        let ClientProgress {
            moved_bytes,
            moved_ms,
        } = duty;
        let (since_ms, before_bytes) = *self.begun.get_or_insert((now_ms, moved_bytes));
        if moved_bytes.saturating_sub(before_bytes) >= SLOW_CLIENT_BYTES {
            self.begun = Some((now_ms, moved_bytes));
            return false;
        }
        now_ms.saturating_sub(moved_ms) > SLOW_FRAME_MS
            || now_ms.saturating_sub(since_ms) > SLOW_CLIENT_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second at which it is found too slow a client that moves so many bytes every so many
    /// seconds, looked at once a second for ten minutes.
    fn closed_at(bytes: u64, every_s: u64) -> Option<u64> {
        let mut slow_client = SlowClientCheck::default();
        (0..600).find(|second| {
            let times = second / every_s;
            let duty = ClientProgress {
                moved_bytes: 5_000_000 + times * bytes,
                moved_ms: times * every_s * 1000,
            };
            slow_client.is_too_slow(duty, second * 1000)
        })
    }

    #[test]
    fn who_moves_nothing_goes_soon_and_who_moves_a_byte_now_and_then_goes_too() {
        assert_eq!(closed_at(1, 1_000), Some(11));
        assert_eq!(closed_at(1, 9), Some(61));
        assert_eq!(closed_at(500, 1), Some(61));
    }

    #[test]
    fn who_has_a_slow_link_may_take_its_time() {
        assert_eq!(closed_at(2_000, 1), None);
        assert_eq!(closed_at(20_000, 9), None);
    }

    /// Memory was short before, and the client has gone on since without being looked at.
    #[test]
    fn what_was_moved_between_two_looks_counts() {
        let mut slow_client = SlowClientCheck::default();
        let duty = |moved_bytes, moved_ms| ClientProgress {
            moved_bytes,
            moved_ms,
        };
        assert!(!slow_client.is_too_slow(duty(0, 0), 0));
        assert!(!slow_client.is_too_slow(duty(SLOW_CLIENT_BYTES, 1_000_000), 1_000_000));
        assert!(slow_client.is_too_slow(duty(SLOW_CLIENT_BYTES + 1, 1_060_000), 1_060_001));
    }
}

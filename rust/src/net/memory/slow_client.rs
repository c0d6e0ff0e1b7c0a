//! How fast a client goes on that holds memory which others wait for: one that moves a byte now and
//! then holds it as well as one that moves none.
//!
//! ```text
//! moved nothing for SLOW_FRAME_MS                        ─► too slow
//! moved less than SLOW_CLIENT_BYTES in SLOW_CLIENT_MS    ─► too slow
//! not done in CLIENT_DUTY_MS while others wait           ─► the slowest goes, until some memory is left
//! ```
//!
//! A client with a slow link is not too slow as long as nobody waits for what it holds: the limit
//! is about a kilobyte a second then, whatever the size of the frame. The time counts from the
//! first look, which is when memory has become short.

use crate::limits::{CLIENT_DUTY_MS, SLOW_CLIENT_BYTES, SLOW_CLIENT_MS, SLOW_FRAME_MS};

/// How far the client has come with what it is to do so that memory becomes free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientProgress {
    /// Bytes of frames that it has sent, or of answers that it has taken, since it is connected.
    pub moved_bytes: u64,
    /// When it last did.
    pub moved_ms: u64,
}

/// Why a connection goes while memory is short, in the order in which they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClosingReason {
    /// Its client moves nothing, or hardly.
    TooSlow,
    /// Its frame exceeds the budget, and keeps others from that for too long.
    Exceeding,
    /// Its client has moved so many bytes a second, and others have waited for long.
    Slow(u64),
    /// It has waited for memory since then, milliseconds, and its client has most likely given up.
    Waiting(u64),
}

impl ClosingReason {
    /// It goes, and not only until some memory is left.
    pub fn is_certain(self) -> bool {
        self <= ClosingReason::Exceeding
    }
}

/// The check of one connection. To be made anew (`default`) whenever the client
/// has done what it was to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlowClientCheck {
    /// Where the present measurement began: time, and bytes moved by then.
    begun: Option<(u64, u64)>,
    watched: Option<Watched>,
}

/// The part that a client has done of what is for it to do while others have waited.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// For so long it was for the client to go on.
    duty_ms: u64,
    moved_bytes: u64,
    looked_ms: u64,
    /// Bytes that it had moved at the last look, if it was for it to go on then.
    before_bytes: Option<u64>,
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

    /// It is not for the client to go on: it waits for memory itself. What it was slow at until now
    /// is remembered.
    pub fn pause(&mut self) {
        self.begun = None;
        if let Some(watched) = &mut self.watched {
            watched.before_bytes = None;
        }
    }

    /// Looks at the client now and then while others wait for memory; `duty` is none while it is
    /// not for the client to go on. Bytes a second that it has moved, once its time is over. When
    /// nobody has looked for a while, it has its time anew.
    pub fn overdue_rate(&mut self, duty: Option<ClientProgress>, now_ms: u64) -> Option<u64> {
        let is_recent =
            |watched: &Watched| now_ms.saturating_sub(watched.looked_ms) <= SLOW_FRAME_MS;
        let mut watched = self.watched.filter(is_recent).unwrap_or(Watched {
            duty_ms: 0,
            moved_bytes: 0,
            looked_ms: now_ms,
            before_bytes: None,
        });
        if let (Some(duty), Some(before_bytes)) = (duty, watched.before_bytes) {
            watched.duty_ms += now_ms.saturating_sub(watched.looked_ms);
            watched.moved_bytes += duty.moved_bytes.saturating_sub(before_bytes);
        }
        watched.before_bytes = duty.map(|duty| duty.moved_bytes);
        watched.looked_ms = now_ms;
        self.watched = Some(watched);
        let Watched {
            duty_ms,
            moved_bytes,
            ..
        } = watched;
        (duty_ms > CLIENT_DUTY_MS).then(|| moved_bytes.saturating_mul(1000) / duty_ms)
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

    fn at_rate(bytes_per_s: u64, now_ms: u64) -> ClientProgress {
        ClientProgress {
            moved_bytes: 5_000_000 + bytes_per_s * now_ms / 1000,
            moved_ms: now_ms,
        }
    }

    #[test]
    fn a_client_has_its_time_while_others_wait_and_then_its_rate_counts() {
        let mut slow_client = SlowClientCheck::default();
        let mut rates = (0..60).map(|second| {
            let now_ms = 7_000 + second * 1000;
            slow_client.overdue_rate(Some(at_rate(1_500, now_ms)), now_ms)
        });
        let first = rates.position(|rate| rate.is_some());
        assert_eq!(
            first.map(|seconds| seconds as u64),
            Some(CLIENT_DUTY_MS / 1000 + 1)
        );
        assert!(rates.all(|rate| rate == Some(1_500)));
    }

    #[test]
    fn a_client_has_its_time_anew_when_others_have_not_waited_for_a_while() {
        let mut slow_client = SlowClientCheck::default();
        for now_ms in (0..CLIENT_DUTY_MS).step_by(1000) {
            assert_eq!(
                slow_client.overdue_rate(Some(at_rate(1, now_ms)), now_ms),
                None
            );
        }
        for second in 0..CLIENT_DUTY_MS / 1000 {
            let now_ms = 100_000 + second * 1000;
            assert_eq!(
                slow_client.overdue_rate(Some(at_rate(1, now_ms)), now_ms),
                None
            );
        }
    }

    /// It was then one of those who merely wait, and went no sooner than an honest one.
    #[test]
    fn who_was_slow_before_it_waited_is_not_forgotten_and_waiting_is_not_slow() {
        let (mut slow, mut waiting) = (SlowClientCheck::default(), SlowClientCheck::default());
        let last_ms = 2 * CLIENT_DUTY_MS;
        for now_ms in (0..=last_ms).step_by(1000) {
            let is_waiting = now_ms > last_ms - 5_000;
            if is_waiting {
                slow.pause();
            }
            let duty = Some(at_rate(1_500, now_ms)).filter(|_| !is_waiting);
            let rate = slow.overdue_rate(duty, now_ms);
            assert_eq!(rate.is_some(), now_ms > CLIENT_DUTY_MS);
            assert_eq!(waiting.overdue_rate(None, now_ms), None);
        }
    }

    #[test]
    fn the_slowest_go_before_the_faster_ones_and_these_before_those_who_wait() {
        let mut reasons = [
            ClosingReason::Waiting(5),
            ClosingReason::Slow(100_000),
            ClosingReason::Waiting(4),
            ClosingReason::Exceeding,
            ClosingReason::Slow(1_500),
            ClosingReason::TooSlow,
        ];
        reasons.sort_unstable();
        let expected = [
            ClosingReason::TooSlow,
            ClosingReason::Exceeding,
            ClosingReason::Slow(1_500),
            ClosingReason::Slow(100_000),
            ClosingReason::Waiting(4),
            ClosingReason::Waiting(5),
        ];
        assert_eq!(reasons, expected);
        let certain = reasons.iter().filter(|reason| reason.is_certain());
        assert_eq!(certain.count(), 2);
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

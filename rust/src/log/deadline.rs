//! When something is due, by a wall clock that may be set back. Who waits for a time of day waits
//! until the clock has come there again, for a day where it was a day ahead; a `Deadline` waits for
//! a length of time. Kafka's scheduler goes by a clock that is never set.

/// A wait from some moment on, in milliseconds of the wall clock. Told the time; reads no clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// May be changed while the wait is on.
    pub wait_ms: i64,
    since_ms: i64,
}

impl Deadline {
    pub fn after(wait_ms: i64, now_ms: i64) -> Deadline {
        Deadline {
            wait_ms,
            since_ms: now_ms,
        }
    }

    /// Begins the wait anew, from now on.
    pub fn restart(&mut self, now_ms: i64) {
        self.since_ms = now_ms;
    }

    /// Says whether the wait is over. At a time before its beginning, it begins anew: it takes at
    /// most once more as long, however far a clock is set back.
    pub fn is_over(&mut self, now_ms: i64) -> bool {
        self.since_ms = self.since_ms.min(now_ms);
        now_ms.saturating_sub(self.since_ms) >= self.wait_ms
    }

    /// When the wait is over, if the clock is left alone.
    pub fn due_ms(&self) -> i64 {
        self.since_ms.saturating_add(self.wait_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_over_when_its_time_has_passed_and_never_without_an_end() {
        let mut minute = Deadline::after(60, 1_000);
        assert!(!minute.is_over(1_059));
        assert!(minute.is_over(1_060));
        minute.restart(1_060);
        assert!(!minute.is_over(1_119));
        assert_eq!(minute.due_ms(), 1_120);
        let mut never = Deadline::after(i64::MAX, 1_000);
        assert_eq!(never.due_ms(), i64::MAX);
        assert!(!never.is_over(i64::MAX - 1));
    }

    #[test]
    fn a_wait_begins_anew_when_the_clock_is_set_back_behind_its_beginning() {
        let mut minute = Deadline::after(60, 1_000_000);
        assert!(!minute.is_over(500));
        assert!(!minute.is_over(559));
        assert!(minute.is_over(560));
    }
}

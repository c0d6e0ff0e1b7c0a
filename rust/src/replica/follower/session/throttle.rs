//! Leaves throttled partitions out of requests while more is fetched of them than their rate
//! (KIP-73). The rate is `follower.replication.throttled.rate`; those that are in sync stay in
//! (`RemoteLeaderEndPoint.buildFetch`).

use super::{FollowerSession, Key, State};

impl FollowerSession {
    /// Looks which partitions are to be fetched by what has come of late. Costs nothing
    /// while no rate is exceeded.
    pub(super) fn throttle(&mut self, now_ms: i64) {
        let Some(first) = self.followed.values().next() else {
            self.throttled_until_ms = None;
            return;
        };
        let partition = first.partition.clone();
        let throttle = partition.follower_throttle();
        if !throttle.is_exceeded(now_ms) {
            if self.throttled_until_ms.take().is_some() {
                self.let_go(|_, _| true);
            }
            return;
        }
        let wait_ms = throttle.falls_in_ms(now_ms);
        // Another rate may be set meanwhile.
        let wait_ms = wait_ms.clamp(1, self.settings.backoff_ms.max(1));
        self.throttled_until_ms = Some(now_ms.saturating_add(wait_ms));
        self.let_go(|session, key| !session.is_held_back(*key));
        let held_back: Vec<Key> = self
            .followed
            .iter()
            .filter(|(_, each)| each.state == State::Fetching && each.partition.is_held_back())
            .map(|(key, _)| *key)
            .collect();
        for key in held_back {
            self.leave_session(key);
            if let Some(followed) = self.followed.get_mut(&key) {
                followed.state = State::Throttled;
            }
        }
    }

    fn is_held_back(&self, key: Key) -> bool {
        let followed = self.followed.get(&key);
        followed.is_some_and(|each| each.partition.is_held_back())
    }

    /// Fetches those again that were left out, and of which this is so.
    fn let_go(&mut self, may_go: impl Fn(&FollowerSession, &Key) -> bool) {
        let throttled = self.followed.iter();
        let throttled = throttled.filter(|(_, each)| each.state == State::Throttled);
        let free: Vec<Key> = throttled
            .map(|(key, _)| *key)
            .filter(|key| may_go(self, key))
            .collect();
        free.into_iter().for_each(|key| self.fetch_again(key));
    }
}

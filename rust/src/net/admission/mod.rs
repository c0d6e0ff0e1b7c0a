//! Limits how many clients connect, and how fast: `max.connections` and
//! `max.connection.creation.rate`, the same per listener, and
//! `max.connections.per.ip` (`ConnectionQuotas`).
//!
//! Beyond the limit of the broker or of a listener, connections wait in the listener's backlog
//! until another one closes, or until the limit is raised; where that of the broker is
//! lowered, those that have been used least recently are closed (`closeExcessConnections`).
//! Beyond a rate, one waits until its time has come. Beyond the limit of its address, a
//! connection is closed at once.

pub mod rate;

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;

use self::rate::{Rate, Windows};

/// Limits on the number of connections.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// `max.connections`
    pub total: usize,
    /// `listener.name.<name>.max.connections`, by the listener's index.
    pub by_listener: Vec<usize>,
    /// `max.connection.creation.rate`, connections a second
    pub rate: u32,
    /// `listener.name.<name>.max.connection.creation.rate`, by the listener's index.
    pub rate_by_listener: Vec<u32>,
    /// Measure of a rate.
    pub windows: Windows,
    /// `max.connections.per.ip`
    pub per_address: usize,
    /// `max.connections.per.ip.overrides`
    pub by_address: HashMap<IpAddr, usize>,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            total: usize::MAX,
            by_listener: Vec::new(),
            rate: u32::MAX,
            rate_by_listener: Vec::new(),
            windows: Windows::default(),
            per_address: usize::MAX,
            by_address: HashMap::new(),
        }
    }
}

struct Counts {
    limits: ConnectionLimits,
    total: usize,
    /// Connections of the Arrow endpoint, which `max.connections` does not count.
    beside: usize,
    by_listener: HashMap<usize, usize>,
    by_address: HashMap<IpAddr, usize>,
    rate: Rate,
    rate_by_listener: HashMap<usize, Rate>,
    /// A listener looks away until a connection closes.
    somebody_waits: bool,
}

/// The connections of all network threads, counted.
pub struct Admission {
    /// All for which there are descriptors, whatever the limits are.
    total_max: usize,
    counts: Mutex<Counts>,
}

impl Admission {
    /// `total_max` connections are all for which there are descriptors.
    pub fn new(limits: ConnectionLimits, total_max: usize) -> Admission {
        let counts = Counts {
            total: 0,
            beside: 0,
            by_listener: HashMap::new(),
            by_address: HashMap::new(),
            rate: Rate::new(limits.windows),
            rate_by_listener: HashMap::new(),
            somebody_waits: false,
            limits,
        };
        Admission {
            total_max,
            counts: Mutex::new(counts),
        }
    }

    /// Limits from now on; those of rates hold for what has come of late too. One that waits for
    /// its time goes on waiting as long as it was told. The windows stay what they were.
    pub fn set_limits(&self, limits: ConnectionLimits) {
        let counts = &mut *self.counts.lock();
        let windows = counts.limits.windows;
        counts.limits = ConnectionLimits { windows, ..limits };
    }

    /// There are more connections than the broker may have since `set_limits`.
    pub fn is_exceeded(&self) -> bool {
        let counts = self.counts.lock();
        counts.total > counts.limits.total
    }

    /// How long a connection has to wait that a listener has taken just now, milliseconds.
    /// To be asked once for each.
    #[must_use]
    pub fn wait_ms(&self, listener: usize, now_ms: u64) -> u64 {
        let counts = &mut *self.counts.lock();
        let limits = &counts.limits;
        let all_ms = counts.rate.record(limits.rate, now_ms);
        let Some(own_max) = limits.rate_by_listener.get(listener) else {
            return all_ms;
        };
        let of_listener = counts.rate_by_listener.entry(listener);
        let rate = of_listener.or_insert_with(|| Rate::new(limits.windows));
        all_ms.max(rate.record(*own_max, now_ms))
    }

    pub fn count(&self) -> usize {
        self.counts.lock().total
    }

    /// The listener may take a connection now. If not, `leave` says when to look again.
    pub fn has_room(&self, listener: usize) -> bool {
        let mut counts = self.counts.lock();
        let by_listener = &counts.limits.by_listener;
        let listener_max = by_listener.get(listener).copied().unwrap_or(usize::MAX);
        let of_listener = counts.by_listener.get(&listener).copied().unwrap_or(0);
        let has_room = counts.total < counts.limits.total
            && counts.total + counts.beside < self.total_max
            && of_listener < listener_max;
        counts.somebody_waits |= !has_room;
        has_room
    }

    /// No further connection is taken, whatever the limits are: files need the
    /// descriptors that are left.
    pub fn lacks_descriptors(&self) -> bool {
        let counts = self.counts.lock();
        counts.total + counts.beside >= self.total_max
    }

    /// Counts a connection of the Arrow endpoint in. False: there are no descriptors
    /// for it; it is not counted.
    #[must_use]
    pub fn enter_beside(&self) -> bool {
        let mut counts = self.counts.lock();
        let has_room = counts.total + counts.beside < self.total_max;
        counts.beside += usize::from(has_room);
        has_room
    }

    /// Counts a connection of the Arrow endpoint out. True: a listener waits for that.
    #[must_use]
    pub fn leave_beside(&self) -> bool {
        let mut counts = self.counts.lock();
        assert!(counts.beside > 0, "it was counted in");
        counts.beside -= 1;
        std::mem::take(&mut counts.somebody_waits)
    }

    /// Counts a connection in. False: its address has too many; it is not counted and has to go.
    #[must_use]
    pub fn enter(&self, listener: usize, address: IpAddr) -> bool {
        let counts = &mut *self.counts.lock();
        let limits = &counts.limits;
        let max = limits
            .by_address
            .get(&address)
            .unwrap_or(&limits.per_address);
        let of_address = counts.by_address.entry(address).or_insert(0);
        if *of_address >= *max {
            if *of_address == 0 {
                counts.by_address.remove(&address);
            }
            return false;
        }
        *of_address += 1;
        *counts.by_listener.entry(listener).or_insert(0) += 1;
        counts.total += 1;
        true
    }

    /// Counts a connection out. True: a listener waits for that.
    #[must_use]
    pub fn leave(&self, listener: usize, address: IpAddr) -> bool {
        let mut counts = self.counts.lock();
        counts.total = counts.total.saturating_sub(1);
        if let Some(count) = counts.by_listener.get_mut(&listener) {
            *count = count.saturating_sub(1);
        }
        if let Some(count) = counts.by_address.get_mut(&address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.by_address.remove(&address);
            }
        }
        std::mem::take(&mut counts.somebody_waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    fn admission(limits: ConnectionLimits) -> Admission {
        Admission::new(limits, usize::MAX)
    }

    #[test]
    fn an_address_has_its_own_limit_or_the_common_one() {
        let admission = admission(ConnectionLimits {
            per_address: 1,
            by_address: HashMap::from([(THERE, 2)]),
            ..ConnectionLimits::default()
        });
        assert!(admission.enter(0, HERE) && !admission.enter(0, HERE));
        assert!(admission.enter(0, THERE) && admission.enter(0, THERE));
        assert!(!admission.enter(0, THERE));
        assert_eq!(admission.count(), 3);
        assert!(!admission.leave(0, THERE));
        assert!(admission.enter(0, THERE));
    }

    #[test]
    fn a_connection_waits_for_the_brokers_rate_or_for_that_of_its_listener() {
        let admission = admission(ConnectionLimits {
            rate: 2,
            rate_by_listener: vec![1, u32::MAX],
            ..ConnectionLimits::default()
        });
        let come = |listener, times| (0..times).map(|_| admission.wait_ms(listener, 7)).max();
        assert_eq!(come(0, 10), Some(0));
        assert_eq!(come(0, 1), Some(1_000), "its own rate");
        assert_eq!(come(1, 9), Some(0));
        assert_eq!(come(1, 1), Some(500), "the broker's rate");
        admission.set_limits(ConnectionLimits {
            rate_by_listener: vec![1, u32::MAX],
            ..ConnectionLimits::default()
        });
        assert_eq!(come(1, 1), Some(0));
        assert_eq!(come(0, 1), Some(1_000));
    }

    #[test]
    fn a_full_listener_waits_and_is_told_when_one_leaves() {
        let admission = admission(ConnectionLimits {
            total: 2,
            by_listener: vec![1, usize::MAX],
            ..ConnectionLimits::default()
        });
        assert!(admission.has_room(0) && admission.enter(0, HERE));
        assert!(!admission.has_room(0), "its own limit");
        assert!(admission.has_room(1) && admission.enter(1, HERE));
        assert!(!admission.has_room(1), "the broker's limit");
        assert!(admission.leave(1, HERE), "somebody waits");
        assert!(!admission.leave(0, HERE), "and was told");
        assert!(admission.has_room(0));
    }

    #[test]
    fn limits_that_change_hold_for_the_connections_that_there_are() {
        let admission = admission(ConnectionLimits::default());
        for _ in 0..3 {
            assert!(admission.enter(0, HERE));
        }
        assert!(!admission.is_exceeded());
        admission.set_limits(ConnectionLimits {
            total: 2,
            per_address: 3,
            ..ConnectionLimits::default()
        });
        assert!(admission.is_exceeded() && !admission.has_room(0));
        assert!(!admission.enter(0, HERE), "of its address");
        assert!(admission.leave(0, HERE) && !admission.is_exceeded());
        assert!(!admission.has_room(0));
        admission.set_limits(ConnectionLimits::default());
        assert!(admission.has_room(0) && admission.enter(0, HERE));
    }
    /// A change of any limit had the broker take as many connections as `max.connections` allows.
    #[test]
    fn no_limit_lets_connections_take_the_descriptors_of_files() {
        let admission = Admission::new(ConnectionLimits::default(), 1);
        assert!(admission.has_room(0) && !admission.lacks_descriptors());
        assert!(admission.enter(0, HERE));
        admission.set_limits(ConnectionLimits::default());
        assert!(!admission.has_room(0) && admission.lacks_descriptors());
        assert!(!admission.is_exceeded());
    }

    /// The Arrow endpoint's were not counted: 256 of them could take the last descriptors.
    #[test]
    fn connections_of_the_arrow_endpoint_take_no_descriptors_of_files() {
        let admission = Admission::new(ConnectionLimits::default(), 2);
        assert!(admission.enter(0, HERE) && admission.enter_beside());
        assert!(!admission.enter_beside(), "it is told so");
        assert!(!admission.has_room(0) && admission.lacks_descriptors());
        assert_eq!(admission.count(), 1);
        assert!(admission.leave_beside(), "a listener waits");
        assert!(admission.has_room(0) && !admission.lacks_descriptors());
        assert!(admission.enter(0, HERE) && !admission.enter_beside());
        let limits = ConnectionLimits {
            total: 2,
            ..ConnectionLimits::default()
        };
        let admission = Admission::new(limits, 3);
        assert!(admission.enter_beside() && admission.enter(0, HERE));
        assert!(admission.has_room(0), "max.connections does not count it");
    }
}

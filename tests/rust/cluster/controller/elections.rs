//! A change of a partition and who leads it afterwards: ISR, ELR (KIP-966) and epochs, as Kafka
//! 4.3.1's `PartitionChangeBuilder` has them.

use super::{Controller, NO_LEADER, PartitionState, missing};
use crate::cluster::planted::Planted;

/// Whom an election may find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Election {
    Online,
    Preferred,
    Unclean,
}

/// What is to become of a partition.
pub(super) struct Change {
    pub isr: Vec<i32>,
    election: Election,
    /// It is being fenced, stopped or taken out.
    excluded: Option<i32>,
    /// What was on its disks may be gone.
    unclean: Option<i32>,
    pub is_recovering: bool,
}

impl Change {
    pub fn of(partition: &PartitionState, election: Election) -> Change {
        Change {
            isr: partition.isr.clone(),
            election,
            excluded: None,
            unclean: None,
            is_recovering: partition.is_recovering,
        }
    }

    pub fn without(partition: &PartitionState, broker: i32, is_unclean: bool) -> Change {
        let mut change = Change::of(partition, Election::Online);
        change.isr.retain(|each| *each != broker);
        change.excluded = Some(broker);
        change.unclean = is_unclean.then_some(broker);
        change
    }
}

impl Controller {
    /// Carries a change out; false: it changes nothing.
    pub(super) fn change(&mut self, index: usize, change: Change) -> bool {
        let now = self.metadata.partitions[index].clone();
        let mut next = now.clone();
        next.isr = change.isr.clone();
        next.is_recovering = change.is_recovering;
        complete_reassignment(&mut next);
        let (replicas, directories) = (&next.replicas, &mut next.directories);
        directories.retain(|id, _| replicas.contains(id));
        let min_isr = self.metadata.effective_min_isr(&next);
        next.elr = if next.isr.len() >= min_isr {
            Vec::new()
        } else {
            let mut elr = now.elr.clone();
            elr.extend(missing(&now.isr, &now.elr));
            elr.retain(|id| !next.isr.contains(id) && change.unclean != Some(*id));
            elr.retain(|id| next.replicas.contains(id));
            elr
        };
        let (leader, is_unclean) = self.elected(index, &next, &change);
        if leader != now.leader {
            if next.elr.contains(&leader) {
                next.isr = vec![leader];
                next.elr.retain(|id| *id != leader);
            }
            if is_unclean {
                (next.isr, next.elr, next.is_recovering) = (vec![leader], Vec::new(), true);
                self.unclean_elections.push(index);
            }
            if next.isr.len() >= min_isr {
                // Kafka leaves an ELR beside an ISR of `min.insync.replicas` where that was
                // lowered meanwhile, out of which a replica is elected that lacks what the
                // ISR alone has committed.
                next.elr.clear();
            }
            next.leader = leader;
            next.leader_epoch += i32::from(!self.has(Planted::OldLeaderEpoch));
        } else if !missing(&now.replicas, &next.replicas).is_empty() {
            next.leader_epoch += 1;
        }
        if next.isr.is_empty() && now.leader != NO_LEADER {
            next.last_known_leader = Some(now.leader);
        } else if next.leader != NO_LEADER {
            next.last_known_leader = None;
        }
        let has_changed = next != now;
        if has_changed {
            next.partition_epoch = now.partition_epoch + 1;
            self.metadata.partitions[index] = next;
        }
        has_changed
    }

    /// The leader, and whether it may lack committed records.
    fn elected(&self, index: usize, next: &PartitionState, change: &Change) -> (i32, bool) {
        let accepts = |id: i32| {
            let registered = self.metadata.brokers.get(&id);
            change.excluded != Some(id)
                && registered.is_some_and(|it| it.is_active() && !it.offline.contains(&index))
        };
        let is_valid = |id: i32| {
            let in_elr = next.isr.is_empty() && next.elr.contains(&id);
            (next.isr.contains(&id) || in_elr) && accepts(id)
        };
        let mut replicas = next.replicas.iter().copied();
        if change.election == Election::Preferred && is_valid(next.replicas[0]) {
            return (next.replicas[0], false);
        }
        if is_valid(next.leader) {
            return (next.leader, false);
        }
        if let Some(found) = replicas.clone().find(|id| is_valid(*id)) {
            return (found, false);
        }
        let last_known = next.last_known_leader.filter(|id| accepts(*id));
        if let Some(found) = last_known.filter(|_| next.isr.is_empty() && next.elr.is_empty()) {
            return (found, true);
        }
        let unclean = match change.election {
            Election::Unclean => replicas.find(|id| accepts(*id)),
            _ => None,
        };
        unclean.map_or((NO_LEADER, false), |id| (id, true))
    }
}

fn complete_reassignment(next: &mut PartitionState) {
    let is_moving = !next.adding.is_empty() || !next.removing.is_empty();
    let stay = missing(&next.isr, &next.removing);
    if is_moving && !stay.is_empty() && missing(&next.adding, &next.isr).is_empty() {
        next.isr = stay;
        next.replicas = missing(&next.replicas, &next.removing);
        (next.adding, next.removing) = (Vec::new(), Vec::new());
    }
}

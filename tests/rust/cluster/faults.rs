//! What strikes: processes die, power is cut, disks fail, processes stand still, clocks jump, links
//! are cut one way or both, and the cluster is changed on purpose, or records are deleted.

use super::controller::Election;
use super::world::{CONTROLLER, World};
use crate::memory_storage::crash::Crash;
use crate::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Kill,
    PowerCut,
    /// Of several brokers at once, or all.
    PowerCuts,
    Pause,
    /// One direction between two nodes, the controller among them.
    CutOneWay,
    /// A broker reaches nobody.
    Isolate,
    ClockJump,
    ControlledStop,
    DirectoryFailure,
    Reassign,
    MinIsr,
    UncleanElection,
    PreferredElection,
    DeleteRecords,
    /// Of a replica into the other log directory of its broker.
    Move,
}

const ALL: [(Fault, u64); 15] = [
    (Fault::Kill, 60),
    (Fault::PowerCut, 50),
    (Fault::PowerCuts, 20),
    (Fault::Pause, 50),
    (Fault::CutOneWay, 60),
    (Fault::Isolate, 60),
    (Fault::ClockJump, 20),
    (Fault::ControlledStop, 30),
    (Fault::DirectoryFailure, 20),
    (Fault::Reassign, 30),
    (Fault::MinIsr, 10),
    (Fault::UncleanElection, 10),
    (Fault::PreferredElection, 40),
    (Fault::DeleteRecords, 30),
    (Fault::Move, 25),
];

impl Fault {
    /// Some of them, each with its chance in a hundred.
    pub fn draw(random: &mut Random) -> Vec<Fault> {
        let drawn = ALL.iter().filter(|(_, chance)| random.below(100) < *chance);
        let drawn: Vec<Fault> = drawn.map(|(fault, _)| *fault).collect();
        if drawn.is_empty() {
            vec![Fault::Kill]
        } else {
            drawn
        }
    }
}

impl World {
    /// One fault, and the next one later.
    pub fn strike(&mut self) {
        if self.is_calm {
            return;
        }
        if self.controller.metadata().partitions.is_empty() {
            return self.after(100, CONTROLLER, World::strike);
        }
        let which = self.random.below(self.plan.faults.len() as u64) as usize;
        let fault = self.plan.faults[which];
        let id = self.draw(1, i64::from(self.plan.brokers)) as i32;
        self.strike_by(fault, id);
        let pause_ms = self.draw(1, self.plan.fault_pause_ms * 2);
        self.after(pause_ms, CONTROLLER, World::strike);
    }

    fn strike_by(&mut self, fault: Fault, id: i32) {
        let partition = self.random.below(self.plan.partitions as u64) as usize;
        match fault {
            Fault::Kill => self.kill(id, Crash::Kill),
            Fault::PowerCut => {
                let crash = self.power_cut();
                self.kill(id, crash);
            }
            Fault::PowerCuts => {
                let all = self.chance(400);
                for id in 1..=self.plan.brokers {
                    if all || self.chance(500) {
                        let crash = self.power_cut();
                        self.kill(id, crash);
                    }
                }
            }
            Fault::Pause => {
                let pause_ms = self.draw(50, 5_000);
                self.note(|| format!("broker {id} stands still for {pause_ms} ms"));
                let until_ms = self.now_ms + pause_ms;
                self.broker(id).paused_until_ms = until_ms;
            }
            Fault::CutOneWay => {
                let other = self.draw(0, i64::from(self.plan.brokers)) as i32;
                if other != id {
                    let pair = if self.chance(500) {
                        (id, other)
                    } else {
                        (other, id)
                    };
                    self.cut_for(&[pair]);
                }
            }
            Fault::Isolate => {
                let others = (0..=self.plan.brokers).filter(|other| *other != id);
                let pairs = others.flat_map(|other| [(id, other), (other, id)]);
                let pairs: Vec<(i32, i32)> = pairs.collect();
                let spares_controller = self.chance(300);
                let spared = |pair: &&(i32, i32)| {
                    spares_controller && (pair.0 == CONTROLLER || pair.1 == CONTROLLER)
                };
                let pairs: Vec<(i32, i32)> =
                    pairs.iter().filter(|pair| !spared(pair)).copied().collect();
                self.cut_for(&pairs);
            }
            Fault::ClockJump => {
                let jump_ms = self.draw(100, 4_000);
                self.note(|| format!("the clock of broker {id} jumps by {jump_ms} ms"));
                self.broker(id).clock_ms += jump_ms;
            }
            Fault::ControlledStop => self.begin_stop(id),
            Fault::DirectoryFailure => self.fail_directory(id),
            Fault::Reassign => self.reassign_somehow(partition),
            Fault::MinIsr => {
                let min_isr = self.draw(1, 3) as usize;
                self.note(|| format!("min.insync.replicas={min_isr}"));
                self.controller.set_min_isr(min_isr);
                self.tell_min_isr();
            }
            Fault::UncleanElection => {
                self.note(|| format!("an unclean election of t-{partition} is allowed"));
                self.controller.elect(partition, Election::Unclean);
            }
            Fault::PreferredElection => {
                self.controller.elect(partition, Election::Preferred);
            }
            Fault::DeleteRecords => self.delete_records(partition),
            Fault::Move => self.move_replica(id, partition),
        }
    }

    fn power_cut(&mut self) -> Crash {
        match self.random.below(3) {
            0 => Crash::LoseUnsynced,
            _ => Crash::Seeded(self.random.next()),
        }
    }

    fn cut_for(&mut self, pairs: &[(i32, i32)]) {
        let ms = self.draw(100, 6_000);
        self.note(|| format!("cut for {ms} ms: {pairs:?}"));
        self.cuts.extend(pairs);
        let pairs = pairs.to_vec();
        self.after(ms, CONTROLLER, move |world| {
            for pair in &pairs {
                world.cuts.remove(pair);
            }
        });
    }

    fn reassign_somehow(&mut self, partition: usize) {
        let mut ids: Vec<i32> = (1..=self.plan.brokers).collect();
        for at in (1..ids.len()).rev() {
            let other = self.random.below(at as u64 + 1) as usize;
            ids.swap(at, other);
        }
        ids.truncate(self.plan.replication);
        self.note(|| format!("t-{partition} is to be at {ids:?}"));
        self.controller.reassign(partition, &ids);
    }
}

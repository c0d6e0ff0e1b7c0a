//! A broker as a member of the cluster: it registers, sends heartbeats, and has metadata
//! come into force, by which its logs are loaded, its replicas lead or follow, and
//! replicas are made and deleted.

use kafkalite::log::config::LogConfig;
use kafkalite::node::{MetadataDelta, MoveRequest, TopicPlan};
use kafkalite::uuid::Uuid;

use super::broker::{directory_id, is_offline};
use super::bytes::{TOPIC, TOPIC_ID};
use super::controller::{Heartbeat, HeartbeatAnswer, Metadata, code};
use super::planted::{Planted, move_early};
use super::seam;
use super::world::{CONTROLLER, World};
use crate::memory_storage::crash::Crash;

/// A request to the controller fails after so long.
pub const CONTROLLER_MS: i64 = 600;
/// So much of a replica is copied at once: some batches.
const MOVED_BYTES: u64 = 600;

impl World {
    // --- the controller's clients
    // -----------------------------------------------------------------

    pub fn register(&mut self, id: i32) {
        let incarnation = self.broker(id).life;
        let previous = self.process(id).expect("alive").previous_broker_epoch;
        self.call(
            (id, CONTROLLER),
            CONTROLLER_MS,
            move |world, reply| {
                let now_ms = world.now_ms;
                let answer = world.controller.register(id, incarnation, previous, now_ms);
                reply(world, answer);
            },
            move |world, answer: Option<Result<i64, i16>>| match answer {
                Some(Ok(broker_epoch)) => world.on_registered(id, broker_epoch),
                _ => world.after(250, id, move |world| world.register(id)),
            },
        );
    }

    fn on_registered(&mut self, id: i32, broker_epoch: i64) {
        self.note(|| format!("broker {id} is registered in epoch {broker_epoch}"));
        let broker = self.broker(id);
        broker.stored_epoch = broker_epoch;
        let process = broker.process.as_mut().expect("alive");
        process.broker_epoch = broker_epoch;
        self.pull(id);
        self.heartbeat(id);
    }

    fn heartbeat(&mut self, id: i32) {
        let Some(process) = self.process(id) else {
            return;
        };
        let beat = Heartbeat {
            broker: id,
            broker_epoch: process.broker_epoch,
            want_fence: process.node.is_none(),
            want_shut_down: process.wants_stop,
            version: process.version,
        };
        let offline = self.offline_partitions(id);
        self.call(
            (id, CONTROLLER),
            CONTROLLER_MS,
            move |world, reply| {
                let now_ms = world.now_ms;
                let controller = &mut world.controller;
                let answer = controller.heartbeat(beat, now_ms);
                controller.directory_failed(id, beat.broker_epoch, &offline);
                reply(world, answer);
            },
            move |world, answer: Option<HeartbeatAnswer>| {
                if let Some(answer) = answer {
                    world.on_heartbeat(id, answer);
                }
            },
        );
        self.after(self.plan.heartbeat_ms, id, move |world| world.heartbeat(id));
    }

    fn on_heartbeat(&mut self, id: i32, answer: HeartbeatAnswer) {
        if answer.error_code == code::STALE_BROKER_EPOCH {
            // A late registration of an earlier process has taken the place of this one's:
            // `replication/lifecycle.py` ends.
            self.see("replaced registration");
            return self.kill(id, Crash::Kill);
        }
        assert_eq!(answer.error_code, code::NONE);
        self.process(id).expect("alive").is_fenced = answer.is_fenced;
        if answer.should_shut_down {
            self.stop(id);
        }
    }

    fn offline_partitions(&self, id: i32) -> Vec<usize> {
        let replica = |index: &usize| self.brokers[&id].replica(*index);
        let is_offline = |index: &usize| replica(index).is_some_and(|it| it.is_offline());
        (0..self.plan.partitions).filter(is_offline).collect()
    }

    /// Asks for metadata that is newer than what is in force; the controller
    /// answers when there is some.
    fn pull(&mut self, id: i32) {
        let known = self.process(id).expect("alive").version;
        self.call(
            (id, CONTROLLER),
            CONTROLLER_MS * 2,
            move |world, reply| world.pulls.push((known, reply)),
            move |world, answer: Option<i64>| {
                let late_ms = if world.is_calm {
                    0
                } else {
                    world.draw(0, world.plan.metadata_ms_max)
                };
                world.after(late_ms, id, move |world| {
                    if let Some(version) = answer {
                        world.on_metadata(id, version);
                    }
                    world.pull(id);
                });
            },
        );
    }

    /// Committed metadata up to this version comes into force: all at once, or step by step.
    fn on_metadata(&mut self, id: i32, version: i64) {
        let process = self.process(id).expect("alive");
        let (known, is_loaded) = (process.version, process.node.is_some());
        let at_once = self.chance(600);
        for each in known + 1..=version {
            if each == version || (is_loaded && !at_once) {
                let metadata = self.controller.at(each);
                self.publish(id, &metadata);
                self.check();
            }
        }
    }

    fn topic_plan(&self, metadata: &Metadata) -> TopicPlan {
        let directory_of = |index| {
            if self.plan.has_two_directories() {
                directory_id(1 + index % 2)
            } else {
                directory_id(0)
            }
        };
        let partitions = metadata.partitions.iter().enumerate();
        TopicPlan {
            name: TOPIC.to_owned(),
            id: TOPIC_ID,
            is_internal: false,
            config: self.log_config(metadata.version),
            partitions: partitions
                .map(|(index, state)| seam::registration(state, directory_of(index)))
                .collect(),
        }
    }

    pub fn publish(&mut self, id: i32, metadata: &Metadata) {
        self.note(|| format!("broker {id} is at version {}", metadata.version));
        let applied = self
            .planted
            .map(|planted| planted.applied(self, metadata.version));
        let plan = self.topic_plan(applied.as_deref().unwrap_or(metadata));
        let now_ms = self.clock_of(id);
        let lag_ms = self.plan.lag_ms;
        let process = self.process(id).expect("alive");
        process.version = metadata.version;
        if process.node.is_none() {
            if metadata.version >= process.broker_epoch {
                self.load(id, &plan, metadata);
            }
            return;
        }
        let node = process.node.as_ref().expect("loaded");
        seam::set_brokers(node, metadata);
        seam::set_lag(node, lag_ms);
        // A leader that waited for a broker which is fenced by now commits, also one that
        // is none in the next step.
        self.check_replicas();
        let process = self.process(id).expect("alive");
        let node = process.node.as_ref().expect("loaded");
        for (directory, wanted) in node.missing_logs(std::slice::from_ref(&plan)) {
            // One at a time: several are made by threads.
            for one in wanted {
                let made = directory.create_logs(vec![one], now_ms);
                assert!(made.is_ok() || is_offline(&directory), "{:?}", made.err());
            }
        }
        let changed = std::slice::from_ref(&plan);
        let gone = node.publish(MetadataDelta {
            deleted: &[],
            changed,
        });
        for (directory, replicas) in gone.unwrap() {
            for replica in replicas {
                let unique = format!("{:032x}", metadata.version);
                let deleted = directory.delete_forgotten(&replica.log, &unique, now_ms);
                assert!(
                    deleted.is_ok() || is_offline(&directory),
                    "{:?}",
                    deleted.err()
                );
            }
            let synced = directory.sync_deleted();
            assert!(
                synced.is_ok() || is_offline(&directory),
                "{:?}",
                synced.err()
            );
        }
        self.reassign_fetchers(id);
    }

    /// Has the controller know in which directory a replica lies, as often as it takes.
    fn assign_directory(&mut self, id: i32, place: (usize, Uuid)) {
        let process = self.process(id).expect("alive");
        process.places.insert(place.0, place.1);
        self.ask_assignment(id, place);
    }

    fn ask_assignment(&mut self, id: i32, place: (usize, Uuid)) {
        let broker_epoch = self.process(id).expect("alive").broker_epoch;
        // Requests of a connection keep their order: an earlier one does
        // not come after a later one.
        let is_last = move |world: &mut World| {
            let process = world.process(id);
            process.is_some_and(|process| process.places.get(&place.0) == Some(&place.1))
        };
        self.call(
            (id, CONTROLLER),
            CONTROLLER_MS,
            move |world, reply| {
                if is_last(world) {
                    let taken = world.controller.assign_directory(id, broker_epoch, place);
                    world.note(|| format!("broker {id} has t-{} in {}: {taken}", place.0, place.1));
                    reply(world, ());
                }
            },
            move |world, answer| {
                if answer.is_none() && is_last(world) {
                    world.after(100, id, move |world| world.ask_assignment(id, place));
                }
            },
        );
    }

    /// A replica is to lie in the other directory.
    pub fn move_replica(&mut self, id: i32, index: usize) {
        let now_ms = self.clock_of(id);
        let broker = &self.brokers[&id];
        let (Some(node), Some(replica)) = (broker.node(), broker.replica(index)) else {
            return;
        };
        let mut paths = node.directories().iter().map(|each| each.path());
        let Some(to) = paths.find(|path| *path != replica.directory().path()) else {
            return;
        };
        if self.planted == Some(Planted::MoveWithoutLastRecords) {
            move_early(self, id, index);
            return;
        }
        let begun = node.alter_log_dir(TOPIC, index as i32, to, &MoveRequest::default(), now_ms);
        let sentence = format!("broker {id} moves t-{index} to {}: {begun:?}", to.display());
        self.note(|| sentence);
    }

    /// The thread that moves replicas, and what the housekeepers do for it.
    fn go_on_moving(&mut self, id: i32) {
        let now_ms = self.clock_of(id);
        let Some(node) = self.broker(id).node() else {
            return;
        };
        let before = node.moves().count();
        node.step_moves(MOVED_BYTES, now_ms);
        for directory in node.directories() {
            drop(directory.delete_given_up(now_ms));
        }
        let ended = before - node.moves().count();
        for place in seam::take_assignments(node) {
            self.assign_directory(id, place);
        }
        if ended > 0 {
            self.note(|| format!("broker {id} has ended {ended} moves"));
            self.see("moved");
        }
        let pause_ms = if before > 0 { self.draw(1, 100) } else { 100 };
        self.after(pause_ms, id, move |world| world.go_on_moving(id));
    }

    fn load(&mut self, id: i32, plan: &TopicPlan, metadata: &Metadata) {
        let lag_ms = self.plan.lag_ms;
        let process = self.process(id).expect("alive");
        let claimed = process.claimed.take().expect("not loaded yet");
        let loaded = seam::load(claimed, plan, process.woken.clone(), metadata, lag_ms);
        process.node = Some(loaded.node);
        for note in loaded.notes {
            self.note(|| format!("broker {id}: {note}"));
        }
        self.note(|| format!("broker {id} has loaded its logs"));
        for place in loaded.moved {
            self.assign_directory(id, place);
        }
        self.go_on_moving(id);
        self.reassign_fetchers(id);
        self.sweep(id);
        self.checkpoint(id);
    }

    /// The configuration of logs where the metadata is at this version. Brokers hear at once that
    /// more replicas are needed, and keep to that until their metadata has come as far: a leader
    /// that is told of a smaller ISR before commits alone what those do not have that have left and
    /// may be elected. Kafka's do.
    fn log_config(&self, version: i64) -> LogConfig {
        let since = version.max(0)..=self.controller.version();
        let min_isr = since.map(|at| self.controller.at(at).min_isr).max();
        seam::with_min_isr(
            LogConfig {
                segment_bytes: self.plan.segment_bytes,
                segment_index_bytes: 4_096,
                index_interval_bytes: 256,
                acks_fsync: self.plan.is_durable,
                file_delete_delay_ms: 1_000,
                ..LogConfig::default()
            },
            min_isr.expect("a version at least"),
        )
    }

    /// Brokers hear of a higher `min.insync.replicas`.
    pub fn tell_min_isr(&mut self) {
        for broker in self.brokers.values() {
            if let Some(process) = &broker.process
                && let Some(node) = &process.node
            {
                node.set_topic_config(TOPIC, &self.log_config(process.version));
            }
        }
    }
}

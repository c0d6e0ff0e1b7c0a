//! How a broker follows: the engine's session with each leader, and the turns of a fetcher thread
//! around it. Ask, take the answer, flush what it has touched, ask again.

use std::collections::BTreeSet;
use std::sync::Arc;

use kafkalite::replica::follower::{
    Assignment, FETCH_VERSION_MAX, FollowerSession, FollowerSettings, Request,
};
use kafkalite::replica::{Partition, Role};

use super::bytes::{TOPIC, TOPIC_ID, behind_header};
use super::planted::Planted;
use super::world::World;

/// A fetcher that was refused the connection tries again after so long.
const RECONNECT_MS: i64 = 50;

pub struct Fetcher {
    session: FollowerSession,
    /// A request is under way, or what came of it.
    is_busy: bool,
    /// By index.
    assigned: Vec<(i32, Arc<Partition>)>,
}

impl World {
    pub fn follower_settings(&self, id: i32) -> FollowerSettings {
        let process = self.brokers[&id].process.as_ref().expect("alive");
        FollowerSettings {
            node_id: id,
            broker_epoch: process.broker_epoch,
            max_wait_ms: self.plan.fetch_wait_ms as i32,
            min_bytes: 1,
            response_bytes_max: 1 << 16,
            partition_bytes_max: 1 << 14,
            backoff_ms: 200,
        }
    }

    /// Follows what is published: whoever leads by now is taken off in the same step.
    pub fn reassign_fetchers(&mut self, id: i32) {
        let settings = self.follower_settings(id);
        let broker = &self.brokers[&id];
        let topic = broker
            .node()
            .expect("loaded")
            .image()
            .topic(TOPIC)
            .expect("published")
            .clone();
        let mut wanted: Vec<(i32, Arc<Partition>)> = Vec::new();
        for replica in topic.replicas() {
            let registration = topic.partition(replica.index).expect("it is of the topic");
            if replica.role == Role::Follower && registration.leader_id >= 0 {
                wanted.push((registration.leader_id, replica.clone()));
            }
        }
        let (planted, now_ms) = (self.planted, self.clock_of(id));
        let is_durable = self.plan.is_durable;
        let process = self.process(id).expect("alive");
        let leaders: BTreeSet<i32> = wanted.iter().map(|(leader, _)| *leader).collect();
        for leader in &leaders {
            process.fetchers.entry(*leader).or_insert_with(|| Fetcher {
                session: FollowerSession::new(settings.clone(), *leader),
                is_busy: false,
                assigned: Vec::new(),
            });
        }
        for (leader, fetcher) in &mut process.fetchers {
            let is_wanted = |(index, known): &(i32, Arc<Partition>)| {
                let mut wanted = wanted.iter().filter(|(of, _)| of == leader);
                wanted.any(|(_, each)| each.index == *index && Arc::ptr_eq(each, known))
            };
            let (stay, go): (Vec<_>, Vec<_>) = std::mem::take(&mut fetcher.assigned)
                .into_iter()
                .partition(is_wanted);
            fetcher.assigned = stay;
            for (index, _) in go {
                fetcher.session.remove((TOPIC_ID, index));
            }
        }
        for (leader_id, partition) in wanted {
            let fetcher = process.fetchers.get_mut(&leader_id).expect("made above");
            if fetcher
                .assigned
                .iter()
                .any(|(_, known)| Arc::ptr_eq(known, &partition))
            {
                continue;
            }
            if let Some(planted) = planted {
                planted.on_follow(&partition, now_ms);
            }
            fetcher.assigned.push((partition.index, partition.clone()));
            if is_durable {
                // Whatever it has from the leader before: the next one may count on it.
                partition.flush();
            }
            fetcher.session.assign(Assignment {
                topic_id: TOPIC_ID,
                partition,
                leader_id,
            });
        }
        for leader in leaders {
            self.fetch_on(id, leader);
        }
    }

    /// The next request to a leader, if none is under way.
    fn fetch_on(&mut self, id: i32, leader: i32) {
        let now = self.now_of(id);
        let mut told = Vec::new();
        let Some(fetcher) = self.fetcher(id, leader).filter(|fetcher| !fetcher.is_busy) else {
            return;
        };
        let request = fetcher
            .session
            .next_request(now, &mut |sentence| told.push(sentence));
        fetcher.is_busy = request.is_some();
        let due_ms = fetcher.session.next_due_ms();
        self.tell(id, told);
        let Some(request) = request else {
            if let Some(due_ms) = due_ms {
                let wait_ms = (due_ms - now.monotonic_ms).max(1);
                self.after(wait_ms, id, move |world| world.fetch_on(id, leader));
            }
            return;
        };
        let timeout_ms = self.plan.fetch_wait_ms + 1_000;
        self.call(
            (id, leader),
            timeout_ms,
            move |world, reply| match &request {
                Request::Fetch(body) => world.serve_fetch(leader, FETCH_VERSION_MAX, body, reply),
                Request::ListOffsets(body) => world.serve_list_offsets(leader, body, reply),
            },
            move |world, answer| world.on_fetched(id, leader, answer),
        );
    }

    fn on_fetched(&mut self, id: i32, leader: i32, answer: Option<Vec<u8>>) {
        let now = self.now_of(id);
        let mut told = Vec::new();
        let planted = self.planted;
        if let (Some(planted), Some(answer)) = (planted, &answer) {
            planted.before_answer(self, id, answer);
        }
        let fetcher = self.fetcher(id, leader).expect("it has asked");
        let Some(mut answer) = answer else {
            fetcher.session.on_failure();
            fetcher.is_busy = false;
            return self.after(RECONNECT_MS, id, move |world| world.fetch_on(id, leader));
        };
        let start = behind_header(&answer).unwrap().position();
        let touched = fetcher
            .session
            .on_answer(&mut answer[start..], now, &mut |sentence| {
                told.push(sentence);
            });
        self.tell(id, told);
        let Ok(touched) = touched else {
            self.see("answer that cannot be read");
            let fetcher = self.fetcher(id, leader).expect("it has asked");
            fetcher.session.on_failure();
            fetcher.is_busy = false;
            return self.after(RECONNECT_MS, id, move |world| world.fetch_on(id, leader));
        };
        if let Some(planted) = planted {
            planted.after_answer(self, id, &answer);
        }
        // One that has less than its leader has committed is counted on by nobody, and goes
        // on while its disk works.
        let is_behind = |each: &Arc<Partition>| each.lag().is_some_and(|lag| lag > 0);
        let (behind, near): (Vec<_>, Vec<_>) = touched.into_iter().partition(is_behind);
        for each in behind {
            self.request_flush(id, each.index as usize);
        }
        let flushes = self.plan.is_durable && !near.is_empty();
        let sync_ms = if flushes { self.fsync_ms() } else { 0 };
        let is_early = flushes && planted == Some(Planted::UnflushedEnd);
        if is_early {
            self.fetcher(id, leader).expect("it has asked").is_busy = false;
            self.fetch_on(id, leader);
        }
        self.after(sync_ms, id, move |world| {
            if flushes {
                near.iter().for_each(|partition| partition.flush());
            }
            if !is_early {
                world.fetcher(id, leader).expect("it has asked").is_busy = false;
            }
            world.fetch_on(id, leader);
        });
    }

    pub fn fsync_ms(&mut self) -> i64 {
        self.draw(0, self.plan.fsync_ms_max)
    }

    fn fetcher(&mut self, id: i32, leader: i32) -> Option<&mut Fetcher> {
        self.process(id)?.fetchers.get_mut(&leader)
    }

    fn tell(&mut self, id: i32, told: Vec<String>) {
        for sentence in told {
            self.note(|| format!("broker {id}: {sentence}"));
        }
    }
}

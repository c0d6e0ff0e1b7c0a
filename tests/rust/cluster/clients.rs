//! Producers that send each value once or again and again, and consumers
//! that remember what they saw.

use std::sync::Arc;

use kafkalite::replica::follower::answer::FetchAnswer;
use kafkalite::replica::{Partition, Role};

use super::bytes::{self, Sender, behind_header, entries, preferred_read_replica, produced};
use super::checker::require_shown;
use super::seam::RACKS;
use super::world::{CLIENT, World};

/// Versions in which they fetch.
const FETCH_VERSION: i16 = 17;
const ANSWER_MS: i64 = 2_500;

pub struct Producer {
    pub number: usize,
    index: usize,
    acks: i16,
    /// -1: what is sent again may be there twice.
    producer_id: i64,
    sequence: i32,
    sent: Option<Sent>,
    tries: u32,
}

#[derive(Clone)]
struct Sent {
    values: Vec<u64>,
    batch: Vec<u8>,
}

impl Producer {
    pub fn is_waiting(&self) -> bool {
        self.sent.is_some()
    }
}

pub struct Consumer {
    pub number: usize,
    /// Where it is, if it reads nearby.
    rack: &'static str,
    positions: Vec<i64>,
    /// Replicas from which it was told to read, by partition.
    near: Vec<Option<i32>>,
}

impl Consumer {
    /// It has not come to this end.
    pub fn lags(&self, index: usize, end: Option<i64>) -> bool {
        Some(self.positions[index]) != end
    }
}

impl World {
    pub fn start_clients(&mut self) {
        for number in 0..self.plan.producers {
            let is_idempotent = self.chance(700);
            let acks = if self.chance(850) { -1 } else { 1 };
            let index = self.random.below(self.plan.partitions as u64) as usize;
            self.add_producer(index, acks, is_idempotent);
            let wait_ms = self.draw(0, 300);
            self.after(wait_ms, CLIENT, move |world| world.produce(number));
        }
        for number in 0..self.plan.consumers {
            let rack = if self.chance(500) {
                RACKS[number % RACKS.len()]
            } else {
                ""
            };
            self.consumers.push(Consumer {
                number,
                rack,
                positions: vec![0; self.plan.partitions],
                near: vec![None; self.plan.partitions],
            });
            for index in 0..self.plan.partitions {
                self.after(0, CLIENT, move |world| world.consume(number, index));
            }
        }
    }

    pub fn add_producer(&mut self, index: usize, acks: i16, is_idempotent: bool) {
        let number = self.producers.len();
        let producer_id = if is_idempotent {
            self.new_producer_id(number)
        } else {
            -1
        };
        self.producers.push(Producer {
            number,
            index,
            acks,
            producer_id,
            sequence: 0,
            sent: None,
            tries: 0,
        });
    }

    /// An id that nobody has had.
    fn new_producer_id(&mut self, number: usize) -> i64 {
        self.values += 1;
        (self.values * 100) as i64 + number as i64
    }

    // --- producers
    // --------------------------------------------------------------------------------

    fn produce(&mut self, number: usize) {
        // Those of a story send one batch.
        if self.is_calm || number >= self.plan.producers {
            return;
        }
        self.next_batch(number);
        self.send(number);
    }

    /// A new batch, which is to be sent.
    pub fn next_batch(&mut self, number: usize) {
        let count = 1 + self.random.below(3);
        let values: Vec<u64> = (1..=count).map(|each| self.values + each).collect();
        self.values += count;
        let producer = &mut self.producers[number];
        let sender = Sender {
            producer_id: producer.producer_id,
            base_sequence: if producer.producer_id < 0 {
                -1
            } else {
                producer.sequence
            },
        };
        let now_ms = crate::log_directory::NOW_MS + self.now_ms;
        let batch = bytes::batch(sender, &values, now_ms);
        if producer.producer_id >= 0 {
            self.checker.sent_once.extend(&values);
        }
        (producer.sent, producer.tries) = (Some(Sent { values, batch }), 0);
    }

    pub fn send(&mut self, number: usize) {
        let producer = &self.producers[number];
        let (index, acks) = (producer.index, producer.acks);
        let Some(sent) = producer.sent.clone() else {
            return;
        };
        let mut leader = self.controller.leader(index);
        if !self.is_calm && self.chance(60) {
            // What it knows is old.
            leader = self.draw(1, i64::from(self.plan.brokers)) as i32;
        }
        if leader < 0 {
            return self.after(100, CLIENT, move |world| world.send(number));
        }
        self.note(|| {
            format!(
                "producer {number} sends {:?} to broker {leader}",
                sent.values
            )
        });
        let body = bytes::produce(index, acks, &sent.batch);
        self.call(
            (CLIENT + number as i32, leader),
            ANSWER_MS,
            move |world, reply| world.serve_produce(leader, &body, reply),
            move |world, answer| world.on_produced(number, answer),
        );
    }

    fn on_produced(&mut self, number: usize, answer: Option<Vec<u8>>) {
        let error_code = answer.map(|answer| produced(&answer).unwrap().0);
        self.note(|| format!("producer {number} is told {error_code:?}"));
        let producer = &mut self.producers[number];
        let Some(sent) = &producer.sent else {
            return;
        };
        let count = sent.values.len() as i32;
        match error_code {
            // DUPLICATE_SEQUENCE_NUMBER: an earlier try has succeeded.
            Some(0 | 46) => {
                producer.sequence += count;
                producer.sent = None;
            }
            // OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID:
            // what came before is lost.
            Some(45 | 47 | 59) => {
                producer.sent = None;
                let id = self.new_producer_id(number);
                let producer = &mut self.producers[number];
                (producer.producer_id, producer.sequence) = (id, 0);
                self.see("producer starts anew");
            }
            Some(6 | 7 | 19 | 20 | 56 | 3 | 100) | None => {
                producer.tries += 1;
                let pause_ms = self.draw(5, 150);
                return self.after(pause_ms, CLIENT, move |world| world.send(number));
            }
            Some(other) => panic!("Clients: a producer is told error {other}"),
        }
        let pause_ms = self.draw(0, self.plan.produce_pause_ms);
        self.after(pause_ms, CLIENT, move |world| world.produce(number));
    }

    // --- DeleteRecords
    // ----------------------------------------------------------------------------

    /// Some committed records of a partition are to go.
    pub fn delete_records(&mut self, index: usize) {
        let leader = self.controller.leader(index);
        let replica = self.brokers.get(&leader).and_then(|it| it.replica(index));
        let Some(replica) = replica else {
            return;
        };
        let offsets = replica.log.offsets();
        let offset = self.draw(offsets.log_start_offset, offsets.high_watermark);
        self.note(|| format!("t-{index} is to have no records below {offset}"));
        self.call(
            (CLIENT, leader),
            ANSWER_MS,
            move |world, reply| world.serve_delete(leader, (index, offset), reply),
            |_, _: Option<bool>| {},
        );
    }

    // --- consumers
    // --------------------------------------------------------------------------------

    fn consume(&mut self, number: usize, index: usize) {
        if self.is_over {
            return;
        }
        let consumer = &self.consumers[number];
        let (offset, rack) = (consumer.positions[index], consumer.rack);
        let from = consumer.near[index].unwrap_or_else(|| self.controller.leader(index));
        if from < 0 {
            return self.after(200, CLIENT, move |world| world.consume(number, index));
        }
        let body = bytes::fetch(index, offset, rack, 500);
        self.call(
            (CLIENT + 50 + number as i32, from),
            ANSWER_MS,
            move |world, reply| {
                let Some(replica) = world.brokers[&from].replica(index) else {
                    return;
                };
                let epoch = replica.leader_epoch;
                let told = move |world: &mut World, answer: Vec<u8>| {
                    world.on_answer_to_consumer((from, index), epoch, &answer);
                    reply(world, answer);
                };
                world.serve_fetch(from, FETCH_VERSION, &body, Box::new(told));
            },
            move |world, answer: Option<Vec<u8>>| world.on_consumed((number, index), from, answer),
        );
    }

    /// The broker has put an answer together.
    fn on_answer_to_consumer(&mut self, (id, index): (i32, usize), epoch: i32, answer: &[u8]) {
        let start = behind_header(answer).unwrap().position();
        let body = &answer[start..];
        let read = FetchAnswer::read(body, 1).unwrap();
        let replica = self.brokers[&id].replica(index);
        let Some(replica) = replica.filter(|it| it.leader_epoch == epoch) else {
            return;
        };
        let life = self.brokers[&id].life;
        for part in read.partitions.iter().filter(|part| part.error_code == 0) {
            let shown = entries(&body[part.records.clone()], 0);
            let high_watermark = part.high_watermark.min(replica.log.high_watermark());
            require_shown(id, high_watermark, &shown);
            let teller = (id, life, index, epoch);
            self.checker.on_told(teller, part.high_watermark);
            if replica.role == Role::Follower && !shown.is_empty() {
                self.see("read from a follower");
            }
        }
    }

    fn on_consumed(&mut self, (number, index): (usize, usize), from: i32, answer: Option<Vec<u8>>) {
        let (mut pause_ms, mut seen) = (5, 0);
        let leader = self.controller.leader(index);
        let start_of = |replica: Arc<Partition>| replica.log.offsets().log_start_offset;
        let consumer = &mut self.consumers[number];
        // Whoever is refused, or not answered, asks the leader again.
        let near = consumer.near[index].take();
        if let Some(answer) = answer {
            let start = behind_header(&answer).unwrap().position();
            let body = &answer[start..];
            let read = FetchAnswer::read(body, 1).unwrap();
            let position = &mut consumer.positions[index];
            for part in &read.partitions {
                match part.error_code {
                    0 => {
                        let found = entries(&body[part.records.clone()], *position);
                        *position = found.last().map_or(*position, |last| last.offset + 1);
                        self.checker.on_consumed(index, &found);
                        seen += found.len();
                        let preferred = preferred_read_replica(body).unwrap();
                        consumer.near[index] = preferred.or(near);
                    }
                    // OFFSET_OUT_OF_RANGE, of a leader: records were deleted, or this is after an
                    // unclean election, or the leader has not heard yet.
                    1 if from == leader => {
                        let leader = self.brokers[&leader].replica(index);
                        *position = leader.map_or(0, start_of);
                        pause_ms = 100;
                    }
                    _ => pause_ms = 100,
                }
            }
        }
        if seen > 0 {
            self.see("consumed");
        }
        self.after(pause_ms, CLIENT, move |world| world.consume(number, index));
    }
}

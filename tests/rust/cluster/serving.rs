//! What others ask of a broker: Fetch of followers and consumers, ListOffsets of followers,
//! Produce, DeleteRecords. The engine's own readers, judges and answers of these requests; what is
//! here stands for the network threads around them.

use std::sync::Arc;

use kafkalite::api::k00_produce::{Outcome, Produce, Spare};
use kafkalite::api::k01_fetch::{Fetch, FetchRead};
use kafkalite::api::{Chunk, k00_produce, k01_fetch, k02_list_offsets};
use kafkalite::log::read::ReadIsolation;
use kafkalite::replica::follower::FETCH_VERSION_MAX;
use kafkalite::replica::park::{Parked, WaitFor};
use kafkalite::replica::{Batches, Partition};
use kafkalite::wire::Reader;

use super::bytes::{PRODUCE_VERSION, entries, produced};
use super::planted::Planted;
use super::world::{Reply, World};
use crate::node::{header, with_ask};

/// A Produce waits for its followers so long.
const PRODUCE_WAIT_MS: i64 = 1_000;

pub enum Waiting {
    Fetch(Fetch, Reply<Vec<u8>>),
    /// With the values that it brings.
    Produce(Produce, Vec<u64>, Reply<Vec<u8>>),
    /// Of the records below the offset.
    Delete(Arc<Partition>, i64, Reply<bool>),
}

fn parked(slot: u64) -> Parked {
    Parked {
        thread: 0,
        connection: 0,
        slot,
    }
}

impl World {
    /// Requests that were woken are looked at again, each in an event of its own.
    pub fn wake_requests(&mut self, id: i32) {
        let Some(process) = self.process(id) else {
            return;
        };
        let woken = std::mem::take(&mut *process.woken.0.lock());
        for slot in woken {
            self.after(0, id, move |world| world.look_again(id, slot, false));
        }
    }

    fn park(&mut self, id: i32, waiting: Waiting, wait_ms: i64) {
        let process = self.process(id).expect("it serves");
        process.slots += 1;
        let slot = process.slots;
        process.waiting.insert(slot, waiting);
        self.after(wait_ms, id, move |world| world.look_again(id, slot, true));
        self.look_again(id, slot, false);
    }

    fn look_again(&mut self, id: i32, slot: u64, is_over: bool) {
        let waiting = self
            .process(id)
            .and_then(|process| process.waiting.remove(&slot));
        match waiting {
            Some(Waiting::Fetch(fetch, reply)) => self.read_logs(id, slot, fetch, reply, is_over),
            Some(Waiting::Produce(produce, values, reply)) => {
                self.complete_produce(id, slot, produce, values, reply, is_over);
            }
            Some(Waiting::Delete(partition, offset, reply)) => {
                self.complete_delete((id, slot), (partition, offset), reply, is_over);
            }
            None => {}
        }
    }

    // --- Fetch
    // ------------------------------------------------------------------------------------

    pub fn serve_fetch(&mut self, id: i32, version: i16, body: &[u8], reply: Reply<Vec<u8>>) {
        let (now_ms, planted) = (self.clock_of(id).cast_unsigned(), self.planted);
        let Some(process) = self.process(id) else {
            return;
        };
        let Some(image) = process.node.as_ref().map(|node| node.image()) else {
            return;
        };
        let mut body = body.to_vec();
        if let Some(planted) = planted.filter(|_| version == FETCH_VERSION_MAX) {
            planted.on_request(&mut body);
        }
        let fetch = with_ask(&image, |ask| {
            let header = header(1, version, 12);
            let mut reader = Reader::new(&body);
            k01_fetch::read(
                &header,
                &mut reader,
                ask,
                &process.sessions,
                1 << 20,
                now_ms,
            )
        });
        let fetch = fetch.unwrap();
        let wait_ms = i64::from(fetch.max_wait_ms);
        self.park(id, Waiting::Fetch(fetch, reply), wait_ms);
    }

    fn read_logs(
        &mut self,
        id: i32,
        slot: u64,
        mut fetch: Fetch,
        reply: Reply<Vec<u8>>,
        is_over: bool,
    ) {
        loop {
            let mut fetch_read = FetchRead::default();
            assert!(fetch.read_logs(&mut fetch_read, |_| true));
            if is_over || fetch.is_due(&fetch_read) {
                for partition in fetch.parked_at() {
                    partition.waiters.deregister(parked(slot));
                }
                return self.answer_fetch(id, fetch, fetch_read, reply);
            }
            for (partition, wait_for) in fetch.wait_for(&fetch_read) {
                partition.waiters.register(parked(slot), wait_for);
            }
            fetch.is_parked = true;
            if !fetch.has_moved(&fetch_read) {
                break;
            }
        }
        let process = self.process(id).expect("it serves");
        process.waiting.insert(slot, Waiting::Fetch(fetch, reply));
    }

    fn answer_fetch(
        &mut self,
        id: i32,
        mut fetch: Fetch,
        fetch_read: FetchRead,
        reply: Reply<Vec<u8>>,
    ) {
        let now_ms = self.clock_of(id).cast_unsigned();
        let asked: Vec<Arc<Partition>> = fetch.parked_at().cloned().collect();
        let is_of_follower = fetch.is_of_follower();
        let process = self.process(id).expect("it serves");
        let image = process.node.as_ref().expect("loaded").image();
        let chunks = fetch.answer(fetch_read, &process.sessions, &image, now_ms);
        let late = Planted::NewerEpochTaken;
        let is_late = self.plan.reads_late && self.chance(100) || self.planted == Some(late);
        if !is_late || self.is_calm || !is_of_follower || asked.len() != 1 {
            let answer = bytes_of(chunks, None);
            return reply(self, answer.expect("pinned bytes are there"));
        }
        let late_ms = self.draw(0, 1_200);
        self.after(late_ms, id, move |world| {
            if let Some(answer) = bytes_of(chunks, asked.first()) {
                reply(world, answer);
            }
        });
    }

    pub fn serve_list_offsets(&mut self, id: i32, body: &[u8], reply: Reply<Vec<u8>>) {
        let Some(image) = self.brokers[&id].node().map(|node| node.image()) else {
            return;
        };
        let mut request = with_ask(&image, |ask| {
            let mut reader = Reader::new(body);
            k02_list_offsets::read(&header(2, 7, 6), &mut reader, ask, None)
        })
        .unwrap();
        request.search(|_| true);
        let answer = bytes_of(request.answer(), None);
        reply(self, answer.expect("no records"));
    }

    // --- Produce
    // ----------------------------------------------------------------------------------

    pub fn serve_produce(&mut self, id: i32, body: &[u8], reply: Reply<Vec<u8>>) {
        let now_ms = self.clock_of(id);
        let Some(image) = self.brokers[&id].node().map(|node| node.image()) else {
            return;
        };
        let mut produce = with_ask(&image, |ask| {
            let (mut reader, mut spare) = (Reader::new(body), Spare::default());
            k00_produce::read(
                &header(0, PRODUCE_VERSION, 9),
                &mut reader,
                ask,
                &mut spare,
                None,
            )
        })
        .unwrap();
        let mut values = Vec::new();
        let acks_all = produce.acks == -1 && self.planted != Some(Planted::NoMinIsrAtAck);
        for each in &mut produce.partitions {
            let Outcome::Accepted(partition, None) = &each.outcome else {
                continue;
            };
            let partition = partition.clone();
            let mut records = body[each.records.clone()].to_vec();
            values.extend(entries(&records, 0).iter().map(|entry| entry.value));
            let guard = each.guard;
            let records = &mut records[..];
            let appended = match self.planted {
                Some(Planted::NoEpochEntry) => super::planted::append(&partition, records, now_ms),
                _ => {
                    let batches = [Batches::OfClient {
                        records,
                        guard,
                        acks_all,
                    }];
                    partition.append(batches.into_iter(), now_ms).remove(0)
                }
            };
            each.apply(appended);
            self.request_flush(id, partition.index as usize);
        }
        self.park(
            id,
            Waiting::Produce(produce, values, reply),
            PRODUCE_WAIT_MS,
        );
    }

    fn complete_produce(
        &mut self,
        id: i32,
        slot: u64,
        produce: Produce,
        values: Vec<u64>,
        reply: Reply<Vec<u8>>,
        is_over: bool,
    ) {
        let is_open = |(partition, target): (&Arc<Partition>, i64)| {
            partition
                .waiters
                .register(parked(slot), WaitFor::Committed(target));
            produce.uncommitted().is_some()
        };
        if self.planted == Some(Planted::SuccessAfterDemotion) && produce.acks == -1 {
            if let Some((index, offset)) = super::planted::success(&produce) {
                self.checker.on_acked(index, offset, &values);
                let image = self.brokers[&id].node().expect("loaded").image();
                let mut answer = Vec::new();
                produce.answer(&mut answer, 0, &image, 0);
                return reply(self, answer);
            }
            if !is_over {
                let process = self.process(id).expect("it serves");
                process
                    .waiting
                    .insert(slot, Waiting::Produce(produce, values, reply));
                return self.after(20, id, move |world| world.look_again(id, slot, false));
            }
        }
        let waits = produce.acks == -1 && produce.uncommitted().is_some_and(is_open);
        if waits && !is_over {
            let process = self.process(id).expect("it serves");
            process
                .waiting
                .insert(slot, Waiting::Produce(produce, values, reply));
            return;
        }
        for each in &produce.partitions {
            if let Outcome::Accepted(partition, _) = &each.outcome {
                partition.waiters.deregister(parked(slot));
            }
        }
        let process = self.process(id).expect("it serves");
        let image = process.node.as_ref().expect("loaded").image();
        let mut answer = Vec::new();
        produce.answer(&mut answer, 0, &image, 0);
        let (error_code, offset) = produced(&answer).unwrap();
        if error_code == 0 && produce.acks == -1 {
            let index = super::bytes::produced_partition(&answer).unwrap();
            self.note(|| format!("broker {id} acknowledges {values:?} at {offset} of t-{index}"));
            self.checker.on_acked(index, offset, &values);
            self.see("acknowledged");
        }
        reply(self, answer);
    }

    // --- DeleteRecords
    // ----------------------------------------------------------------------------

    /// As `net/control/log_calls.rs`; the answer is whether no replica that lives
    /// has the records any more.
    pub fn serve_delete(&mut self, id: i32, (index, offset): (usize, i64), reply: Reply<bool>) {
        let Some(partition) = self.brokers[&id].replica(index) else {
            return;
        };
        let log = &partition.log;
        let begun = partition
            .leading_epoch()
            .and_then(|_| log.advance_log_start_offset(offset));
        match begun {
            Ok(offset) => self.park(
                id,
                Waiting::Delete(partition, offset, reply),
                PRODUCE_WAIT_MS,
            ),
            Err(_) => reply(self, false),
        }
    }

    fn complete_delete(
        &mut self,
        (id, slot): (i32, u64),
        (partition, offset): (Arc<Partition>, i64),
        reply: Reply<bool>,
        is_over: bool,
    ) {
        let waits_for = WaitFor::LowWatermark(offset);
        partition.waiters.register(parked(slot), waits_for);
        let is_early = self.planted == Some(Planted::DeletedByLeaderOnly);
        let deleted = if is_early {
            Some(Ok(offset))
        } else {
            partition.deleted_below(offset)
        };
        if deleted.is_none() && !is_over {
            let process = self.process(id).expect("it serves");
            let waiting = Waiting::Delete(partition, offset, reply);
            process.waiting.insert(slot, waiting);
            return;
        }
        partition.waiters.deregister(parked(slot));
        let is_done = matches!(deleted, Some(Ok(_)));
        if is_done {
            let index = partition.index;
            self.note(|| format!("broker {id} has t-{index} deleted below {offset}"));
            self.check_deleted(&partition, offset);
            self.see("records deleted");
        }
        reply(self, is_done);
    }

    /// What was appended is on disk a while later, in durable mode.
    pub fn request_flush(&mut self, id: i32, index: usize) {
        if !self.plan.is_durable || !self.process(id).expect("alive").flushes.insert(index) {
            return;
        }
        let sync_ms = self.fsync_ms();
        self.after(sync_ms, id, move |world| {
            world.process(id).expect("alive").flushes.remove(&index);
            if let Some(replica) = world.brokers[&id].replica(index) {
                replica.flush();
            }
        });
    }
}

/// The bytes of an answer. With a `late` partition its records are read now, wherever its log has
/// got to since: what a broker does that sends from a file which somebody cuts meanwhile. `None`:
/// the file has become too short.
fn bytes_of(chunks: Vec<Chunk>, late: Option<&Arc<Partition>>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for chunk in chunks {
        match (chunk, late) {
            (Chunk::Bytes(part), _) => bytes.extend(part),
            (Chunk::File(range, _), None) => bytes.extend(range.to_vec().unwrap()),
            (Chunk::File(range, _), Some(partition)) => {
                let (offset, length) = (range.offset, range.length_bytes);
                let now = partition
                    .log
                    .read(offset, length, true, ReadIsolation::LogEnd);
                let now = now.ok()?.to_vec().unwrap();
                bytes.extend(now.get(..length as usize)?);
            }
            _ => unreachable!("small answers have no later parts"),
        }
    }
    Some(bytes)
}

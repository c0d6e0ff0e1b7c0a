//! Random histories against a plain list of all records ever written.

use std::collections::{BTreeMap, BTreeSet};

use kafkalite::batch::Codec;
use kafkalite::batch::build::BatchOptions;
use kafkalite::batch::header::{NO_SEQUENCE, increment_sequence};
use proptest::prelude::*;

use super::partition::{Found, KeyValue, Partition, RETENTION_MS, home, of_producer};

#[derive(Clone, Debug)]
enum Event {
    Send {
        producer: u8,
        records: Vec<(u8, bool)>,
        codec: u8,
    },
    End {
        producer: u8,
        commit: bool,
    },
    Roll,
    Wait(i64),
    Clean {
        slots: usize,
    },
    Crash,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let records = prop::collection::vec((0..6u8, any::<u8>().prop_map(|byte| byte < 60)), 1..5);
    let send = (0..5u8, records, prop_oneof![3 => Just(0u8), 1 => 1..5u8]);
    let send = send.prop_map(|(producer, records, codec)| Event::Send {
        producer,
        records,
        codec,
    });
    let end =
        (3..5u8, any::<bool>()).prop_map(|(producer, commit)| Event::End { producer, commit });
    let slots = prop_oneof![4 => Just(1000usize), 1 => 8..12usize];
    let event = prop_oneof![
        12 => send,
        5 => end,
        4 => Just(Event::Roll),
        2 => prop_oneof![Just(1i64), Just(RETENTION_MS / 2), Just(RETENTION_MS)].prop_map(Event::Wait),
        5 => slots.prop_map(|slots| Event::Clean { slots }),
        1 => Just(Event::Crash),
    ];
    prop::collection::vec(event, 1..60)
}

#[derive(Clone, Debug)]
struct Written {
    found: Found,
    batch: i64,
    /// Producer of the transaction, 0 for none.
    producer: u8,
    /// `None`: open.
    committed: Option<bool>,
}

/// All that was ever written, and what the cleaner has to have done to it.
#[derive(Default)]
struct History {
    written: Vec<Written>,
    sequences: BTreeMap<u8, i32>,
    /// By base offset of the batch.
    horizons: BTreeMap<i64, i64>,
}

impl History {
    /// Replays the round up to `end` and compares with what is left. A round that filled its map
    /// has put some keys of the next batch in it: what these hide may be gone, too.
    fn check(
        &mut self,
        partition: &Partition,
        end: i64,
        map_was_full: bool,
    ) -> Result<(), TestCaseError> {
        let left: BTreeMap<i64, Found> = partition
            .batches()
            .into_iter()
            .filter(|batch| !batch.header.is_control())
            .flat_map(|batch| batch.records)
            .map(|found| (found.offset, found))
            .collect();
        let mut newest: BTreeMap<&str, i64> = BTreeMap::new();
        for one in self.written.iter().filter(|one| one.found.offset < end) {
            if one.committed == Some(true) {
                newest.insert(one.found.key.as_deref().unwrap(), one.found.offset);
            }
        }
        let now_ms = partition.now_ms;
        let mut expected = BTreeMap::new();
        for one in &self.written {
            let found = &one.found;
            let is_newest = newest.get(found.key.as_deref().unwrap()) <= Some(&found.offset);
            let horizon_ms = self.horizons.get(&one.batch);
            let stays = if found.offset >= end {
                one.committed != Some(false) || left.contains_key(&found.offset)
            } else {
                let is_seen = found.value.is_none() && horizon_ms.is_some_and(|at| *at <= now_ms);
                one.committed == Some(true) && is_newest && !is_seen
            };
            if stays {
                expected.insert(found.offset, found.clone());
            }
        }
        if map_was_full {
            let newer = |found: &Found| {
                let same_key = |one: &&Written| one.found.key == found.key;
                let mut others = self.written.iter().filter(same_key);
                others.any(|one| one.found.offset > found.offset && one.committed != Some(false))
            };
            expected.retain(|offset, found| left.contains_key(offset) || !newer(found));
        }
        prop_assert_eq!(&left, &expected, "end {}", end);
        for batch in partition.batches() {
            let header = batch.header;
            let has_tombstone = batch.records.iter().any(|record| record.value.is_none());
            if let Some(horizon_ms) = header.delete_horizon_ms() {
                let known = self.horizons.entry(header.base_offset);
                prop_assert_eq!(horizon_ms, *known.or_insert(now_ms + RETENTION_MS));
            } else {
                prop_assert!(!has_tombstone || header.last_offset() >= end);
            }
        }
        self.check_committed_reader(partition, &left)
    }

    /// A consumer with `read_committed` skips by the list of aborted transactions and the markers;
    /// it must get exactly the committed records that are left.
    fn check_committed_reader(
        &self,
        partition: &Partition,
        left: &BTreeMap<i64, Found>,
    ) -> Result<(), TestCaseError> {
        let offsets = partition.log.offsets();
        let stable = offsets.last_stable_offset;
        let mut ahead = partition.log.aborted_transactions(0, stable).unwrap();
        ahead.sort_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
        let mut aborted = BTreeSet::new();
        let mut seen = Vec::new();
        for batch in partition.batches() {
            let header = batch.header;
            if header.base_offset >= stable {
                break;
            }
            while ahead
                .last()
                .is_some_and(|next| next.first_offset <= header.last_offset())
            {
                aborted.insert(ahead.pop().unwrap().producer_id);
            }
            if header.is_control() {
                aborted.remove(&header.producer_id);
            } else if !header.is_transactional() || !aborted.contains(&header.producer_id) {
                seen.extend(batch.records.iter().map(|record| record.offset));
            }
        }
        let committed = self
            .written
            .iter()
            .filter(|one| one.committed == Some(true));
        let committed: Vec<i64> = committed
            .map(|one| one.found.offset)
            .filter(|offset| *offset < stable && left.contains_key(offset))
            .collect();
        prop_assert_eq!(seen, committed);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 2))]

    #[test]
    fn random_histories_end_as_a_list_of_all_records_says(events in events()) {
        let home = home();
        let mut partition = Partition::new(home.path());
        let mut history = History::default();
        for event in events {
            match event {
                Event::Roll => partition.roll(),
                Event::Wait(ms) => partition.now_ms += ms,
                Event::Crash => partition.reopen(),
                Event::Send { producer, records, codec } => {
                    // 0 and 1 are plain, 2 is idempotent, 3 and 4 write in transactions.
                    let count = records.len() as i32;
                    let mut options = BatchOptions::default();
                    if producer >= 2 {
                        let sequence = history.sequences.get(&producer).copied().unwrap_or(0);
                        history.sequences.insert(producer, increment_sequence(sequence, count));
                        options = of_producer(i64::from(producer), sequence, producer >= 3);
                    }
                    options.codec = Codec::from_id(codec).unwrap();
                    let texts: Vec<(String, Option<String>)> = records.iter().map(|(key, dies)| {
                        let value = format!("v{}", history.written.len());
                        (key.to_string(), (!dies).then_some(value))
                    }).collect();
                    let pairs: Vec<KeyValue<'_>> =
                        texts.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
                    let base = partition.send_with(options, &pairs);
                    for found in partition.at(base).records {
                        let committed = if producer >= 3 { None } else { Some(true) };
                        history.written.push(Written { found, batch: base, producer, committed });
                    }
                }
                Event::End { producer, commit } => {
                    partition.end_transaction(i64::from(producer), commit);
                    for one in history.written.iter_mut().filter(|one| one.producer == producer) {
                        one.committed = one.committed.or(Some(commit));
                    }
                }
                Event::Clean { slots } => {
                    let end_before = partition.log.offsets();
                    let report = partition.clean_with_room(slots);
                    prop_assert_eq!(partition.log.offsets(), end_before);
                    if let Some(report) = report {
                        let map_was_full = report.map_utilization >= 1.0;
                        history.check(&partition, report.end_offset, map_was_full)?;
                    }
                }
            }
        }
        let before = partition.batches();
        let offsets = partition.log.offsets();
        partition.reopen();
        prop_assert_eq!(partition.batches(), before);
        prop_assert_eq!(partition.log.offsets().log_end_offset, offsets.log_end_offset);
        for (producer, sequence) in &history.sequences {
            let producers = partition.log.producers();
            let last = producers.get(i64::from(*producer)).map_or(NO_SEQUENCE, |entry| entry.last_sequence());
            prop_assert_eq!(increment_sequence(last, 1), *sequence);
        }
    }
}

//! Every sequence of events against a slow model that keeps the whole history and looks everything
//! up in it.

use kafkalite::batch::BatchHeader;
use kafkalite::batch::header::increment_sequence;
use kafkalite::batch::{AppendOrigin, EndTransactionMarker};
use kafkalite::log::state::producer_entry::BatchMetadata;
use kafkalite::log::state::producers::{BatchOutcome, ProducerState};
use proptest::prelude::*;

use super::partition::{batch, marker, transactional};

/// The second implementation: all accepted batches, looked through from the start each time.
#[derive(Default)]
struct History {
    accepted: Vec<(BatchHeader, Option<EndTransactionMarker>)>,
    high_watermark: i64,
}

#[derive(Debug, PartialEq)]
enum Verdict {
    Appended(Option<(i64, bool, i64)>),
    Duplicate(i64, i64),
    Refused(i16),
}

impl History {
    fn of(
        &self,
        producer_id: i64,
    ) -> impl Iterator<Item = &(BatchHeader, Option<EndTransactionMarker>)> {
        self.accepted
            .iter()
            .filter(move |(header, _)| header.producer_id == producer_id)
    }

    fn epoch(&self, producer_id: i64) -> i16 {
        self.of(producer_id)
            .last()
            .map_or(-1, |(header, _)| header.producer_epoch)
    }

    /// The batches since the epoch last changed.
    fn window(&self, producer_id: i64) -> Vec<BatchHeader> {
        let mut window: Vec<BatchHeader> = Vec::new();
        let mut epoch = -1;
        for (header, marker) in self.of(producer_id) {
            if header.producer_epoch != epoch {
                window.clear();
                epoch = header.producer_epoch;
            }
            if marker.is_none() {
                window.push(*header);
            }
        }
        window.split_off(window.len().saturating_sub(5))
    }

    fn coordinator_epoch(&self, producer_id: i64) -> i32 {
        let last = self
            .of(producer_id)
            .filter_map(|(_, marker)| *marker)
            .last();
        last.map_or(-1, |marker| marker.coordinator_epoch)
    }

    fn open_since(&self, producer_id: i64) -> Option<i64> {
        let mut open = None;
        for (header, marker) in self.of(producer_id) {
            open = match marker {
                Some(_) => None,
                None if header.is_transactional() => open.or(Some(header.base_offset)),
                None => open,
            };
        }
        open
    }

    fn unstable(&self) -> Option<i64> {
        let mut open = std::collections::HashMap::new();
        let mut unstable: Vec<i64> = Vec::new();
        for (header, marker) in &self.accepted {
            match marker {
                Some(_) => {
                    let first = open.remove(&header.producer_id);
                    unstable.extend(first.filter(|_| header.base_offset >= self.high_watermark));
                }
                None if header.is_transactional() => {
                    open.entry(header.producer_id).or_insert(header.base_offset);
                }
                None => {}
            }
        }
        unstable.extend(open.values());
        unstable.into_iter().min()
    }

    fn judge(
        &self,
        header: &BatchHeader,
        origin: AppendOrigin,
        version: i16,
        marker: Option<EndTransactionMarker>,
    ) -> Verdict {
        let (id, epoch) = (header.producer_id, header.producer_epoch);
        let seen = self.epoch(id);
        let trusted = origin == AppendOrigin::Replication;
        let open = self.open_since(id);
        if let Some(marker) = marker {
            if !trusted {
                let repeats = epoch == seen && (open.is_none() || epoch == i16::MAX);
                if epoch < seen || (version >= 2 && epoch == seen && !repeats) {
                    return Verdict::Refused(47);
                }
                if marker.coordinator_epoch < self.coordinator_epoch(id) {
                    return Verdict::Refused(52);
                }
            }
            let others = (0..4)
                .filter(|other| *other != id)
                .filter_map(|other| self.open_since(other));
            let stable = others.min().unwrap_or(header.base_offset + 1);
            return Verdict::Appended(open.map(|first| (first, !marker.is_commit, stable)));
        }
        let window = self.window(id);
        if origin == AppendOrigin::Client && epoch == seen {
            for old in &window {
                if (old.base_sequence, old.records_count)
                    == (header.base_sequence, header.records_count)
                {
                    return Verdict::Duplicate(old.base_offset, old.last_offset());
                }
            }
        }
        if !trusted && epoch < seen {
            return Verdict::Refused(47);
        }
        if origin == AppendOrigin::Client && seen != -1 {
            let expected = match window.last() {
                Some(last) if epoch == seen => {
                    increment_sequence(last.base_sequence, last.records_count)
                }
                _ => 0,
            };
            if header.base_sequence != expected {
                return Verdict::Refused(45);
            }
        }
        if open.is_some() && !header.is_transactional() {
            return Verdict::Refused(48);
        }
        Verdict::Appended(None)
    }
}

#[derive(Clone, Debug)]
enum Event {
    Data {
        id: i64,
        epoch: i16,
        sequence: Choice,
        count: i32,
        transactional: bool,
        origin: u8,
    },
    Marker {
        id: i64,
        epoch: i16,
        commit: bool,
        coordinator_epoch: i32,
        version: i16,
        origin: u8,
    },
    HighWatermark(u8),
    Flush {
        fails: bool,
    },
}

#[derive(Clone, Debug)]
enum Choice {
    Next,
    Repeat(usize),
    Any(i32),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let choice = prop_oneof![
        6 => Just(Choice::Next),
        2 => (0..7usize).prop_map(Choice::Repeat),
        1 => prop_oneof![0..4, Just(i32::MAX - 2), Just(i32::MAX)].prop_map(Choice::Any),
    ];
    let epoch = prop_oneof![6 => 0..3i16, 1 => Just(i16::MAX)];
    let data = (
        0..4i64,
        epoch.clone(),
        choice,
        1..4i32,
        any::<bool>(),
        0..6u8,
    );
    let data = data.prop_map(
        |(id, epoch, sequence, count, transactional, origin)| Event::Data {
            id,
            epoch,
            sequence,
            count,
            transactional,
            origin,
        },
    );
    let end = (0..4i64, epoch, any::<bool>(), 0..3i32, 0..3i16, 1..3u8);
    let end =
        end.prop_map(
            |(id, epoch, commit, coordinator_epoch, version, origin)| Event::Marker {
                id,
                epoch,
                commit,
                coordinator_epoch,
                version,
                origin,
            },
        );
    let flush = any::<u8>().prop_map(|byte| Event::Flush { fails: byte < 40 });
    let event =
        prop_oneof![8 => data, 4 => end, 1 => (0..4u8).prop_map(Event::HighWatermark), 3 => flush];
    prop::collection::vec(event, 1..80)
}

fn origin_of(number: u8) -> AppendOrigin {
    match number {
        1 => AppendOrigin::Coordinator,
        2 => AppendOrigin::Replication,
        _ => AppendOrigin::Client,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 2))]

    #[test]
    fn every_sequence_of_events_ends_as_in_the_slow_model(events in events()) {
        let mut state = ProducerState::default();
        let mut pending = state.prepare();
        let mut history = History::default();
        let mut flushed = (0, 0i64);
        let mut end_offset = 0i64;
        for event in events {
            let (header, origin, version, end) = match event {
                Event::Data { id, epoch, sequence, count, transactional: is_transactional, origin } => {
                    let window = history.window(id);
                    let old = |index: usize| window.iter().rev().nth(index).copied();
                    let (sequence, count) = match sequence {
                        Choice::Any(sequence) => (sequence, count),
                        Choice::Next => match old(0) {
                            Some(last) if history.epoch(id) == epoch => {
                                (increment_sequence(last.base_sequence, last.records_count), count)
                            }
                            _ => (0, count),
                        },
                        Choice::Repeat(index) => old(index)
                            .map_or((0, count), |old| (old.base_sequence, old.records_count)),
                    };
                    let header = batch(id, epoch, sequence, end_offset, count);
                    let header = if is_transactional { transactional(header) } else { header };
                    (header, origin_of(origin), 0, None)
                }
                Event::Marker { id, epoch, commit, coordinator_epoch, version, origin } => {
                    let end = EndTransactionMarker { is_commit: commit, coordinator_epoch };
                    (marker(id, epoch, end_offset), origin_of(origin), version, Some(end))
                }
                Event::HighWatermark(step) => {
                    history.high_watermark = (history.high_watermark + i64::from(step)).min(flushed.1);
                    state.on_high_watermark(history.high_watermark);
                    continue;
                }
                Event::Flush { fails } => {
                    if fails {
                        history.accepted.truncate(flushed.0);
                        end_offset = flushed.1;
                    } else {
                        state.commit(pending, end_offset);
                        flushed = (history.accepted.len(), end_offset);
                        // Markers may have been ended below the high watermark that is known.
                        state.on_high_watermark(history.high_watermark);
                        let unstable = state.first_unstable_offset().map(|unstable| unstable.offset);
                        prop_assert_eq!(unstable, history.unstable());
                    }
                    pending = state.prepare();
                    continue;
                }
            };
            let expected = history.judge(&header, origin, version, end);
            let found = match state.prepare_batch(&mut pending, &header, origin, Some(version), end, None) {
                Ok(BatchOutcome::Append { completed }) => Verdict::Appended(
                    completed.map(|done| (done.first_offset, done.is_aborted, done.last_stable_offset)),
                ),
                Ok(BatchOutcome::Duplicate { base_offset, last_offset, .. }) => {
                    Verdict::Duplicate(base_offset, last_offset)
                }
                Err(error) => Verdict::Refused(error.kafka_code()),
            };
            prop_assert_eq!(&found, &expected, "{:?} {:?}", header, origin);
            if let Verdict::Appended(_) = found {
                history.accepted.push((header, end));
                end_offset = header.next_offset();
            }
        }
        state.commit(pending, end_offset);
        for id in 0..4 {
            let window: Vec<BatchMetadata> = state.get(id).map_or(Vec::new(), |entry| entry.batches().to_vec());
            let expected: Vec<BatchMetadata> = history.window(id).iter().map(|old| BatchMetadata {
                last_sequence: old.last_sequence(),
                last_offset: old.last_offset(),
                offset_delta: old.last_offset_delta,
                timestamp: old.max_timestamp,
            }).collect();
            prop_assert_eq!(window, expected);
            prop_assert_eq!(state.get(id).and_then(|entry| entry.current_transaction_first_offset), history.open_since(id));
        }
    }
}

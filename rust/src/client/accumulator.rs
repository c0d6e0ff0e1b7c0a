//! The open batches of a producer, one a partition (`RecordAccumulator` of Kafka's producer).
//!
//! ```text
//! topic ──► partition_count   a key's partition
//!           sticky            where records without a key go until that batch is closed
//!           open              partition ──► batch, its callbacks, when linger is over
//! ```
//!
//! `append` takes a record only where a batch is open that has room for it, which needs
//! nothing of the cluster. All else, once a batch, is its owner's: which partitions there are,
//! and when a batch is closed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ahash::RandomState;

use super::partitioner::partition_for_key;
use crate::batch::build::{BatchBuilder, BatchOptions};
use crate::error::Result;

/// A record without key, value and headers takes no more of a batch.
const RECORD_OVERHEAD_BYTES: usize = 21;
/// A header without name and content takes no more of a record.
const HEADER_OVERHEAD_BYTES: usize = 10;

/// A record that is to be sent; `timestamp` in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
}

impl NewRecord<'_> {
    /// Bytes that it takes of a batch, or a few less.
    fn size_bytes_max(&self) -> usize {
        let headers = self.headers.iter().map(|(name, content)| {
            HEADER_OVERHEAD_BYTES + name.len() + content.map_or(0, <[u8]>::len)
        });
        RECORD_OVERHEAD_BYTES
            + self.key.map_or(0, <[u8]>::len)
            + self.value.map_or(0, <[u8]>::len)
            + headers.sum::<usize>()
    }
}

/// The fate of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// It is in an open batch.
    Yes,
    /// It is, and some batch is to be closed: that of `due`.
    AndDue,
    /// It is not: no batch is open for it, or has room, or too much is under way.
    No,
}

/// A batch that takes records, and what `C` is to be told of some of them, by the record's number.
#[derive(Debug)]
pub struct OpenBatch<C> {
    pub builder: BatchBuilder,
    pub callbacks: Vec<(i32, C)>,
    number: u64,
    due: Instant,
}

impl<C> OpenBatch<C> {
    fn append(&mut self, record: &NewRecord<'_>, callback: &mut Option<C>) -> Result<()> {
        let NewRecord {
            timestamp,
            key,
            value,
            headers,
        } = *record;
        self.builder.append(timestamp, key, value, headers)?;
        if let Some(callback) = callback.take() {
            self.callbacks
                .push((self.builder.records_count() - 1, callback));
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Topic<C> {
    name: Arc<str>,
    partition_count: u32,
    sticky: Option<u32>,
    open: HashMap<u32, OpenBatch<C>, RandomState>,
}

/// How batches are made, and how much may be under way.
#[derive(Clone, Debug)]
pub struct AccumulatorOptions {
    pub batch: BatchOptions,
    pub batch_bytes: usize,
    pub buffer_bytes: usize,
    pub linger: Duration,
}

/// The open batches of a producer. `C` is what is to be called back.
#[derive(Debug)]
pub struct Accumulator<C> {
    /// Bytes of the batches that were closed and are under way, which count as the open ones do.
    pub closed_bytes: usize,
    options: AccumulatorOptions,
    topics: HashMap<Arc<str>, Topic<C>, RandomState>,
    open_bytes: usize,
    opened_count: u64,
    /// The open batches by when they are due, the first of them first.
    by_age: BTreeMap<(Instant, u64), (Arc<str>, u32)>,
}

impl<C> Accumulator<C> {
    pub fn new(options: AccumulatorOptions) -> Accumulator<C> {
        Accumulator {
            closed_bytes: 0,
            options,
            topics: HashMap::default(),
            open_bytes: 0,
            opened_count: 0,
            by_age: BTreeMap::new(),
        }
    }

    pub fn options(&self) -> &AccumulatorOptions {
        &self.options
    }

    /// Bytes of all open batches.
    pub fn open_bytes(&self) -> usize {
        self.open_bytes
    }

    /// The open batches' topics and partitions, the oldest first.
    pub fn opened(&self) -> impl ExactSizeIterator<Item = (&str, u32)> {
        self.by_age
            .values()
            .map(|(topic, partition)| (&**topic, *partition))
    }

    /// The partitions whose linger time is over, or whose batch is full.
    pub fn due(&self, now: Instant) -> impl Iterator<Item = (&str, u32)> {
        let due = self.by_age.range(..=(now, u64::MAX));
        due.map(|(_, (topic, partition))| (&**topic, *partition))
    }

    /// When the first of them is.
    pub fn next_due(&self) -> Option<Instant> {
        self.by_age.first_key_value().map(|(&(due, _), _)| due)
    }

    /// The callbacks of all open batches.
    pub fn callbacks(&self) -> impl Iterator<Item = &C> {
        let batches = self.topics.values().flat_map(|topic| topic.open.values());
        batches.flat_map(|batch| batch.callbacks.iter().map(|(_, callback)| callback))
    }

    /// Appends a record to the open batch of its partition, if there is one that has room: that of
    /// its key, or the sticky one, where none is given. An error is that of `BatchBuilder::append`,
    /// and has changed nothing.
    pub fn append(
        &mut self,
        topic: &str,
        partition: Option<u32>,
        record: &NewRecord<'_>,
        callback: Option<C>,
        now: Instant,
    ) -> Result<Appended> {
        if self.open_bytes + self.closed_bytes > self.options.buffer_bytes {
            return Ok(Appended::No);
        }
        self.append_to_open(topic, partition, record, &mut { callback }, now)
    }

    /// As `append`, to this partition, however much is under way. Where no batch is open one is
    /// opened, with this as its first record, however large it is.
    pub fn append_or_open(
        &mut self,
        topic: &str,
        partition: u32,
        record: &NewRecord<'_>,
        mut callback: Option<C>,
        now: Instant,
    ) -> Result<Appended> {
        if self.topic(topic).open.contains_key(&partition) {
            return self.append_to_open(topic, Some(partition), record, &mut callback, now);
        }
        let mut batch = OpenBatch {
            builder: BatchBuilder::new(self.options.batch.clone()),
            callbacks: Vec::new(),
            number: self.opened_count,
            due: now + self.options.linger,
        };
        batch.append(record, &mut callback)?;
        let size_bytes = batch.builder.size_bytes();
        if size_bytes >= self.options.batch_bytes {
            batch.due = now;
        }
        let age = (batch.due, batch.number);
        let topic = self.topic(topic);
        let name = topic.name.clone();
        topic.open.insert(partition, batch);
        self.by_age.insert(age, (name, partition));
        self.opened_count += 1;
        self.open_bytes += size_bytes;
        Ok(self.appended(now))
    }

    fn append_to_open(
        &mut self,
        topic: &str,
        partition: Option<u32>,
        record: &NewRecord<'_>,
        callback: &mut Option<C>,
        now: Instant,
    ) -> Result<Appended> {
        let Some(topic) = self.topics.get_mut(topic) else {
            return Ok(Appended::No);
        };
        let partition = match (partition, record.key) {
            (Some(given), _) => Some(given),
            (None, Some(_)) if topic.partition_count == 0 => None,
            (None, Some(key)) => Some(partition_for_key(key, topic.partition_count)),
            (None, None) => topic.sticky,
        };
        let Some(batch) = partition.and_then(|partition| topic.open.get_mut(&partition)) else {
            return Ok(Appended::No);
        };
        let before = batch.builder.size_bytes();
        if before + record.size_bytes_max() > self.options.batch_bytes {
            return Ok(Appended::No);
        }
        batch.append(record, callback)?;
        self.open_bytes += batch.builder.size_bytes() - before;
        Ok(self.appended(now))
    }

    fn appended(&self, now: Instant) -> Appended {
        match self.next_due() {
            Some(due) if due <= now => Appended::AndDue,
            _ => Appended::Yes,
        }
    }

    /// Notes how many partitions the topic has: of those its keys have theirs.
    pub fn learn(&mut self, topic: &str, partition_count: u32) {
        self.topic(topic).partition_count = partition_count;
    }

    /// Has the topic's records without a key go to this partition until its batch is closed.
    pub fn stick(&mut self, topic: &str, partition: u32) {
        self.topic(topic).sticky = Some(partition);
    }

    /// The partition that the topic's records without a key go to, if one was chosen.
    pub fn sticky(&self, topic: &str) -> Option<u32> {
        self.topics.get(topic)?.sticky
    }

    /// Takes the open batch of a partition, if there is one, which gets no more records.
    pub fn close(&mut self, topic: &str, partition: u32) -> Option<OpenBatch<C>> {
        let topic = self.topics.get_mut(topic)?;
        let batch = topic.open.remove(&partition)?;
        if topic.sticky == Some(partition) {
            topic.sticky = None;
        }
        self.by_age.remove(&(batch.due, batch.number));
        self.open_bytes -= batch.builder.size_bytes();
        Some(batch)
    }

    fn topic(&mut self, name: &str) -> &mut Topic<C> {
        if !self.topics.contains_key(name) {
            let name: Arc<str> = Arc::from(name);
            let topic = Topic {
                name: name.clone(),
                partition_count: 0,
                sticky: None,
                open: HashMap::default(),
            };
            self.topics.insert(name, topic);
        }
        self.topics.get_mut(name).expect("it was inserted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINGER: Duration = Duration::from_millis(5);

    fn accumulator(batch_bytes: usize, buffer_bytes: usize) -> Accumulator<&'static str> {
        Accumulator::new(AccumulatorOptions {
            batch: BatchOptions::default(),
            batch_bytes,
            buffer_bytes,
            linger: LINGER,
        })
    }

    fn record(key: Option<&'static [u8]>) -> NewRecord<'static> {
        NewRecord {
            timestamp: 1,
            key,
            value: Some(b"0123456789"),
            headers: &[],
        }
    }

    #[test]
    fn a_record_goes_to_an_open_batch_alone() {
        let (mut all, now) = (accumulator(1_000, 10_000), Instant::now());
        let plain = record(None);
        assert_eq!(
            all.append("t", None, &plain, None, now).expect("it fits"),
            Appended::No
        );
        assert_eq!(
            all.append_or_open("t", 1, &plain, Some("a"), now)
                .expect("it fits"),
            Appended::Yes
        );
        assert_eq!(
            all.append("t", None, &plain, None, now).expect("it fits"),
            Appended::No
        );
        all.stick("t", 1);
        assert_eq!(
            all.append("t", None, &plain, Some("b"), now)
                .expect("it fits"),
            Appended::Yes
        );
        assert_eq!(
            all.append("t", Some(1), &plain, Some("c"), now)
                .expect("it fits"),
            Appended::Yes
        );
        assert_eq!(
            all.append("t", Some(2), &plain, None, now)
                .expect("it fits"),
            Appended::No
        );
        assert_eq!(
            all.append("u", None, &plain, None, now).expect("it fits"),
            Appended::No
        );
        let closed = all.close("t", 1).expect("it is open");
        assert_eq!(closed.callbacks, [(0, "a"), (1, "b"), (2, "c")]);
        assert_eq!(closed.builder.records_count(), 3);
        assert_eq!((all.sticky("t"), all.open_bytes()), (None, 0));
        assert!(all.close("t", 1).is_none());
    }

    #[test]
    fn a_key_goes_to_its_partition_of_those_that_are_known() {
        let (mut all, now) = (accumulator(1_000, 10_000), Instant::now());
        let keyed = record(Some(b"key"));
        let at = partition_for_key(b"key", 7);
        all.learn("t", 7);
        assert_eq!(
            all.append_or_open("t", at, &keyed, None, now)
                .expect("it fits"),
            Appended::Yes
        );
        assert_eq!(
            all.append("t", None, &keyed, None, now).expect("it fits"),
            Appended::Yes
        );
        let other = partition_for_key(b"key", 5);
        assert_ne!(at, other);
        all.learn("t", 5);
        assert_eq!(
            all.append("t", None, &keyed, None, now).expect("it fits"),
            Appended::No
        );
    }

    #[test]
    fn no_more_is_taken_than_there_is_room_for() {
        let (mut all, now) = (accumulator(150, 200), Instant::now());
        let plain = record(None);
        assert_eq!(
            all.append_or_open("t", 0, &plain, None, now)
                .expect("it fits"),
            Appended::Yes
        );
        assert_eq!(
            all.append("t", Some(0), &plain, None, now)
                .expect("it fits"),
            Appended::Yes
        );
        let before = all.open_bytes();
        for _ in 0..9 {
            let appended = all
                .append("t", Some(0), &plain, None, now)
                .expect("it may be full");
            assert!(all.open_bytes() <= 150);
            if appended == Appended::No {
                break;
            }
        }
        assert_eq!(
            all.append("t", Some(0), &plain, None, now)
                .expect("it fits"),
            Appended::No
        );
        all.close("t", 0).expect("it is open");
        assert_eq!(
            all.append_or_open("t", 0, &plain, None, now)
                .expect("it fits"),
            Appended::Yes
        );
        all.closed_bytes = 201 - before;
        assert_eq!(
            all.append("t", Some(0), &plain, None, now)
                .expect("it fits"),
            Appended::Yes
        );
        assert_eq!(
            all.append("t", Some(0), &plain, None, now)
                .expect("it fits"),
            Appended::No
        );
    }

    #[test]
    fn linger_is_over_for_the_oldest_first() {
        let (mut all, now) = (accumulator(1_000, 10_000), Instant::now());
        let plain = record(None);
        assert_eq!(all.next_due(), None);
        all.append_or_open("t", 0, &plain, None, now)
            .expect("it fits");
        all.append_or_open("t", 1, &plain, None, now + LINGER / 2)
            .expect("it fits");
        assert_eq!(all.due(now).count(), 0);
        assert_eq!(all.opened().collect::<Vec<_>>(), [("t", 0), ("t", 1)]);
        assert_eq!(all.next_due(), Some(now + LINGER));
        let later = now + LINGER;
        assert_eq!(
            all.append("t", Some(1), &plain, None, later)
                .expect("it fits"),
            Appended::AndDue
        );
        assert_eq!(all.due(later).collect::<Vec<_>>(), [("t", 0)]);
        all.close("t", 0);
        assert_eq!(
            all.append("t", Some(1), &plain, None, later)
                .expect("it fits"),
            Appended::Yes
        );
        assert_eq!(all.next_due(), Some(now + LINGER + LINGER / 2));
    }

    #[test]
    fn a_record_that_is_larger_than_a_batch_has_one_of_its_own() {
        let (mut all, now) = (accumulator(70, 10_000), Instant::now());
        let plain = record(None);
        assert_eq!(
            all.append_or_open("t", 0, &plain, None, now)
                .expect("it fits"),
            Appended::AndDue
        );
        assert_eq!(all.due(now).collect::<Vec<_>>(), [("t", 0)]);
        assert_eq!(
            all.append_or_open("t", 0, &plain, None, now)
                .expect("it fits"),
            Appended::No
        );
    }
}

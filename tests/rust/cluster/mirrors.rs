//! Logs of replicas as they were last looked at, so that only what is new is
//! read, and where they began.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use kafkalite::batch::BatchHeader;
use kafkalite::log::log::Log;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::state::ends::LogOffsets;
use kafkalite::replica::Partition;

use super::bytes::{Entry, entries};
use super::checker::require;

/// A replica's log as it was last looked at.
#[derive(Default)]
pub struct Mirror {
    pub made_of: MadeOf,
    /// What lies before was deleted when the log was looked at first.
    pub start: usize,
    pub entries: Vec<Entry>,
    /// All before this offset are those that are committed, at this turn of the truth.
    pub matched: usize,
    pub turn: u64,
}

/// The files that a log is made of: those of a process, cut and replaced so often.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct MadeOf {
    pub life: u64,
    pub truncations: u64,
    pub replacements: u64,
}

/// Where a log began.
pub struct Start {
    pub log: Weak<Log>,
    pub life: u64,
    pub truncations: u64,
    pub offset: i64,
}

impl Mirror {
    pub fn end(&self) -> i64 {
        (self.start + self.entries.len()) as i64
    }

    pub fn at(&self, offset: usize) -> Option<&Entry> {
        self.entries.get(offset.checked_sub(self.start)?)
    }

    /// Those below `end` that are not below `from`, as far as they are there.
    pub fn entries_up_to(&self, end: usize, from: usize) -> &[Entry] {
        let from = from.max(self.start);
        &self.entries[from - self.start..end.max(from) - self.start]
    }

    /// What both hold below this offset is the same, and reaches as far.
    pub fn agrees_with(&self, other: &Mirror, end: usize) -> bool {
        let from = self.start.max(other.start);
        let has_all = |mirror: &Mirror| mirror.end() >= end.max(from) as i64;
        has_all(self)
            && has_all(other)
            && self.entries_up_to(end, from) == other.entries_up_to(end, from)
    }

    /// Below `deleted` nothing is compared: what a follower has there is not promised to anybody,
    /// and goes as soon as it takes its leader's log start over.
    pub fn match_with(&mut self, turn: u64, committed: &[Entry], deleted: i64) {
        if self.turn != turn {
            (self.turn, self.matched) = (turn, self.start);
        }
        let gone = (deleted.min(self.end()) as usize).min(committed.len());
        self.matched = self.matched.max(gone);
        let own = self.entries.iter().skip(self.matched - self.start);
        let both = own.zip(committed.iter().skip(self.matched));
        self.matched += both.take_while(|(own, committed)| own == committed).count();
    }
}

/// A log begins here, where it began there before.
fn require_start(name: &dyn fmt::Display, before: i64, offsets: &LogOffsets, may_go_back: bool) {
    let start = offsets.log_start_offset;
    require!(
        start <= offsets.high_watermark,
        "LogStart: {name} begins at {start}, behind its high watermark {}",
        offsets.high_watermark
    );
    require!(
        start >= before || may_go_back,
        "LogStart: {name} begins at {start}, after {before}"
    );
}

/// A log begins where it did or later, unless it may have been cut after an unclean election.
pub fn check_start(
    starts: &mut BTreeMap<(i32, usize), Start>,
    (id, life): (i32, u64),
    partition: &Partition,
    is_cut_uncleanly: bool,
) {
    let (log, index) = (&partition.log, partition.index as usize);
    let offsets = log.offsets();
    let is_of = |start: &&Start| start.life == life && start.log.as_ptr() == Arc::as_ptr(log);
    let known = starts.get(&(id, index)).filter(is_of);
    let before = known.map_or(0, |start| start.offset);
    let is_cut = known.is_some_and(|start| start.truncations != log.truncations());
    let is_back = offsets.log_start_offset < before;
    let may_go_back =
        is_back && is_cut && (is_cut_uncleanly || begins_within_a_batch(partition, before));
    let name = format_args!("t-{index} of broker {id}");
    require_start(&name, before, &offsets, may_go_back);
    if before != offsets.log_start_offset || is_cut || known.is_none() {
        let start = Start {
            log: Arc::downgrade(log),
            life,
            truncations: log.truncations(),
            offset: offsets.log_start_offset,
        };
        starts.insert((id, index), start);
    }
}

/// The first batch has this offset: a follower that begins within a batch of its
/// leader's gets all of it, and has its log begin where the batch does until it knows
/// the rest of that to be committed.
fn begins_within_a_batch(partition: &Partition, offset: i64) -> bool {
    let start = partition.log.offsets().log_start_offset;
    let header = BatchHeader::parse(&bytes_from(partition, start)).unwrap();
    header.is_some_and(|batch| batch.base_offset == start && batch.next_offset() > offset)
}

/// All batches of a log from this offset on.
pub fn bytes_from(replica: &Partition, from: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut next = from;
    while next < replica.log.offsets().log_end_offset {
        let range = replica.log.read(next, 1 << 20, true, ReadIsolation::LogEnd);
        let part = range.unwrap().to_vec().unwrap();
        let found = entries(&part, next);
        let Some(last) = found.last() else {
            panic!(
                "Readable: nothing of t-{} can be read at {next}, {:?}, segments {:?}",
                replica.index,
                replica.log.offsets(),
                replica
                    .log
                    .segments()
                    .iter()
                    .map(|it| (it.base_offset(), it.end()))
                    .collect::<Vec<_>>()
            );
        };
        next = last.offset + 1;
        bytes.extend(part);
    }
    bytes
}

const OFFSETS: LogOffsets = LogOffsets {
    log_start_offset: 4,
    log_end_offset: 9,
    flushed_offset: 9,
    high_watermark: 5,
    last_stable_offset: 5,
    recovery_point: 0,
};

#[test]
#[should_panic(expected = "LogStart: t-0 begins at 4, after 5")]
fn a_log_that_begins_earlier_than_before_is_found() {
    require_start(&"t-0", 4, &OFFSETS, false);
    require_start(&"t-0", 5, &OFFSETS, true);
    require_start(&"t-0", 5, &OFFSETS, false);
}

#[test]
#[should_panic(expected = "LogStart: t-0 begins at 4, behind its high watermark 3")]
fn a_log_that_begins_behind_its_high_watermark_is_found() {
    let offsets = LogOffsets {
        high_watermark: 3,
        ..OFFSETS
    };
    require_start(&"t-0", 0, &offsets, false);
}

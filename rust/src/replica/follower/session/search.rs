//! Looks for the leader's ends after OFFSET_OUT_OF_RANGE: its latest offset, to which a log that is
//! ahead is cut, then its earliest, at which one that is behind starts anew
//! (`AbstractFetcherThread.fetchOffsetAndTruncate`).

use std::collections::HashMap;
use std::sync::Arc;

use super::{Asked, FollowerSession, Key, State, Tell};
use crate::clock::Now;
use crate::codes;
use crate::error::{Error, Result};
use crate::replica::Partition;
use crate::replica::follower::answer::ListedOffset;
use crate::replica::follower::request::{self, Request};

/// Timestamps by which ListOffsets is asked for the ends of a log.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
/// The largest offset at which a log can go on: that of a batch, whose own offsets
/// come on top, is no larger.
const OFFSET_MAX: i64 = i64::MAX - (1 << 32);

impl FollowerSession {
    /// ListOffsets for those of which that is to be known, all that ask for the same end.
    pub(super) fn next_search(&mut self) -> Option<Request> {
        let timestamp_of = |key: &Key| match self.followed.get(key)?.state {
            State::Searching { timestamp } => Some(timestamp),
            _ => None,
        };
        let timestamp = self.searching.iter().find_map(timestamp_of)?;
        let same = self.searching.iter();
        let same = same.filter(|key| timestamp_of(key) == Some(timestamp));
        let asked: Vec<(String, i32, i32)> = same
            .filter_map(|key| self.followed.get(key))
            .map(|each| {
                let log = &each.partition.log;
                let leader_epoch = each.partition.leader_epoch;
                (log.topic().to_owned(), log.partition(), leader_epoch)
            })
            .collect();
        let node_id = self.settings.node_id;
        let body = request::list_offsets(node_id, timestamp, asked.into_iter());
        self.asked = Asked::ListOffsets {
            timestamp,
            partitions_max: self.searching.len(),
        };
        Some(Request::ListOffsets(body))
    }

    /// Has the leader asked for its ends, before anything is fetched of the partition again.
    pub(super) fn search_ends(&mut self, key: Key) {
        self.search(key, LATEST);
    }

    fn search(&mut self, key: Key, timestamp: i64) {
        self.leave_session(key);
        if let Some(followed) = self.followed.get_mut(&key) {
            followed.state = State::Searching { timestamp };
            self.searching.insert(key);
        }
    }

    pub(super) fn on_listed(
        &mut self,
        listed: Vec<ListedOffset>,
        timestamp: i64,
        now: Now,
        tell: Tell<'_>,
    ) -> Vec<Arc<Partition>> {
        let searching = self.searching.iter().filter_map(|key| {
            let followed = self.followed.get(key)?;
            let is_asked = followed.state == State::Searching { timestamp };
            is_asked.then(|| (*key, followed.partition.clone()))
        });
        let found = listed.iter().map(|each| ((&*each.topic, each.index), each));
        let found: HashMap<(&str, i32), &ListedOffset> = found.collect();
        let mut touched = Vec::new();
        for (key, partition) in searching.collect::<Vec<_>>() {
            let Some(found) = found.get(&(partition.log.topic(), partition.index)) else {
                self.delay(key, now);
                continue;
            };
            if found.error_code != codes::NONE || found.offset < 0 {
                self.searching.remove(&key);
                let code = if found.error_code == codes::NONE {
                    codes::UNKNOWN_SERVER_ERROR
                } else {
                    found.error_code
                };
                match code {
                    // Of a question by time it says nothing: another one at
                    // once would go on for ever.
                    codes::OFFSET_OUT_OF_RANGE => self.delay(key, now),
                    _ => self.refused(key, code, now, tell),
                }
                continue;
            }
            match self.meet(key, &partition, timestamp, found, now, tell) {
                Ok(true) => touched.push(partition),
                Ok(false) => {}
                Err(error) => self.on_trouble(key, &error, now, tell),
            }
        }
        touched
    }

    /// Brings the log to where the leader's is, by its latest or its earliest offset
    /// (`AbstractFetcherThread.fetchOffsetAndTruncate`). Never ends the broker (KAFKA-7414).
    /// Returns whether the log was touched.
    fn meet(
        &mut self,
        key: Key,
        partition: &Partition,
        timestamp: i64,
        found: &ListedOffset,
        now: Now,
        tell: Tell<'_>,
    ) -> Result<bool> {
        let leader_offset = found.offset;
        if leader_offset > OFFSET_MAX {
            let sentence = format!("offset {leader_offset} is said to be an end of its log");
            return Err(Error::InvalidArgument(sentence));
        }
        let own_end = partition.log.offsets().log_end_offset;
        if timestamp == LATEST && leader_offset >= own_end {
            self.search(key, EARLIEST);
            return Ok(false);
        }
        if timestamp == LATEST {
            self.cut(partition, leader_offset, now, tell)?;
        } else if leader_offset > own_end {
            tell(format!(
                "{}-{} starts anew at offset {leader_offset}, the first one of broker {}; it ended at \
                 {own_end}",
                partition.log.topic(),
                partition.index,
                self.leader_id
            ));
            partition.start_anew(leader_offset, now.wall_ms)?;
        } else {
            // Both ends are there: the leader's log has changed meanwhile.
            self.delay(key, now);
            return Ok(false);
        }
        self.fetch_again(key);
        Ok(true)
    }
}

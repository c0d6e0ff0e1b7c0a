//! Moves of this node's replicas between its log directories
//! (AlterReplicaLogDirs, KIP-113, KIP-858).
//!
//! ```text
//! alter_log_dir ─► future replica made ─► copied, step by step ─► all is there but a little
//!     ─► the controller is told the new directory (`Assignments`), and the metadata says it
//!     ─► the last records, while appends wait; the future replica is the log (`Log::replace_by`)
//! ```
//!
//! Metadata that takes a replica away and gives it back in one step may name any directory: the log
//! stays where it lies, and the controller is told so, or the move's directory again
//! (`ReplicaManager.maybeUpdateTopicAssignment`).
//!
//! A move that is given up after the controller was told has it told the old directory again.
//! One that a stop or a crash cuts off goes on at the next start, here as with Kafka: its
//! future replica is found. One that was cancelled does not (`note_cancelled`).
//!
//! Threads begin with a move and end when there is none (`num.replica.alter.log.dirs.threads`). A
//! step copies a bounded piece, so that one move does not wait for another's end.
//!
//! Kafka: `ReplicaManager.alterReplicaLogDirs`, `ReplicaAlterLogDirsManager`,
//! `ReplicaAlterLogDirsThread`.

mod request;
mod under_way;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Node;
use crate::clock::wall_ms;
use crate::crash::{or_end_process, or_error};
use crate::error::{Error, Result};
use crate::image::Topic;
use crate::limits::{MOVE_BEGIN_WAIT, MOVE_PIECE_BYTES, MOVE_RETRY, MOVE_WAIT};
use crate::log::compact::cleaner_checkpoint;
use crate::log::directory::{LogDirectory, NewLog};
use crate::log::log::Log;
use crate::log::names;
use crate::replica::moves::{Copying, DirectoryAssignment};
use crate::replica::{HostedPartition, Partition};
use crate::uuid::Uuid;

pub use request::{MoveOutcome, MoveRequest};
pub use under_way::Moves;
use under_way::{Move, Turn, Work};

/// The longest name of a directory.
const NAME_BYTES_MAX: usize = 255;

/// Why a replica is not moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveRefusal {
    /// The name of the future replica's directory would be too long.
    NameTooLong,
    /// There is no such log directory.
    NoSuchDirectory(PathBuf),
    /// The log directory, or that of the replica, or any other, has failed.
    Offline(String),
    /// There is no such partition.
    UnknownPartition,
    /// This node has no replica of the partition.
    NoReplica,
    /// The request was answered before its turn came: it counts as refused.
    Answered,
}

/// A future replica: partition, path of its log directory, size, and how many offsets it lacks; -1
/// where the log that it is copied from is offline.
pub struct FutureFacts {
    pub topic: Arc<str>,
    pub partition: i32,
    pub path: PathBuf,
    pub size_bytes: u64,
    pub lag: i64,
}

enum Step {
    /// Again, after this time.
    Later(Duration),
    Over,
}

/// The error is one of the directory's, and would come again: nothing else may write
/// there and find that out, and the move would never end. Kafka takes a directory out of
/// use at any error of a file.
fn is_broken(directory: &LogDirectory, error: &Error) -> bool {
    let is_its = matches!(error, Error::Io { path, .. } if path.starts_with(directory.path()));
    is_its && !error.lacks_space() && !error.lacks_descriptors()
}

impl Node {
    /// The moves of this node's replicas.
    pub fn moves(&self) -> &Moves {
        &self.moves
    }

    /// Begins to move a replica into the log directory at `path`. Where it lies there already, or
    /// is on its way there, nothing happens but that another move of it ends. `request` knows the
    /// outcome when this returns; once it is answered, nothing begins. Not for a thread that
    /// answers clients: waits for the disk.
    pub fn alter_log_dir(
        self: &Arc<Self>,
        topic: &str,
        partition: i32,
        path: &Path,
        request: &MoveRequest,
        now_ms: i64,
    ) -> std::result::Result<(), MoveRefusal> {
        let begun = self.begin_asked((topic, partition), path, request, now_ms);
        request.note(topic, partition, &begun);
        begun
    }

    fn begin_asked(
        self: &Arc<Self>,
        (topic, partition): (&str, i32),
        path: &Path,
        request: &MoveRequest,
        now_ms: i64,
    ) -> std::result::Result<(), MoveRefusal> {
        let sample = names::future_directory(topic, partition, &"0".repeat(32));
        if sample.len() > NAME_BYTES_MAX {
            return Err(MoveRefusal::NameTooLong);
        }
        let to = self.directory_to(path)?;
        let replica = self.replica_to_move(topic, partition)?;
        let log = &replica.log;
        let topic_id = log.topic_id().unwrap_or(Uuid::ZERO);
        let beginnings = &self.moves.beginnings;
        let turn = Turn::Partition(topic.to_owned(), partition);
        let Some(_turn) = beginnings.take(turn) else {
            let sentence = "an earlier move of it has not begun yet".to_owned();
            return Err(MoveRefusal::Offline(sentence));
        };
        // Others may have been granted another move while this one waited.
        request.check_not_answered()?;
        if self.is_moving_to(log, &to)? || Arc::ptr_eq(replica.directory(), &to) {
            return Ok(());
        }
        let from = replica.directory().clone();
        if let Some(offline) = self.offline_log_dirs().first() {
            // Else a partition could have two future replicas, as Kafka says.
            let sentence = format!("the log directory {} is offline", offline.display());
            return Err(MoveRefusal::Offline(sentence));
        }
        let wanted = NewLog {
            topic: Arc::from(topic),
            partition,
            topic_id,
            config: (*log.config()).clone(),
            leader_epoch: None,
        };
        let made = {
            let Some(_turn) = beginnings.take(Turn::Directory(to.path().to_path_buf())) else {
                let to = to.path().display();
                let sentence = format!("an earlier move to {to} has not begun yet");
                return Err(MoveRefusal::Offline(sentence));
            };
            request.check_not_answered()?;
            to.create_future(wanted, now_ms)
        };
        let future = made.map_err(|error| MoveRefusal::Offline(error.to_string()))?;
        let way = (from.clone(), to.clone());
        let begin = || self.begin_move(topic_id, way, log, future.clone());
        request.grant(topic, partition, begin).inspect_err(|_| {
            let noted = from.note_cancelled(&to, &future);
            let name = || format!("{topic}-{partition}");
            noted.unwrap_or_else(|error| self.moves.tell_not_cancelled(&name(), &error));
            to.give_up_future(&future);
        })
    }

    fn replica_to_move(
        &self,
        topic: &str,
        partition: i32,
    ) -> std::result::Result<Arc<Partition>, MoveRefusal> {
        let image = self.image();
        let hosted = image
            .topic(topic)
            .and_then(|topic| topic.hosted_partition(partition));
        match hosted {
            None => Err(MoveRefusal::UnknownPartition),
            Some(HostedPartition::Elsewhere) => Err(MoveRefusal::NoReplica),
            Some(HostedPartition::Online(replica)) if !replica.is_offline() => Ok(replica.clone()),
            Some(_) => {
                let sentence = format!("the log directory of {topic}-{partition} is offline");
                Err(MoveRefusal::Offline(sentence))
            }
        }
    }

    fn directory_to(&self, path: &Path) -> std::result::Result<Arc<LogDirectory>, MoveRefusal> {
        let is_it = |each: &&Arc<LogDirectory>| each.path() == path;
        match self.directories().iter().find(is_it) {
            Some(to) if !to.health().is_offline() => Ok(to.clone()),
            None if !self.offline_log_dirs().iter().any(|each| each == path) => {
                Err(MoveRefusal::NoSuchDirectory(path.to_path_buf()))
            }
            _ => Err(MoveRefusal::Offline(format!(
                "the log directory {} is offline",
                path.display()
            ))),
        }
    }

    /// Says whether a log is on its way to this directory. A move to another one is cancelled,
    /// which asks nothing of that one's disk; errors: it is in a call that does not come back, and
    /// ends after that.
    fn is_moving_to(
        &self,
        log: &Arc<Log>,
        to: &Arc<LogDirectory>,
    ) -> std::result::Result<bool, MoveRefusal> {
        let all = self.moves.all.lock().clone();
        for each in all.iter().filter(|each| Arc::ptr_eq(&each.log, log)) {
            if Arc::ptr_eq(&each.to, to) && !each.is_cancelled.load(Ordering::Acquire) {
                // Whoever has it copies just now.
                if each.work.try_lock().is_none_or(|work| !work.is_over) {
                    return Ok(true);
                }
                continue;
            }
            each.is_cancelled.store(true, Ordering::Release);
            let Some(mut work) = each.work.try_lock_for(MOVE_BEGIN_WAIT) else {
                let to = each.to.path().display();
                let sentence = format!("its move to {to} does not end");
                return Err(MoveRefusal::Offline(sentence));
            };
            each.cancel(&mut work, &self.moves);
        }
        Ok(false)
    }

    fn begin_move(
        self: &Arc<Self>,
        topic_id: Uuid,
        (from, to): (Arc<LogDirectory>, Arc<LogDirectory>),
        log: &Arc<Log>,
        future: Arc<Log>,
    ) {
        log.set_moving(true);
        let copying = Copying::new(log.clone(), (from.clone(), to.clone()), future);
        let begun = Arc::new(Move {
            topic_id,
            from,
            to,
            log: log.clone(),
            is_cancelled: AtomicBool::new(false),
            is_assigned: Mutex::new(false),
            work: Mutex::new(Work {
                copying,
                is_over: false,
                failure: String::new(),
            }),
        });
        self.moves.all.lock().push(begun.clone());
        let mut due = self.moves.due.lock();
        due.moves.push_back((Instant::now(), begun));
        let threads_max = self.moves.threads_max.load(Ordering::Relaxed);
        if due.running < threads_max && !due.is_stopping {
            let node = self.clone();
            let name = "replica-alter-log-dirs".to_owned();
            let spawned = thread::Builder::new()
                .name(name)
                .spawn(move || or_end_process(|| node.run_moves()));
            match spawned {
                Ok(_) => due.running += 1,
                // Another that runs takes it, or the next start.
                Err(error) => self
                    .moves
                    .tell(format!("no thread to move replicas: {error}")),
            }
        }
        drop(due);
        self.moves.wake.notify_one();
    }

    /// Goes on with the moves that the last process has left, and tells `tell` what goes wrong from
    /// now on. Once. Without threads they stand still until `step_moves`. Waits for no disk.
    pub fn resume_moves(
        self: &Arc<Self>,
        threads_max: usize,
        tell: impl Fn(String) + Send + Sync + 'static,
    ) {
        let _ = self.moves.tell.set(Box::new(tell));
        self.moves
            .threads_max
            .store(threads_max as u64, Ordering::Relaxed);
        let image = self.image();
        for to in self.directories() {
            for future in to.futures() {
                let (topic, partition) = (future.topic(), future.partition());
                let beginnings = &self.moves.beginnings;
                let turn = Turn::Partition(topic.to_owned(), partition);
                let Some(_turn) = beginnings.try_take(turn) else {
                    // The next start goes on with it.
                    let (name, to) = (format!("{topic}-{partition}"), to.path().display());
                    let sentence = format!("the move of {name} to {to} is not resumed");
                    self.moves
                        .tell(format!("{sentence}: another one is about to begin"));
                    continue;
                };
                let topic = image.topic(future.topic());
                let replica = topic.and_then(|topic| topic.replica(future.partition()));
                let replica = replica.filter(|replica| replica.log.topic_id() == future.topic_id());
                let Some(replica) = replica.filter(|each| !each.is_offline()) else {
                    continue; // It may be needed when its other directory is back.
                };
                let all = self.moves.all.lock().clone();
                if all.iter().any(|each| Arc::ptr_eq(&each.log, &replica.log)) {
                    to.give_up_future(&future);
                    continue;
                }
                let topic_id = future.topic_id().unwrap_or(Uuid::ZERO);
                let way = (replica.directory().clone(), to.clone());
                self.begin_move(topic_id, way, &replica.log, future);
            }
        }
    }

    /// Ends the threads; what they were at goes on at the next start. Does not wait longer than
    /// that for one whose disk does not answer.
    pub fn stop_moves(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut due = self.moves.due.lock();
        due.is_stopping = true;
        self.moves.wake.notify_all();
        while due.running > 0 && !self.moves.wake.wait_until(&mut due, deadline).timed_out() {}
    }

    /// The future replicas of all directories.
    pub fn futures(&self) -> Vec<FutureFacts> {
        let image = self.image();
        let facts = |directory: &Arc<LogDirectory>, future: Arc<Log>| {
            let topic = image.topic(future.topic());
            let replica = topic.and_then(|topic| topic.replica(future.partition()));
            let replica = replica.filter(|replica| !replica.is_offline());
            let end = future.offsets().log_end_offset;
            FutureFacts {
                topic: Arc::from(future.topic()),
                partition: future.partition(),
                path: directory.path().to_path_buf(),
                size_bytes: future.size_bytes(),
                lag: replica.map_or(-1, |replica| replica.log.offsets().log_end_offset - end),
            }
        };
        let online = self.directories().iter();
        let online = online.filter(|directory| !directory.health().is_offline());
        online
            .flat_map(|directory| {
                let futures = directory.futures().into_iter();
                futures
                    .map(|future| facts(directory, future))
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    fn run_moves(self: &Arc<Self>) {
        while let Some(next) = self.next_move() {
            let stepped = or_error(&next.log.directory(), || {
                Ok(self.step(&next, None, wall_ms()))
            });
            let step = stepped.unwrap_or_else(|error| {
                self.moves
                    .tell(format!("the move of {}: {error}", next.name()));
                Step::Later(MOVE_RETRY)
            });
            match step {
                Step::Later(wait) => {
                    let mut due = self.moves.due.lock();
                    due.moves.push_back((Instant::now() + wait, next));
                }
                Step::Over => self.moves.remove(&next),
            }
        }
    }

    /// Takes a step with each move, of about so many bytes: what threads do otherwise,
    /// for who has set none to it.
    pub fn step_moves(self: &Arc<Self>, bytes_max: u64, now_ms: i64) {
        self.moves.due.lock().moves.clear();
        let all = self.moves.all.lock().clone();
        for each in all {
            if let Step::Over = self.step(&each, Some(bytes_max), now_ms) {
                self.moves.remove(&each);
            }
        }
    }

    /// Waits for the first one that is due; `None`: the thread is to end.
    fn next_move(&self) -> Option<Arc<Move>> {
        let mut due = self.moves.due.lock();
        loop {
            if due.is_stopping || due.moves.is_empty() {
                due.running -= 1;
                self.moves.wake.notify_all();
                return None;
            }
            let now = Instant::now();
            if let Some(place) = due.moves.iter().position(|(at, _)| *at <= now) {
                return due.moves.remove(place).map(|(_, next)| next);
            }
            let first = due.moves.iter().map(|(at, _)| *at).min().unwrap_or(now);
            self.moves.wake.wait_until(&mut due, first);
        }
    }

    /// `bytes_max` are those to be copied, else as many as the rate lets.
    fn step(&self, moving: &Arc<Move>, bytes_max: Option<u64>, now_ms: i64) -> Step {
        let mut work = moving.work.lock();
        if work.is_over {
            return Step::Over;
        }
        if moving.is_cancelled.load(Ordering::Acquire) {
            moving.cancel(&mut work, &self.moves);
            return Step::Over;
        }
        if moving.to.health().is_offline() {
            moving.give_up(&mut work, &self.moves);
            return Step::Over;
        }
        if moving.from.health().is_offline() {
            // The future replica stays: it goes on once the directory is back. Till then the
            // replica is offline, which the controller sees by its directory.
            work.is_over = true;
            moving.stay(&self.moves);
            return Step::Over;
        }
        if bytes_max.is_none() {
            let wait = self.moves.wait_for_rate();
            if !wait.is_zero() {
                return Step::Later(wait.min(MOVE_RETRY));
            }
        }
        let piece_bytes = bytes_max.unwrap_or_else(|| self.moves.piece_bytes());
        match self.copy_piece(moving, &mut work, piece_bytes, now_ms) {
            Ok(step) => step,
            Err(Error::LogDeleted { .. }) => {
                // Its topic goes: the next step gives the move up.
                moving.is_cancelled.store(true, Ordering::Release);
                Step::Later(Duration::ZERO)
            }
            Err(error) => {
                if is_broken(&moving.to, &error) {
                    moving.to.health().fail(&error);
                }
                let sentence = error.to_string();
                if sentence != work.failure {
                    self.moves
                        .tell(format!("the move of {}: {sentence}", moving.name()));
                    work.failure = sentence;
                }
                Step::Later(MOVE_RETRY)
            }
        }
    }

    fn copy_piece(
        &self,
        moving: &Arc<Move>,
        work: &mut Work,
        piece_bytes: u64,
        now_ms: i64,
    ) -> Result<Step> {
        let copied = work.copying.step(piece_bytes, now_ms)?;
        self.moves.note_copied(copied.bytes);
        if !copied.is_near_the_end {
            return Ok(Step::Later(Duration::ZERO));
        }
        moving.assign(&self.moves);
        if !self.is_assigned(&moving.assignment(&moving.to)) {
            return Ok(Step::Later(MOVE_WAIT));
        }
        // Most of it before appends have to wait.
        work.copying.prepare()?;
        moving.to.note_futures()?;
        let Some(name) = moving.from.begin_hand_over(&moving.log, &moving.to) else {
            moving.is_cancelled.store(true, Ordering::Release);
            return Ok(Step::Later(Duration::ZERO));
        };
        let aside = moving.from.aside_name(&moving.log);
        let Work { copying, .. } = work;
        let future = copying.future.clone();
        let as_clean = (moving.log.truncations(), copying.clean_offset);
        let replaced = moving.log.replace_by(&future, &aside, now_ms, || {
            copying.finish(MOVE_PIECE_BYTES, now_ms)
        })?;
        let Some(aside) = replaced else {
            return Ok(Step::Later(Duration::ZERO));
        };
        work.is_over = true;
        self.end_move(moving, &future, (aside, as_clean), now_ms);
        drop(name);
        Ok(Step::Over)
    }

    /// Has the controller told anew where replicas lie for which the metadata names
    /// another directory than before.
    pub(super) fn tell_misplaced(&self, topic: &Topic, older: &Topic) {
        let told_by = |topic: &Topic, index| topic.partition(index)?.directory_of(self.node_id);
        for replica in topic.replicas() {
            let told = told_by(topic, replica.index);
            let has_lain = older.replica(replica.index).is_some();
            let lies = replica.directory().identity().directory_id;
            let (Some(told), Some(lies)) = (told, lies) else {
                continue;
            };
            if has_lain && told_by(older, replica.index) != Some(told) {
                let lies = DirectoryAssignment {
                    topic_id: topic.id,
                    partition: replica.index,
                    directory_id: lies,
                };
                self.moves.on_told(&replica.log, told, lies);
            }
        }
    }

    /// Has those future replicas go whose partitions this node has no more, also where their
    /// moves are over, or have not begun since the log is offline
    /// (`LogManager.asyncDelete`). Waits for nobody.
    pub(super) fn give_up_futures(&self) {
        let image = self.image();
        for directory in self.directories() {
            for future in directory.futures() {
                let topic = image.topic(future.topic());
                let topic = topic.filter(|topic| future.topic_id() == Some(topic.id));
                match topic.and_then(|topic| topic.hosted_partition(future.partition())) {
                    None | Some(HostedPartition::Elsewhere) => {
                        self.moves.give_up_soon(directory, &future);
                    }
                    Some(HostedPartition::Online(_) | HostedPartition::Offline) => {}
                }
            }
        }
    }

    fn is_assigned(&self, assignment: &DirectoryAssignment) -> bool {
        let image = self.image();
        let topic = image.topic_by_id(&assignment.topic_id);
        let partition = topic.and_then(|topic| topic.partition(assignment.partition));
        let told = partition.and_then(|partition| partition.directory_of(self.node_id));
        told == Some(assignment.directory_id)
    }

    /// The log lies in the other directory by now. `as_clean`: as it is to
    /// be handed over, of before.
    fn end_move(
        &self,
        moving: &Arc<Move>,
        future: &Arc<Log>,
        (aside, as_clean): (PathBuf, (u64, Option<i64>)),
        now_ms: i64,
    ) {
        let Move { from, to, log, .. } = &**moving;
        log.set_moving(false);
        let is_in_use = {
            let _changing = self.changing.lock();
            let is_in_use = from.hand_over(log, future, to, aside, now_ms);
            if is_in_use
                && let Some(topic) = self.image().topic(log.topic())
                && let Some(replica) = topic.replica(log.partition())
                && Arc::ptr_eq(&replica.log, log)
            {
                replica.move_to(to);
                // Those who looked at the old directory's health, or wait for what its queue holds.
                replica.waiters.wake_readers();
            }
            is_in_use
        };
        if !is_in_use && let Err(error) = to.delete_handed_over(log, now_ms) {
            self.moves
                .tell(format!("the deletion of {}: {error}", moving.name()));
        }
        let handed_over = cleaner_checkpoint::hand_over(from, to, log, as_clean)
            .and_then(|()| from.hand_over_offsets(to));
        if let Err(error) = handed_over {
            self.moves
                .tell(format!("the checkpoints of {}: {error}", moving.name()));
        }
    }
}

//! The moves that are under way on a node: which there are, when each is due,
//! and how fast they may copy.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::clock::monotonic_ms;
use crate::error::Error;
use crate::limits::{MOVE_BEGIN_WAIT, MOVE_PIECE_BYTES};
use crate::log::directory::LogDirectory;
use crate::log::log::Log;
use crate::replica::moves::{Assignments, Copying, DirectoryAssignment};
use crate::replica::throttle::Throttle;
use crate::uuid::Uuid;

/// A replica on its way from one log directory to another.
pub(super) struct Move {
    pub(super) topic_id: Uuid,
    pub(super) from: Arc<LogDirectory>,
    pub(super) to: Arc<LogDirectory>,
    pub(super) log: Arc<Log>,
    /// Set without waiting for a step: it is to end, and the future replica to go.
    pub(super) is_cancelled: AtomicBool,
    /// The controller was told the new directory. Held while it is told something:
    /// what it is told last counts.
    pub(super) is_assigned: Mutex<bool>,
    pub(super) work: Mutex<Work>,
}

pub(super) struct Work {
    pub(super) copying: Copying,
    pub(super) is_over: bool,
    /// Its last failure, which is told once.
    pub(super) failure: String,
}

/// The moves of a node.
pub struct Moves {
    /// All that are not over.
    pub(super) all: Mutex<Vec<Arc<Move>>>,
    pub(super) due: Mutex<Due>,
    pub(super) wake: Condvar,
    pub(super) threads_max: AtomicU64,
    throttle: Throttle,
    copied_bytes: AtomicU64,
    pub assignments: Assignments,
    pub(super) tell: OnceLock<Box<dyn Fn(String) + Send + Sync>>,
    pub(super) beginnings: Beginnings,
}

/// Whose turn it is where moves begin, and since when. A disk that does not answer hinders nobody
/// who does not need it: what the end of an earlier move waits for is no matter of the directory
/// that the next one goes to.
#[derive(Default)]
pub(super) struct Beginnings {
    taken: Mutex<Vec<(Turn, Instant)>>,
    has_ended: Condvar,
}

/// One at a time has each; who needs both takes them in this order.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Turn {
    /// To begin a move of a partition, or end one, so that it has one future replica.
    Partition(String, i32),
    /// To make a future replica in the directory at a path.
    Directory(PathBuf),
}

/// Nobody else has the turn before this is dropped.
pub(super) struct Taken<'a> {
    beginnings: &'a Beginnings,
    turn: Turn,
}

impl Beginnings {
    /// Waits for those before. `None`: one of them has not ended within `MOVE_BEGIN_WAIT`.
    pub(super) fn take(&self, turn: Turn) -> Option<Taken<'_>> {
        let mut taken = self.taken.lock();
        while let Some((_, since)) = taken.iter().find(|(other, _)| *other == turn) {
            let deadline = *since + MOVE_BEGIN_WAIT;
            if self.has_ended.wait_until(&mut taken, deadline).timed_out() {
                return None;
            }
        }
        Some(self.note(&mut taken, turn))
    }

    /// Waits for nobody. `None`: somebody else has it.
    pub(super) fn try_take(&self, turn: Turn) -> Option<Taken<'_>> {
        let mut taken = self.taken.lock();
        let is_free = taken.iter().all(|(other, _)| *other != turn);
        is_free.then(|| self.note(&mut taken, turn))
    }

    fn note(&self, taken: &mut Vec<(Turn, Instant)>, turn: Turn) -> Taken<'_> {
        taken.push((turn.clone(), Instant::now()));
        Taken {
            beginnings: self,
            turn,
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut taken = self.beginnings.taken.lock();
        taken.retain(|(turn, _)| *turn != self.turn);
        self.beginnings.has_ended.notify_all();
    }
}

#[derive(Default)]
pub(super) struct Due {
    pub(super) moves: VecDeque<(Instant, Arc<Move>)>,
    pub(super) running: u64,
    pub(super) is_stopping: bool,
}

impl Moves {
    pub fn new(assignments: Assignments) -> Moves {
        Moves {
            all: Mutex::default(),
            due: Mutex::default(),
            wake: Condvar::new(),
            threads_max: AtomicU64::new(1),
            throttle: Throttle::default(),
            copied_bytes: AtomicU64::new(0),
            assignments,
            tell: OnceLock::new(),
            beginnings: Beginnings::default(),
        }
    }

    /// Bytes a second that all moves together may copy, from now on.
    pub fn set_rate(&self, rate_bytes: i64) {
        self.throttle.set_bytes_per_second_max(rate_bytes);
        self.look_again();
    }

    /// `alter.log.dirs.replication.quota.window.num`, and
    /// `alter.log.dirs.replication.quota.window.size.seconds` in milliseconds.
    pub fn set_samples(&self, (samples_max, sample_ms): (usize, i64)) {
        self.throttle.set_samples(samples_max, sample_ms);
    }

    /// The rate at which all moves together copy.
    pub fn throttle(&self) -> &Throttle {
        &self.throttle
    }

    /// Bytes that have been copied since the start.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes.load(Ordering::Relaxed)
    }

    /// How many are not over.
    pub fn count(&self) -> usize {
        self.all.lock().len()
    }

    /// The largest number of offsets that a future replica lacks.
    pub fn lag_max(&self) -> i64 {
        let moves = self.all.lock().clone();
        let lags = moves.iter().map(|each| each.lag());
        lags.max().unwrap_or(0)
    }

    /// The metadata takes the replica away: its move ends soon. Waits for nobody.
    pub(in crate::node) fn cancel_soon(&self, log: &Arc<Log>) {
        for each in self.all.lock().iter() {
            if Arc::ptr_eq(&each.log, log) {
                each.is_cancelled.store(true, Ordering::Release);
            }
        }
    }

    /// Nobody needs this future replica in `to` any more: it goes, with its move if it
    /// has one. Waits for nobody.
    pub(in crate::node) fn give_up_soon(&self, to: &Arc<LogDirectory>, future: &Arc<Log>) {
        // Held: a move that is over by now takes it along, or has left it.
        let all = self.all.lock();
        let name = (future.topic(), future.partition());
        let is_its = |each: &&Arc<Move>| {
            Arc::ptr_eq(&each.to, to) && (each.log.topic(), each.log.partition()) == name
        };
        match all.iter().find(is_its) {
            Some(moving) => moving.is_cancelled.store(true, Ordering::Release),
            None => to.give_up_future(future),
        }
    }

    /// A move is over. One that has left its future replica takes it along,
    /// if it was cancelled since.
    pub(super) fn remove(&self, over: &Arc<Move>) {
        self.all.lock().retain(|each| !Arc::ptr_eq(each, over));
        if over.is_cancelled.load(Ordering::Acquire) {
            over.to.give_up_future(&over.work.lock().copying.future);
        }
    }

    /// The metadata has a replica in the directory `told` from now on, whose log lies in
    /// `lies`. Waits for nobody.
    pub(in crate::node) fn on_told(&self, log: &Arc<Log>, told: Uuid, lies: DirectoryAssignment) {
        // Held: a move that begins now tells its directory behind this.
        let all = self.all.lock();
        match all.iter().rfind(|each| Arc::ptr_eq(&each.log, log)) {
            Some(moving) => moving.on_told(told, lies, self),
            None if lies.directory_id != told => self.assignments.add(lies),
            None => {}
        }
    }

    /// The image has changed: who waits for it looks again.
    pub(in crate::node) fn look_again(&self) {
        let mut due = self.due.lock();
        if !due.moves.is_empty() {
            let now = Instant::now();
            due.moves.iter_mut().for_each(|(at, _)| *at = now.min(*at));
            self.wake.notify_all();
        }
    }

    pub(super) fn tell(&self, sentence: String) {
        if let Some(tell) = self.tell.get() {
            tell(sentence);
        }
    }

    pub(super) fn tell_not_cancelled(&self, name: &str, error: &Error) {
        self.tell(format!(
            "the next start may go on with a move of {name} that was cancelled: {error}"
        ));
    }

    /// How long until the next bytes may be copied.
    pub(super) fn wait_for_rate(&self) -> Duration {
        let now_ms = monotonic_ms();
        if self.throttle.is_exceeded(now_ms) {
            Duration::from_millis(self.throttle.falls_in_ms(now_ms).max(1).cast_unsigned())
        } else {
            Duration::ZERO
        }
    }

    pub(super) fn note_copied(&self, bytes: u64) {
        self.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
        if bytes > 0 {
            self.throttle.record(bytes, monotonic_ms());
        }
    }

    pub(super) fn piece_bytes(&self) -> u64 {
        let rate_bytes = self.throttle.bytes_per_second_max().max(1);
        MOVE_PIECE_BYTES.min(rate_bytes.cast_unsigned())
    }
}

impl Move {
    pub(super) fn lag(&self) -> i64 {
        let end = self.log.offsets().log_end_offset;
        let future = self.to.future(self.log.topic(), self.log.partition());
        future.map_or(0, |future| (end - future.offsets().log_end_offset).max(0))
    }

    pub(super) fn assignment(&self, directory: &LogDirectory) -> DirectoryAssignment {
        DirectoryAssignment {
            topic_id: self.topic_id,
            partition: self.log.partition(),
            directory_id: directory.identity().directory_id.unwrap_or(Uuid::ZERO),
        }
    }

    /// Has the controller know the new directory; once.
    pub(super) fn assign(&self, moves: &Moves) {
        let mut is_assigned = self.is_assigned.lock();
        if !std::mem::replace(&mut *is_assigned, true) {
            moves.assignments.add(self.assignment(&self.to));
        }
    }

    /// The log stays where it is: the controller is told so, if it was told otherwise.
    pub(super) fn stay(&self, moves: &Moves) {
        let mut is_assigned = self.is_assigned.lock();
        if std::mem::replace(&mut *is_assigned, false) {
            moves.assignments.add(self.assignment(&self.from));
        }
    }

    fn on_told(&self, told: Uuid, lies: DirectoryAssignment, moves: &Moves) {
        let is_assigned = self.is_assigned.lock();
        let wanted = if *is_assigned {
            self.assignment(&self.to)
        } else {
            lies
        };
        if wanted.directory_id != told {
            moves.assignments.add(wanted);
        }
    }

    pub(super) fn name(&self) -> String {
        format!("{}-{}", self.log.topic(), self.log.partition())
    }

    /// Gives the move up for good: the next process does not go on with it either. Waits for the
    /// disk of the log.
    pub(super) fn cancel(&self, work: &mut Work, moves: &Moves) {
        if work.is_over {
            return;
        }
        let noted = self.from.note_cancelled(&self.to, &work.copying.future);
        noted.unwrap_or_else(|error| moves.tell_not_cancelled(&self.name(), &error));
        self.give_up(work, moves);
    }

    /// The future replica goes; the controller is told where the log lies, if it was told
    /// otherwise. Waits for no disk: who asks for another move is not to wait for that of this one.
    pub(super) fn give_up(&self, work: &mut Work, moves: &Moves) {
        if std::mem::replace(&mut work.is_over, true) {
            return;
        }
        self.log.set_moving(false);
        self.to.give_up_future(&work.copying.future);
        self.stay(moves);
    }
}

//! Future replicas: logs of a log directory that are on their way to take the place of
//! one in another (KIP-113).
//!
//! ```text
//! two/orders-0.<32 hexadecimal digits>-future     a copy under way, with a partition.metadata of its own
//! ```
//!
//! They are in `futures`, not among the `logs`: nobody reads them, retention and the cleaner leave
//! them alone. Their offsets stand in the checkpoint files of the directory under the name of their
//! partition, as Kafka writes them: no log of that name lies there. Where one is made, the future
//! replica goes first, and takes its offsets along.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use super::cancelled_moves::{CancelledMoves, FuturePlace};
use super::logs::renamed;
use super::{LogDirectory, LogsByPartition, NewLog, TakenNames};
use crate::error::{Error, Result};
use crate::log::deadline::Deadline;
use crate::log::directory::offset_checkpoint::TopicPartition;
use crate::log::log::Log;
use crate::log::names;
use crate::log::partition_metadata;
use crate::log::recover::LogParameters;
use crate::uuid::Uuid;

/// The name of a future replica's directory, topic and partition, and the topic's id.
pub type FutureName = (String, String, i32, Option<Uuid>);

impl LogDirectory {
    /// The future replicas that lie here.
    pub fn futures(&self) -> Vec<Arc<Log>> {
        self.futures.read().values().cloned().collect()
    }

    pub fn future(&self, topic: &str, partition: i32) -> Option<Arc<Log>> {
        let futures = self.futures.read();
        futures.get(&(Arc::from(topic), partition)).cloned()
    }

    /// Future replicas and logs: all whose offsets the checkpoint files say. The logs come last,
    /// since theirs are those that count.
    pub(super) fn all_logs(&self) -> Vec<Arc<Log>> {
        let mut logs = self.futures();
        logs.extend(self.logs());
        logs
    }

    /// Makes an empty future replica. After it returns, it survives a power cut.
    ///
    /// Errors: `InvalidArgument` if the partition has a log or a future replica
    /// here; `LogDirOffline`; `Io`.
    pub fn create_future(&self, wanted: NewLog, now_ms: i64) -> Result<Arc<Log>> {
        self.health.check()?;
        let _creating = self.creating.lock();
        let key = (wanted.topic.clone(), wanted.partition);
        if self.logs.read().contains_key(&key) || self.futures.read().contains_key(&key) {
            return Err(Error::InvalidArgument(format!(
                "{}-{} is in {} already",
                wanted.topic,
                wanted.partition,
                self.path.display()
            )));
        }
        self.forget_offsets(std::slice::from_ref(&wanted))?;
        let name = names::future_directory(&wanted.topic, wanted.partition, &self.unique_text());
        let directory = self.path.join(name);
        partition_metadata::create_directory(self.storage(), &directory, wanted.topic_id)?;
        let parameters = LogParameters::new(
            directory,
            wanted.topic.to_string(),
            wanted.partition,
            wanted.config,
            now_ms,
            self.next_seed(),
        );
        let (log, _) = self.load_log(parameters)?;
        // It follows the log that it is copied from.
        log.set_replicated_offset(0);
        self.futures.write().insert(key, log.clone());
        Ok(log)
    }

    /// Takes a future replica out, unless somebody has, and renames its directory as `delete_log`
    /// does. Of a directory that has failed nothing is renamed: its next start finds the future
    /// replica there. Errors: as those of `delete_log`.
    pub fn delete_future(&self, future: &Arc<Log>, now_ms: i64) -> Result<()> {
        if self.forget_future(future) {
            self.condemn_future(future, now_ms)?;
        }
        Ok(())
    }

    /// As `delete_future`, but asks nothing of the disk: the directory is renamed by
    /// `delete_given_up`, for which the housekeeper is woken. A start that finds it as it was takes
    /// the move up again, unless it was cancelled (`note_cancelled`).
    pub fn give_up_future(&self, future: &Arc<Log>) {
        if self.forget_future(future) {
            self.given_up.lock().push(future.clone());
            self.deletions.wake();
        }
    }

    /// A log of this directory does not move to `to`, where `future` lies. After it returns, no
    /// start goes on with that. Errors: `Io`; `LogDirOffline`.
    pub fn note_cancelled(&self, to: &LogDirectory, future: &Arc<Log>) -> Result<()> {
        self.health.check()?;
        let path = future.directory();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut cancelled = self.cancelled.lock();
        cancelled.add(to.place_of(&name), future.clone());
        cancelled
            .write(self.storage(), &self.path.join(names::CANCELLED_MOVES))
            .inspect_err(|error| self.health.fail_unless_short(error))
    }

    /// Renames the directories of the future replicas that were given up. Errors: the first
    /// failure, after all have had their turn.
    pub fn delete_given_up(&self, now_ms: i64) -> Result<()> {
        let given_up = std::mem::take(&mut *self.given_up.lock());
        let deleted = given_up.iter();
        let deleted = deleted.map(|future| self.condemn_future(future, now_ms));
        deleted.fold(Ok(()), Result::and)
    }

    fn condemn_future(&self, future: &Log, now_ms: i64) -> Result<()> {
        if self.health.is_offline() {
            return Ok(());
        }
        let due = Deadline::after(future.config().file_delete_delay_ms, now_ms);
        match self.condemn(future, &self.unique_text(), due) {
            // It has taken the place of its log, which is deleted by now.
            Err(Error::LogDeleted { .. }) => Ok(()),
            condemned => condemned.map(drop).and_then(|()| self.sync_deleted()),
        }
    }

    /// Takes a future replica out, if it is this very one: what the checkpoint files say of it
    /// is nobody's from now on.
    fn forget_future(&self, future: &Log) -> bool {
        let mut futures = self.futures.write();
        let is_it = take_it(&mut futures, future);
        if is_it {
            self.gone.lock().insert(TopicPartition::of(future));
        }
        is_it
    }

    /// The name that the directory of a log gets when it is out of use.
    pub fn aside_name(&self, log: &Log) -> String {
        let unique = self.unique_text();
        renamed(
            log.topic(),
            log.partition(),
            &unique,
            names::DELETE_DIRECTORY,
        )
    }

    /// Before a log of this directory gets the files of its future replica in `to`
    /// (`Log::replace_by`), until it is handed over: nobody makes a log of its name there
    /// meanwhile. `None`: the log is out of use.
    pub fn begin_hand_over<'t>(&self, log: &Log, to: &'t LogDirectory) -> Option<TakenNames<'t>> {
        let name = (Arc::from(log.topic()), log.partition());
        let taken = to.names_taken.try_take(name)?;
        let is_free = self.has(log) && to.log(log.topic(), log.partition()).is_none();
        is_free.then_some(taken)
    }

    /// A log of this directory has got the files of `future`, which lay in `to`: it is one of the
    /// logs there from now on, unless it was deleted meanwhile: what the checkpoint files there say
    /// is nobody's then, and `delete_handed_over` is to follow. `aside`, its old files, go after
    /// their delay.
    pub fn hand_over(
        &self,
        log: &Arc<Log>,
        future: &Arc<Log>,
        to: &LogDirectory,
        aside: PathBuf,
        now_ms: i64,
    ) -> bool {
        let due = Deadline::after(log.config().file_delete_delay_ms, now_ms);
        self.deletions.add_directory(aside, due);
        let is_ours = self.has(log) && self.forget(log.topic(), log.partition()).is_some();
        if is_ours {
            take_it(&mut to.futures.write(), future);
            let key = (Arc::from(log.topic()), log.partition());
            let earlier = to.logs.write().insert(key, log.clone());
            assert!(earlier.is_none(), "two logs of one partition");
        } else {
            to.forget_future(future);
        }
        is_ours
    }

    /// Deletes a log that was out of use when it was handed over: its directory, which has got a
    /// name here, goes before the name is free. If that cannot be had, the log directory is
    /// offline from then on.
    pub fn delete_handed_over(&self, log: &Log, now_ms: i64) -> Result<()> {
        self.delete_forgotten(log, &self.unique_text(), now_ms)?;
        self.sync_deleted()
    }

    /// Has the checkpoint files say where the future replicas begin, and how far they are on disk.
    /// Before one of them takes the place of a log: a process that ends between that and
    /// `hand_over_offsets` leaves no other witness of which records were deleted.
    pub fn note_futures(&self) -> Result<()> {
        self.write_checkpoint_files()
    }

    /// After `hand_over`: what the files here said of the log, the files of `to` say from now on.
    pub fn hand_over_offsets(&self, to: &LogDirectory) -> Result<()> {
        to.write_checkpoint_files()?;
        self.write_checkpoint_files()
    }

    /// Directories of future replicas, by their partitions, with the topic's
    /// id. Before they are loaded.
    pub fn future_names(&self) -> Result<Vec<FutureName>> {
        let entries = self.storage().read_directory(&self.path);
        let entries = entries.map_err(Error::io("readdir", &self.path))?;
        let mut found = Vec::new();
        for entry in entries.into_iter().filter(|entry| entry.is_directory) {
            if let Some((topic, partition)) = names::parse_future_directory(&entry.name) {
                let id = partition_metadata::read(self.storage(), &self.path.join(&entry.name))?;
                found.push((entry.name.clone(), topic.to_owned(), partition, id));
            }
        }
        found.sort();
        Ok(found)
    }

    /// Reads which moves earlier processes have cancelled. Before anything is loaded. Errors: `Io`;
    /// `CorruptFile`.
    pub(super) fn read_cancelled(&self) -> Result<Vec<FuturePlace>> {
        let path = self.path.join(names::CANCELLED_MOVES);
        let read = CancelledMoves::read(self.storage(), &path)?;
        let places = read.places().cloned().collect();
        *self.cancelled.lock() = read;
        Ok(places)
    }

    /// Renames the directories of these future replicas, as those of deleted logs are. Before
    /// anything is loaded. Errors: `Io`; `CorruptFile`.
    pub(super) fn delete_cancelled(&self, cancelled: &HashSet<FuturePlace>) -> Result<()> {
        let mut found = self.future_names()?;
        found.retain(|(name, ..)| cancelled.contains(&self.place_of(name)));
        for (name, topic, partition, _) in &found {
            let unique = self.unique_text();
            let to = renamed(topic, *partition, &unique, names::DELETE_DIRECTORY);
            let from = self.path.join(name);
            let renamed = self.storage().rename(&from, &self.path.join(to));
            renamed.map_err(Error::io("rename", &from))?;
        }
        if found.is_empty() {
            return Ok(());
        }
        self.sync_names()
    }

    /// None of them is left in any log directory. Errors: `Io`; what the file names does no harm.
    pub(super) fn forget_cancelled(&self) -> Result<()> {
        *self.cancelled.lock() = CancelledMoves::default();
        let path = self.path.join(names::CANCELLED_MOVES);
        match self.storage().remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(Error::io("unlink", &path)),
        }
    }

    fn place_of(&self, name: &str) -> FuturePlace {
        FuturePlace {
            directory_id: self.identity.directory_id.unwrap_or(Uuid::ZERO),
            name: name.to_owned(),
        }
    }

    /// Has a future replica be the log of its partition, of which no log is anywhere: the last
    /// process has ended between the two halves of `Log::replace_by`, or the other directory is not
    /// there. Before they are loaded.
    pub fn promote_name(&self, name: &str, topic: &str, partition: i32) -> Result<()> {
        let (from, to) = (
            self.path.join(name),
            self.path.join(format!("{topic}-{partition}")),
        );
        let renamed = self.storage().rename(&from, &to);
        renamed.map_err(Error::io("rename", &from))?;
        self.sync_names()
    }

    /// A future replica was loaded. One of a partition that has another one here, or its log, is of
    /// a move that was given up.
    pub(super) fn add_future(&self, key: &TopicPartition, log: Arc<Log>) -> Result<()> {
        let has_log = self
            .storage()
            .read_directory(&self.path.join(key.to_string()))
            .is_ok();
        let mut futures = self.futures.write();
        let name = (Arc::from(key.topic.as_str()), key.partition);
        if futures.contains_key(&name) || has_log {
            drop(futures);
            let at_once = Deadline::after(0, 0);
            return self.condemn(&log, &self.unique_text(), at_once).map(drop);
        }
        futures.insert(name, log);
        Ok(())
    }

    fn unique_text(&self) -> String {
        format!("{:016x}{:016x}", self.next_seed(), self.next_seed())
    }
}

/// Takes this very future replica out, if it is there.
fn take_it(futures: &mut LogsByPartition, future: &Log) -> bool {
    let name = (Arc::from(future.topic()), future.partition());
    let known = futures.get(&name);
    let is_it = known.is_some_and(|known| std::ptr::eq(&**known, future));
    if is_it {
        futures.remove(&name);
    }
    is_it
}

//! Logs of a log directory are made and deleted.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{LogDirectory, NewLog, in_parallel};
use crate::error::{Error, Result};
use crate::limits::CREATING_THREADS;
use crate::log::config::LogConfig;
use crate::log::deadline::Deadline;
use crate::log::directory::offset_checkpoint::TopicPartition;
use crate::log::log::Log;
use crate::log::names;
use crate::log::partition_metadata;
use crate::log::recover::LogParameters;
use crate::uuid::Uuid;

impl LogDirectory {
    /// Makes an empty log. After it returns, the partition and its topic id survive a power cut.
    ///
    /// Errors: `InvalidArgument` if it is there already; `MoveNotEnded`; `LogDirOffline`; `Io`.
    pub fn create_log(
        &self,
        topic: &str,
        partition: i32,
        topic_id: Uuid,
        config: LogConfig,
        now_ms: i64,
    ) -> Result<Arc<Log>> {
        let wanted = NewLog {
            topic: Arc::from(topic),
            partition,
            topic_id,
            config,
            leader_epoch: None,
        };
        let made = self.create_logs(vec![wanted], now_ms)?;
        made.into_iter()
            .next()
            .ok_or_else(|| Error::InvalidArgument(format!("{topic}-{partition} has not been made")))
    }

    /// Makes empty logs, several at a time, so that their fsyncs share commits of the file
    /// system. After it returns, all of them and their topic ids survive a power cut. They
    /// come by topic and partition. A future replica of one of them, of an older topic or of a
    /// move that ended, is deleted. Waits for a move that is at its end here, not longer than
    /// `HAND_OVER_WAIT`.
    ///
    /// Errors: those of `create_log`, and then none of them is there, nor are their directories,
    /// unless these cannot be removed either.
    pub fn create_logs(&self, wanted: Vec<NewLog>, now_ms: i64) -> Result<Vec<Arc<Log>>> {
        let names = wanted.iter();
        let names = names.map(|each| (each.topic.clone(), each.partition));
        let taken = self.names_taken.take(names.collect());
        let _taken = taken.map_err(|(topic, partition)| Error::MoveNotEnded {
            topic: topic.to_string(),
            partition,
            path: self.path.clone(),
        })?;
        let _creating = self.creating.lock();
        // Here: what had one of the names may have been left on a disk that fails.
        self.health.check()?;
        for each in &wanted {
            let key = (each.topic.clone(), each.partition);
            if self.logs.read().contains_key(&key) {
                return Err(Error::InvalidArgument(format!(
                    "{}-{} exists already",
                    each.topic, each.partition
                )));
            }
        }
        for each in &wanted {
            if let Some(future) = self.future(&each.topic, each.partition) {
                self.delete_future(&future, now_ms)
                    .inspect_err(|error| self.health.fail_unless_short(error))?;
            }
        }
        self.forget_offsets(&wanted)?;
        let begun = Mutex::new(Vec::new());
        let made = Mutex::new(Vec::with_capacity(wanted.len()));
        let done = in_parallel(CREATING_THREADS, wanted, |each| {
            let log = self.make_log(each, now_ms, &begun)?;
            made.lock().push(log);
            Ok(())
        });
        let mut made = made.into_inner();
        if let Err(error) = done.and_then(|()| self.sync_names()) {
            made.clear();
            for path in begun.into_inner() {
                // What cannot be removed either, the next start calls stray.
                self.remove_deleted(&path).unwrap_or(());
            }
            self.health.fail_unless_short(&error);
            return Err(error);
        }
        made.sort_by(|one, other| {
            (one.topic(), one.partition()).cmp(&(other.topic(), other.partition()))
        });
        let mut logs = self.logs.write();
        for log in &made {
            let earlier = logs.insert((Arc::from(log.topic()), log.partition()), log.clone());
            assert!(earlier.is_none(), "two logs of one partition");
        }
        Ok(made)
    }

    /// As `create_logs`, but one that cannot be made keeps no other from being made. Returns those
    /// that were not made, each with the reason.
    pub fn create_each(&self, wanted: Vec<NewLog>, now_ms: i64) -> Vec<(TopicPartition, Error)> {
        let Err(error) = self.create_logs(wanted.clone(), now_ms) else {
            return Vec::new();
        };
        if wanted.len() == 1 || self.health.is_offline() {
            let failed = wanted.iter().map(|each| (each.key(), error.clone()));
            return failed.collect();
        }
        let alone = wanted.into_iter().map(|each| {
            let key = each.key();
            (key, self.create_logs(vec![each], now_ms).err())
        });
        alone
            .filter_map(|(key, error)| Some((key, error?)))
            .collect()
    }

    /// One of `create_logs`. Its directory is noted in `begun`, if it is not an older one.
    fn make_log(
        &self,
        wanted: NewLog,
        now_ms: i64,
        begun: &Mutex<Vec<PathBuf>>,
    ) -> Result<Arc<Log>> {
        let key = wanted.key();
        let name = key.to_string();
        let directory = self.path.join(&name);
        if partition_metadata::read(self.storage(), &directory)? != Some(wanted.topic_id) {
            match self.storage().read_directory(&directory) {
                // Of an older topic, which could not be renamed or removed:
                // its records are not ours.
                Ok(_) => drop(self.set_aside(&name, &key)?),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io("readdir", &directory)(error)),
            }
            begun.lock().push(directory.clone());
        }
        partition_metadata::begin_directory(self.storage(), &directory, wanted.topic_id)?;
        let parameters = LogParameters::new(
            directory,
            key.topic,
            key.partition,
            wanted.config,
            now_ms,
            self.next_seed(),
        );
        let (log, _) = self.load_log(parameters)?;
        if let Some(epoch) = wanted.leader_epoch {
            log.begin_first_epoch(epoch)?;
        }
        Ok(log)
    }

    /// Takes logs out that nobody has used yet, and removes their directories. Errors:
    /// the first failure, after all have had their turn; what is left is set aside when
    /// the name is given again.
    pub fn discard_logs(&self, logs: &[Arc<Log>], unique: &str, now_ms: i64) -> Result<()> {
        let at_once = Deadline::after(0, now_ms);
        let discarded = logs.iter().map(|log| {
            self.forget(log.topic(), log.partition());
            self.condemn(log, unique, at_once).map(drop)
        });
        discarded
            .fold(Ok(()), Result::and)
            .and(self.remove_condemned(now_ms))
    }

    /// Takes a log out and renames its directory `<topic>-<partition>.<unique>-delete`;
    /// whoever reads it reads on. Returns the new path; `remove_condemned` removes it after
    /// `file.delete.delay.ms`. The caller syncs the directory (`sync_deleted`) when all that
    /// go together are renamed.
    ///
    /// The log is out whatever happens, so that nobody gets it for a topic of the same name. If the
    /// rename fails, the log directory is offline from then on, as in Kafka.
    pub fn delete_log(
        &self,
        topic: &str,
        partition: i32,
        unique: &str,
        now_ms: i64,
    ) -> Result<PathBuf> {
        let log = self.forget(topic, partition).ok_or_else(|| {
            Error::InvalidArgument(format!(
                "{topic}-{partition} is not in {}",
                self.path.display()
            ))
        })?;
        self.delete_forgotten(&log, unique, now_ms)
    }

    /// The second half of `delete_log`: of a log that is out already, the directory is renamed,
    /// unless the thread that moved it has done that.
    pub fn delete_forgotten(&self, log: &Log, unique: &str, now_ms: i64) -> Result<PathBuf> {
        self.health.check()?;
        let due = Deadline::after(log.config().file_delete_delay_ms, now_ms);
        match self.condemn(log, unique, due) {
            Err(Error::LogDeleted { .. }) => Ok(log.directory()),
            // It may lie in another log directory since a move.
            renamed => renamed.inspect_err(|error| log.health.fail(error)),
        }
    }

    /// The first half of `delete_log`, which asks nothing of the disk: the log is out.
    pub fn forget(&self, topic: &str, partition: i32) -> Option<Arc<Log>> {
        let mut logs = self.logs.write();
        let log = logs.remove(&(Arc::from(topic), partition))?;
        let topic = topic.to_owned();
        self.gone.lock().insert(TopicPartition { topic, partition });
        Some(log)
    }

    pub(super) fn condemn(&self, log: &Log, unique: &str, due: Deadline) -> Result<PathBuf> {
        let name = renamed(
            log.topic(),
            log.partition(),
            unique,
            names::DELETE_DIRECTORY,
        );
        let to = log.delete(&name)?;
        if let Some(to) = &to {
            self.deletions.add_directory(to.clone(), due);
        }
        Ok(to.unwrap_or_else(|| self.path.join(name)))
    }

    /// After it returns, the logs that were deleted do not come back. If that cannot be had, the
    /// log directory is offline from then on.
    pub fn sync_deleted(&self) -> Result<()> {
        self.health.check()?;
        self.sync_names()
            .inspect_err(|error| self.health.fail(error))
    }

    /// After it returns, the names in the directory survive a power cut.
    pub(super) fn sync_names(&self) -> Result<()> {
        let synced = self.storage().sync_directory(&self.path);
        synced.map_err(Error::io("fsync", &self.path))
    }

    /// Removes the directories that `delete_log` has renamed and whose delay is over. Errors: the
    /// first failure; that directory is left to the next start.
    pub fn remove_condemned(&self, now_ms: i64) -> Result<()> {
        let due = self.deletions.take_due_directories(now_ms, usize::MAX);
        due.iter()
            .map(|path| self.remove_deleted(path))
            .fold(Ok(()), Result::and)
    }

    /// Removes the directory of a deleted log. Errors: `Io`; it is left to the next start.
    pub(in crate::log) fn remove_deleted(&self, path: &Path) -> Result<()> {
        let removed = self.storage().remove_directory_all(path);
        removed.map_err(Error::io("rmdir", path))
    }
}

/// `<topic>-<partition>.<unique><suffix>`. Kafka shortens the topic so that the name stays within
/// what file systems take.
pub(super) fn renamed(topic: &str, partition: i32, unique: &str, suffix: &str) -> String {
    let fixed_bytes = format!("-{partition}.{unique}{suffix}").len();
    let mut topic_bytes = topic.len().min(255_usize.saturating_sub(fixed_bytes));
    while !topic.is_char_boundary(topic_bytes) {
        topic_bytes -= 1;
    }
    format!("{}-{partition}.{unique}{suffix}", &topic[..topic_bytes])
}

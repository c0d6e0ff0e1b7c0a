//! The logs of a log directory at the start: all of them read, several at a time, and after an
//! unclean stop made durable by one sync of their file system.
//!
//! ```text
//! marker removed ─► each log recovered, nothing of it synced ─► syncfs ─► the logs are the caller's
//!                   (power cut: recovered again)
//! ```
//! A log of few is synced by itself, file by file, and so is each one where the file system does
//! not tell of writes that have failed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::checkpoints::Checkpoints;
use super::logs::renamed;
use super::{DirectoryOptions, LogDirectory, in_parallel};
use crate::error::{Error, Result};
use crate::log::deadline::Deadline;
use crate::log::directory::offset_checkpoint::{OffsetCheckpoint, TopicPartition};
use crate::log::log::Log;
use crate::log::names;
use crate::log::partition_metadata;
use crate::log::recover::{LogParameters, load_of_topic};
use crate::uuid::Uuid;

/// The parts that the loads of all logs of a directory share.
struct Loading<'a> {
    options: &'a DirectoryOptions<'a>,
    checkpoints: Checkpoints,
    count: usize,
    /// One sync makes them all durable.
    is_synced_later: bool,
}

impl LogDirectory {
    /// Loads the logs, several at a time; once, after `claim`. From here on a crash is a crash.
    /// Returns the names of the directories that are stray now. Errors: `Io`; `CorruptFile`;
    /// `LoadStopped`.
    pub fn load(&self, options: &DirectoryOptions<'_>) -> Result<Vec<String>> {
        let storage = self.storage();
        let checkpoints = Checkpoints::read(storage, &self.path)?;
        if self.was_clean {
            let marker = self.path.join(names::CLEAN_SHUTDOWN);
            storage
                .remove_file(&marker)
                .map_err(Error::io("unlink", &marker))?;
            self.sync_names()?;
        }
        let todo = self.partitions(options.now_ms)?;
        let file_system = self.file_system_for(todo.len()).filter(|_| !self.was_clean);
        let loading = Loading {
            options,
            checkpoints,
            count: todo.len(),
            is_synced_later: file_system.is_some(),
        };
        let strays = Mutex::new(Vec::new());
        in_parallel(options.recovery_threads, todo, |(name, key)| {
            let id = partition_metadata::read(storage, &self.path.join(&name))?;
            if (options.is_ours)(&key.topic, key.partition, id) {
                return self.load_one(&loading, &name, &key, id);
            }
            let stray = self.set_aside(&name, &key)?;
            strays.lock().push(stray);
            self.strays.lock().insert(key);
            Ok(())
        })?;
        if let Some(file_system) = file_system {
            self.sync_all(file_system)?;
        }
        let mut gone = loading.checkpoints.into_names();
        gone.retain(|name| {
            let (topic, partition) = (&name.topic, name.partition);
            self.log(topic, partition).is_none() && self.future(topic, partition).is_none()
        });
        *self.gone.lock() = gone;
        let mut strays = strays.into_inner();
        strays.sort();
        Ok(strays)
    }

    /// Names of the partitions' directories, in order. Those of deleted ones are left to the
    /// housekeeper, so that no start waits for them, or fails with one that cannot be removed.
    fn partitions(&self, now_ms: i64) -> Result<Vec<(String, TopicPartition)>> {
        let mut found = Vec::new();
        let entries = self.storage().read_directory(&self.path);
        let entries = entries.map_err(Error::io("readdir", &self.path))?;
        for entry in entries.into_iter().filter(|entry| entry.is_directory) {
            if names::parse_suffixed_directory(&entry.name, names::DELETE_DIRECTORY).is_some() {
                let at_once = Deadline::after(0, now_ms);
                self.deletions
                    .add_directory(self.path.join(&entry.name), at_once);
            } else if let Some((topic, partition)) = names::parse_partition_directory(&entry.name)
                .or_else(|| names::parse_future_directory(&entry.name))
                && topic != names::METADATA_TOPIC
            {
                let topic = topic.to_owned();
                let key = TopicPartition { topic, partition };
                found.push((entry.name, key));
            }
        }
        found.sort();
        Ok(found)
    }

    /// Renames a stray partition `<topic>-<partition>.<unique>-stray`, as
    /// Kafka's `LogManager` does.
    pub(super) fn set_aside(&self, name: &str, key: &TopicPartition) -> Result<String> {
        let unique = format!("{:016x}{:016x}", self.next_seed(), self.next_seed());
        let to = renamed(&key.topic, key.partition, &unique, names::STRAY_DIRECTORY);
        let from = self.path.join(name);
        self.storage()
            .rename(&from, &self.path.join(&to))
            .map_err(Error::io("rename", &from))?;
        self.sync_names()?;
        Ok(to)
    }

    /// Takes a log out that another directory has, too, and sets its directory
    /// aside. Returns the new path.
    pub(super) fn set_log_aside(&self, other: &Log) -> Result<PathBuf> {
        let (topic, partition) = (other.topic().to_owned(), other.partition());
        self.logs
            .write()
            .remove(&(Arc::from(topic.as_str()), partition));
        let key = TopicPartition { topic, partition };
        // The files name it until another log of its name is made here.
        self.gone.lock().insert(key.clone());
        let name = self.set_aside(&key.to_string(), &key)?;
        self.strays.lock().insert(key);
        Ok(self.path.join(name))
    }

    fn load_one(
        &self,
        loading: &Loading<'_>,
        name: &str,
        key: &TopicPartition,
        topic_id: Option<Uuid>,
    ) -> Result<()> {
        let Loading {
            options,
            checkpoints,
            ..
        } = loading;
        if options.stop.load(Ordering::Relaxed) {
            return Err(Error::LoadStopped);
        }
        let offset_in = |checkpoint: &OffsetCheckpoint| {
            checkpoint.offsets.get(key).copied().unwrap_or(0).max(0)
        };
        let is_single = (options.is_single_replica)(&key.topic, key.partition)
            && !name.ends_with(names::FUTURE_DIRECTORY);
        let high_watermark = offset_in(&checkpoints.high_watermark);
        let parameters = LogParameters {
            directory: self.path.join(name),
            topic: key.topic.clone(),
            partition: key.partition,
            config: (options.config_of)(&key.topic),
            log_start_offset: offset_in(&checkpoints.log_start_offset),
            recovery_point: offset_in(&checkpoints.recovery_point),
            high_watermark: (!is_single).then_some(high_watermark),
            was_clean: self.was_clean,
            is_synced_later: loading.is_synced_later,
            stop: options.stop.clone(),
            now_ms: options.now_ms,
            jitter_seed: self.next_seed(),
        };
        let (log, mut report) =
            load_of_topic(&self.open_segments, &self.health, parameters, topic_id)?;
        if name.ends_with(names::FUTURE_DIRECTORY) {
            log.condemned.read().join(&self.deletions);
            return self.add_future(key, log);
        }
        report.is_cut = log.offsets().log_end_offset < high_watermark;
        log.condemned.read().join(&self.deletions);
        (options.on_loaded)(&log, &report, loading.count);
        self.logs
            .write()
            .insert((Arc::from(key.topic.as_str()), key.partition), log);
        Ok(())
    }
}

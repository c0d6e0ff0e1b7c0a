//! A log directory (`log.dirs` names one or several): the lock, the checkpoint files, and the logs of
//! its partitions.
//!
//! ```text
//! <log.dir>/meta.properties                    cluster, node and directory id
//!           .lock                              record lock, held while a broker lives
//!           .kafka_cleanshutdown               written last by a clean stop, removed at the start
//!           recovery-point-offset-checkpoint   from where an unclean start recovers each partition
//!           replication-offset-checkpoint      high watermarks
//!           log-start-offset-checkpoint        where DeleteRecords has moved the start
//!           cleaner-offset-checkpoint          up to where the cleaner has been
//!           orders-0/ …                        one directory per partition
//! ```

mod checkpoints;
pub mod clean_shutdown;
pub mod directories;
pub mod flusher;
mod loading;
pub mod meta_properties;
pub mod offset_checkpoint;
mod ownership;

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::error::{Error, Result};
use crate::limits::{CREATING_THREADS, SYNC_FILE_SYSTEM_LOGS_MIN};
use crate::uuid::Uuid;

use crate::log::config::LogConfig;
use crate::log::deadline::Deadline;
use crate::log::directory::flusher::{FlushTotals, Flusher};
use crate::log::directory::meta_properties::MetaProperties;
use crate::log::directory::offset_checkpoint::TopicPartition;
use crate::log::directory::ownership::{Found, examine, format, refused, undo_format};
use crate::log::health::Health;
use crate::log::log::Log;
use crate::log::names;
use crate::log::recover::{
    LoadReport, LogParameters, begin_directory, create_directory, load, read_topic_id,
};
use crate::log::segment::delayed_deletion::Deletions;
use crate::log::segment::open_segments::OpenSegments;
use crate::log::storage::{Storage, StorageFileSystem, StorageLock, read_file, replace_file};

/// How to open a log directory.
pub struct DirectoryOptions<'a> {
    /// What the directory must belong to, or is formatted for if it is empty. `directory_id` is
    /// that of a directory to be formatted.
    pub identity: MetaProperties,
    /// Configuration of a topic's logs.
    pub config_of: &'a (dyn Fn(&str) -> LogConfig + Sync),
    /// Whether the partition of this id (`partition.metadata`; `None`: it has none) is one of this
    /// node's. One that is not is stray: its directory is renamed and left alone.
    pub is_ours: &'a (dyn Fn(&str, i32, Option<Uuid>) -> bool + Sync),
    /// Told about each partition after it is loaded, with how many there are: progress.
    pub on_loaded: &'a (dyn Fn(&Log, &LoadReport, usize) + Sync),
    /// `num.recovery.threads.per.data.dir`, for loading and for the clean stop
    pub recovery_threads: usize,
    pub flush_threads: usize,
    /// Whether this broker is alone: then everything on disk is visible, whatever the checkpointed
    /// high watermark says.
    pub is_single_replica: bool,
    pub now_ms: i64,
    pub jitter_seed: u64,
    /// Set from elsewhere: `load` is given up soon, with `LoadStopped`.
    pub stop: Arc<AtomicBool>,
}

/// An empty log that is to be made.
#[derive(Clone)]
pub struct NewLog {
    pub topic: Arc<str>,
    pub partition: i32,
    pub topic_id: Uuid,
    pub config: LogConfig,
    /// Of its first leader, if it has one already.
    pub leader_epoch: Option<i32>,
}

impl NewLog {
    fn key(&self) -> TopicPartition {
        TopicPartition {
            topic: self.topic.to_string(),
            partition: self.partition,
        }
    }
}

type LogsByPartition = HashMap<(Arc<str>, i32), Arc<Log>>;

/// A log directory in use. Dropping it releases the lock; without `close` before, that is a crash.
pub struct LogDirectory {
    path: PathBuf,
    identity: MetaProperties,
    open_segments: Arc<OpenSegments>,
    health: Arc<Health>,
    logs: RwLock<LogsByPartition>,
    /// Names of logs that are gone, of which the checkpoint files may still say something.
    gone: Mutex<HashSet<TopicPartition>>,
    /// How many logs are about to be made.
    expected: AtomicUsize,
    /// Held by whoever makes logs.
    creating: Mutex<()>,
    flusher: Flusher,
    /// For the start and the clean stop. Not the flusher's: Linux tells of a failed write once to each
    /// descriptor.
    file_system: Option<Box<dyn StorageFileSystem>>,
    was_clean: bool,
    previous_broker_epoch: Option<i64>,
    /// What waits for `file.delete.delay.ms`.
    deletions: Arc<Deletions>,
    jitter_seed: Mutex<u64>,
    /// Held while a checkpoint file is written, from the look at what it is to say.
    checkpointing: Mutex<()>,
    is_single_replica: bool,
    recovery_threads: usize,
    _lock: Box<dyn StorageLock>,
}

impl LogDirectory {
    /// `claim` and `load`, where nobody asks for the names of stray partitions.
    pub fn open(
        open_segments: &Arc<OpenSegments>,
        path: &Path,
        options: &DirectoryOptions<'_>,
    ) -> Result<LogDirectory> {
        let directory = LogDirectory::claim(open_segments, path, options)?;
        directory.load(options)?;
        Ok(directory)
    }

    /// Takes the directory and formats it if it is empty. A directory of Kafka's is not changed.
    ///
    /// Errors, each before anything is changed on disk: `LogDirRefused` (not a directory of Kafka's,
    /// of a future version, of another cluster or node, not writable, with a subdirectory that is
    /// no partition), `LogDirLocked`, `CorruptFile` (a `meta.properties` that cannot be read).
    pub fn claim(
        open_segments: &Arc<OpenSegments>,
        path: &Path,
        options: &DirectoryOptions<'_>,
    ) -> Result<LogDirectory> {
        let storage = &*open_segments.storage;
        let found = examine(storage, path, &options.identity)?;
        if found.is_none() {
            storage.create_directory_all(path).map_err(refused(path))?;
        }
        let lock_path = path.join(names::LOCK);
        let was_locked_before = storage.file_size(&lock_path).map_err(refused(path))?;
        let lock = storage.lock(&lock_path).map_err(refused(path))?;
        let lock = lock.ok_or_else(|| Error::LogDirLocked {
            path: path.to_path_buf(),
        })?;
        let was_there = found.is_some();
        let identity = match found {
            Some(Found {
                identity: Some(identity),
                ..
            }) => identity,
            _ => format(storage, path, &options.identity, options.now_ms).inspect_err(|_| {
                undo_format(storage, path, was_there, was_locked_before.is_some());
            })?,
        };
        let file_system = || storage.file_system(path).map_err(Error::io("open", path));
        let marker = path.join(names::CLEAN_SHUTDOWN);
        let marker_text = read_file(storage, &marker).map_err(Error::io("read", &marker))?;
        Ok(LogDirectory {
            path: path.to_path_buf(),
            identity,
            open_segments: open_segments.clone(),
            health: Arc::new(Health::new(path)),
            logs: RwLock::default(),
            gone: Mutex::default(),
            expected: AtomicUsize::new(0),
            creating: Mutex::new(()),
            flusher: Flusher::start(&thread_name(path), options.flush_threads, file_system()?)
                .map_err(Error::io("start a thread for", path))?,
            file_system: file_system()?,
            was_clean: marker_text.is_some(),
            previous_broker_epoch: marker_text.as_deref().and_then(clean_shutdown::parse),
            deletions: Arc::default(),
            jitter_seed: Mutex::new(options.jitter_seed),
            checkpointing: Mutex::new(()),
            is_single_replica: options.is_single_replica,
            recovery_threads: options.recovery_threads,
            _lock: lock,
        })
    }

    /// The controller's log, which no broker loads (`LogManager`); made if it is not there. It is
    /// not one of `logs`, and `close` leaves it alone.
    pub fn open_metadata_log(
        &self,
        config: LogConfig,
        now_ms: i64,
    ) -> Result<(Arc<Log>, LoadReport)> {
        self.health.check()?;
        let directory = self.path.join(names::METADATA_DIRECTORY);
        let storage = self.storage();
        let is_there = storage.read_directory(&directory).is_ok_and(|entries| {
            entries
                .iter()
                .any(|entry| entry.name == names::PARTITION_METADATA)
        });
        if !is_there {
            create_directory(storage, &directory, names::METADATA_TOPIC_ID)?;
        }
        // As after a kill, whatever the marker says: in Kafka the quorum stops after it is written.
        let topic = names::METADATA_TOPIC.to_owned();
        let seed = self.next_seed();
        let parameters = LogParameters::new(directory, topic, 0, config, now_ms, seed);
        self.load_log(parameters)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn identity(&self) -> &MetaProperties {
        &self.identity
    }

    /// Whether the last process that used the directory stopped cleanly.
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// The broker epoch that a clean stop left behind (KIP-966).
    pub fn previous_broker_epoch(&self) -> Option<i64> {
        self.previous_broker_epoch
    }

    /// Held while a checkpoint file is read and written, as by `compact/checkpoints.rs`.
    pub(super) fn checkpoint_lock(&self) -> MutexGuard<'_, ()> {
        self.checkpointing.lock()
    }

    pub fn storage(&self) -> &dyn Storage {
        &*self.open_segments.storage
    }

    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// How many connections the process may hold beside its files.
    pub fn connections_max(&self) -> usize {
        self.open_segments.connections_max()
    }

    /// So many logs will be made soon: they count for where the next ones go.
    pub fn expect_logs(&self, count: usize) {
        self.expected.fetch_add(count, Ordering::Relaxed);
    }

    /// They have been, or cannot be.
    pub fn expect_no_more(&self, count: usize) {
        self.expected.fetch_sub(count, Ordering::Relaxed);
    }

    /// Those included that will be made soon.
    pub fn log_count(&self) -> usize {
        self.logs.read().len() + self.expected.load(Ordering::Relaxed)
    }

    pub fn logs(&self) -> Vec<Arc<Log>> {
        self.logs.read().values().cloned().collect()
    }

    pub fn log(&self, topic: &str, partition: i32) -> Option<Arc<Log>> {
        self.logs
            .read()
            .get(&(Arc::from(topic), partition))
            .cloned()
    }

    /// Whether this very log is one of `logs`.
    pub(super) fn has(&self, log: &Log) -> bool {
        self.log(log.topic(), log.partition())
            .is_some_and(|known| std::ptr::eq(&*known, log))
    }

    /// Asks for a group commit of what has been appended to `log`.
    pub fn request_flush(&self, log: &Arc<Log>) {
        self.flusher.request(log);
    }

    /// Flushes `log` on this thread. Its failure is the directory's, and the log's observer is told.
    pub fn flush_here(&self, log: &Arc<Log>) {
        self.flusher.flush_here(log);
    }

    pub fn flush_totals(&self) -> FlushTotals {
        self.flusher.totals()
    }

    /// Flushes have lately been so fast that a network thread may wait for one.
    pub fn flushes_fast(&self) -> bool {
        self.flusher.is_fast()
    }

    /// Whether the directory of a partition with this topic id is here, loaded or not.
    pub fn holds(&self, topic: &str, partition: i32, id: Uuid) -> bool {
        read_topic_id(
            self.storage(),
            &self.path.join(format!("{topic}-{partition}")),
        )
        .is_ok_and(|found| found == Some(id))
    }

    /// Makes an empty log. After it returns, the partition and its topic id survive a power cut.
    ///
    /// Errors: `InvalidArgument` if it is there already; `LogDirOffline`; `Io`.
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

    /// Makes empty logs, several at a time, so that their fsyncs share commits of the file system.
    /// After it returns, all of them and their topic ids survive a power cut. They come by topic and
    /// partition.
    ///
    /// Errors: those of `create_log`, and then none of them is there, nor are their directories,
    /// unless these cannot be removed either.
    pub fn create_logs(&self, wanted: Vec<NewLog>, now_ms: i64) -> Result<Vec<Arc<Log>>> {
        self.health.check()?;
        let _creating = self.creating.lock();
        for each in &wanted {
            let key = (each.topic.clone(), each.partition);
            if self.logs.read().contains_key(&key) {
                return Err(Error::InvalidArgument(format!(
                    "{}-{} exists already",
                    each.topic, each.partition
                )));
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
            return Err(error);
        }
        made.sort_by(|one, other| {
            (one.topic(), one.partition()).cmp(&(other.topic(), other.partition()))
        });
        let mut logs = self.logs.write();
        for log in &made {
            logs.insert((Arc::from(log.topic()), log.partition()), log.clone());
        }
        Ok(made)
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
        if read_topic_id(self.storage(), &directory)? != Some(wanted.topic_id) {
            match self.storage().read_directory(&directory) {
                // Of an older topic, which could not be renamed or removed: its records are not ours.
                Ok(_) => drop(self.set_aside(&name, &key)?),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io("readdir", &directory)(error)),
            }
            begun.lock().push(directory.clone());
        }
        begin_directory(self.storage(), &directory, wanted.topic_id)?;
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

    /// Takes logs out that nobody has used yet, and removes their directories. Errors: the first
    /// failure, after all have had their turn; what is left is set aside when the name is given again.
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

    /// Takes a log out and renames its directory `<topic>-<partition>.<unique>-delete`; whoever reads
    /// it reads on. Returns the new path; `remove_condemned` removes it after `file.delete.delay.ms`.
    /// The caller syncs the directory (`sync_deleted`) when all that go together are renamed.
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

    /// The second half of `delete_log`: of a log that is out already, the directory is renamed.
    pub fn delete_forgotten(&self, log: &Log, unique: &str, now_ms: i64) -> Result<PathBuf> {
        self.health.check()?;
        let due = Deadline::after(log.config().file_delete_delay_ms, now_ms);
        let renamed = self.condemn(log, unique, due);
        renamed.inspect_err(|error| self.health.fail(error))
    }

    /// The first half of `delete_log`, which asks nothing of the disk: the log is out.
    pub fn forget(&self, topic: &str, partition: i32) -> Option<Arc<Log>> {
        let mut logs = self.logs.write();
        let log = logs.remove(&(Arc::from(topic), partition))?;
        let topic = topic.to_owned();
        self.gone.lock().insert(TopicPartition { topic, partition });
        Some(log)
    }

    fn condemn(&self, log: &Log, unique: &str, due: Deadline) -> Result<PathBuf> {
        let name = renamed(
            log.topic(),
            log.partition(),
            unique,
            names::DELETE_DIRECTORY,
        );
        let to = self.path.join(name);
        if log.delete(&to)? {
            self.deletions.add_directory(to.clone(), due);
        }
        Ok(to)
    }

    /// After it returns, the logs that were deleted do not come back. If that cannot be had, the log
    /// directory is offline from then on.
    pub fn sync_deleted(&self) -> Result<()> {
        self.health.check()?;
        self.sync_names()
            .inspect_err(|error| self.health.fail(error))
    }

    /// After it returns, the names in the directory survive a power cut.
    fn sync_names(&self) -> Result<()> {
        let synced = self.storage().sync_directory(&self.path);
        synced.map_err(Error::io("fsync", &self.path))
    }

    /// Removes the directories that `delete_log` has renamed and whose delay is over. Errors: the
    /// first failure; that directory is left to the next start.
    pub fn remove_condemned(&self, now_ms: i64) -> Result<()> {
        let due = self.deletions.take_due_directories(now_ms);
        due.iter()
            .map(|path| self.remove_deleted(path))
            .fold(Ok(()), Result::and)
    }

    /// What waits for `file.delete.delay.ms`, of all logs.
    pub(super) fn deletions(&self) -> &Deletions {
        &self.deletions
    }

    fn load_log(&self, parameters: LogParameters) -> Result<(Arc<Log>, LoadReport)> {
        let (log, report) = load(&self.open_segments, &self.health, parameters)?;
        log.condemned.join(&self.deletions);
        Ok((log, report))
    }

    fn remove_deleted(&self, path: &Path) -> Result<()> {
        let removed = self.storage().remove_directory_all(path);
        removed.map_err(Error::io("rmdir", path))
    }

    /// The clean stop: all logs flushed and snapshotted, checkpoints, then the marker, last. If any
    /// part fails there is no marker, and the next start recovers.
    pub fn close(&self, broker_epoch: i64) -> Result<()> {
        self.health.check()?;
        let logs = self.logs();
        match self.file_system_for(logs.len()) {
            Some(file_system) => self.close_together(logs, file_system)?,
            None => in_parallel(self.recovery_threads, logs, |log| log.close())?,
        }
        self.write_checkpoint_files()?;
        let marker = self.path.join(names::CLEAN_SHUTDOWN);
        let text = clean_shutdown::print(broker_epoch);
        replace_file(self.storage(), &marker, text.as_bytes()).map_err(Error::io("write", &marker))
    }

    /// Closes logs with one sync of their file system.
    fn close_together(
        &self,
        logs: Vec<Arc<Log>>,
        file_system: &dyn StorageFileSystem,
    ) -> Result<()> {
        let begun = Mutex::new(Vec::with_capacity(logs.len()));
        in_parallel(self.recovery_threads, logs, |log| {
            if let Some(shared) = log.begin_shared_close()? {
                begun.lock().push((log, shared));
            }
            Ok(())
        })?;
        self.sync_all(file_system)
            .inspect_err(|error| self.health.fail(error))?;
        let mut finished = begun.into_inner().into_iter();
        finished.try_for_each(|(log, shared)| log.finish_shared_close(shared))
    }

    /// The file system, where one sync of it costs less than those of so many logs.
    fn file_system_for(&self, logs: usize) -> Option<&dyn StorageFileSystem> {
        let file_system = self.file_system.as_deref();
        file_system.filter(|_| logs >= SYNC_FILE_SYSTEM_LOGS_MIN)
    }

    fn sync_all(&self, file_system: &dyn StorageFileSystem) -> Result<()> {
        file_system.sync().map_err(Error::io("syncfs", &self.path))
    }

    fn next_seed(&self) -> u64 {
        let mut seed = self.jitter_seed.lock();
        crate::log::log::next_jitter(&mut seed, i64::MAX) as u64
    }
}

/// `<topic>-<partition>.<unique><suffix>`. Kafka shortens the topic so that the name stays within
/// what file systems take.
fn renamed(topic: &str, partition: i32, unique: &str, suffix: &str) -> String {
    let fixed_bytes = format!("-{partition}.{unique}{suffix}").len();
    let mut topic_bytes = topic.len().min(255_usize.saturating_sub(fixed_bytes));
    while !topic.is_char_boundary(topic_bytes) {
        topic_bytes -= 1;
    }
    format!("{}-{partition}.{unique}{suffix}", &topic[..topic_bytes])
}

/// Does the work for each item, in order, several at a time. Errors: the first; what has not begun
/// by then is left.
fn in_parallel<T: Send>(
    threads: usize,
    items: Vec<T>,
    work: impl Fn(T) -> Result<()> + Sync,
) -> Result<()> {
    let count = items.len();
    if count <= 1 {
        return items.into_iter().try_for_each(work);
    }
    let todo = Mutex::new(items.into_iter());
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    let next = todo.lock().next();
                    let Some(item) = next.filter(|_| failure.lock().is_none()) else {
                        return;
                    };
                    if let Err(error) = work(item) {
                        failure.lock().get_or_insert(error);
                    }
                }
            });
        }
    });
    failure.into_inner().map_or(Ok(()), Err)
}

fn thread_name(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

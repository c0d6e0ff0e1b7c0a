//! A log directory (`log.dirs` names one or several): the lock, the checkpoint files, and
//! the logs of its partitions.
//!
//! ```text
//! <log.dir>/meta.properties                    cluster, node and directory id
//!           .lock                              record lock, held while a broker lives
//!           .kafka_cleanshutdown               written last by a clean stop, removed at the start
//!           recovery-point-offset-checkpoint   from where an unclean start recovers each partition
//!           replication-offset-checkpoint      high watermarks
//!           log-start-offset-checkpoint        where DeleteRecords has moved the start
//!           cleaner-offset-checkpoint          up to where the cleaner has been
//!           kafkalite-cancelled-moves          future replicas that a start deletes (`cancelled_moves.rs`)
//!           orders-0/ …                        one directory per partition
//!           orders-1.<unique>-future/ …        a replica on its way here (`futures.rs`)
//! ```

mod cancelled_moves;
pub mod checkpoint_files;
mod checkpoints;
pub mod clean_shutdown;
pub mod directories;
pub mod flusher;
mod futures;
mod loading;
mod logs;
pub mod meta_properties;
mod names_taken;
pub mod offset_checkpoint;
mod ownership;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use parking_lot::{Mutex, RwLock};

use crate::error::{Error, Result};
use crate::limits::SYNC_FILE_SYSTEM_LOGS_MIN;
use crate::log::config::LogConfig;
use crate::log::directory::cancelled_moves::CancelledMoves;
use crate::log::directory::checkpoint_files::KnownCheckpoints;
use crate::log::directory::flusher::{FlushTotals, Flusher};
use crate::log::directory::meta_properties::MetaProperties;
use crate::log::directory::names_taken::NamesTaken;
pub use crate::log::directory::names_taken::TakenNames;
use crate::log::directory::offset_checkpoint::TopicPartition;
use crate::log::directory::ownership::{Found, examine, format, refused, undo_format};
use crate::log::health::Health;
use crate::log::log::Log;
use crate::log::names;
use crate::log::partition_metadata;
use crate::log::recover::{LoadReport, LogParameters, load};
use crate::log::segment::delayed_deletion::Deletions;
use crate::log::segment::open_segments::OpenSegments;
use crate::log::storage::{Storage, StorageFileSystem, StorageLock, read_file, replace_file};
use crate::uuid::Uuid;

/// How to open a log directory.
pub struct DirectoryOptions<'a> {
    /// The identity that the directory must have, or is formatted with if it is empty.
    /// `directory_id` is that of a directory to be formatted.
    pub identity: MetaProperties,
    /// Configuration of a topic's logs.
    pub config_of: &'a (dyn Fn(&str) -> LogConfig + Sync),
    /// Says whether the partition of this id (`partition.metadata`; `None`: it has none) is one of
    /// this node's. One that is not is stray: its directory is renamed and left alone.
    pub is_ours: &'a (dyn Fn(&str, i32, Option<Uuid>) -> bool + Sync),
    /// Told about each partition after it is loaded, with how many there are: progress.
    pub on_loaded: &'a (dyn Fn(&Log, &LoadReport, usize) + Sync),
    /// `num.recovery.threads.per.data.dir`, for loading and for the clean stop
    pub recovery_threads: usize,
    pub flush_threads: usize,
    /// Says whether a partition of this node's has no other replica: then everything on disk is
    /// visible, whatever the checkpointed high watermark says.
    pub is_single_replica: &'a (dyn Fn(&str, i32) -> bool + Sync),
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
    /// The epoch of its first leader, if it has one already.
    pub leader_epoch: Option<i32>,
}

impl NewLog {
    pub fn key(&self) -> TopicPartition {
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
    futures: RwLock<LogsByPartition>,
    /// Future replicas that nobody needs any more, and whose directories are still to be deleted.
    given_up: Mutex<Vec<Arc<Log>>>,
    /// The file `kafkalite-cancelled-moves` names these.
    cancelled: Mutex<CancelledMoves>,
    /// Names of logs that are gone, of which the checkpoint files may still say something.
    gone: Mutex<HashSet<TopicPartition>>,
    /// Names of partitions that were stray at the start: of older topics,
    /// whose offsets the files have.
    strays: Mutex<HashSet<TopicPartition>>,
    /// How many logs are about to be made.
    expected: AtomicUsize,
    /// Held by whoever makes logs.
    creating: Mutex<()>,
    names_taken: NamesTaken,
    flusher: Flusher,
    /// For the start and the clean stop. Not the flusher's: Linux tells of a failed write
    /// once to each descriptor.
    file_system: Option<Box<dyn StorageFileSystem>>,
    was_clean: bool,
    previous_broker_epoch: Option<i64>,
    /// Files and directories that wait for `file.delete.delay.ms`.
    deletions: Arc<Deletions>,
    jitter_seed: Mutex<u64>,
    /// Held while a checkpoint file is written, from the look at what it is to say.
    checkpointing: Mutex<KnownCheckpoints>,
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
    /// Errors, each before anything is changed on disk: `LogDirRefused` (not a directory of
    /// Kafka's, of a future version, of another cluster or node, not writable, with a
    /// subdirectory that is no partition), `LogDirLocked`, `CorruptFile` (a
    /// `meta.properties` that cannot be read).
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
            futures: RwLock::default(),
            given_up: Mutex::default(),
            cancelled: Mutex::default(),
            gone: Mutex::default(),
            strays: Mutex::default(),
            expected: AtomicUsize::new(0),
            creating: Mutex::new(()),
            names_taken: NamesTaken::default(),
            flusher: Flusher::start(&thread_name(path), options.flush_threads, file_system()?)
                .map_err(Error::io("start a thread for", path))?,
            file_system: file_system()?,
            was_clean: marker_text.is_some(),
            previous_broker_epoch: marker_text.as_deref().and_then(clean_shutdown::parse),
            deletions: Arc::default(),
            jitter_seed: Mutex::new(options.jitter_seed),
            checkpointing: Mutex::default(),
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
            partition_metadata::create_directory(storage, &directory, names::METADATA_TOPIC_ID)?;
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

    /// Says whether the last process that used the directory stopped cleanly.
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// The broker epoch that a clean stop left behind (KIP-966).
    pub fn previous_broker_epoch(&self) -> Option<i64> {
        self.previous_broker_epoch
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

    /// As `OpenSegments::is_crowded`.
    pub fn is_crowded(&self) -> bool {
        self.open_segments.is_crowded()
    }

    /// So many logs will be made soon: they count for where the next ones go.
    pub fn expect_logs(&self, count: usize) {
        self.expected.fetch_add(count, Ordering::Relaxed);
    }

    /// They have been, or cannot be.
    pub fn expect_no_more(&self, count: usize) {
        self.expected.fetch_sub(count, Ordering::Relaxed);
    }

    /// The number of logs, including those that will be created soon.
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

    /// Says whether this very log is one of `logs`.
    pub(super) fn has(&self, log: &Log) -> bool {
        self.log(log.topic(), log.partition())
            .is_some_and(|known| std::ptr::eq(&*known, log))
    }

    /// Asks for a group commit of what has been appended to `log`.
    pub fn request_flush(&self, log: &Arc<Log>) {
        self.flusher.request(log);
    }

    /// Flushes `log` on this thread. Its failure is the directory's, and
    /// the log's observer is told.
    pub fn flush_here(&self, log: &Arc<Log>) {
        self.flusher.flush_here(log);
    }

    /// Flushes logs of this directory on this thread, by one sync of the file
    /// system where they are many.
    pub fn flush_all_here(&self, logs: &[Arc<Log>]) {
        self.flusher.flush_all_here(logs);
    }

    pub fn flush_totals(&self) -> FlushTotals {
        self.flusher.totals()
    }

    /// Flushes have lately been so fast that a network thread may wait for one.
    pub fn flushes_fast(&self) -> bool {
        self.flusher.is_fast()
    }

    /// Says whether the directory of a partition with this topic id is here, loaded or not.
    pub fn holds(&self, topic: &str, partition: i32, id: Uuid) -> bool {
        partition_metadata::read(
            self.storage(),
            &self.path.join(format!("{topic}-{partition}")),
        )
        .is_ok_and(|found| found == Some(id))
    }

    /// Files and directories of all logs that wait for `file.delete.delay.ms`.
    pub(super) fn deletions(&self) -> &Deletions {
        &self.deletions
    }

    fn load_log(&self, parameters: LogParameters) -> Result<(Arc<Log>, LoadReport)> {
        let (log, report) = load(&self.open_segments, &self.health, parameters)?;
        log.condemned.read().join(&self.deletions);
        Ok((log, report))
    }

    /// The clean stop: all logs flushed and snapshotted, checkpoints, then the marker, last. If any
    /// part fails there is no marker, and the next start recovers.
    pub fn close(&self, broker_epoch: i64) -> Result<()> {
        self.health.check()?;
        // The next start removes them.
        self.delete_given_up(0)?;
        let logs = self.all_logs();
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

//! This node's partitions: its log directories, and the image that says what is in them. Knows no
//! socket and no Python.
//!
//! ```text
//! Claimed::open      locks and meta.properties; nothing of a directory of Kafka's is changed
//!   metadata is read (python/kafkalite/metadata/store.py) and says which topics there are
//! Node::load         the logs of those topics; a partition of no topic is stray
//! ```

use std::collections::HashMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::error::{Error, Result};
use crate::image::{Broker, Features, Image, Partition, Topic};
use crate::log::config::LogConfig;
use crate::log::directories::LogDirectories;
use crate::log::directory::{DirectoryOptions, LogDirectory, NewLog};
use crate::log::housekeeper::{CleanerSettings, Housekeeper, HousekeeperThread, Intervals};
use crate::log::log::Log;
use crate::log::meta_properties::MetaProperties;
use crate::log::open_segments::OpenSegments;
use crate::log::recover::LoadReport;
use crate::log::storage::DiskStorage;
use crate::park::{Waiters, Wake};
use crate::uuid::Uuid;

/// How to open a node.
pub struct NodeOptions {
    pub node_id: i32,
    pub cluster_id: String,
    /// `log.dirs`
    pub paths: Vec<PathBuf>,
    /// `metadata.log.dir`
    pub metadata_path: PathBuf,
    /// `num.recovery.threads.per.data.dir`
    pub recovery_threads: usize,
    pub flush_threads: usize,
    /// `kafkalite.open.segments.max`
    pub open_segments_max: usize,
    pub now_ms: i64,
}

/// What metadata says of a topic.
pub struct TopicPlan {
    pub name: String,
    pub id: Uuid,
    pub is_internal: bool,
    pub config: LogConfig,
    /// By index.
    pub partitions: Vec<PartitionPlan>,
}

/// What metadata says of a partition.
pub struct PartitionPlan {
    pub leader_epoch: i32,
    /// Of the log directory.
    pub directory_id: Uuid,
}

/// What lies in each log directory.
pub type ByDirectory<T> = Vec<(Arc<LogDirectory>, Vec<T>)>;

/// A partition that does not lie where its plan says.
pub struct Moved {
    pub topic_id: Uuid,
    pub partition: i32,
    /// Of the log directory where it lies.
    pub directory_id: Uuid,
}

/// A node whose logs are loaded.
pub struct Loaded {
    pub node: Node,
    /// What was not as a clean stop leaves it, a sentence each.
    pub notes: Vec<String>,
    pub moved: Vec<Moved>,
}

/// How far `Node::load` has come; may be read meanwhile.
#[derive(Default)]
pub struct LoadProgress {
    pub logs: AtomicUsize,
    /// What had to be read again, since the stop before was not a clean one.
    pub recovered_bytes: AtomicU64,
    /// Set by whoever is told to stop the broker: the load ends soon, with `LoadStopped`.
    pub stop: Arc<AtomicBool>,
}

/// Log directories that are this process's, and not loaded yet.
pub struct Claimed {
    pub progress: Arc<LoadProgress>,
    options: NodeOptions,
    directories: LogDirectories,
    /// Where `__cluster_metadata-0` lies: one of the directories, or one for itself.
    metadata: Arc<LogDirectory>,
    jitter_seed: u64,
}

/// A partition for `Claimed::options_of` whose topic is not known.
fn no_topic(_: &str, _: i32, _: Option<Uuid>) -> bool {
    false
}

impl Claimed {
    /// Takes the log directories, formats those that are empty. Those of Kafka's are not changed.
    ///
    /// Errors: that of the first directory, if none can be had; that of the metadata directory;
    /// `LogDirRefused` if two do not go together.
    pub fn open(options: NodeOptions) -> Result<Claimed> {
        let open_segments = OpenSegments::new(Arc::new(DiskStorage), options.open_segments_max);
        let has_own = !options.paths.contains(&options.metadata_path);
        let directory_ids = (0..=options.paths.len())
            .map(|_| Uuid::random())
            .collect::<Result<Vec<Uuid>>>()?;
        let mut directory_ids = directory_ids.into_iter();
        let jitter_seed = random_u64()?;
        let default_config = |_: &str| LogConfig::default();
        let on_loaded = |_: &Log, _: &LoadReport, _: usize| ();
        let mut directory_options = directory_options(
            &options,
            jitter_seed,
            &default_config,
            &no_topic,
            &on_loaded,
            &Arc::default(),
        );
        let mut next_id = || directory_ids.next().unwrap_or(Uuid::ZERO);
        let directories = LogDirectories::claim(
            &open_segments,
            &options.paths,
            &mut directory_options,
            &mut next_id,
        )?;
        let path = &options.metadata_path;
        let metadata = if has_own {
            directory_options.identity.directory_id = Some(next_id());
            let claimed = LogDirectory::claim(&open_segments, path, &directory_options)?;
            Arc::new(claimed)
        } else {
            claimed_at(&directories, path)?
        };
        Ok(Claimed {
            progress: Arc::default(),
            options,
            directories,
            metadata,
            jitter_seed,
        })
    }

    /// That of `__cluster_metadata-0`.
    pub fn metadata_directory(&self) -> &Arc<LogDirectory> {
        &self.metadata
    }

    pub fn directories(&self) -> &[Arc<LogDirectory>] {
        &self.directories.online
    }

    /// Directories that could not be had, a sentence each.
    pub fn refusals(&self) -> Vec<String> {
        let refused = self.directories.refused.iter();
        refused.map(|(_, error)| error.to_string()).collect()
    }

    /// Where `count` new partitions go.
    pub fn place(&self, count: usize) -> Vec<Uuid> {
        ids_of(&self.directories.for_new_logs(count, |_| false))
    }

    /// The directory that holds a partition of this topic id.
    pub fn find_partition(&self, name: &str, id: Uuid, index: i32) -> Option<Uuid> {
        let found = self
            .directories
            .online
            .iter()
            .find(|directory| directory.holds(name, index, id))?;
        found.identity().directory_id
    }

    /// Loads the logs of `topics`. Returns what was not as a clean stop leaves it, a sentence each.
    fn load_logs(&mut self, topics: &[TopicPlan]) -> Result<Vec<String>> {
        let notes = Mutex::new(self.refusals());
        let refused_before = self.directories.refused.len();
        let by_name: HashMap<&str, &TopicPlan> =
            topics.iter().map(|topic| (&*topic.name, topic)).collect();
        let progress = &self.progress;
        let on_loaded = |log: &Log, report: &LoadReport, _count: usize| {
            let name = format!("{}-{}", log.topic(), log.partition());
            let sentences = report.notes.iter().map(|note| format!("{name}: {note}"));
            notes.lock().extend(sentences);
            progress.logs.fetch_add(1, Ordering::Relaxed);
            progress
                .recovered_bytes
                .fetch_add(report.recovered_bytes, Ordering::Relaxed);
        };
        let config_of = |name: &str| {
            by_name
                .get(name)
                .map_or_else(LogConfig::default, |topic| topic.config.clone())
        };
        let is_ours = |name: &str, index: i32, id: Option<Uuid>| {
            by_name.get(name).is_some_and(|topic| {
                id == Some(topic.id)
                    && usize::try_from(index).is_ok_and(|index| index < topic.partitions.len())
            })
        };
        let options = directory_options(
            &self.options,
            self.jitter_seed,
            &config_of,
            &is_ours,
            &on_loaded,
            &self.progress.stop,
        );
        let loaded = self.directories.load(&options);
        if self.progress.stop.load(Ordering::Relaxed) {
            return Err(Error::LoadStopped);
        }
        let strays = loaded?;
        let mut notes = notes.into_inner();
        notes.extend(strays.iter().map(|path| {
            format!(
                "{} belongs to no topic of the metadata: it is stray, and left alone",
                path.display()
            )
        }));
        let refused = self.directories.refused.iter().skip(refused_before);
        notes.extend(refused.map(|(_, error)| error.to_string()));
        Ok(notes)
    }
}

/// The directory of this path. Errors: why it could not be had.
fn claimed_at(directories: &LogDirectories, path: &Path) -> Result<Arc<LogDirectory>> {
    if let Some(found) = directories.online.iter().find(|each| each.path() == path) {
        return Ok(found.clone());
    }
    let refused = directories.refused.iter().find(|(each, _)| each == path);
    Err(match refused {
        Some((_, error)) => error.clone(),
        None => Error::InvalidArgument("no metadata directory".to_owned()),
    })
}

fn ids_of(directories: &[Arc<LogDirectory>]) -> Vec<Uuid> {
    let ids = directories.iter().map(|each| each.identity().directory_id);
    ids.map(|id| id.unwrap_or(Uuid::ZERO)).collect()
}

fn directory_options<'a>(
    options: &NodeOptions,
    jitter_seed: u64,
    config_of: &'a (dyn Fn(&str) -> LogConfig + Sync),
    is_ours: &'a (dyn Fn(&str, i32, Option<Uuid>) -> bool + Sync),
    on_loaded: &'a (dyn Fn(&Log, &LoadReport, usize) + Sync),
    stop: &Arc<AtomicBool>,
) -> DirectoryOptions<'a> {
    DirectoryOptions {
        identity: MetaProperties {
            version: 1,
            cluster_id: Some(options.cluster_id.clone()),
            node_id: Some(options.node_id),
            directory_id: None,
        },
        config_of,
        is_ours,
        on_loaded,
        recovery_threads: options.recovery_threads,
        flush_threads: options.flush_threads,
        is_single_replica: true,
        now_ms: options.now_ms,
        jitter_seed,
        stop: stop.clone(),
    }
}

pub struct Node {
    node_id: i32,
    directories: LogDirectories,
    /// If it is not one of `directories`.
    metadata_directory: Option<Arc<LogDirectory>>,
    housekeepers: Mutex<Vec<HousekeeperThread>>,
    /// Of all directories.
    cleaner: Arc<Mutex<CleanerSettings>>,
    image: RwLock<Arc<Image>>,
    /// One change of the image at a time.
    changing: Mutex<()>,
    waker: Arc<dyn Wake>,
}

impl Node {
    /// Loads the logs of `topics`, and makes those that are missing: their creation was cut off, or
    /// their disk is new. `waker` is told of parked requests that may go on.
    ///
    /// Errors: that of the first directory, if none can be loaded; `LogDirRefused` if two hold the
    /// same partition.
    pub fn load(
        mut claimed: Claimed,
        topics: &[TopicPlan],
        waker: Arc<dyn Wake>,
    ) -> Result<Loaded> {
        let notes = claimed.load_logs(topics)?;
        let Claimed {
            options,
            directories,
            metadata,
            ..
        } = claimed;
        let is_shared = directories
            .online
            .iter()
            .any(|each| Arc::ptr_eq(each, &metadata));
        let node = Node {
            node_id: options.node_id,
            directories,
            metadata_directory: (!is_shared).then_some(metadata),
            housekeepers: Mutex::default(),
            cleaner: Arc::default(),
            image: RwLock::new(Arc::new(Image::new(&options.cluster_id, options.node_id))),
            changing: Mutex::new(()),
            waker,
        };
        for (directory, wanted) in node.missing_logs(topics) {
            directory.create_logs(wanted, options.now_ms)?;
        }
        node.publish_topics(topics);
        let moved = node.moved(topics);
        Ok(Loaded { node, notes, moved })
    }

    /// The partitions that lie in another directory than `topics` say.
    fn moved(&self, topics: &[TopicPlan]) -> Vec<Moved> {
        let image = self.image();
        let mut moved = Vec::new();
        for plan in topics {
            for (index, planned) in (0_i32..).zip(&plan.partitions) {
                let partition = image
                    .topic(&plan.name)
                    .and_then(|topic| topic.partition(index));
                let found = partition.and_then(|each| each.directory.identity().directory_id);
                if let Some(directory_id) = found.filter(|found| *found != planned.directory_id) {
                    moved.push(Moved {
                        topic_id: plan.id,
                        partition: index,
                        directory_id,
                    });
                }
            }
        }
        moved
    }

    /// How many connections the process may hold beside its files.
    pub fn connections_max(&self) -> usize {
        let directory = self.directories.online.first();
        directory.map_or(usize::MAX, |directory| directory.connections_max())
    }

    /// Has retention, compaction, flushing by time and checkpoints done from now on, until `close`. `tell`
    /// gets what goes wrong.
    pub fn keep_house(
        &self,
        intervals: Intervals,
        cleaner: CleanerSettings,
        now_ms: i64,
        tell: impl Fn(&dyn Display) + Clone + Send + 'static,
    ) -> std::io::Result<()> {
        *self.cleaner.lock() = cleaner;
        for directory in &self.directories.online {
            let settings = self.cleaner.clone();
            let cleaner =
                HousekeeperThread::start_cleaner(directory.clone(), settings, tell.clone())?;
            self.housekeepers.lock().push(cleaner);
            let tell = tell.clone();
            let on_error = Box::new(move |error: &Error| tell(error));
            let keeper = Housekeeper::new(directory.clone(), intervals, now_ms, on_error);
            self.housekeepers
                .lock()
                .push(HousekeeperThread::start(keeper)?);
        }
        Ok(())
    }

    /// How the cleaners work from now on; a log that is being compacted ends as it began.
    pub fn set_cleaner(&self, settings: CleanerSettings) {
        *self.cleaner.lock() = settings;
        for housekeeper in self.housekeepers.lock().iter() {
            housekeeper.wake();
        }
    }

    /// The log directories that could not be taken, or have failed since.
    pub fn offline_log_dirs(&self) -> Vec<PathBuf> {
        let failed = self.directories.online.iter();
        let failed = failed.filter(|directory| directory.health().is_offline());
        let refused = self.directories.refused.iter().map(|(path, _)| path);
        failed
            .map(|directory| directory.path())
            .chain(refused.map(PathBuf::as_path))
            .map(Path::to_path_buf)
            .collect()
    }

    pub fn image(&self) -> Arc<Image> {
        self.image.read().clone()
    }

    /// The log directories that are in use.
    pub fn directories(&self) -> &[Arc<LogDirectory>] {
        &self.directories.online
    }

    pub fn set_brokers(&self, brokers: Vec<Broker>) {
        let _changing = self.changing.lock();
        let mut next = (*self.image()).clone();
        next.brokers = brokers;
        *self.image.write() = Arc::new(next);
    }

    /// Where `count` new partitions go, not into a directory that `is_avoided` while there are others.
    /// Errors: `InvalidArgument` if no directory is online.
    pub fn place(
        &self,
        count: usize,
        is_avoided: impl Fn(&Arc<LogDirectory>) -> bool,
    ) -> Result<Vec<Uuid>> {
        let chosen = ids_of(&self.directories.for_new_logs(count, is_avoided));
        match chosen.len() == count {
            true => Ok(chosen),
            false => Err(Error::InvalidArgument(
                "no log directory is online".to_owned(),
            )),
        }
    }

    /// What topics are now, after their metadata changed and the logs that they lacked were made: a
    /// partition whose log is not there is offline.
    pub fn publish_topics(&self, plans: &[TopicPlan]) {
        let _changing = self.changing.lock();
        let image = self.image();
        let mut next = (*image).clone();
        for plan in plans {
            let older = image.topic(&plan.name).filter(|older| older.id == plan.id);
            next.insert_topic(Arc::new(self.make_topic(plan, older)));
        }
        let next = Arc::new(next);
        *self.image.write() = next.clone();
        for plan in plans {
            if let (Some(topic), Some(older)) = (next.topic(&plan.name), image.topic(&plan.name)) {
                topic.wake_led_anew(older);
            }
        }
    }

    /// Takes topics out of the image and their logs out of use, wakes who waits for them, and returns
    /// the partitions of each log directory, whose files are still there. Errors: `InvalidArgument` if
    /// there is no such topic, and then nothing has changed.
    pub fn remove_topics(&self, names: &[String]) -> Result<ByDirectory<Arc<Partition>>> {
        let _changing = self.changing.lock();
        let mut next = (*self.image()).clone();
        let mut topics = Vec::with_capacity(names.len());
        for name in names {
            let unknown = || Error::InvalidArgument(format!("there is no topic {name}"));
            topics.push(next.remove_topic(name).ok_or_else(unknown)?);
        }
        *self.image.write() = Arc::new(next);
        let mut gone: ByDirectory<Arc<Partition>> = Vec::new();
        for topic in topics {
            for partition in topic.partitions.iter().flatten() {
                let directory = &partition.directory;
                directory.forget(&topic.name, partition.index);
                partition.waiters.abandon();
                let is_its =
                    |(known, _): &&mut (Arc<LogDirectory>, _)| Arc::ptr_eq(known, directory);
                match gone.iter_mut().find(is_its) {
                    Some((_, partitions)) => partitions.push(partition.clone()),
                    None => gone.push((directory.clone(), vec![partition.clone()])),
                }
            }
        }
        Ok(gone)
    }

    /// Gives the logs of a topic another configuration.
    pub fn set_topic_config(&self, name: &str, config: &LogConfig) {
        if let Some(topic) = self.image().topic(name) {
            for partition in topic.partitions.iter().flatten() {
                partition.log.set_config(config.clone());
            }
        }
    }

    pub fn set_features(&self, features: Features) {
        let _changing = self.changing.lock();
        let mut next = (*self.image()).clone();
        next.features = features;
        *self.image.write() = Arc::new(next);
    }

    /// The topic of a plan whose logs have been made; a partition that `older` has with the same
    /// leader epoch stays as it is.
    fn make_topic(&self, plan: &TopicPlan, older: Option<&Arc<Topic>>) -> Topic {
        let mut partitions = Vec::with_capacity(plan.partitions.len());
        for (index, planned) in (0_i32..).zip(&plan.partitions) {
            let known = older.and_then(|topic| topic.partition(index));
            let partition = match known {
                Some(known) if known.leader_epoch == planned.leader_epoch => Some(known.clone()),
                // Without a log the directory is offline, and it must not be made elsewhere.
                _ => self
                    .directories
                    .log(&plan.name, index, plan.id)
                    .map(|(directory, log)| {
                        let known = known.filter(|known| Arc::ptr_eq(&known.log, &log));
                        self.partition(directory, log, planned.leader_epoch, known)
                    }),
            };
            partitions.push(partition);
        }
        Topic {
            name: plan.name.as_str().into(),
            id: plan.id,
            is_internal: plan.is_internal,
            partitions,
        }
    }

    /// The logs that topics have not yet, by their directories, as far as these are online.
    pub fn missing_logs(&self, plans: &[TopicPlan]) -> ByDirectory<NewLog> {
        let mut missing: HashMap<Uuid, Vec<NewLog>> = HashMap::new();
        for plan in plans {
            let topic: Arc<str> = Arc::from(plan.name.as_str());
            for (index, planned) in (0_i32..).zip(&plan.partitions) {
                if self.directories.log(&plan.name, index, plan.id).is_none() {
                    let wanted = missing.entry(planned.directory_id).or_default();
                    wanted.push(NewLog {
                        topic: topic.clone(),
                        partition: index,
                        topic_id: plan.id,
                        config: plan.config.clone(),
                        leader_epoch: Some(planned.leader_epoch),
                    });
                }
            }
        }
        let by_directory = missing.into_iter().filter_map(|(id, wanted)| {
            let directory = self.directories.by_id(id)?;
            Some((directory.clone(), wanted))
        });
        by_directory.collect()
    }

    fn partition(
        &self,
        directory: Arc<LogDirectory>,
        log: Arc<Log>,
        leader_epoch: i32,
        known: Option<&Arc<Partition>>,
    ) -> Arc<Partition> {
        let waiters = known.map(|known| known.waiters.clone());
        let waiters = waiters.unwrap_or_else(|| {
            Arc::new(Waiters::new(self.waker.clone(), directory.health().clone()))
        });
        log.set_observer(waiters.clone());
        log.lead(leader_epoch);
        Arc::new(Partition {
            index: log.partition(),
            leader_id: self.node_id,
            leader_epoch,
            replicas: vec![self.node_id],
            in_sync_replicas: vec![self.node_id],
            log,
            waiters,
            directory,
        })
    }

    /// The clean stop of all directories, after the network threads have ended. Returns those that
    /// could not be stopped cleanly, each with its first failure.
    pub fn close(&self, broker_epoch: i64) -> Vec<(PathBuf, Error)> {
        for housekeeper in std::mem::take(&mut *self.housekeepers.lock()) {
            housekeeper.stop();
        }
        let mut failed = self.directories.close(broker_epoch);
        if let Some(directory) = &self.metadata_directory
            && let Err(error) = directory.close(broker_epoch)
        {
            failed.push((directory.path().to_path_buf(), error));
        }
        failed
    }
}

/// A random number.
pub fn random_u64() -> Result<u64> {
    getrandom::u64().map_err(|error| Error::InvalidArgument(format!("no randomness: {error}")))
}

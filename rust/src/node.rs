//! This node's partitions: its log directories, and the image that says what is in them. Knows no
//! socket and no Python.
//!
//! Until `__cluster_metadata` exists, the topics are what lies in the log directories: a directory
//! `<topic>-<partition>` each, with the topic's id in `partition.metadata`. How many partitions a
//! topic has, and its configs, come from the caller.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::error::{Error, Result};
use crate::image::{Broker, Image, Partition, Topic};
use crate::log::checkpoint::Uuid as DirectoryUuid;
use crate::log::config::LogConfig;
use crate::log::directory::{DirectoryOptions, LogDirectories, LogDirectory};
use crate::log::housekeeper::{CleanerSettings, Housekeeper, HousekeeperThread, Intervals};
use crate::log::log::Log;
use crate::log::meta_properties::MetaProperties;
use crate::log::open_segments::OpenSegments;
use crate::log::recover::LoadReport;
use crate::log::storage::DiskStorage;
use crate::park::{Waiters, Wake};
use crate::wire::Uuid;

/// How to open a node.
pub struct NodeOptions {
    pub node_id: i32,
    pub cluster_id: String,
    /// `log.dirs`
    pub paths: Vec<PathBuf>,
    /// `num.recovery.threads.per.data.dir`
    pub recovery_threads: usize,
    pub flush_threads: usize,
    /// `kafkalite.open.segments.max`
    pub open_segments_max: usize,
    pub now_ms: i64,
}

/// A topic's logs and where they lie.
type LogsByIndex = BTreeMap<i32, (Arc<LogDirectory>, Arc<Log>)>;

pub struct Node {
    node_id: i32,
    directories: LogDirectories,
    housekeepers: Mutex<Vec<HousekeeperThread>>,
    image: RwLock<Arc<Image>>,
    /// One change of the image at a time.
    changing: Mutex<()>,
    waker: Arc<dyn Wake>,
}

impl Node {
    /// Takes the log directories and loads what is in them. `config_of` gives a topic's
    /// configuration; `partition_counts` how many partitions it was to have, so that a creation that
    /// was cut off in its middle is completed; `waker` is told of parked requests that may go on. Returns also what was not
    /// as a clean stop leaves it, a sentence each.
    ///
    /// Errors: that of the first directory, if none can be opened; `LogDirRefused` if two do not go
    /// together.
    pub fn open(
        options: &NodeOptions,
        config_of: &(dyn Fn(&str) -> LogConfig + Sync),
        partition_counts: &HashMap<String, i32>,
        waker: Arc<dyn Wake>,
    ) -> Result<(Node, Vec<String>)> {
        let open_segments = OpenSegments::new(Arc::new(DiskStorage), options.open_segments_max);
        let notes = Mutex::new(Vec::new());
        let on_loaded = |log: &Log, report: &LoadReport, _count: usize| {
            let name = format!("{}-{}", log.topic(), log.partition());
            let sentences = report.notes.iter().map(|note| format!("{name}: {note}"));
            notes.lock().extend(sentences);
        };
        let directory_ids = options
            .paths
            .iter()
            .map(|_| random_uuid())
            .collect::<Result<Vec<Uuid>>>()?;
        let mut directory_ids = directory_ids.into_iter().map(DirectoryUuid);
        let mut directory_options = DirectoryOptions {
            identity: MetaProperties {
                version: 1,
                cluster_id: Some(options.cluster_id.clone()),
                node_id: Some(options.node_id),
                directory_id: None,
            },
            config_of,
            on_loaded: &on_loaded,
            recovery_threads: options.recovery_threads,
            flush_threads: options.flush_threads,
            is_single_replica: true,
            now_ms: options.now_ms,
            jitter_seed: random_u64()?,
        };
        let directories = LogDirectories::open(
            &open_segments,
            &options.paths,
            &mut directory_options,
            || directory_ids.next().unwrap_or(DirectoryUuid::ZERO),
        )?;
        let mut notes = notes.into_inner();
        notes.extend(
            directories
                .refused
                .iter()
                .map(|(_, error)| error.to_string()),
        );
        let node = Node {
            node_id: options.node_id,
            directories,
            housekeepers: Mutex::default(),
            image: RwLock::new(Arc::new(Image::new(&options.cluster_id, options.node_id))),
            changing: Mutex::new(()),
            waker,
        };
        node.load_topics(config_of, partition_counts, options.now_ms)?;
        Ok((node, notes))
    }

    /// Has retention, compaction, flushing by time and checkpoints done from now on, until `close`. `on_error`
    /// is told of every failure.
    pub fn keep_house(
        &self,
        intervals: Intervals,
        cleaner: CleanerSettings,
        now_ms: i64,
        on_error: impl Fn(&Error) + Clone + Send + 'static,
    ) -> std::io::Result<()> {
        for directory in &self.directories.online {
            let cleaner = HousekeeperThread::start_cleaner(
                directory.clone(),
                cleaner,
                Box::new(on_error.clone()),
            )?;
            self.housekeepers.lock().push(cleaner);
            let on_error = Box::new(on_error.clone());
            let keeper = Housekeeper::new(directory.clone(), intervals, now_ms, on_error);
            self.housekeepers
                .lock()
                .push(HousekeeperThread::start(keeper)?);
        }
        Ok(())
    }

    pub fn image(&self) -> Arc<Image> {
        self.image.read().clone()
    }

    pub fn set_brokers(&self, brokers: Vec<Broker>) {
        let _changing = self.changing.lock();
        let mut next = (*self.image()).clone();
        next.brokers = brokers;
        *self.image.write() = Arc::new(next);
    }

    /// Makes the logs of a new topic and publishes it. After it returns, the topic survives a power
    /// cut.
    ///
    /// Errors: `InvalidArgument` if the topic exists; those of `LogDirectory::create_log`, and then
    /// the topic is not there, though empty partition directories of it may be.
    pub fn create_topic(
        &self,
        name: &str,
        id: Uuid,
        partition_count: i32,
        config: &LogConfig,
        now_ms: i64,
    ) -> Result<()> {
        let _changing = self.changing.lock();
        let image = self.image();
        if image.topic(name).is_some() {
            return Err(Error::InvalidArgument(format!("topic {name} exists")));
        }
        let mut partitions = Vec::new();
        for index in 0..partition_count {
            partitions.push(self.create_partition(name, index, id, config, now_ms)?);
        }
        let topic = Topic {
            name: name.into(),
            id,
            is_internal: false,
            partitions,
        };
        *self.image.write() = Arc::new(image.with_topic(Arc::new(topic)));
        Ok(())
    }

    fn create_partition(
        &self,
        name: &str,
        index: i32,
        id: Uuid,
        config: &LogConfig,
        now_ms: i64,
    ) -> Result<Arc<Partition>> {
        let existing = self.directories.log(name, index);
        let directory = match existing {
            Some((directory, _)) => Some(directory),
            None => self.directories.for_new_log(),
        };
        let directory = directory
            .ok_or_else(|| Error::InvalidArgument("no log directory is online".to_owned()))?;
        let log = match directory.log(name, index) {
            // Left over from a creation that failed in its middle.
            Some(log) => log,
            None => directory.create_log(name, index, DirectoryUuid(id), config.clone(), now_ms)?,
        };
        log.start_leader_epoch(0)?;
        Ok(self.partition(directory, log, 0))
    }

    fn partition(
        &self,
        directory: Arc<LogDirectory>,
        log: Arc<Log>,
        leader_epoch: i32,
    ) -> Arc<Partition> {
        let waiters = Arc::new(Waiters::new(self.waker.clone(), directory.health().clone()));
        log.set_observer(waiters.clone());
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

    /// Puts what the directories hold into the image. After an unclean stop the leader epoch is one
    /// higher: readers must be able to tell records that were lost from those that took their offsets.
    fn load_topics(
        &self,
        config_of: &(dyn Fn(&str) -> LogConfig + Sync),
        partition_counts: &HashMap<String, i32>,
        now_ms: i64,
    ) -> Result<()> {
        let mut found: BTreeMap<String, LogsByIndex> = BTreeMap::new();
        for directory in &self.directories.online {
            for log in directory.logs() {
                let partitions = found.entry(log.topic().to_owned()).or_default();
                partitions.insert(log.partition(), (directory.clone(), log));
            }
        }
        let mut image = (*self.image()).clone();
        for (name, logs) in found {
            let known_id = logs.values().find_map(|(_, log)| log.topic_id());
            let id = match known_id {
                Some(id) => id.0,
                None => random_uuid()?,
            };
            let on_disk = logs.last_key_value().map_or(0, |(index, _)| index + 1);
            let count = partition_counts
                .get(&name)
                .map_or(on_disk, |count| on_disk.max(*count));
            let mut partitions = Vec::new();
            for index in 0..count {
                let partition = match logs.get(&index) {
                    Some((directory, log)) => {
                        let latest = log.leader_epochs().latest_epoch();
                        let is_bumped = !directory.was_clean();
                        let epoch = latest.map_or(0, |epoch| epoch + i32::from(is_bumped));
                        log.start_leader_epoch(epoch)?;
                        self.partition(directory.clone(), log.clone(), epoch)
                    }
                    // Its creation failed in the middle.
                    None => self.create_partition(&name, index, id, &config_of(&name), now_ms)?,
                };
                partitions.push(partition);
            }
            image = image.with_topic(Arc::new(Topic {
                name: name.into(),
                id,
                is_internal: false,
                partitions,
            }));
        }
        *self.image.write() = Arc::new(image);
        Ok(())
    }

    /// The clean stop of all directories, after the network threads have ended. Errors: the first
    /// failure, after all have had their turn.
    pub fn close(&self, broker_epoch: i64) -> Result<()> {
        for housekeeper in std::mem::take(&mut *self.housekeepers.lock()) {
            housekeeper.stop();
        }
        self.directories.close(broker_epoch)
    }
}

fn random_u64() -> Result<u64> {
    getrandom::u64().map_err(|error| Error::InvalidArgument(format!("no randomness: {error}")))
}

/// A random id (version 4 of RFC 9562), as Kafka makes them: none that begins with a dash in base64.
pub fn random_uuid() -> Result<Uuid> {
    loop {
        let mut id: Uuid = [0; 16];
        getrandom::fill(&mut id)
            .map_err(|error| Error::InvalidArgument(format!("no randomness: {error}")))?;
        id[6] = id[6] & 0x0f | 0x40;
        id[8] = id[8] & 0x3f | 0x80;
        // The first six bits 62 are `-` in base64url.
        if id[0] >> 2 != 62 {
            return Ok(id);
        }
    }
}

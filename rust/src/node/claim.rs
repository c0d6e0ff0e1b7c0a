//! The log directories that a start takes before it knows which topics there are, with their locks and
//! `meta.properties`, and the loading of the topics' logs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::publish::TopicPlan;
use super::{ids_of, random_u64};
use crate::error::{Error, Result};
use crate::log::config::LogConfig;
use crate::log::directory::directories::LogDirectories;
use crate::log::directory::meta_properties::MetaProperties;
use crate::log::directory::{DirectoryOptions, LogDirectory};
use crate::log::log::Log;
use crate::log::recover::LoadReport;
use crate::log::segment::open_segments::OpenSegments;
use crate::log::storage::DiskStorage;
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

/// How far `Node::load` has come; may be read meanwhile.
#[derive(Default)]
pub struct LoadProgress {
    pub logs: AtomicUsize,
    /// Read again, since the stop before was not a clean one.
    pub recovered_bytes: AtomicU64,
    /// Set by whoever is told to stop the broker: the load ends soon, with `LoadStopped`.
    pub stop: Arc<AtomicBool>,
}

/// Log directories that are this process's, and not loaded yet.
pub struct Claimed {
    pub progress: Arc<LoadProgress>,
    pub(super) options: NodeOptions,
    pub(super) directories: LogDirectories,
    /// Where `__cluster_metadata-0` lies: one of the directories, or one for itself.
    pub(super) metadata: Arc<LogDirectory>,
    jitter_seed: u64,
}

/// No partition is ours as long as the topics are not known.
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
    pub(super) fn load_logs(&mut self, topics: &[TopicPlan]) -> Result<Vec<String>> {
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
        let node_id = self.options.node_id;
        let is_ours = |name: &str, index: i32, id: Option<Uuid>| {
            by_name.get(name).is_some_and(|topic| {
                let index = usize::try_from(index).ok();
                let registration = index.and_then(|index| topic.partitions.get(index));
                let is_ours = registration.is_some_and(|each| each.directory_of(node_id).is_some());
                id == Some(topic.id) && is_ours
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

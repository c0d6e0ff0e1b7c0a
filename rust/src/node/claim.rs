//! The log directories that a start takes before it knows which topics there are. Their locks and
//! `meta.properties` are here, and the loading of the topics' logs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::publish::TopicPlan;
use super::{ids_of, random_u64};
use crate::error::{Error, Result};
use crate::image::PartitionRegistration;
use crate::log::config::LogConfig;
use crate::log::directory::directories::LogDirectories;
use crate::log::directory::meta_properties::MetaProperties;
use crate::log::directory::{DirectoryOptions, LogDirectory};
use crate::log::log::Log;
use crate::log::recover::LoadReport;
use crate::log::segment::open_segments::OpenSegments;
use crate::log::storage::{DiskStorage, Storage};
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

/// Topic and index of a partition that lacks records.
pub type LostRecords = (String, i32);

/// The rules of a directory that is not loaded, as the topics are not known: no partition is ours.
const NO_TOPIC: LoadRules<'static> = LoadRules {
    config_of: &|_| LogConfig::default(),
    is_ours: &|_, _, _| false,
    is_single_replica: &|_, _| false,
    on_loaded: &|_, _, _| (),
};

/// See `DirectoryOptions`.
struct LoadRules<'a> {
    config_of: &'a (dyn Fn(&str) -> LogConfig + Sync),
    is_ours: &'a (dyn Fn(&str, i32, Option<Uuid>) -> bool + Sync),
    is_single_replica: &'a (dyn Fn(&str, i32) -> bool + Sync),
    on_loaded: &'a (dyn Fn(&Log, &LoadReport, usize) + Sync),
}

impl Claimed {
    /// Takes the log directories, formats those that are empty. Those of Kafka's are not changed.
    ///
    /// Errors: that of the first directory, if none can be had; that of the metadata directory;
    /// `LogDirRefused` if two do not go together.
    pub fn open(options: NodeOptions) -> Result<Claimed> {
        Claimed::open_in(Arc::new(DiskStorage), options)
    }

    /// As `open`, of directories in this storage.
    pub fn open_in(storage: Arc<dyn Storage>, options: NodeOptions) -> Result<Claimed> {
        let open_segments = OpenSegments::new(storage, options.open_segments_max);
        let has_own = !options.paths.contains(&options.metadata_path);
        let directory_ids = (0..=options.paths.len())
            .map(|_| Uuid::random())
            .collect::<Result<Vec<Uuid>>>()?;
        let mut directory_ids = directory_ids.into_iter();
        let jitter_seed = random_u64()?;
        let mut directory_options =
            directory_options(&options, jitter_seed, NO_TOPIC, &Arc::default());
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

    /// The directory of `__cluster_metadata-0`.
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

    /// Loads the logs of `topics`. Returns what was not as a clean stop leaves it, a sentence each,
    /// and the partitions that lack records which were on disk.
    pub(super) fn load_logs(
        &mut self,
        topics: &[TopicPlan],
    ) -> Result<(Vec<String>, Vec<LostRecords>)> {
        let lost = Mutex::new(Vec::new());
        let notes = Mutex::new(self.refusals());
        let refused_before = self.directories.refused.len();
        let by_name: HashMap<&str, &TopicPlan> =
            topics.iter().map(|topic| (&*topic.name, topic)).collect();
        let progress = &self.progress;
        let on_loaded = |log: &Log, report: &LoadReport, _count: usize| {
            let name = format!("{}-{}", log.topic(), log.partition());
            let sentences = report.notes.iter().map(|note| format!("{name}: {note}"));
            notes.lock().extend(sentences);
            if report.is_cut {
                lost.lock().push((log.topic().to_owned(), log.partition()));
            }
            progress.logs.fetch_add(1, Ordering::Relaxed);
            progress
                .recovered_bytes
                .fetch_add(report.recovered_bytes, Ordering::Relaxed);
        };
        let node_id = self.options.node_id;
        let registration = |name: &str, index: i32| {
            let topic = by_name.get(name)?;
            let registration = topic.partitions.get(usize::try_from(index).ok()?)?;
            Some((topic.id, registration))
        };
        let rules = LoadRules {
            config_of: &|name| {
                let topic = by_name.get(name);
                topic.map_or_else(LogConfig::default, |topic| topic.config.clone())
            },
            is_ours: &|name, index, id| {
                registration(name, index).is_some_and(|(topic_id, registration)| {
                    id == Some(topic_id) && registration.directory_of(node_id).is_some()
                })
            },
            is_single_replica: &|name, index| {
                let known = registration(name, index);
                known.is_some_and(|(_, registration)| registration.replicas.len() == 1)
            },
            on_loaded: &on_loaded,
        };
        notes.lock().extend(self.directories.end_cancelled_moves());
        let promoted = self.promote_futures(registration)?;
        let lacks_directories = !self.directories.refused.is_empty();
        for (name, index, path) in promoted {
            notes.lock().push(format!(
                "{name}-{index} was about to be moved: it is in {path} from now on"
            ));
            if lacks_directories {
                lost.lock().push((name, index));
            }
        }
        let stop = &self.progress.stop;
        let options = directory_options(&self.options, self.jitter_seed, rules, stop);
        let home_of = |name: &str, index: i32| {
            let (_, registration) = registration(name, index)?;
            registration.directory_of(node_id)
        };
        let loaded = self.directories.load(&options, home_of);
        if self.progress.stop.load(Ordering::Relaxed) {
            return Err(Error::LoadStopped);
        }
        let strays = loaded?;
        let mut notes = notes.into_inner();
        notes.extend(strays.iter().map(|path| {
            format!(
                "{} is not a replica according to the metadata: it is renamed as stray and kept",
                path.display()
            )
        }));
        let refused = self.directories.refused.iter().skip(refused_before);
        notes.extend(refused.map(|(_, error)| error.to_string()));
        Ok((notes, lost.into_inner()))
    }
}

impl Claimed {
    /// Makes those future replicas the logs of their partitions that have none, where the metadata
    /// says that they lie there. Returns topic, index and directory of each.
    fn promote_futures<'r>(
        &self,
        registration: impl Fn(&str, i32) -> Option<(Uuid, &'r PartitionRegistration)>,
    ) -> Result<Vec<(String, i32, String)>> {
        let mut promoted = Vec::new();
        for directory in &self.directories.online {
            let names = directory.future_names().unwrap_or_default();
            for (name, topic, index, id) in names {
                let known = registration(&topic, index).filter(|(known, _)| Some(*known) == id);
                let Some((topic_id, registration)) = known else {
                    continue;
                };
                let told = registration.directory_of(self.options.node_id);
                let is_here = told == directory.identity().directory_id;
                if !is_here || self.find_partition(&topic, topic_id, index).is_some() {
                    continue;
                }
                directory.promote_name(&name, &topic, index)?;
                promoted.push((topic, index, directory.path().display().to_string()));
            }
        }
        Ok(promoted)
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
    rules: LoadRules<'a>,
    stop: &Arc<AtomicBool>,
) -> DirectoryOptions<'a> {
    DirectoryOptions {
        identity: MetaProperties {
            version: 1,
            cluster_id: Some(options.cluster_id.clone()),
            node_id: Some(options.node_id),
            directory_id: None,
        },
        config_of: rules.config_of,
        is_ours: rules.is_ours,
        is_single_replica: rules.is_single_replica,
        on_loaded: rules.on_loaded,
        recovery_threads: options.recovery_threads,
        flush_threads: options.flush_threads,
        now_ms: options.now_ms,
        jitter_seed,
        stop: stop.clone(),
    }
}

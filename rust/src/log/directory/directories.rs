//! The log directories of a broker (`log.dirs`), of which some may fail while the others serve.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::log::directory::{DirectoryOptions, LogDirectory};
use crate::log::log::Log;
use crate::log::segment::open_segments::OpenSegments;
use crate::uuid::Uuid;

/// One that fails at the start or later is left out.
pub struct LogDirectories {
    pub online: Vec<Arc<LogDirectory>>,
    /// Path and reason of those that could not be opened.
    pub refused: Vec<(PathBuf, Error)>,
}

impl LogDirectories {
    /// Claims each path. Errors: the first refusal if none can be had; `LogDirRefused` if two
    /// are of different clusters.
    pub fn claim(
        open_segments: &Arc<OpenSegments>,
        paths: &[PathBuf],
        options: &mut DirectoryOptions<'_>,
        mut new_directory_id: impl FnMut() -> Uuid,
    ) -> Result<LogDirectories> {
        let mut directories = LogDirectories {
            online: Vec::new(),
            refused: Vec::new(),
        };
        for path in paths {
            options.identity.directory_id = Some(new_directory_id());
            match LogDirectory::claim(open_segments, path, options) {
                Ok(directory) => {
                    options.identity.cluster_id = directory.identity().cluster_id.clone();
                    directories.online.push(Arc::new(directory));
                }
                Err(error) => directories.refused.push((path.clone(), error)),
            }
        }
        match directories.refused.first() {
            Some((_, error)) if directories.online.is_empty() => Err(error.clone()),
            _ => Ok(directories),
        }
    }

    /// Deletes the future replicas of moves that were cancelled, before they are loaded. A
    /// directory that fails is `refused` from then on. Returns what is to be told, a sentence each.
    pub fn end_cancelled_moves(&mut self) -> Vec<String> {
        let (mut cancelled, mut notes) = (HashSet::new(), Vec::new());
        for directory in &self.online {
            match directory.read_cancelled() {
                Ok(names) => cancelled.extend(names),
                Err(error) => notes.push(format!("moves that were cancelled may go on: {error}")),
            }
        }
        if cancelled.is_empty() {
            return notes;
        }
        for directory in std::mem::take(&mut self.online) {
            match directory.delete_cancelled(&cancelled) {
                Ok(()) => self.online.push(directory),
                Err(error) => self.refused.push((directory.path().to_path_buf(), error)),
            }
        }
        // Else one of them may still lie in a directory that is not here.
        if self.refused.is_empty() {
            let forgotten = self.online.iter().map(|each| each.forget_cancelled());
            notes.extend(forgotten.filter_map(|each| Some(each.err()?.to_string())));
        }
        notes
    }

    /// Loads what was claimed; once. A directory that fails is `refused` from then on. Of a
    /// partition that two hold, that in the directory of `home_of` is the replica, and the other
    /// one stray. Returns the directories that are stray now. Errors: the first refusal if none is
    /// left; `LogDirRefused` if two hold the same partition, and neither is the one of that id.
    pub fn load(
        &mut self,
        options: &DirectoryOptions<'_>,
        home_of: impl Fn(&str, i32) -> Option<Uuid>,
    ) -> Result<Vec<PathBuf>> {
        let mut strays = Vec::new();
        let mut homes: BTreeMap<(String, i32), Arc<LogDirectory>> = BTreeMap::new();
        for directory in std::mem::take(&mut self.online) {
            match directory.load(options) {
                Ok(names) => {
                    strays.extend(names.iter().map(|name| directory.path().join(name)));
                    for log in directory.logs() {
                        let key = (log.topic().to_owned(), log.partition());
                        let home = home_of(&key.0, key.1);
                        if let Some(other) = homes.get(&key) {
                            let (kept, left) = one_of(other, &directory, &log, home)?;
                            strays.push(left.set_log_aside(&log)?);
                            homes.insert(key, kept.clone());
                        } else {
                            homes.insert(key, directory.clone());
                        }
                    }
                    self.online.push(directory);
                }
                Err(error) => self.refused.push((directory.path().to_path_buf(), error)),
            }
        }
        match self.refused.first() {
            Some((_, error)) if self.online.is_empty() => Err(error.clone()),
            _ => Ok(strays),
        }
    }

    /// A partition of the topic of this id, never that of another one that has or had the name.
    pub fn log(
        &self,
        topic: &str,
        partition: i32,
        topic_id: Uuid,
    ) -> Option<(Arc<LogDirectory>, Arc<Log>)> {
        self.online.iter().find_map(|directory| {
            let log = directory.log(topic, partition)?;
            (log.topic_id() == Some(topic_id)).then(|| (directory.clone(), log))
        })
    }

    /// Where `count` new logs go: each to the directory with the fewest logs that is not offline,
    /// nor `is_avoided` while there are others. Empty if there is none.
    pub fn for_new_logs(
        &self,
        count: usize,
        is_avoided: impl Fn(&Arc<LogDirectory>) -> bool,
    ) -> Vec<Arc<LogDirectory>> {
        let online = self.online.iter();
        let online = online.filter(|directory| !directory.health().is_offline());
        let (avoided, wanted): (Vec<_>, Vec<_>) = online.partition(|each| is_avoided(each));
        let chosen_from = if wanted.is_empty() { avoided } else { wanted };
        let loads = chosen_from.into_iter();
        let mut loads: Vec<(usize, &Arc<LogDirectory>)> = loads
            .map(|directory| (directory.log_count(), directory))
            .collect();
        let mut chosen = Vec::with_capacity(count);
        for _ in 0..count {
            if let Some((load, directory)) = loads.iter_mut().min_by_key(|(load, _)| *load) {
                *load += 1;
                chosen.push(directory.clone());
            }
        }
        chosen
    }

    /// After it returns, the next start names no broker epoch that this process or one before
    /// has had: it names one that all directories have. Errors: that of the first directory,
    /// if none has let go of it.
    pub fn forget_broker_epoch(&self) -> Result<()> {
        let forgotten = self.online.iter().map(|each| each.forget_broker_epoch());
        let (gone, left): (Vec<_>, Vec<_>) = forgotten.partition(Result::is_ok);
        match left.into_iter().next() {
            Some(error) if gone.is_empty() => error,
            _ => Ok(()),
        }
    }

    /// The directory of an id, if it is one of them.
    pub fn by_id(&self, id: Uuid) -> Option<&Arc<LogDirectory>> {
        self.online
            .iter()
            .find(|directory| directory.identity().directory_id == Some(id))
    }

    /// Stops all cleanly; one that fails leaves no marker and does not keep the others from theirs.
    /// Returns those, each with its first failure.
    pub fn close(&self, broker_epoch: i64) -> Vec<(PathBuf, Error)> {
        let failed = self.online.iter().filter_map(|directory| {
            let closed = directory.close(broker_epoch);
            closed
                .err()
                .map(|error| (directory.path().to_path_buf(), error))
        });
        failed.collect()
    }
}

/// Tells two directories that hold a log apart: that of the id `home`, and the other one. Errors:
/// `LogDirRefused` if neither has it.
fn one_of<'d>(
    one: &'d Arc<LogDirectory>,
    two: &'d Arc<LogDirectory>,
    log: &Log,
    home: Option<Uuid>,
) -> Result<(&'d Arc<LogDirectory>, &'d Arc<LogDirectory>)> {
    let is_home = |each: &LogDirectory| home.is_some() && each.identity().directory_id == home;
    if is_home(one) {
        return Ok((one, two));
    }
    if is_home(two) {
        return Ok((two, one));
    }
    let name = format!("{}-{}", log.topic(), log.partition());
    Err(Error::LogDirRefused {
        path: two.path().to_path_buf(),
        reason: format!(
            "{name} is in {} too, and the metadata says of neither that it is the replica: remove the directory {name} \
             of the one that has failed lately, or has the older records",
            one.path().display()
        ),
    })
}

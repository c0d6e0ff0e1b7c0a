//! A node's log directories before their logs are loaded: Python reads the metadata in them first,
//! so as to know which logs there are.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::clock::wall_ms;
use crate::error::{Error, Result};
use crate::log::config::LogConfig;
use crate::node::{Claimed, LoadProgress, NodeOptions};
use crate::py::door::enter;
use crate::py::engine::{Configs, Log, log_config};
use crate::uuid::Uuid;

/// Log directories of this process; `BrokerCore` takes them over.
#[pyclass(frozen, module = "kafkalite._native")]
pub struct ClaimedDirectories {
    inner: Mutex<Option<Claimed>>,
    progress: Arc<LoadProgress>,
}

/// Path, id, whether the last stop was a clean one, and the broker epoch that it left behind.
type DirectoryFacts<'py> = (PathBuf, Bound<'py, PyBytes>, bool, Option<i64>);

#[pymethods]
impl ClaimedDirectories {
    /// Takes the log directories: locks, and `meta.properties` of those that are empty.
    #[new]
    #[pyo3(signature = (
        *, node_id, cluster_id, log_dirs, metadata_dir, recovery_threads, flush_threads,
        open_segments,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        node_id: i32,
        cluster_id: String,
        log_dirs: Vec<PathBuf>,
        metadata_dir: PathBuf,
        recovery_threads: usize,
        flush_threads: usize,
        open_segments: usize,
    ) -> PyResult<ClaimedDirectories> {
        let options = NodeOptions {
            node_id,
            cluster_id,
            paths: log_dirs,
            metadata_path: metadata_dir,
            recovery_threads,
            flush_threads,
            open_segments_max: open_segments,
            now_ms: wall_ms(),
        };
        let claimed = enter(py, || Claimed::open(options))?;
        Ok(ClaimedDirectories {
            progress: claimed.progress.clone(),
            inner: Mutex::new(Some(claimed)),
        })
    }

    /// The directories that could be claimed, in the order of `log.dirs`.
    #[getter]
    fn directories<'py>(&self, py: Python<'py>) -> PyResult<Vec<DirectoryFacts<'py>>> {
        let facts = enter(py, || {
            self.with(|claimed| {
                let directories = claimed.directories().iter();
                let facts = directories.map(|each| {
                    let id = each.identity().directory_id.unwrap_or(Uuid::ZERO);
                    let path = each.path().to_path_buf();
                    (path, id, each.was_clean(), each.previous_broker_epoch())
                });
                Ok(facts.collect::<Vec<_>>())
            })
        })?;
        let facts = facts.into_iter();
        Ok(facts
            .map(|(path, id, was_clean, epoch)| (path, PyBytes::new(py, &id.0), was_clean, epoch))
            .collect())
    }

    /// How many logs `BrokerCore` has loaded so far, and the bytes of them recovered.
    #[getter]
    fn progress(&self) -> (usize, u64) {
        let progress = &self.progress;
        (
            progress.logs.load(Ordering::Relaxed),
            progress.recovered_bytes.load(Ordering::Relaxed),
        )
    }

    /// Has `BrokerCore` give up loading the logs: it raises LoadStoppedError
    /// then, unless they are loaded.
    fn stop_loading(&self) {
        self.progress.stop.store(true, Ordering::Relaxed);
    }

    /// Opens `__cluster_metadata-0`, and makes it if it is not there: what a kill has left at its
    /// end is cut off. Returns the log and what was repaired, a sentence each.
    fn open_metadata_log(&self, py: Python<'_>, configs: Configs) -> PyResult<(Log, Vec<String>)> {
        let (log, report) = enter(py, || {
            let config = log_config(&LogConfig::default(), &configs)?;
            self.with(|claimed| {
                claimed
                    .metadata_directory()
                    .open_metadata_log(config, wall_ms())
            })
        })?;
        Ok((Log::new(log), report.notes))
    }

    /// Ids of the directories where `count` new partitions go.
    fn place<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let ids = enter(py, || self.with(|claimed| Ok(claimed.place(count))))?;
        Ok(ids.iter().map(|id| PyBytes::new(py, &id.0)).collect())
    }

    /// The id of the directory in which a partition of the topic with this id lies.
    fn find_partition<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        topic_id: [u8; 16],
        partition: i32,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let found = enter(py, || {
            self.with(|claimed| Ok(claimed.find_partition(topic, Uuid(topic_id), partition)))
        })?;
        Ok(found.map(|id| PyBytes::new(py, &id.0)))
    }
}

impl ClaimedDirectories {
    fn with<T>(&self, work: impl FnOnce(&Claimed) -> Result<T>) -> Result<T> {
        self.inner
            .lock()
            .as_ref()
            .map_or_else(|| Err(given_away()), work)
    }

    pub(super) fn take(&self) -> Result<Claimed> {
        self.inner.lock().take().ok_or_else(given_away)
    }
}

fn given_away() -> Error {
    Error::InvalidArgument("the log directories are in use by a node".to_owned())
}

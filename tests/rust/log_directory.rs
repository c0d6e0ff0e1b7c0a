//! Log directories and logs as tests open them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kafkalite::error::Result;
use kafkalite::log::config::LogConfig;
use kafkalite::log::directory::meta_properties::MetaProperties;
use kafkalite::log::directory::{DirectoryOptions, LogDirectory};
use kafkalite::log::recover::LogParameters;
use kafkalite::log::segment::open_segments::OpenSegments;
use kafkalite::log::storage::Storage;
use kafkalite::uuid::Uuid;

pub const NOW_MS: i64 = 1_700_000_000_000;

/// Whose log directories are made here.
pub fn identity() -> MetaProperties {
    MetaProperties {
        version: 1,
        cluster_id: Some("MkU3OEVBNTcwNTJENDM2Qk".to_owned()),
        node_id: Some(1),
        directory_id: Some(Uuid([9; 16])),
    }
}

/// Every partition is ours.
pub fn options(config_of: &(dyn Fn(&str) -> LogConfig + Sync)) -> DirectoryOptions<'_> {
    DirectoryOptions {
        identity: identity(),
        config_of,
        is_ours: &|_, _, _| true,
        on_loaded: &|_, _, _| {},
        recovery_threads: 1,
        flush_threads: 1,
        is_single_replica: &|_, _| true,
        now_ms: NOW_MS,
        jitter_seed: 1,
        stop: Arc::default(),
    }
}

/// One whose logs all have this configuration.
pub fn open(
    storage: impl Storage + 'static,
    path: &Path,
    config: &LogConfig,
) -> Result<LogDirectory> {
    let open_segments = OpenSegments::new(Arc::new(storage), 64);
    LogDirectory::open(&open_segments, path, &options(&|_| config.clone()))
}

/// Those of the log `t-0`, of which no checkpoint says anything.
pub fn log_parameters(directory: impl Into<PathBuf>, config: LogConfig) -> LogParameters {
    LogParameters::new(directory.into(), "t".to_owned(), 0, config, NOW_MS, 1)
}

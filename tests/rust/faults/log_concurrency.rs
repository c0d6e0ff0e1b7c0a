//! Readers beside everything that a log does to itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kafkalite::batch::compression::Codec;
use kafkalite::log::checkpoint::Uuid;
use kafkalite::log::config::LogConfig;
use kafkalite::log::health::Health;
use kafkalite::log::open_segments::OpenSegments;
use kafkalite::log::read::ReadIsolation;
use kafkalite::log::recover::{LogParameters, create_directory, load};
use kafkalite::log::storage::Storage;

use super::workbench::{HOME, NOBODY, NOW_MS, PARTITION, append, batch};
use crate::memory_storage::MemoryStorage;
use crate::random::{Random, is_long_run};

/// Ten thousand segments with 1,024 descriptors, and then every one of them read.
#[test]
fn no_more_segments_are_open_at_once_than_allowed() {
    let (segments, segments_max) = if is_long_run() {
        (10_000, 1024)
    } else {
        (600, 64)
    };
    let storage = MemoryStorage::default();
    storage.create_directory_all(Path::new(HOME)).unwrap();
    create_directory(&storage, Path::new(PARTITION), Uuid([7; 16])).unwrap();
    let open_segments = OpenSegments::new(Arc::new(storage.clone()), segments_max);
    let parameters = LogParameters {
        directory: PathBuf::from(PARTITION),
        topic: "t".to_owned(),
        partition: 0,
        config: LogConfig {
            segment_bytes: 150,
            ..LogConfig::default()
        },
        log_start_offset: 0,
        recovery_point: 0,
        high_watermark: None,
        was_clean: false,
        now_ms: NOW_MS,
        jitter_seed: 1,
    };
    let (log, _) = load(
        &open_segments,
        &Arc::new(Health::new(Path::new(HOME))),
        parameters,
    )
    .unwrap();
    for number in 0..segments {
        append(&log, batch(Codec::None, NOBODY, number, 1, 20), 1).unwrap();
    }
    assert_eq!(log.segments().len() as i64, segments);
    let mut random = Random::new(1);
    for step in 0..2 * segments {
        let offset = if step < segments {
            step
        } else {
            random.below(segments as u64) as i64
        };
        let range = log.read(offset, 1, true, ReadIsolation::LogEnd).unwrap();
        assert_eq!(range.to_vec().unwrap()[..8], offset.to_be_bytes());
    }
    assert!(open_segments.open_count() <= segments_max);
    assert!(
        storage.open_files() <= segments_max,
        "{} files stay open",
        storage.open_files()
    );
    // Beside those kept, the one that is being opened and an index that is being mapped.
    let most = storage.open_files_max();
    assert!(most <= segments_max + 2, "{most} files were open at once");
}

//! Deleting, and what it must not wait for or keep others waiting for.

use std::sync::mpsc;
use std::time::Duration;

use kafkalite::batch::compression::Codec;
use kafkalite::log::config::LogConfig;
use kafkalite::log::log::Log;

use super::workbench::{NOBODY, NOW_MS, Opening, append, batch, create, open};
use crate::memory_storage::MemoryStorage;
use crate::memory_storage::crash::Crash;
use crate::memory_storage::faults::Operation;

const DAY_MS: i64 = 24 * 3_600_000;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1_000,
        retention_ms: DAY_MS,
        ..LogConfig::default()
    }
}

fn fill(log: &Log) {
    for number in 0..6 {
        append(log, batch(Codec::None, NOBODY, number, 1, 900), 1).unwrap();
    }
}

/// After a restart retention read whole segments under the append lock, and whoever wrote waited: 832 ms
/// with 3 GiB in the page cache.
#[test]
fn appends_do_not_wait_while_retention_reads_the_timestamps_of_a_segment() {
    let storage = MemoryStorage::default();
    fill(&create(&storage, &config()).unwrap().log);
    let storage = storage.crash(Crash::Kill);
    let opening = Opening {
        was_clean: true,
        ..Opening::unclean(&config())
    };
    let log = open(&storage, &opening).unwrap().log;
    let (sender, appended) = mpsc::channel();
    let (writer, (told, waited)) = (log.clone(), mpsc::channel());
    storage.before(Operation::Read, ".log", move || {
        std::thread::spawn(move || {
            append(&writer, batch(Codec::None, NOBODY, 6, 1, 900), 1).unwrap();
            sender.send(()).unwrap();
        });
        told.send(appended.recv_timeout(Duration::from_secs(10)).is_ok())
            .unwrap();
    });
    let now_ms = NOW_MS + 10 * DAY_MS;
    assert!(log.delete_old_segments(now_ms).unwrap() > 3);
    assert_eq!(waited.try_recv(), Ok(true), "the append waited for it");
}

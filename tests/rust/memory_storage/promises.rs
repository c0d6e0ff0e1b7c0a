//! What tests rely on.

use std::collections::HashSet;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use kafkalite::log::storage::{OpenMode, Storage, StorageFile};

use super::MemoryStorage;
use super::crash::{Crash, SECTOR_BYTES};
use super::faults::{Failure, Fault, Operation};

const FILE: &str = "/d/file";

fn storage_with_directory() -> MemoryStorage {
    let storage = MemoryStorage::default();
    storage.create_directory_all(Path::new("/d")).unwrap();
    storage.sync_directory(Path::new("/")).unwrap();
    storage
}

fn write(storage: &MemoryStorage, path: &str, bytes: &[u8]) -> Arc<dyn StorageFile> {
    let file = storage
        .open(Path::new(path), OpenMode::CreateOrOpen)
        .unwrap();
    file.write_vectored_at(&[IoSlice::new(bytes)], 0).unwrap();
    file
}

#[test]
fn a_power_cut_takes_what_was_not_synced_and_a_kill_takes_nothing() {
    let storage = storage_with_directory();
    let file = write(&storage, FILE, b"durable");
    file.sync_data().unwrap();
    let lost = storage.crash(Crash::LoseUnsynced);
    assert!(lost.files().is_empty(), "the name was not synced");
    storage.sync_directory(Path::new("/d")).unwrap();
    file.write_vectored_at(&[IoSlice::new(b"volatile")], 0)
        .unwrap();
    let path = Path::new(FILE);
    assert_eq!(storage.crash(Crash::LoseUnsynced).files()[path], b"durable");
    assert_eq!(storage.crash(Crash::Kill).files()[path], b"volatile");
}

#[test]
fn a_seeded_power_cut_keeps_some_sectors_and_the_first_names_and_repeats_itself() {
    let storage = storage_with_directory();
    let file = write(&storage, FILE, &[1; 4 * SECTOR_BYTES]);
    file.sync_data().unwrap();
    storage.sync_directory(Path::new("/d")).unwrap();
    file.write_vectored_at(&[IoSlice::new(&[2; 6 * SECTOR_BYTES])], 0)
        .unwrap();
    write(&storage, "/d/first", b"x");
    write(&storage, "/d/second", b"x");
    let mut outcomes = HashSet::new();
    for seed in 0..200 {
        let files = storage.crash(Crash::Seeded(seed)).files();
        assert_eq!(files, storage.crash(Crash::Seeded(seed)).files());
        let has = |name: &str| files.contains_key(Path::new(name));
        assert!(
            has("/d/first") || !has("/d/second"),
            "names come in their order"
        );
        let bytes = files[Path::new(FILE)].clone();
        assert!((4 * SECTOR_BYTES..=6 * SECTOR_BYTES).contains(&bytes.len()));
        outcomes.insert(bytes);
    }
    assert!(outcomes.len() > 50);
}

#[test]
fn the_nth_call_fails_and_a_failed_sync_is_never_made_good() {
    let storage = storage_with_directory();
    let file = write(&storage, FILE, b"one");
    storage.sync_directory(Path::new("/d")).unwrap();
    storage.inject(Fault::of(Operation::SyncData, "file", Failure::Io));
    assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(5));
    assert!(storage.has_struck());
    file.sync_data().unwrap();
    let files = storage.crash(Crash::LoseUnsynced).files();
    assert_eq!(files[Path::new(FILE)], b"");
    storage.heal();
    storage.inject(Fault::of(Operation::Write, "file", Failure::ShortWrite));
    assert_eq!(
        file.write_vectored_at(&[IoSlice::new(b"abcd")], 0).unwrap(),
        2
    );
    let second = file.write_vectored_at(&[IoSlice::new(b"cd")], 2);
    assert_eq!(second.unwrap_err().raw_os_error(), Some(28));
    assert_eq!(
        file.write_vectored_at(&[IoSlice::new(b"cd")], 2).unwrap(),
        2
    );
}

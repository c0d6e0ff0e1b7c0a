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

/// A segment of a log that had moved to another directory and back was torn after a
/// power cut: names that the first one had made, and never synced, came into the one
/// that was called so by then.
#[test]
fn names_that_were_not_synced_stay_with_their_directory_when_it_is_renamed() {
    let storage = storage_with_directory();
    let (old, aside) = (Path::new("/d/t-0"), Path::new("/d/t-0-delete"));
    storage.create_directory_all(old).unwrap();
    write(&storage, "/d/t-0/1.log", b"old");
    storage.rename(old, aside).unwrap();
    storage.create_directory_all(old).unwrap();
    write(&storage, "/d/t-0/1.log", b"new").sync_data().unwrap();
    for path in ["/d", "/d/t-0"] {
        storage.sync_directory(Path::new(path)).unwrap();
    }
    let only_new: Vec<_> = [("/d/t-0/1.log".into(), b"new".to_vec())].into();
    for crash in [Crash::LoseUnsynced, Crash::Seeded(1), Crash::Seeded(2)] {
        let mut files = storage.crash(crash).files();
        files.remove(Path::new("/d/t-0-delete/1.log"));
        assert_eq!(Vec::from_iter(files), only_new, "{crash:?}");
    }
    storage.sync_directory(aside).unwrap();
    let files = storage.crash(Crash::LoseUnsynced).files();
    assert_eq!(files[Path::new("/d/t-0-delete/1.log")], b"");
    storage.remove_directory_all(aside).unwrap();
    storage.sync_directory(Path::new("/d")).unwrap();
    let files = storage.crash(Crash::LoseUnsynced).files();
    assert_eq!(Vec::from_iter(files), only_new);
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

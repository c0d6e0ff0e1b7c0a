//! Files of segments that are open: those of the cache, and those that unsent answers hold.
//!
//! Clients that did not read what they had fetched took every descriptor: an evicted file was
//! opened again for each of them, and the last `CreateTopics` ended the broker.

use std::path::Path;
use std::sync::Arc;

use kafkalite::log::names::LOG;
use kafkalite::log::segment::open_segments::{OpenSegments, SegmentFiles};
use kafkalite::log::storage::{Storage, StorageFile, read_exact_at, replace_file};

use crate::memory_storage::MemoryStorage;
use crate::memory_storage::faults::{Failure, Fault, Operation};

const HOME: &str = "/t-0";
const SEGMENTS_MAX: usize = 16;

fn create(storage: &MemoryStorage, files: &SegmentFiles, content: u8) {
    let path = files.path(LOG);
    replace_file(storage, &path, &[content]).unwrap();
}

fn world(count: usize) -> (MemoryStorage, Arc<OpenSegments>, Vec<Arc<SegmentFiles>>) {
    let storage = MemoryStorage::default();
    storage.create_directory_all(Path::new(HOME)).unwrap();
    let open_segments = OpenSegments::new(Arc::new(storage.clone()), SEGMENTS_MAX);
    let segments: Vec<_> = (0..count)
        .map(|number| open_segments.segment(Path::new(HOME), number as i64, ""))
        .collect();
    for (number, files) in segments.iter().enumerate() {
        create(&storage, files, number as u8);
    }
    (storage, open_segments, segments)
}

fn content(file: &Arc<dyn StorageFile>) -> u8 {
    let mut byte = [0];
    read_exact_at(&**file, &mut byte, 0).unwrap();
    byte[0]
}

#[test]
fn a_segment_takes_one_descriptor_however_many_answers_hold_it() {
    let (storage, open_segments, segments) = world(5 * SEGMENTS_MAX);
    let answers: Vec<Arc<dyn StorageFile>> = (0..4)
        .flat_map(|_| &segments)
        .map(|files| open_segments.log_file(files).unwrap())
        .collect();
    assert_eq!(storage.open_files(), segments.len());
    assert_eq!(open_segments.open_files(), segments.len());
    assert!(open_segments.open_count() <= SEGMENTS_MAX);
    for (number, file) in answers.iter().enumerate() {
        assert_eq!(content(file) as usize, number % segments.len());
    }
    drop(answers);
    assert!(storage.open_files() <= SEGMENTS_MAX);
    assert_eq!(open_segments.open_files(), storage.open_files());
}

#[test]
fn a_held_file_that_was_removed_or_replaced_is_not_given_out_again() {
    let (storage, open_segments, segments) = world(3 * SEGMENTS_MAX);
    let (removed, replaced) = (&segments[0], &segments[1]);
    let answers = [removed, replaced].map(|files| open_segments.log_file(files).unwrap());
    for files in &segments[2..] {
        open_segments.log_file(files).unwrap();
    }
    // Both are evicted by now, and held.
    open_segments.remove(removed).unwrap();
    create(&storage, replaced, 201);
    replaced.forget_log();
    assert!(open_segments.log_file(removed).is_err());
    assert_eq!(content(&open_segments.log_file(replaced).unwrap()), 201);
    let next = open_segments.segment(Path::new(HOME), 0, "");
    create(&storage, &next, 200);
    assert_eq!(content(&open_segments.log_file(&next).unwrap()), 200);
    assert_eq!(answers.each_ref().map(content), [0, 1]);
}

/// One that came between the open and the note of the file left the old one in use, to which
/// appends went although it had no name any more.
#[test]
fn a_file_that_is_replaced_while_it_is_opened_is_opened_anew() {
    let (storage, open_segments, segments) = world(1);
    let files = segments[0].clone();
    storage.before(Operation::Open, LOG, move || files.forget_log());
    let before = storage.calls();
    open_segments.log_file(&segments[0]).unwrap();
    assert_eq!(storage.calls() - before, 2);
    assert_eq!(storage.open_files(), 1);
}

/// What the cache may hold and the part of the other descriptors that is for answers.
#[test]
fn answers_that_hold_many_files_are_told_to_hold_bytes_until_some_have_gone() {
    let (_, open_segments, segments) = world(3_000);
    let mut answers = Vec::new();
    for files in &segments {
        if open_segments.is_crowded() {
            break;
        }
        answers.push(open_segments.log_file(files).unwrap());
    }
    assert!((1_000..2_900).contains(&answers.len()), "{}", answers.len());
    answers.truncate(100);
    assert!(!open_segments.is_crowded());
}

#[test]
fn a_lack_of_descriptors_closes_what_nobody_uses_and_the_file_is_opened() {
    let (storage, open_segments, segments) = world(SEGMENTS_MAX);
    let (last, others) = segments.split_last().unwrap();
    for files in others {
        open_segments.log_file(files).unwrap();
    }
    let before = storage.open_files();
    storage.inject(Fault::of(Operation::Open, "", Failure::TooManyOpen));
    assert_eq!(
        content(&open_segments.log_file(last).unwrap()) as usize,
        others.len()
    );
    assert!(storage.has_struck());
    assert!(storage.open_files() <= before, "nothing was closed for it");
    storage.inject(Fault::of(Operation::Open, "", Failure::TooManyOpen).lasting());
    let error = open_segments.log_file(&segments[0]).err().unwrap();
    assert!(error.lacks_descriptors());
}

//! Small text files that are replaced as a whole, and the frame of Kafka's checkpoint files. It is
//! read strictly, and printed byte for byte as Kafka prints it (`CheckpointFile`).
//!
//! ```text
//! 0                    version
//! 2                    count of the lines that follow
//! orders 0 1500        one entry a line, its fields separated by white space
//! orders 1 90
//! ```

use std::path::Path;

use super::storage::{self, Storage};
use crate::error::{Error, Result};

const CHECKPOINT_VERSION: i32 = 0;

/// The lines of a checkpoint file below its version and count, each turned into an entry by
/// `entry` from its fields (separated by white space); `None` of `entry` is an error.
pub(in crate::log) fn parse_entries<T>(
    text: &[u8],
    path: &Path,
    entry: impl Fn(&[&str]) -> Option<T>,
) -> Result<Vec<T>> {
    let text = text_of(text, path)?;
    let mut lines = lines(text).enumerate();
    let malformed = |index: usize, line: &str| {
        let position = line.as_ptr() as usize - text.as_ptr() as usize;
        let reason = format!("line {} is malformed: {line:?}", index + 1);
        Error::corrupt_file(path, position as u64, reason)
    };
    let Some((index, line)) = lines.next() else {
        return Ok(Vec::new());
    };
    let version: i32 = line.parse().map_err(|_| malformed(index, line))?;
    if version != CHECKPOINT_VERSION {
        let reason = format!("version {version} is unknown, {CHECKPOINT_VERSION} expected");
        return Err(Error::corrupt_file(path, 0, reason));
    }
    let Some((index, line)) = lines.next() else {
        return Ok(Vec::new());
    };
    let count: usize = line.parse().map_err(|_| malformed(index, line))?;
    let mut entries = Vec::new();
    for (index, line) in lines {
        // A blank in front would be an empty first field to Kafka.
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let starts_blank = line.starts_with(|first: char| first.is_ascii_whitespace());
        let parsed = if starts_blank { None } else { entry(&fields) };
        entries.push(parsed.ok_or_else(|| malformed(index, line))?);
    }
    if entries.len() != count {
        let reason = format!("line 2 announces {count} entries, {} follow", entries.len());
        return Err(Error::corrupt_file(path, text.len() as u64, reason));
    }
    Ok(entries)
}

pub(in crate::log) fn print_entries(entries: impl ExactSizeIterator<Item = String>) -> String {
    let mut text = format!("{CHECKPOINT_VERSION}\n{}\n", entries.len());
    for entry in entries {
        text.push_str(&entry);
        text.push('\n');
    }
    text
}

/// Refuses a file that ends within its lines: every one of Kafka's writers ends the last with LF.
/// A number that has lost its last digits would else be taken for a smaller one. An empty file is
/// whole: Kafka makes its checkpoints so, long before it first writes one.
pub(in crate::log) fn check_whole(text: &[u8], path: &Path) -> Result<()> {
    if text.is_empty()
        || text.ends_with(b"\n") && text.iter().filter(|byte| **byte == b'\n').count() >= 2
    {
        return Ok(());
    }
    let reason = "it ends within a line";
    Err(Error::corrupt_file(path, text.len() as u64, reason))
}

/// Reads a small file, `None` if it is not there.
pub fn read(storage: &dyn Storage, path: &Path) -> Result<Option<Vec<u8>>> {
    storage::read_file(storage, path).map_err(Error::io("read", path))
}

/// Replaces a small file: after a crash either the old or the new content is there.
pub fn write(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> Result<()> {
    storage::replace_file(storage, path, bytes).map_err(Error::io("replace", path))
}

pub(in crate::log) fn text_of<'a>(text: &'a [u8], path: &Path) -> Result<&'a str> {
    std::str::from_utf8(text).map_err(|error| {
        Error::corrupt_file(path, error.valid_up_to() as u64, "the text is not UTF-8")
    })
}

/// Lines as Java's `readLine` finds them: ended by LF, CR, CR LF or the end of the file.
pub(in crate::log) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(end) = rest.find(['\n', '\r']) else {
            return Some(std::mem::take(&mut rest));
        };
        let (line, after) = rest.split_at(end);
        let two = after.starts_with("\r\n");
        rest = &after[if two { 2 } else { 1 }..];
        Some(line)
    })
}

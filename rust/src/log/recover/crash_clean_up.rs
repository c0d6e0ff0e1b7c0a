//! Clean-up after a process that died in the midst of a change of files in a partition's directory,
//! told by the names: finished where it can be, else undone.
//!
//! ```text
//! .deleted    of a segment whose deletion was decided              removed
//! .cleaned    output of the cleaner that was not finished           removed
//! .swap       output that was finished                              takes its segments' names
//!             with a `.cleaned` at or below it: part of a split     removed
//! .tmp        a small file that was being written                   removed
//! ```

use crate::error::{Error, Result};
use crate::log::names::{self, CLEANED, DELETED, LOG, SWAP};
use crate::log::recover::Loader;
use crate::log::segment::SegmentEnd;

impl Loader<'_> {
    /// Step 1. After it returns, every file has the name of what it is.
    pub(in crate::log) fn clean_up_after_crash(&mut self) -> Result<()> {
        let names = self.names.clone();
        let is = names::is_of_segment;
        let cleaned = names.iter().filter(|name| is(name, CLEANED));
        let min_cleaned = cleaned.filter_map(|name| names::leading_offset(name)).min();
        let mut swaps = Vec::new();
        for name in &names {
            let offset = names::leading_offset(name);
            if is(name, DELETED) {
                self.remove(name, "its segment was deleted")?;
            } else if is(name, CLEANED) {
                self.remove(name, "the cleaner had not finished it")?;
            } else if is(name, SWAP) {
                if offset >= min_cleaned && min_cleaned.is_some() {
                    self.remove(name, "the split that made it had not finished")?;
                } else {
                    swaps.push(name.clone());
                }
            } else if name.ends_with(".tmp") && is_ours(name) {
                self.remove(name, "it was being written")?;
            }
        }
        if swaps.is_empty() {
            return Ok(());
        }
        self.finish_swaps(&swaps)
    }

    /// Segments that the finished output of the cleaner covers go before it takes their names.
    fn finish_swaps(&mut self, swaps: &[String]) -> Result<()> {
        let mut covered: Option<(i64, i64)> = None;
        for name in swaps {
            let Some(base) = names::base_offset_of(name, LOG, SWAP) else {
                continue;
            };
            let path = self.directory().join(name);
            let size = self
                .storage
                .file_size(&path)
                .map_err(Error::io("stat", &path))?;
            let end = SegmentEnd {
                size_bytes: size.unwrap_or(0),
                next_offset: base,
            };
            let segment = self.open_segment(base, end, SWAP);
            let last = segment
                .last_batch()?
                .map_or(base, |batch| batch.header.next_offset());
            let (low, high) = covered.unwrap_or((base, last));
            covered = Some((low.min(base), high.max(last)));
        }
        for name in self.names.clone() {
            let (Some((low, high)), Some(offset)) = (covered, names::leading_offset(&name)) else {
                continue;
            };
            let is_segment = !name.ends_with(names::PRODUCER_SNAPSHOT) && !name.ends_with(SWAP);
            if is_segment && (low..high).contains(&offset) {
                self.remove(&name, "the cleaner has replaced it")?;
            }
        }
        for name in swaps {
            let from = self.directory().join(name);
            let to = self.directory().join(name.trim_end_matches(SWAP));
            self.storage
                .rename(&from, &to)
                .map_err(Error::io("rename", &from))?;
            self.report.note(format!("finished the swap of {name}"));
        }
        self.sync_directory()?;
        self.list_names()
    }
}

/// Says whether an unfinished `.tmp` file is one that the log writes.
fn is_ours(name: &str) -> bool {
    names::leading_offset(name).is_some()
        || name.starts_with(names::LEADER_EPOCH_CHECKPOINT)
        || name.starts_with(names::PARTITION_METADATA)
}

//! Moves out of a log directory that were cancelled, and whose future replicas may still be there:
//! their directories are renamed when their disk answers. A start that finds one named here deletes
//! it; it would go on with the move otherwise, which somebody was told has ended.
//!
//! ```text
//! one/kafkalite-cancelled-moves    0                                       version
//!                                  1                                       count of the lines that follow
//!                                  <directory.id> orders-1.<unique>-future
//! ```
//!
//! Kafka renames while the client waits (`LogManager.asyncDelete`), and has no such file.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::log::checkpoint_file;
use crate::log::log::Log;
use crate::log::storage::Storage;
use crate::uuid::Uuid;

/// The directory of a future replica. The same name may be in two log directories.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct FuturePlace {
    pub(super) directory_id: Uuid,
    pub(super) name: String,
}

impl fmt::Display for FuturePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.directory_id, self.name)
    }
}

/// The contents of the file.
#[derive(Default)]
pub(super) struct CancelledMoves {
    /// The future replica: `None` is one of an earlier process.
    noted: Vec<(FuturePlace, Option<Arc<Log>>)>,
}

impl CancelledMoves {
    /// A file that is not there holds nothing. Errors: `Io`; `CorruptFile`.
    pub(super) fn read(storage: &dyn Storage, path: &Path) -> Result<CancelledMoves> {
        let Some(text) = checkpoint_file::read(storage, path)? else {
            return Ok(CancelledMoves::default());
        };
        checkpoint_file::check_whole(&text, path)?;
        let noted = checkpoint_file::parse_entries(&text, path, |fields| match fields {
            [directory_id, name] => {
                let directory_id = Uuid::parse(directory_id)?;
                let name = (*name).to_owned();
                Some((FuturePlace { directory_id, name }, None))
            }
            _ => None,
        })?;
        Ok(CancelledMoves { noted })
    }

    /// Adds one. Those that have gone since are left out from now on.
    pub(super) fn add(&mut self, place: FuturePlace, future: Arc<Log>) {
        self.noted.retain(|(_, future)| match future {
            Some(future) => future.check_not_deleted().is_ok(),
            None => true,
        });
        self.noted.push((place, Some(future)));
    }

    pub(super) fn places(&self) -> impl Iterator<Item = &FuturePlace> {
        self.noted.iter().map(|(place, _)| place)
    }

    /// After it returns, the file holds them, whatever happens.
    pub(super) fn write(&self, storage: &dyn Storage, path: &Path) -> Result<()> {
        let places = self.noted.iter().map(|(place, _)| place.to_string());
        let text = checkpoint_file::print_entries(places);
        checkpoint_file::write(storage, path, text.as_bytes())
    }
}

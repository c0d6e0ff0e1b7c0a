//! Log files as a home of the Arrow endpoint: no broker is asked, and one may be running beside.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatchIterator;

use super::request::refuse;
use super::{Losses, ReadRequest, Rows, RowsAtHand};
use crate::arrow::plan::{LogRead, OffsetSpec, Offsets, ReadOptions};
use crate::arrow::stream::LogStream;
use crate::error::{Error, Result};
use crate::log::storage::{DiskStorage, Storage};

/// Which files may be read.
#[derive(Debug)]
pub struct LogFiles {
    /// Where a partition is looked for if the request names no path: directories of logs, or of
    /// partitions.
    roots: Vec<PathBuf>,
    /// Allows requests to name a path that is not below one of `roots`.
    any_path: bool,
}

impl LogFiles {
    /// `roots` are absolute and without symbolic links.
    pub fn new(roots: Vec<PathBuf>, any_path: bool) -> LogFiles {
        LogFiles { roots, any_path }
    }

    /// Says that a request that names no path is answered from files.
    pub fn has_roots(&self) -> bool {
        !self.roots.is_empty()
    }

    /// The rows of a read; none of a path that is gone, or holds no log, where lost data is no
    /// failure but told. Errors: `InvalidArgument`, and those of `LogRead::open`.
    pub fn read(&self, request: &ReadRequest, losses: &Losses) -> Result<Rows> {
        let gone = |reason: &str| {
            losses.tell(format!(
                "the partition {} is gone: {reason}",
                request.name()
            ));
            Ok(no_rows(request))
        };
        match self.directory(request)? {
            Found::Gone(reason) => gone(&reason),
            Found::At(directory) => match read(request, &directory, losses) {
                Err(error @ Error::LogDirRefused { .. }) if !request.fail_on_data_loss => {
                    gone(&error.to_string())
                }
                rows => rows,
            },
        }
    }

    fn directory(&self, request: &ReadRequest) -> Result<Found> {
        let name = request.name();
        // A topic's name has no slash; one with `..` would lead elsewhere.
        if Path::new(&name).components().count() != 1 || name.contains(['/', '\0']) {
            return refuse(format!("'{}' is no name of a topic", request.topic));
        }
        let Some(path) = &request.place.path else {
            let found = self.roots.iter().map(|root| at(root, &name));
            return match found.into_iter().find(|each| each.is_dir()) {
                Some(directory) => Ok(Found::At(directory)),
                None => refuse(format!("{name} is in none of the paths that are served")),
            };
        };
        let real = path
            .canonicalize()
            .and_then(|path| at(&path, &name).canonicalize());
        let real = match real {
            Ok(real) => real,
            Err(error) if error.kind() == ErrorKind::NotFound && !request.fail_on_data_loss => {
                return Ok(Found::Gone(format!("path {}: {error}", path.display())));
            }
            Err(error) => return refuse(format!("{name} in path {}: {error}", path.display())),
        };
        if !self.any_path && !self.roots.iter().any(|root| real.starts_with(root)) {
            return refuse(format!(
                "path {} is not below the paths that are served",
                path.display()
            ));
        }
        Ok(Found::At(real))
    }
}

/// A partition's directory, or why there is none where that is no failure.
enum Found {
    At(PathBuf),
    Gone(String),
}

fn read(request: &ReadRequest, directory: &Path, losses: &Losses) -> Result<Rows> {
    let (mut start, mut stop) = (request.start, request.stop);
    if !request.fail_on_data_loss {
        let (first, last) = range_of(&open(request, directory, None, None)?);
        let (from, to) = request.range_within(first, last, last, "end", losses)?;
        (start, stop) = (Some(from), Some(to));
    }
    let read = open(request, directory, start, stop)?;
    let (first, last) = range_of(&read);
    match stop {
        Some(stop) if stop > last => {
            request.range_within(first, last, last, "end", losses)?;
        }
        _ => {}
    }
    let stream = LogStream::new(Arc::new(read)).telling_progress();
    Ok(Box::new(
        RowsAtHand::new(stream).holding(LogStream::held_bytes),
    ))
}

fn no_rows(request: &ReadRequest) -> Rows {
    let schema = request.shape.schema().clone();
    let none = RecordBatchIterator::new(std::iter::empty(), schema);
    Box::new(RowsAtHand::new(none))
}

/// A partition's directory: the path itself, or in it.
fn at(path: &Path, name: &str) -> PathBuf {
    match path.file_name() {
        Some(last) if last == name => path.to_path_buf(),
        _ => path.join(name),
    }
}

fn range_of(read: &LogRead) -> (i64, i64) {
    let range = read.ranges.first();
    range.map_or((0, 0), |range| (range.start, range.stop))
}

fn open(
    request: &ReadRequest,
    directory: &Path,
    start: Option<i64>,
    stop: Option<i64>,
) -> Result<LogRead> {
    let offsets = |offset: Option<i64>| Offsets {
        for_all: offset.map(OffsetSpec::Offset),
        ..Offsets::default()
    };
    let options = ReadOptions {
        topic: None,
        start: offsets(start),
        stop: offsets(stop),
        shape: request.shape.clone(),
        isolation: request.isolation,
        bounds: request.bounds,
    };
    let storage: Arc<dyn Storage> = Arc::new(DiskStorage);
    LogRead::open(&storage, &[directory.to_path_buf()], options)
}

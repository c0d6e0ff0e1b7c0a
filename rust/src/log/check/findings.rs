//! Findings of a check: what is not as it should be, file by file.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::limits::FINDINGS_PER_FILE_MAX;

/// Something that is not as it should be, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: PathBuf,
    pub position_byte: Option<u64>,
    pub sentence: String,
}

/// Findings, at most so many a file; the rest are counted.
#[derive(Debug, Default)]
pub struct Findings {
    list: Vec<Finding>,
    /// The file that is spoken of last.
    path: PathBuf,
    of_path: usize,
}

impl Findings {
    pub fn add(&mut self, path: &Path, position_byte: Option<u64>, sentence: impl Into<String>) {
        if self.path != path {
            self.end_of_file();
            self.path = path.to_path_buf();
        }
        self.of_path += 1;
        if self.of_path <= FINDINGS_PER_FILE_MAX {
            self.list.push(Finding {
                path: path.to_path_buf(),
                position_byte,
                sentence: sentence.into(),
            });
        }
    }

    /// An error of reading or parsing, as a finding. `InvalidArgument` and the like are passed on.
    pub fn add_error(&mut self, path: &Path, error: Error) -> Result<()> {
        match error {
            Error::CorruptFile {
                position_byte,
                reason,
                ..
            } => self.add(path, Some(position_byte), reason),
            Error::Io {
                operation, source, ..
            } => self.add(path, None, format!("{operation} failed: {source}")),
            other => return Err(other),
        }
        Ok(())
    }

    fn end_of_file(&mut self) {
        let more = self.of_path.saturating_sub(FINDINGS_PER_FILE_MAX);
        if more > 0 {
            self.list.push(Finding {
                path: std::mem::take(&mut self.path),
                position_byte: None,
                sentence: format!("{more} more findings in this file"),
            });
        }
        self.of_path = 0;
    }

    pub fn take(&mut self) -> Vec<Finding> {
        self.end_of_file();
        self.path = PathBuf::new();
        std::mem::take(&mut self.list)
    }
}

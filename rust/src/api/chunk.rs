//! An answer as it leaves: chunks in order, of which some are still in files or yet to be made.

use std::sync::Arc;

use super::large::Later;
use super::large::partitions::Rest;
use crate::error::{Error, Result};
use crate::log::directory::LogDirectory;
use crate::log::read::FetchedRange;
use crate::wire::{Writer, frame};

/// A part of a response: bytes, or bytes that are still in a segment's file or yet to be made.
pub enum Chunk {
    Bytes(Vec<u8>),
    Later(Later),
    /// And the directory that they are read from.
    File(FetchedRange, Arc<LogDirectory>),
}

impl Chunk {
    pub fn size_bytes(&self) -> usize {
        match self {
            Chunk::Bytes(bytes) => bytes.len(),
            Chunk::Later(later) => later.left_bytes(),
            Chunk::File(range, _) => range.length_bytes as usize,
        }
    }

    /// Bytes of it that are in memory.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Chunk::Bytes(bytes) => bytes.len(),
            Chunk::Later(later) => later.memory_bytes(),
            Chunk::File(..) => 0,
        }
    }
}

/// Puts the size in front of a whole answer. Errors as `frame::finish`.
pub fn finish(chunks: &mut [Chunk], bytes_max: i32) -> Result<()> {
    match chunks {
        [Chunk::Bytes(first), further @ ..] => {
            let further_bytes = further.iter().map(Chunk::size_bytes).sum();
            frame::finish(first, further_bytes, bytes_max)
        }
        _ => Err(Error::InvalidArgument(
            "an answer begins with bytes".to_owned(),
        )),
    }
}

/// Puts the rest of an answer behind what `writer` holds, which it goes on writing behind that.
pub fn put_rest(writer: &mut Writer, rest: Option<Rest>, chunks: &mut Vec<Chunk>) {
    if let Some(rest) = rest {
        chunks.push(Chunk::Bytes(std::mem::take(&mut writer.bytes)));
        chunks.push(Chunk::Later(rest.later));
    }
}

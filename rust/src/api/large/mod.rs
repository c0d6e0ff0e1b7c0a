//! Large requests: frames beyond `LARGE_REQUEST_BYTES`, read by a thread of their own
//! (`net/reactor/large_requests.rs`).
//!
//! Such a request may name what there is, and that is kept as for any other request: no more than
//! the broker has. Or it names what there is not, millions of times: of that only the frame is
//! kept, and a few bits for each byte of it.
//!
//! ```text
//! frame ─► read: what there is ─► as in any request: appended, fetched, searched ─► bytes
//!      └─► marked: what there is not, once each ─► counted ─► made in slices as they leave (`Slices`)
//! ```
//!
//! `Later` is the chunk of an answer that is made in slices: it is gone through once to know its
//! size, which stands in front of the answer, and once more while it is sent.

pub mod partitions;
pub mod repetitions;

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::wire::Reader;

/// The content of a frame that is kept until its answer has left.
#[derive(Clone)]
pub struct Kept {
    frame: Arc<Vec<u8>>,
    content: Range<usize>,
}

impl Kept {
    pub fn new(frame: Vec<u8>, content: Range<usize>) -> Kept {
        Kept {
            frame: Arc::new(frame),
            content,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        self.frame.get(self.content.clone()).unwrap_or_default()
    }

    /// A reader that stands at this byte of the content.
    pub fn reader_at(&self, at: usize) -> Reader<'_> {
        Reader::at(self.bytes(), at)
    }

    /// The frame and where its content lies, if nobody else keeps it; else a copy.
    pub fn into_frame(self) -> (Vec<u8>, Range<usize>) {
        match Arc::try_unwrap(self.frame) {
            Ok(frame) => (frame, self.content),
            Err(frame) => (frame.to_vec(), self.content),
        }
    }
}

/// A part of an answer that is made a slice at a time.
pub trait Slices: Send {
    /// Puts the next slice behind `bytes`: about `SLICE_BYTES` of it, or nothing after as many
    /// bytes of the request. False: there is no more.
    fn next(&mut self, bytes: &mut Vec<u8>) -> Result<bool>;
}

/// A chunk of an answer that is made as it is sent.
pub struct Later {
    slices: Box<dyn Slices>,
    left_bytes: usize,
    memory_bytes: usize,
}

impl Later {
    /// Goes through all of it to know its size. `memory_bytes` is what it holds.
    pub fn new(slices: impl Slices + Clone + 'static, memory_bytes: usize) -> Result<Later> {
        let mut counting = slices.clone();
        let (mut left_bytes, mut bytes, mut goes_on) = (0, Vec::new(), true);
        while goes_on {
            goes_on = counting.next(&mut bytes)?;
            left_bytes += bytes.len();
            bytes.clear();
        }
        Ok(Later {
            slices: Box::new(slices),
            left_bytes,
            memory_bytes,
        })
    }

    /// Bytes that are not made yet.
    pub fn left_bytes(&self) -> usize {
        self.left_bytes
    }

    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The next slice, in which there may be nothing. Errors: what is made is not as long as it was
    /// when it was counted, since something has failed meanwhile: the frame cannot be completed.
    pub fn make(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let goes_on = self.slices.next(&mut bytes)?;
        let left_bytes = self.left_bytes.checked_sub(bytes.len());
        match left_bytes.filter(|left| goes_on || *left == 0) {
            Some(left_bytes) => self.left_bytes = left_bytes,
            None => {
                let reason = "an answer is not as long as it was to be".to_owned();
                return Err(Error::InvalidArgument(reason));
            }
        }
        Ok(bytes)
    }
}

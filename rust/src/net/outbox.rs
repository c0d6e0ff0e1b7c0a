//! The answers that a connection has yet to send, in order: bytes, and ranges of segment files
//! that go from the page cache to the socket by `sendfile`. A range holds its file, so a segment
//! may be deleted meanwhile.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::api::Chunk;
use crate::limits::{
    RECEIVE_BYTES, SEND_BYTES_PER_TURN, SENDFILE_BYTES, SLICE_BYTES, SLICE_COST,
    SPARE_ANSWER_BYTES_MAX, SPARE_ANSWERS_MAX,
};
use crate::log::directory::LogDirectory;
use crate::net::memory::ExceedingAnswer;
use crate::net::memory::large_answer::LargeAnswer;

/// Where bytes go. Takes what it can; `WouldBlock` if that is nothing.
pub trait Sink {
    fn write(&self, vectors: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Up to `count` bytes of a file from `position` on; 0 means that the file is shorter.
    fn send_file(&self, file: RawFd, position: u64, count: usize) -> io::Result<usize>;
}

/// Small answers are put together into chunks of at most this, bytes.
const COALESCED_BYTES: usize = 64 * 1024;
/// Chunks that one `writev` takes.
const VECTORS: usize = 16;

/// Buffers of answers that are sent, for the next ones; one a thread, so that an idle connection
/// holds none.
#[derive(Default)]
pub struct SpareAnswers(Vec<Vec<u8>>);

impl SpareAnswers {
    fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    fn put(&mut self, mut bytes: Vec<u8>) {
        if self.0.len() < SPARE_ANSWERS_MAX && bytes.capacity() <= SPARE_ANSWER_BYTES_MAX {
            bytes.clear();
            self.0.push(bytes);
        }
    }
}

#[derive(Default)]
pub struct Outbox {
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that are sent.
    sent: usize,
    queued_bytes: usize,
    /// Ranges of files among the chunks, and what of them is not sent yet.
    files: usize,
    file_bytes: usize,
    /// Bytes that are yet to be made, and the memory that is kept for it.
    later_bytes: usize,
    kept_bytes: usize,
    /// Some of what was in here since it was last empty has left.
    has_begun: bool,
    /// Bytes that have left, of all that was ever in here.
    left_bytes: u64,
    /// The shares of the memory that answers in here have until they are sent, in their order.
    kept: VecDeque<Kept>,
}

/// The share of the memory that an answer has until it is sent.
struct Kept {
    /// `Outbox::left_bytes` once it is.
    end: u64,
    large: Option<LargeAnswer>,
    _exceeding: Option<ExceedingAnswer>,
}

impl Kept {
    /// Bytes not sent yet, of those before `end`, whose memory it counts itself.
    fn counted_bytes(&self, left_bytes: u64) -> usize {
        let answer_bytes = self.large.as_ref().map_or(0, |large| large.memory.bytes());
        answer_bytes.min((self.end - left_bytes) as usize)
    }
}

/// How far a flush came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Nothing is left.
    All,
    /// The socket takes no more, or it is the next connection's turn.
    Part,
    /// The next range lies in another log directory.
    Elsewhere,
}

impl Outbox {
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes that are not sent yet.
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Ranges of files are to be sent, which may block.
    pub fn has_files(&self) -> bool {
        self.files > 0
    }

    /// So much is to be sent out of one log directory, and none of it has left yet: later the
    /// reader has shown to be slow.
    pub fn is_long(&self, long_bytes: usize) -> bool {
        if self.has_begun || !self.has_files() || self.queued_bytes < long_bytes {
            return false;
        }
        let (mut here, mut size_bytes) = (None, 0);
        for chunk in &self.chunks {
            if let Chunk::File(_, directory) = chunk
                && !Arc::ptr_eq(here.get_or_insert(directory), directory)
            {
                break;
            }
            size_bytes += chunk.size_bytes();
        }
        size_bytes >= long_bytes
    }

    /// The log directory of the next range of a file.
    pub fn directory(&self) -> Option<&Arc<LogDirectory>> {
        self.chunks.iter().find_map(|chunk| match chunk {
            Chunk::File(_, directory) => Some(directory),
            _ => None,
        })
    }

    /// Bytes that are in memory for it, without those of large answers, which count by themselves.
    pub fn memory_bytes(&self) -> usize {
        let kept = self.kept.iter();
        let large_bytes: usize = kept.map(|kept| kept.counted_bytes(self.left_bytes)).sum();
        self.queued_bytes - self.file_bytes - self.later_bytes + self.kept_bytes - large_bytes
    }

    /// A large answer is not all sent.
    pub fn has_large_answer(&self) -> bool {
        self.kept.iter().any(|kept| kept.large.is_some())
    }

    /// Keeps what the answer that was put in here last, all of it, has of the memory until it has
    /// left, whatever is put behind it.
    pub fn keep_until_sent(
        &mut self,
        large: Option<LargeAnswer>,
        exceeding: Option<ExceedingAnswer>,
    ) {
        if large.is_none() && exceeding.is_none() {
            return;
        }
        assert!(!self.is_empty(), "there is no answer");
        self.kept.push_back(Kept {
            end: self.left_bytes + self.queued_bytes as u64,
            large,
            _exceeding: exceeding,
        });
    }

    /// Puts what is to be sent behind everything in here. None of it has left.
    pub fn append(&mut self, later: Outbox) {
        assert!(later.left_bytes == 0, "some of it has left before");
        let ahead_bytes = self.left_bytes + self.queued_bytes as u64;
        for mut kept in later.kept {
            kept.end += ahead_bytes;
            self.kept.push_back(kept);
        }
        for chunk in later.chunks {
            self.push(chunk);
        }
    }

    pub fn push(&mut self, chunk: Chunk) {
        self.queued_bytes += chunk.size_bytes();
        match &chunk {
            Chunk::Bytes(_) => {}
            Chunk::File(..) => {
                self.files += 1;
                self.file_bytes += chunk.size_bytes();
            }
            Chunk::Later(later) => {
                self.later_bytes += later.left_bytes();
                self.kept_bytes += later.memory_bytes();
            }
        }
        if let (Some(Chunk::Bytes(last)), Chunk::Bytes(bytes)) = (self.chunks.back_mut(), &chunk)
            && last.len() + bytes.len() <= COALESCED_BYTES
        {
            last.extend_from_slice(bytes);
            return;
        }
        self.chunks.push_back(chunk);
    }

    /// Has `write` put bytes behind everything in here, in place.
    pub fn write(&mut self, spare: &mut SpareAnswers, write: impl FnOnce(&mut Vec<u8>)) {
        let last = match self.chunks.back_mut() {
            Some(Chunk::Bytes(last)) if last.len() < COALESCED_BYTES => last,
            _ => {
                self.chunks.push_back(Chunk::Bytes(spare.take()));
                match self.chunks.back_mut() {
                    Some(Chunk::Bytes(last)) => last,
                    _ => return,
                }
            }
        };
        let before = last.len();
        write(last);
        self.queued_bytes += last.len() - before;
    }

    /// Sends what the socket takes, at most `SEND_BYTES_PER_TURN`. An error is the end of the
    /// connection: a file that is shorter than its range too, since the frame cannot be completed.
    pub fn flush(&mut self, socket: &impl Sink, spare: &mut SpareAnswers) -> io::Result<Flushed> {
        self.flush_from(socket, spare, |_| true)
    }

    /// Sends as `flush` does, as long as files lie where `may_read` allows it.
    pub fn flush_from(
        &mut self,
        socket: &impl Sink,
        spare: &mut SpareAnswers,
        may_read: impl Fn(&Arc<LogDirectory>) -> bool,
    ) -> io::Result<Flushed> {
        let mut budget = SEND_BYTES_PER_TURN;
        while !self.chunks.is_empty() {
            if budget == 0 {
                return Ok(Flushed::Part);
            }
            let result = match self.chunks.front() {
                Some(Chunk::File(_, directory)) if !may_read(directory) => {
                    // Its reader has kept up so far.
                    self.has_begun = false;
                    return Ok(Flushed::Elsewhere);
                }
                Some(Chunk::File(..)) => self.send_range(socket, budget),
                Some(Chunk::Later(_)) => {
                    self.make_slice()?;
                    budget = budget.saturating_sub(SLICE_COST * SLICE_BYTES);
                    continue;
                }
                _ => self.send_bytes(socket),
            };
            match result {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    budget = budget.saturating_sub(count);
                    self.consume(count, spare);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Flushed::Part);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Flushed::All)
    }

    /// Makes the next slice of what stands first. An error is the end of the connection.
    fn make_slice(&mut self) -> io::Result<()> {
        let Some(Chunk::Later(later)) = self.chunks.front_mut() else {
            return Ok(());
        };
        let made = later
            .make()
            .map_err(|error| io::Error::other(error.to_string()))?;
        let (left_bytes, kept_bytes) = (later.left_bytes(), later.memory_bytes());
        self.later_bytes -= made.len();
        if left_bytes == 0 {
            self.kept_bytes -= kept_bytes;
            self.chunks.pop_front();
        }
        if !made.is_empty() {
            self.chunks.push_front(Chunk::Bytes(made));
        }
        Ok(())
    }

    fn send_bytes(&self, socket: &impl Sink) -> io::Result<usize> {
        let mut vectors = [IoSlice::new(&[]); VECTORS];
        let mut count = 0;
        let mut skip = self.sent;
        for (vector, chunk) in vectors.iter_mut().zip(&self.chunks) {
            let Chunk::Bytes(bytes) = chunk else { break };
            *vector = IoSlice::new(bytes.get(skip..).unwrap_or_default());
            skip = 0;
            count += 1;
        }
        socket.write(&vectors[..count])
    }

    fn send_range(&self, socket: &impl Sink, budget: usize) -> io::Result<usize> {
        let Some(Chunk::File(range, _)) = self.chunks.front() else {
            return Ok(0);
        };
        let left = range.length_bytes as usize - self.sent;
        let position = range.position_byte + self.sent as u64;
        match range.file().and_then(|file| file.descriptor()) {
            Some(file) => {
                let count = left.min(budget).min(SENDFILE_BYTES);
                socket.send_file(file, position, count)
            }
            None => {
                let mut buffer = vec![0; left.min(RECEIVE_BYTES)];
                range
                    .read_at(&mut buffer, self.sent as u64)
                    .map_err(|error| io::Error::other(error.to_string()))?;
                socket.write(&[IoSlice::new(&buffer)])
            }
        }
    }

    fn consume(&mut self, mut count: usize, spare: &mut SpareAnswers) {
        self.queued_bytes -= count;
        self.left_bytes += count as u64;
        while self
            .kept
            .front()
            .is_some_and(|kept| kept.end <= self.left_bytes)
        {
            self.kept.pop_front();
        }
        self.has_begun = self.queued_bytes > 0;
        while let Some(first) = self.chunks.front() {
            let left = first.size_bytes() - self.sent;
            if matches!(first, Chunk::File(..)) {
                self.file_bytes -= left.min(count);
            }
            if count < left {
                self.sent += count;
                return;
            }
            count -= left;
            self.sent = 0;
            match self.chunks.pop_front() {
                Some(Chunk::Bytes(bytes)) => spare.put(bytes),
                Some(Chunk::File(..)) => self.files -= 1,
                Some(Chunk::Later(later)) => self.kept_bytes -= later.memory_bytes(),
                None => {}
            }
        }
    }
}

#[cfg(test)]
impl Outbox {
    /// The bytes to be sent, as long as that is bytes only.
    pub fn bytes(&self) -> Vec<u8> {
        let chunks = self.chunks.iter().flat_map(|chunk| match chunk {
            Chunk::Bytes(bytes) => bytes.clone(),
            _ => panic!("no bytes"),
        });
        chunks.skip(self.sent).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::net::memory::budget::ReceiveBudget;
    use crate::net::memory::large_answer::LargeAnswers;
    use crate::net::memory::{HeldMemory, Memory};

    /// Takes at most `step` bytes a call and `room` in all.
    struct Slow {
        step: usize,
        room: RefCell<usize>,
        taken: RefCell<Vec<u8>>,
    }

    impl Sink for Slow {
        fn write(&self, vectors: &[IoSlice<'_>]) -> io::Result<usize> {
            let mut room = self.room.borrow_mut();
            if *room == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let all: Vec<u8> = vectors.iter().flat_map(|vector| vector.to_vec()).collect();
            let count = all.len().min(self.step).min(*room);
            self.taken.borrow_mut().extend_from_slice(&all[..count]);
            *room -= count;
            Ok(count)
        }

        fn send_file(&self, _: RawFd, _: u64, _: usize) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    fn slow(step: usize, room: usize) -> Slow {
        Slow {
            step,
            room: RefCell::new(room),
            taken: RefCell::default(),
        }
    }

    fn filled(sizes: &[usize]) -> (Outbox, Vec<u8>) {
        let mut outbox = Outbox::default();
        let mut all = Vec::new();
        for (number, size) in sizes.iter().enumerate() {
            let bytes: Vec<u8> = (0..*size).map(|at| (at * 7 + number) as u8).collect();
            all.extend_from_slice(&bytes);
            outbox.push(Chunk::Bytes(bytes));
        }
        (outbox, all)
    }

    #[test]
    fn whatever_the_socket_takes_at_a_time_the_bytes_arrive_in_order() {
        let sizes = [1, 70_000, 0, 3, 40_000, 40_000, 17, 65_536, 9];
        for step in [1_000, 4_096, 65_535, 1 << 20] {
            let (mut outbox, all) = filled(&sizes);
            let sink = slow(step, usize::MAX);
            assert_eq!(
                outbox.flush(&sink, &mut SpareAnswers::default()).ok(),
                Some(Flushed::All)
            );
            assert!(outbox.is_empty() && outbox.queued_bytes() == 0);
            assert!(*sink.taken.borrow() == all);
        }
    }

    #[test]
    fn a_full_socket_leaves_the_rest_for_later() {
        let (mut outbox, all) = filled(&[100_000, 5, 100_000]);
        let sink = slow(1 << 20, 100_002);
        assert_eq!(
            outbox.flush(&sink, &mut SpareAnswers::default()).ok(),
            Some(Flushed::Part)
        );
        assert_eq!(outbox.queued_bytes(), all.len() - 100_002);
        let (later, more) = filled(&[10, 80_000]);
        outbox.append(later);
        *sink.room.borrow_mut() = usize::MAX;
        assert_eq!(
            outbox.flush(&sink, &mut SpareAnswers::default()).ok(),
            Some(Flushed::All)
        );
        assert!(*sink.taken.borrow() == [all, more].concat());
    }

    #[test]
    fn answers_written_in_place_leave_in_order_and_their_buffers_serve_again() {
        let mut spare = SpareAnswers::default();
        let mut outbox = Outbox::default();
        let sink = slow(2, 5);
        for byte in 0..3 {
            outbox.write(&mut spare, |bytes| bytes.extend_from_slice(&[byte; 2]));
        }
        assert_eq!(outbox.flush(&sink, &mut spare).ok(), Some(Flushed::Part));
        outbox.push(Chunk::Bytes(vec![3; COALESCED_BYTES]));
        outbox.write(&mut spare, |bytes| bytes.push(4));
        assert_eq!(outbox.queued_bytes(), 1 + COALESCED_BYTES + 1);
        assert!(spare.0.is_empty());
        *sink.room.borrow_mut() = usize::MAX;
        assert_eq!(outbox.flush(&sink, &mut spare).ok(), Some(Flushed::All));
        let mut expected = vec![0, 0, 1, 1, 2, 2];
        expected.resize(6 + COALESCED_BYTES, 3);
        expected.push(4);
        assert!(*sink.taken.borrow() == expected);
        // The large one is given back to the system.
        let kept: Vec<usize> = spare.0.iter().map(Vec::len).collect();
        assert_eq!(kept, [0, 0]);
    }

    #[test]
    fn an_answer_has_its_memory_until_its_last_byte_leaves_whatever_comes_behind_it() {
        let memory = Memory::new(ReceiveBudget::new(1, None), || ());
        let answers = Arc::new(LargeAnswers::default());
        let mut spare = SpareAnswers::default();
        let mut sending = filled(&[10]).0;
        let mut outbox = Outbox::default();
        for _ in 0..2 {
            outbox.push(Chunk::Bytes(vec![1; 100_000]));
            let large = answers.begin(HeldMemory::new(&memory, 100_000));
            outbox.keep_until_sent(Some(large), memory.exceed_by_answer());
            outbox.push(Chunk::Bytes(vec![2; 7]));
        }
        assert_eq!(outbox.memory_bytes(), 2 * 7);
        let sink = slow(1 << 20, 4);
        assert!(sending.flush(&sink, &mut spare).is_ok());
        sending.append(outbox);
        *sink.room.borrow_mut() = 6 + 99_999;
        assert!(sending.flush(&sink, &mut spare).is_ok());
        assert_eq!(memory.used_bytes(), 200_000);
        assert!(memory.exceed_by_answer().is_none() && sending.has_large_answer());
        *sink.room.borrow_mut() = 1;
        assert!(sending.flush(&sink, &mut spare).is_ok());
        assert_eq!(memory.used_bytes(), 100_000);
        assert!(!answers.has_room(&memory) && sending.has_large_answer());
        assert_eq!(sending.memory_bytes(), 2 * 7);
        assert!(memory.exceed_by_answer().is_some());
        *sink.room.borrow_mut() = 7 + 100_000;
        assert!(sending.flush(&sink, &mut spare).is_ok());
        assert!(memory.used_bytes() == 0 && answers.has_room(&memory));
        assert!(!sending.has_large_answer());
        assert!(sending.queued_bytes() == 7 && sending.memory_bytes() == 7);
    }

    #[test]
    fn one_turn_sends_so_much_and_no_more() {
        let (mut outbox, _) = filled(&[SEND_BYTES_PER_TURN, 1 << 20]);
        let sink = slow(1 << 20, usize::MAX);
        assert_eq!(
            outbox.flush(&sink, &mut SpareAnswers::default()).ok(),
            Some(Flushed::Part)
        );
        assert_eq!(outbox.queued_bytes(), 1 << 20);
    }
}

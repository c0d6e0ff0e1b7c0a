//! The memory that the Arrow batches of all clients of an endpoint may take together. A client sets
//! how large its batches are, and there may be hundreds of clients: room for the largest batch that
//! a read may have is taken before one is made. While it is sent, which may take as long as the
//! client likes, it holds as much as it has become.
//!
//! A batch that alone takes more than there is goes when there is no other. One that finds no room
//! waits a while, and its read is refused then: clients may hold each other up (a task that reads
//! two partitions side by side).
//!
//! A read that waits for a broker, maybe in vain, takes nothing meanwhile. With rows of a batch
//! that is not full it may keep what these take, as long as all that wait so keep a small part
//! together; else it sends them first. Nobody who keeps some waits for more: its rows go as
//! they are if there is none.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::{Error, Result};
use crate::limits::{ARROW_BATCHES_BYTES_MAX, ARROW_BATCHES_BYTES_MIN, ARROW_BATCHES_KEPT_PART};

pub(super) struct BatchMemory {
    bytes_max: usize,
    used: Mutex<Used>,
    changed: Condvar,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Used {
    bytes: usize,
    /// Bytes of these that reads keep that wait for their rows.
    kept_bytes: usize,
}

/// Memory that a batch holds, until this is dropped.
pub(super) struct Taken<'a> {
    memory: &'a BatchMemory,
    bytes: usize,
    is_kept: bool,
}

impl BatchMemory {
    /// `memory_bytes`: what the process may have, if that is known.
    pub fn new(memory_bytes: Option<u64>) -> BatchMemory {
        let bytes_max = memory_bytes.map_or(ARROW_BATCHES_BYTES_MAX, |bytes| {
            (bytes / 4).clamp(ARROW_BATCHES_BYTES_MIN, ARROW_BATCHES_BYTES_MAX)
        });
        BatchMemory {
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            used: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// That of requests: a part of what batches may have.
    pub fn of_requests(memory_bytes: Option<u64>) -> BatchMemory {
        let of_batches = BatchMemory::new(memory_bytes);
        BatchMemory {
            bytes_max: of_batches.bytes_max / 4,
            ..of_batches
        }
    }

    /// Takes room for a batch of so many bytes, for which it waits up to `wait`.
    ///
    /// Errors: `InvalidArgument` for a client that waited in vain, also since
    /// the server `is_stopping`.
    pub fn take(
        &self,
        bytes: usize,
        wait: Duration,
        is_stopping: impl Fn() -> bool,
    ) -> Result<Taken<'_>> {
        let deadline = Instant::now() + wait;
        let mut used = self.used.lock();
        while !self.has_room_beside(used.bytes, bytes) {
            let is_late = self.changed.wait_until(&mut used, deadline).timed_out();
            if is_late || is_stopping() {
                return Err(Error::InvalidArgument(format!(
                    "the Arrow endpoint has no memory for this read now: its batches may take {bytes} bytes, those of \
                     other reads {} of {}; ask for fewer batch.rows and batch.bytes, or later",
                    used.bytes, self.bytes_max
                )));
            }
        }
        used.bytes = used.bytes.saturating_add(bytes);
        Ok(Taken {
            memory: self,
            bytes,
            is_kept: false,
        })
    }

    fn has_room_beside(&self, others_bytes: usize, bytes: usize) -> bool {
        others_bytes == 0 || others_bytes.saturating_add(bytes) <= self.bytes_max
    }

    /// Has those who wait look whether the server stops.
    pub fn wake(&self) {
        drop(self.used.lock());
        self.changed.notify_all();
    }
}

impl<'a> Taken<'a> {
    /// Holds so many bytes from now on: what is there already is counted, however much it is, and
    /// others wait for it.
    pub fn resize_to(&mut self, bytes: usize) {
        let used = self.memory.used.lock();
        self.set(used, bytes, false);
    }

    /// Gives back what is beyond so many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        let used = self.memory.used.lock();
        self.set(used, bytes.min(self.bytes), false);
    }

    /// Keeps up to so many bytes for a wait of which nobody knows how long it takes. False, and
    /// nothing has changed: those that wait keep too much already.
    pub fn keep(&mut self, bytes: usize) -> bool {
        let bytes = bytes.min(self.bytes);
        let used = self.memory.used.lock();
        let kept_bytes = used.kept_bytes.saturating_add(bytes);
        if kept_bytes > self.memory.bytes_max / ARROW_BATCHES_KEPT_PART {
            return false;
        }
        self.set(used, bytes, true);
        true
    }

    /// Has so many bytes after a wait, if there are as many. False: it has what it has kept.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let used = self.memory.used.lock();
        let others_bytes = used.bytes - self.bytes;
        let has_room = self.memory.has_room_beside(others_bytes, bytes);
        self.set(used, if has_room { bytes } else { self.bytes }, false);
        has_room
    }

    fn set(&mut self, mut used: MutexGuard<'a, Used>, bytes: usize, is_kept: bool) {
        let kept_bytes = if self.is_kept { self.bytes } else { 0 };
        assert!(
            used.bytes >= self.bytes && used.kept_bytes >= kept_bytes,
            "no more is given back than was taken"
        );
        used.bytes = used.bytes - self.bytes + bytes;
        used.kept_bytes = used.kept_bytes - kept_bytes + if is_kept { bytes } else { 0 };
        let is_less = bytes < self.bytes;
        (self.bytes, self.is_kept) = (bytes, is_kept);
        drop(used);
        if is_less {
            self.memory.changed.notify_all();
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    const NOT_LONG: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_secs(60);

    fn room() -> BatchMemory {
        BatchMemory {
            bytes_max: 100,
            ..BatchMemory::new(None)
        }
    }

    /// 256 clients could each have batches of 512 MiB.
    #[test]
    fn reads_together_take_no_more_than_there_is_and_who_is_late_is_told() {
        let room = room();
        let first = room.take(60, NOT_LONG, || false).expect("room");
        let second = room.take(40, NOT_LONG, || false).expect("room");
        let refusal = room.take(1, NOT_LONG, || false).err().expect("no room");
        assert!(
            refusal.to_string().contains("no memory for this read now"),
            "{refusal}"
        );
        drop(second);
        assert!(room.take(41, NOT_LONG, || false).is_err());
        let mut third = room.take(40, NOT_LONG, || false).expect("room again");
        third.shrink_to(10);
        let fourth = room.take(30, NOT_LONG, || false).expect("room again");
        third.shrink_to(20);
        assert!(room.take(1, NOT_LONG, || false).is_err());
        drop((first, third, fourth));
        assert_eq!(*room.used.lock(), Used::default());
    }

    #[test]
    fn a_read_that_is_larger_than_all_goes_alone() {
        let room = room();
        let large = room.take(usize::MAX, NOT_LONG, || false).expect("alone");
        assert!(room.take(1, NOT_LONG, || false).is_err());
        drop(large);
        let small = room.take(1, NOT_LONG, || false).expect("room");
        assert!(room.take(usize::MAX, NOT_LONG, || false).is_err());
        drop(small);
    }

    #[test]
    fn reads_that_wait_for_rows_keep_a_small_part_and_take_more_only_if_it_is_there() {
        let room = room();
        let mut first = room.take(60, NOT_LONG, || false).expect("room");
        let mut second = room.take(40, NOT_LONG, || false).expect("room");
        assert!(!first.keep(13), "an eighth of 100 is 12");
        assert!(first.keep(8));
        assert!(!second.keep(5), "together they would keep 13");
        assert!(second.keep(4));
        let third = room.take(88, NOT_LONG, || false).expect("room");
        assert!(!first.grow_to(9) && !second.grow_to(5), "all is taken");
        assert!(first.keep(8) && second.keep(4), "what they have had");
        drop(third);
        assert!(first.grow_to(60) && !second.grow_to(41) && second.grow_to(40));
        drop((first, second));
        assert_eq!(*room.used.lock(), Used::default());
    }

    #[test]
    fn who_waits_goes_on_once_there_is_room_and_is_told_of_a_stop() {
        let (room, is_stopping) = (room(), AtomicBool::new(false));
        let stops = || is_stopping.load(Ordering::SeqCst);
        let first = room.take(60, NOT_LONG, || false).expect("room");
        thread::scope(|threads| {
            let waiting = threads.spawn(|| room.take(50, LONG, || false).is_ok());
            drop(first);
            assert!(waiting.join().expect("it ends"));
        });
        let _all = room.take(100, NOT_LONG, || false).expect("room");
        thread::scope(|threads| {
            let waiting = threads.spawn(|| room.take(50, LONG, stops).is_ok());
            is_stopping.store(true, Ordering::SeqCst);
            while !waiting.is_finished() {
                room.wake();
                thread::yield_now();
            }
            assert!(!waiting.join().expect("it ends"));
        });
    }

    #[test]
    fn it_is_a_quarter_of_the_memory_within_bounds() {
        for (memory_bytes, expected) in [
            (Some(4 << 30), 1 << 30),
            (Some(1 << 20), 64 << 20),
            (Some(64 << 30), 2 << 30),
            (None, 2 << 30),
        ] {
            assert_eq!(BatchMemory::new(memory_bytes).bytes_max, expected);
        }
    }
}

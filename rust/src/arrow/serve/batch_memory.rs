//! The memory that the Arrow batches of all clients of an endpoint may take together. A client sets
//! how large its batches are, and there may be hundreds of clients: room for the largest batch that
//! a read may have is taken before one is made. While it is sent, which may take as long as the
//! client likes, it holds as much as it has become.
//!
//! A batch that alone takes more than there is goes when there is no other. One that finds no room
//! waits a while, and its read is refused then: clients may hold each other up (a task that reads
//! two partitions side by side).

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::limits::{ARROW_BATCHES_BYTES_MAX, ARROW_BATCHES_BYTES_MIN};

pub(super) struct BatchMemory {
    bytes_max: usize,
    used_bytes: Mutex<usize>,
    changed: Condvar,
}

/// Memory that a batch holds, until this is dropped.
pub(super) struct Taken<'a> {
    memory: &'a BatchMemory,
    bytes: usize,
}

impl BatchMemory {
    /// `memory_bytes`: what the process may have, if that is known.
    pub fn new(memory_bytes: Option<u64>) -> BatchMemory {
        let bytes_max = memory_bytes.map_or(ARROW_BATCHES_BYTES_MAX, |bytes| {
            (bytes / 4).clamp(ARROW_BATCHES_BYTES_MIN, ARROW_BATCHES_BYTES_MAX)
        });
        BatchMemory {
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            used_bytes: Mutex::default(),
            changed: Condvar::new(),
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
        let mut used_bytes = self.used_bytes.lock();
        while *used_bytes > 0 && used_bytes.saturating_add(bytes) > self.bytes_max {
            let is_late = self
                .changed
                .wait_until(&mut used_bytes, deadline)
                .timed_out();
            if is_late || is_stopping() {
                return Err(Error::InvalidArgument(format!(
                    "the Arrow endpoint has no memory for this read now: its batches may take {bytes} bytes, those of \
                     other reads {used_bytes} of {}; ask for fewer batch.rows and batch.bytes, or later",
                    self.bytes_max
                )));
            }
        }
        *used_bytes = used_bytes.saturating_add(bytes);
        Ok(Taken {
            memory: self,
            bytes,
        })
    }

    /// Has those who wait look whether the server stops.
    pub fn wake(&self) {
        drop(self.used_bytes.lock());
        self.changed.notify_all();
    }
}

impl Taken<'_> {
    /// Gives back what is beyond so many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        let spare_bytes = self.bytes.saturating_sub(bytes);
        if spare_bytes == 0 {
            return;
        }
        self.bytes -= spare_bytes;
        let mut used_bytes = self.memory.used_bytes.lock();
        assert!(
            *used_bytes >= spare_bytes,
            "no more is given back than was taken"
        );
        *used_bytes -= spare_bytes;
        drop(used_bytes);
        self.memory.changed.notify_all();
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
        assert_eq!(*room.used_bytes.lock(), 0);
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

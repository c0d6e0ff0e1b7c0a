//! Receive buffers of one network thread that are free, for the next frames.
//!
//! To get memory anew costs more than to fill it: pages come from the
//! kernel zeroed, one fault each.

use std::collections::VecDeque;

use crate::limits::{
    LARGE_BUFFER_RATIO, LARGE_BUFFERS_KEPT_BYTES, RECEIVE_BUFFERS_KEPT, RECEIVE_BYTES,
    RECEIVE_GROWTH_MAX, RECEIVE_RESERVED_BYTES,
};
use crate::net::session::Input;

#[derive(Default)]
pub struct Buffers {
    /// Buffers of `RECEIVE_BYTES` each.
    usual: Vec<Vec<u8>>,
    /// For frames that need more; who was wanted last stands last.
    large: VecDeque<Vec<u8>>,
    large_bytes: usize,
}

impl Buffers {
    /// A buffer of `RECEIVE_BYTES`.
    pub fn usual(&mut self) -> Vec<u8> {
        self.usual.pop().unwrap_or_else(|| vec![0; RECEIVE_BYTES])
    }

    /// The smallest free buffer of `size` bytes or more, if there is one.
    pub fn large(&mut self, size: usize) -> Option<Vec<u8>> {
        let fitting = self
            .large
            .iter()
            .enumerate()
            .filter(|(_, each)| each.len() >= size);
        let (at, _) = fitting.min_by_key(|(_, each)| each.len())?;
        let buffer = self.large.remove(at)?;
        self.large_bytes -= buffer.len();
        Some(buffer)
    }

    /// Makes room behind a part of a frame of `wanted` bytes.
    pub fn make_room(&mut self, mut input: Input, wanted: usize) -> Input {
        let have = input.end - input.start;
        let size = next_bytes(&input, wanted);
        if input.buffer.len() - input.start >= size {
            return input;
        }
        if input.start > 0 {
            input.buffer.copy_within(input.start..input.end, 0);
            (input.start, input.end) = (0, have);
        }
        if input.buffer.len() >= size {
            return input;
        }
        // One that is large enough already saves the growth; but not for a mere claim.
        if wanted <= LARGE_BUFFER_RATIO * have
            && let Some(mut larger) = self.large(wanted)
        {
            if let (Some(to), Some(from)) = (larger.get_mut(..have), input.buffer.get(..have)) {
                to.copy_from_slice(from);
            }
            let smaller = std::mem::replace(&mut input.buffer, larger);
            self.recycle(smaller);
            return input;
        }
        if have >= RECEIVE_RESERVED_BYTES {
            let further = wanted.saturating_sub(input.buffer.len());
            input.buffer.reserve_exact(further);
        }
        input.buffer.resize(size, 0);
        input
    }

    /// Keeps a buffer for the next frames. Beyond `LARGE_BUFFERS_KEPT_BYTES` those go that nobody
    /// has wanted for longest: frames of one size leave smaller buffers behind while theirs grow.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        if buffer.len() == RECEIVE_BYTES && self.usual.len() < RECEIVE_BUFFERS_KEPT {
            self.usual.push(buffer);
        } else if buffer.len() > RECEIVE_BYTES && buffer.len() <= LARGE_BUFFERS_KEPT_BYTES {
            self.large_bytes += buffer.len();
            self.large.push_back(buffer);
            while self.large_bytes > LARGE_BUFFERS_KEPT_BYTES
                && let Some(oldest) = self.large.pop_front()
            {
                self.large_bytes -= oldest.len();
            }
        }
    }
}

/// Bytes of the buffer that a part of a frame of `wanted` bytes is to have before more of it is
/// received: as it is while it has room; then so much has come that as much again may be expected.
pub fn next_bytes(input: &Input, wanted: usize) -> usize {
    let have = input.end - input.start;
    let room = input.buffer.len() - input.end;
    let grown = match room {
        0 => (2 * have).clamp(RECEIVE_BYTES, have + RECEIVE_GROWTH_MAX),
        _ => have + room,
    };
    wanted.min(grown).max(have + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    fn part(have: usize) -> Input {
        Input {
            buffer: vec![1; have],
            start: 0,
            end: have,
        }
    }

    #[test]
    fn a_buffer_grows_by_what_has_come_and_not_by_what_is_claimed() {
        let claimed = 100 * KIB * KIB;
        for (have, expected) in [
            (9_000, RECEIVE_BYTES),
            (300 * KIB, 600 * KIB),
            (50 * KIB * KIB, 50 * KIB * KIB + RECEIVE_GROWTH_MAX),
            (claimed - 1, claimed),
        ] {
            assert_eq!(next_bytes(&part(have), claimed), expected);
        }
        assert_eq!(next_bytes(&part(9_000), 10_000), 10_000);
        let has_room = Input {
            end: 9_000,
            ..part(9_100)
        };
        assert_eq!(next_bytes(&has_room, claimed), 9_100);
    }

    #[test]
    fn a_buffer_that_others_have_left_is_not_given_to_a_mere_claim() {
        let mut buffers = Buffers::default();
        buffers.recycle(vec![7; 4096 * KIB]);
        let claimed = 4000 * KIB;
        let first = buffers.make_room(part(9_000), claimed);
        assert_eq!(first.buffer.len(), RECEIVE_BYTES);
        let half = buffers.make_room(part(2000 * KIB), claimed);
        assert_eq!((half.buffer.len(), half.end), (4096 * KIB, 2000 * KIB));
        assert!(half.bytes().iter().all(|byte| *byte == 1));
    }

    /// Batches of 1 MB were received into memory that was new each time, at twice the CPU, once
    /// eight megabytes of buffers had been kept that were too small for them.
    #[test]
    fn buffers_that_are_too_small_make_room_for_those_that_are_wanted() {
        let mut buffers = Buffers::default();
        for _ in 0..100 {
            buffers.recycle(vec![0; 256 * KIB]);
        }
        let kept = vec![7; 1024 * KIB];
        buffers.recycle(kept);
        assert_eq!(buffers.large(1000 * KIB).map(|each| each[0]), Some(7));
        assert!(buffers.large_bytes <= LARGE_BUFFERS_KEPT_BYTES);
    }

    #[test]
    fn a_frame_gets_the_smallest_buffer_that_holds_it() {
        let mut buffers = Buffers::default();
        for size in [4096, 300, 1024] {
            buffers.recycle(vec![0; size * KIB]);
        }
        let sizes = [1000, 1000, 1000].map(|size| buffers.large(size * KIB).map(|each| each.len()));
        assert_eq!(sizes, [Some(1024 * KIB), Some(4096 * KIB), None]);
        assert_eq!(buffers.large_bytes, 300 * KIB);
    }

    #[test]
    fn no_more_is_kept_than_the_limits_say() {
        let mut buffers = Buffers::default();
        for _ in 0..2 * RECEIVE_BUFFERS_KEPT {
            buffers.recycle(vec![0; RECEIVE_BYTES]);
            buffers.recycle(vec![0; LARGE_BUFFERS_KEPT_BYTES / 3]);
            buffers.recycle(vec![0; RECEIVE_BYTES / 2]);
            buffers.recycle(vec![0; LARGE_BUFFERS_KEPT_BYTES + 1]);
        }
        assert_eq!(buffers.usual.len(), RECEIVE_BUFFERS_KEPT);
        assert_eq!(buffers.large.len(), 3);
    }
}

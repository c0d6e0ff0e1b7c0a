//! The newest offset of each key in the dirty part of a log, in bounded memory.
//!
//! Keys are kept as 128 bits of a keyed hash (two SipHashes with random keys, so that nobody can
//! make two keys meet), 24 bytes an entry, open addressing:
//!
//! ```text
//! slot: hash u64 │ hash u64 │ offset + 1 u64 (0: free)      probed linearly from hash mod slots
//! ```
//!
//! The table grows by doubling up to its bound; while it grows, the old one is still there, so the
//! peak is one and a half times the bound. Kafka: `SkimpyOffsetMap`, with MD5, the whole buffer
//! taken at start.

use std::hash::{BuildHasher, RandomState};

const SLOT_BYTES: usize = 24;
const SLOTS_MIN: usize = 1024;

type Slot = [u64; 3];

pub struct OffsetMap {
    slots: Vec<Slot>,
    slots_max: usize,
    entries_max: usize,
    entries: usize,
    latest_offset: i64,
    hashers: [RandomState; 2],
}

impl OffsetMap {
    /// At most `memory_bytes` (`log.cleaner.dedupe.buffer.size`), full at `load_factor` of the
    /// slots (`log.cleaner.io.buffer.load.factor`, 0.9).
    pub fn new(memory_bytes: usize, load_factor: f64) -> OffsetMap {
        let slots_max = (memory_bytes / SLOT_BYTES).max(4);
        // One slot stays free whatever the factor says: a search ends there.
        let entries_max = (slots_max as f64 * load_factor.clamp(0.0, 1.0)) as usize;
        OffsetMap {
            slots: Vec::new(),
            slots_max,
            entries_max: entries_max.clamp(1, slots_max - 1),
            entries: 0,
            latest_offset: -1,
            hashers: [RandomState::new(), RandomState::new()],
        }
    }

    /// Forgets everything and gives the memory back.
    pub fn clear(&mut self) {
        self.slots = Vec::new();
        self.entries = 0;
        self.latest_offset = -1;
    }

    pub fn len(&self) -> usize {
        self.entries
    }

    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Share of the entries that there is room for, 0 to 1.
    pub fn utilization(&self) -> f64 {
        self.entries as f64 / self.entries_max as f64
    }

    /// The map holds for the log up to and with this offset; -1 at first.
    pub fn latest_offset(&self) -> i64 {
        self.latest_offset
    }

    pub fn set_latest_offset(&mut self, offset: i64) {
        self.latest_offset = offset;
    }

    /// Notes that `key` is at `offset`, which must not be below the offsets put before. `false`:
    /// there is no room for any more records, of new keys or old.
    pub fn put(&mut self, key: &[u8], offset: i64) -> bool {
        if self.entries >= self.entries_max {
            return false;
        }
        if (self.entries + 1) * 4 > self.slots.len() * 3 && self.slots.len() < self.slots_max {
            self.grow();
        }
        let hash = self.hash(key);
        let at = find(&self.slots, hash);
        let slot = &mut self.slots[at];
        self.entries += usize::from(slot[2] == 0);
        *slot = [hash[0], hash[1], offset as u64 + 1];
        true
    }

    /// The newest offset of `key`; -1 if it was never put.
    pub fn get(&self, key: &[u8]) -> i64 {
        if self.slots.is_empty() {
            return -1;
        }
        let at = find(&self.slots, self.hash(key));
        self.slots[at][2] as i64 - 1
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        [self.hashers[0].hash_one(key), self.hashers[1].hash_one(key)]
    }

    fn grow(&mut self) {
        let doubled = (self.slots.len() * 2).max(SLOTS_MIN);
        let size = if doubled > self.slots_max / 2 {
            self.slots_max
        } else {
            doubled
        };
        let old = std::mem::replace(&mut self.slots, vec![[0; 3]; size]);
        for slot in old.into_iter().filter(|slot| slot[2] != 0) {
            let at = find(&self.slots, [slot[0], slot[1]]);
            self.slots[at] = slot;
        }
    }
}

/// The slot that holds `hash`, or the free one where it belongs. One slot is always free.
fn find(slots: &[Slot], hash: [u64; 2]) -> usize {
    let mut at = (hash[0] % slots.len() as u64) as usize;
    loop {
        let slot = &slots[at];
        if slot[2] == 0 || (slot[0] == hash[0] && slot[1] == hash[1]) {
            return at;
        }
        at = if at + 1 == slots.len() { 0 } else { at + 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_offset_of_each_key_is_found_while_the_table_grows() {
        let mut map = OffsetMap::new(24 * 100_000, 0.9);
        for offset in 0..80_000i64 {
            assert!(map.put(&(offset % 50_000).to_be_bytes(), offset));
        }
        assert_eq!(map.len(), 50_000);
        for key in 0..50_000i64 {
            let newest = if key < 30_000 { key + 50_000 } else { key };
            assert_eq!(map.get(&key.to_be_bytes()), newest);
        }
        assert_eq!(map.get(b"another"), -1);
        map.clear();
        assert_eq!(map.get(&1i64.to_be_bytes()), -1);
    }

    #[test]
    fn a_full_map_takes_nothing_more_and_still_answers() {
        for (slots, load_factor) in [(4, 0.0), (4, 1.0), (10, 0.5), (5000, 1.0)] {
            let mut map = OffsetMap::new(24 * slots, load_factor);
            let mut offset = 0;
            while map.put(&i64::to_be_bytes(offset), offset) {
                offset += 1;
            }
            let room = (slots as f64 * load_factor) as i64;
            assert_eq!(offset, room.clamp(1, slots as i64 - 1));
            assert!(!map.put(&0i64.to_be_bytes(), offset));
            assert_eq!(map.get(&0i64.to_be_bytes()), 0);
            assert_eq!(map.get(&i64::to_be_bytes(offset)), -1);
        }
    }
}

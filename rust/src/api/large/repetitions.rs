//! Names that a request has more than once, found without a copy of any name: a table of places in
//! the frame, of a bounded size. Where it is too small for all keys, those with low hashes are
//! looked at first, and the request is gone through again for the others.

/// A bit for each byte of a request, at which something may begin.
#[derive(Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    pub fn new(count: usize) -> Bits {
        Bits(vec![0; count.div_ceil(64)])
    }

    pub fn set(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// Clears those that are set in `others`.
    pub fn clear_all(&mut self, others: &Bits) {
        for (word, other) in self.0.iter_mut().zip(&others.0) {
            *word &= !other;
        }
    }

    pub fn get(&self, at: usize) -> bool {
        let word = self.0.get(at / 64).copied().unwrap_or(0);
        word >> (at % 64) & 1 != 0
    }

    pub fn memory_bytes(&self) -> usize {
        self.0.len() * 8
    }
}

/// Slots for each key, at least: with fewer probes become long, and each reads
/// somewhere else in the frame.
const SLOTS_PER_KEY: usize = 2;

/// A table by hash. A slot holds a place and one; 0 is none, so that memory
/// comes zeroed and untouched.
struct Table {
    slots: Vec<u64>,
    count: usize,
}

impl Table {
    /// The place that is there already for this key. `None`: `place` is, from now on.
    fn put(&mut self, hash: u64, place: u64, is_same: impl Fn(u64) -> bool) -> Option<u64> {
        let slots = self.slots.len();
        let mut at = ((u64::from(hash as u32) * slots as u64) >> 32) as usize;
        while let Some(slot) = self.slots.get_mut(at) {
            match slot.checked_sub(1) {
                None => {
                    *slot = place + 1;
                    self.count += 1;
                    return None;
                }
                Some(there) if is_same(there) => return Some(there),
                Some(_) => at = (at + 1) % slots,
            }
        }
        None
    }

    fn is_full(&self) -> bool {
        self.count * SLOTS_PER_KEY >= self.slots.len()
    }
}

/// Calls `repeated` with the place at which a key first stands, and each later one. `go_through`
/// has its argument called with hash and place of each, in order, as often as it is called itself;
/// `is_same` compares the keys of two places. The table takes `table_bytes_max`, or 8 KiB.
pub fn find(
    count: usize,
    table_bytes_max: usize,
    mut go_through: impl FnMut(&mut dyn FnMut(u64, u64)),
    is_same: impl Fn(u64, u64) -> bool,
    mut repeated: impl FnMut(u64, u64),
) {
    let slots_max = (table_bytes_max / size_of::<u64>()).max(1024);
    let enough = (count + 1) * SLOTS_PER_KEY;
    let slots = enough.min(slots_max);
    // Hashes of one pass: the high bits decide, the low ones are the place in the table.
    let (mut low, mut width) = (0_u64, u64::MAX / enough.div_ceil(slots) as u64);
    loop {
        let high = low.saturating_add(width);
        let mut table = Table {
            slots: vec![0; slots],
            count: 0,
        };
        go_through(&mut |hash, place| {
            if (low..=high).contains(&hash) && !table.is_full() {
                let first = table.put(hash, place, |there| is_same(there, place));
                if let Some(first) = first {
                    repeated(first, place);
                }
            }
        });
        if table.is_full() && width > 1 {
            width /= 2;
        } else if high == u64::MAX {
            return;
        } else {
            low = high + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn hash(key: u32) -> u64 {
        (u64::from(key) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    proptest! {
        #[test]
        fn whatever_the_table_takes_the_repetitions_are_those_of_a_map(
            keys in prop::collection::vec(0_u32..3_000, 0..6_000),
            table_bytes_max in 0_usize..40_000,
        ) {
            let mut firsts = HashMap::new();
            let mut expected = Vec::new();
            for (place, key) in (0_u64..).zip(&keys) {
                let first = *firsts.entry(*key).or_insert(place);
                if first != place {
                    expected.push((first, place));
                }
            }
            let key_at = |place: u64| keys[place as usize];
            let mut found = Vec::new();
            find(
                keys.len(),
                table_bytes_max,
                |each| (0..).zip(&keys).for_each(|(place, key)| each(hash(*key), place)),
                |one, other| key_at(one) == key_at(other),
                |first, later| found.push((first, later)),
            );
            // A pass that found no room for all is made again for some.
            found.sort_unstable_by_key(|(_, later)| *later);
            found.dedup();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn bits_are_set_and_cleared_one_by_one() {
        let mut bits = Bits::new(130);
        for at in [0, 63, 64, 129] {
            bits.set(at);
        }
        let mut others = Bits::new(130);
        others.set(64);
        bits.clear_all(&others);
        let set: Vec<usize> = (0..200).filter(|at| bits.get(*at)).collect();
        assert_eq!(set, [0, 63, 129]);
    }
}

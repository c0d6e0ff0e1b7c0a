//! Binary search in index entries, with Kafka's warm section (`AbstractIndex`): look-ups are mostly
//! near the end, so the last 8 KiB are tried first. A plain binary search would touch pages all
//! over the file, and the first look-up after a roll would read cold ones.

const WARM_BYTES: usize = 8192;

/// The largest slot for which `not_above` holds, where it holds for a prefix of the `count` slots.
pub fn largest_not_above(
    count: usize,
    entry_bytes: usize,
    not_above: impl Fn(usize) -> bool,
) -> Option<usize> {
    let warm_start = count.saturating_sub(WARM_BYTES / entry_bytes);
    let (mut low, mut high) = if warm_start == 0 || not_above(warm_start) {
        (warm_start, count)
    } else {
        (0, warm_start)
    };
    while low < high {
        let middle = low + (high - low) / 2;
        if not_above(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low.checked_sub(1)
}

/// Bounded big-endian reads of index entries.
pub trait EntryBytes {
    fn u32_at(&self, at: usize) -> Option<u32>;
    fn i64_at(&self, at: usize) -> Option<i64>;
}

impl EntryBytes for [u8] {
    #[inline]
    fn u32_at(&self, at: usize) -> Option<u32> {
        Some(u32::from_be_bytes(*self.get(at..)?.first_chunk()?))
    }

    #[inline]
    fn i64_at(&self, at: usize) -> Option<i64> {
        Some(i64::from_be_bytes(*self.get(at..)?.first_chunk()?))
    }
}

//! The walk over the records of a produced batch: every field of every record, to the byte. It is
//! the hot loop of Produce, and the only part of validation that grows with the number of records.
//!
//! Two passes share the work. The first collects what all records have in common (least and
//! greatest timestamp, a missing key, offsets out of line) and compares nothing with the rules;
//! only if that shows a record at fault does a second one go and name it.
//!
//! A record is read in the first of three ways that fits; all give the same answer:
//!
//! ```text
//! Shape::skim       all lengths are those of the record before: three words are compared
//! skim              lengths of few bytes, taken from words of eight bytes:
//!                     length 1-2, attributes 1, timestamp_delta 1-2, offset_delta 1-3
//!                     key_length 1-3, [key,] value_length 1-3, value, headers
//! read_raw_record   anything, the last bytes of a batch, and what is wrong
//! ```

use super::header::{BatchHeader, NO_TIMESTAMP};
use super::record::{Malformed, read_headers, read_raw_record};
use super::varint::{read_varint, un_zig_zag, zig_zag};

/// The facts that a walk finds out about all records of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// Least and greatest create time, milliseconds; `i64::MAX` and -1 without records.
    pub min_timestamp: i64,
    pub max_timestamp: i64,
    /// Index of the first record with the greatest time; -1 if none is above -1.
    pub index_of_max_timestamp: i32,
    pub has_null_key: bool,
    /// The offset delta of each record is its index.
    pub offsets_count_from_zero: bool,
}

impl Walk {
    /// The walk of no records.
    pub(crate) const EMPTY: Walk = Walk {
        min_timestamp: i64::MAX,
        max_timestamp: NO_TIMESTAMP,
        index_of_max_timestamp: -1,
        has_null_key: false,
        offsets_count_from_zero: true,
    };

    /// Adds the record at `index`, whose offset delta is that or not.
    #[inline(always)]
    pub(crate) fn add(&mut self, index: i32, timestamp: i64, has_null_key: bool, is_in_line: bool) {
        self.min_timestamp = self.min_timestamp.min(timestamp);
        if timestamp > self.max_timestamp {
            self.max_timestamp = timestamp;
            self.index_of_max_timestamp = index;
        }
        self.has_null_key |= has_null_key;
        self.offsets_count_from_zero &= is_in_line;
    }
}

/// Walks over the (inflated) records of a batch. Times are counted from the base timestamp,
/// whatever the timestamp type.
pub(crate) fn walk(records: &[u8], header: &BatchHeader) -> Result<Walk, Malformed> {
    let mut walk = Walk::EMPTY;
    let mut shape = Shape::UNKNOWN;
    let mut layout_before = Layout::default();
    let mut at = 0;
    for index in 0..header.records_count {
        let record = if let Some(record) = shape.skim(records, at) {
            record
        } else if let Some((record, layout)) = skim(records, at) {
            if layout == layout_before && !layout.has_headers {
                let known = Shape::of(&records[at..], &layout, record.has_null_key);
                shape = known.unwrap_or(Shape::UNKNOWN);
            }
            layout_before = layout;
            record
        } else {
            read_slowly(records, at)?
        };
        at = record.end;
        let timestamp = header.base_timestamp.wrapping_add(record.timestamp_delta);
        let is_in_line = record.raw_offset_delta == (index as u64) << 1;
        walk.add(index, timestamp, record.has_null_key, is_in_line);
    }
    if at != records.len() && header.records_count > 0 {
        return Err(Malformed::Remainder);
    }
    Ok(walk)
}

/// The fields of one record that the walk wants.
struct Skimmed {
    timestamp_delta: i64,
    /// Zig-zag coded still: twice the delta if that is not negative.
    raw_offset_delta: u64,
    has_null_key: bool,
    /// Where the next record starts.
    end: usize,
}

/// Where the fields of a record of the common shape lie, counted from its start.
#[derive(Default, PartialEq, Eq)]
struct Layout {
    has_headers: bool,
    size: usize,
    timestamp_at: usize,
    offset_at: usize,
    key_length_at: usize,
    value_length_at: usize,
}

/// Reads a record of the common shape; `None` says nothing about other shapes but that.
///
/// Positions are sums of a position within `records` and numbers below 2²¹, so they do not wrap;
/// whether they lie within `records` is asked when they are used, and whether the fields fill the
/// record exactly, once at the end.
#[inline(always)]
fn skim(records: &[u8], at: usize) -> Option<(Skimmed, Layout)> {
    let word = load(records, at)?;
    let (length, length_bits) = take_two(word)?;
    if length & 1 != 0 {
        return None;
    }
    let size = (length_bits as usize / 8).wrapping_add(length as usize / 2);
    let word = word >> (length_bits + 8);
    let (timestamp_delta, timestamp_bits) = take_two(word)?;
    let (raw_offset_delta, offset_bits) = take_three(word >> timestamp_bits)?;
    let timestamp_at = length_bits as usize / 8 + 1;
    let offset_at = timestamp_at + timestamp_bits as usize / 8;
    let key_length_at = offset_at + offset_bits as usize / 8;

    let word = load(records, at.wrapping_add(key_length_at))?;
    let (key_length, key_bits) = take_three(word)?;
    let has_null_key = key_length & 1 != 0;
    let mut value_length_at = key_length_at + key_bits as usize / 8;
    let word = if has_null_key {
        word >> key_bits
    } else {
        value_length_at += key_length as usize / 2;
        load(records, at.wrapping_add(value_length_at))?
    };
    let (value_length, value_bits) = take_three(word)?;
    let mut headers_count_at = value_length_at + value_bits as usize / 8;
    if value_length & 1 == 0 {
        headers_count_at += value_length as usize / 2;
    }
    let end = at.wrapping_add(size);
    let headers = records.get(at.wrapping_add(headers_count_at)..end)?;
    let has_headers = headers != [0];
    if has_headers && !are_headers(headers) {
        return None;
    }
    let record = Skimmed {
        timestamp_delta: un_zig_zag(timestamp_delta),
        raw_offset_delta,
        has_null_key,
        end,
    };
    let layout = Layout {
        has_headers,
        size,
        timestamp_at,
        offset_at,
        key_length_at,
        value_length_at,
    };
    Some((record, layout))
}

/// Says whether `bytes` are a count of headers and exactly so many headers.
#[inline(never)]
fn are_headers(bytes: &[u8]) -> bool {
    let mut at = 0;
    let Some(count) = read_varint(bytes, &mut at) else {
        return false;
    };
    read_headers(bytes, &mut at, count).is_ok() && at == bytes.len()
}

/// Bytes from the start of a record within which a shape's length fields have to lie.
const WINDOW_BYTES: usize = 72;
/// Where a field of eight bytes may start in the window.
const FIELD_AT_MAX: usize = 63;

/// Two records of one layout in a row are mostly the start of many. From the second on, it is
/// enough to see that all bytes that say how long something is are those of the record before; and
/// the processor can go on to the next record without waiting for this one's length.
struct Shape {
    size: usize,
    key_length_at: usize,
    value_length_at: usize,
    timestamp_shift: u32,
    offset_shift: u32,
    timestamp_mask: u64,
    offset_mask: u64,
    /// The record's length and, of the two deltas, which bytes go on.
    prefix: Field,
    key_length: Field,
    value_length: Field,
    has_null_key: bool,
}

/// Bits of a word that have to be as they were.
#[derive(Clone, Copy)]
struct Field {
    mask: u64,
    bits: u64,
}

impl Field {
    /// A field that no word has.
    const NEVER: Field = Field { mask: 0, bits: 1 };

    fn of(word: u64, mask: u64) -> Field {
        let bits = word & mask;
        Field { mask, bits }
    }

    #[inline(always)]
    fn is_in(self, word: u64) -> bool {
        word & self.mask == self.bits
    }
}

impl Shape {
    const UNKNOWN: Shape = Shape {
        size: 0,
        key_length_at: 0,
        value_length_at: 0,
        timestamp_shift: 0,
        offset_shift: 0,
        timestamp_mask: 0,
        offset_mask: 0,
        prefix: Field::NEVER,
        key_length: Field::NEVER,
        value_length: Field::NEVER,
        has_null_key: false,
    };

    #[inline(always)]
    fn skim(&self, records: &[u8], at: usize) -> Option<Skimmed> {
        let window: &[u8; WINDOW_BYTES] = records.get(at..)?.first_chunk()?;
        let word = load(window, 0)?;
        let key_length = load(window, self.key_length_at & FIELD_AT_MAX)?;
        let value_length = load(window, self.value_length_at & FIELD_AT_MAX)?;
        let is_same = self.prefix.is_in(word)
            & self.key_length.is_in(key_length)
            & self.value_length.is_in(value_length);
        let end = at.wrapping_add(self.size);
        if !is_same || *records.get(end.wrapping_sub(1))? != 0 {
            return None;
        }
        let timestamp_delta =
            gather_two(word.wrapping_shr(self.timestamp_shift) & self.timestamp_mask);
        let raw_offset_delta = gather(word.wrapping_shr(self.offset_shift) & self.offset_mask);
        Some(Skimmed {
            timestamp_delta: un_zig_zag(timestamp_delta),
            raw_offset_delta,
            has_null_key: self.has_null_key,
            end,
        })
    }

    /// The shape of the record at the start of `record`, if its length fields are near enough.
    #[cold]
    fn of(record: &[u8], layout: &Layout, has_null_key: bool) -> Option<Shape> {
        let window: &[u8; WINDOW_BYTES] = record.first_chunk()?;
        if layout.value_length_at > FIELD_AT_MAX {
            return None;
        }
        let field = |at: usize, mask: u64| load(window, at).map(|word| Field::of(word, mask));
        let varint = |at: usize| {
            let (_, bits) = take_three(load(window, at)?)?;
            field(at, low_bytes(bits as usize / 8))
        };
        let timestamp_bytes = layout.offset_at - layout.timestamp_at;
        let offset_bytes = layout.key_length_at - layout.offset_at;
        let length_mask = low_bytes(layout.timestamp_at - 1);
        let deltas_mask = low_bytes(layout.key_length_at) & !low_bytes(layout.timestamp_at);
        Some(Shape {
            size: layout.size,
            key_length_at: layout.key_length_at,
            value_length_at: layout.value_length_at,
            timestamp_shift: 8 * layout.timestamp_at as u32,
            offset_shift: 8 * layout.offset_at as u32,
            timestamp_mask: low_bytes(timestamp_bytes),
            offset_mask: low_bytes(offset_bytes),
            prefix: field(0, length_mask | deltas_mask & CONTINUES)?,
            key_length: varint(layout.key_length_at)?,
            value_length: varint(layout.value_length_at)?,
            has_null_key,
        })
    }
}

/// The eight bytes at `at`, if there are as many.
#[inline(always)]
fn load(records: &[u8], at: usize) -> Option<u64> {
    let word = records.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}

/// An unsigned varint of one or two bytes at the low end of `word`, and its bits there.
#[inline(always)]
fn take_two(word: u64) -> Option<(u64, u32)> {
    if word & 0x80 == 0 {
        Some((word & 0x7f, 8))
    } else if word & 0x8000 == 0 {
        Some((gather_two(word), 16))
    } else {
        None
    }
}

/// As `take_two`, of up to three bytes.
#[inline(always)]
fn take_three(word: u64) -> Option<(u64, u32)> {
    if word & 0x80_8080 == 0x8080 {
        return Some((gather(word), 24));
    }
    take_two(word)
}

/// The top bit of each byte: another one follows.
const CONTINUES: u64 = 0x8080_8080_8080_8080;

/// A mask of the first `count` bytes, at most 8.
fn low_bytes(count: usize) -> u64 {
    u64::MAX.checked_shr(64 - 8 * count as u32).unwrap_or(0)
}

/// Joins the groups of seven bits of two bytes.
#[inline(always)]
fn gather_two(word: u64) -> u64 {
    word & 0x7f | word >> 1 & 0x3f80
}

/// Joins the groups of seven bits of three bytes.
#[inline(always)]
fn gather(word: u64) -> u64 {
    gather_two(word) | word >> 2 & 0x1f_c000
}

#[inline(never)]
fn read_slowly(records: &[u8], at: usize) -> Result<Skimmed, Malformed> {
    let mut end = at;
    let record = read_raw_record(records, &mut end)?;
    Ok(Skimmed {
        timestamp_delta: record.timestamp_delta,
        raw_offset_delta: zig_zag(i64::from(record.offset_delta)),
        has_null_key: record.key.is_none(),
        end,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::build::{BatchBuilder, BatchOptions};
    use super::super::header::RECORD_BATCH_OVERHEAD;
    use super::*;

    /// Walks with nothing but `read_raw_record`.
    fn walk_slowly(records: &[u8], header: &BatchHeader) -> Result<Walk, Malformed> {
        let mut at = 0;
        let mut walk = walk(
            &[],
            &BatchHeader {
                records_count: 0,
                ..*header
            },
        )?;
        for index in 0..header.records_count {
            let record = read_raw_record(records, &mut at)?;
            let timestamp = header.base_timestamp.wrapping_add(record.timestamp_delta);
            walk.min_timestamp = walk.min_timestamp.min(timestamp);
            if timestamp > walk.max_timestamp {
                walk.max_timestamp = timestamp;
                walk.index_of_max_timestamp = index;
            }
            walk.has_null_key |= record.key.is_none();
            walk.offsets_count_from_zero &= record.offset_delta == index;
        }
        if at != records.len() && header.records_count > 0 {
            return Err(Malformed::Remainder);
        }
        Ok(walk)
    }

    /// So many records with a key and value of so many bytes, headers if at least 6, time step.
    type Row = (usize, Option<usize>, Option<usize>, u8, i64);

    /// Rows of records of one size, with changes now and then.
    fn any_rows() -> impl Strategy<Value = Vec<Row>> {
        let slice =
            || proptest::option::of(prop_oneof![0_usize..4, 20_usize..70, 8_000_usize..9_000]);
        let row = (1_usize..90, slice(), slice(), 0_u8..8, -40_i64..40);
        proptest::collection::vec(row, 1..6)
    }

    fn build(rows: &[Row]) -> Vec<u8> {
        let zeros = [0; 9_000];
        let mut builder = BatchBuilder::new(BatchOptions::default());
        let mut timestamp = 1_000_000;
        for (count, key, value, headers, step) in rows {
            for _ in 0..*count {
                let key = key.map(|length| &zeros[..length]);
                let value = value.map(|length| &zeros[..length]);
                let headers = vec![(&b"header"[..], Some(&b"\0\0"[..])); usize::from(headers / 6)];
                builder
                    .append(timestamp, key, value, &headers)
                    .expect("it fits");
                timestamp += step;
            }
        }
        builder.finish().expect("it is built")
    }

    proptest! {
        #[test]
        fn the_quick_ways_give_the_slow_ones_answer(rows in any_rows()) {
            let batch = build(&rows);
            let header = BatchHeader::parse(&batch).expect("good").expect("whole");
            let records = &batch[RECORD_BATCH_OVERHEAD..];
            let found = walk(records, &header);
            prop_assert!(found.is_ok_and(|walk| walk.offsets_count_from_zero));
            prop_assert_eq!(found, walk_slowly(records, &header));
        }

        #[test]
        fn the_quick_ways_give_the_slow_ones_answer_on_damaged_records_too(
            rows in any_rows(),
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in 0_usize..90,
        ) {
            let mut batch = build(&rows);
            let header = BatchHeader::parse(&batch).expect("good").expect("whole");
            let records = &mut batch[RECORD_BATCH_OVERHEAD..];
            for (at, byte) in damage {
                let at = at.index(records.len());
                records[at] = byte;
            }
            prop_assert_eq!(walk(records, &header), walk_slowly(records, &header));
            let records = &records[..records.len().saturating_sub(cut)];
            prop_assert_eq!(walk(records, &header), walk_slowly(records, &header));
        }
    }

    /// Small records in long rows, and every single byte of some of them set to every value: no
    /// damage next to a known shape goes unnoticed.
    #[test]
    fn every_byte_of_a_record_in_a_row_counts() {
        for (key, value) in [(None, Some(3)), (Some(2), Some(5)), (Some(1), None)] {
            let batch = build(&[(40, key, value, 0, 1)]);
            let header = BatchHeader::parse(&batch).expect("good").expect("whole");
            let records = &batch[RECORD_BATCH_OVERHEAD..];
            let size = records.len() / 40;
            for at in 10 * size..12 * size {
                for byte in 0..=255 {
                    let mut damaged = records.to_vec();
                    damaged[at] = byte;
                    assert_eq!(walk(&damaged, &header), walk_slowly(&damaged, &header));
                }
            }
        }
    }
}

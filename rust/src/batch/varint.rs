//! Kafka's variable-length integers (`ByteUtils`). Seven bits a byte, least significant group
//! first, the top bit says that another byte follows; signed values are zig-zag coded, so that
//! small negative ones stay short.
//!
//! ```text
//! value   zig-zag   bytes
//!     0         0   00
//!    -1         1   01      the null length of a key or value
//!    63       126   7e      last of one byte
//!    64       128   80 01
//!   100       200   c8 01
//! ```
//!
//! These are the innermost steps of the walk over records. One and two bytes are decoded inline;
//! what is longer is rare and goes out of line.

/// Reads a zig-zag `varint` at `*at` and moves behind it. `None`: the bytes end, or it has more
/// than five bytes. Bits beyond the 32nd are dropped, as in Kafka.
#[inline(always)]
pub fn read_varint(bytes: &[u8], at: &mut usize) -> Option<i32> {
    let raw = match bytes.get(*at..) {
        Some(&[first, ..]) if first < 0x80 => {
            *at += 1;
            u32::from(first)
        }
        Some(&[first, second, ..]) if second < 0x80 => {
            *at += 2;
            u32::from(first & 0x7f) | u32::from(second) << 7
        }
        _ => read_long_varint(bytes, at)?,
    };
    Some((raw >> 1) as i32 ^ -((raw & 1) as i32))
}

/// Reads a zig-zag `varlong`, at most ten bytes, as [`read_varint`].
#[inline(always)]
pub fn read_varlong(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let raw = match bytes.get(*at..) {
        Some(&[first, ..]) if first < 0x80 => {
            *at += 1;
            u64::from(first)
        }
        Some(&[first, second, ..]) if second < 0x80 => {
            *at += 2;
            u64::from(first & 0x7f) | u64::from(second) << 7
        }
        _ => read_long_varlong(bytes, at)?,
    };
    Some(un_zig_zag(raw))
}

#[inline(never)]
fn read_long_varint(bytes: &[u8], at: &mut usize) -> Option<u32> {
    let mut raw = 0;
    for (index, byte) in bytes.get(*at..)?.iter().take(5).enumerate() {
        raw |= u32::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            *at += index + 1;
            return Some(raw);
        }
    }
    None
}

#[inline(never)]
fn read_long_varlong(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut raw = 0;
    for (index, byte) in bytes.get(*at..)?.iter().take(10).enumerate() {
        raw |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            *at += index + 1;
            return Some(raw);
        }
    }
    None
}

/// Appends a zig-zag `varint`, one to five bytes.
pub fn write_varint(output: &mut Vec<u8>, value: i32) {
    write_varlong(output, i64::from(value));
}

/// Appends a zig-zag `varlong`, one to ten bytes.
pub fn write_varlong(output: &mut Vec<u8>, value: i64) {
    let mut raw = zig_zag(value);
    while raw >= 0x80 {
        output.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    output.push(raw as u8);
}

/// Bytes of the zig-zag form of `value`.
pub fn varlong_bytes(value: i64) -> usize {
    (70 - (zig_zag(value) | 1).leading_zeros() as usize) / 7
}

/// Folds the sign into the lowest bit: 0, -1, 1, -2 become 0, 1, 2, 3.
#[inline(always)]
pub fn zig_zag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// The inverse of [`zig_zag`].
#[inline(always)]
pub fn un_zig_zag(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_table_above() {
        for (value, expected) in [
            (0, &[0x00][..]),
            (-1, &[0x01]),
            (63, &[0x7e]),
            (64, &[0x80, 0x01]),
            (100, &[0xc8, 0x01]),
            (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            let mut bytes = Vec::new();
            write_varint(&mut bytes, value);
            assert_eq!(bytes, expected, "{value}");
        }
    }

    #[test]
    fn every_length_reads_back_and_knows_its_size() {
        for shift in 0..63 {
            for value in [1_i64 << shift, -(1 << shift), (1 << shift) - 1] {
                let mut bytes = Vec::new();
                write_varlong(&mut bytes, value);
                assert_eq!(varlong_bytes(value), bytes.len());
                let mut at = 0;
                assert_eq!(read_varlong(&bytes, &mut at), Some(value));
                assert_eq!(at, bytes.len());
                if let Ok(value) = i32::try_from(value) {
                    at = 0;
                    assert_eq!(read_varint(&bytes, &mut at), Some(value));
                    assert_eq!(at, bytes.len());
                }
                bytes.pop();
                at = 0;
                assert_eq!(read_varlong(&bytes, &mut at), None, "cut short");
            }
        }
    }

    #[test]
    fn what_does_not_end_is_refused() {
        let endless = [0xff; 16];
        assert_eq!(read_varint(&endless, &mut 0), None);
        assert_eq!(read_varlong(&endless, &mut 0), None);
        assert_eq!(read_varint(&[], &mut 0), None);
        assert_eq!(read_varint(&[0], &mut 7), None);
    }
}

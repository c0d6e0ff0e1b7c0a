//! The scans that a JSON parser spends most of its bytes on, many at a time: over the plain ones of
//! a string, and knowing a key again.

use crate::limits::JSON_KEYS_REMEMBERED_MAX;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
/// Bytes of a key that are compared as one number.
const HEAD_BYTES: usize = 16;

/// How many bytes stand before the first that is the quote, a backslash or a control character;
/// `None`: there is none.
#[inline]
pub fn plain_bytes(text: &[u8], quote: u8) -> Option<usize> {
    let (mut rest, mut passed) = (text, 0);
    while let Some((word, behind)) = rest.split_first_chunk::<8>() {
        let special = special_bytes(u64::from_le_bytes(*word), quote);
        if special != 0 {
            return Some(passed + (special.trailing_zeros() / 8) as usize);
        }
        passed += word.len();
        rest = behind;
    }
    let is_special = |byte: &u8| *byte == quote || *byte == b'\\' || *byte < b' ';
    rest.iter().position(is_special).map(|at| passed + at)
}

/// The high bit of the lowest special byte, and maybe of bytes above it: a borrow may run upwards.
#[inline(always)]
fn special_bytes(word: u64, quote: u8) -> u64 {
    let is_quote = word ^ (ONES * u64::from(quote));
    let is_backslash = word ^ (ONES * u64::from(b'\\'));
    let below_space = word.wrapping_sub(ONES * u64::from(b' ')) & !word;
    let quotes = is_quote.wrapping_sub(ONES) & !is_quote;
    let backslashes = is_backslash.wrapping_sub(ONES) & !is_backslash;
    (below_space | quotes | backslashes) & HIGH_BITS
}

/// The keys of the last object, in its order: the next object is likely to have the same. A key is
/// its text from the opening quote to the colon, so that equal texts are equal keys.
#[derive(Debug, Default)]
pub struct Keys(Vec<Key>);

#[derive(Debug, Default)]
struct Key {
    /// The first bytes of the text, and a one for each of their bits.
    head: u128,
    mask: u128,
    text: Vec<u8>,
    /// Its number among the wanted fields, if it is wanted.
    field: Option<usize>,
}

impl Keys {
    /// The length and the field of the key that stood at this place, if `rest` begins with it.
    #[inline]
    pub fn again(&self, place: usize, rest: &[u8]) -> Option<(usize, Option<usize>)> {
        let key = self.0.get(place)?;
        let is_it = match rest.split_first_chunk::<HEAD_BYTES>() {
            Some((head, behind)) => {
                u128::from_le_bytes(*head) & key.mask == key.head
                    && key
                        .text
                        .get(HEAD_BYTES..)
                        .is_none_or(|tail| behind.starts_with(tail))
            }
            None => rest.starts_with(&key.text),
        };
        is_it.then_some((key.text.len(), key.field))
    }

    /// Remembers the key at this place. `text` is not empty.
    pub fn learn(&mut self, place: usize, text: &[u8], field: Option<usize>) {
        if place == self.0.len() && place < JSON_KEYS_REMEMBERED_MAX {
            self.0.push(Key::default());
        }
        let Some(key) = self.0.get_mut(place) else {
            return;
        };
        let (mut head, mut mask) = ([0; HEAD_BYTES], [0; HEAD_BYTES]);
        for ((head, mask), byte) in head.iter_mut().zip(&mut mask).zip(text) {
            (*head, *mask) = (*byte, 0xff);
        }
        key.head = u128::from_le_bytes(head);
        key.mask = u128::from_le_bytes(mask);
        key.text.clear();
        key.text.extend_from_slice(text);
        key.field = field;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_bytes_end_where_a_look_at_each_byte_says() {
        let bytes = [
            b'a', b'"', b'\'', b'\\', 0x1f, 0, b' ', b'!', b'#', b'[', 0x80, 0xff,
        ];
        let mut state = 1_u64;
        for length in 0..40 {
            for _ in 0..500 {
                let text: Vec<u8> = (0..length)
                    .map(|_| {
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        // Mostly plain, so that some texts have nothing special in eight bytes.
                        match state >> 60 {
                            0 => bytes[(state >> 20) as usize % bytes.len()],
                            _ => b' ' + (state >> 30) as u8 % 2,
                        }
                    })
                    .collect();
                for quote in [b'"', b'\''] {
                    let expected = text
                        .iter()
                        .position(|byte| *byte == quote || *byte == b'\\' || *byte < b' ');
                    assert_eq!(plain_bytes(&text, quote), expected, "{text:?}");
                }
            }
        }
    }

    #[test]
    fn a_key_is_known_again_at_its_place_and_nowhere_else() {
        let mut keys = Keys::default();
        let long = format!("\"{}\":", "k".repeat(40));
        keys.learn(0, b"\"id\":", Some(3));
        keys.learn(1, long.as_bytes(), None);
        for tail in ["", "1", "1,\"another\":2,\"and more\":[]}"] {
            let text = format!("\"id\":{tail}");
            assert_eq!(keys.again(0, text.as_bytes()), Some((5, Some(3))), "{text}");
            assert_eq!(keys.again(1, text.as_bytes()), None, "{text}");
            let text = format!("{long}{tail}");
            assert_eq!(keys.again(1, text.as_bytes()), Some((43, None)), "{text}");
        }
        for other in ["\"id", "\"ie\":1", "\"id\" :1", ""] {
            assert_eq!(keys.again(0, other.as_bytes()), None, "{other}");
        }
        keys.learn(0, b"\"a\":", None);
        assert_eq!(keys.again(0, b"\"a\":1"), Some((4, None)));
        assert_eq!(keys.again(0, b"\"id\":1"), None);
        for place in 2..=JSON_KEYS_REMEMBERED_MAX {
            keys.learn(place, b"\"b\":", None);
        }
        assert_eq!(keys.again(JSON_KEYS_REMEMBERED_MAX, b"\"b\":"), None);
    }
}

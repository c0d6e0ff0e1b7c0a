//! JSON's strings, numbers and words into the column that is wanted. Each function says whether the
//! value has a type that the column takes.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

use super::build::Values;
use super::numeral::{Number, Numeral, named, real};
use super::scalar;

/// A string between its quotes.
pub struct Quoted<'a> {
    pub raw: &'a [u8],
    pub has_escapes: bool,
}

impl<'a> Quoted<'a> {
    /// The string, its escapes decoded.
    #[inline]
    pub fn text(&self) -> Cow<'a, [u8]> {
        if self.has_escapes {
            unescape(self.raw).into()
        } else {
            self.raw.into()
        }
    }
}

pub fn boolean(value: bool, into: &mut Values) -> bool {
    match into {
        Values::Boolean(values) => values.push(value),
        Values::Utf8(strings) => strings.push(if value { b"true" } else { b"false" }),
        _ => return false,
    }
    true
}

fn push<T>(value: Option<T>, values: &mut Vec<T>) -> bool {
    match value {
        Some(value) => values.push(value),
        None => return false,
    }
    true
}

pub fn number(numeral: &Numeral<'_>, into: &mut Values) -> bool {
    let Numeral { text, kind, .. } = *numeral;
    let integer = || numeral.whole();
    match into {
        Values::Int8(values) => push(integer().and_then(|n| i8::try_from(n).ok()), values),
        Values::Int16(values) => push(integer().and_then(|n| i16::try_from(n).ok()), values),
        Values::Int32(values) => push(integer().and_then(|n| i32::try_from(n).ok()), values),
        Values::Int64(values) => push(integer(), values),
        Values::Float32(values) if kind == Number::Named => push(named(text), values),
        // A whole number has no negative zero.
        Values::Float32(values) if kind == Number::Whole => {
            push(real(text).map(|number: f32| number + 0.0), values)
        }
        Values::Float32(values) => push(real(text), values),
        Values::Float64(values) if kind == Number::Named => {
            push(named(text).map(f64::from), values)
        }
        Values::Float64(values) if kind == Number::Whole => {
            push(numeral.real().map(|number| number + 0.0), values)
        }
        Values::Float64(values) => push(numeral.real(), values),
        Values::Decimal(values, precision, scale) if kind != Number::Named => {
            push(scalar::decimal(text, *precision, *scale), values)
        }
        Values::Timestamp(values, true) => push(
            integer().and_then(|seconds| seconds.checked_mul(1_000_000)),
            values,
        ),
        Values::Utf8(strings) => {
            strings.push(text);
            true
        }
        _ => false,
    }
}

pub fn string(quoted: &Quoted<'_>, into: &mut Values) -> bool {
    let text = &*quoted.text();
    match into {
        Values::Utf8(strings) => {
            strings.push(text);
            true
        }
        Values::Binary(values) => match from_base64(text) {
            Some(bytes) => {
                values.push(&bytes);
                true
            }
            None => false,
        },
        Values::Float32(values) => push(named(text), values),
        Values::Float64(values) => push(named(text).map(f64::from), values),
        Values::Decimal(values, precision, scale) => {
            push(scalar::decimal(text, *precision, *scale), values)
        }
        Values::Date(values) => push(scalar::date(text), values),
        Values::Timestamp(values, zoned) => push(scalar::timestamp(text, *zoned), values),
        _ => false,
    }
}

/// As Jackson takes it: white space may stand before every four characters, as where lines are
/// broken, and the last of them may have bits that make no byte.
fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    const CONFIG: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    const ENGINE: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
    let mut characters = Vec::with_capacity(text.len());
    for byte in text {
        if *byte > b' ' || characters.len() % 4 != 0 {
            characters.push(*byte);
        }
    }
    ENGINE.decode(characters).ok()
}

/// Decodes escapes that were checked. A surrogate alone becomes `?`, as in Java's encoder.
#[cold]
fn unescape(raw: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'\\' {
            text.push(byte);
            continue;
        }
        let Some((&escaped, behind)) = rest.split_first() else {
            break;
        };
        rest = behind;
        text.push(match escaped {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut unit = code_unit(&mut rest);
                if let 0xd800..0xdc00 = unit
                    && let Some(mut low) = rest.strip_prefix(b"\\u")
                    && let low_unit @ 0xdc00..0xe000 = code_unit(&mut low)
                {
                    rest = low;
                    unit = 0x10000 + ((unit - 0xd800) << 10) + (low_unit - 0xdc00);
                }
                let character = char::from_u32(unit).unwrap_or('?');
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            other => other,
        });
    }
    text
}

/// Four hexadecimal digits.
fn code_unit(rest: &mut &[u8]) -> u32 {
    let (digits, behind) = rest.split_at(rest.len().min(4));
    *rest = behind;
    let digit = |sum: u32, byte: &u8| sum * 16 + char::from(*byte).to_digit(16).unwrap_or(0);
    digits.iter().fold(0, digit)
}

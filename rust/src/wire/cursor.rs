//! Reading and writing the primitive types of the protocol, big-endian.
//!
//! ```text
//! plain      string  i16 length, bytes          null: length -1
//!            bytes   i32 length, bytes          null: length -1
//!            array   i32 count, elements        null: count -1
//! compact    string, bytes, array: uvarint of length + 1, 0 is null           (KIP-482)
//! tags       uvarint count, then per field: uvarint tag, uvarint size, bytes  (KIP-482)
//! ```
//!
//! A compact string is no longer than a plain one may be, as in Kafka's messages.
//!
//! Every length is checked against the bytes that are left before anything is allocated for it: an
//! array of n elements needs at least n bytes, so a lying count is refused at once.

use crate::error::{Error, Result};
use crate::uuid::Uuid;

/// Bytes of a string, plain or compact.
pub const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// A request that contradicts the protocol. The connection is closed, as Kafka does.
#[cold]
fn malformed(what: &str) -> Error {
    Error::MalformedRequest(what.to_owned())
}

/// The string that these bytes are.
#[inline]
pub fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| malformed("a string is not UTF-8"))
}

/// Reads one frame's body from front to back. Copying it is cheap: it is a slice and a position.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// A reader that has read so many bytes already.
    #[inline]
    pub fn at(bytes: &'a [u8], at: usize) -> Reader<'a> {
        let at = at.min(bytes.len());
        Reader { bytes, at }
    }

    /// Bytes read so far: where in the body the next field lies.
    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    #[inline]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(count);
        match end.and_then(|end| self.bytes.get(self.at..end)) {
            Some(taken) => {
                self.at += count;
                Ok(taken)
            }
            None => Err(malformed("a field reaches beyond the end of the request")),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut field = [0; N];
        field.copy_from_slice(self.take(N)?);
        Ok(field)
    }

    #[inline]
    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.i8()? != 0)
    }

    #[inline]
    pub fn i8(&mut self) -> Result<i8> {
        Ok(i8::from_be_bytes(self.array()?))
    }

    #[inline]
    pub fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    #[inline]
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    #[inline]
    pub fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    #[inline]
    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    #[inline]
    pub fn f64(&mut self) -> Result<f64> {
        Ok(f64::from_be_bytes(self.array()?))
    }

    #[inline]
    pub fn uuid(&mut self) -> Result<Uuid> {
        Ok(Uuid(self.array()?))
    }

    /// Seven bits a byte, lowest first, at most five bytes, as `ByteUtils.readUnsignedVarint`.
    #[inline]
    pub fn uvarint(&mut self) -> Result<u32> {
        // Nearly all are lengths and counts below 128, and lengths of records below 16,384.
        match self.bytes.get(self.at..) {
            Some(&[byte, ..]) if byte < 0x80 => {
                self.at += 1;
                Ok(u32::from(byte))
            }
            Some(&[first, second, ..]) if second < 0x80 => {
                self.at += 2;
                Ok(u32::from(first & 0x7f) | u32::from(second) << 7)
            }
            _ => self.long_uvarint(),
        }
    }

    #[cold]
    fn long_uvarint(&mut self) -> Result<u32> {
        let mut value: u32 = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = u32::from(self.array::<1>()?[0]);
            if shift == 28 && byte > 0x0f {
                return Err(malformed(
                    "a variable-length integer is longer than 32 bits",
                ));
            }
            value |= (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(malformed("a variable-length integer does not end"))
    }

    /// The length of a string: `None` is null.
    #[inline]
    fn string_length(&mut self, flexible: bool) -> Result<Option<usize>> {
        if flexible {
            let length = (self.uvarint()? as usize).checked_sub(1);
            return match length {
                Some(length) if length > STRING_BYTES_MAX => {
                    Err(malformed("a string is longer than 32,767 bytes"))
                }
                length => Ok(length),
            };
        }
        match self.i16()? {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => Ok(Some(length)),
                Err(_) => Err(malformed("a string has a negative length")),
            },
        }
    }

    #[inline]
    pub fn nullable_string(&mut self, flexible: bool) -> Result<Option<&'a str>> {
        let Some(length) = self.string_length(flexible)? else {
            return Ok(None);
        };
        Ok(Some(utf8(self.take(length)?)?))
    }

    #[inline]
    pub fn string(&mut self, flexible: bool) -> Result<&'a str> {
        utf8(self.string_bytes(flexible)?)
    }

    /// A string of which nobody knows yet whether it is UTF-8.
    #[inline]
    pub fn string_bytes(&mut self, flexible: bool) -> Result<&'a [u8]> {
        match self.string_length(flexible)? {
            Some(length) => self.take(length),
            None => Err(malformed("a string that may not be null is null")),
        }
    }

    #[inline]
    pub fn nullable_bytes(&mut self, flexible: bool) -> Result<Option<&'a [u8]>> {
        match self.nullable_length(flexible)? {
            Some(length) => Ok(Some(self.take(length)?)),
            None => Ok(None),
        }
    }

    /// The length of bytes or the count of an array; `None` is null. Never more than what is left,
    /// since no element takes less than a byte (a tagged struct without fields takes one).
    #[inline]
    pub fn nullable_length(&mut self, flexible: bool) -> Result<Option<usize>> {
        let length = if flexible {
            match (self.uvarint()? as usize).checked_sub(1) {
                Some(length) => length,
                None => return Ok(None),
            }
        } else {
            match self.i32()? {
                -1 => return Ok(None),
                length => usize::try_from(length)
                    .map_err(|_| malformed("an array or a byte field has a negative length"))?,
            }
        };
        if length > self.remaining() {
            return Err(malformed("a length is larger than the rest of the request"));
        }
        Ok(Some(length))
    }

    /// The count of an array that may not be null.
    #[inline]
    pub fn array_length(&mut self, flexible: bool) -> Result<usize> {
        match self.nullable_length(flexible)? {
            Some(length) => Ok(length),
            None => Err(malformed("an array that may not be null is null")),
        }
    }

    /// Calls `field` for each tagged field with its tag and a reader of just its bytes. A field of
    /// an unknown tag is to be left unread; one that is known must be read to its end.
    #[inline]
    pub fn tags(
        &mut self,
        mut field: impl FnMut(u32, &mut Reader<'a>) -> Result<()>,
    ) -> Result<()> {
        for _ in 0..self.uvarint()? {
            let (tag, mut reader) = self.tag()?;
            field(tag, &mut reader)?;
        }
        Ok(())
    }

    /// The next tagged field: its tag and a reader of just its bytes.
    #[inline]
    pub fn tag(&mut self) -> Result<(u32, Reader<'a>)> {
        let tag = self.uvarint()?;
        let size = self.uvarint()? as usize;
        Ok((tag, Reader::new(self.take(size)?)))
    }

    /// Skips the tagged fields of a struct if the version has them.
    #[inline]
    pub fn skip_tags(&mut self, flexible: bool) -> Result<()> {
        if !flexible {
            return Ok(());
        }
        // Nearly no struct carries any.
        if self.bytes.get(self.at) == Some(&0) {
            self.at += 1;
            return Ok(());
        }
        self.skip_some_tags()
    }

    #[cold]
    fn skip_some_tags(&mut self) -> Result<()> {
        self.tags(|_, _| Ok(()))
    }
}

/// Builds a response. Lengths are the caller's own data: one beyond the type is a programmer's
/// error and stops the process rather than send a lie.
#[derive(Debug, Default)]
pub struct Writer {
    pub bytes: Vec<u8>,
}

impl Writer {
    #[inline]
    pub fn with_capacity(bytes: usize) -> Writer {
        Writer {
            bytes: Vec::with_capacity(bytes),
        }
    }

    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.bytes.push(u8::from(value));
    }

    #[inline]
    pub fn i8(&mut self, value: i8) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    #[inline]
    pub fn i16(&mut self, value: i16) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    #[inline]
    pub fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    #[inline]
    pub fn i32(&mut self, value: i32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    #[inline]
    pub fn f64(&mut self, value: f64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    #[inline]
    pub fn uuid(&mut self, value: &Uuid) {
        self.bytes.extend_from_slice(&value.0);
    }

    #[inline]
    pub fn uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    #[inline]
    pub fn nullable_string(&mut self, value: Option<&str>, flexible: bool) {
        match (value, flexible) {
            (None, true) => self.uvarint(0),
            (None, false) => self.i16(-1),
            (Some(value), true) => self.uvarint(length_u32(value.len()) + 1),
            (Some(value), false) => {
                assert!(
                    value.len() <= STRING_BYTES_MAX,
                    "a string of 32 KiB or more"
                );
                self.i16(value.len() as i16);
            }
        }
        self.bytes
            .extend_from_slice(value.unwrap_or_default().as_bytes());
    }

    #[inline]
    pub fn string(&mut self, value: &str, flexible: bool) {
        self.nullable_string(Some(value), flexible);
    }

    /// The length of bytes or the count of an array, in front of its elements; `None` is null.
    #[inline]
    pub fn nullable_length(&mut self, length: Option<usize>, flexible: bool) {
        match (length, flexible) {
            (None, true) => self.uvarint(0),
            (None, false) => self.i32(-1),
            (Some(length), true) => self.uvarint(length_u32(length) + 1),
            (Some(length), false) => self.i32(length_u32(length) as i32),
        }
    }

    #[inline]
    pub fn array_length(&mut self, length: usize, flexible: bool) {
        self.nullable_length(Some(length), flexible);
    }

    #[inline]
    pub fn nullable_bytes(&mut self, value: Option<&[u8]>, flexible: bool) {
        self.nullable_length(value.map(<[u8]>::len), flexible);
        self.bytes.extend_from_slice(value.unwrap_or_default());
    }

    /// Ends a struct that carries no tagged field.
    #[inline]
    pub fn no_tags(&mut self, flexible: bool) {
        if flexible {
            self.bytes.push(0);
        }
    }

    /// One tagged field: its tag, its size, its bytes. The count of fields comes before the first.
    pub fn tag(&mut self, tag: u32, write: impl FnOnce(&mut Writer)) {
        let mut field = Writer::default();
        write(&mut field);
        self.uvarint(tag);
        self.uvarint(length_u32(field.bytes.len()));
        self.bytes.extend_from_slice(&field.bytes);
    }
}

#[inline]
fn length_u32(length: usize) -> u32 {
    assert!(length < i32::MAX as usize, "a field of 2 GiB or more");
    length as u32
}

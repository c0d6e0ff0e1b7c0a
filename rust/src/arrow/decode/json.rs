//! One JSON text a record, straight into columns: no tree, no tape, and what is not wanted is
//! passed over. Whatever the nesting, the stack grows with the wanted schema only.
//!
//! What is taken, and what is not, is what Spark's `from_json` does (Jackson as Spark sets it up):
//! the first value of the text counts, single quotes quote, `NaN` and `Infinity` are numbers, of a
//! key that comes twice the last value counts. A value of another type makes its field null and the
//! record bad; within a list or a map it makes all of it null. A text that is no JSON has no field.

use super::build::{Builder, Record, Values};
use super::json_scalar::{Quoted, boolean, number, string};
use super::numeral::{DIGITS_SHORT_MAX, Number, Numeral};
use super::scan::plain_bytes;
use super::verdict::{Read, Reason};
use crate::limits::JSON_DEPTH_MAX;

/// Reads one text, which is UTF-8, into the fields of a row that is not ended yet.
pub fn read(text: &[u8], row: &mut Record) -> Read {
    let mut parser = Parser {
        text,
        at: 0,
        mismatch: None,
    };
    parser.skip_space();
    let read = match parser.byte() {
        None => return Read::Nothing,
        Some(b'{') => parser.object(row),
        Some(_) => Err("it is no object"),
    };
    match (read, parser.mismatch) {
        (Err(what), _) => {
            row.rollback();
            Read::Bad(Reason::Text(what, parser.at))
        }
        (Ok(()), Some(mismatch)) => Read::Bad(mismatch),
        (Ok(()), None) => Read::Row,
    }
}

/// A result, or the reason why a text is no JSON.
type Parsed<T> = std::result::Result<T, &'static str>;

/// True: the value has the wanted type. False: it was passed over and must be taken back.
type Fits = Parsed<bool>;

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    /// The first field whose value had another type.
    mismatch: Option<Reason>,
}

impl<'a> Parser<'a> {
    #[inline(always)]
    fn byte(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    #[inline(always)]
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.byte() {
            self.at += 1;
        }
    }

    #[inline(always)]
    fn take(&mut self, byte: u8) -> bool {
        let found = self.byte() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Fields of an object, the parser standing before its brace.
    fn object(&mut self, row: &mut Record) -> Parsed<()> {
        self.at += 1;
        self.skip_space();
        if self.take(b'}') {
            return Ok(());
        }
        let len = row.len();
        for place in 0.. {
            let wanted = self.wanted(row, place)?;
            let Some(field) = wanted.and_then(|index| row.fields.get_mut(index)) else {
                self.skip_value()?;
                if self.ends(b'}')? {
                    return Ok(());
                }
                continue;
            };
            if field.len() > len {
                field.truncate(len);
            }
            if !self.value(field)? {
                field.truncate(len);
                field.push_null();
                let name = wanted.and_then(|index| row.names.get(index));
                self.note(name, field);
            }
            if self.ends(b'}')? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes a key and its colon: its number among the fields of the row, if it is wanted. `place`
    /// is its own in its object.
    #[inline(always)]
    fn wanted(&mut self, row: &mut Record, place: usize) -> Parsed<Option<usize>> {
        let start = self.at;
        let rest = self.text.get(start..).unwrap_or_default();
        if let Some((length, field)) = row.keys.again(place, rest) {
            self.at += length;
            self.skip_space();
            return Ok(field);
        }
        let key = self.key()?;
        let field = find(row, &key);
        let text = self.text.get(start..self.at).unwrap_or_default();
        row.keys.learn(place, text.trim_ascii_end(), field);
        Ok(field)
    }

    #[cold]
    fn note(&mut self, name: Option<&String>, field: &Builder) {
        self.mismatch.get_or_insert_with(|| {
            let name = name.cloned().unwrap_or_default();
            Reason::Field(name, field.data_type().clone())
        });
    }

    /// The key and the colon behind it.
    fn key(&mut self) -> Parsed<Quoted<'a>> {
        self.skip_space();
        let key = match self.byte() {
            Some(quote @ (b'"' | b'\'')) => self.quoted(quote)?,
            _ => return Err("a key in quotes is missing"),
        };
        self.skip_space();
        if !self.take(b':') {
            return Err("a colon is missing");
        }
        self.skip_space();
        Ok(key)
    }

    /// True: the object or list ends here. False: a further item follows.
    #[inline(always)]
    fn ends(&mut self, close: u8) -> Parsed<bool> {
        self.skip_space();
        if self.take(b',') {
            self.skip_space();
            Ok(false)
        } else if self.take(close) {
            Ok(true)
        } else {
            Err("a comma or the end of an object or list is missing")
        }
    }

    /// One value. Recursive by the wanted schema, not by the text.
    fn value(&mut self, into: &mut Builder) -> Fits {
        match self.byte() {
            Some(b'n') => {
                self.word(b"null")?;
                into.push_null();
                Ok(true)
            }
            Some(b'{') => self.in_braces(into),
            Some(b'[') => self.in_brackets(into),
            Some(quote @ (b'"' | b'\'')) => {
                let quoted = self.quoted(quote)?;
                Ok(string(&quoted, &mut into.values))
            }
            Some(b't') => {
                self.word(b"true")?;
                Ok(boolean(true, &mut into.values))
            }
            Some(b'f') => {
                self.word(b"false")?;
                Ok(boolean(false, &mut into.values))
            }
            Some(_) => {
                let numeral = self.number()?;
                Ok(number(&numeral, &mut into.values))
            }
            None => Err("a value is missing"),
        }
    }

    fn in_braces(&mut self, into: &mut Builder) -> Fits {
        match &mut into.values {
            Values::Struct(row) => {
                self.object(row)?;
                row.end_row();
                Ok(true)
            }
            Values::Map(pair, ends) => {
                self.at += 1;
                self.skip_space();
                let mut fits = true;
                if !self.take(b'}') {
                    loop {
                        let key = self.key()?;
                        if fits {
                            string(&key, &mut pair.0.values);
                            fits = self.value(&mut pair.1)?;
                            pair.1.refuse_outgrown()?;
                        } else {
                            self.skip_value()?;
                        }
                        if self.ends(b'}')? {
                            break;
                        }
                    }
                }
                ends.push(pair.0.len());
                Ok(fits)
            }
            _ => self.as_text(into),
        }
    }

    fn in_brackets(&mut self, into: &mut Builder) -> Fits {
        let Values::List(items, ends) = &mut into.values else {
            return self.as_text(into);
        };
        self.at += 1;
        self.skip_space();
        let mut fits = true;
        if !self.take(b']') {
            loop {
                if fits {
                    fits = self.value(items)?;
                    items.refuse_outgrown()?;
                } else {
                    self.skip_value()?;
                }
                if self.ends(b']')? {
                    break;
                }
            }
        }
        ends.push(items.len());
        Ok(fits)
    }

    /// An object or list where a string is wanted: its text, without the white space.
    fn as_text(&mut self, into: &mut Builder) -> Fits {
        let start = self.at;
        self.skip_value()?;
        let Values::Utf8(strings) = &mut into.values else {
            return Ok(false);
        };
        let mut quote = None;
        let mut is_escaped = false;
        for byte in self.text.get(start..self.at).unwrap_or_default() {
            match quote {
                None if byte.is_ascii_whitespace() => continue,
                None if matches!(byte, b'"' | b'\'') => quote = Some(*byte),
                Some(_) if is_escaped => is_escaped = false,
                Some(_) if *byte == b'\\' => is_escaped = true,
                Some(open) if open == *byte => quote = None,
                _ => {}
            }
            strings.bytes.push(*byte);
        }
        strings.end();
        Ok(true)
    }

    /// Passes over one value, whatever it is.
    fn skip_value(&mut self) -> Parsed<()> {
        match self.byte() {
            Some(b'{' | b'[') => self.skip_nested(),
            Some(_) => self.skip_scalar(),
            None => Err("a value is missing"),
        }
    }

    fn skip_scalar(&mut self) -> Parsed<()> {
        match self.byte() {
            Some(quote @ (b'"' | b'\'')) => self.quoted(quote).map(drop),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            Some(_) => self.number().map(drop),
            None => Err("a value is missing"),
        }
    }

    fn skip_nested(&mut self) -> Parsed<()> {
        // For each open object or list the byte that closes it.
        let mut open = [0_u8; JSON_DEPTH_MAX];
        let mut depth = 0;
        loop {
            match self.byte() {
                Some(byte @ (b'{' | b'[')) => {
                    // In ASCII the closing bracket is two behind the opening one.
                    let close = byte + 2;
                    *open.get_mut(depth).ok_or("it is nested too deeply")? = close;
                    depth += 1;
                    self.at += 1;
                    self.skip_space();
                    if self.take(close) {
                        depth -= 1;
                    } else {
                        if close == b'}' {
                            self.key()?;
                        }
                        continue;
                    }
                }
                _ => self.skip_scalar()?,
            }
            loop {
                let Some(close) = depth.checked_sub(1).and_then(|top| open.get(top)) else {
                    return Ok(());
                };
                let close = *close;
                if !self.ends(close)? {
                    if close == b'}' {
                        self.key()?;
                    }
                    break;
                }
                depth -= 1;
            }
        }
    }

    #[inline(always)]
    fn word(&mut self, word: &'static [u8]) -> Parsed<()> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if !rest.starts_with(word) {
            return Err("a word is none of JSON's");
        }
        self.at += word.len();
        match self.byte() {
            Some(byte) if byte.is_ascii_alphanumeric() => Err("a word is none of JSON's"),
            _ => Ok(()),
        }
    }

    fn quoted(&mut self, quote: u8) -> Parsed<Quoted<'a>> {
        self.at += 1;
        let start = self.at;
        let mut has_escapes = false;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(plain) = plain_bytes(rest, quote) else {
                return Err("a string does not end");
            };
            self.at += plain;
            match self.byte() {
                Some(b'\\') => {
                    has_escapes = true;
                    self.escape()?;
                }
                Some(byte) if byte == quote => {
                    let raw = self.text.get(start..self.at).unwrap_or_default();
                    self.at += 1;
                    return Ok(Quoted { raw, has_escapes });
                }
                _ => return Err("a control character stands in a string"),
            }
        }
    }

    fn escape(&mut self) -> Parsed<()> {
        let escaped = self.text.get(self.at + 1).ok_or("a string does not end")?;
        match escaped {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' | b'\'' => self.at += 2,
            b'u' => {
                let digits = self.text.get(self.at + 2..self.at + 6);
                let digits = digits.ok_or("a string does not end")?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return Err("an escape is none of JSON's");
                }
                self.at += 6;
            }
            _ => return Err("an escape is none of JSON's"),
        }
        Ok(())
    }

    fn number(&mut self) -> Parsed<Numeral<'a>> {
        let start = self.at;
        let signed = matches!(self.byte(), Some(b'-' | b'+'));
        let is_plus = self.byte() == Some(b'+');
        self.at += usize::from(signed);
        let first = self.byte();
        if let Some(b'N' | b'I') = first {
            return self.name(start, signed);
        }
        let mut digits = 0;
        let whole = self.digits(&mut digits);
        if whole == 0 || is_plus || (whole > 1 && first == Some(b'0')) {
            return Err("a value is none of JSON's");
        }
        let (mut kind, mut fraction, mut has_exponent) = (Number::Whole, 0, false);
        if self.take(b'.') {
            kind = Number::Fraction;
            fraction = self.digits(&mut digits);
            if fraction == 0 {
                return Err("a number ends with its point");
            }
        }
        if let Some(b'e' | b'E') = self.byte() {
            (kind, has_exponent) = (Number::Fraction, true);
            self.at += 1;
            if let Some(b'-' | b'+') = self.byte() {
                self.at += 1;
            }
            if self.digits(&mut 0) == 0 {
                return Err("a number has no exponent");
            }
        }
        let is_short = !has_exponent && whole + fraction <= DIGITS_SHORT_MAX;
        Ok(Numeral {
            text: self.text.get(start..self.at).unwrap_or_default(),
            kind,
            is_negative: signed,
            short: is_short.then_some((digits, fraction)),
        })
    }

    /// One of the numbers that have names, or an error.
    #[cold]
    fn name(&mut self, start: usize, signed: bool) -> Parsed<Numeral<'a>> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let names: [&'static [u8]; 3] = [b"NaN", b"Infinity", b"INF"];
        let allowed = if signed { &names[1..] } else { &names[..2] };
        let Some(name) = allowed.iter().find(|name| rest.starts_with(name)) else {
            return Err("a value is none of JSON's");
        };
        self.word(name)?;
        Ok(Numeral {
            text: self.text.get(start..self.at).unwrap_or_default(),
            kind: Number::Named,
            is_negative: signed,
            short: None,
        })
    }

    /// How many digits there are; they are appended to the decimal number `sum`, which wraps.
    #[inline(always)]
    fn digits(&mut self, sum: &mut u64) -> usize {
        let start = self.at;
        while let Some(byte) = self.byte()
            && byte.is_ascii_digit()
        {
            *sum = sum.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
            self.at += 1;
        }
        self.at - start
    }
}

/// The field of this name.
fn find(row: &Record, key: &Quoted<'_>) -> Option<usize> {
    let name = key.text();
    row.names.iter().position(|each| each.as_bytes() == &*name)
}

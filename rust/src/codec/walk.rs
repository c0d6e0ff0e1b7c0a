//! The walk over the table, once in each direction, whatever messages are made of in
//! memory: `Value`s, or objects of Python's (`py/codec.rs`), which so need no tree of
//! values between them and the wire.

use std::borrow::Cow;
use std::fmt::{self, Write};

use super::schema::{Field, Kind, Message, Struct};
use super::value::Value;
use crate::error::Error;
use crate::limits::VALUE_QUOTED_BYTES_MAX;
use crate::uuid::Uuid;
use crate::wire::cursor::STRING_BYTES_MAX;
use crate::wire::{Reader, Writer};

/// Makes what is read. One of these is for a struct, or for what is in a field of one.
pub trait Maker: Copy {
    /// The value of a field.
    type Made;
    /// A struct while its fields are read.
    type Open;
    type Error: From<Error>;

    fn null(self) -> Self::Made;
    fn bool(self, value: bool) -> Result<Self::Made, Self::Error>;
    fn int(self, value: i64) -> Result<Self::Made, Self::Error>;
    fn float(self, value: f64) -> Result<Self::Made, Self::Error>;
    fn string(self, value: &str) -> Self::Made;
    fn bytes(self, value: &[u8]) -> Self::Made;
    fn uuid(self, value: &Uuid) -> Self::Made;
    /// Comes before the elements of an array are read: an error where they are too many.
    fn admit(self, _count: usize) -> Result<(), Self::Error> {
        Ok(())
    }
    /// Comes before each of them, and before each tagged field.
    fn begin_element(self) {}
    fn array(self, elements: Vec<Self::Made>) -> Result<Self::Made, Self::Error>;

    /// A struct, whose fields are set one after the other.
    fn open(self, of: &Struct) -> Result<Self::Open, Self::Error>;
    /// For what is in one of its fields.
    fn inside(self, index: usize) -> Result<Self, Self::Error>;
    fn set(self, open: &mut Self::Open, index: usize, made: Self::Made) -> Result<(), Self::Error>;
    fn set_default(
        self,
        open: &mut Self::Open,
        index: usize,
        of: &Struct,
    ) -> Result<(), Self::Error>;
    fn close(self, open: Self::Open) -> Self::Made;
}

/// A value that is written, of a field or a struct. An error: it is not of
/// the kind that is asked for.
pub trait Source<'t>: Sized {
    type Error: From<Error>;

    fn is_null(&self) -> bool;
    fn bool(&self) -> Result<bool, Self::Error>;
    fn int(&self) -> Result<i64, Self::Error>;
    fn float(&self) -> Result<f64, Self::Error>;
    fn string(&self) -> Result<Cow<'_, str>, Self::Error>;
    fn bytes(&self) -> Result<Cow<'_, [u8]>, Self::Error>;
    fn uuid(&self) -> Result<Uuid, Self::Error>;
    fn elements(&self) -> Result<Vec<Self>, Self::Error>;
    /// True of an empty array, without a look at its elements.
    fn is_empty(&self) -> Result<bool, Self::Error>;
    /// The field of a struct that has this index in the table.
    fn field(&self, of: &'t Struct, index: usize) -> Result<Self, Self::Error>;
}

/// A version of a message.
#[derive(Clone, Copy)]
struct Spoken {
    version: i16,
    is_flexible: bool,
}

impl Spoken {
    fn of(message: &Message, version: i16) -> Result<Spoken, Error> {
        if !message.versions.contains(version) {
            let name = &message.root.name;
            let sentence = format!("{name} has no version {version}");
            return Err(Error::InvalidArgument(sentence));
        }
        Ok(Spoken {
            version,
            is_flexible: message.flexible.contains(version),
        })
    }

    fn has(self, field: &Field) -> bool {
        field.versions.contains(self.version)
    }

    fn has_tagged(self, field: &Field) -> bool {
        field.tagged.contains(self.version)
    }

    fn may_be_null(self, field: &Field) -> bool {
        field.nullable.contains(self.version)
    }

    /// The strings, bytes and arrays of a field are compact.
    fn is_compact(self, field: &Field) -> bool {
        self.is_flexible && !field.never_flexible
    }
}

/// Reads the body of `message` in `version`. Bytes behind the last field are left to the caller,
/// who has them in `reader`.
pub fn read<M: Maker>(
    message: &Message,
    version: i16,
    maker: M,
    reader: &mut Reader<'_>,
) -> Result<M::Made, M::Error> {
    let spoken = Spoken::of(message, version)?;
    read_struct(&message.root, spoken, maker, reader)
}

fn read_struct<M: Maker>(
    of: &Struct,
    spoken: Spoken,
    maker: M,
    reader: &mut Reader<'_>,
) -> Result<M::Made, M::Error> {
    let mut open = maker.open(of)?;
    for (index, field) in of.fields.iter().enumerate() {
        if spoken.has(field) && !spoken.has_tagged(field) {
            let made = read_field(field, spoken, maker.inside(index)?, reader)?;
            maker.set(&mut open, index, made)?;
        } else {
            maker.set_default(&mut open, index, of)?;
        }
    }
    let tag_count = if spoken.is_flexible {
        reader.uvarint()?
    } else {
        0
    };
    for _ in 0..tag_count {
        maker.begin_element();
        let (tag, mut reader) = reader.tag()?;
        let is_meant =
            |field: &Field| field.tag == Some(tag) && spoken.has_tagged(field) && spoken.has(field);
        if let Some(index) = of.fields.iter().position(is_meant) {
            let made = read_field(&of.fields[index], spoken, maker.inside(index)?, &mut reader)?;
            maker.set(&mut open, index, made)?;
        }
    }
    Ok(maker.close(open))
}

fn read_field<M: Maker>(
    field: &Field,
    spoken: Spoken,
    maker: M,
    reader: &mut Reader<'_>,
) -> Result<M::Made, M::Error> {
    let may_be_null = spoken.may_be_null(field);
    // A struct that may be null has a byte in front: -1 is null.
    if may_be_null && matches!(field.kind, Kind::Struct(_)) && reader.i8()? < 0 {
        return Ok(maker.null());
    }
    let is_compact = spoken.is_compact(field);
    match read_kind(&field.kind, spoken, is_compact, maker, reader)? {
        Some(made) => Ok(made),
        None if may_be_null => Ok(maker.null()),
        None => {
            let sentence = format!("{} may not be null", field.name);
            Err(Error::MalformedRequest(sentence).into())
        }
    }
}

/// `None`: it is null.
fn read_kind<M: Maker>(
    kind: &Kind,
    spoken: Spoken,
    is_compact: bool,
    maker: M,
    reader: &mut Reader<'_>,
) -> Result<Option<M::Made>, M::Error> {
    Ok(Some(match kind {
        Kind::Bool => maker.bool(reader.bool()?)?,
        Kind::Int8 => maker.int(reader.i8()?.into())?,
        Kind::Int16 => maker.int(reader.i16()?.into())?,
        Kind::Uint16 => maker.int(reader.u16()?.into())?,
        Kind::Int32 => maker.int(reader.i32()?.into())?,
        Kind::Uint32 => maker.int(reader.u32()?.into())?,
        Kind::Int64 => maker.int(reader.i64()?)?,
        Kind::Float64 => maker.float(reader.f64()?)?,
        Kind::Uuid => maker.uuid(&reader.uuid()?),
        Kind::String => {
            let string = reader.nullable_string(is_compact)?;
            return Ok(string.map(|string| maker.string(string)));
        }
        Kind::Bytes | Kind::Records => {
            let bytes = reader.nullable_bytes(is_compact)?;
            return Ok(bytes.map(|bytes| maker.bytes(bytes)));
        }
        Kind::Array(element) => {
            let Some(count) = reader.nullable_length(is_compact)? else {
                return Ok(None);
            };
            maker.admit(count)?;
            let mut elements = Vec::new();
            for _ in 0..count {
                maker.begin_element();
                let made = read_kind(element, spoken, is_compact, maker, reader)?;
                let sentence = "an element of an array may not be null";
                let null = || Error::MalformedRequest(sentence.to_owned());
                elements.push(made.ok_or_else(null)?);
            }
            maker.array(elements)?
        }
        Kind::Struct(inner) => read_struct(inner, spoken, maker, reader)?,
    }))
}

/// Writes the body of `message` in `version`. Fails where a value does not fit its field.
pub fn write<'t, S: Source<'t>>(
    message: &'t Message,
    version: i16,
    source: &S,
    writer: &mut Writer,
) -> Result<(), S::Error> {
    let spoken = Spoken::of(message, version)?;
    write_struct(&message.root, spoken, source, writer)
}

fn write_struct<'t, S: Source<'t>>(
    of: &'t Struct,
    spoken: Spoken,
    source: &S,
    writer: &mut Writer,
) -> Result<(), S::Error> {
    let mut tagged: Vec<(u32, &'t Field, S)> = Vec::new();
    for (index, field) in of.fields.iter().enumerate() {
        if !spoken.has(field) {
            continue;
        }
        let value = source.field(of, index)?;
        match field.tag {
            Some(tag) if spoken.has_tagged(field) => {
                if !equals(&field.kind, &value, &field.default)? {
                    tagged.push((tag, field, value));
                }
            }
            _ => write_field(field, spoken, &value, writer)?,
        }
    }
    if spoken.is_flexible {
        tagged.sort_by_key(|(tag, ..)| *tag);
        writer.uvarint(tagged.len() as u32);
        for (tag, field, value) in tagged {
            let mut inner = Writer::default();
            write_field(field, spoken, &value, &mut inner)?;
            writer.tag(tag, |writer| writer.bytes = inner.bytes);
        }
    }
    Ok(())
}

fn write_field<'t, S: Source<'t>>(
    field: &'t Field,
    spoken: Spoken,
    value: &S,
    writer: &mut Writer,
) -> Result<(), S::Error> {
    let is_null = value.is_null();
    let may_be_null = spoken.may_be_null(field);
    if is_null && !may_be_null {
        return Err(cannot_hold(&field.name, &Value::Null).into());
    }
    if may_be_null && matches!(field.kind, Kind::Struct(_)) {
        writer.i8(if is_null { -1 } else { 1 });
        if is_null {
            return Ok(());
        }
    }
    write_kind(field, &field.kind, spoken, value, writer)
}

/// `kind` is that of `field`, or of its elements.
fn write_kind<'t, S: Source<'t>>(
    field: &'t Field,
    kind: &'t Kind,
    spoken: Spoken,
    value: &S,
    writer: &mut Writer,
) -> Result<(), S::Error> {
    let is_compact = spoken.is_compact(field);
    let beyond = |value: i64| move |_| cannot_hold(&field.name, &value);
    match kind {
        Kind::Bool => writer.bool(value.bool()?),
        Kind::Float64 => writer.f64(value.float()?),
        Kind::Uuid => writer.uuid(&value.uuid()?),
        Kind::Int64 => writer.i64(value.int()?),
        Kind::Int8 => {
            let value = value.int()?;
            writer.i8(i8::try_from(value).map_err(beyond(value))?);
        }
        Kind::Int16 => {
            let value = value.int()?;
            writer.i16(i16::try_from(value).map_err(beyond(value))?);
        }
        Kind::Uint16 => {
            let value = value.int()?;
            writer.u16(u16::try_from(value).map_err(beyond(value))?);
        }
        Kind::Int32 => {
            let value = value.int()?;
            writer.i32(i32::try_from(value).map_err(beyond(value))?);
        }
        Kind::Uint32 => {
            let value = value.int()?;
            writer.u32(u32::try_from(value).map_err(beyond(value))?);
        }
        Kind::String if value.is_null() => writer.nullable_string(None, is_compact),
        Kind::String => {
            let value = value.string()?;
            if value.len() > STRING_BYTES_MAX {
                return Err(cannot_hold(&field.name, &value).into());
            }
            writer.string(&value, is_compact);
        }
        Kind::Bytes | Kind::Records | Kind::Array(_) if value.is_null() => {
            writer.nullable_length(None, is_compact);
        }
        Kind::Bytes | Kind::Records => writer.nullable_bytes(Some(&value.bytes()?), is_compact),
        Kind::Array(element) => {
            let elements = value.elements()?;
            writer.array_length(elements.len(), is_compact);
            for each in elements {
                if each.is_null() {
                    return Err(cannot_hold(&field.name, &Value::Null).into());
                }
                write_kind(field, element, spoken, &each, writer)?;
            }
        }
        Kind::Struct(inner) => write_struct(inner, spoken, value, writer)?,
    }
    Ok(())
}

/// True of a value that is the default, so that its tag is left out.
fn equals<'t, S: Source<'t>>(kind: &'t Kind, value: &S, default: &Value) -> Result<bool, S::Error> {
    if value.is_null() || *default == Value::Null {
        return Ok(value.is_null() && *default == Value::Null);
    }
    Ok(match (kind, default) {
        (Kind::Bool, Value::Bool(default)) => value.bool()? == *default,
        (Kind::Float64, Value::Float(default)) => value.float()? == *default,
        (Kind::String, Value::String(default)) => value.string()? == *default,
        (Kind::Bytes | Kind::Records, Value::Bytes(default)) => value.bytes()? == *default,
        (Kind::Uuid, Value::Uuid(default)) => value.uuid()? == *default,
        // All that the table knows.
        (Kind::Array(_), Value::Array(default)) if default.is_empty() => value.is_empty()?,
        (Kind::Struct(inner), Value::Struct(defaults)) => {
            let mut are_equal = true;
            for (index, (field, default)) in inner.fields.iter().zip(defaults).enumerate() {
                are_equal = are_equal && equals(&field.kind, &value.field(inner, index)?, default)?;
            }
            are_equal
        }
        (_, Value::Int(default)) => value.int()? == *default,
        _ => false,
    })
}

/// The error for a value that does not fit its field.
pub fn cannot_hold(name: &str, value: &dyn fmt::Debug) -> Error {
    let mut quoted = Quoted(String::new());
    // It ends where the quotation is full, so that nobody writes down a gigabyte.
    let rest = match write!(quoted, "{value:?}") {
        Ok(()) => "",
        Err(fmt::Error) => "…",
    };
    Error::InvalidArgument(format!("{name} cannot hold {}{rest}", quoted.0))
}

/// The beginning of what is written.
struct Quoted(String);

impl fmt::Write for Quoted {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = VALUE_QUOTED_BYTES_MAX - self.0.len();
        let mut end = room.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.0.push_str(text.get(..end).unwrap_or_default());
        if end == text.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_on_a_value_that_does_not_fit_quotes_its_beginning() {
        let told = |value: &Value| cannot_hold("topics", value).to_string();
        assert!(told(&Value::Int(7)).ends_with("topics cannot hold Int(7)"));
        for value in [
            Value::Bytes(vec![b'x'; 1 << 20]),
            Value::String("ä".repeat(1 << 20)),
            Value::Array(vec![Value::Null; 1 << 20]),
        ] {
            let told = told(&value);
            assert!(told.len() < 2 * VALUE_QUOTED_BYTES_MAX, "{}", told.len());
            assert!(told.ends_with('…'));
        }
    }
}

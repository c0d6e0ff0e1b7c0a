//! A message between the wire and its owner: values in the order of the schema's fields, the same
//! for every version. A field that a version lacks holds its default after decoding and is left out
//! when encoding.

use std::fmt::{self, Write};

use super::schema::{Field, Kind, Message, Struct, default_struct};
use crate::error::{Error, Result};
use crate::limits::VALUE_QUOTED_BYTES_MAX;
use crate::uuid::Uuid;
use crate::wire::{Reader, Writer};

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    /// Every integer type; the range is checked when it is written.
    Int(i64),
    Float(f64),
    String(String),
    /// Bytes and records.
    Bytes(Vec<u8>),
    Uuid(Uuid),
    Array(Vec<Value>),
    /// One value per field of the schema's struct.
    Struct(Vec<Value>),
}

/// Reads the body of `message` in `version`. Bytes behind the last field are left to the caller,
/// who has them in `reader`.
pub fn decode(message: &Message, version: i16, reader: &mut Reader<'_>) -> Result<Value> {
    check_version(message, version)?;
    let flexible = message.flexible.contains(version);
    decode_struct(&message.root, version, flexible, reader)
}

/// Writes the body of `message` in `version`. Fails where a value does not fit its field.
pub fn encode(message: &Message, version: i16, value: &Value, writer: &mut Writer) -> Result<()> {
    check_version(message, version)?;
    let flexible = message.flexible.contains(version);
    encode_struct(&message.root, version, flexible, value, writer)
}

fn check_version(message: &Message, version: i16) -> Result<()> {
    match message.versions.contains(version) {
        true => Ok(()),
        false => Err(Error::InvalidArgument(format!(
            "{} has no version {version}",
            message.root.name
        ))),
    }
}

fn decode_struct(
    of: &Struct,
    version: i16,
    flexible: bool,
    reader: &mut Reader<'_>,
) -> Result<Value> {
    let Value::Struct(mut values) = default_struct(of) else {
        unreachable!("default_struct gives a struct");
    };
    for (field, value) in of.fields.iter().zip(&mut values) {
        if field.versions.contains(version) && !field.tagged.contains(version) {
            *value = decode_field(field, version, flexible, reader)?;
        }
    }
    if flexible {
        reader.tags(|tag, reader| {
            let known = of.fields.iter().position(|field| {
                field.tag == Some(tag)
                    && field.tagged.contains(version)
                    && field.versions.contains(version)
            });
            if let Some(index) = known {
                values[index] = decode_field(&of.fields[index], version, true, reader)?;
            }
            Ok(())
        })?;
    }
    Ok(Value::Struct(values))
}

fn decode_field(
    field: &Field,
    version: i16,
    flexible: bool,
    reader: &mut Reader<'_>,
) -> Result<Value> {
    let flexible_type = flexible && !field.never_flexible;
    let nullable = field.nullable.contains(version);
    let value = decode_kind(
        &field.kind,
        version,
        flexible,
        flexible_type,
        nullable,
        reader,
    )?;
    if value == Value::Null && !nullable {
        return Err(Error::MalformedRequest(format!(
            "{} may not be null",
            field.name
        )));
    }
    Ok(value)
}

fn decode_kind(
    kind: &Kind,
    version: i16,
    flexible: bool,
    flexible_type: bool,
    nullable: bool,
    reader: &mut Reader<'_>,
) -> Result<Value> {
    Ok(match kind {
        Kind::Bool => Value::Bool(reader.bool()?),
        Kind::Int8 => Value::Int(reader.i8()?.into()),
        Kind::Int16 => Value::Int(reader.i16()?.into()),
        Kind::Uint16 => Value::Int(reader.u16()?.into()),
        Kind::Int32 => Value::Int(reader.i32()?.into()),
        Kind::Uint32 => Value::Int(reader.u32()?.into()),
        Kind::Int64 => Value::Int(reader.i64()?),
        Kind::Float64 => Value::Float(reader.f64()?),
        Kind::Uuid => Value::Uuid(reader.uuid()?),
        Kind::String => match reader.nullable_string(flexible_type)? {
            Some(string) => Value::String(string.to_owned()),
            None => Value::Null,
        },
        Kind::Bytes | Kind::Records => match reader.nullable_bytes(flexible_type)? {
            Some(bytes) => Value::Bytes(bytes.to_owned()),
            None => Value::Null,
        },
        Kind::Array(element) => match reader.nullable_length(flexible_type)? {
            Some(count) => {
                let mut elements = Vec::new();
                for _ in 0..count {
                    let value =
                        decode_kind(element, version, flexible, flexible_type, false, reader)?;
                    if value == Value::Null {
                        let sentence = "an element of an array may not be null";
                        return Err(Error::MalformedRequest(sentence.to_owned()));
                    }
                    elements.push(value);
                }
                Value::Array(elements)
            }
            None => Value::Null,
        },
        // A struct that may be null has a byte in front: -1 is null.
        Kind::Struct(_) if nullable && reader.i8()? < 0 => Value::Null,
        Kind::Struct(inner) => decode_struct(inner, version, flexible, reader)?,
    })
}

fn encode_struct(
    of: &Struct,
    version: i16,
    flexible: bool,
    value: &Value,
    writer: &mut Writer,
) -> Result<()> {
    let Value::Struct(values) = value else {
        return Err(wrong(&of.name, value));
    };
    if values.len() != of.fields.len() {
        return Err(wrong(&of.name, value));
    }
    let mut tagged: Vec<(u32, &Field, &Value)> = Vec::new();
    for (field, value) in of.fields.iter().zip(values) {
        if !field.versions.contains(version) {
            continue;
        }
        match field.tag {
            Some(tag) if field.tagged.contains(version) => {
                if *value != field.default {
                    tagged.push((tag, field, value));
                }
            }
            _ => encode_field(field, version, flexible, value, writer)?,
        }
    }
    if flexible {
        tagged.sort_by_key(|(tag, ..)| *tag);
        writer.uvarint(tagged.len() as u32);
        for (tag, field, value) in tagged {
            let mut inner = Writer::default();
            encode_field(field, version, true, value, &mut inner)?;
            writer.tag(tag, |writer| writer.bytes = inner.bytes);
        }
    }
    Ok(())
}

fn encode_field(
    field: &Field,
    version: i16,
    flexible: bool,
    value: &Value,
    writer: &mut Writer,
) -> Result<()> {
    let flexible_type = flexible && !field.never_flexible;
    let nullable = field.nullable.contains(version);
    if *value == Value::Null && !nullable {
        return Err(wrong(&field.name, value));
    }
    if nullable && matches!(field.kind, Kind::Struct(_)) {
        writer.i8(if *value == Value::Null { -1 } else { 1 });
        if *value == Value::Null {
            return Ok(());
        }
    }
    encode_kind(&field.kind, version, flexible, flexible_type, value, writer)
        .ok_or_else(|| wrong(&field.name, value))?
}

/// `None`: the value is not of the kind or out of its range.
fn encode_kind(
    kind: &Kind,
    version: i16,
    flexible: bool,
    flexible_type: bool,
    value: &Value,
    writer: &mut Writer,
) -> Option<Result<()>> {
    match (kind, value) {
        (Kind::Bool, Value::Bool(value)) => writer.bool(*value),
        (Kind::Int8, Value::Int(value)) => writer.i8(i8::try_from(*value).ok()?),
        (Kind::Int16, Value::Int(value)) => writer.i16(i16::try_from(*value).ok()?),
        (Kind::Uint16, Value::Int(value)) => writer.u16(u16::try_from(*value).ok()?),
        (Kind::Int32, Value::Int(value)) => writer.i32(i32::try_from(*value).ok()?),
        (Kind::Uint32, Value::Int(value)) => writer.u32(u32::try_from(*value).ok()?),
        (Kind::Int64, Value::Int(value)) => writer.i64(*value),
        (Kind::Float64, Value::Float(value)) => writer.f64(*value),
        (Kind::Uuid, Value::Uuid(value)) => writer.uuid(value),
        (Kind::String, Value::String(value)) => {
            if !flexible_type && value.len() > i16::MAX as usize {
                return None;
            }
            writer.string(value, flexible_type);
        }
        (Kind::String, Value::Null) => writer.nullable_string(None, flexible_type),
        (Kind::Bytes | Kind::Records, Value::Bytes(value)) => {
            writer.nullable_bytes(Some(value), flexible_type);
        }
        (Kind::Bytes | Kind::Records | Kind::Array(_), Value::Null) => {
            writer.nullable_length(None, flexible_type);
        }
        (Kind::Array(element), Value::Array(values)) => {
            writer.array_length(values.len(), flexible_type);
            for value in values {
                if *value == Value::Null {
                    return None;
                }
                match encode_kind(element, version, flexible, flexible_type, value, writer)? {
                    Ok(()) => {}
                    Err(error) => return Some(Err(error)),
                }
            }
        }
        (Kind::Struct(inner), value) => {
            return Some(encode_struct(inner, version, flexible, value, writer));
        }
        _ => return None,
    }
    Some(Ok(()))
}

fn wrong(name: &str, value: &Value) -> Error {
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
        match end == text.len() {
            true => Ok(()),
            false => Err(fmt::Error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_on_a_value_that_does_not_fit_quotes_its_beginning() {
        let told = |value: &Value| wrong("topics", value).to_string();
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

//! A message between the wire and its owner in Rust: values in the order of the schema's fields,
//! the same for every version. A field that a version lacks holds its default after decoding and
//! is left out when encoding.

use std::borrow::Cow;

use super::schema::{Message, Struct};
use super::value::Value;
use super::walk::{self, Maker, Source, cannot_hold};
use crate::error::{Error, Result};
use crate::uuid::Uuid;
use crate::wire::{Reader, Writer};

/// Reads the body of `message` in `version`. Bytes behind the last field are left to the caller,
/// who has them in `reader`.
pub fn decode(message: &Message, version: i16, reader: &mut Reader<'_>) -> Result<Value> {
    walk::read(message, version, ValueMaker, reader)
}

/// Writes the body of `message` in `version`. Fails where a value does not fit its field.
pub fn encode(message: &Message, version: i16, value: &Value, writer: &mut Writer) -> Result<()> {
    let name = &message.root.name;
    walk::write(message, version, &Named { value, name }, writer)
}

#[derive(Clone, Copy)]
struct ValueMaker;

impl Maker for ValueMaker {
    type Made = Value;
    type Open = Vec<Value>;
    type Error = Error;

    fn null(self) -> Value {
        Value::Null
    }

    fn bool(self, value: bool) -> Result<Value> {
        Ok(Value::Bool(value))
    }

    fn int(self, value: i64) -> Result<Value> {
        Ok(Value::Int(value))
    }

    fn float(self, value: f64) -> Result<Value> {
        Ok(Value::Float(value))
    }

    fn string(self, value: &str) -> Value {
        Value::String(value.to_owned())
    }

    fn bytes(self, value: &[u8]) -> Value {
        Value::Bytes(value.to_owned())
    }

    fn uuid(self, value: &Uuid) -> Value {
        Value::Uuid(*value)
    }

    fn array(self, elements: Vec<Value>) -> Result<Value> {
        Ok(Value::Array(elements))
    }

    fn open(self, of: &Struct) -> Result<Vec<Value>> {
        Ok(vec![Value::Null; of.fields.len()])
    }

    fn inside(self, _index: usize) -> Result<ValueMaker> {
        Ok(self)
    }

    fn set(self, open: &mut Vec<Value>, index: usize, made: Value) -> Result<()> {
        open[index] = made;
        Ok(())
    }

    fn set_default(self, open: &mut Vec<Value>, index: usize, of: &Struct) -> Result<()> {
        open[index] = of.fields[index].default.clone();
        Ok(())
    }

    fn close(self, open: Vec<Value>) -> Value {
        Value::Struct(open)
    }
}

/// A value of a field, or of a message, that is called so.
struct Named<'a> {
    value: &'a Value,
    name: &'a str,
}

impl Named<'_> {
    fn wrong(&self) -> Error {
        cannot_hold(self.name, self.value)
    }
}

impl<'t> Source<'t> for Named<'t> {
    type Error = Error;

    fn is_null(&self) -> bool {
        *self.value == Value::Null
    }

    fn bool(&self) -> Result<bool> {
        match self.value {
            Value::Bool(value) => Ok(*value),
            _ => Err(self.wrong()),
        }
    }

    fn int(&self) -> Result<i64> {
        match self.value {
            Value::Int(value) => Ok(*value),
            _ => Err(self.wrong()),
        }
    }

    fn float(&self) -> Result<f64> {
        match self.value {
            Value::Float(value) => Ok(*value),
            _ => Err(self.wrong()),
        }
    }

    fn string(&self) -> Result<Cow<'_, str>> {
        match self.value {
            Value::String(value) => Ok(value.into()),
            _ => Err(self.wrong()),
        }
    }

    fn bytes(&self) -> Result<Cow<'_, [u8]>> {
        match self.value {
            Value::Bytes(value) => Ok(value.into()),
            _ => Err(self.wrong()),
        }
    }

    fn uuid(&self) -> Result<Uuid> {
        match self.value {
            Value::Uuid(value) => Ok(*value),
            _ => Err(self.wrong()),
        }
    }

    fn elements(&self) -> Result<Vec<Self>> {
        let Value::Array(values) = self.value else {
            return Err(self.wrong());
        };
        let named = values.iter().map(|value| Named { value, ..*self });
        Ok(named.collect())
    }

    fn is_empty(&self) -> Result<bool> {
        match self.value {
            Value::Array(values) => Ok(values.is_empty()),
            _ => Err(self.wrong()),
        }
    }

    fn field(&self, of: &'t Struct, index: usize) -> Result<Self> {
        match self.value {
            Value::Struct(values) if values.len() == of.fields.len() => Ok(Named {
                value: &values[index],
                name: &of.fields[index].name,
            }),
            _ => Err(self.wrong()),
        }
    }
}

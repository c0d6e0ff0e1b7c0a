//! A value of a field, as a message has it between the wire and its owner in Rust.

use crate::uuid::Uuid;

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

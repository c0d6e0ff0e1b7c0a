//! The verdict on one record's bytes: a row, nothing, or why it is bad.

use std::fmt;

use arrow_schema::DataType;

/// Why a record is bad.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// Its text is not of the format; what is wrong, and the byte at which.
    Text(&'static str, usize),
    /// This field has a value that is not of its type.
    Field(String, DataType),
    /// It has another number of columns.
    Columns(usize, usize),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Text(what, at) => write!(f, "{what} (byte {at})"),
            Reason::Field(name, data_type) => {
                write!(f, "the value of field '{name}' is no {data_type}")
            }
            Reason::Columns(found, wanted) => {
                write!(f, "it has {found} columns, and not {wanted}")
            }
        }
    }
}

/// The verdict on one record's bytes.
#[derive(Debug, PartialEq)]
pub enum Read {
    /// A row: its fields are filled as far as it has them.
    Row,
    /// Nothing: null.
    Nothing,
    /// Not what was wanted. The fields that were stay filled.
    Bad(Reason),
}

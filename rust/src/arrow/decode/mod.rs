//! Keys and values as typed columns: bytes in, columns out, and the records that are not what was
//! wanted, each with its reason.
//!
//! ```text
//! json, csv, avro   one record's bytes into a row
//! verdict           a row, nothing, or why a record is bad
//! scalar            texts to decimals, dates and times
//! scan, numeral     runs of plain bytes, keys that come again, short numbers
//! build             the columns while they grow
//! ```

pub mod avro;
pub mod avro_schema;
pub mod build;
pub mod csv;
pub mod json;
mod json_scalar;
pub mod numeral;
pub mod scalar;
pub mod scan;
pub mod verdict;

use arrow_array::{Array, ArrayRef, BinaryArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, Fields};

use self::avro::AvroReader;
use self::build::{Record, null_buffer};
use self::csv::CsvReader;
use self::verdict::Read;
pub use self::verdict::Reason;

/// How bytes become a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Reader {
    Json,
    Csv(CsvReader),
    Avro(AvroReader),
}

/// Decodes keys or values, an Arrow batch at a time.
pub struct Decoder {
    reader: Reader,
    row: Record,
    nulls: Vec<u32>,
}

/// The fields of an Arrow batch of keys or values.
pub struct Decoded {
    pub fields: Vec<ArrayRef>,
    /// Null where there was nothing to decode.
    pub nulls: Option<NullBuffer>,
    /// Rows that are bad, ascending, and why the first of them is.
    pub bad: Vec<u32>,
    pub reason: Option<Reason>,
}

impl Decoder {
    /// `None`: a field has a type that cannot be built.
    pub fn new(reader: Reader, fields: &Fields) -> Option<Decoder> {
        Some(Decoder {
            reader,
            row: Record::new(fields)?,
            nulls: Vec::new(),
        })
    }

    /// Memory is bounded by the values and, for each row and each item of a list, the width of the
    /// fields. Errors: more than 2 GiB in a column.
    pub fn decode(&mut self, values: &BinaryArray) -> Result<Decoded, ArrowError> {
        let is_ascii = values.value_data().is_ascii();
        let mut bad = Vec::new();
        let mut reason = None;
        for index in 0..values.len() {
            let read = if values.is_valid(index) {
                self.read(values.value(index), is_ascii)
            } else {
                Read::Nothing
            };
            self.row.end_row();
            match read {
                Read::Row => {}
                Read::Nothing => self.nulls.push(index as u32),
                Read::Bad(why) => {
                    bad.push(index as u32);
                    reason.get_or_insert(why);
                }
            }
        }
        Ok(Decoded {
            fields: self.row.finish()?,
            nulls: null_buffer(values.len(), &mut self.nulls),
            bad,
            reason,
        })
    }

    fn read(&mut self, bytes: &[u8], is_ascii: bool) -> Read {
        let row = &mut self.row;
        match &mut self.reader {
            Reader::Json => with_text(bytes, is_ascii, |text| json::read(text, row)),
            Reader::Csv(csv) => with_text(bytes, is_ascii, |text| csv.read(text, row)),
            Reader::Avro(avro) => avro.read(bytes, row),
        }
    }
}

/// U+FFFD stands where bytes are no UTF-8.
fn with_text(bytes: &[u8], is_ascii: bool, read: impl FnOnce(&[u8]) -> Read) -> Read {
    if is_ascii || std::str::from_utf8(bytes).is_ok() {
        read(bytes)
    } else {
        read(String::from_utf8_lossy(bytes).as_bytes())
    }
}

//! The typed keys and values of one Arrow batch, and what becomes of the bad ones among them.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, BooleanArray, StringArray, StructArray};
use arrow_schema::{ArrowError, Fields};

use super::decode::{Decoded, Decoder, Reason};
use super::formats::Mode;
use super::shape::{Shape, Typed};

/// Decoders of what a shape has typed.
pub(super) struct TypedRows {
    mode: Mode,
    key: Option<Side>,
    value: Option<Side>,
}

struct Side {
    fields: Fields,
    decoder: Decoder,
}

/// Keys and values of one Arrow batch.
pub(super) struct TypedBatch {
    pub key: Option<TypedColumns>,
    pub value: Option<TypedColumns>,
}

/// The fields of the keys, or of the values.
pub(super) struct TypedColumns {
    fields: Fields,
    decoded: Decoded,
    bytes: BinaryArray,
}

/// The first bad record.
pub(super) struct Bad {
    pub row: usize,
    pub what: &'static str,
    pub reason: Reason,
}

impl TypedRows {
    pub fn new(shape: &Shape) -> TypedRows {
        let side = |typed: &Typed| {
            let decoder = Decoder::new(typed.reader.clone(), &typed.fields)?;
            let fields = typed.fields.clone();
            Some(Side { fields, decoder })
        };
        TypedRows {
            mode: shape.formats().mode,
            key: shape.key().and_then(side),
            value: shape.value().and_then(side),
        }
    }

    pub fn decode(
        &mut self,
        keys: Option<&BinaryArray>,
        values: Option<&BinaryArray>,
    ) -> Result<TypedBatch, ArrowError> {
        Ok(TypedBatch {
            key: decode(self.key.as_mut(), keys)?,
            value: decode(self.value.as_mut(), values)?,
        })
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }
}

fn decode(
    side: Option<&mut Side>,
    bytes: Option<&BinaryArray>,
) -> Result<Option<TypedColumns>, ArrowError> {
    let (Some(side), Some(bytes)) = (side, bytes) else {
        return Ok(None);
    };
    Ok(Some(TypedColumns {
        fields: side.fields.clone(),
        decoded: side.decoder.decode(bytes)?,
        bytes: bytes.clone(),
    }))
}

impl TypedBatch {
    fn bad_rows(&self) -> impl Iterator<Item = (usize, &'static str, &TypedColumns)> {
        let sides = [("value", self.value.as_ref()), ("key", self.key.as_ref())];
        sides.into_iter().flat_map(|(what, columns)| {
            columns.into_iter().flat_map(move |columns| {
                let rows = columns.decoded.bad.iter();
                rows.map(move |row| (*row as usize, what, columns))
            })
        })
    }

    /// The bad record that comes first.
    pub fn first_bad(&self) -> Option<Bad> {
        let (row, what, columns) = self.bad_rows().min_by_key(|(row, ..)| *row)?;
        let reason = columns.decoded.reason.clone()?;
        Some(Bad { row, what, reason })
    }

    /// Which rows are good; `None`: all are.
    pub fn good_rows(&self, rows: usize) -> Option<BooleanArray> {
        self.bad_rows().next()?;
        let mut good = vec![true; rows];
        for (row, ..) in self.bad_rows() {
            if let Some(good) = good.get_mut(row) {
                *good = false;
            }
        }
        Some(BooleanArray::from(good))
    }

    /// The bytes of bad values as text, of bad keys where the value is good.
    pub fn corrupt(&self, rows: usize) -> StringArray {
        if self.bad_rows().next().is_none() {
            return StringArray::new_null(rows);
        }
        let mut texts = vec![None; rows];
        for (row, _, columns) in self.bad_rows() {
            if let Some(text @ None) = texts.get_mut(row) {
                *text = Some(String::from_utf8_lossy(columns.bytes.value(row)));
            }
        }
        StringArray::from_iter(texts)
    }
}

impl TypedColumns {
    /// The fields as one column.
    pub fn as_struct(&self) -> Result<ArrayRef, ArrowError> {
        let Decoded { fields, nulls, .. } = &self.decoded;
        let columns = fields.clone();
        let array = StructArray::try_new(self.fields.clone(), columns, nulls.clone())?;
        Ok(Arc::new(array))
    }

    pub fn field(&self, index: usize) -> Option<ArrayRef> {
        self.decoded.fields.get(index).map(Arc::clone)
    }
}

//! Typed columns while they grow, a value at a time. Unlike arrow-rs' builders these can take the
//! last values back, which a record needs whose bytes turn out to be damaged at their end, and a
//! key that an object names twice.

use std::sync::Arc;

use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, ListArray, MapArray, PrimitiveArray,
    StringArray, StructArray,
};
use arrow_buffer::{
    BooleanBuffer, BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer,
};
use arrow_schema::{ArrowError, DataType, Fields, TimeUnit};

use super::scan::Keys;
use crate::limits::ARROW_BATCH_BYTES_MAX;

/// A column: its values, and which of them are null.
#[derive(Debug)]
pub struct Builder {
    pub values: Values,
    /// Positions of nulls, ascending.
    nulls: Vec<u32>,
    data_type: DataType,
    /// See `width_bytes`.
    width_bytes: usize,
}

/// The values of a column; one for a null too.
#[derive(Debug)]
pub enum Values {
    Boolean(Vec<bool>),
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    /// Days since 1970.
    Date(Vec<i32>),
    /// Microseconds since 1970; in UTC if the type has a time zone, else of no zone.
    Timestamp(Vec<i64>, bool),
    /// Unscaled, with precision and scale.
    Decimal(Vec<i128>, u8, i8),
    Utf8(Bytes),
    Binary(Bytes),
    Struct(Record),
    List(Box<Builder>, Vec<usize>),
    /// Keys are text.
    Map(Box<(Builder, Builder)>, Vec<usize>),
}

/// Byte strings one behind the other, and where each ends.
#[derive(Debug, Default)]
pub struct Bytes {
    pub bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// The fields of a struct. Between rows all have as many values as the struct.
#[derive(Debug)]
pub struct Record {
    pub fields: Vec<Builder>,
    pub names: Vec<String>,
    /// As JSON's objects had them last.
    pub(super) keys: Keys,
    len: usize,
}

/// Types that a decoder makes; others are refused by name.
pub fn is_buildable(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields.iter().all(|field| is_buildable(field.data_type())),
        DataType::List(item) => is_buildable(item.data_type()),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) => match pair.as_ref() {
                [key, value] => {
                    *key.data_type() == DataType::Utf8 && is_buildable(value.data_type())
                }
                _ => false,
            },
            _ => false,
        },
        DataType::Decimal128(precision, scale) => {
            *precision <= 38 && *scale >= 0 && i16::from(*scale) <= i16::from(*precision)
        }
        _ => values_for(data_type).is_some(),
    }
}

/// Bytes of memory that a value takes whatever it is: its place, and where a null is noted; of a
/// struct those of its fields. The bytes of texts, and items of lists and maps, come to that.
pub fn width_bytes(data_type: &DataType) -> usize {
    let place = match data_type {
        DataType::Struct(fields) => {
            let widths = fields.iter().map(|field| width_bytes(field.data_type()));
            widths.sum()
        }
        DataType::Utf8 | DataType::Binary | DataType::List(_) | DataType::Map(..) => {
            size_of::<usize>()
        }
        fixed => fixed.primitive_width().unwrap_or(1),
    };
    place + size_of::<u32>()
}

/// The width of the widest item of a list, or entry of a map, at any depth; 0: there is none.
pub fn item_bytes_max(data_type: &DataType) -> usize {
    match data_type {
        DataType::Struct(fields) => {
            let fields = fields.iter();
            let widths = fields.map(|field| item_bytes_max(field.data_type()));
            widths.max().unwrap_or(0)
        }
        DataType::List(item) | DataType::Map(item, _) => {
            let item = item.data_type();
            width_bytes(item).max(item_bytes_max(item))
        }
        _ => 0,
    }
}

fn values_for(data_type: &DataType) -> Option<Values> {
    Some(match data_type {
        DataType::Boolean => Values::Boolean(Vec::new()),
        DataType::Int8 => Values::Int8(Vec::new()),
        DataType::Int16 => Values::Int16(Vec::new()),
        DataType::Int32 => Values::Int32(Vec::new()),
        DataType::Int64 => Values::Int64(Vec::new()),
        DataType::Float32 => Values::Float32(Vec::new()),
        DataType::Float64 => Values::Float64(Vec::new()),
        DataType::Date32 => Values::Date(Vec::new()),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            Values::Timestamp(Vec::new(), zone.is_some())
        }
        DataType::Decimal128(precision, scale) => Values::Decimal(Vec::new(), *precision, *scale),
        DataType::Utf8 => Values::Utf8(Bytes::default()),
        DataType::Binary => Values::Binary(Bytes::default()),
        DataType::Struct(fields) => Values::Struct(Record::new(fields)?),
        DataType::List(item) => Values::List(Box::new(Builder::new(item.data_type())?), Vec::new()),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) => match pair.as_ref() {
                [key, value] => {
                    let pair = (
                        Builder::new(key.data_type())?,
                        Builder::new(value.data_type())?,
                    );
                    Values::Map(Box::new(pair), Vec::new())
                }
                _ => return None,
            },
            _ => return None,
        },
        _ => return None,
    })
}

impl Bytes {
    pub fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.end();
    }

    /// Ends a value: the bytes that were appended to `bytes` since the last end.
    pub fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }

    /// Bytes of the values that have ended.
    pub fn ended_bytes(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.bytes.truncate(self.ended_bytes());
    }
}

impl Record {
    /// `None`: a field has a type that cannot be built.
    pub fn new(fields: &Fields) -> Option<Record> {
        let builders = fields.iter().map(|field| Builder::new(field.data_type()));
        Some(Record {
            fields: builders.collect::<Option<Vec<Builder>>>()?,
            names: fields.iter().map(|field| field.name().clone()).collect(),
            keys: Keys::default(),
            len: 0,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A row in which every field is null.
    pub fn push_nulls(&mut self) {
        self.end_row();
    }

    /// Fields that the row has no value for get null.
    pub fn end_row(&mut self) {
        self.len += 1;
        for field in &mut self.fields {
            if field.len() < self.len {
                field.push_null();
            }
        }
    }

    /// Takes back what the fields have of a row that has not ended.
    pub fn rollback(&mut self) {
        for field in &mut self.fields {
            field.truncate(self.len);
        }
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.rollback();
    }

    /// The columns; the record is empty afterwards.
    pub fn finish(&mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        self.len = 0;
        self.fields.iter_mut().map(Builder::finish).collect()
    }
}

impl Builder {
    /// `None`: a type that cannot be built.
    pub fn new(data_type: &DataType) -> Option<Builder> {
        Some(Builder {
            values: values_for(data_type)?,
            nulls: Vec::new(),
            data_type: data_type.clone(),
            width_bytes: width_bytes(data_type),
        })
    }

    /// Refuses items of lists that take more memory than a batch may: there may be millions of a
    /// byte or two each, and an item may have hundreds of fields.
    pub(super) fn refuse_outgrown(&self) -> Result<(), &'static str> {
        if self.len().saturating_mul(self.width_bytes) > ARROW_BATCH_BYTES_MAX {
            Err("the items of its lists take more than 512 MiB")
        } else {
            Ok(())
        }
    }

    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    pub(super) fn len(&self) -> usize {
        match &self.values {
            Values::Boolean(values) => values.len(),
            Values::Int8(values) => values.len(),
            Values::Int16(values) => values.len(),
            Values::Int32(values) | Values::Date(values) => values.len(),
            Values::Int64(values) | Values::Timestamp(values, _) => values.len(),
            Values::Float32(values) => values.len(),
            Values::Float64(values) => values.len(),
            Values::Decimal(values, ..) => values.len(),
            Values::Utf8(values) | Values::Binary(values) => values.ends.len(),
            Values::Struct(record) => record.len,
            Values::List(_, ends) | Values::Map(_, ends) => ends.len(),
        }
    }

    pub fn push_null(&mut self) {
        self.nulls.push(self.len() as u32);
        match &mut self.values {
            Values::Boolean(values) => values.push(false),
            Values::Int8(values) => values.push(0),
            Values::Int16(values) => values.push(0),
            Values::Int32(values) | Values::Date(values) => values.push(0),
            Values::Int64(values) | Values::Timestamp(values, _) => values.push(0),
            Values::Float32(values) => values.push(0.0),
            Values::Float64(values) => values.push(0.0),
            Values::Decimal(values, ..) => values.push(0),
            Values::Utf8(values) | Values::Binary(values) => values.end(),
            Values::Struct(record) => record.push_nulls(),
            Values::List(items, ends) => ends.push(items.len()),
            Values::Map(pair, ends) => ends.push(pair.0.len()),
        }
    }

    /// Takes back all values but the first `len`, and what was begun behind the last one.
    pub fn truncate(&mut self, len: usize) {
        while self.nulls.last().is_some_and(|null| *null as usize >= len) {
            self.nulls.pop();
        }
        match &mut self.values {
            Values::Boolean(values) => values.truncate(len),
            Values::Int8(values) => values.truncate(len),
            Values::Int16(values) => values.truncate(len),
            Values::Int32(values) | Values::Date(values) => values.truncate(len),
            Values::Int64(values) | Values::Timestamp(values, _) => values.truncate(len),
            Values::Float32(values) => values.truncate(len),
            Values::Float64(values) => values.truncate(len),
            Values::Decimal(values, ..) => values.truncate(len),
            Values::Utf8(values) | Values::Binary(values) => values.truncate(len),
            Values::Struct(record) => record.truncate(len),
            Values::List(items, ends) => {
                ends.truncate(len);
                items.truncate(ends.last().copied().unwrap_or(0));
            }
            Values::Map(pair, ends) => {
                ends.truncate(len);
                let end = ends.last().copied().unwrap_or(0);
                pair.0.truncate(end);
                pair.1.truncate(end);
            }
        }
    }

    /// The column; the builder is empty afterwards.
    pub fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let len = self.len();
        let nulls = null_buffer(len, &mut self.nulls);
        Ok(match &mut self.values {
            Values::Boolean(values) => {
                let bits = BooleanBuffer::from(std::mem::take(values));
                Arc::new(BooleanArray::new(bits, nulls))
            }
            Values::Int8(values) => primitive::<Int8Type>(values, nulls)?,
            Values::Int16(values) => primitive::<Int16Type>(values, nulls)?,
            Values::Int32(values) => primitive::<Int32Type>(values, nulls)?,
            Values::Int64(values) => primitive::<Int64Type>(values, nulls)?,
            Values::Float32(values) => primitive::<Float32Type>(values, nulls)?,
            Values::Float64(values) => primitive::<Float64Type>(values, nulls)?,
            Values::Date(values) => primitive::<Date32Type>(values, nulls)?,
            Values::Timestamp(values, _) => {
                let array = array::<TimestampMicrosecondType>(values, nulls)?;
                Arc::new(array.with_data_type(self.data_type.clone()))
            }
            Values::Decimal(values, ..) => {
                let array = array::<Decimal128Type>(values, nulls)?;
                Arc::new(array.with_data_type(self.data_type.clone()))
            }
            Values::Utf8(values) => {
                let (ends, bytes) = values.finish()?;
                Arc::new(StringArray::try_new(ends, bytes, nulls)?)
            }
            Values::Binary(values) => {
                let (ends, bytes) = values.finish()?;
                Arc::new(BinaryArray::try_new(ends, bytes, nulls)?)
            }
            Values::Struct(record) => {
                let DataType::Struct(fields) = &self.data_type else {
                    return Err(ArrowError::ComputeError("a struct of no fields".into()));
                };
                let arrays = record.finish()?;
                Arc::new(StructArray::try_new_with_length(
                    fields.clone(),
                    arrays,
                    nulls,
                    len,
                )?)
            }
            Values::List(items, ends) => {
                let DataType::List(item) = &self.data_type else {
                    return Err(ArrowError::ComputeError("a list of no items".into()));
                };
                let ends = offsets(ends)?;
                let items = items.finish()?;
                Arc::new(ListArray::try_new(Arc::clone(item), ends, items, nulls)?)
            }
            Values::Map(pair, ends) => {
                let DataType::Map(entries, is_sorted) = &self.data_type else {
                    return Err(ArrowError::ComputeError("a map of no entries".into()));
                };
                let DataType::Struct(fields) = entries.data_type() else {
                    return Err(ArrowError::ComputeError("a map of no pairs".into()));
                };
                let arrays = vec![pair.0.finish()?, pair.1.finish()?];
                let pairs = StructArray::try_new(fields.clone(), arrays, None)?;
                let ends = offsets(ends)?;
                let entries = Arc::clone(entries);
                Arc::new(MapArray::try_new(entries, ends, pairs, nulls, *is_sorted)?)
            }
        })
    }
}

impl Bytes {
    fn finish(&mut self) -> Result<(OffsetBuffer<i32>, Buffer), ArrowError> {
        let bytes = take(&mut self.bytes);
        Ok((offsets(&mut self.ends)?, Buffer::from_vec(bytes)))
    }
}

/// The buffer, and an empty one of its size in its place: the next batch is likely to be as large.
fn take<T>(buffer: &mut Vec<T>) -> Vec<T> {
    let next = Vec::with_capacity(buffer.len());
    std::mem::replace(buffer, next)
}

fn primitive<T: ArrowPrimitiveType>(
    values: &mut Vec<T::Native>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    Ok(Arc::new(array::<T>(values, nulls)?))
}

fn array<T: ArrowPrimitiveType>(
    values: &mut Vec<T::Native>,
    nulls: Option<NullBuffer>,
) -> Result<PrimitiveArray<T>, ArrowError> {
    PrimitiveArray::try_new(ScalarBuffer::from(take(values)), nulls)
}

/// Arrow's offsets, of 32 bits, out of the ends.
fn offsets(ends: &mut Vec<usize>) -> Result<OffsetBuffer<i32>, ArrowError> {
    let last = ends.last().copied().unwrap_or(0);
    if i32::try_from(last).is_err() {
        return Err(ArrowError::OffsetOverflowError(last));
    }
    let mut offsets = Vec::with_capacity(ends.len() + 1);
    offsets.push(0);
    offsets.extend(ends.iter().map(|end| *end as i32));
    ends.clear();
    Ok(OffsetBuffer::new(ScalarBuffer::from(offsets)))
}

/// Clears the positions; `None` if there are none.
pub fn null_buffer(len: usize, nulls: &mut Vec<u32>) -> Option<NullBuffer> {
    if nulls.is_empty() {
        return None;
    }
    let mut valid = BooleanBufferBuilder::new(len);
    valid.append_n(len, true);
    for null in nulls.drain(..) {
        valid.set_bit(null as usize, false);
    }
    Some(NullBuffer::new(valid.finish()))
}

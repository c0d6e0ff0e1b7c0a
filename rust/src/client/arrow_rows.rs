//! The columns of an Arrow batch that become records, row by row: every kind of array in which
//! Spark, pandas, polars or DuckDB bring bytes, texts, numbers, times and headers.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrowPrimitiveType, BinaryArray, BinaryViewArray, FixedSizeBinaryArray,
    LargeBinaryArray, LargeStringArray, PrimitiveArray, StringArray, StringViewArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, TimeUnit};

use crate::batch::varint::write_varint;
use crate::error::{Error, Result};

/// Bytes, or the bytes of texts, of each row.
pub(super) enum Slices {
    /// The column is not there, or has no value.
    Absent,
    Binary(BinaryArray),
    LargeBinary(LargeBinaryArray),
    BinaryView(BinaryViewArray),
    FixedSizeBinary(FixedSizeBinaryArray),
    Text(StringArray),
    LargeText(LargeStringArray),
    TextView(StringViewArray),
    Dictionary {
        keys: Vec<usize>,
        nulls: Option<NullBuffer>,
        values: Box<Slices>,
    },
}

impl Slices {
    /// A column of bytes or texts. Errors: `InvalidArgument`.
    pub fn bytes(name: &str, column: Option<&dyn Array>) -> Result<Slices> {
        let Some(array) = column else {
            return Ok(Slices::Absent);
        };
        Slices::of(array).ok_or_else(|| wrong_type(name, array, "a string or binary"))
    }

    /// A column of texts. Errors: `InvalidArgument`.
    pub fn text(name: &str, column: Option<&dyn Array>) -> Result<Slices> {
        let Some(array) = column else {
            return Ok(Slices::Absent);
        };
        let slices = Slices::of(array).filter(Slices::is_text);
        slices.ok_or_else(|| wrong_type(name, array, "a string"))
    }

    fn of(array: &dyn Array) -> Option<Slices> {
        Some(match array.data_type() {
            DataType::Null => Slices::Absent,
            DataType::Binary => Slices::Binary(array.as_binary().clone()),
            DataType::LargeBinary => Slices::LargeBinary(array.as_binary().clone()),
            DataType::BinaryView => Slices::BinaryView(array.as_binary_view().clone()),
            DataType::FixedSizeBinary(_) => {
                Slices::FixedSizeBinary(array.as_fixed_size_binary().clone())
            }
            DataType::Utf8 => Slices::Text(array.as_string().clone()),
            DataType::LargeUtf8 => Slices::LargeText(array.as_string().clone()),
            DataType::Utf8View => Slices::TextView(array.as_string_view().clone()),
            DataType::Dictionary(_, _) => {
                let dictionary = array.as_any_dictionary_opt()?;
                let values = Slices::of(dictionary.values().as_ref())?;
                if dictionary.values().is_empty() {
                    return Some(Slices::Absent);
                }
                Slices::Dictionary {
                    keys: dictionary.normalized_keys(),
                    nulls: dictionary.keys().nulls().cloned(),
                    values: Box::new(values),
                }
            }
            _ => return None,
        })
    }

    fn is_text(&self) -> bool {
        match self {
            Slices::Absent | Slices::Text(_) | Slices::LargeText(_) | Slices::TextView(_) => true,
            Slices::Dictionary { values, .. } => values.is_text(),
            _ => false,
        }
    }

    /// `None` for null. `row` must be within the column.
    #[inline]
    pub fn get(&self, row: usize) -> Option<&[u8]> {
        match self {
            Slices::Absent => None,
            Slices::Binary(array) => array.is_valid(row).then(|| array.value(row)),
            Slices::LargeBinary(array) => array.is_valid(row).then(|| array.value(row)),
            Slices::BinaryView(array) => array.is_valid(row).then(|| array.value(row)),
            Slices::FixedSizeBinary(array) => array.is_valid(row).then(|| array.value(row)),
            Slices::Text(array) => array.is_valid(row).then(|| array.value(row).as_bytes()),
            Slices::LargeText(array) => array.is_valid(row).then(|| array.value(row).as_bytes()),
            Slices::TextView(array) => array.is_valid(row).then(|| array.value(row).as_bytes()),
            Slices::Dictionary {
                keys,
                nulls,
                values,
            } => {
                let is_valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                is_valid
                    .then(|| keys.get(row))
                    .flatten()
                    .and_then(|key| values.get(*key))
            }
        }
    }
}

/// The partition that each row asks for.
pub(super) struct Partitions {
    /// Empty: no row asks.
    numbers: Vec<Option<i64>>,
}

impl Partitions {
    /// Errors: `InvalidArgument`.
    pub fn of(column: Option<&dyn Array>) -> Result<Partitions> {
        let numbers = match column.map(|array| (array, array.data_type())) {
            None | Some((_, DataType::Null)) => Vec::new(),
            Some((array, DataType::Int8)) => numbers::<Int8Type>(array),
            Some((array, DataType::Int16)) => numbers::<Int16Type>(array),
            Some((array, DataType::Int32)) => numbers::<Int32Type>(array),
            Some((array, DataType::Int64)) => numbers::<Int64Type>(array),
            Some((array, DataType::UInt8)) => numbers::<UInt8Type>(array),
            Some((array, DataType::UInt16)) => numbers::<UInt16Type>(array),
            Some((array, DataType::UInt32)) => numbers::<UInt32Type>(array),
            Some((array, DataType::UInt64)) => numbers::<UInt64Type>(array),
            Some((array, _)) => return Err(wrong_type("partition", array, "an int")),
        };
        Ok(Partitions { numbers })
    }

    #[inline]
    pub fn get(&self, row: usize) -> Option<i64> {
        self.numbers.get(row).copied().flatten()
    }
}

fn numbers<T: ArrowPrimitiveType>(array: &dyn Array) -> Vec<Option<i64>>
where
    T::Native: TryInto<i64>,
{
    let array = array.as_primitive::<T>();
    // What does not fit is as little a partition as the largest number there is.
    let number = |native: T::Native| native.try_into().unwrap_or(i64::MAX);
    array.iter().map(|native| native.map(number)).collect()
}

/// The time of each row.
pub(super) struct Timestamps {
    times: Option<(ScalarBuffer<i64>, Option<NullBuffer>, TimeUnit)>,
}

impl Timestamps {
    /// Errors: `InvalidArgument`.
    pub fn of(column: Option<&dyn Array>) -> Result<Timestamps> {
        fn parts<T: ArrowPrimitiveType<Native = i64>>(
            array: &dyn Array,
        ) -> (ScalarBuffer<i64>, Option<NullBuffer>) {
            let array: &PrimitiveArray<T> = array.as_primitive::<T>();
            (array.values().clone(), array.nulls().cloned())
        }
        let Some(array) = column else {
            return Ok(Timestamps { times: None });
        };
        let (unit, (values, nulls)) = match array.data_type() {
            DataType::Null => return Ok(Timestamps { times: None }),
            DataType::Timestamp(unit, _) => {
                let parts = match unit {
                    TimeUnit::Second => parts::<TimestampSecondType>(array),
                    TimeUnit::Millisecond => parts::<TimestampMillisecondType>(array),
                    TimeUnit::Microsecond => parts::<TimestampMicrosecondType>(array),
                    TimeUnit::Nanosecond => parts::<TimestampNanosecondType>(array),
                };
                (*unit, parts)
            }
            _ => return Err(wrong_type("timestamp", array, "a timestamp")),
        };
        Ok(Timestamps {
            times: Some((values, nulls, unit)),
        })
    }

    /// Milliseconds; `None` for null. -1 is kept, as records of old formats have it; earlier times
    /// are errors, as for Kafka's producer.
    #[inline]
    pub fn get_ms(&self, row: usize) -> std::result::Result<Option<i64>, String> {
        let Some((values, nulls, unit)) = &self.times else {
            return Ok(None);
        };
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(None);
        }
        let Some(value) = values.get(row).copied() else {
            return Ok(None);
        };
        let milliseconds = match unit {
            TimeUnit::Second => value.checked_mul(1000),
            TimeUnit::Millisecond => Some(value),
            TimeUnit::Microsecond => Some(value.div_euclid(1000)),
            TimeUnit::Nanosecond => Some(value.div_euclid(1_000_000)),
        };
        match milliseconds {
            Some(milliseconds) if milliseconds >= -1 => Ok(Some(milliseconds)),
            _ => Err(format!("invalid timestamp: {value} {unit:?}s since 1970")),
        }
    }
}

/// The headers of each row.
pub(super) enum Headers {
    Absent,
    Lists {
        offsets: Offsets,
        nulls: Option<NullBuffer>,
        entry_nulls: Option<NullBuffer>,
        names: Box<Slices>,
        values: Box<Slices>,
    },
}

pub(super) enum Offsets {
    Narrow(OffsetBuffer<i32>),
    Wide(OffsetBuffer<i64>),
}

impl Headers {
    /// Errors: `InvalidArgument`.
    pub fn of(column: Option<&dyn Array>) -> Result<Headers> {
        const EXPECTED: &str = "an array<struct<key:string,value:binary>>";
        let Some(array) = column else {
            return Ok(Headers::Absent);
        };
        let (offsets, entries) = match array.data_type() {
            DataType::Null => return Ok(Headers::Absent),
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                (Offsets::Narrow(list.offsets().clone()), list.values())
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                (Offsets::Wide(list.offsets().clone()), list.values())
            }
            _ => return Err(wrong_type("headers", array, EXPECTED)),
        };
        let parts = entries.as_struct_opt().and_then(|entries| {
            let names = Box::new(Slices::of(entries.column_by_name("key")?.as_ref())?);
            let values = Box::new(Slices::of(entries.column_by_name("value")?.as_ref())?);
            let nulls = entries.nulls().cloned();
            names.is_text().then_some((nulls, names, values))
        });
        let Some((entry_nulls, names, values)) = parts else {
            return Err(wrong_type("headers", array, EXPECTED));
        };
        Ok(Headers::Lists {
            offsets,
            nulls: array.nulls().cloned(),
            entry_nulls,
            names,
            values,
        })
    }

    /// Adds the headers of a row as they stand in a record; their number. An error is a sentence.
    #[inline]
    pub fn write(&self, row: usize, output: &mut Vec<u8>) -> std::result::Result<usize, String> {
        let Headers::Lists {
            offsets,
            nulls,
            entry_nulls,
            names,
            values,
        } = self
        else {
            return Ok(0);
        };
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(0);
        }
        let range = match offsets {
            Offsets::Narrow(offsets) => offsets[row] as usize..offsets[row + 1] as usize,
            Offsets::Wide(offsets) => offsets[row] as usize..offsets[row + 1] as usize,
        };
        let count = range.len();
        for entry in range {
            let is_null = entry_nulls
                .as_ref()
                .is_some_and(|nulls| nulls.is_null(entry));
            let Some(name) = names.get(entry).filter(|_| !is_null) else {
                return Err("a header has no key".to_owned());
            };
            write_header(output, name, values.get(entry));
        }
        Ok(count)
    }
}

/// Adds a header as it stands in a record.
fn write_header(output: &mut Vec<u8>, name: &[u8], value: Option<&[u8]>) {
    write_varint(output, name.len() as i32);
    output.extend_from_slice(name);
    match value {
        None => write_varint(output, -1),
        Some(value) => {
            write_varint(output, value.len() as i32);
            output.extend_from_slice(value);
        }
    }
}

/// The connector's sentence (`KafkaWriter.expression`).
fn wrong_type(name: &str, array: &dyn Array, expected: &str) -> Error {
    let found = array.data_type();
    Error::InvalidArgument(format!(
        "{name} attribute unsupported type {found}. {name} must be {expected}"
    ))
}

//! Avro data into columns, one record a value: what its writer's schema has, taken into the fields
//! that are wanted, which are found by their names. Types are matched once, before the first
//! record, and promoted as Avro promotes them; a type that cannot become the wanted one is refused.
//!
//! ```text
//! int, long     zigzag varint          bytes, string   length, then the bytes
//! union         branch, then its value array, map      blocks: count (negative: and size), items; 0
//! header        0, schema id u32 big-endian            Confluent's Schema Registry
//! ```

use std::collections::BTreeMap;

use arrow_schema::{DataType, Fields};

use super::avro_schema::{AvroSchema, AvroType, Logical, TypeId};
use super::build::{Builder, Bytes, Record, Values};
use super::verdict::{Read, Reason};
use crate::limits::AVRO_DEPTH_MAX;

/// Reads records of one schema, or of the schemas that a header names.
#[derive(Clone, Debug, PartialEq)]
pub struct AvroReader {
    has_header: bool,
    /// By id; without a registry there is one, for every id.
    by_id: BTreeMap<u32, Plan>,
    for_all: Option<Plan>,
}

/// A schema, and how its records become rows.
#[derive(Clone, Debug, PartialEq)]
struct Plan {
    schema: AvroSchema,
    fields: Vec<(Option<usize>, Step)>,
}

/// The use that is made of a value of the writer.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Skip(TypeId),
    /// Another type than is wanted, in a union: null, and the record is bad.
    Unfit(TypeId),
    Null,
    Scalar(TypeId),
    Record(Vec<(Option<usize>, Step)>),
    Array(Box<Step>),
    Map(Box<Step>),
    Union(Vec<Step>),
}

impl AvroReader {
    /// `schema` and `registry` are JSON, the latter an object with a schema (an object, or its
    /// text) by id. Errors: a sentence.
    pub fn new(
        schema: Option<&str>,
        has_header: bool,
        registry: Option<&str>,
        wanted: &Fields,
    ) -> Result<AvroReader, String> {
        let mut by_id = BTreeMap::new();
        if let Some(registry) = registry {
            let json = serde_json::from_str(registry).map_err(|error| error.to_string())?;
            let serde_json::Value::Object(schemas) = json else {
                return Err("the registry is no JSON object of schemas by id".to_owned());
            };
            for (id, schema) in schemas {
                let number = id.parse().map_err(|_| format!("'{id}' is no schema id"))?;
                let text = match schema {
                    serde_json::Value::String(text) => text,
                    other => other.to_string(),
                };
                let plan = Plan::new(&text, wanted).map_err(|why| format!("schema {id}: {why}"))?;
                by_id.insert(number, plan);
            }
        }
        let for_all = schema.map(|text| Plan::new(text, wanted)).transpose()?;
        Ok(AvroReader {
            has_header,
            by_id,
            for_all,
        })
    }

    pub fn read(&self, bytes: &[u8], row: &mut Record) -> Read {
        let (plan, body) = match self.choose(bytes) {
            Ok(chosen) => chosen,
            Err(what) => return Read::Bad(Reason::Text(what, 0)),
        };
        let mut data = Data {
            schema: &plan.schema,
            bytes: body,
            items_left: body.len(),
            mismatch: None,
        };
        match data.record(&plan.fields, row) {
            Ok(()) => data.mismatch.map_or(Read::Row, Read::Bad),
            Err(what) => {
                row.rollback();
                Read::Bad(Reason::Text(what, bytes.len() - data.bytes.len()))
            }
        }
    }

    fn choose<'a>(&self, bytes: &'a [u8]) -> Result<(&Plan, &'a [u8]), &'static str> {
        let none = "its schema is not known";
        if !self.has_header {
            return Ok((self.for_all.as_ref().ok_or(none)?, bytes));
        }
        let Some((&[0, a, b, c, d], body)) = bytes.split_first_chunk::<5>() else {
            return Err("it does not begin with 0 and a schema id");
        };
        let plan = if self.by_id.is_empty() {
            self.for_all.as_ref()
        } else {
            self.by_id.get(&u32::from_be_bytes([a, b, c, d]))
        };
        Ok((plan.ok_or("its schema id is none of the registry")?, body))
    }
}

impl Plan {
    fn new(text: &str, wanted: &Fields) -> Result<Plan, String> {
        let schema = AvroSchema::parse(text)?;
        let AvroType::Record(written) = schema.get(schema.root) else {
            return Err("the schema is not that of a record".to_owned());
        };
        let fields = steps(&schema, written, wanted)?;
        Ok(Plan { schema, fields })
    }
}

fn steps(
    schema: &AvroSchema,
    written: &[(String, TypeId)],
    wanted: &Fields,
) -> Result<Vec<(Option<usize>, Step)>, String> {
    let step = |(name, id): &(String, TypeId)| match wanted.find(name) {
        None => Ok((None, Step::Skip(*id))),
        Some((index, field)) => match step(schema, *id, field.data_type())? {
            Step::Unfit(_) => Err(format!(
                "field '{name}' of the writer cannot become {}",
                field.data_type()
            )),
            step => Ok((Some(index), step)),
        },
    };
    written.iter().map(step).collect()
}

/// `Unfit` where the types do not go together. Recursive by the wanted type and by unions, which
/// do not nest.
fn step(schema: &AvroSchema, id: TypeId, wanted: &DataType) -> Result<Step, String> {
    use DataType::*;
    let is_fit = match (schema.get(id), wanted) {
        (AvroType::Null, _) => return Ok(Step::Null),
        (AvroType::Record(written), Struct(fields)) => {
            return Ok(Step::Record(steps(schema, written, fields)?));
        }
        (AvroType::Array(items), List(item)) => {
            return Ok(match step(schema, *items, item.data_type())? {
                Step::Unfit(_) => Step::Unfit(id),
                inner => Step::Array(Box::new(inner)),
            });
        }
        (AvroType::Map(values), Map(entries, _)) => {
            let Struct(pair) = entries.data_type() else {
                return Ok(Step::Unfit(id));
            };
            let wanted = pair
                .get(1)
                .map_or(&DataType::Null, |field| field.data_type());
            return Ok(match step(schema, *values, wanted)? {
                Step::Unfit(_) => Step::Unfit(id),
                inner => Step::Map(Box::new(inner)),
            });
        }
        (AvroType::Union(branches), wanted) => {
            let step = |branch: &TypeId| match schema.get(*branch) {
                AvroType::Union(_) => Err("a union is directly within a union".to_owned()),
                _ => step(schema, *branch, wanted),
            };
            let steps = branches.iter().map(step);
            let steps = steps.collect::<Result<Vec<Step>, String>>()?;
            let fits = steps.iter().any(|step| !matches!(step, Step::Unfit(_)));
            return Ok(if fits {
                Step::Union(steps)
            } else {
                Step::Unfit(id)
            });
        }
        (AvroType::Boolean, Boolean) => true,
        (AvroType::Int(Some(Logical::Date)), Date32) => true,
        (AvroType::Int(_), Int8 | Int16 | Int32 | Int64 | Float32 | Float64) => true,
        (AvroType::Long(Some(Logical::Timestamp(_, true))), Timestamp(_, Some(_))) => true,
        (AvroType::Long(Some(Logical::Timestamp(_, false))), Timestamp(_, None)) => true,
        (AvroType::Long(_), Int64 | Float32 | Float64) => true,
        (AvroType::Float, Float32 | Float64) | (AvroType::Double, Float64) => true,
        (AvroType::Bytes(Some((p, s))), Decimal128(precision, scale))
        | (AvroType::Fixed(_, Some((p, s))), Decimal128(precision, scale)) => {
            s == scale && p <= precision
        }
        (AvroType::Bytes(_) | AvroType::String, Binary | Utf8) => true,
        (AvroType::Fixed(..), Binary) | (AvroType::Enum(_), Utf8) => true,
        _ => false,
    };
    Ok(if is_fit {
        Step::Scalar(id)
    } else {
        Step::Unfit(id)
    })
}

type Parsed<T> = Result<T, &'static str>;

/// The rest of a record, which is still to be read.
struct Data<'a> {
    schema: &'a AvroSchema,
    bytes: &'a [u8],
    /// Items of arrays and maps that there can still be: each has a byte at least, or else items
    /// of no bytes could fill the memory.
    items_left: usize,
    mismatch: Option<Reason>,
}

impl<'a> Data<'a> {
    /// Fields of a record, in the order of the writer.
    fn record(&mut self, fields: &[(Option<usize>, Step)], row: &mut Record) -> Parsed<()> {
        for (index, step) in fields {
            let wanted = index.and_then(|index| row.fields.get_mut(index));
            let (Some(field), Some(index)) = (wanted, index) else {
                self.skip_step(step)?;
                continue;
            };
            let len = field.len();
            if !self.value(step, field)? {
                field.truncate(len);
                field.push_null();
                if self.mismatch.is_none() {
                    let name = row.names.get(*index).cloned().unwrap_or_default();
                    self.mismatch = Some(Reason::Field(name, field.data_type().clone()));
                }
            }
        }
        Ok(())
    }

    /// False: the value is none of the wanted type, and was passed over.
    fn value(&mut self, step: &Step, into: &mut Builder) -> Parsed<bool> {
        match step {
            Step::Null => into.push_null(),
            Step::Scalar(id) => return self.scalar(*id, &mut into.values),
            Step::Union(branches) => {
                let branch = usize::try_from(self.long()?).ok();
                let step = branch.and_then(|branch| branches.get(branch));
                return self.value(step.ok_or("a union has no such branch")?, into);
            }
            Step::Record(fields) => {
                let Values::Struct(row) = &mut into.values else {
                    return Err("a record is not wanted");
                };
                self.record(fields, row)?;
                row.end_row();
            }
            Step::Array(inner) => {
                let Values::List(items, ends) = &mut into.values else {
                    return Err("a list is not wanted");
                };
                let mut fits = true;
                while let Some(count) = self.block()? {
                    for _ in 0..count {
                        if fits {
                            fits = self.value(inner, items)?;
                            items.refuse_outgrown()?;
                        } else {
                            self.skip_step(inner)?
                        }
                    }
                }
                ends.push(items.len());
                return Ok(fits);
            }
            Step::Map(inner) => {
                let Values::Map(pair, ends) = &mut into.values else {
                    return Err("a map is not wanted");
                };
                let mut fits = true;
                while let Some(count) = self.block()? {
                    for _ in 0..count {
                        let key = self.counted()?;
                        if fits && let Values::Utf8(keys) = &mut pair.0.values {
                            fits = push_text(key, keys) && self.value(inner, &mut pair.1)?;
                            pair.1.refuse_outgrown()?;
                        } else {
                            self.skip_step(inner)?;
                        }
                    }
                }
                ends.push(pair.0.len());
                return Ok(fits);
            }
            Step::Skip(id) | Step::Unfit(id) => {
                self.skip(*id, 0)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn scalar(&mut self, id: TypeId, into: &mut Values) -> Parsed<bool> {
        fn add<T>(value: Option<T>, values: &mut Vec<T>) -> bool {
            value.map(|value| values.push(value)).is_some()
        }
        let schema = self.schema;
        Ok(match (schema.get(id), into) {
            (AvroType::Boolean, Values::Boolean(values)) => {
                values.push(self.take(1)? != [0]);
                true
            }
            (AvroType::Int(_) | AvroType::Long(_), into) => {
                let number = self.long()?;
                match into {
                    Values::Int8(values) => add(i8::try_from(number).ok(), values),
                    Values::Int16(values) => add(i16::try_from(number).ok(), values),
                    Values::Int32(values) | Values::Date(values) => {
                        add(i32::try_from(number).ok(), values)
                    }
                    Values::Int64(values) => add(Some(number), values),
                    Values::Float32(values) => add(Some(number as f32), values),
                    Values::Float64(values) => add(Some(number as f64), values),
                    Values::Timestamp(values, _) => {
                        let units = match schema.get(id) {
                            AvroType::Long(Some(Logical::Timestamp(units, _))) => *units,
                            _ => return Err("a time is not wanted"),
                        };
                        add(number.checked_mul(1_000_000 / units), values)
                    }
                    _ => return Err("a number is not wanted"),
                }
            }
            (AvroType::Float, into) => {
                let number = f32::from_le_bytes(self.array()?);
                match into {
                    Values::Float32(values) => add(Some(number), values),
                    Values::Float64(values) => add(Some(f64::from(number)), values),
                    _ => return Err("a number is not wanted"),
                }
            }
            (AvroType::Double, Values::Float64(values)) => {
                values.push(f64::from_le_bytes(self.array()?));
                true
            }
            (AvroType::Enum(symbols), Values::Utf8(values)) => {
                let symbol = usize::try_from(self.long()?).ok();
                let symbol = symbol.and_then(|symbol| symbols.get(symbol));
                values.push(symbol.ok_or("an enum has no such symbol")?.as_bytes());
                true
            }
            (AvroType::Bytes(_) | AvroType::String | AvroType::Fixed(..), into) => {
                let bytes = match schema.get(id) {
                    AvroType::Fixed(size, _) => self.take(*size)?,
                    _ => self.counted()?,
                };
                match into {
                    Values::Binary(values) => {
                        values.push(bytes);
                        true
                    }
                    Values::Utf8(values) => push_text(bytes, values),
                    Values::Decimal(values, precision, _) => {
                        add(unscaled(bytes, *precision), values)
                    }
                    _ => return Err("bytes are not wanted"),
                }
            }
            _ => return Err("its type is not wanted"),
        })
    }

    fn skip_step(&mut self, step: &Step) -> Parsed<()> {
        match step {
            Step::Skip(id) | Step::Unfit(id) | Step::Scalar(id) => self.skip(*id, 0),
            Step::Null => Ok(()),
            Step::Record(fields) => fields.iter().try_for_each(|(_, step)| self.skip_step(step)),
            Step::Array(inner) => {
                while let Some(count) = self.block()? {
                    (0..count).try_for_each(|_| self.skip_step(inner))?;
                }
                Ok(())
            }
            Step::Map(inner) => {
                while let Some(count) = self.block()? {
                    for _ in 0..count {
                        self.counted()?;
                        self.skip_step(inner)?;
                    }
                }
                Ok(())
            }
            Step::Union(branches) => {
                let branch = usize::try_from(self.long()?).ok();
                let step = branch.and_then(|branch| branches.get(branch));
                self.skip_step(step.ok_or("a union has no such branch")?)
            }
        }
    }

    /// Passes over a value. A type that contains itself nests as deeply as the data says, up to
    /// `AVRO_DEPTH_MAX`.
    fn skip(&mut self, id: TypeId, depth: usize) -> Parsed<()> {
        if depth > AVRO_DEPTH_MAX {
            return Err("it is nested too deeply");
        }
        let schema = self.schema;
        match schema.get(id) {
            AvroType::Null => {}
            AvroType::Boolean => drop(self.take(1)?),
            AvroType::Int(_) | AvroType::Long(_) | AvroType::Enum(_) => drop(self.long()?),
            AvroType::Float => drop(self.take(4)?),
            AvroType::Double => drop(self.take(8)?),
            AvroType::Bytes(_) | AvroType::String => drop(self.counted()?),
            AvroType::Fixed(size, _) => drop(self.take(*size)?),
            AvroType::Array(items) => {
                while let Some(count) = self.block()? {
                    (0..count).try_for_each(|_| self.skip(*items, depth + 1))?;
                }
            }
            AvroType::Map(values) => {
                while let Some(count) = self.block()? {
                    for _ in 0..count {
                        self.counted()?;
                        self.skip(*values, depth + 1)?;
                    }
                }
            }
            AvroType::Union(branches) => {
                let branch = usize::try_from(self.long()?).ok();
                let branch = branch.and_then(|branch| branches.get(branch));
                self.skip(*branch.ok_or("a union has no such branch")?, depth + 1)?;
            }
            AvroType::Record(fields) => {
                for (_, field) in fields {
                    self.skip(*field, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, count: usize) -> Parsed<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or("it is cut off")?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Parsed<[u8; N]> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or("it is cut off")?;
        self.bytes = rest;
        Ok(*taken)
    }

    #[inline]
    fn long(&mut self) -> Parsed<i64> {
        let mut raw: u64 = 0;
        for (index, &byte) in self.bytes.iter().enumerate().take(10) {
            raw |= u64::from(byte & 0x7f) << (7 * index as u32);
            if byte & 0x80 == 0 {
                self.bytes = self.bytes.get(index + 1..).unwrap_or_default();
                return Ok((raw >> 1) as i64 ^ -((raw & 1) as i64));
            }
        }
        Err("a number does not end")
    }

    /// A length and that many bytes.
    fn counted(&mut self) -> Parsed<&'a [u8]> {
        let length = usize::try_from(self.long()?).map_err(|_| "a length is negative")?;
        self.take(length)
    }

    /// How many items the next block has; `None` after the last.
    fn block(&mut self) -> Parsed<Option<usize>> {
        let count = self.long()?;
        if count == 0 {
            return Ok(None);
        }
        if count < 0 {
            self.long()?;
        }
        let count = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        let left = self.items_left.checked_sub(count);
        self.items_left = left.ok_or("it has more items than bytes")?;
        Ok(Some(count))
    }
}

/// False: the bytes are no UTF-8.
fn push_text(bytes: &[u8], into: &mut Bytes) -> bool {
    let is_text = std::str::from_utf8(bytes).is_ok();
    if is_text {
        into.push(bytes);
    }
    is_text
}

/// A decimal's number, two's complement, big-endian; `None`: it does not fit.
fn unscaled(bytes: &[u8], precision: u8) -> Option<i128> {
    let sign: u8 = match bytes.first() {
        Some(first) if first & 0x80 != 0 => 0xff,
        _ => 0,
    };
    let zeros = bytes.iter().take_while(|byte| **byte == sign).count();
    let significant = bytes.get(zeros.min(bytes.len())..)?;
    if significant.len() > 16 {
        return None;
    }
    let start = if sign == 0 { 0 } else { -1 };
    let number = significant
        .iter()
        .fold(start, |sum: i128, byte| (sum << 8) | i128::from(*byte));
    let bound = 10_i128.checked_pow(u32::from(precision))?;
    // Sixteen bytes whose sign was taken off may have become a number of the other sign.
    ((number < 0) == (sign != 0) && number < bound && number > -bound).then_some(number)
}

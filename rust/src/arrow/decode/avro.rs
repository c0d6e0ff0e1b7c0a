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
use crate::limits::{AVRO_DEPTH_MAX, AVRO_STEPS_FREE};

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
    fields: Vec<FieldStep>,
}

/// The use that is made of a field of a record of the writer. One that is not wanted and takes no
/// byte has none.
#[derive(Clone, Debug, PartialEq)]
enum FieldStep {
    Skip(TypeId),
    /// Into this field of the row.
    Into(usize, Step),
}

/// The use that is made of a value of the writer.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Another type than is wanted, in a union: null, and the record is bad.
    Unfit(TypeId),
    Null,
    Scalar(TypeId),
    Record(Vec<FieldStep>),
    /// With the type of the items.
    Array(TypeId, Box<Step>),
    /// With the type of the values.
    Map(TypeId, Box<Step>),
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
        let texts = [schema, registry].into_iter().flatten();
        let mut steps_left = AVRO_STEPS_FREE + texts.map(str::len).sum::<usize>();
        let mut plan = |text: &str| Plan::new(text, wanted, &mut steps_left);
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
                let plan = plan(&text).map_err(|why| format!("schema {id}: {why}"))?;
                by_id.insert(number, plan);
            }
        }
        let for_all = schema.map(plan).transpose()?;
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
    fn new(text: &str, wanted: &Fields, steps_left: &mut usize) -> Result<Plan, String> {
        let schema = AvroSchema::parse(text)?;
        let AvroType::Record(written) = schema.get(schema.root) else {
            return Err("the schema is not that of a record".to_owned());
        };
        let mut steps = Steps {
            schema: &schema,
            left: steps_left,
        };
        let fields = steps.of_fields(written, wanted)?;
        Ok(Plan { schema, fields })
    }
}

/// Matches types. A type that is used in several places is matched in each of them, and so are
/// those within: that may be twice as many with each level, so that they are counted.
struct Steps<'a> {
    schema: &'a AvroSchema,
    left: &'a mut usize,
}

impl Steps<'_> {
    fn of_fields(
        &mut self,
        written: &[(String, TypeId)],
        wanted: &Fields,
    ) -> Result<Vec<FieldStep>, String> {
        let mut steps = Vec::new();
        for (name, id) in written {
            match wanted.find(name) {
                None if self.schema.takes_nothing(*id) => {}
                None => steps.push(FieldStep::Skip(*id)),
                Some((index, field)) => match self.of(*id, field.data_type())? {
                    Step::Unfit(_) => {
                        return Err(format!(
                            "field '{name}' of the writer cannot become {}",
                            field.data_type()
                        ));
                    }
                    step => steps.push(FieldStep::Into(index, step)),
                },
            }
        }
        Ok(steps)
    }

    /// `Unfit` where the types do not go together. Recursive by the wanted type and by unions,
    /// which do not nest.
    fn of(&mut self, id: TypeId, wanted: &DataType) -> Result<Step, String> {
        use DataType::*;
        let left = self.left.checked_sub(1);
        *self.left = left.ok_or("its types hold each other in too many ways")?;
        let schema = self.schema;
        Ok(match (schema.get(id), wanted) {
            (AvroType::Null, _) => Step::Null,
            (AvroType::Record(written), Struct(fields)) => {
                Step::Record(self.of_fields(written, fields)?)
            }
            (AvroType::Array(items), List(item)) => match self.of(*items, item.data_type())? {
                Step::Unfit(_) => Step::Unfit(id),
                inner => Step::Array(*items, Box::new(inner)),
            },
            (AvroType::Map(values), Map(entries, _)) => {
                let Struct(pair) = entries.data_type() else {
                    return Ok(Step::Unfit(id));
                };
                let wanted = pair
                    .get(1)
                    .map_or(&DataType::Null, |field| field.data_type());
                match self.of(*values, wanted)? {
                    Step::Unfit(_) => Step::Unfit(id),
                    inner => Step::Map(*values, Box::new(inner)),
                }
            }
            (AvroType::Union(branches), wanted) => {
                let mut steps = Vec::with_capacity(branches.len());
                for branch in branches {
                    if let AvroType::Union(_) = schema.get(*branch) {
                        return Err("a union is directly within a union".to_owned());
                    }
                    steps.push(self.of(*branch, wanted)?);
                }
                if steps.iter().any(|step| !matches!(step, Step::Unfit(_))) {
                    Step::Union(steps)
                } else {
                    Step::Unfit(id)
                }
            }
            (written, wanted) if is_fit(written, wanted) => Step::Scalar(id),
            _ => Step::Unfit(id),
        })
    }
}

/// True if a value that holds no others can become one of the wanted type.
fn is_fit(written: &AvroType, wanted: &DataType) -> bool {
    use DataType::*;
    match (written, wanted) {
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
    }
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
    fn record(&mut self, fields: &[FieldStep], row: &mut Record) -> Parsed<()> {
        for field in fields {
            let (index, step) = match field {
                FieldStep::Skip(id) => {
                    self.skip(*id, 0)?;
                    continue;
                }
                FieldStep::Into(index, step) => (*index, step),
            };
            let field = row.fields.get_mut(index).ok_or("a field is not wanted")?;
            let len = field.len();
            if !self.value(step, field)? {
                field.truncate(len);
                field.push_null();
                if self.mismatch.is_none() {
                    let name = row.names.get(index).cloned().unwrap_or_default();
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
            Step::Array(item, inner) => {
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
                            self.skip(*item, 0)?
                        }
                    }
                }
                ends.push(items.len());
                return Ok(fits);
            }
            Step::Map(value, inner) => {
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
                            self.skip(*value, 0)?;
                        }
                    }
                }
                ends.push(pair.0.len());
                return Ok(fits);
            }
            Step::Unfit(id) => {
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

    /// Passes over a value. A type that contains itself nests as deeply as the data says, up to
    /// `AVRO_DEPTH_MAX`. Each call but those of the values around takes a byte: values of no bytes
    /// are not looked at, of which a few bytes of a schema can make billions.
    fn skip(&mut self, id: TypeId, depth: usize) -> Parsed<()> {
        if depth > AVRO_DEPTH_MAX {
            return Err("it is nested too deeply");
        }
        let schema = self.schema;
        if schema.takes_nothing(id) {
            return Ok(());
        }
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
            AvroType::Record(_) => {
                for field in schema.passed(id) {
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

#[cfg(test)]
mod tests {
    use arrow_array::BinaryArray;
    use arrow_schema::Field;

    use super::super::{Decoder, Reader};
    use super::*;

    fn fields(wanted: DataType) -> Fields {
        Fields::from(vec![Field::new("a", wanted, true)])
    }

    /// The number of bad records among these.
    fn decode(schema: &str, wanted: &Fields, records: &[&[u8]]) -> usize {
        let reader = AvroReader::new(Some(schema), false, None, wanted).expect("a reader");
        let decoder = Decoder::new(Reader::Avro(reader), wanted);
        let values = BinaryArray::from_iter_values(records);
        let decoded = decoder.expect("types").decode(&values);
        decoded.expect("columns").bad.len()
    }

    /// Records of `levels`, each of which holds the one before twice; the innermost one holds `x`.
    fn doubled(levels: usize, x: &str) -> String {
        let mut types = vec![format!(
            r#"{{"type":"record","name":"R0","fields":[{{"name":"a","type":"{x}"}}]}}"#
        )];
        for level in 1..levels {
            let inner = level - 1;
            types.push(format!(
                r#"{{"type":"record","name":"R{level}","fields":[{{"name":"a","type":"R{inner}"}},
                   {{"name":"b","type":"R{inner}"}}]}}"#
            ));
        }
        // Each type is defined where it is named first, in a field that is a union of one.
        let defined = types.iter().enumerate();
        let defined =
            defined.map(|(index, text)| format!(r#"{{"name":"d{index}","type":[{text}]}}"#));
        let defined: Vec<String> = defined.collect();
        let last = levels - 1;
        format!(
            r#"{{"type":"record","name":"T","fields":[{},{{"name":"z","type":"R{last}"}}]}}"#,
            defined.join(",")
        )
    }

    /// A schema of 4 KB kept a thread busy for ever, since each record took two to the power of
    /// its levels steps and no byte.
    #[test]
    fn records_of_nulls_within_each_other_take_no_time() {
        let schema = doubled(200, "null");
        let record = [0; 200];
        assert_eq!(decode(&schema, &fields(DataType::Int32), &[&record]), 0);
        let list = format!(
            r#"{{"type":"record","name":"U","fields":[{{"name":"l","type":
            {{"type":"array","items":{schema}}}}}]}}"#
        );
        // A block of one item, and the end.
        let record = [&[2_u8][..], &[0; 200], &[0]].concat();
        assert_eq!(decode(&list, &fields(DataType::Int32), &[&record]), 0);
    }

    #[test]
    fn fields_of_no_bytes_are_passed_with_their_record() {
        let nulls = (0..10_000).map(|each| format!(r#"{{"name":"n{each}","type":"null"}}"#));
        let nulls: Vec<String> = nulls.collect();
        let schema = format!(
            r#"{{"type":"record","name":"T","fields":[{{"name":"l","type":{{"type":"array","items":
               {{"type":"record","name":"I","fields":[{},{{"name":"x","type":"boolean"}}]}}}}}},
               {{"name":"e","type":{{"type":"fixed","name":"F","size":0}}}},
               {{"name":"a","type":"int"}}]}}"#,
            nulls.join(",")
        );
        // 500,000 items of one byte, each of which took 10,000 steps; then the number 7.
        let count: u64 = 500_000 << 1;
        let varint = [0, 7, 14]
            .map(|shift| (count >> shift) as u8 & 0x7f | if shift < 14 { 0x80 } else { 0 });
        let record = [&varint[..], &vec![1; 500_000], &[0, 14]].concat();
        assert_eq!(decode(&schema, &fields(DataType::Int32), &[&record]), 0);
    }

    /// What is wanted of types that hold each other twice has as many parts: so has the schema of
    /// the rows to be, or the types are refused.
    #[test]
    fn types_that_hold_each_other_in_too_many_ways_are_refused() {
        let mut wanted = DataType::Int32;
        for _ in 0..60 {
            wanted = DataType::Struct(fields(wanted));
        }
        let mut inner = r#""int""#.to_owned();
        let mut levels = Vec::new();
        for level in 0..60 {
            let record = |name: &str| {
                format!(
                    r#"{{"type":"record","name":"{name}{level}","fields":[{{"name":"a","type":{inner}}}]}}"#
                )
            };
            let (left, right) = (record("L"), record("R"));
            levels.push(format!(r#"{{"name":"d{level}","type":[{left},{right}]}}"#));
            inner = format!(r#"["L{level}","R{level}"]"#);
        }
        let levels = levels.join(",");
        let schema = format!(
            r#"{{"type":"record","name":"T","fields":[{levels},{{"name":"a","type":{inner}}}]}}"#
        );
        let refused = AvroReader::new(Some(&schema), false, None, &fields(wanted));
        assert!(refused.expect_err("refused").contains("in too many ways"));
    }
}

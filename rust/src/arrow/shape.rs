//! The shape of a row: from the wanted columns and the formats it is known which columns are
//! built, and how. Any subset of the columns, in any order, is a shape: what it does not have is
//! neither copied nor decoded.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};

use super::decode::avro::AvroReader;
use super::decode::csv::{self, CsvReader};
use super::decode::{Reader, build};
use super::formats::{Format, Formats, Mode, Side};
use super::schema::Column;
use crate::error::{Error, Result};

/// The columns that a caller asks for. Without a schema the columns have the types of `schema.rs`
/// and of the formats; without columns they are all of the schema, or those of Spark's connector.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShapeRequest<'a> {
    pub columns: Option<&'a [String]>,
    /// The rows' schema, exactly.
    pub schema: Option<&'a Schema>,
    /// In place of it, the fields of a typed key.
    pub key_schema: Option<&'a Schema>,
    /// The fields of a value; the column of bad records may be among them.
    pub value_schema: Option<&'a Schema>,
    pub formats: Option<&'a BTreeMap<String, String>>,
}

/// Which columns that cost something per record are gathered from the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub key: bool,
    pub value: bool,
    pub key_size: bool,
    pub value_size: bool,
    pub offset: bool,
    pub timestamp: bool,
    pub headers: bool,
}

/// Where a column of the rows comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Column(Column),
    /// This field of a typed value.
    ValueField(usize),
    /// The bytes of a bad record, as text.
    Corrupt,
}

/// The fields of a typed key or value, and how its bytes become them.
#[derive(Clone, Debug, PartialEq)]
pub struct Typed {
    pub fields: Fields,
    pub reader: Reader,
}

/// The columns of a row, in order, each at most once.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    schema: SchemaRef,
    outputs: Vec<Output>,
    formats: Formats,
    key: Option<Typed>,
    value: Option<Typed>,
}

impl Shape {
    /// The eight columns of Spark's connector, keys and values as bytes.
    pub fn all() -> Shape {
        let fields = Column::kafka().map(|column| field(column, column.data_type()));
        Shape {
            schema: Arc::new(Schema::new(fields.collect::<Vec<Field>>())),
            outputs: Column::kafka().map(Output::Column).collect(),
            formats: Formats::default(),
            key: None,
            value: None,
        }
    }

    /// Columns by name, keys and values as bytes.
    pub fn from_names<S: AsRef<str>>(names: &[S]) -> Result<Shape> {
        let names: Vec<String> = names.iter().map(|name| name.as_ref().to_owned()).collect();
        Shape::choose(&ShapeRequest {
            columns: Some(&names),
            ..ShapeRequest::default()
        })
    }

    /// A schema without columns is one: rows that are only counted.
    ///
    /// Errors: `InvalidArgument` for a column that there is not or that is named
    /// twice, for `columns` that name none, for a column of another type than records
    /// have, and those of `Formats`.
    pub fn choose(request: &ShapeRequest<'_>) -> Result<Shape> {
        let formats = match request.formats {
            Some(options) => Formats::read(options)?,
            None => Formats::default(),
        };
        let offered: Vec<Field> = match request.schema {
            Some(schema) => schema
                .fields()
                .iter()
                .map(|each| (**each).clone())
                .collect(),
            None => offer(request, &formats)?,
        };
        let chosen = match (request.columns, request.schema) {
            (Some(names), _) => choose_fields(names, &offered)?,
            (None, Some(_)) => offered,
            (None, None) => without_sizes(offered),
        };
        let mut outputs = Vec::with_capacity(chosen.len());
        let mut flattened = Vec::new();
        for (index, each) in chosen.iter().enumerate() {
            let name = each.name();
            if chosen
                .iter()
                .take(index)
                .any(|earlier| earlier.name() == name)
            {
                return refuse(format!("column '{name}' is in the schema twice"));
            }
            let output = check_field(each, &formats, flattened.len())?;
            if let Output::ValueField(_) = output {
                flattened.push(each.clone());
            }
            outputs.push(output);
        }
        let fields_of = |column: Column| {
            let named = chosen.iter().find(|field| field.name() == column.name());
            match named.map(Field::data_type) {
                Some(DataType::Struct(fields)) => fields.clone(),
                _ => Fields::empty(),
            }
        };
        let value_fields = if formats.flatten {
            Fields::from(flattened)
        } else {
            fields_of(Column::Value)
        };
        let key = typed("key", &formats.key, &formats, fields_of(Column::Key))?;
        let value = typed("value", &formats.value, &formats, value_fields)?;
        check_fields(&outputs, &formats, key.as_ref(), value.as_ref())?;
        Ok(Shape {
            schema: Arc::new(Schema::new(chosen)),
            outputs,
            formats,
            key,
            value,
        })
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// One for each column of the schema.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    pub fn formats(&self) -> &Formats {
        &self.formats
    }

    pub fn key(&self) -> Option<&Typed> {
        self.key.as_ref()
    }

    pub fn value(&self) -> Option<&Typed> {
        self.value.as_ref()
    }

    pub fn contains(&self, column: Column) -> bool {
        self.outputs.contains(&Output::Column(column))
    }

    /// Bytes that a row takes beside its key, its value, its headers and their typed fields, if the
    /// topic's name has so many.
    pub(super) fn row_bytes(&self, topic_bytes: usize) -> usize {
        let columns = self.outputs.iter().map(|output| match output {
            Output::Column(Column::Topic) => size_of::<i32>() + topic_bytes,
            Output::Column(Column::Headers) => 3 * size_of::<i32>(),
            Output::Column(Column::Offset | Column::Timestamp) => size_of::<i64>(),
            Output::Column(_) | Output::Corrupt => size_of::<i32>(),
            Output::ValueField(_) => 0,
        });
        columns.sum()
    }

    pub(super) fn wanted(&self) -> Wanted {
        let is_typed = self.key.is_some() || self.value.is_some();
        let tells_offsets = is_typed && self.formats.mode == Mode::FailFast;
        Wanted {
            key: self.contains(Column::Key) || self.key.is_some(),
            value: self.contains(Column::Value) || self.value.is_some(),
            key_size: self.contains(Column::KeySize),
            value_size: self.contains(Column::ValueSize),
            offset: self.contains(Column::Offset) || tells_offsets,
            timestamp: self.contains(Column::Timestamp),
            headers: self.contains(Column::Headers),
        }
    }

    /// Checks that a consumer's requested schema can be met: it may ask for other types,
    /// which it then has to cast to itself, but not for other columns (the PyCapsule
    /// interface rules it out).
    ///
    /// Errors: `InvalidArgument`.
    pub fn check_requested(&self, requested: &Schema) -> Result<()> {
        let names = |schema: &Schema| -> Vec<String> {
            let fields = schema.fields().iter();
            fields.map(|field| field.name().clone()).collect()
        };
        let (own, requested) = (names(&self.schema), names(requested));
        if requested == own {
            return Ok(());
        }
        refuse(format!(
            "the requested schema has the columns {}, but those read are {}: choose by columns=",
            requested.join(", "),
            own.join(", ")
        ))
    }
}

/// Every column that rows can have, if no schema says which.
fn offer(request: &ShapeRequest<'_>, formats: &Formats) -> Result<Vec<Field>> {
    let mut offered = Vec::new();
    let mut corrupt = None;
    for column in Column::ALL {
        let (side, schema) = match column {
            Column::Key => (&formats.key, request.key_schema),
            Column::Value => (&formats.value, request.value_schema),
            _ => (&Side::default(), None),
        };
        let (name, format) = (column.name(), side.format);
        match (format, schema) {
            (Format::Binary, None) => offered.push(field(column, column.data_type())),
            (Format::String, None) => offered.push(field(column, DataType::Utf8)),
            (_, None) if request.columns.is_none() => {
                return refuse(format!(
                    "{name}.format={} needs a schema: schema= or {name}_schema=",
                    format.name()
                ));
            }
            (_, None) => {}
            (Format::Json | Format::Csv | Format::Avro, Some(schema)) => {
                let (bad, fields): (Vec<FieldRef>, Vec<FieldRef>) = (schema.fields().iter())
                    .map(Arc::clone)
                    .partition(|field| *field.name() == formats.corrupt_column);
                corrupt = corrupt.or(bad.first().cloned());
                if column == Column::Value && formats.flatten {
                    offered.extend(fields.iter().map(|field| (**field).clone()));
                } else {
                    offered.push(field(column, DataType::Struct(Fields::from(fields))));
                }
            }
            (_, Some(_)) => {
                return refuse(format!(
                    "{name}_schema is given, but {name}.format={} has no fields",
                    format.name()
                ));
            }
        }
    }
    offered.extend(corrupt.map(|field| (*field).clone()));
    for field in &offered {
        let count = offered.iter().filter(|each| each.name() == field.name());
        if count.count() > 1 {
            return refuse(format!(
                "field '{}' of the value has the name of another column: \
                 without value.flatten=true it is value.{0}",
                field.name()
            ));
        }
    }
    Ok(offered)
}

fn without_sizes(offered: Vec<Field>) -> Vec<Field> {
    let sizes = [Column::KeySize, Column::ValueSize].map(Column::name);
    let mut fields = offered;
    fields.retain(|field| !sizes.contains(&field.name().as_str()));
    fields
}

/// The fields of these names, in this order.
fn choose_fields(names: &[String], offered: &[Field]) -> Result<Vec<Field>> {
    let valid = || {
        let names: Vec<&str> = offered.iter().map(|field| field.name().as_str()).collect();
        names.join(", ")
    };
    let mut chosen: Vec<Field> = Vec::with_capacity(names.len());
    for name in names {
        let Some(field) = offered.iter().find(|field| field.name() == name) else {
            return refuse(format!(
                "unknown column '{name}': the columns are {}",
                valid()
            ));
        };
        if chosen.iter().any(|each| each.name() == name) {
            return refuse(format!("column '{name}' is named twice"));
        }
        chosen.push(field.clone());
    }
    if chosen.is_empty() {
        return refuse(format!(
            "columns names no column: the columns are {}",
            valid()
        ));
    }
    Ok(chosen)
}

fn field(column: Column, data_type: DataType) -> Field {
    Field::new(column.name(), data_type, true)
}

/// Finds what a field of the wanted schema stands for. `flattened`: fields of the value before it.
fn check_field(wanted: &Field, formats: &Formats, flattened: usize) -> Result<Output> {
    let name = wanted.name();
    let is_typed = formats.key.format.is_typed() || formats.value.format.is_typed();
    let (output, built) = if is_typed && *name == formats.corrupt_column {
        (Output::Corrupt, DataType::Utf8)
    } else if let Some(column) = Column::from_name(name) {
        let format = match column {
            Column::Key => formats.key.format,
            Column::Value if formats.flatten => {
                return refuse(format!(
                    "column '{name}' is not there with value.flatten=true: its fields are"
                ));
            }
            Column::Value => formats.value.format,
            _ => Format::Binary,
        };
        let built = match (format, wanted.data_type()) {
            (Format::Binary, _) => column.data_type(),
            (Format::String, _) => DataType::Utf8,
            (_, fields @ DataType::Struct(_)) => fields.clone(),
            (_, other) => {
                return refuse(format!(
                    "column '{name}' is a struct, as {name}.format={}, but the schema has {other}",
                    format.name()
                ));
            }
        };
        (Output::Column(column), built)
    } else if formats.flatten {
        (Output::ValueField(flattened), wanted.data_type().clone())
    } else {
        let names = Column::ALL.map(Column::name).join(", ");
        return refuse(format!("unknown column '{name}': the columns are {names}"));
    };
    if !is_same_type(&built, wanted.data_type()) {
        return refuse(format!(
            "column '{name}' is {built}, but the schema has {}",
            wanted.data_type()
        ));
    }
    if !wanted.is_nullable() {
        return refuse(format!("column '{name}' of the schema must be nullable"));
    }
    Ok(output)
}

/// How the fields of a key or value are made; `None`: none is wanted.
fn typed(name: &str, side: &Side, formats: &Formats, fields: Fields) -> Result<Option<Typed>> {
    if !side.format.is_typed() || fields.is_empty() {
        return Ok(None);
    }
    let is_csv = side.format == Format::Csv;
    for field in fields.iter() {
        let is_decodable = if is_csv {
            csv::is_decodable(field.data_type())
        } else {
            build::is_buildable(field.data_type())
        };
        if !is_decodable {
            return refuse(format!(
                "field '{}' of the {name} cannot be {} with {name}.format={}",
                field.name(),
                field.data_type(),
                side.format.name()
            ));
        }
        if !is_nullable_within(field) {
            return refuse(format!(
                "field '{}' of the {name}, and all within it, must be nullable",
                field.name()
            ));
        }
    }
    let reader = match side.format {
        Format::Csv => Reader::Csv(csv_reader(name, side, formats, &fields)?),
        Format::Avro => Reader::Avro(avro_reader(name, side, &fields)?),
        _ => Reader::Json,
    };
    Ok(Some(Typed { fields, reader }))
}

/// Columns of a line are known by their place: among `csv.columns`, or else among the fields.
fn csv_reader(name: &str, side: &Side, formats: &Formats, fields: &Fields) -> Result<CsvReader> {
    let wanted = fields.iter().map(|field| field.name().clone());
    let columns = side.csv_columns.clone().unwrap_or_else(|| wanted.collect());
    for field in fields {
        if !columns.contains(field.name()) {
            return refuse(format!(
                "field '{}' is none of {name}.csv.columns={}",
                field.name(),
                columns.join(",")
            ));
        }
    }
    let place = |column: &String| fields.iter().position(|field| field.name() == column);
    let places = columns.iter().map(place).collect();
    Ok(CsvReader::new(formats.csv.clone(), places))
}

fn avro_reader(name: &str, side: &Side, fields: &Fields) -> Result<AvroReader> {
    let (schema, registry) = (side.avro_schema.as_deref(), side.avro_registry.as_deref());
    if schema.is_none() && registry.is_none() {
        return refuse(format!(
            "{name}.format=avro needs {name}.avro.schema, or {name}.avro.registry"
        ));
    }
    if registry.is_some() && !side.avro_confluent {
        return refuse(format!(
            "{name}.avro.registry needs ids: {name}.avro.header=confluent"
        ));
    }
    AvroReader::new(schema, side.avro_confluent, registry, fields)
        .map_err(|why| Error::InvalidArgument(format!("{name}.avro.schema: {why}")))
}

/// Nulls may stand wherever a value may be missing: everywhere but in the keys of maps.
fn is_nullable_within(field: &Field) -> bool {
    field.is_nullable()
        && match field.data_type() {
            DataType::Struct(fields) => fields.iter().all(|field| is_nullable_within(field)),
            DataType::List(item) => is_nullable_within(item),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(pair) => {
                    pair.iter().skip(1).all(|field| is_nullable_within(field))
                }
                _ => false,
            },
            _ => true,
        }
}

/// Compares types but for the name of a list's items, which each library calls as it likes.
fn is_same_type(built: &DataType, wanted: &DataType) -> bool {
    match (built, wanted) {
        (DataType::List(built), DataType::List(wanted)) => {
            built.is_nullable() == wanted.is_nullable() && built.data_type() == wanted.data_type()
        }
        _ => built == wanted,
    }
}

/// Checks that there are fields where the schema has something that depends on them.
fn check_fields(
    outputs: &[Output],
    formats: &Formats,
    key: Option<&Typed>,
    value: Option<&Typed>,
) -> Result<()> {
    if outputs.contains(&Output::Corrupt) && key.is_none() && value.is_none() {
        return refuse(format!(
            "the schema has '{}' but no field: which records are bad depends on the fields",
            formats.corrupt_column
        ));
    }
    let sides = [
        (Column::Key, formats.key.format, key),
        (Column::Value, formats.value.format, value),
    ];
    for (column, format, typed) in sides {
        let is_output = outputs.contains(&Output::Column(column));
        if is_output && format.is_typed() && typed.is_none() {
            return refuse(format!(
                "column '{}' is a struct of no field",
                column.name()
            ));
        }
    }
    Ok(())
}

fn refuse<T>(sentence: String) -> Result<T> {
    Err(Error::InvalidArgument(sentence))
}

#[cfg(test)]
mod tests {
    use arrow_schema::TimeUnit;

    use super::*;

    fn choose(fields: Vec<Field>, options: &[(&str, &str)]) -> Result<Shape> {
        let schema = Schema::new(fields);
        let formats = options
            .iter()
            .map(|(name, word)| ((*name).to_owned(), (*word).to_owned()))
            .collect();
        Shape::choose(&ShapeRequest {
            schema: Some(&schema),
            formats: Some(&formats),
            ..ShapeRequest::default()
        })
    }

    fn sentence(result: Result<Shape>) -> String {
        result.expect_err("it is refused").to_string()
    }

    #[test]
    fn any_subset_of_the_columns_in_any_order_is_a_shape() {
        let fields = vec![
            Field::new("value_size", DataType::Int32, true),
            Field::new("value", DataType::Utf8, true),
            Field::new("topic", DataType::Utf8, true),
        ];
        let shape = choose(fields, &[("value.format", "STRING")]).expect("a shape");
        let expected = [Column::ValueSize, Column::Value, Column::Topic];
        assert_eq!(shape.outputs(), expected.map(Output::Column));
    }

    #[test]
    fn a_schema_that_records_cannot_have_is_refused_by_the_name_of_the_column() {
        let milliseconds = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
        for (field, expected) in [
            (
                Field::new("timestamp", milliseconds, true),
                "column 'timestamp' is Timestamp(µs, \"UTC\"), but the schema has",
            ),
            (
                Field::new("offset", DataType::Int64, false),
                "column 'offset' of the schema must be nullable",
            ),
            (
                Field::new("city", DataType::Utf8, true),
                "unknown column 'city': the columns are key, value,",
            ),
            (
                Field::new("value", DataType::Utf8, true),
                "column 'value' is Binary, but the schema has Utf8",
            ),
        ] {
            let found = sentence(choose(vec![field], &[]));
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn an_unknown_option_or_word_is_refused_by_its_name() {
        let fields = || vec![Field::new("offset", DataType::Int64, true)];
        let found = sentence(choose(fields(), &[("value.format", "xml")]));
        assert!(
            found.ends_with("value.format=xml is unknown: it is binary, string, json, avro or csv"),
            "{found}"
        );
        let found = sentence(choose(fields(), &[("value.fromat", "json")]));
        assert!(
            found.contains("formats has no option value.fromat"),
            "{found}"
        );
    }
}

//! What a row looks like: from the wanted columns and the formats it is known which columns are
//! built, and how. Any subset of the columns, in any order, is a shape: what it does not have is
//! neither copied nor decoded.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::formats::{Format, Formats};
use super::schema::Column;
use crate::error::{Error, Result};

/// What a caller asks for. Without a schema the columns have the types of `schema.rs` and of the
/// formats; without columns they are all of the schema, or those of Spark's connector.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShapeRequest<'a> {
    pub columns: Option<&'a [String]>,
    /// The rows' schema, exactly.
    pub schema: Option<&'a Schema>,
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

/// The columns of a row, in order, each at most once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    schema: SchemaRef,
    columns: Vec<Column>,
    formats: Formats,
}

impl Shape {
    /// The eight columns of Spark's connector, keys and values as bytes.
    pub fn all() -> Shape {
        let formats = Formats::default();
        let columns: Vec<Column> = Column::kafka().collect();
        let fields = columns.iter().map(|column| field(*column, &formats));
        Shape {
            schema: Arc::new(Schema::new(fields.collect::<Vec<Field>>())),
            columns,
            formats,
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
    /// Errors: `InvalidArgument` for a column that there is not or that is named twice, for `columns`
    /// that name none, for a column of another type than records have, and those of `Formats`.
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
            None => Column::ALL.map(|column| field(column, &formats)).to_vec(),
        };
        let chosen = match (request.columns, request.schema) {
            (Some(names), _) => choose_fields(names, &offered)?,
            (None, Some(_)) => offered,
            (None, None) => offered.into_iter().take(Column::kafka().count()).collect(),
        };
        let mut columns = Vec::with_capacity(chosen.len());
        for each in &chosen {
            let column = check_field(each, &formats)?;
            if columns.contains(&column) {
                return refuse(format!("column '{}' is in the schema twice", each.name()));
            }
            columns.push(column);
        }
        Ok(Shape {
            schema: Arc::new(Schema::new(chosen)),
            columns,
            formats,
        })
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub fn formats(&self) -> &Formats {
        &self.formats
    }

    pub fn contains(&self, column: Column) -> bool {
        self.columns.contains(&column)
    }

    pub(super) fn wanted(&self) -> Wanted {
        Wanted {
            key: self.contains(Column::Key),
            value: self.contains(Column::Value),
            key_size: self.contains(Column::KeySize),
            value_size: self.contains(Column::ValueSize),
            offset: self.contains(Column::Offset),
            timestamp: self.contains(Column::Timestamp),
            headers: self.contains(Column::Headers),
        }
    }

    /// Whether a consumer's requested schema can be met: it may ask for other types, which it then
    /// has to cast to itself, but not for other columns (the PyCapsule interface rules it out).
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

/// A column as it comes if no schema says how.
fn field(column: Column, formats: &Formats) -> Field {
    Field::new(column.name(), data_type(column, formats), true)
}

fn data_type(column: Column, formats: &Formats) -> DataType {
    let format = match column {
        Column::Key => formats.key,
        Column::Value => formats.value,
        _ => Format::Binary,
    };
    match format {
        Format::Binary => column.data_type(),
        Format::String => DataType::Utf8,
    }
}

/// The column that a field of the wanted schema stands for.
fn check_field(wanted: &Field, formats: &Formats) -> Result<Column> {
    let name = wanted.name();
    let Some(column) = Column::from_name(name) else {
        let names = Column::ALL.map(Column::name).join(", ");
        return refuse(format!("unknown column '{name}': the columns are {names}"));
    };
    let built = data_type(column, formats);
    if !is_same_type(&built, wanted.data_type()) {
        return refuse(format!(
            "column '{name}' is {built}, but the schema has {}",
            wanted.data_type()
        ));
    }
    if !wanted.is_nullable() {
        return refuse(format!("column '{name}' of the schema must be nullable"));
    }
    Ok(column)
}

/// The same but for the name of a list's items, which each library calls as it likes.
fn is_same_type(built: &DataType, wanted: &DataType) -> bool {
    match (built, wanted) {
        (DataType::List(built), DataType::List(wanted)) => {
            built.is_nullable() == wanted.is_nullable() && built.data_type() == wanted.data_type()
        }
        _ => built == wanted,
    }
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
            columns: None,
            schema: Some(&schema),
            formats: Some(&formats),
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
        assert_eq!(
            shape.columns(),
            [Column::ValueSize, Column::Value, Column::Topic]
        );
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
            found.ends_with("value.format=xml is unknown: it is binary or string"),
            "{found}"
        );
        let found = sentence(choose(fields(), &[("value.fromat", "json")]));
        assert!(
            found.contains("formats has no option value.fromat"),
            "{found}"
        );
    }
}

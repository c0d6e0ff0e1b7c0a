//! The columns in which records leave: their names, types and order, and the choice among them.
//!
//! ```text
//! key            binary
//! value          binary                                    null: a tombstone
//! topic          utf8
//! partition      int32
//! offset         int64
//! timestamp      timestamp(us, UTC)                        -1 ms where a record has none
//! timestampType  int32                                     0 create, 1 log append, -1 none (magic 0)
//! headers        list<element: struct<key: utf8, value: binary>>   null where there are none
//! ```
//!
//! Every field is nullable and the types are exact, because Spark compares them exactly
//! (`to_arrow_schema(...).equals(...)`): names, values and nulls are those of the DataFrame that
//! Spark's own Kafka connector makes (`KafkaRecordToRowConverter`), with `includeHeaders`.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use crate::error::{Error, Result};

/// One column, in the order in which they stand unless told otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Key,
    Value,
    Topic,
    Partition,
    Offset,
    Timestamp,
    TimestampType,
    Headers,
}

impl Column {
    pub const ALL: [Column; 8] = [
        Column::Key,
        Column::Value,
        Column::Topic,
        Column::Partition,
        Column::Offset,
        Column::Timestamp,
        Column::TimestampType,
        Column::Headers,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Column::Key => "key",
            Column::Value => "value",
            Column::Topic => "topic",
            Column::Partition => "partition",
            Column::Offset => "offset",
            Column::Timestamp => "timestamp",
            Column::TimestampType => "timestampType",
            Column::Headers => "headers",
        }
    }

    pub fn data_type(self) -> DataType {
        match self {
            Column::Key | Column::Value => DataType::Binary,
            Column::Topic => DataType::Utf8,
            Column::Partition | Column::TimestampType => DataType::Int32,
            Column::Offset => DataType::Int64,
            Column::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Column::Headers => DataType::List(header_field()),
        }
    }

    fn field(self) -> Field {
        Field::new(self.name(), self.data_type(), true)
    }
}

/// One header; `element` is what Spark calls the items of a list.
pub fn header_field() -> Arc<Field> {
    Arc::new(Field::new(
        "element",
        DataType::Struct(header_fields()),
        true,
    ))
}

pub fn header_fields() -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("value", DataType::Binary, true),
    ])
}

/// The wanted columns, in the wanted order, each at most once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    columns: Vec<Column>,
}

impl Projection {
    pub fn all() -> Projection {
        Projection {
            columns: Column::ALL.to_vec(),
        }
    }

    /// Errors: `InvalidArgument` for a name that is no column, a name given twice, no name at all.
    pub fn from_names<S: AsRef<str>>(names: &[S]) -> Result<Projection> {
        let mut columns = Vec::with_capacity(names.len());
        for name in names {
            let name = name.as_ref();
            let Some(column) = Column::ALL.into_iter().find(|column| column.name() == name) else {
                return Err(Error::InvalidArgument(format!(
                    "unknown column '{name}': the columns are {}",
                    valid_names()
                )));
            };
            if columns.contains(&column) {
                return Err(Error::InvalidArgument(format!(
                    "column '{name}' is named twice"
                )));
            }
            columns.push(column);
        }
        if columns.is_empty() {
            return Err(Error::InvalidArgument(format!(
                "columns names no column: the columns are {}",
                valid_names()
            )));
        }
        Ok(Projection { columns })
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub fn contains(&self, column: Column) -> bool {
        self.columns.contains(&column)
    }

    /// Whether a consumer's requested schema can be met: it may ask for other types, which it then
    /// has to cast to itself, but not for other columns (the PyCapsule interface rules it out).
    ///
    /// Errors: `InvalidArgument`.
    pub fn check_requested(&self, requested: &Schema) -> Result<()> {
        let own: Vec<&str> = self.columns.iter().map(|c| c.name()).collect();
        let names: Vec<&str> = requested
            .fields()
            .iter()
            .map(|f| f.name().as_str())
            .collect();
        if names == own {
            return Ok(());
        }
        Err(Error::InvalidArgument(format!(
            "the requested schema has the columns {}, but those read are {}: choose by columns=",
            names.join(", "),
            own.join(", ")
        )))
    }

    pub fn schema(&self) -> SchemaRef {
        let fields: Vec<Field> = self.columns.iter().map(|column| column.field()).collect();
        Arc::new(Schema::new(fields))
    }
}

fn valid_names() -> String {
    Column::ALL.map(Column::name).join(", ")
}

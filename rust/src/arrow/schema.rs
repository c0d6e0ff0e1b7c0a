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
//! key_size       int32                                     bytes; null where the key is
//! value_size     int32                                     bytes; null where the value is
//! ```
//!
//! Every field is nullable and the types are exact, because Spark compares them exactly
//! (`to_arrow_schema(...).equals(...)`): names, values and nulls are those of the DataFrame that
//! Spark's own Kafka connector makes (`KafkaRecordToRowConverter`), with `includeHeaders`. The two
//! sizes are ours, and come only where they are asked for: a count, or a sum of lengths, then
//! copies no value. Keys and values are binary unless `shape.rs` is told otherwise.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, TimeUnit};

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
    KeySize,
    ValueSize,
}

impl Column {
    pub const ALL: [Column; 10] = [
        Column::Key,
        Column::Value,
        Column::Topic,
        Column::Partition,
        Column::Offset,
        Column::Timestamp,
        Column::TimestampType,
        Column::Headers,
        Column::KeySize,
        Column::ValueSize,
    ];

    /// The columns of Spark's connector, which are returned unless others are named.
    pub fn kafka() -> impl Iterator<Item = Column> {
        Column::ALL.into_iter().take(8)
    }

    pub fn from_name(name: &str) -> Option<Column> {
        Column::ALL.into_iter().find(|column| column.name() == name)
    }

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
            Column::KeySize => "key_size",
            Column::ValueSize => "value_size",
        }
    }

    pub fn data_type(self) -> DataType {
        match self {
            Column::Key | Column::Value => DataType::Binary,
            Column::Topic => DataType::Utf8,
            Column::Partition | Column::TimestampType | Column::KeySize | Column::ValueSize => {
                DataType::Int32
            }
            Column::Offset => DataType::Int64,
            Column::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Column::Headers => DataType::List(header_field()),
        }
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

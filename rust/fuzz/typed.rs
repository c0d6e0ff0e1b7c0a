//! What must hold for any keys or values that are to become columns: every record is a row, good or
//! bad, its memory is bounded, and what it becomes does not depend on the records beside it. A
//! broken promise is a panic.

use std::sync::Arc;

use arrow_array::{Array, BinaryArray};
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use kafkalite::arrow::decode::avro::AvroReader;
use kafkalite::arrow::decode::csv::{CsvOptions, CsvReader};
use kafkalite::arrow::decode::{Decoder, Reader};

/// A byte that parts the records of an input.
pub const PART: u8 = 0x1e;

/// The first byte chooses the format, the others are records.
pub fn typed(data: &[u8]) {
    let Some((&choice, records)) = data.split_first() else {
        return;
    };
    let (fields, reader) = reader(choice);
    let mut decoder = Decoder::new(reader, &fields).expect("types that can be built");
    let records: Vec<&[u8]> = records.split(|byte| *byte == PART).collect();
    let together = decoder
        .decode(&BinaryArray::from_iter_values(&records))
        .expect("columns of less than 2 GiB");
    for column in &together.fields {
        assert_eq!(column.len(), records.len());
        let bytes_max = 4096 * (records.len() + data.len());
        assert!(column.get_array_memory_size() <= bytes_max.max(1 << 20));
    }
    for (row, record) in records.iter().enumerate() {
        let alone = decoder.decode(&BinaryArray::from_iter_values([record]));
        let alone = alone.expect("columns of less than 2 GiB");
        let is_bad = together.bad.contains(&(row as u32));
        assert_eq!(alone.bad.is_empty(), !is_bad);
        for (column, alone) in together.fields.iter().zip(&alone.fields) {
            // NaN is not equal to itself, but looks like it.
            let within = format!("{:?}", column.slice(row, 1));
            assert_eq!(within, format!("{alone:?}"), "row {row}");
        }
    }
}

/// Another schema for each format, with every type that it can have.
pub fn reader(choice: u8) -> (Fields, Reader) {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    let scalars = vec![
        field("a", DataType::Int32),
        field("b", DataType::Utf8),
        field("c", DataType::Float64),
        field("d", DataType::Date32),
        field(
            "e",
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        ),
        field("f", DataType::Decimal128(20, 4)),
        field("g", DataType::Boolean),
        field("h", DataType::Binary),
        field("i", DataType::Int64),
    ];
    if choice.is_multiple_of(3) {
        let places = (0..scalars.len()).map(Some).collect();
        let reader = CsvReader::new(CsvOptions::default(), places);
        return (Fields::from(scalars), Reader::Csv(reader));
    }
    let point = Fields::from(vec![
        field("x", DataType::Int64),
        field("y", DataType::Utf8),
    ]);
    let list = |item| DataType::List(Arc::new(field("element", item)));
    let pair = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        field("value", DataType::Struct(point.clone())),
    ]);
    let entries = Field::new("entries", DataType::Struct(pair), false);
    let mut nested = scalars;
    nested.extend([
        field("s", DataType::Struct(point.clone())),
        field("l", list(list(DataType::Int64))),
        field("p", list(DataType::Struct(point))),
        field("m", DataType::Map(Arc::new(entries), false)),
    ]);
    let fields = Fields::from(nested);
    if choice % 3 == 1 {
        return (fields, Reader::Json);
    }
    let reader = AvroReader::new(Some(AVRO), choice >= 128, None, &fields);
    (fields, Reader::Avro(reader.expect("a good schema")))
}

const AVRO: &str = r#"{"type":"record","name":"R","fields":[
  {"name":"a","type":["null","int","string"]},
  {"name":"nothing","type":{"type":"record","name":"N","fields":[
      {"name":"a","type":"null"},{"name":"b","type":{"type":"fixed","name":"Z","size":0}}]}},
  {"name":"b","type":"string"},
  {"name":"c","type":["null","double"]},
  {"name":"unwanted","type":{"type":"array","items":["null","R"]}},
  {"name":"e","type":{"type":"long","logicalType":"timestamp-millis"}},
  {"name":"f","type":{"type":"bytes","logicalType":"decimal","precision":18,"scale":4}},
  {"name":"g","type":"boolean"},
  {"name":"h","type":"bytes"},
  {"name":"s","type":["null",{"type":"record","name":"P","fields":[
      {"name":"y","type":{"type":"enum","name":"E","symbols":["u","v"]}},
      {"name":"nothing","type":{"type":"map","values":"N"}},{"name":"nobody","type":"N"},
      {"name":"x","type":"int"}]}]},
  {"name":"l","type":{"type":"array","items":{"type":"array","items":"long"}}},
  {"name":"p","type":{"type":"array","items":["P","null"]}},
  {"name":"m","type":{"type":"map","values":"P"}}]}"#;

//! The schema that a request has in it: base64 of an Arrow IPC message, which anybody may have
//! written. Parts of a flatbuffer may be shared, and each use of one is copied where it becomes a
//! schema: a name of 60 KB that a thousand fields share would be 60 MB. So what the parts come to,
//! each as often as it is used, is bounded before any is copied.

use arrow_ipc::convert::try_schema_from_ipc_buffer;
use arrow_ipc::root_as_message_with_opts;
use arrow_schema::Schema;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flatbuffers::{InvalidFlatbuffer, VerifierOptions};

use crate::error::{Error, Result};
use crate::limits::{ARROW_SCHEMA_BYTES_FREE, ARROW_SCHEMA_RATIO_MAX};

/// Before the length of a message, since version 0.15 of Arrow.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// Of the length of a message, little-endian.
const LENGTH_BYTES: usize = 4;

/// The fewest bytes of a table: where its own table is, and one slot in that.
const TABLE_BYTES_MIN: usize = 8;

/// A schema as `pyarrow.Schema.serialize` and Java's `MessageSerializer` write it, in base64.
///
/// Errors: `InvalidArgument` for bytes that are no such schema, and for one that is many times
/// larger than the bytes that tell it.
pub(super) fn decode_schema(text: &str) -> Result<Schema> {
    let Ok(bytes) = BASE64_STANDARD.decode(text) else {
        return refuse("schema is not base64".to_owned());
    };
    refuse_inflated(&bytes)?;
    try_schema_from_ipc_buffer(&bytes).or_else(|error| {
        let error = error.to_string();
        if error.contains("Utf8Error") {
            return refuse("schema has a name or another text that is not UTF-8".to_owned());
        }
        refuse(format!(
            "schema is no message of Arrow IPC with a schema: {error}"
        ))
    })
}

fn refuse<T>(reason: String) -> Result<T> {
    Err(Error::InvalidArgument(reason))
}

/// Any other fault is left to those who take the bytes for a schema.
fn refuse_inflated(bytes: &[u8]) -> Result<()> {
    let rest = bytes.strip_prefix(&CONTINUATION).unwrap_or(bytes);
    let message = rest.get(LENGTH_BYTES..).unwrap_or_default();
    let bytes_max = ARROW_SCHEMA_BYTES_FREE.max(message.len() * ARROW_SCHEMA_RATIO_MAX);
    let options = VerifierOptions {
        max_tables: bytes_max / TABLE_BYTES_MIN,
        max_apparent_size: bytes_max,
        ..VerifierOptions::default()
    };
    match root_as_message_with_opts(&options, message) {
        Err(
            InvalidFlatbuffer::ApparentSizeTooLarge
            | InvalidFlatbuffer::TooManyTables
            | InvalidFlatbuffer::DepthLimitReached,
        ) => refuse(format!(
            "schema is refused: its fields and names come to more than {bytes_max} bytes, which is \
             more than {} of its own can say, or they are nested too deeply",
            bytes.len()
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use arrow_ipc::writer::StreamWriter;
    use arrow_schema::{DataType, Field};
    use flatbuffers::FlatBufferBuilder;

    use super::*;

    /// A schema of `count` fields that have one name together.
    fn sharing(count: usize, name: &str) -> String {
        let mut builder = FlatBufferBuilder::new();
        let name = builder.create_string(name);
        let fields: Vec<_> = (0..count)
            .map(|_| {
                let null = arrow_ipc::Null::create(&mut builder, &arrow_ipc::NullArgs {});
                let field = arrow_ipc::FieldArgs {
                    name: Some(name),
                    nullable: true,
                    type_type: arrow_ipc::Type::Null,
                    type_: Some(null.as_union_value()),
                    ..Default::default()
                };
                arrow_ipc::Field::create(&mut builder, &field)
            })
            .collect();
        let fields = builder.create_vector(&fields);
        let schema = arrow_ipc::SchemaArgs {
            fields: Some(fields),
            ..Default::default()
        };
        let schema = arrow_ipc::Schema::create(&mut builder, &schema);
        let message = arrow_ipc::MessageArgs {
            version: arrow_ipc::MetadataVersion::V5,
            header_type: arrow_ipc::MessageHeader::Schema,
            header: Some(schema.as_union_value()),
            ..Default::default()
        };
        let message = arrow_ipc::Message::create(&mut builder, &message);
        builder.finish(message, None);
        let length = (builder.finished_data().len() as u32).to_le_bytes();
        let bytes = [&CONTINUATION[..], &length, builder.finished_data()].concat();
        BASE64_STANDARD.encode(bytes)
    }

    /// A request of 88 KB had a broker allocate 86 MB, and could have had it allocate 2 GiB.
    #[test]
    fn a_schema_that_shares_its_parts_is_refused_before_they_are_copied() {
        let refusal = decode_schema(&sharing(1_500, &"n".repeat(60_000)));
        let refusal = refusal.expect_err("refused").to_string();
        assert!(refusal.contains("come to more than"), "{refusal}");
        let shared = decode_schema(&sharing(3, "n")).expect("a schema");
        assert_eq!(shared.fields().len(), 3);
    }

    #[test]
    fn schemas_of_many_fields_and_levels_are_taken() {
        let point = DataType::Struct(
            (0..50)
                .map(|each| Field::new(format!("p{each}"), DataType::Decimal128(38, 2), true))
                .collect(),
        );
        let list = DataType::List(Arc::new(Field::new("element", point, true)));
        let notes = HashMap::from([("comment".to_owned(), "of each".to_owned())]);
        for count in [0, 1, 50, 500] {
            for data_type in [&DataType::Int64, &DataType::Null, &list] {
                let field = |each: usize| {
                    let field = Field::new(format!("f{each}"), data_type.clone(), true);
                    field.with_metadata(notes.clone())
                };
                let schema = Schema::new((0..count).map(field).collect::<Vec<_>>());
                let mut stream = StreamWriter::try_new(Vec::new(), &schema).expect("a stream");
                stream.flush().expect("written");
                let text = BASE64_STANDARD.encode(stream.get_ref());
                assert_eq!(decode_schema(&text).expect("taken"), schema);
            }
        }
    }
}

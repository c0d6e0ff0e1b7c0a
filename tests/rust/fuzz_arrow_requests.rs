//! A bounded, seeded run of the fuzz target of requests to the Arrow endpoint.

use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kafkalite::arrow::Shape;

use crate::fuzz_batch::run;

#[path = "../../rust/fuzz/arrow_requests.rs"]
mod arrow_requests;

fn encoded(schema: &Schema) -> String {
    let mut stream = StreamWriter::try_new(Vec::new(), schema).unwrap();
    stream.flush().unwrap();
    BASE64_STANDARD.encode(stream.get_ref())
}

fn seeds() -> Vec<Vec<u8>> {
    let place = r#""op":"read","topic":"t","partition":0"#;
    let of_schema = |schema: &Schema| {
        let text = encoded(schema);
        format!(r#"{{{place},"schema":"{text}","formats":{{"value.format":"binary"}}}}"#)
    };
    let rest = r#""start":12,"stop":19,"isolation":"read_committed","columns":["offset","value"],
        "batch.rows":10,"batch.bytes":1000,"bootstrap.servers":"b:9092","client":{"a":1},
        "path":null,"cluster.id":"c","fail.on.data.loss":false"#;
    let value = Schema::new(vec![Field::new_struct(
        "value",
        vec![Field::new("a", DataType::Int32, true)],
        true,
    )]);
    let registry = r#"{\"7\":{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"}]}}"#;
    let avro = format!(
        r#"{{{place},"schema":"{}","formats":{{"value.format":"avro",
            "value.avro.header":"confluent","value.avro.registry":"{registry}"}}}}"#,
        encoded(&value)
    );
    let texts = [
        avro,
        format!("{{{place}}}"),
        format!("{{{place},{rest}}}"),
        of_schema(Shape::all().schema()),
        of_schema(&Schema::empty()),
    ];
    texts.into_iter().map(String::into_bytes).collect()
}

#[test]
fn good_requests_to_the_arrow_endpoint_are_read() {
    for seed in seeds() {
        let text = String::from_utf8_lossy(&seed);
        assert!(arrow_requests::is_read(&seed), "{text}");
    }
}

#[test]
fn no_bytes_break_the_reading_of_a_request() {
    let text = encoded(Shape::all().schema());
    let plan = format!(r#"{{"op":"batch","options":{{}},"schema":"{text}"}}"#).into_bytes();
    let all = [seeds(), vec![plan]].concat();
    run(&all, false, arrow_requests::arrow_requests);
}

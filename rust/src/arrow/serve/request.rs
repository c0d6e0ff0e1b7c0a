//! Requests of the Arrow endpoint's clients: a length and a JSON object. Bytes
//! in, requests out, no I/O.
//!
//! A key that nobody knows is refused by its name, so that a misspelt bound
//! does not read a whole log.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::Losses;
use super::sent_schema::decode_schema;
use crate::arrow::columns::BatchBounds;
use crate::arrow::plan::{Isolation, check_bounds};
use crate::arrow::shape::{Shape, ShapeRequest};
use crate::error::{Error, Result};
use crate::limits::ARROW_REQUEST_KNOWN_BYTES_MAX;

/// Size of the length before a request and before a JSON answer, big-endian.
pub const LENGTH_BYTES: usize = 4;

/// Rows and bytes of a batch where the request does not say: those of `kafkalite.read_log`.
const BOUNDS: BatchBounds = BatchBounds {
    rows: 32_768,
    bytes: 4 << 20,
};

/// One request.
#[derive(Debug)]
pub enum Request {
    Read(Box<AskedRead>),
    /// Any other `op`, which the home answers from the bytes.
    Other(OtherRequest),
}

/// A read of which no more is known than where its records are. How they are to look, which costs
/// more to find out than the rest, is looked at by `shaped`.
#[derive(Debug)]
pub struct AskedRead {
    pub topic: String,
    pub partition: i32,
    pub place: Place,
    fields: Fields,
}

/// A request that is no read.
#[derive(Debug)]
pub struct OtherRequest {
    pub op: String,
    schema: Option<Value>,
}

/// Offsets `start .. stop` of one partition, and how its records are to look.
#[derive(Debug)]
pub struct ReadRequest {
    pub topic: String,
    pub partition: i32,
    /// `None`: the log start.
    pub start: Option<i64>,
    /// Exclusive. `None`: the end as it is when the request comes.
    pub stop: Option<i64>,
    pub isolation: Isolation,
    /// Refuses a range of which offsets are gone; else what is left is read.
    pub fail_on_data_loss: bool,
    pub shape: Shape,
    pub bounds: BatchBounds,
    pub place: Place,
}

/// Where the log is, for a home that can reach several.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub bootstrap_servers: Option<String>,
    /// Settings of the client that reads from there.
    pub client: BTreeMap<String, String>,
    /// A partition's directory, or a log directory.
    pub path: Option<PathBuf>,
    /// The cluster of the broker that is meant: another one may have got its port meanwhile.
    pub cluster_id: Option<String>,
}

/// The length of the request that follows these bytes, of a client that may send `bytes_max`.
/// Errors: `MalformedRequest` for one that no request can have, or that is longer.
pub fn request_length(prefix: [u8; LENGTH_BYTES], bytes_max: usize) -> Result<usize> {
    let length = u32::from_be_bytes(prefix) as usize;
    if length > bytes_max && length <= ARROW_REQUEST_KNOWN_BYTES_MAX {
        return Err(Error::MalformedRequest(format!(
            "a request of {length} bytes is longer than {bytes_max}, to which its options, columns \
             and partitions have to come together: with engine=python Spark sends no such request"
        )));
    }
    if !(1..=bytes_max).contains(&length) {
        return Err(Error::MalformedRequest(format!(
            "a request of {length} bytes: one has 1 to {bytes_max}, its length before it in four \
             bytes, big-endian"
        )));
    }
    Ok(length)
}

impl Request {
    /// With a `secret` the request must have it, before anything else of it is looked at.
    ///
    /// Errors: `MalformedRequest` for bytes that are no JSON object with an `op`; `InvalidArgument`
    /// for a read that names no partition.
    pub fn parse(bytes: &[u8], secret: Option<&str>) -> Result<Request> {
        let malformed = |reason: String| Err(Error::MalformedRequest(reason));
        let mut fields = match serde_json::from_slice::<Value>(bytes) {
            Ok(Value::Object(fields)) => Fields(fields),
            Ok(_) => return malformed("it is not a JSON object".to_owned()),
            Err(error) => return malformed(format!("it is not JSON: {error}")),
        };
        if let Some(secret) = secret {
            let told = fields.text("secret")?.unwrap_or_default();
            if !is_same(told.as_bytes(), secret.as_bytes()) {
                return refuse(
                    "this endpoint serves the process that started it, which alone knows the secret"
                        .to_owned(),
                );
            }
        }
        match fields.text("op")?.as_deref() {
            Some("read") => Ok(Request::Read(Box::new(AskedRead::from_fields(fields)?))),
            Some(op) => Ok(Request::Other(OtherRequest {
                op: op.to_owned(),
                schema: fields.take("schema"),
            })),
            None => malformed("it names no op".to_owned()),
        }
    }
}

impl OtherRequest {
    /// Errors: `InvalidArgument` for a schema that is none, which nobody else looks at before
    /// libraries take it for one.
    pub fn check_schema(&self) -> Result<()> {
        match &self.schema {
            Some(Value::String(text)) => decode_schema(text).map(drop),
            _ => Ok(()),
        }
    }
}

impl AskedRead {
    fn from_fields(mut fields: Fields) -> Result<AskedRead> {
        let Some(topic) = fields.text("topic")? else {
            return refuse("a read names a topic".to_owned());
        };
        let Some(partition) = fields.number("partition")? else {
            return refuse("a read names a partition".to_owned());
        };
        let Ok(partition) = i32::try_from(partition) else {
            return refuse(format!("partition={partition} is no partition"));
        };
        let place = Place {
            bootstrap_servers: fields.text("bootstrap.servers")?,
            client: fields.settings("client")?,
            path: fields.text("path")?.map(PathBuf::from),
            cluster_id: fields.text("cluster.id")?,
        };
        Ok(AskedRead {
            topic,
            partition,
            place,
            fields,
        })
    }

    /// All of the read. Errors: `InvalidArgument` for one that cannot be.
    pub fn shaped(self) -> Result<ReadRequest> {
        let AskedRead {
            topic,
            partition,
            place,
            mut fields,
        } = self;
        let isolation = match fields.text("isolation")? {
            Some(name) => Isolation::from_name(&name)?,
            None => Isolation::default(),
        };
        let count = |value: Option<i64>, default: usize| {
            value.map_or(default, |value| usize::try_from(value).unwrap_or(0))
        };
        let bounds = BatchBounds {
            rows: count(fields.number("batch.rows")?, BOUNDS.rows),
            bytes: count(fields.number("batch.bytes")?, BOUNDS.bytes),
        };
        check_bounds(bounds)?;
        let (start, stop) = (fields.offset("start")?, fields.offset("stop")?);
        if let (Some(start), Some(stop)) = (start, stop)
            && start > stop
        {
            return refuse(format!(
                "start={start} is after stop={stop} ({topic}-{partition})"
            ));
        }
        let fail_on_data_loss = fields.flag("fail.on.data.loss")?.unwrap_or(true);
        let shape = fields.shape()?;
        fields.refuse_rest()?;
        Ok(ReadRequest {
            topic,
            partition,
            start,
            stop,
            isolation,
            fail_on_data_loss,
            shape,
            bounds,
            place,
        })
    }
}

impl ReadRequest {
    /// As Kafka names the partition.
    pub fn name(&self) -> String {
        format!("{}-{}", self.topic, self.partition)
    }

    /// The most bytes of memory that one of its batches takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bounds.memory_bytes(&self.shape, self.topic.len())
    }

    /// The offsets to read of a log that has `log_start .. log_end` and shows them up to
    /// `visible_end`, which is its `what`. A stop that is given must be there: rows that are
    /// missing would look like an end. Errors: `InvalidArgument`, unless lost data is no
    /// failure; then `losses` is told. Records that are in the log and cannot be seen yet are not
    /// lost: a high watermark that a restart has set back comes forward again.
    pub fn range_within(
        &self,
        log_start: i64,
        log_end: i64,
        visible_end: i64,
        what: &str,
        losses: &Losses,
    ) -> Result<(i64, i64)> {
        let name = self.name();
        let start = self.start.unwrap_or(log_start);
        let stop = self.stop.unwrap_or(visible_end);
        if visible_end < stop && stop <= log_end {
            return refuse(format!(
                "{name}: offset {stop} is not to be seen yet, the {what} is {visible_end}, and the \
                 log ends at {log_end}"
            ));
        }
        let mut lost = Vec::new();
        if start < log_start {
            let gone = log_start.min(stop).saturating_sub(start);
            lost.push(format!(
                "{name}: offset {start} is no longer there, the log starts at {log_start} \
                 (offsets gone: {gone})"
            ));
        }
        if stop > visible_end {
            lost.push(format!(
                "{name}: offset {stop} is not there, the {what} is {visible_end}"
            ));
        } else if start > log_end {
            lost.push(format!(
                "{name}: offset {start} is not there, the log ends at {log_end}"
            ));
        }
        if self.fail_on_data_loss && !lost.is_empty() {
            return refuse(with_remedy(&lost.join("; ")));
        }
        for loss in lost {
            losses.tell(loss);
        }
        let start = start.clamp(log_start, log_end.max(log_start));
        Ok((start, stop.min(visible_end).max(start)))
    }
}

pub(super) fn refuse<T>(reason: String) -> Result<T> {
    Err(Error::InvalidArgument(reason))
}

/// A sentence on records that are gone, as Spark's user has it from whichever engine reads.
pub(super) fn with_remedy(loss: &str) -> String {
    format!("{loss} (failOnDataLoss=false goes on with what there is)")
}

/// Compares in a time that does not tell how much of `told` is right.
fn is_same(told: &[u8], secret: &[u8]) -> bool {
    let differs = told
        .iter()
        .zip(secret)
        .fold(0, |seen, (a, b)| seen | (a ^ b));
    told.len() == secret.len() && differs == 0
}

/// The fields of a request that are still to be looked at. Null counts as absent.
#[derive(Debug)]
struct Fields(Map<String, Value>);

impl Fields {
    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    fn text(&mut self, name: &str) -> Result<Option<String>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => refuse(format!("{name} is not a string")),
        }
    }

    fn number(&mut self, name: &str) -> Result<Option<i64>> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match value.as_i64() {
                Some(number) => Ok(Some(number)),
                None => refuse(format!("{name} is not a whole number of 64 bits")),
            },
        }
    }

    fn offset(&mut self, name: &str) -> Result<Option<i64>> {
        match self.number(name)? {
            Some(offset) if offset < 0 => refuse(format!("{name}={offset} is no offset")),
            offset => Ok(offset),
        }
    }

    fn flag(&mut self, name: &str) -> Result<Option<bool>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => refuse(format!("{name} is not true or false")),
        }
    }

    fn shape(&mut self) -> Result<Shape> {
        let schema = match self.text("schema")? {
            Some(text) => Some(decode_schema(&text)?),
            None => None,
        };
        let (columns, formats) = (self.texts("columns")?, self.settings("formats")?);
        Shape::choose(&ShapeRequest {
            columns: columns.as_deref(),
            schema: schema.as_ref(),
            formats: Some(&formats),
            ..ShapeRequest::default()
        })
    }

    fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let texts = value.as_array().and_then(|values| {
            let texts = values.iter().map(|each| each.as_str().map(str::to_owned));
            texts.collect::<Option<Vec<String>>>()
        });
        match texts {
            Some(texts) => Ok(Some(texts)),
            None => refuse(format!("{name} is not a list of strings")),
        }
    }

    /// An object whose values are strings, numbers or flags.
    fn settings(&mut self, name: &str) -> Result<BTreeMap<String, String>> {
        let fields = match self.take(name) {
            None => return Ok(BTreeMap::new()),
            Some(Value::Object(fields)) => fields,
            Some(_) => return refuse(format!("{name} is not an object")),
        };
        let mut settings = BTreeMap::new();
        for (key, value) in fields {
            let text = match value {
                Value::String(text) => text,
                Value::Number(number) => number.to_string(),
                Value::Bool(flag) => flag.to_string(),
                _ => return refuse(format!("{name}: {key} is not a string")),
            };
            settings.insert(key, text);
        }
        Ok(settings)
    }

    fn refuse_rest(&self) -> Result<()> {
        match self.0.keys().next() {
            Some(name) => refuse(format!("a read has no key '{name}'")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_ipc::writer::StreamWriter;
    use arrow_schema::{DataType, Field, Schema};
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;

    use super::*;
    use crate::limits::ARROW_REQUEST_BYTES_MAX;

    fn read(text: &str) -> ReadRequest {
        match Request::parse(text.as_bytes(), None) {
            Ok(Request::Read(read)) => read.shaped().expect("a read"),
            other => panic!("{other:?}"),
        }
    }

    fn refusal(text: &str) -> String {
        let refused = match Request::parse(text.as_bytes(), None) {
            Ok(Request::Read(read)) => read.shaped().map(drop),
            Ok(Request::Other(other)) => other.check_schema(),
            Err(error) => Err(error),
        };
        refused.expect_err("refused").to_string()
    }

    #[test]
    fn what_a_read_leaves_out_has_a_default() {
        let read = read(r#"{"op":"read","topic":"orders","partition":3,"stop":null}"#);
        assert_eq!((read.topic.as_str(), read.partition), ("orders", 3));
        assert_eq!((read.start, read.stop), (None, None));
        assert_eq!(read.isolation, Isolation::ReadUncommitted);
        assert_eq!(read.shape, Shape::all());
        assert_eq!(read.bounds, BOUNDS);
        assert_eq!(read.place, Place::default());
    }

    #[test]
    fn every_key_of_a_read_is_taken() {
        let read = read(
            r#"{"op":"read","topic":"t","partition":0,"start":5,"stop":9,"columns":["value"],
               "isolation":"read_committed","batch.rows":10,"batch.bytes":1000,"path":"/logs","cluster.id":"c",
               "fail.on.data.loss":false,"bootstrap.servers":"b:9092","client":{"client.id":"me","request.timeout.ms":7}}"#,
        );
        assert_eq!((read.start, read.stop), (Some(5), Some(9)));
        assert_eq!(read.isolation, Isolation::ReadCommitted);
        assert!(!read.fail_on_data_loss);
        assert_eq!((read.bounds.rows, read.bounds.bytes), (10, 1000));
        assert_eq!(read.shape.outputs().len(), 1);
        assert_eq!(read.place.path, Some(PathBuf::from("/logs")));
        assert_eq!(read.place.bootstrap_servers.as_deref(), Some("b:9092"));
        assert_eq!(read.place.cluster_id.as_deref(), Some("c"));
        assert_eq!(
            read.place.client,
            BTreeMap::from([
                ("client.id".to_owned(), "me".to_owned()),
                ("request.timeout.ms".to_owned(), "7".to_owned()),
            ])
        );
    }

    #[test]
    fn a_request_without_the_secret_is_refused_whatever_it_asks() {
        let secret = Some("5f3a");
        for told in [
            "",
            "\"secret\":\"5f3b\",",
            "\"secret\":\"5f3\",",
            "\"secret\":null,",
        ] {
            for asked in [
                r#""op":"read","topic":"t","partition":0"#,
                r#""op":"cluster""#,
                r#""oq":1"#,
            ] {
                let refusal = Request::parse(format!("{{{told}{asked}}}").as_bytes(), secret)
                    .expect_err("refused")
                    .to_string();
                assert!(
                    refusal.starts_with("this endpoint serves the process"),
                    "{refusal}"
                );
            }
        }
        let text = r#"{"secret":"5f3a","op":"read","topic":"t","partition":0}"#;
        let Ok(Request::Read(_)) = Request::parse(text.as_bytes(), secret) else {
            panic!("refused with its secret");
        };
        assert_eq!(refusal(text), "a read has no key 'secret'");
    }

    #[test]
    fn a_schema_says_which_columns_there_are_and_how() {
        let schema = Schema::new(vec![
            Field::new("value", DataType::Utf8, true),
            Field::new("offset", DataType::Int64, true),
        ]);
        for schema in [schema, Schema::empty()] {
            let read = read(&with_schema(&encode(&schema)));
            assert_eq!(read.shape.schema().fields(), schema.fields());
        }
        for (text, sentence) in [
            ("?", "schema is not base64"),
            ("AAAA", "schema is no message of Arrow IPC with a schema: "),
            ("//////////8AAAAA", "schema is no message of Arrow IPC"),
        ] {
            let refusal = refusal(&with_schema(text));
            assert!(refusal.starts_with(sentence), "{refusal}");
        }
    }

    #[test]
    fn a_schema_with_names_that_are_not_utf8_is_refused_whatever_is_asked() {
        // Plans hand the schema to libraries, and one of them panics over such a name.
        let schema = Schema::new(vec![Field::new("value", DataType::Utf8, true)]);
        let mut bytes = BASE64_STANDARD.decode(encode(&schema)).expect("base64");
        let at = bytes.windows(5).position(|name| name == b"value");
        bytes[at.expect("its name")] = 0xff;
        let text = with_schema(&BASE64_STANDARD.encode(bytes));
        for op in ["read", "batch", "initial"] {
            let refusal = refusal(&text.replace("\"read\"", &format!("\"{op}\"")));
            assert_eq!(
                refusal,
                "schema has a name or another text that is not UTF-8"
            );
        }
    }

    fn with_schema(schema: &str) -> String {
        format!(
            r#"{{"op":"read","topic":"t","partition":0,"schema":"{schema}",
                "formats":{{"value.format":"string"}}}}"#
        )
    }

    fn encode(schema: &Schema) -> String {
        let mut stream = StreamWriter::try_new(Vec::new(), schema).expect("a stream");
        stream.flush().expect("written");
        BASE64_STANDARD.encode(stream.get_ref())
    }

    #[test]
    fn what_is_lost_refuses_a_read_or_is_told() {
        let request = |start, stop, lossy: bool| {
            let mut read = read(r#"{"op":"read","topic":"t","partition":0}"#);
            (read.start, read.stop, read.fail_on_data_loss) = (start, stop, !lossy);
            let losses = Losses::default();
            let range = read.range_within(10, 30, 20, "high watermark", &losses);
            (range.map_err(|error| error.to_string()), losses.take())
        };
        let none = Vec::<String>::new;
        for lossy in [false, true] {
            assert_eq!(request(None, None, lossy), (Ok((10, 20)), none()));
            assert_eq!(request(Some(12), Some(15), lossy), (Ok((12, 15)), none()));
            assert_eq!(request(Some(25), None, lossy), (Ok((25, 25)), none()));
        }
        let gone =
            "t-0: offset 9 is no longer there, the log starts at 10 (offsets gone: 1)".to_owned();
        let missing = |stop| format!("t-0: offset {stop} is not there, the high watermark is 20");
        let not_yet = |stop| {
            format!(
                "t-0: offset {stop} is not to be seen yet, the high watermark is 20, and the log ends at 30"
            )
        };
        // A micro-batch that was read before the machine was restarted: its last records were
        // skipped as lost, although they were there and could be seen a moment later.
        for (lossy, stop) in [(false, 21), (true, 21), (true, 30)] {
            let refused = (Err(not_yet(stop)), none());
            assert_eq!(request(Some(9), Some(stop), lossy), refused);
        }
        let ends = "t-0: offset 31 is not there, the log ends at 30".to_owned();
        for (start, stop, loss) in [
            (Some(9), None, gone.clone()),
            (Some(31), None, ends),
            (None, Some(31), missing(31)),
            (Some(9), Some(31), format!("{gone}; {}", missing(31))),
        ] {
            let refused = (Err(with_remedy(&loss)), none());
            assert_eq!(request(start, stop, false), refused);
        }
        let told = (Ok((10, 20)), vec![gone, missing(31)]);
        assert_eq!(request(Some(9), Some(31), true), told);
        let nothing = (Ok((30, 30)), vec![missing(50)]);
        assert_eq!(request(Some(40), Some(50), true), nothing);
    }

    #[test]
    fn another_op_is_left_to_the_home() {
        let request = Request::parse(br#"{"op":"latest","options":{"a":[1]}}"#, None);
        assert!(matches!(request, Ok(Request::Other(other)) if other.op == "latest"));
    }

    #[test]
    fn refusals_name_what_is_wrong() {
        for (text, sentence) in [
            ("", "malformed request: it is not JSON: "),
            ("[1]", "malformed request: it is not a JSON object"),
            ("{}", "malformed request: it names no op"),
            (r#"{"op":7}"#, "op is not a string"),
            (r#"{"op":"read"}"#, "a read names a topic"),
            (r#"{"op":"read","topic":"t"}"#, "a read names a partition"),
            (
                r#"{"op":"read","topic":"t","partition":4294967296}"#,
                "partition=4294967296 is no partition",
            ),
            (
                r#"{"op":"read","topic":"t","partition":0,"start":-1}"#,
                "start=-1 is no offset",
            ),
            (
                r#"{"op":"read","topic":"t","partition":0,"start":1.5}"#,
                "start is not a whole number of 64 bits",
            ),
            (
                r#"{"op":"read","topic":"t","partition":0,"start":3,"stop":2}"#,
                "start=3 is after stop=2 (t-0)",
            ),
            (
                r#"{"op":"read","topic":"t","partition":0,"columns":"value"}"#,
                "columns is not a list of strings",
            ),
            (
                r#"{"op":"read","topic":"t","partition":0,"columns":["val"]}"#,
                "unknown column 'val'",
            ),
            (
                r#"{"op":"read","topic":"t","partition":0,"batch.rows":-4}"#,
                "batch_rows=0 is not within 1 to ",
            ),
            (
                r#"{"op":"read","topic":"t","partition":0,"client":{"a":[]}}"#,
                "client: a is not a string",
            ),
            (
                r#"{"op":"read","topic":"t","partition":0,"stpo":2}"#,
                "a read has no key 'stpo'",
            ),
        ] {
            let refusal = refusal(text);
            assert!(refusal.starts_with(sentence), "{refusal}");
        }
    }

    #[test]
    fn deep_nesting_is_refused_and_not_followed() {
        let text = "[".repeat(ARROW_REQUEST_BYTES_MAX);
        assert!(refusal(&text).contains("recursion limit"));
    }

    #[test]
    fn a_length_that_no_request_has_is_refused_before_anything_is_allocated() {
        let length = |prefix| request_length(prefix, ARROW_REQUEST_BYTES_MAX);
        assert_eq!(length([0, 0, 1, 2]).expect("a length"), 258);
        for prefix in [[0; 4], [0xff; 4], *b"GET "] {
            assert!(length(prefix).is_err());
        }
    }

    /// Spark's user saw a limit of bytes, and not what could be done about it.
    #[test]
    fn who_asks_for_too_much_is_told_the_way_out() {
        let prefix = u32::to_be_bytes(2 << 20);
        assert!(request_length(prefix, ARROW_REQUEST_KNOWN_BYTES_MAX).is_ok());
        let refusal = request_length(prefix, ARROW_REQUEST_BYTES_MAX).expect_err("refused");
        assert!(refusal.to_string().contains("engine=python"), "{refusal}");
    }
}

//! One connection of the Arrow endpoint: a request, its answer, the next request, until the client
//! closes it, is idle for too long, or an answer fails.
//!
//! The buffers of a batch go to the socket as they are, by `writev`: the one copy is the kernel's.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::writer::StreamEncoder;
use arrow_schema::{ArrowError, Schema};

use super::batch_memory::{BatchMemory, Taken};
use super::request::{LENGTH_BYTES, Request, request_length};
use super::{Home, Losses, ReadRows, Rows};
use crate::crash::or_error;
use crate::error::{Error, Result};
use crate::limits::{
    ARROW_LINGER_MS, ARROW_REQUEST_BYTES_FREE, ARROW_REQUEST_BYTES_MAX,
    ARROW_REQUEST_KNOWN_BYTES_MAX, ARROW_REQUEST_PIECE_BYTES, ARROW_REQUEST_RATIO,
    ARROW_REQUEST_RATIO_KEPT, ARROW_ROOM_WAIT_MS, ARROW_SECRET_WAIT_MS, ARROW_WRITE_VECTORS_MAX,
};

/// Before each message of an Arrow IPC stream.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// The op that asks what the last read has skipped, and where the schema of a read says it.
const LOSSES: &str = "losses";

/// The parts that a connection's thread needs.
pub(super) struct Connection<'a> {
    pub stream: &'a TcpStream,
    pub home: &'a dyn Home,
    pub batch_memory: &'a BatchMemory,
    /// For what long requests become.
    pub request_memory: &'a BatchMemory,
    /// Neither a request nor room for bytes of an answer for so long: the connection is closed,
    /// unless its client has shown the secret, for which it has `ARROW_SECRET_WAIT_MS`.
    pub idle: Option<Duration>,
    /// The secret that each request must have, if there is one.
    pub secret: Option<&'a str>,
    /// The server stops: a sentence instead of the next batch.
    pub is_stopping: &'a (dyn Fn() -> bool + Sync),
}

/// What one request leaves for the next.
#[derive(Default)]
struct Session {
    frame: Vec<u8>,
    /// Those of the last read, of which its schema has told what was known when it began.
    losses: Losses,
    /// The client has shown the secret.
    is_known: bool,
}

/// Why a connection ends before its client wants it to.
enum End {
    /// The client is gone, or too slow: nobody to tell.
    Lost,
    /// Holds the sentence that the client is told.
    Failed(String),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Lost
    }
}

impl From<ArrowError> for End {
    fn from(error: ArrowError) -> End {
        End::Failed(sentence_of(&error))
    }
}

impl From<Error> for End {
    fn from(error: Error) -> End {
        End::Failed(error.to_string())
    }
}

impl Connection<'_> {
    /// Serves until the connection ends.
    pub(super) fn run(&self) {
        let wait = Duration::from_millis(ARROW_SECRET_WAIT_MS);
        let mut secret_due = self.secret.map(|_| Instant::now() + wait);
        let prepared = self
            .stream
            .set_nodelay(true)
            .and_then(|()| self.stream.set_read_timeout(self.idle))
            .and_then(|()| self.stream.set_write_timeout(self.idle));
        if prepared.is_err() {
            return;
        }
        let mut session = Session::default();
        let here = Path::new("an Arrow request");
        loop {
            let due = secret_due.take();
            let served = or_error(here, || Ok(self.serve_one(due, &mut session)));
            match served.unwrap_or_else(|panic| Err(panic.into())) {
                Ok(true) => {}
                Ok(false) | Err(End::Lost) => return,
                Err(End::Failed(sentence)) => return fail(self.stream, &sentence),
            }
        }
    }

    /// One request, which has come by `due`, and its answer; false if the client has no more.
    fn serve_one(
        &self,
        due: Option<Instant>,
        session: &mut Session,
    ) -> std::result::Result<bool, End> {
        let mut prefix = [0; LENGTH_BYTES];
        match self.receive(&mut prefix, due) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            outcome => outcome?,
        }
        let bytes_max = if session.is_known {
            ARROW_REQUEST_KNOWN_BYTES_MAX
        } else {
            ARROW_REQUEST_BYTES_MAX
        };
        let length = request_length(prefix, bytes_max)?;
        self.receive_frame(length, due, &mut session.frame)?;
        let mut taken = self.take_for_request(length, session.is_known)?;
        let request = Request::parse(&session.frame, self.secret)?;
        if self.secret.is_some() {
            session.is_known = true;
            taken = None;
            self.wait_for_the_client()?;
        }
        match request {
            Request::Read(read) => {
                session.frame = Vec::new();
                session.losses = Losses::default();
                self.home.check(&read)?;
                let read = read.shaped()?;
                if let Some(taken) = &mut taken {
                    taken.shrink_to(length.saturating_mul(ARROW_REQUEST_RATIO_KEPT));
                }
                let batch_bytes = read.memory_bytes();
                let rows = self.home.read(read, &session.losses)?;
                self.send_rows(rows, batch_bytes, &session.losses.take())?;
            }
            Request::Other(other) if other.op == LOSSES => {
                let told = serde_json::json!({LOSSES: session.losses.take()});
                self.send_json(told.to_string().as_bytes())?;
            }
            Request::Other(other) => {
                if self.home.plans() {
                    other.check_schema()?;
                }
                let answer = self.home.answer(&other.op, &session.frame);
                session.frame = Vec::new();
                self.send_json(&json_of(answer))?;
            }
        }
        Ok(true)
    }

    /// Takes memory as the bytes come, not because a client says that they will.
    fn receive_frame(
        &self,
        length: usize,
        due: Option<Instant>,
        frame: &mut Vec<u8>,
    ) -> io::Result<()> {
        frame.clear();
        while frame.len() < length {
            let received = frame.len();
            frame.resize(length.min(received + ARROW_REQUEST_PIECE_BYTES), 0);
            self.receive(&mut frame[received..], due)?;
        }
        Ok(())
    }

    /// Room for what a request becomes. A short one is nobody's harm, and whoever knows the secret
    /// has started this process for itself.
    fn take_for_request(&self, length: usize, is_known: bool) -> Result<Option<Taken<'_>>> {
        if is_known || length <= ARROW_REQUEST_BYTES_FREE {
            return Ok(None);
        }
        let bytes = length.saturating_mul(ARROW_REQUEST_RATIO);
        let wait = Duration::from_millis(ARROW_ROOM_WAIT_MS);
        let taken = self.request_memory.take(bytes, wait, self.is_stopping);
        taken.map(Some).map_err(|_| {
            Error::InvalidArgument(format!(
                "the Arrow endpoint has no memory for a request of {length} bytes now: ask later"
            ))
        })
    }

    /// Fills `bytes`, by `due` if that is given, however slowly they come.
    fn receive(&self, bytes: &mut [u8], due: Option<Instant>) -> io::Result<()> {
        let mut stream = self.stream;
        let Some(due) = due else {
            return stream.read_exact(bytes);
        };
        let mut filled = 0;
        while filled < bytes.len() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut bytes[filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Lifts the limit from a client that knows the secret, whose sockets end with its
    /// process: a task of Spark's takes the next rows when it is done with those it has,
    /// which may be hours later.
    fn wait_for_the_client(&self) -> io::Result<()> {
        self.stream.set_read_timeout(None)?;
        self.stream.set_write_timeout(None)
    }

    /// Makes batches, of up to `batch_bytes` of memory, and sends each
    /// before it makes the next one.
    fn send_rows(
        &self,
        mut rows: Rows,
        batch_bytes: usize,
        losses: &[String],
    ) -> std::result::Result<(), End> {
        let mut schema = Schema::clone(&rows.schema());
        if !losses.is_empty() {
            let told = serde_json::json!(losses).to_string();
            schema.metadata.insert(LOSSES.to_owned(), told);
        }
        let mut encoder = StreamEncoder::try_new(&schema)?;
        let wait = Duration::from_millis(ARROW_ROOM_WAIT_MS);
        let mut kept: Option<Taken<'_>> = None;
        while rows.wait()? {
            if let Some(mut taken) = kept.take_if(|taken| !taken.grow_to(batch_bytes)) {
                let batch = rows.finish_batch()?;
                self.send_batch(&mut encoder, batch, &*rows, &mut taken)?;
            }
            let mut taken = match kept.take() {
                Some(taken) => taken,
                None => self
                    .batch_memory
                    .take(batch_bytes, wait, self.is_stopping)?,
            };
            let batch = match rows.next_batch()? {
                None if taken.keep(rows.unfinished_bytes()) => {
                    kept = Some(taken);
                    continue;
                }
                None => rows.finish_batch()?,
                full => full,
            };
            self.send_batch(&mut encoder, batch, &*rows, &mut taken)?;
        }
        if let Some(mut taken) = kept {
            let batch = rows.finish_batch()?;
            self.send_batch(&mut encoder, batch, &*rows, &mut taken)?;
        }
        write_buffers(self.stream, &encoder.finish()?)?;
        Ok(())
    }

    /// Sends a batch of `rows`, for which there may be none; `taken` is given back as far as
    /// neither it nor they need it.
    fn send_batch(
        &self,
        encoder: &mut StreamEncoder,
        batch: Option<RecordBatch>,
        rows: &dyn ReadRows,
        taken: &mut Taken<'_>,
    ) -> std::result::Result<(), End> {
        if (self.is_stopping)() {
            return Err(End::Failed("the Arrow endpoint is stopping".to_owned()));
        }
        if let Some(batch) = batch {
            taken.resize_to(batch.get_array_memory_size() + rows.held_bytes());
            write_buffers(self.stream, &encoder.encode(&batch)?)?;
        }
        Ok(())
    }

    fn send_json(&self, json: &[u8]) -> io::Result<()> {
        let length = u32::try_from(json.len()).map_err(io::Error::other)?;
        let mut stream = self.stream;
        let mut answer = length.to_be_bytes().to_vec();
        answer.extend_from_slice(json);
        stream.write_all(&answer)
    }
}

fn json_of(answer: Result<Vec<u8>>) -> Vec<u8> {
    answer.unwrap_or_else(|error| {
        let refusal = serde_json::json!({"error": error.to_string()});
        refusal.to_string().into_bytes()
    })
}

/// An error without the words that arrow-rs puts before it.
fn sentence_of(error: &ArrowError) -> String {
    match error {
        ArrowError::ExternalError(source) => source.to_string(),
        ArrowError::IoError(sentence, _) => sentence.clone(),
        error => error.to_string(),
    }
}

/// Writes all buffers, in order.
fn write_buffers(mut stream: &TcpStream, buffers: &[Buffer]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = buffers
        .iter()
        .filter(|buffer| !buffer.is_empty())
        .map(|buffer| IoSlice::new(buffer.as_slice()))
        .collect();
    let mut left = slices.as_mut_slice();
    while !left.is_empty() {
        let count = left.len().min(ARROW_WRITE_VECTORS_MAX);
        match stream.write_vectored(left.get(..count).unwrap_or_default()) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// In place of the next message, one that ends one byte too early: a plain Arrow reader fails, ours
/// finds the sentence in it. Then the end.
pub(super) fn fail(mut stream: &TcpStream, sentence: &str) {
    let Ok(length) = u32::try_from(sentence.len() + 1) else {
        return;
    };
    let mut frame = CONTINUATION.to_vec();
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(sentence.as_bytes());
    if stream.write_all(&frame).is_ok() && stream.shutdown(Shutdown::Write).is_ok() {
        drain(stream);
    }
}

/// Takes what the client has still sent: a close with bytes unread would be a reset, which may take
/// the sentence away from it.
fn drain(mut stream: &TcpStream) {
    let limit = Duration::from_millis(ARROW_LINGER_MS);
    let deadline = Instant::now() + limit;
    let mut bytes = [0; 4096];
    if stream.set_read_timeout(Some(limit)).is_err() {
        return;
    }
    while let Ok(1..) = stream.read(&mut bytes) {
        if Instant::now() >= deadline {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::thread;

    use arrow_array::{BinaryArray, RecordBatchIterator};
    use arrow_ipc::reader::StreamReader;
    use arrow_schema::SchemaRef;
    use parking_lot::{Condvar, Mutex};

    use super::super::{ArrowServer, ReadRequest, RowsAtHand, ServerSettings};
    use super::*;

    struct Panics;

    impl Home for Panics {
        fn read(&self, _: ReadRequest, _: &Losses) -> Result<Rows> {
            panic!("no read is expected")
        }

        fn answer(&self, op: &str, _: &[u8]) -> Result<Vec<u8>> {
            panic!("{op} meets a record that nobody expected")
        }
    }

    /// Its client saw the connection break, as if the network were to blame.
    #[test]
    fn a_client_is_told_of_a_panic_and_the_next_one_is_served() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server =
            ArrowServer::start(listener, Box::new(Panics), ServerSettings::default(), None);
        let server = server.expect("a server");
        for _ in 0..2 {
            let mut stream = TcpStream::connect(server.address()).expect("a connection");
            let limit = Some(Duration::from_secs(60));
            stream.set_read_timeout(limit).expect("a limit");
            let request = br#"{"op":"plan"}"#;
            let length = (request.len() as u32).to_be_bytes();
            let sent = stream.write_all(&[&length[..], request].concat());
            sent.expect("a request");
            let mut told = Vec::new();
            stream.read_to_end(&mut told).expect("the end");
            let told = String::from_utf8_lossy(&told);
            let sentence = "panicked: plan meets a record that nobody expected";
            assert!(told.contains(sentence), "{told}");
        }
        assert!(server.stop());
    }

    /// A broker decoded the schema of a request that asks only for its cluster: 88 KB of which
    /// became 86 MB.
    #[test]
    fn a_home_that_does_not_plan_does_not_look_at_a_schema() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = ArrowServer::start(listener, Box::new(Much), ServerSettings::default(), None);
        let server = server.expect("a server");
        let mut stream = TcpStream::connect(server.address()).expect("a connection");
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).expect("a limit");
        let request = br#"{"op":"losses","schema":"?"}"#;
        let length = (request.len() as u32).to_be_bytes();
        let sent = stream.write_all(&[&length[..], request].concat());
        sent.expect("a request");
        let mut answer = [0; 4 + 13];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer[4..], br#"{"losses":[]}"#);
        assert!(server.stop());
    }

    /// A server that wants a secret, and a connection whose reads wait for so long.
    fn with_secret(read_limit: Duration) -> (ArrowServer, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let settings = ServerSettings {
            secret: Some("5f3a".to_owned()),
            ..ServerSettings::default()
        };
        let server = ArrowServer::start(listener, Box::new(Much), settings, None);
        let server = server.expect("a server");
        let stream = TcpStream::connect(server.address()).expect("a connection");
        stream.set_read_timeout(Some(read_limit)).expect("a limit");
        (server, stream)
    }

    /// A query of Spark with many partitions or a long registry failed.
    #[test]
    fn a_client_that_has_shown_the_secret_may_send_long_requests() {
        for shows in [true, false] {
            let (server, mut stream) = with_secret(Duration::from_secs(60));
            let mut ask = |padding: usize| {
                let padding = " ".repeat(padding);
                let request = format!(r#"{{"op":"losses","secret":"5f3a"{padding}}}"#);
                let length = (request.len() as u32).to_be_bytes();
                stream
                    .write_all(&[&length[..], request.as_bytes()].concat())
                    .ok();
                let mut answer = [0; 4 + 13];
                stream.read_exact(&mut answer).ok();
                answer.ends_with(br#"{"losses":[]}"#)
            };
            assert!(!shows || ask(0));
            assert_eq!(ask(ARROW_REQUEST_BYTES_MAX), shows);
            assert!(server.stop());
        }
    }

    const BATCHES: usize = 32;

    /// More rows than the buffers of a connection take.
    fn much() -> impl ReadRows {
        let value = vec![0; 1 << 20];
        let values = BinaryArray::from_vec(vec![&value]);
        let batch = RecordBatch::try_from_iter([("value", Arc::new(values) as _)]);
        let batch = batch.expect("a batch");
        let batches = vec![batch.clone(); BATCHES].into_iter().map(Ok);
        RowsAtHand::new(RecordBatchIterator::new(batches, batch.schema()))
    }

    struct Much;

    impl Home for Much {
        fn read(&self, _: ReadRequest, _: &Losses) -> Result<Rows> {
            Ok(Box::new(much()))
        }

        fn answer(&self, op: &str, _: &[u8]) -> Result<Vec<u8>> {
            panic!("no {op} is expected")
        }
    }

    /// A task whose rows each cost a call of some slow service took the next batch ten minutes
    /// later, found its connection closed, and so did each attempt that followed.
    #[test]
    fn a_client_with_the_secret_takes_its_rows_as_slowly_as_it_likes() {
        const IDLE: Duration = Duration::from_millis(100);
        for secret in [None, Some("5f3a")] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let settings = ServerSettings {
                idle: Some(IDLE),
                secret: secret.map(str::to_owned),
                ..ServerSettings::default()
            };
            let server = ArrowServer::start(listener, Box::new(Much), settings, None);
            let server = server.expect("a server");
            let connect = || {
                let stream = TcpStream::connect(server.address()).expect("a connection");
                let limit = Some(Duration::from_secs(60));
                stream.set_read_timeout(limit).expect("a limit");
                stream
            };
            let (mut silent, mut slow) = (connect(), connect());
            let mut request = serde_json::json!({"op": "read", "topic": "t", "partition": 0});
            if let Some(secret) = secret {
                request["secret"] = secret.into();
            }
            let request = request.to_string();
            let length = (request.len() as u32).to_be_bytes();
            let sent = slow.write_all(&[&length[..], request.as_bytes()].concat());
            sent.expect("a request");
            assert_eq!(silent.read(&mut [0]).expect("the end"), 0);
            thread::sleep(IDLE * 5);
            let reader = StreamReader::try_new(&slow, None).expect("a schema");
            let rows = reader.take_while(|batch| batch.is_ok()).count();
            assert_eq!(rows == BATCHES, secret.is_some(), "{rows} batches");
            slow.shutdown(Shutdown::Both).ok();
            assert!(server.stop());
        }
    }

    /// Another user of the machine could hold all connections of a child, for as long as it liked.
    #[test]
    fn a_client_that_does_not_show_the_secret_is_not_waited_for() {
        let (server, mut slow) = with_secret(Duration::from_millis(200));
        // A request of so many bytes, of which one comes with each pause.
        let request = u32::to_be_bytes(1_000).into_iter().chain([b' '; 1_000]);
        let is_open = |byte: u8| {
            let sent = slow.write_all(&[byte]);
            let told = slow.read(&mut [0]);
            sent.is_ok() && told.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        let bytes_taken = request.map(is_open).take_while(|open| *open).count();
        assert!((1..1_000).contains(&bytes_taken), "{bytes_taken}");
        assert!(server.stop());
    }

    /// A broker that has no records yet for the reads of one topic.
    #[derive(Clone, Default)]
    struct Silent(Arc<(Mutex<State>, Condvar)>);

    #[derive(Default)]
    struct State {
        waiting: usize,
        is_over: bool,
    }

    impl Silent {
        fn until(&self, is_so: impl Fn(&State) -> bool, then: impl FnOnce(&mut State)) {
            let (state, changed) = &*self.0;
            let mut state = state.lock();
            changed.wait_while(&mut state, |state| !is_so(state));
            then(&mut state);
            changed.notify_all();
        }
    }

    impl Home for Silent {
        fn read(&self, request: ReadRequest, _: &Losses) -> Result<Rows> {
            Ok(match request.topic.as_str() {
                "silent" => Box::new(SilentRows(self.clone(), much())),
                "trickling" => Box::new(TricklingRows(self.clone(), much(), 0)),
                _ => Box::new(much()),
            })
        }

        fn answer(&self, op: &str, _: &[u8]) -> Result<Vec<u8>> {
            panic!("no {op} is expected")
        }
    }

    struct SilentRows<R>(Silent, R);

    impl<R: ReadRows> ReadRows for SilentRows<R> {
        fn schema(&self) -> SchemaRef {
            self.1.schema()
        }

        fn wait(&mut self) -> std::result::Result<bool, ArrowError> {
            self.0.until(|_| true, |state| state.waiting += 1);
            self.0.until(|state| state.is_over, |_| ());
            self.1.wait()
        }

        fn next_batch(&mut self) -> std::result::Result<Option<RecordBatch>, ArrowError> {
            self.1.next_batch()
        }

        fn finish_batch(&mut self) -> std::result::Result<Option<RecordBatch>, ArrowError> {
            self.1.finish_batch()
        }

        fn unfinished_bytes(&self) -> usize {
            self.1.unfinished_bytes()
        }
    }

    /// Rows of which one comes, and no more before it is over: with less than a batch may have.
    struct TricklingRows<R>(Silent, R, usize);

    impl<R: ReadRows> ReadRows for TricklingRows<R> {
        fn schema(&self) -> SchemaRef {
            self.1.schema()
        }

        fn wait(&mut self) -> std::result::Result<bool, ArrowError> {
            self.2 += 1;
            if self.2 > 1 {
                self.0.until(|state| state.is_over, |_| ());
            }
            Ok(self.2 <= 2)
        }

        fn next_batch(&mut self) -> std::result::Result<Option<RecordBatch>, ArrowError> {
            Ok(None)
        }

        fn finish_batch(&mut self) -> std::result::Result<Option<RecordBatch>, ArrowError> {
            self.1.next_batch()
        }

        fn unfinished_bytes(&self) -> usize {
            usize::MAX
        }
    }

    fn with_little_memory(home: &Silent) -> ArrowServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let settings = ServerSettings {
            memory_bytes: Some(1), // as little as there may be: room for one of the batches below
            ..ServerSettings::default()
        };
        let server = ArrowServer::start(listener, Box::new(home.clone()), settings, None);
        server.expect("a server")
    }

    fn read(server: &ArrowServer, topic: &str) -> TcpStream {
        let mut stream = TcpStream::connect(server.address()).expect("a connection");
        let request = serde_json::json!({
            "op": "read", "topic": topic, "partition": 0, "batch.bytes": 40 << 20
        });
        let request = request.to_string();
        let length = (request.len() as u32).to_be_bytes();
        let sent = stream.write_all(&[&length[..], request.as_bytes()].concat());
        sent.expect("a request");
        stream
    }

    fn batches(stream: TcpStream) -> impl Iterator<Item = RecordBatch> {
        let reader = StreamReader::try_new(stream, None).expect("a schema");
        reader.map(|batch| batch.expect("a batch"))
    }

    /// Tasks that waited for a broker that was down held the memory of all batches, and those of
    /// another broker's topics were refused after half a minute.
    #[test]
    fn reads_that_wait_for_rows_keep_no_memory_from_one_that_has_them() {
        const READS: usize = 8;
        let home = Silent::default();
        let server = with_little_memory(&home);
        let waiting: Vec<_> = (0..READS).map(|_| read(&server, "silent")).collect();
        home.until(|state| state.waiting == READS, |_| ());
        assert_eq!(batches(read(&server, "busy")).count(), BATCHES);
        home.until(|_| true, |state| state.is_over = true);
        for stream in waiting {
            assert_eq!(batches(stream).count(), BATCHES);
        }
        assert!(server.stop());
    }

    #[test]
    fn rows_that_take_too_much_to_be_kept_are_sent_before_the_next_are_waited_for() {
        let home = Silent::default();
        let server = with_little_memory(&home);
        let mut rows = batches(read(&server, "trickling"));
        assert_eq!(rows.next().expect("the first").num_rows(), 1);
        assert_eq!(batches(read(&server, "busy")).count(), BATCHES);
        home.until(|_| true, |state| state.is_over = true);
        assert_eq!(rows.count(), 1);
        assert!(server.stop());
    }
}

//! The load of `make bench-kafka`: speaks to any Kafka broker from one thread, sends requests that
//! were built once, and prints one line of JSON. The broker is to be the bottleneck, and its CPU is
//! read from `/proc`, so that another process on the machine is not in the figures.
//!
//! ```text
//! load produce broker=H:P topic=T partitions=3 record_bytes=100 records=1 connections=16 inflight=5
//! load fetch   broker=H:P topic=T partitions=3 connections=3 max_bytes=1048576
//! load latency broker=H:P topic=T partitions=3 record_bytes=100 connections=4 rate=1000
//! load repeat  broker=H:P frame=HEX connections=4 inflight=5      one request, again and again
//! load idle    broker=H:P connections=10000
//! load bare    directory=D bytes=16384                             write + fdatasync, no broker
//! ```
//!
//! All take `seconds`, `warmup` (seconds that are not counted) and `pid`, the broker's process.
//! `fetch` expects a topic that `produce` filled by one shape: it reads the first batch's header of
//! each answer and drops the rest in the kernel (`MSG_TRUNC`).

#![expect(
    unsafe_code,
    reason = "recv with MSG_TRUNC and the limit of descriptors"
)]

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use kafkalite::batch::build::{BatchBuilder, BatchOptions};
use kafkalite::batch::header::BatchHeader;
use kafkalite::net::poller::{Event, Poller, Readiness};
use kafkalite::wire::{Reader, Writer, frame};

const PRODUCE_VERSION: i16 = 9;
const FETCH_VERSION: i16 = 12;
/// Where in a frame the correlation id stands.
const CORRELATION_AT: usize = 8;
const RECEIVE_BYTES: usize = 256 * 1024;
/// Frames that one call sends, as `wirebench` did.
const FRAMES_PER_WRITE: usize = 16;
/// Header of a Fetch answer with one partition, up to its records, at most.
const FETCH_HEAD_BYTES: usize = 512;

type Failure = Box<dyn std::error::Error>;

fn main() {
    let mut words = std::env::args().skip(1);
    let mode = words.next().unwrap_or_default();
    let arguments = Arguments(
        words
            .filter_map(|word| {
                word.split_once('=')
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
            })
            .collect(),
    );
    raise_descriptor_limit();
    let done = match mode.as_str() {
        "produce" => produce(&arguments),
        "fetch" => fetch(&arguments),
        "latency" => latency(&arguments),
        "repeat" => repeat(&arguments),
        "idle" => idle(&arguments),
        "bare" => bare(&arguments),
        _ => Err("the first word is produce, fetch, latency, repeat, idle or bare".into()),
    };
    match done {
        Ok(report) => println!("{}", report.json()),
        Err(error) => {
            eprintln!("load {mode}: {error}");
            std::process::exit(1);
        }
    }
}

struct Arguments(HashMap<String, String>);

impl Arguments {
    fn text(&self, key: &str) -> Result<&str, Failure> {
        let value = self.0.get(key).map(String::as_str);
        value.ok_or_else(|| format!("{key}=… is missing").into())
    }

    fn number<T: std::str::FromStr>(&self, key: &str, default: T) -> Result<T, Failure> {
        match self.0.get(key) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| format!("{key}={text} is no number").into()),
        }
    }

    fn connections(&self) -> Result<Vec<TcpStream>, Failure> {
        let broker = self.text("broker")?;
        (0..self.number("connections", 1)?)
            .map(|_| {
                let stream = TcpStream::connect(broker)?;
                stream.set_nodelay(true)?;
                Ok(stream)
            })
            .collect()
    }
}

/// Names and numbers for one line of JSON.
#[derive(Default)]
struct Report(Vec<(&'static str, f64)>);

impl Report {
    fn set(&mut self, name: &'static str, value: f64) {
        self.0.push((name, value));
    }

    fn json(&self) -> String {
        let fields = self.0.iter().map(|(name, value)| match value {
            value if value.is_finite() => format!("\"{name}\": {value:.3}"),
            _ => format!("\"{name}\": null"),
        });
        format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
    }
}

/// What a process has used so far.
struct Usage {
    cpu_s: f64,
    resident_bytes: f64,
}

impl Usage {
    /// Nothing where `pid` is 0.
    fn of(pid: u32) -> io::Result<Usage> {
        if pid == 0 {
            return Ok(Usage {
                cpu_s: f64::NAN,
                resident_bytes: f64::NAN,
            });
        }
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // Fields after the name, which may hold anything, in brackets.
        let fields: Vec<&str> = match stat.rsplit_once(')') {
            Some((_, rest)) => rest.split_ascii_whitespace().collect(),
            None => Vec::new(),
        };
        let field = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok());
        let (user, system) = (field(11).unwrap_or(0.0), field(12).unwrap_or(0.0));
        Ok(Usage {
            cpu_s: (user + system) / 100.0,
            resident_bytes: field(21).unwrap_or(0.0) * 4096.0,
        })
    }
}

/// The time that counts: from the end of the warm-up to the end.
struct Window {
    pid: u32,
    starts: Instant,
    ends: Instant,
    opened: Option<(Instant, Usage)>,
}

impl Window {
    fn new(arguments: &Arguments) -> Result<Window, Failure> {
        let warmup = Duration::from_secs_f64(arguments.number("warmup", 0.5)?);
        let seconds = Duration::from_secs_f64(arguments.number("seconds", 3.0)?);
        let starts = Instant::now() + warmup;
        Ok(Window {
            pid: arguments.number("pid", 0)?,
            starts,
            ends: starts + seconds,
            opened: None,
        })
    }

    /// Whether what happens now counts.
    fn is_open(&mut self, now: Instant) -> io::Result<bool> {
        if self.opened.is_none() && now >= self.starts {
            self.opened = Some((now, Usage::of(self.pid)?));
        }
        Ok(self.opened.is_some())
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.ends
    }

    /// Rates and the broker's share, of what was counted.
    fn report(&self, requests: u64, bytes: u64) -> Result<Report, Failure> {
        let Some((opened, before)) = &self.opened else {
            return Err("the warm-up did not end".into());
        };
        let seconds = opened.elapsed().as_secs_f64();
        let after = Usage::of(self.pid)?;
        let cpu_s = after.cpu_s - before.cpu_s;
        let mut report = Report::default();
        report.set("seconds", seconds);
        report.set("requests_per_s", requests as f64 / seconds);
        report.set("mb_per_s", bytes as f64 / seconds / 1e6);
        report.set("server_us_per_request", cpu_s * 1e6 / requests as f64);
        report.set("server_ms_per_gb", cpu_s * 1e3 / (bytes as f64 / 1e9));
        report.set("server_cores", cpu_s / seconds);
        report.set("server_rss_mb", after.resident_bytes / 1e6);
        Ok(report)
    }
}

// --- a connection that sends whole frames and hands over whole answers ----------------------------

struct Peer {
    stream: TcpStream,
    /// Frames to send, the first from `sent_bytes` on.
    outgoing: VecDeque<Vec<u8>>,
    sent_bytes: usize,
    incoming: Vec<u8>,
    filled: usize,
    wants_room: bool,
}

impl Peer {
    fn new(stream: TcpStream) -> io::Result<Peer> {
        stream.set_nonblocking(true)?;
        Ok(Peer {
            stream,
            outgoing: VecDeque::new(),
            sent_bytes: 0,
            incoming: vec![0; RECEIVE_BYTES],
            filled: 0,
            wants_room: false,
        })
    }

    /// Sends what the socket takes; gives back frames that are out.
    fn send(&mut self, sent: &mut Vec<Vec<u8>>) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            let mut skip = self.sent_bytes;
            let frames = self.outgoing.iter().take(FRAMES_PER_WRITE);
            let vectors: Vec<IoSlice<'_>> = frames
                .map(|frame| IoSlice::new(&frame[std::mem::take(&mut skip)..]))
                .collect();
            match self.stream.write_vectored(&vectors) {
                Ok(count) => self.sent_bytes += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wants_room = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            while let Some(frame) = self.outgoing.front()
                && self.sent_bytes >= frame.len()
            {
                self.sent_bytes -= frame.len();
                sent.extend(self.outgoing.pop_front());
            }
        }
        self.wants_room = false;
        Ok(())
    }

    /// Receives once and calls `on_answer` for each whole answer, without its size.
    fn receive(
        &mut self,
        mut on_answer: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self.stream.read(&mut self.incoming[self.filled..]) {
            Ok(0) => return Err("the broker closed a connection".into()),
            Ok(count) => self.filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let mut at = 0;
        loop {
            let rest = &self.incoming[at..self.filled];
            let size = match rest.first_chunk() {
                Some(size) => u32::from_be_bytes(*size) as usize,
                None => break,
            };
            let Some(answer) = rest.get(4..4 + size) else {
                break;
            };
            on_answer(answer)?;
            at += 4 + size;
        }
        self.incoming.copy_within(at..self.filled, 0);
        self.filled -= at;
        if self.filled == self.incoming.len() {
            return Err("an answer is larger than expected".into());
        }
        Ok(())
    }
}

fn interest(wants_room: bool) -> Readiness {
    Readiness {
        readable: true,
        writable: wants_room,
        ..Readiness::default()
    }
}

/// Keeps `inflight` requests on each connection until the window is over. `request` gives the next
/// frame of a connection, `answered` judges an answer.
fn closed_loop(
    arguments: &Arguments,
    mut request: impl FnMut(usize, Option<Vec<u8>>) -> Vec<u8>,
    bytes_per_request: u64,
    mut check: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(Report, Vec<u64>), Failure> {
    let inflight: usize = arguments.number("inflight", 1)?;
    let mut poller = Poller::new()?;
    let mut peers = Vec::new();
    for (index, stream) in arguments.connections()?.into_iter().enumerate() {
        poller.add(stream.as_raw_fd(), index as u64, interest(false))?;
        peers.push(Peer::new(stream)?);
    }
    // When each open request was sent, oldest first; answers come in order.
    let mut begun: Vec<VecDeque<(i32, Instant)>> = peers.iter().map(|_| VecDeque::new()).collect();
    let mut spare: Vec<Vec<Vec<u8>>> = peers.iter().map(|_| Vec::new()).collect();
    let mut next_correlation = 0_i32;
    let mut window = Window::new(arguments)?;
    let (mut requests, mut latencies_us) = (0_u64, Vec::new());
    let mut events: Vec<Event> = Vec::new();
    for index in 0..peers.len() {
        for _ in 0..inflight {
            let mut frame = request(index, None);
            stamp(&mut frame, next_correlation);
            begun[index].push_back((next_correlation, Instant::now()));
            next_correlation = next_correlation.wrapping_add(1);
            peers[index].outgoing.push_back(frame);
        }
        peers[index].send(&mut spare[index])?;
        poller.change(
            peers[index].stream.as_raw_fd(),
            index as u64,
            interest(peers[index].wants_room),
        )?;
    }
    loop {
        poller.wait(1_000, &mut events)?;
        let now = Instant::now();
        let counts = window.is_open(now)?;
        if window.is_over(now) {
            let report = window.report(requests, requests * bytes_per_request)?;
            return Ok((report, latencies_us));
        }
        for event in &events {
            let index = event.token as usize;
            let (peer, begun) = (&mut peers[index], &mut begun[index]);
            let mut answered = 0;
            if event.readiness.readable {
                peer.receive(|answer| {
                    let (correlation, since) = begun.pop_front().ok_or("an answer too many")?;
                    if Reader::new(answer).i32()? != correlation {
                        return Err("an answer came out of order".into());
                    }
                    check(answer)?;
                    answered += 1;
                    if counts {
                        requests += 1;
                        latencies_us.push(now.duration_since(since).as_micros() as u64);
                    }
                    Ok(())
                })?;
            }
            for _ in 0..answered {
                let mut frame = request(index, spare[index].pop());
                stamp(&mut frame, next_correlation);
                begun.push_back((next_correlation, now));
                next_correlation = next_correlation.wrapping_add(1);
                peer.outgoing.push_back(frame);
            }
            let before = peer.wants_room;
            peer.send(&mut spare[index])?;
            if peer.wants_room != before {
                let descriptor = peer.stream.as_raw_fd();
                poller.change(descriptor, event.token, interest(peer.wants_room))?;
            }
        }
    }
}

fn stamp(frame: &mut [u8], correlation: i32) {
    frame[CORRELATION_AT..CORRELATION_AT + 4].copy_from_slice(&correlation.to_be_bytes());
}

/// Size, key, version, correlation id, client id, tags: a flexible request's beginning.
fn begin_request(key: i16, version: i16, capacity: usize) -> Writer {
    let mut writer = Writer::with_capacity(capacity);
    writer.i32(0);
    writer.i16(key);
    writer.i16(version);
    writer.i32(0);
    writer.nullable_string(Some("load"), false);
    writer.no_tags(true);
    writer
}

fn finish_request(mut writer: Writer) -> Vec<u8> {
    frame::finish(&mut writer.bytes, 0);
    writer.bytes
}

// --- produce --------------------------------------------------------------------------------------

fn batch(records: usize, record_bytes: usize) -> Result<Vec<u8>, Failure> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let timestamp = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)?
        .as_millis() as i64;
    // What no codec could make smaller.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..records {
        let value: Vec<u8> = (0..record_bytes)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        builder.append(timestamp, None, Some(&value), &[])?;
    }
    Ok(builder.finish()?)
}

fn produce_frame(topic: &str, partition: i32, acks: i16, records: &[u8]) -> Vec<u8> {
    let mut writer = begin_request(0, PRODUCE_VERSION, records.len() + 128);
    writer.nullable_string(None, true);
    writer.i16(acks);
    writer.i32(30_000);
    writer.array_length(1, true);
    writer.string(topic, true);
    writer.array_length(1, true);
    writer.i32(partition);
    writer.nullable_bytes(Some(records), true);
    writer.no_tags(true);
    writer.no_tags(true);
    writer.no_tags(true);
    finish_request(writer)
}

/// The error code of the one partition in a Produce answer.
fn check_produced(answer: &[u8]) -> Result<(), Failure> {
    let mut reader = Reader::new(answer);
    reader.i32()?;
    reader.skip_tags(true)?;
    reader.array_length(true)?;
    reader.string(true)?;
    reader.array_length(true)?;
    reader.i32()?;
    match reader.i16()? {
        0 => Ok(()),
        code => Err(format!("Produce was answered with error {code}").into()),
    }
}

fn produce(arguments: &Arguments) -> Result<Report, Failure> {
    let topic = arguments.text("topic")?;
    let partitions: i32 = arguments.number("partitions", 1)?;
    let records: usize = arguments.number("records", 1)?;
    let batch = batch(records, arguments.number("record_bytes", 100)?)?;
    let acks = arguments.number("acks", -1)?;
    let mut made = 0;
    let request = |_index: usize, spare: Option<Vec<u8>>| {
        spare.unwrap_or_else(|| {
            made += 1;
            produce_frame(topic, (made - 1) % partitions, acks, &batch)
        })
    };
    let bytes = batch.len() as u64;
    let (mut report, latencies) = closed_loop(arguments, request, bytes, check_produced)?;
    percentiles(&mut report, latencies);
    Ok(report)
}

fn percentiles(report: &mut Report, mut latencies_us: Vec<u64>) {
    latencies_us.sort_unstable();
    for (name, share) in [("p50_ms", 0.5), ("p99_ms", 0.99), ("p999_ms", 0.999)] {
        let at = ((latencies_us.len() as f64 * share) as usize).min(latencies_us.len().max(1) - 1);
        let value = latencies_us.get(at).map_or(f64::NAN, |us| *us as f64 / 1e3);
        report.set(name, value);
    }
}

/// Open loop: records are due at their times, whatever the broker does, and latency counts from then.
fn latency(arguments: &Arguments) -> Result<Report, Failure> {
    let topic = arguments.text("topic")?;
    let partitions: i32 = arguments.number("partitions", 1)?;
    let batch = batch(1, arguments.number("record_bytes", 100)?)?;
    let interval = Duration::from_secs_f64(1.0 / arguments.number("rate", 1000.0)?);
    let mut peers = Vec::new();
    let mut poller = Poller::new()?;
    for (index, stream) in arguments.connections()?.into_iter().enumerate() {
        poller.add(stream.as_raw_fd(), index as u64, interest(false))?;
        peers.push(Peer::new(stream)?);
    }
    let frames: Vec<Vec<u8>> = (0..partitions)
        .map(|partition| produce_frame(topic, partition, -1, &batch))
        .collect();
    let mut due_times: Vec<VecDeque<Instant>> = peers.iter().map(|_| VecDeque::new()).collect();
    let mut window = Window::new(arguments)?;
    let (mut next_due, mut number) = (Instant::now(), 0_usize);
    let (mut latencies_us, mut late_us, mut out) = (Vec::new(), Vec::new(), Vec::new());
    let mut events: Vec<Event> = Vec::new();
    loop {
        let now = Instant::now();
        let counts = window.is_open(now)?;
        if window.is_over(now) {
            break;
        }
        while next_due <= now {
            let index = number % peers.len();
            let frame = frames[number % frames.len()].clone();
            peers[index].outgoing.push_back(frame);
            due_times[index].push_back(next_due);
            if counts {
                late_us.push(now.duration_since(next_due).as_micros() as u64);
            }
            peers[index].send(&mut out)?;
            poller.change(
                peers[index].stream.as_raw_fd(),
                index as u64,
                interest(peers[index].wants_room),
            )?;
            next_due += interval;
            number += 1;
        }
        out.clear();
        // Whole milliseconds would be coarse, so the last one is spent looking.
        let wait = next_due.saturating_duration_since(Instant::now());
        poller.wait(wait.as_millis() as i32, &mut events)?;
        let now = Instant::now();
        for event in &events {
            let index = event.token as usize;
            let due_times = &mut due_times[index];
            if event.readiness.writable {
                peers[index].send(&mut out)?;
            }
            peers[index].receive(|answer| {
                check_produced(answer)?;
                let due = due_times.pop_front().ok_or("an answer too many")?;
                if counts {
                    latencies_us.push(now.duration_since(due).as_micros() as u64);
                }
                Ok(())
            })?;
        }
    }
    let answered = latencies_us.len() as u64;
    let mut report = window.report(answered, answered * batch.len() as u64)?;
    percentiles(&mut report, latencies_us);
    late_us.sort_unstable();
    let late = late_us.get(late_us.len() * 99 / 100).copied();
    report.set(
        "client_late_p99_ms",
        late.map_or(f64::NAN, |us| us as f64 / 1e3),
    );
    let open: usize = due_times.iter().map(VecDeque::len).sum();
    report.set("unanswered", open as f64);
    Ok(report)
}

/// One request over and over: what keeps a coordinator or a controller busy.
fn repeat(arguments: &Arguments) -> Result<Report, Failure> {
    let text = arguments.text("frame")?;
    let frame: Vec<u8> = (0..text.len() / 2)
        .map(|at| u8::from_str_radix(text.get(2 * at..2 * at + 2).unwrap_or(""), 16))
        .collect::<Result<_, _>>()?;
    let bytes = frame.len() as u64;
    let request = |_: usize, spare: Option<Vec<u8>>| spare.unwrap_or_else(|| frame.clone());
    let (mut report, latencies) = closed_loop(arguments, request, bytes, |_| Ok(()))?;
    percentiles(&mut report, latencies);
    Ok(report)
}

// --- fetch ----------------------------------------------------------------------------------------

fn fetch_frame(topic: &str, partition: i32, offset: i64, max_bytes: i32) -> Vec<u8> {
    let mut writer = begin_request(1, FETCH_VERSION, 256);
    writer.i32(-1); // replica id
    writer.i32(500); // max wait
    writer.i32(1); // min bytes
    writer.i32(max_bytes);
    writer.i8(0); // isolation
    writer.i32(0); // session
    writer.i32(-1);
    writer.array_length(1, true);
    writer.string(topic, true);
    writer.array_length(1, true);
    writer.i32(partition);
    writer.i32(-1); // current leader epoch
    writer.i64(offset);
    writer.i32(-1); // last fetched epoch
    writer.i64(-1); // log start offset
    writer.i32(max_bytes);
    writer.no_tags(true);
    writer.no_tags(true);
    writer.array_length(0, true); // forgotten topics
    writer.string("", true); // rack
    writer.no_tags(true);
    finish_request(writer)
}

/// What a Fetch answer says before its records.
struct Head {
    high_watermark: i64,
    records_bytes: usize,
    records_at: usize,
}

fn read_head(answer: &[u8]) -> Result<Head, Failure> {
    let mut reader = Reader::new(answer);
    reader.i32()?;
    reader.skip_tags(true)?;
    reader.i32()?;
    check_code(reader.i16()?)?;
    reader.i32()?;
    reader.array_length(true)?;
    reader.string(true)?;
    reader.array_length(true)?;
    reader.i32()?;
    check_code(reader.i16()?)?;
    let high_watermark = reader.i64()?;
    reader.i64()?; // last stable offset
    reader.i64()?; // log start offset
    if reader.nullable_length(true)?.is_some_and(|count| count > 0) {
        return Err("aborted transactions in the topic".into());
    }
    reader.i32()?; // preferred replica
    let records_bytes = reader.uvarint()?.saturating_sub(1) as usize;
    Ok(Head {
        high_watermark,
        records_bytes,
        records_at: reader.position(),
    })
}

fn check_code(code: i16) -> Result<(), Failure> {
    match code {
        0 => Ok(()),
        code => Err(format!("Fetch was answered with error {code}").into()),
    }
}

/// A connection that fetches one partition from its beginning to its end, again and again.
struct Reading {
    stream: TcpStream,
    partition: i32,
    offset: i64,
    head: Vec<u8>,
    /// Size of the answer, once its first bytes are there.
    answer_bytes: usize,
    /// Bytes of it that are yet to be dropped.
    rest: usize,
}

impl Reading {
    fn ask(&mut self, topic: &str, max_bytes: i32) -> io::Result<()> {
        self.head.clear();
        self.answer_bytes = 0;
        // A few bytes into an empty socket: nothing to wait for.
        (&self.stream).write_all(&fetch_frame(topic, self.partition, self.offset, max_bytes))
    }

    /// Takes what is there. Gives the bytes of records once the answer is complete.
    fn receive(&mut self) -> Result<Option<u64>, Failure> {
        let wanted = match self.answer_bytes {
            0 => FETCH_HEAD_BYTES,
            answer => FETCH_HEAD_BYTES.min(4 + answer),
        };
        if self.rest == 0 && self.head.len() < wanted {
            let filled = self.head.len();
            self.head.resize(wanted, 0);
            let received = match self.stream.read(&mut self.head[filled..]) {
                Ok(0) => return Err("the broker closed a connection".into()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error.into()),
            };
            self.head.truncate(filled + received);
            let Some(size) = self.head.first_chunk() else {
                return Ok(None);
            };
            self.answer_bytes = u32::from_be_bytes(*size) as usize;
            if self.head.len() < FETCH_HEAD_BYTES.min(4 + self.answer_bytes) {
                return Ok(None);
            }
            self.rest = 4 + self.answer_bytes - self.head.len();
        }
        while self.rest > 0 {
            // SAFETY: with MSG_TRUNC the kernel drops the bytes and writes nothing.
            let dropped = unsafe {
                libc::recv(
                    self.stream.as_raw_fd(),
                    std::ptr::null_mut(),
                    self.rest,
                    libc::MSG_TRUNC,
                )
            };
            match dropped {
                0 => return Err("the broker closed a connection".into()),
                count if count > 0 => self.rest -= count as usize,
                _ => match io::Error::last_os_error() {
                    error if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                    error => return Err(error.into()),
                },
            }
        }
        self.advance().map(Some)
    }

    /// Where the next request goes on.
    fn advance(&mut self) -> Result<u64, Failure> {
        let head = read_head(&self.head[4..])?;
        let records = &self.head[(4 + head.records_at).min(self.head.len())..];
        if head.records_bytes == 0 {
            self.offset = 0;
            return Ok(0);
        }
        let first = BatchHeader::parse(records)?.ok_or("an answer with less than a batch")?;
        if first.base_offset != self.offset {
            return Err(format!(
                "offset {} was asked, {} came",
                self.offset, first.base_offset
            )
            .into());
        }
        let batches = head.records_bytes / first.size_bytes.max(1);
        self.offset += batches as i64 * i64::from(first.last_offset_delta + 1);
        if self.offset >= head.high_watermark {
            self.offset = 0;
        }
        Ok(head.records_bytes as u64)
    }
}

fn fetch(arguments: &Arguments) -> Result<Report, Failure> {
    let topic = arguments.text("topic")?;
    let partitions: i32 = arguments.number("partitions", 1)?;
    let max_bytes: i32 = arguments.number("max_bytes", 1 << 20)?;
    let mut poller = Poller::new()?;
    let mut readings = Vec::new();
    for (index, stream) in arguments.connections()?.into_iter().enumerate() {
        poller.add(stream.as_raw_fd(), index as u64, interest(false))?;
        stream.set_nonblocking(true)?;
        readings.push(Reading {
            stream,
            partition: index as i32 % partitions,
            offset: 0,
            head: Vec::new(),
            answer_bytes: 0,
            rest: 0,
        });
    }
    for reading in &mut readings {
        reading.ask(topic, max_bytes)?;
    }
    let mut window = Window::new(arguments)?;
    let (mut requests, mut bytes) = (0, 0);
    let mut events: Vec<Event> = Vec::new();
    loop {
        poller.wait(1_000, &mut events)?;
        let now = Instant::now();
        let counts = window.is_open(now)?;
        if window.is_over(now) {
            return window.report(requests, bytes);
        }
        for event in &events {
            let reading = &mut readings[event.token as usize];
            if let Some(received) = reading.receive()? {
                if counts {
                    requests += 1;
                    bytes += received;
                }
                reading.ask(topic, max_bytes)?;
            }
        }
    }
}

// --- the rest -------------------------------------------------------------------------------------

/// What idle connections cost the broker; each has had one request answered.
fn idle(arguments: &Arguments) -> Result<Report, Failure> {
    let pid = arguments.number("pid", 0)?;
    let before = Usage::of(pid)?;
    let streams = arguments.connections()?;
    let mut writer = Writer::with_capacity(32);
    writer.i32(0);
    writer.i16(18); // ApiVersions, version 0
    writer.i16(0);
    writer.i32(0);
    writer.nullable_string(Some("load"), false);
    let frame = finish_request(writer);
    for mut stream in &streams {
        stream.write_all(&frame)?;
        let mut size = [0; 4];
        stream.read_exact(&mut size)?;
        let mut answer = vec![0; u32::from_be_bytes(size) as usize];
        stream.read_exact(&mut answer)?;
    }
    let after = Usage::of(pid)?;
    let grown = after.resident_bytes - before.resident_bytes;
    let mut report = Report::default();
    report.set("connections", streams.len() as f64);
    report.set("server_rss_before_mb", before.resident_bytes / 1e6);
    report.set("server_rss_mb", after.resident_bytes / 1e6);
    report.set("kb_per_connection", grown / 1e3 / streams.len() as f64);
    Ok(report)
}

/// Appends and `fdatasync`s, one after the other, to one file: what the disk gives without a broker.
fn bare(arguments: &Arguments) -> Result<Report, Failure> {
    let path = std::path::Path::new(arguments.text("directory")?).join("bare");
    let bytes: usize = arguments.number("bytes", 16384)?;
    let block = vec![7_u8; bytes];
    let mut file = std::fs::File::create(&path)?;
    let mut window = Window::new(arguments)?;
    let (mut writes, mut written_bytes) = (0, 0);
    let mut latencies_us = Vec::new();
    loop {
        let now = Instant::now();
        if window.is_over(now) {
            break;
        }
        let counts = window.is_open(now)?;
        file.write_all(&block)?;
        file.sync_data()?;
        if counts {
            writes += 1;
            written_bytes += bytes as u64;
            latencies_us.push(now.elapsed().as_micros() as u64);
        }
    }
    drop(file);
    std::fs::remove_file(&path)?;
    let mut report = window.report(writes, written_bytes)?;
    percentiles(&mut report, latencies_us);
    Ok(report)
}

/// As many connections as the machine allows.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls get a pointer to a live struct of the right type.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

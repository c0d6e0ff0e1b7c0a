//! Fetches of partitions from their beginning to their end, again and again: the header of each
//! answer's first batch is read, and the kernel drops the rest (`MSG_TRUNC`).

#![expect(unsafe_code, reason = "recv with MSG_TRUNC")]

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Instant;

use kafkalite::batch::header::BatchHeader;
use kafkalite::net::poller::{Event, Poller};
use kafkalite::wire::Reader;

use crate::Failure;
use crate::arguments::Arguments;
use crate::frames::{begin_request, finish_request};
use crate::measure::{Report, Window};
use crate::peers::interest;

const FETCH_VERSION: i16 = 12;
/// Header of a Fetch answer with one partition, up to its records, at most.
const FETCH_HEAD_BYTES: usize = 512;

pub fn fetch(arguments: &Arguments) -> Result<Report, Failure> {
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

//! Connections that do nothing.

use std::io::{Read, Write};

use kafkalite::wire::Writer;

use crate::Failure;
use crate::arguments::Arguments;
use crate::frames::finish_request;
use crate::measure::{Report, Usage};

/// What idle connections cost the broker; each has had one request answered.
pub fn idle(arguments: &Arguments) -> Result<Report, Failure> {
    let pid = arguments.number("pid", 0)?;
    let before = Usage::of(pid)?;
    let mut writer = Writer::with_capacity(32);
    writer.i32(0);
    writer.i16(18); // ApiVersions, version 0
    writer.i16(0);
    writer.i32(0);
    writer.nullable_string(Some("load"), false);
    let frame = finish_request(writer);
    let mut streams = Vec::new();
    for _ in 0..arguments.number("connections", 1)? {
        let mut stream = arguments.connect()?;
        // Answered before the next one comes: more than the listener's backlog at a time would have
        // to knock again, a second later.
        stream.write_all(&frame)?;
        let mut size = [0; 4];
        stream.read_exact(&mut size)?;
        let mut answer = vec![0; u32::from_be_bytes(size) as usize];
        stream.read_exact(&mut answer)?;
        streams.push(stream);
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

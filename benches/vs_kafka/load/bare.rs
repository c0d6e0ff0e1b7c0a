//! The disk without a broker.

use std::io::Write;
use std::time::Instant;

use crate::Failure;
use crate::arguments::Arguments;
use crate::measure::{Report, Window, percentiles};

/// Appends and `fdatasync`s, one after the other, to one file: what the
/// disk gives without a broker.
pub fn bare(arguments: &Arguments) -> Result<Report, Failure> {
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
    let mut report = window.report(writes, written_bytes)?;
    percentiles(&mut report, latencies_us);
    drop(file);
    std::fs::remove_file(&path)?;
    Ok(report)
}

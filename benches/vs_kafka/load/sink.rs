//! What a request costs before a broker does anything for it.

use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;

use kafkalite::net::poller::{Event, Poller, Readiness};

use crate::Failure;
use crate::arguments::Arguments;
use crate::measure::Report;

/// Where in a request, behind its size, the correlation id stands.
const CORRELATION_AT: usize = 8;
/// As long as the answer to a Produce request for one partition.
const ANSWER_BYTES: usize = 60;
/// The file is written again from its beginning on then, as a segment's pages are.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Takes one connection after the other and does for each request what the kernel must: wait,
/// receive, write `bytes` to a file (and `fdatasync` it if `sync` is 1), send. The client has one
/// request in flight. Prints its port and runs until it is killed.
pub fn sink(arguments: &Arguments) -> Result<Report, Failure> {
    let path = std::path::Path::new(arguments.text("directory")?).join("sink");
    let block = vec![7_u8; arguments.number("bytes", 170)?];
    let is_synced = arguments.number("sync", 0)? == 1;
    let mut file = std::fs::File::create(&path)?;
    let mut written_bytes = 0;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    let mut frame = vec![0; 64 << 10];
    let mut answer = [0; ANSWER_BYTES];
    answer[3] = ANSWER_BYTES as u8 - 4;
    let mut events: Vec<Event> = Vec::new();
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let readable = Readiness {
            readable: true,
            ..Readiness::default()
        };
        let mut poller = Poller::new()?;
        poller.add(stream.as_raw_fd(), 0, readable)?;
        loop {
            poller.wait(-1, &mut events)?;
            match stream.read(&mut frame) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(_) => break,
            }
            if written_bytes >= FILE_BYTES_MAX {
                file.seek(SeekFrom::Start(0))?;
                written_bytes = 0;
            }
            file.write_all(&block)?;
            written_bytes += block.len() as u64;
            if is_synced {
                file.sync_data()?;
            }
            answer[4..8].copy_from_slice(&frame[CORRELATION_AT..CORRELATION_AT + 4]);
            if stream.write_all(&answer).is_err() {
                break;
            }
        }
    }
}

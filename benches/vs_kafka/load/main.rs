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
//! load sink    directory=D bytes=170 sync=0          no broker either: what `repeat` can be pointed at
//! ```
//!
//! All take `seconds`, `warmup` (seconds that are not counted) and `pid`, the broker's process.
//! `fetch` expects a topic that `produce` filled by one shape: it reads the first batch's header of
//! each answer and drops the rest in the kernel (`MSG_TRUNC`).

#![expect(unsafe_code, reason = "the limit of descriptors is a system call")]

mod arguments;
mod bare;
mod closed_loop;
mod fetch;
mod frames;
mod idle;
mod latency;
mod measure;
mod peers;
mod produce;
mod repeat;
mod sink;

use arguments::Arguments;

type Failure = Box<dyn std::error::Error>;

fn main() {
    let mut words = std::env::args().skip(1);
    let mode = words.next().unwrap_or_default();
    let arguments = Arguments::of(words);
    raise_descriptor_limit();
    let done = match mode.as_str() {
        "produce" => produce::produce(&arguments),
        "fetch" => fetch::fetch(&arguments),
        "latency" => latency::latency(&arguments),
        "repeat" => repeat::repeat(&arguments),
        "idle" => idle::idle(&arguments),
        "bare" => bare::bare(&arguments),
        "sink" => sink::sink(&arguments),
        _ => Err("the first word is produce, fetch, latency, repeat, idle, bare or sink".into()),
    };
    match done {
        Ok(report) => println!("{}", report.json()),
        Err(error) => {
            eprintln!("load {mode}: {error}");
            std::process::exit(1);
        }
    }
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

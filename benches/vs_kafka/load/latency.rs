//! Produce requests of one record at a fixed rate.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use kafkalite::net::poller::Event;

use crate::Failure;
use crate::arguments::Arguments;
use crate::measure::{Report, Window, percentiles};
use crate::peers::Peers;
use crate::produce::{batch, check_produced, produce_frame};

/// Open loop: records are due at their times, whatever the broker does, and
/// latency counts from then.
pub fn latency(arguments: &Arguments) -> Result<Report, Failure> {
    let topic = arguments.text("topic")?;
    let partitions: i32 = arguments.number("partitions", 1)?;
    let batch = batch(1, arguments.number("record_bytes", 100)?)?;
    let interval = Duration::from_secs_f64(1.0 / arguments.number("rate", 1000.0)?);
    let mut peers = Peers::connect(arguments)?;
    let frames: Vec<Vec<u8>> = (0..partitions)
        .map(|partition| produce_frame(topic, partition, -1, &batch))
        .collect();
    let mut due_times: Vec<VecDeque<Instant>> = (0..peers.len()).map(|_| VecDeque::new()).collect();
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
            peers.at(index).outgoing.push_back(frame);
            due_times[index].push_back(next_due);
            if counts {
                late_us.push(now.duration_since(next_due).as_micros() as u64);
            }
            peers.send(index, &mut out)?;
            next_due += interval;
            number += 1;
        }
        out.clear();
        // Whole milliseconds would be coarse, so the last one is spent looking.
        let wait = next_due.saturating_duration_since(Instant::now());
        peers.wait(wait.as_millis() as i32, &mut events)?;
        let now = Instant::now();
        for event in &events {
            let index = event.token as usize;
            let due_times = &mut due_times[index];
            if event.readiness.writable {
                peers.send(index, &mut out)?;
            }
            peers.at(index).receive(|answer| {
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

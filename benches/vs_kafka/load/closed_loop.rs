//! A fixed number of requests under way on each connection: the next one
//! leaves when an answer comes.

use std::collections::VecDeque;
use std::time::Instant;

use kafkalite::net::poller::Event;
use kafkalite::wire::Reader;

use crate::Failure;
use crate::arguments::Arguments;
use crate::measure::{Report, Window};
use crate::peers::{Peer, Peers};

/// Where in a frame the correlation id stands.
const CORRELATION_AT: usize = 8;

/// The requests of one connection.
#[derive(Default)]
struct Lane {
    /// Correlation ids of those under way and when they were sent, oldest
    /// first; answers come in order.
    begun: VecDeque<(i32, Instant)>,
    /// Frames that are out and may be sent again.
    spare: Vec<Vec<u8>>,
}

/// Keeps `inflight` requests on each connection until the window is over. `request` gives the next
/// frame, made of one that is out if there is one; `check` judges an answer. Returns the report and
/// the latencies that count, microseconds.
pub fn closed_loop(
    arguments: &Arguments,
    mut request: impl FnMut(Option<Vec<u8>>) -> Vec<u8>,
    bytes_per_request: u64,
    mut check: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(Report, Vec<u64>), Failure> {
    let inflight: usize = arguments.number("inflight", 1)?;
    let mut peers = Peers::connect(arguments)?;
    let mut lanes: Vec<Lane> = (0..peers.len()).map(|_| Lane::default()).collect();
    let mut next_correlation = 0_i32;
    let mut ask = |peer: &mut Peer, lane: &mut Lane, now: Instant| {
        let mut frame = request(lane.spare.pop());
        stamp(&mut frame, next_correlation);
        lane.begun.push_back((next_correlation, now));
        next_correlation = next_correlation.wrapping_add(1);
        peer.outgoing.push_back(frame);
    };
    let mut window = Window::new(arguments)?;
    let (mut requests, mut latencies_us) = (0_u64, Vec::new());
    let mut events: Vec<Event> = Vec::new();
    for (index, lane) in lanes.iter_mut().enumerate() {
        for _ in 0..inflight {
            ask(peers.at(index), lane, Instant::now());
        }
        peers.send(index, &mut lane.spare)?;
    }
    loop {
        peers.wait(1_000, &mut events)?;
        let now = Instant::now();
        let counts = window.is_open(now)?;
        if window.is_over(now) {
            let report = window.report(requests, requests * bytes_per_request)?;
            return Ok((report, latencies_us));
        }
        for event in &events {
            let index = event.token as usize;
            let lane = &mut lanes[index];
            let mut answered = 0;
            if event.readiness.readable {
                peers.at(index).receive(|answer| {
                    let (correlation, since) =
                        lane.begun.pop_front().ok_or("an answer too many")?;
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
                ask(peers.at(index), lane, now);
            }
            peers.send(index, &mut lane.spare)?;
        }
    }
}

fn stamp(frame: &mut [u8], correlation: i32) {
    frame[CORRELATION_AT..CORRELATION_AT + 4].copy_from_slice(&correlation.to_be_bytes());
}

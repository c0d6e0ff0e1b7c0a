//! Any request again and again, given as it goes over the wire.

use crate::Failure;
use crate::arguments::Arguments;
use crate::closed_loop::closed_loop;
use crate::measure::{Report, percentiles};

/// One request over and over: what keeps a coordinator or a controller busy.
pub fn repeat(arguments: &Arguments) -> Result<Report, Failure> {
    let text = arguments.text("frame")?;
    let frame: Vec<u8> = (0..text.len() / 2)
        .map(|at| u8::from_str_radix(text.get(2 * at..2 * at + 2).unwrap_or(""), 16))
        .collect::<Result<_, _>>()?;
    let bytes = frame.len() as u64;
    let request = |spare: Option<Vec<u8>>| spare.unwrap_or_else(|| frame.clone());
    let (mut report, latencies) = closed_loop(arguments, request, bytes, |_| Ok(()))?;
    percentiles(&mut report, latencies);
    Ok(report)
}

//! Why a connection is ended that its client has left open, and what the log says of it.

use std::net::SocketAddr;

use crate::error::Error;
use crate::limits::REFUSAL_NOTICE_MS;

/// Why no more is read of a connection.
#[derive(Debug)]
pub enum DisconnectReason {
    /// The client has gone: nobody's fault, and no word in the log.
    Gone,
    /// Records with acks 0 were refused: the end is all that their producer hears of it.
    Unheard(Error),
    /// A request of the client cannot be answered.
    Refused(Error),
}

impl From<Error> for DisconnectReason {
    fn from(error: Error) -> DisconnectReason {
        DisconnectReason::Refused(error)
    }
}

impl DisconnectReason {
    /// The sentence for the log, if any.
    fn sentence(&self, peer: SocketAddr) -> Option<String> {
        match self {
            DisconnectReason::Gone => None,
            DisconnectReason::Unheard(error) => {
                Some(format!("Produce of {peer} with acks=0 refused: {error}"))
            }
            DisconnectReason::Refused(error) => {
                Some(format!("a request of {peer} refused: {error}"))
            }
        }
    }
}

/// One line in so much time of what clients are refused for, so that one that sends nothing but
/// garbage does not fill the disk; the next line says how many were left out. `Repeated`
/// (`python/kafkalite/service/repeated.py`) is the same for the keys that Python answers.
#[derive(Default)]
pub struct Refusals {
    due_ms: u64,
    left_out: u64,
}

impl Refusals {
    /// The line to be written now, if one is due. `now_ms` is monotonic.
    pub fn line(
        &mut self,
        peer: SocketAddr,
        end: &DisconnectReason,
        now_ms: u64,
    ) -> Option<String> {
        if now_ms < self.due_ms {
            self.left_out += u64::from(!matches!(end, DisconnectReason::Gone));
            return None;
        }
        let mut line = end.sentence(peer)?;
        self.due_ms = now_ms + REFUSAL_NOTICE_MS;
        match std::mem::take(&mut self.left_out) {
            0 => {}
            left_out => line += &format!(" (and {left_out} more since the last such line)"),
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_one_line_a_second_and_a_count_and_who_goes_is_none() {
        let peer = SocketAddr::from(([127, 0, 0, 1], 40_000));
        let mut refusals = Refusals::default();
        let mut lines = Vec::new();
        for now_ms in (5_000..7_500).step_by(10) {
            lines.extend(refusals.line(peer, &DisconnectReason::Gone, now_ms));
            let refused = DisconnectReason::Refused(Error::InvalidArgument(format!("at {now_ms}")));
            lines.extend(refusals.line(peer, &refused, now_ms));
        }
        let more = "(and 99 more since the last such line)";
        let expected = [
            "a request of 127.0.0.1:40000 refused: at 5000".to_owned(),
            format!("a request of 127.0.0.1:40000 refused: at 6000 {more}"),
            format!("a request of 127.0.0.1:40000 refused: at 7000 {more}"),
        ];
        assert_eq!(lines, expected);
    }
}

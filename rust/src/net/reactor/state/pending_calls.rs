//! The storage calls of a round that have yet to be made: what was produced, collected to a call a
//! log directory (`append_batch`), and others in the order in which they came.

use std::collections::VecDeque;

use crate::limits::WORKS_PER_ROUND;
use crate::net::storage_call::StorageCall;
use crate::net::storage_call::append_batch::{AppendBatch, PendingAppends, Source};

#[derive(Default)]
pub struct PendingCalls {
    appends: PendingAppends,
    calls: VecDeque<StorageCall>,
}

impl PendingCalls {
    pub fn is_empty(&self) -> bool {
        self.appends.is_empty() && self.calls.is_empty()
    }

    /// Calls wait beside what is still collected.
    pub fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    pub fn push(&mut self, call: StorageCall) {
        self.calls.push_back(call);
    }

    /// As `PendingAppends::add`.
    pub fn stage(&mut self, source: Source, buffer: &[u8], start: usize, length: usize) {
        self.appends.add(source, buffer, start, length);
    }

    /// As `PendingAppends::end_buffer`.
    pub fn end_buffer(&mut self, buffer: Vec<u8>) -> Option<Vec<u8>> {
        self.appends.end_buffer(buffer)
    }

    /// Something of the buffer that is being read was staged.
    pub fn has_buffer(&self) -> bool {
        self.appends.has_buffer()
    }

    /// So much is staged that it has to be written, even in mid-round.
    pub fn are_appends_full(&self) -> bool {
        self.appends.is_full()
    }

    /// So much waits that calls have to be made, even in mid-round.
    pub fn are_due(&self) -> bool {
        self.appends.is_full() || self.calls.len() >= WORKS_PER_ROUND
    }

    /// Ends the batches of what was produced.
    pub fn take_appends(&mut self) -> Vec<AppendBatch> {
        self.appends.take()
    }

    /// Puts what was produced first, since a Fetch of the same round gives it, but behind what was
    /// produced before: with several log directories some of a full appends may wait here still.
    pub fn put_append(&mut self, batch: AppendBatch) {
        let is_append = |each: &&StorageCall| matches!(each, StorageCall::Append(_));
        let at = self.calls.iter().take_while(is_append).count();
        self.calls.insert(at, StorageCall::Append(batch));
    }

    pub fn next(&mut self) -> Option<StorageCall> {
        self.calls.pop_front()
    }

    /// Drops the calls for a connection that is gone.
    pub fn cancel(&mut self, connection: u64) {
        for _ in 0..self.calls.len() {
            match self.calls.pop_front() {
                Some(call) if call.is_for(connection) => call.cancel(),
                Some(call) => self.calls.push_back(call),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

    use super::*;
    use crate::net::outbox::Outbox;
    use crate::net::transport::Transport;

    /// Appends were full in mid-round: one directory's batch was made and the other's was
    /// not. The next full appends went in front of that, and so did requests of a
    /// connection that were later.
    #[test]
    fn what_is_produced_later_is_appended_later_and_before_other_calls() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let stream = TcpStream::connect(address).expect("a connection");
        let mut calls = PendingCalls::default();
        calls.push(StorageCall::Send {
            connection: 0,
            transport: Arc::new(Transport::Plain(stream)),
            outbox: Outbox::default(),
        });
        for directory in 0..3 {
            let batch = AppendBatch {
                directory,
                ..AppendBatch::default()
            };
            calls.put_append(batch);
        }
        let directory_of = |each: StorageCall| match each {
            StorageCall::Append(batch) => Some(batch.directory),
            _ => None,
        };
        let order = std::iter::from_fn(|| calls.next()).map(directory_of);
        assert_eq!(order.collect::<Vec<_>>(), [Some(0), Some(1), Some(2), None]);
    }
}

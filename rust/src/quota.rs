//! How long a client is held back (KIP-13, KIP-124, KIP-219): the answer leaves at once and says
//! how long, and the connection is not read for that time. Asked by the hot handlers where Kafka
//! asks; until quotas can be set, nobody is held back.

use crate::access::Caller;

/// Records what a request used and says for how many milliseconds its client has to wait.
pub trait Quotas: Send + Sync {
    /// A Produce request of so many bytes.
    fn produced(&self, caller: &Caller<'_>, size_bytes: usize, now_ms: u64) -> u32;
    /// A Fetch answer with so many bytes; if the client has to wait, the
    /// answer is made empty instead.
    fn fetched(&self, caller: &Caller<'_>, size_bytes: usize, now_ms: u64) -> u32;
    /// Any request, by the share of time that its answer took.
    fn requested(&self, caller: &Caller<'_>, api_key: i16, now_ms: u64) -> u32;
}

/// Nobody waits.
pub struct Unlimited;

impl Quotas for Unlimited {
    fn produced(&self, _: &Caller<'_>, _: usize, _: u64) -> u32 {
        0
    }

    fn fetched(&self, _: &Caller<'_>, _: usize, _: u64) -> u32 {
        0
    }

    fn requested(&self, _: &Caller<'_>, _: i16, _: u64) -> u32 {
        0
    }
}

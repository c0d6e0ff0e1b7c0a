//! Every bound of the engine in one place, with its unit and what happens at the bound.

/// A record batch in any format is refused as corrupt when its length field says more, bytes.
/// Kafka has no such bound below the 2 GiB of its `int`; sizes are checked before anything is
/// allocated for them.
pub const BATCH_BYTES_MAX: usize = 1 << 30;

/// What one batch may inflate to, bytes; beyond it the batch is refused as invalid. Kafka streams
/// without a bound and so can be made to run out of memory (CVE-2023-34455).
pub const INFLATED_BYTES_MAX: usize = 1 << 30;

/// Ratio of inflated to compressed bytes above which a batch over 16 MiB is called a bomb.
pub const INFLATION_RATIO_MAX: usize = 4096;

/// Bytes read from a segment at once while its batches are scanned (recovery, look-up), bytes.
pub const SCAN_CHUNK_BYTES: usize = 256 * 1024;

/// Batches that the idempotence window remembers for a producer (`ProducerStateEntry`).
pub const PRODUCER_BATCHES_MAX: usize = 5;

/// Default of `kafkalite.open.segments.max`: descriptors (and maps) held for segments.
pub const OPEN_SEGMENTS_MAX: usize = 1024;

/// Appends written by one `pwritev`; more are split. Linux allows 1,024 vectors a call.
pub const APPEND_VECTORS_MAX: usize = 1024;

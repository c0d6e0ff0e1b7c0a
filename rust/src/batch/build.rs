//! Makes batches of magic 2, as `MemoryRecordsBuilder` does: for the cleaner, the recompressing
//! validator, the client and tests; and the end transaction markers that coordinators append.
//!
//! The base timestamp is that of the first record (or the delete horizon, KIP-534), the other
//! timestamps and offsets are deltas from the base. A marker is a control batch of one record:
//!
//! ```text
//! attributes  transactional + control        base_sequence  -1
//! key         version i16 = 0, type i16: 0 abort, 1 commit
//! value       version i16 = 0, coordinator_epoch i32
//! ```
//!
//! Since transaction version 2 (KIP-890) a marker carries the producer's epoch as the coordinator
//! has bumped it; its bytes are the same.

use super::compression::{self, Codec, Deflation};
use super::control::EndTransactionMarker;
use super::header::{
    ATTRIBUTES_AT, BASE_SEQUENCE_AT, BASE_TIMESTAMP_AT, BatchHeader, CRC_AT, LAST_OFFSET_DELTA_AT,
    LENGTH_AT, LOG_OVERHEAD, MAGIC_AT, MAX_TIMESTAMP_AT, NO_LEADER_EPOCH, NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, PRODUCER_EPOCH_AT, PRODUCER_ID_AT,
    RECORD_BATCH_OVERHEAD, RECORDS_COUNT_AT, TimestampType, compute_crc, patch_offset_and_epoch,
};
use super::record::Record;
use super::varint::{varlong_bytes, write_varint, write_varlong};
use crate::error::{Error, Result};
use crate::limits::{BATCH_BYTES_MAX, INFLATE_WINDOW_BYTES};

/// The attributes that a batch gives to all its records. The default is a plain batch of a producer
/// without idempotence, at offset 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    pub codec: Codec,
    /// As `compression.*.level`; `None` is the codec's default.
    pub level: Option<i32>,
    pub base_offset: i64,
    pub partition_leader_epoch: i32,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub transactional: bool,
    pub control: bool,
    /// LogAppendTime: every record's time is this, milliseconds.
    pub log_append_time_ms: Option<i64>,
    /// Set by the cleaner on tombstones and markers (KIP-534), milliseconds.
    pub delete_horizon_ms: Option<i64>,
}

impl Default for BatchOptions {
    fn default() -> BatchOptions {
        BatchOptions {
            codec: Codec::None,
            level: None,
            base_offset: 0,
            partition_leader_epoch: NO_LEADER_EPOCH,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            base_sequence: NO_SEQUENCE,
            transactional: false,
            control: false,
            log_append_time_ms: None,
            delete_horizon_ms: None,
        }
    }
}

impl BatchOptions {
    /// The options under which a batch keeps everything that `header` says: what the cleaner
    /// needs to write a batch again. Errors: `UnsupportedCompression`.
    pub fn of(header: &BatchHeader) -> Result<BatchOptions> {
        Ok(BatchOptions {
            codec: Codec::from_id(header.codec_id())?,
            ..BatchOptions::of_uncompressed(header)
        })
    }

    /// Options that keep what `header` says, without a codec.
    fn of_uncompressed(header: &BatchHeader) -> BatchOptions {
        let log_append_time = header.timestamp_type() == TimestampType::LogAppendTime;
        BatchOptions {
            codec: Codec::None,
            level: None,
            base_offset: header.base_offset,
            partition_leader_epoch: header.partition_leader_epoch,
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
            transactional: header.is_transactional(),
            control: header.is_control(),
            log_append_time_ms: log_append_time.then_some(header.max_timestamp),
            delete_horizon_ms: header.delete_horizon_ms(),
        }
    }

    fn attributes(&self) -> i16 {
        i16::from(self.codec.id())
            | i16::from(self.log_append_time_ms.is_some()) << 3
            | i16::from(self.transactional) << 4
            | i16::from(self.control) << 5
            | i16::from(self.delete_horizon_ms.is_some()) << 6
    }
}

/// Collects records and makes one batch of them. Records may be appended with gaps in their
/// offsets (the cleaner leaves such), never backwards.
#[derive(Debug)]
pub struct BatchBuilder {
    options: BatchOptions,
    /// The batch so far: room for the header, then records, not compressed; of a large batch with
    /// a codec the last of them.
    batch: Vec<u8>,
    /// The records before those, compressed.
    deflation: Option<Deflation>,
    deflated_bytes: usize,
    records_count: i32,
    /// Bytes of the last record that are still to be pushed.
    body_left_bytes: usize,
    next_offset: i64,
    last_offset: Option<i64>,
    base_timestamp: Option<i64>,
    max_timestamp: i64,
}

impl BatchBuilder {
    pub fn new(options: BatchOptions) -> BatchBuilder {
        BatchBuilder::with_buffer(options, Vec::new())
    }

    /// As `new`, in memory that the caller has; its content is lost, [`finish`](Self::finish)
    /// gives it back with the batch in it if there is no codec.
    pub fn with_buffer(options: BatchOptions, mut buffer: Vec<u8>) -> BatchBuilder {
        buffer.clear();
        buffer.resize(RECORD_BATCH_OVERHEAD, 0);
        BatchBuilder {
            next_offset: options.base_offset,
            base_timestamp: options.delete_horizon_ms,
            options,
            batch: buffer,
            deflation: None,
            deflated_bytes: 0,
            records_count: 0,
            body_left_bytes: 0,
            last_offset: None,
            max_timestamp: NO_TIMESTAMP,
        }
    }

    pub fn codec(&self) -> Codec {
        self.options.codec
    }

    pub fn records_count(&self) -> i32 {
        self.records_count
    }

    /// Bytes of the batch so far, before compression.
    pub fn size_bytes(&self) -> usize {
        self.batch.len() + self.deflated_bytes
    }

    /// Bytes that the finished batch has at least.
    pub fn finished_bytes_min(&self) -> usize {
        match (&self.deflation, self.options.codec) {
            (_, Codec::None) => self.batch.len(),
            (None, _) => RECORD_BATCH_OVERHEAD,
            (Some(deflation), _) => RECORD_BATCH_OVERHEAD + deflation.size_bytes(),
        }
    }

    /// Appends a record at the next offset. `timestamp` in milliseconds; headers are pairs of key
    /// and value. Errors: `InvalidArgument` beyond the format's bounds.
    pub fn append(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Result<()> {
        let mut bytes = Vec::new();
        for (key, value) in headers {
            write_slice(&mut bytes, Some(key));
            write_slice(&mut bytes, *value);
        }
        self.append_encoded(
            self.next_offset,
            timestamp,
            key,
            value,
            headers.len(),
            &bytes,
        )
    }

    /// Appends a record that was read from another batch, at the offset that it has.
    pub fn append_record(&mut self, record: &Record<'_>) -> Result<()> {
        self.append_encoded(
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            record.headers.count(),
            record.headers.raw_bytes(),
        )
    }

    /// Appends a record whose headers are encoded already (`Headers::raw_bytes`), at `offset`.
    pub fn append_encoded(
        &mut self,
        offset: i64,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers_count: usize,
        headers: &[u8],
    ) -> Result<()> {
        let body_bytes = slice_bytes(key)
            + slice_bytes(value)
            + varlong_bytes(headers_count as i64)
            + headers.len();
        self.begin_record(offset, timestamp, body_bytes)?;
        self.batch.reserve(body_bytes);
        write_slice(&mut self.batch, key);
        write_slice(&mut self.batch, value);
        write_varint(&mut self.batch, headers_count as i32);
        self.batch.extend_from_slice(headers);
        self.body_left_bytes = 0;
        self.deflate_if_large()
    }

    /// Begins a record that is not at hand as a whole. Its body, `body_bytes` of key, value and
    /// headers as they are encoded, is to follow by `push_body`.
    pub(super) fn begin_record(
        &mut self,
        offset: i64,
        timestamp: i64,
        body_bytes: usize,
    ) -> Result<()> {
        assert_eq!(self.body_left_bytes, 0, "the record before is not whole");
        if self.last_offset.is_some_and(|last| offset <= last) || offset < self.options.base_offset
        {
            return Err(Error::InvalidArgument(format!(
                "offset {offset} does not follow the batch's {:?}",
                self.last_offset
            )));
        }
        let offset_delta = i32::try_from(offset - self.options.base_offset)
            .map_err(|_| Error::InvalidArgument(format!("offset {offset} is too far")))?;
        let base_timestamp = *self.base_timestamp.get_or_insert(timestamp);
        let timestamp_delta = timestamp.wrapping_sub(base_timestamp);
        let length = 1
            + varlong_bytes(timestamp_delta)
            + varlong_bytes(i64::from(offset_delta))
            + body_bytes;
        if self.size_bytes() + length + 5 > BATCH_BYTES_MAX {
            return Err(Error::InvalidArgument(format!(
                "a batch of more than {BATCH_BYTES_MAX} bytes"
            )));
        }
        write_varint(&mut self.batch, length as i32);
        self.batch.push(0);
        write_varlong(&mut self.batch, timestamp_delta);
        write_varint(&mut self.batch, offset_delta);
        self.body_left_bytes = body_bytes;
        self.records_count += 1;
        self.last_offset = Some(offset);
        self.next_offset = offset + 1;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        Ok(())
    }

    /// Adds the next part of the record that was begun.
    pub(super) fn push_body(&mut self, part: &[u8]) -> Result<()> {
        assert!(
            part.len() <= self.body_left_bytes,
            "more than the record has"
        );
        self.body_left_bytes -= part.len();
        self.batch.extend_from_slice(part);
        self.deflate_if_large()
    }

    fn deflate_if_large(&mut self) -> Result<()> {
        if self.batch.len() > INFLATE_WINDOW_BYTES && self.options.codec != Codec::None {
            self.deflate_part()?;
        }
        Ok(())
    }

    /// Compresses the records so far, so that they are not held as they are.
    #[cold]
    fn deflate_part(&mut self) -> Result<()> {
        let BatchOptions { codec, level, .. } = self.options;
        let deflation = match &mut self.deflation {
            Some(deflation) => deflation,
            none => none.insert(Deflation::begin(codec, level, INFLATE_WINDOW_BYTES)?),
        };
        let pushed = deflation.push(&self.batch[RECORD_BATCH_OVERHEAD..])?;
        assert!(RECORD_BATCH_OVERHEAD + pushed <= self.batch.len());
        self.batch
            .drain(RECORD_BATCH_OVERHEAD..RECORD_BATCH_OVERHEAD + pushed);
        self.deflated_bytes += pushed;
        Ok(())
    }

    /// The batch. A batch without records is made too: see [`empty_batch`] for its use.
    ///
    /// Errors: `InvalidArgument` for a level that the codec does not have.
    pub fn finish(self) -> Result<Vec<u8>> {
        let last_offset = self.last_offset.unwrap_or(self.options.base_offset);
        self.finish_with_last_offset(last_offset)
    }

    /// As `finish`, with a last offset beyond the last record's: the cleaner keeps a batch's range
    /// of offsets when its last records go (`overrideLastOffset`).
    pub fn finish_with_last_offset(self, last_offset: i64) -> Result<Vec<u8>> {
        assert_eq!(self.body_left_bytes, 0, "the last record is not whole");
        let first = self.last_offset.unwrap_or(self.options.base_offset);
        let delta = i32::try_from(last_offset - self.options.base_offset);
        let (Ok(last_offset_delta), true) = (delta, last_offset >= first) else {
            return Err(Error::InvalidArgument(format!(
                "last offset {last_offset} of a batch whose last record is at {first}"
            )));
        };
        let mut batch = self.batch;
        if self.options.codec != Codec::None {
            let records = &batch[RECORD_BATCH_OVERHEAD..];
            let records = match self.deflation {
                Some(deflation) => deflation.finish(records)?,
                None => compression::compress(self.options.codec, self.options.level, records)?,
            };
            batch.truncate(RECORD_BATCH_OVERHEAD);
            batch.extend_from_slice(&records);
        }
        let fields = Fields {
            last_offset_delta,
            base_timestamp: self.base_timestamp.unwrap_or(NO_TIMESTAMP),
            max_timestamp: self
                .options
                .log_append_time_ms
                .unwrap_or(self.max_timestamp),
            records_count: self.records_count,
        };
        write_header(&mut batch, &self.options, &fields);
        Ok(batch)
    }
}

/// A batch of nothing but its header: what the cleaner leaves where the last sequence of a
/// producer has to survive its records (`DefaultRecordBatch.writeEmptyHeader`).
pub fn empty_batch(header: &BatchHeader) -> Vec<u8> {
    let mut batch = vec![0; RECORD_BATCH_OVERHEAD];
    let options = BatchOptions {
        delete_horizon_ms: None,
        ..BatchOptions::of_uncompressed(header)
    };
    let fields = Fields {
        last_offset_delta: header.last_offset_delta,
        base_timestamp: NO_TIMESTAMP,
        max_timestamp: header.max_timestamp,
        records_count: 0,
    };
    write_header(&mut batch, &options, &fields);
    batch
}

/// The control batch that ends a transaction (`MemoryRecords.withEndTransactionMarker`), 78 bytes,
/// at offset 0 until the log gives it one.
pub fn end_transaction_marker(
    timestamp_ms: i64,
    producer_id: i64,
    producer_epoch: i16,
    marker: EndTransactionMarker,
) -> Vec<u8> {
    let [e0, e1, e2, e3] = marker.coordinator_epoch.to_be_bytes();
    let key = [0, 0, 0, u8::from(marker.is_commit)];
    let value = [0, 0, e0, e1, e2, e3];
    let options = BatchOptions {
        producer_id,
        producer_epoch,
        transactional: true,
        control: true,
        ..BatchOptions::default()
    };
    let mut batch = vec![0; RECORD_BATCH_OVERHEAD];
    // Length, attributes, timestamp delta, offset delta, key, value, no headers.
    batch.extend_from_slice(&[32, 0, 0, 0]);
    write_slice(&mut batch, Some(&key));
    write_slice(&mut batch, Some(&value));
    batch.push(0);
    let fields = Fields {
        last_offset_delta: 0,
        base_timestamp: timestamp_ms,
        max_timestamp: timestamp_ms,
        records_count: 1,
    };
    write_header(&mut batch, &options, &fields);
    batch
}

/// Makes a finished batch of magic 2 one of an idempotent producer: a client knows the sequence
/// only when it sends. Errors: `InvalidArgument` for what is no such batch.
pub fn stamp_producer(
    batch: &mut [u8],
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
) -> Result<()> {
    let header = BatchHeader::parse(batch)?;
    if !header.is_some_and(|header| header.magic == 2 && header.size_bytes == batch.len()) {
        return Err(Error::InvalidArgument(String::from(
            "only a whole batch of magic 2 has a producer",
        )));
    }
    put(batch, PRODUCER_ID_AT, producer_id.to_be_bytes());
    put(batch, PRODUCER_EPOCH_AT, producer_epoch.to_be_bytes());
    put(batch, BASE_SEQUENCE_AT, base_sequence.to_be_bytes());
    let crc = compute_crc(batch);
    put(batch, CRC_AT, crc.to_be_bytes());
    Ok(())
}

/// The header's fields that only the records know.
struct Fields {
    last_offset_delta: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    records_count: i32,
}

/// Fills the first 61 bytes of `batch`, whose records are in place, with the CRC last.
fn write_header(batch: &mut [u8], options: &BatchOptions, fields: &Fields) {
    patch_offset_and_epoch(batch, options.base_offset, options.partition_leader_epoch);
    let length = (batch.len() - LOG_OVERHEAD) as i32;
    put(batch, LENGTH_AT, length.to_be_bytes());
    put(batch, MAGIC_AT, [2]);
    put(batch, ATTRIBUTES_AT, options.attributes().to_be_bytes());
    put(
        batch,
        LAST_OFFSET_DELTA_AT,
        fields.last_offset_delta.to_be_bytes(),
    );
    put(
        batch,
        BASE_TIMESTAMP_AT,
        fields.base_timestamp.to_be_bytes(),
    );
    put(batch, MAX_TIMESTAMP_AT, fields.max_timestamp.to_be_bytes());
    put(batch, PRODUCER_ID_AT, options.producer_id.to_be_bytes());
    put(
        batch,
        PRODUCER_EPOCH_AT,
        options.producer_epoch.to_be_bytes(),
    );
    put(batch, BASE_SEQUENCE_AT, options.base_sequence.to_be_bytes());
    put(batch, RECORDS_COUNT_AT, fields.records_count.to_be_bytes());
    let crc = compute_crc(batch);
    put(batch, CRC_AT, crc.to_be_bytes());
}

fn put<const N: usize>(batch: &mut [u8], at: usize, field: [u8; N]) {
    batch[at..at + N].copy_from_slice(&field);
}

fn write_slice(output: &mut Vec<u8>, slice: Option<&[u8]>) {
    match slice {
        None => write_varint(output, -1),
        Some(slice) => {
            write_varint(output, slice.len() as i32);
            output.extend_from_slice(slice);
        }
    }
}

fn slice_bytes(slice: Option<&[u8]>) -> usize {
    match slice {
        None => 1,
        Some(slice) => varlong_bytes(slice.len() as i64) + slice.len(),
    }
}

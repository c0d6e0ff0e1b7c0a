//! Headers of batches and markers, and a state that takes them as an append does.

use kafkalite::batch::BatchHeader;
use kafkalite::batch::{AppendOrigin, EndTransactionMarker};
use kafkalite::error::Result;
use kafkalite::log::state::producers::{BatchOutcome, CompletedTransaction, ProducerState};

const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
pub const DAY_MS: i64 = 86_400_000;

pub fn batch(producer_id: i64, epoch: i16, sequence: i32, offset: i64, count: i32) -> BatchHeader {
    BatchHeader {
        base_offset: offset,
        size_bytes: 100,
        partition_leader_epoch: 0,
        magic: 2,
        crc: 0,
        attributes: 0,
        last_offset_delta: count - 1,
        base_timestamp: offset * 10,
        max_timestamp: offset * 10,
        producer_id,
        producer_epoch: epoch,
        base_sequence: sequence,
        records_count: count,
    }
}

pub fn transactional(mut header: BatchHeader) -> BatchHeader {
    header.attributes |= TRANSACTIONAL;
    header
}

pub fn marker(producer_id: i64, epoch: i16, offset: i64) -> BatchHeader {
    let mut header = transactional(batch(producer_id, epoch, -1, offset, 1));
    header.attributes |= CONTROL;
    header
}

pub const COMMIT: EndTransactionMarker = EndTransactionMarker {
    is_commit: true,
    coordinator_epoch: 0,
};

pub const ABORT: EndTransactionMarker = EndTransactionMarker {
    is_commit: false,
    coordinator_epoch: 0,
};

/// A state with the calls of one append in one.
#[derive(Default)]
pub struct Partition {
    pub state: ProducerState,
}

impl Partition {
    pub fn send(&mut self, header: BatchHeader) -> Result<BatchOutcome> {
        self.append(header, AppendOrigin::Client, None, None)
    }

    pub fn end(
        &mut self,
        header: BatchHeader,
        version: i16,
        marker: EndTransactionMarker,
    ) -> Result<Option<CompletedTransaction>> {
        let origin = AppendOrigin::Coordinator;
        match self.append(header, origin, Some(version), Some(marker))? {
            BatchOutcome::Append { completed } => Ok(completed),
            duplicate => panic!("a marker is no duplicate: {duplicate:?}"),
        }
    }

    pub fn append(
        &mut self,
        header: BatchHeader,
        origin: AppendOrigin,
        version: Option<i16>,
        marker: Option<EndTransactionMarker>,
    ) -> Result<BatchOutcome> {
        let mut pending = self.state.prepare();
        let outcome =
            self.state
                .prepare_batch(&mut pending, &header, origin, version, marker, None)?;
        if let BatchOutcome::Append { .. } = outcome {
            self.state.commit(pending, header.next_offset());
        }
        Ok(outcome)
    }

    pub fn unstable(&self) -> Option<i64> {
        self.state
            .first_unstable_offset()
            .map(|unstable| unstable.offset)
    }
}

pub const APPENDED: BatchOutcome = BatchOutcome::Append { completed: None };

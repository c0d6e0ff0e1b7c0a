//! Control records: markers that coordinators and KRaft write between the records of producers.
//!
//! A control record's key is version i16 and type i16, its value version i16 and fields.

use crate::error::{Error, Result};

/// How a transaction ended (`EndTransactionMarker`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTransactionMarker {
    pub is_commit: bool,
    pub coordinator_epoch: i32,
}

/// The kinds of control records (`ControlRecordType`). The values of the KRaft ones are messages of
/// their own and left to whoever reads `__cluster_metadata`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRecord {
    EndTransaction(EndTransactionMarker),
    LeaderChange,
    SnapshotHeader,
    SnapshotFooter,
    KraftVersion,
    KraftVoters,
    Unknown { type_id: i16 },
}

impl ControlRecord {
    /// Errors: `InvalidRecord` for a key or marker value that is null, short or of a negative
    /// version. Newer versions are read as version 0.
    pub fn parse(key: Option<&[u8]>, value: Option<&[u8]>) -> Result<ControlRecord> {
        let Some(&[v0, v1, t0, t1, ..]) = key else {
            return Err(Error::InvalidRecord(String::from(
                "the key of a control record has fewer than 4 bytes",
            )));
        };
        if i16::from_be_bytes([v0, v1]) < 0 {
            return Err(Error::InvalidRecord(String::from(
                "a control record has a negative version",
            )));
        }
        Ok(match i16::from_be_bytes([t0, t1]) {
            type_id @ (0 | 1) => ControlRecord::EndTransaction(EndTransactionMarker {
                is_commit: type_id == 1,
                coordinator_epoch: parse_end_transaction(value)?,
            }),
            2 => ControlRecord::LeaderChange,
            3 => ControlRecord::SnapshotHeader,
            4 => ControlRecord::SnapshotFooter,
            5 => ControlRecord::KraftVersion,
            6 => ControlRecord::KraftVoters,
            type_id => ControlRecord::Unknown { type_id },
        })
    }
}

fn parse_end_transaction(value: Option<&[u8]>) -> Result<i32> {
    let Some(&[v0, v1, e0, e1, e2, e3, ..]) = value else {
        return Err(Error::InvalidRecord(String::from(
            "the value of an end transaction marker has fewer than 6 bytes",
        )));
    };
    if i16::from_be_bytes([v0, v1]) < 0 {
        return Err(Error::InvalidRecord(String::from(
            "an end transaction marker has a negative version",
        )));
    }
    Ok(i32::from_be_bytes([e0, e1, e2, e3]))
}

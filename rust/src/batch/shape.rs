//! The shape of a partition's part of a Produce request from outside, by sizes, magic and
//! attributes alone: one batch of magic 2 (`ProduceRequest.validateRecords`). `k00_produce/` asks
//! before it is known which log the records are for, since Kafka refuses in that order, and without
//! a sentence where Kafka has none; `validate/` asks for whoever appends in another way.

use super::compression::Codec;
use super::header::{
    ATTRIBUTES_AT, CODEC_MASK, LENGTH_AT, LENGTH_MIN, LOG_OVERHEAD, MAGIC_AT, TRANSACTIONAL,
};
use crate::error::Error;

/// The beginning of records (`ByteBufferLogInputStream`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leading {
    /// A batch of so many bytes.
    Batch(usize),
    /// Nothing, or less than a batch.
    End,
    Corrupt,
}

/// Why records are not one batch that may be produced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misshapen {
    /// The bytes are no batch: CORRUPT_MESSAGE.
    Corrupt,
    /// INVALID_RECORD, and the sentence.
    Invalid(&'static str),
    /// UNSUPPORTED_COMPRESSION_TYPE.
    Zstd,
}

impl Misshapen {
    pub fn into_error(self) -> Error {
        match self {
            Misshapen::Corrupt => Error::CorruptMessage("the records are no batch".to_owned()),
            Misshapen::Invalid(sentence) => Error::InvalidRecord(sentence.to_owned()),
            Misshapen::Zstd => {
                Error::UnsupportedCompression("zstd needs version 7 of Produce".to_owned())
            }
        }
    }
}

pub fn leading(records: &[u8]) -> Leading {
    let field = records.get(LENGTH_AT..).and_then(|rest| rest.first_chunk());
    let Some(length) = field.copied().map(i32::from_be_bytes) else {
        return Leading::End;
    };
    if length < LENGTH_MIN {
        return Leading::Corrupt;
    }
    match records.get(MAGIC_AT) {
        None => return Leading::End,
        Some(0..=2) => {}
        Some(_) => return Leading::Corrupt,
    }
    let size = LOG_OVERHEAD + usize::try_from(length).unwrap_or(usize::MAX >> 1);
    if size <= records.len() {
        Leading::Batch(size)
    } else {
        Leading::End
    }
}

/// Checks that records are one batch that may be produced. `takes_zstd`: false before version 7.
pub fn check_produced(records: &[u8], takes_zstd: bool) -> Result<(), Misshapen> {
    let size = match leading(records) {
        Leading::Batch(size) => size,
        Leading::Corrupt => return Err(Misshapen::Corrupt),
        Leading::End => {
            return Err(Misshapen::Invalid(
                "a produced partition has no record batch",
            ));
        }
    };
    check_magic(records)?;
    if !takes_zstd && attributes(records) & CODEC_MASK == i16::from(Codec::Zstd.id()) {
        return Err(Misshapen::Zstd);
    }
    match leading(records.get(size..).unwrap_or_default()) {
        Leading::End => Ok(()),
        Leading::Corrupt => Err(Misshapen::Corrupt),
        Leading::Batch(_) => Err(Misshapen::Invalid(
            "a produced partition has more than one record batch",
        )),
    }
}

/// Checks the records of a coordinator, which may bring several batches.
pub fn check_coordinated(records: &[u8]) -> Result<(), Misshapen> {
    match leading(records) {
        Leading::Batch(_) => check_magic(records),
        Leading::Corrupt => Err(Misshapen::Corrupt),
        Leading::End => Err(Misshapen::Invalid("the records hold no batch")),
    }
}

/// The first batch says that it belongs to a transaction.
pub fn is_transactional(records: &[u8]) -> bool {
    attributes(records) & TRANSACTIONAL != 0
}

fn check_magic(records: &[u8]) -> Result<(), Misshapen> {
    match records.get(MAGIC_AT) {
        Some(2) => Ok(()),
        _ => Err(Misshapen::Invalid("a produced batch is not of magic 2")),
    }
}

/// The attributes of the first batch; 0 if there is none.
fn attributes(records: &[u8]) -> i16 {
    let field = records
        .get(ATTRIBUTES_AT..)
        .and_then(|rest| rest.first_chunk());
    match (records.get(MAGIC_AT), field) {
        (Some(2), Some(attributes)) => i16::from_be_bytes(*attributes),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, BatchOptions};

    fn batch(codec: Codec) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions {
            codec,
            ..BatchOptions::default()
        });
        builder.append(0, None, Some(b"x"), &[]).expect("a record");
        builder.finish().expect("a batch")
    }

    #[test]
    fn zstd_is_taken_from_version_7_on() {
        assert_eq!(
            check_produced(&batch(Codec::Zstd), false),
            Err(Misshapen::Zstd)
        );
        assert_eq!(check_produced(&batch(Codec::Zstd), true), Ok(()));
        assert_eq!(check_produced(&batch(Codec::Lz4), false), Ok(()));
    }

    #[test]
    fn one_batch_is_produced_whatever_it_is_cut_to() {
        let one = batch(Codec::None);
        for length in 0..one.len() {
            let refused = check_produced(&one[..length], true);
            assert!(matches!(refused, Err(Misshapen::Invalid(_))), "{length}");
            // What follows a batch and is none is cut off later.
            let behind = [&one[..], &one[..length]].concat();
            assert_eq!(check_produced(&behind, true), Ok(()), "{length}");
        }
        let two = [&one[..], &one[..]].concat();
        assert!(matches!(
            check_produced(&two, true),
            Err(Misshapen::Invalid(_))
        ));
        assert_eq!(check_coordinated(&two), Ok(()));
    }
}

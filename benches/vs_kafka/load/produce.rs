//! Produce requests of one batch each, as many as the broker takes.

use kafkalite::batch::build::{BatchBuilder, BatchOptions};
use kafkalite::wire::Reader;

use crate::Failure;
use crate::arguments::Arguments;
use crate::closed_loop::closed_loop;
use crate::frames::{begin_request, finish_request};
use crate::measure::{Report, percentiles};

const PRODUCE_VERSION: i16 = 9;

pub fn produce(arguments: &Arguments) -> Result<Report, Failure> {
    let topic = arguments.text("topic")?;
    let partitions: i32 = arguments.number("partitions", 1)?;
    let records: usize = arguments.number("records", 1)?;
    let batch = batch(records, arguments.number("record_bytes", 100)?)?;
    let acks = arguments.number("acks", -1)?;
    let mut made = 0;
    let request = |spare: Option<Vec<u8>>| {
        spare.unwrap_or_else(|| {
            made += 1;
            produce_frame(topic, (made - 1) % partitions, acks, &batch)
        })
    };
    let bytes = batch.len() as u64;
    let (mut report, latencies) = closed_loop(arguments, request, bytes, check_produced)?;
    percentiles(&mut report, latencies);
    Ok(report)
}

pub fn batch(records: usize, record_bytes: usize) -> Result<Vec<u8>, Failure> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let timestamp = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)?
        .as_millis() as i64;
    // What no codec could make smaller.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..records {
        let value: Vec<u8> = (0..record_bytes)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        builder.append(timestamp, None, Some(&value), &[])?;
    }
    Ok(builder.finish()?)
}

pub fn produce_frame(topic: &str, partition: i32, acks: i16, records: &[u8]) -> Vec<u8> {
    let mut writer = begin_request(0, PRODUCE_VERSION, records.len() + 128);
    writer.nullable_string(None, true);
    writer.i16(acks);
    writer.i32(30_000);
    writer.array_length(1, true);
    writer.string(topic, true);
    writer.array_length(1, true);
    writer.i32(partition);
    writer.nullable_bytes(Some(records), true);
    writer.no_tags(true);
    writer.no_tags(true);
    writer.no_tags(true);
    finish_request(writer)
}

/// The error code of the one partition in a Produce answer.
pub fn check_produced(answer: &[u8]) -> Result<(), Failure> {
    let mut reader = Reader::new(answer);
    reader.i32()?;
    reader.skip_tags(true)?;
    reader.array_length(true)?;
    reader.string(true)?;
    reader.array_length(true)?;
    reader.i32()?;
    match reader.i16()? {
        0 => Ok(()),
        code => Err(format!("Produce was answered with error {code}").into()),
    }
}

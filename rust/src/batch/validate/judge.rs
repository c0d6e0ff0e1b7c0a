//! The rules about records, their keys and timestamps: all records at once, and one by one
//! where that shows a fault.

use super::rules::ValidationRules;
use crate::batch::header::{BatchHeader, NO_TIMESTAMP, TimestampType};
use crate::batch::stream::{PassedRecord, RawRecords};
use crate::batch::walk::Walk;
use crate::error::{Error, RecordError, RefusedRecords, Result};
use crate::limits::RECORD_ERRORS_MAX;

/// Reads every record to the byte and judges keys and timestamps. Times in the answer are those
/// by which the batch is judged.
pub fn walk_and_judge(
    records: &mut RawRecords<'_>,
    header: &BatchHeader,
    rules: &ValidationRules,
) -> Result<Walk> {
    let mut walk = records.walk(header)?;
    if header.timestamp_type() == TimestampType::LogAppendTime {
        walk.min_timestamp = header.max_timestamp;
        walk.max_timestamp = header.max_timestamp.max(NO_TIMESTAMP);
        walk.index_of_max_timestamp = 0;
    }
    if walk.index_of_max_timestamp < 0 {
        walk.index_of_max_timestamp = header.last_offset_delta;
    }
    let keys_are_good = !(rules.compacted && walk.has_null_key);
    if !(keys_are_good && times_are_good(&walk, header, rules)) {
        refuse_records(records, header, rules)?;
    }
    Ok(walk)
}

/// Says whether all times between the least and the greatest are allowed. False asks for a closer
/// look: -1, and what an overflow would decide, are judged one by one.
fn times_are_good(walk: &Walk, header: &BatchHeader, rules: &ValidationRules) -> bool {
    if header.timestamp_type() == TimestampType::LogAppendTime {
        return false;
    }
    if rules.timestamp_type == TimestampType::LogAppendTime {
        return true;
    }
    let oldest_age_ms = rules.now_ms.checked_sub(walk.min_timestamp);
    let newest_age_ms = rules.now_ms.checked_sub(walk.max_timestamp);
    match (oldest_age_ms, newest_age_ms.and_then(i64::checked_neg)) {
        (Some(age_ms), Some(ahead_ms)) => {
            age_ms <= rules.timestamp_before_max_ms && ahead_ms <= rules.timestamp_after_max_ms
        }
        _ => false,
    }
}

/// Judges the records one by one and names those at fault (`LogValidator.validateRecord`).
#[cold]
fn refuse_records(
    records: &mut RawRecords<'_>,
    header: &BatchHeader,
    rules: &ValidationRules,
) -> Result<()> {
    let by_client = ClientTime::of(header);
    let mut refused = None;
    records.rewind()?;
    for index in 0..header.records_count {
        let record = records.pass()?;
        let timestamp = by_client.timestamp(record.timestamp_delta);
        if (rules.compacted && record.has_null_key) || !time_is_allowed(timestamp, header, rules) {
            note_refusal(&mut refused, index, &record, timestamp, rules);
        }
    }
    match refused {
        Some(refused) => Err(Error::RecordsRefused(refused)),
        None => Ok(()),
    }
}

/// How a batch as it came gives its records their time.
pub struct ClientTime {
    base_timestamp: i64,
    log_append_time: Option<i64>,
}

impl ClientTime {
    pub fn of(header: &BatchHeader) -> ClientTime {
        let is_log_append = header.timestamp_type() == TimestampType::LogAppendTime;
        ClientTime {
            base_timestamp: header.base_timestamp,
            log_append_time: is_log_append.then_some(header.max_timestamp),
        }
    }

    pub fn timestamp(&self, delta: i64) -> i64 {
        match self.log_append_time {
            None => self.base_timestamp.wrapping_add(delta),
            Some(timestamp) => timestamp,
        }
    }
}

/// `LogValidator.validateTimestamp`: a create time within the bounds, and no batch that claims
/// LogAppendTime for itself. (A claimed one on a CreateTime topic passes if it is in bounds.)
fn time_is_allowed(timestamp: i64, header: &BatchHeader, rules: &ValidationRules) -> bool {
    if rules.timestamp_type == TimestampType::CreateTime && timestamp != NO_TIMESTAMP {
        let age_ms = rules.now_ms.wrapping_sub(timestamp);
        age_ms <= rules.timestamp_before_max_ms
            && age_ms.wrapping_neg() <= rules.timestamp_after_max_ms
    } else {
        header.timestamp_type() == TimestampType::CreateTime
    }
}

fn note_refusal(
    refused: &mut Option<Box<RefusedRecords>>,
    index: i32,
    record: &PassedRecord,
    timestamp: i64,
    rules: &ValidationRules,
) {
    let refused = refused.get_or_insert_default();
    refused.errors_count += 1;
    // Kafka looks at the key first and names one fault a record.
    let no_key = rules.compacted && record.has_null_key;
    refused.invalid_timestamp |= !no_key;
    if refused.errors.len() >= RECORD_ERRORS_MAX {
        return;
    }
    let message = if no_key {
        String::from("a compacted topic takes no record without a key")
    } else if rules.timestamp_type == TimestampType::CreateTime && timestamp != NO_TIMESTAMP {
        format!(
            "timestamp {timestamp} is not within [{}, {}]",
            rules.now_ms.saturating_sub(rules.timestamp_before_max_ms),
            rules.now_ms.saturating_add(rules.timestamp_after_max_ms)
        )
    } else {
        String::from("a producer must not set the timestamp type to LogAppendTime")
    };
    refused.errors.push(RecordError {
        batch_index: index,
        message,
    });
}

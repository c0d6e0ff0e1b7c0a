//! The reading of a Produce request: where its records lie, and which partitions are refused before
//! the log looks at their records.

use std::sync::Arc;

use super::{Outcome, Produce, ProducePartition, Spare, TOPIC_IDS_SINCE, Transaction, refuse};
use crate::access::{Operation, Resource};
use crate::api::handler::Ask;
use crate::api::large::partitions::Marks;
use crate::api::leader::leader;
use crate::api::topic_ref::TopicRef;
use crate::batch::shape::{self, Leading, Misshapen, check_produced};
use crate::codes;
use crate::error::{Error, Result};
use crate::limits::PRODUCED_BATCHES_MAX;
use crate::log::state::verification::NO_GUARD;
use crate::replica::Partition;
use crate::wire::{Reader, RequestHeader};

const ZSTD_SINCE: i16 = 7;
/// The client id that may write to internal topics (`AdminUtils.ADMIN_CLIENT_ID`).
const ADMIN_CLIENT_ID: &str = "__admin_client";

/// Reads the request. `reader` stands behind the header. Where there are `marks`, partitions that
/// are refused get one instead of a place in the request.
pub fn read(
    header: &RequestHeader<'_>,
    reader: &mut Reader<'_>,
    ask: &Ask<'_>,
    spare: &mut Spare,
    mut marks: Option<&mut Marks>,
) -> Result<Produce> {
    let (version, flexible) = (header.api_version, header.flexible);
    let transactional_id = reader.nullable_string(flexible)?;
    let acks = reader.i16()?;
    let timeout_ms = reader.i32()?;
    let may_transact =
        transactional_id.is_some_and(|id| ask.may(Operation::Write, Resource::TransactionalId(id)));
    let (mut topics, partitions) = spare.0.pop().unwrap_or_default();
    let mut reading = Reading {
        judge: Judge::new(header, acks),
        transactional_id,
        may_transact,
        partitions,
        refusal: None,
        transaction: None,
        has_one_producer: true,
    };
    for _ in 0..reader.array_length(flexible)? {
        let topic_at = reader.position();
        let topic = TopicRef::read(reader, version >= TOPIC_IDS_SINCE, flexible, ask.image)?;
        let may_write = match &topic {
            TopicRef::Known(topic) => ask.may(Operation::Write, Resource::Topic(&topic.name)),
            TopicRef::Unknown { name, .. } => ask.may(Operation::Write, Resource::Topic(name)),
        };
        if let Some(marks) = marks.as_mut().filter(|_| !may_write) {
            marks.deny(topic_at);
        }
        let before = reading.partitions.len();
        for _ in 0..reader.array_length(flexible)? {
            reading.partition(reader, flexible, (&topic, may_write), marks.as_deref_mut())?;
        }
        reader.skip_tags(flexible)?;
        let count = reading.partitions.len() - before;
        if marks.is_none() || count > 0 {
            topics.push((topic, count));
        }
    }
    reader.skip_tags(flexible)?;
    let refusal = reading.refuse_all();
    Ok(Produce {
        version,
        flexible,
        correlation_id: header.correlation_id,
        acks,
        timeout_ms,
        topics,
        partitions: reading.partitions,
        is_parked: false,
        refusal,
        transaction: reading.transaction.filter(|_| refusal.is_none()),
        rest: None,
        rest_bytes: 0,
    })
}

/// A request of which some partitions have been read.
struct Reading<'a> {
    judge: Judge,
    transactional_id: Option<&'a str>,
    /// The client may write with that id.
    may_transact: bool,
    partitions: Vec<ProducePartition>,
    /// Why all of it is refused.
    refusal: Option<i16>,
    transaction: Option<Box<Transaction>>,
    has_one_producer: bool,
}

impl Reading<'_> {
    /// Reads a partition of a topic to which the client may write, or not.
    fn partition(
        &mut self,
        reader: &mut Reader<'_>,
        flexible: bool,
        (topic, may_write): (&TopicRef, bool),
        mut marks: Option<&mut Marks>,
    ) -> Result<()> {
        let at = reader.position();
        let index = reader.i32()?;
        let records = reader.nullable_bytes(flexible)?.unwrap_or_default();
        let end = reader.position();
        reader.skip_tags(flexible)?;
        let may_transact = self.may_transact;
        let refusal = self.refusal;
        self.refusal = refusal.or_else(|| refusal_of_all(records, may_transact));
        let outcome = self.judge.outcome(topic, may_write, index, records);
        if let (Some(marks), Outcome::Refused { .. }) = (&mut marks, &outcome) {
            marks.mark(at);
            // With acks 0 nothing is answered; why the connection ends is told of the first.
            if self.judge.acks != 0 || marks.count > 1 {
                return Ok(());
            }
        }
        if matches!(outcome, Outcome::Accepted(..)) && shape::is_transactional(records) {
            let (place, id) = (self.partitions.len(), self.transactional_id);
            self.has_one_producer &= Transaction::note(&mut self.transaction, id, place, records);
        }
        self.partitions.push(ProducePartition {
            index,
            records: end - records.len()..end,
            outcome,
            guard: NO_GUARD,
        });
        if marks.is_some() && self.partitions.len() > PRODUCED_BATCHES_MAX {
            let most = PRODUCED_BATCHES_MAX;
            let reason = format!("a Produce request of more than {most} batches");
            return Err(Error::MalformedRequest(reason));
        }
        Ok(())
    }

    /// Refuses each partition where all of the request is to be refused, and says why.
    fn refuse_all(&mut self) -> Option<i16> {
        if self.refusal.is_none() && !self.has_one_producer {
            self.refusal = Some(codes::INVALID_PRODUCER_ID_MAPPING);
        }
        if let Some(code) = self.refusal {
            for partition in &mut self.partitions {
                partition.outcome = refuse(code, None);
            }
        }
        self.refusal
    }
}

/// Judges a partition before the log looks at its records.
#[derive(Clone, Copy)]
pub struct Judge {
    pub version: i16,
    pub acks: i16,
    is_admin: bool,
}

impl Judge {
    pub fn new(header: &RequestHeader<'_>, acks: i16) -> Judge {
        Judge {
            version: header.api_version,
            acks,
            is_admin: header.client_id == Some(ADMIN_CLIENT_ID),
        }
    }

    pub fn outcome(
        &self,
        topic: &TopicRef,
        may_write: bool,
        index: i32,
        records: &[u8],
    ) -> Outcome {
        // Coordinators alone write to their topics.
        let is_internal = matches!(topic, TopicRef::Known(topic) if topic.is_internal);
        if is_internal && may_write && !self.is_admin {
            return refuse(codes::INVALID_TOPIC, None);
        }
        match locate(topic, may_write, index, records, self.version) {
            Ok(_) if !(-1..=1).contains(&self.acks) => refuse(codes::INVALID_REQUIRED_ACKS, None),
            Ok(partition) => Outcome::Accepted(partition, None),
            Err(refused) => refused,
        }
    }
}

/// The partition, or the refusal.
fn locate(
    topic: &TopicRef,
    may_write: bool,
    index: i32,
    records: &[u8],
    version: i16,
) -> std::result::Result<Arc<Partition>, Outcome> {
    let by_id = version >= TOPIC_IDS_SINCE;
    if by_id && topic.error_code(by_id) != codes::NONE {
        return Err(refuse(codes::UNKNOWN_TOPIC_ID, None));
    }
    if !may_write {
        return Err(refuse(codes::TOPIC_AUTHORIZATION_FAILED, None));
    }
    let partition = match topic {
        // A producer does not say which epoch it knows.
        TopicRef::Known(topic) => leader(topic, index, -1),
        TopicRef::Unknown { .. } => Err(codes::UNKNOWN_TOPIC_OR_PARTITION),
    };
    let partition = partition.map_err(|error_code| refuse(error_code, None))?;
    check_produced(records, version >= ZSTD_SINCE).map_err(refuse_shape)?;
    Ok(partition.clone())
}

/// Why the records are no batch that may be produced; without a sentence where Kafka has none.
fn refuse_shape(misshapen: Misshapen) -> Outcome {
    match misshapen {
        Misshapen::Corrupt => refuse(codes::CORRUPT_MESSAGE, None),
        Misshapen::Invalid(sentence) => refuse(codes::INVALID_RECORD, Some(sentence.to_owned())),
        Misshapen::Zstd => {
            let error = misshapen.into_error();
            refuse(error.kafka_code(), Some(error.to_string()))
        }
    }
}

/// Refuses all partitions for the records of one: before anything else Kafka looks whether some
/// batch belongs to a transaction, which is said by the batch, not by the request (CVE-2018-17196),
/// and stumbles over what is no batch (`RequestUtils.hasTransactionalRecords`).
fn refusal_of_all(records: &[u8], may_transact: bool) -> Option<i16> {
    match shape::leading(records) {
        Leading::Corrupt => Some(codes::CORRUPT_MESSAGE),
        Leading::Batch(_) if !may_transact && shape::is_transactional(records) => {
            Some(codes::TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        }
        Leading::Batch(_) | Leading::End => None,
    }
}

//! The broker as a home of the Arrow endpoint: reads the logs of this node as Fetch does,
//! up to the high watermark or, of committed records, the last stable offset, on the
//! thread of the connection.
//!
//! Records are copied out of the segment a few hundred KiB at a time, and the segment is let go
//! before the copy is looked at: a client that does not read delays no truncation, and
//! retention, compaction and deletion go on beside a read. What they take away under it ends
//! the read with a sentence.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use parking_lot::Mutex;

use super::request::{refuse, with_remedy};
use super::{AskedRead, Home, Losses, ReadRequest, Rows};
use crate::access::{Caller, Identity, Operation, Resource};
use crate::arrow::fetched::{FetchSource, FetchedChunk, FetchedStream};
use crate::arrow::plan::Isolation;
use crate::client::fetched::fetched_end;
use crate::error::{Error, Result};
use crate::image::NoLeader;
use crate::limits::{ARROW_FETCH_BYTES, SCRATCH_BYTES_KEPT_MAX};
use crate::log::read::ReadIsolation;
use crate::log::state::ends::LogOffsets;
use crate::node::Node;
use crate::replica::Partition;

/// The logs of one node. It answers reads only.
pub struct LiveHome {
    node: Arc<Node>,
}

impl LiveHome {
    pub fn new(node: Arc<Node>) -> LiveHome {
        LiveHome { node }
    }

    /// An address is told by a broker that may be gone, or of another
    /// machine, by the time it is used.
    fn refuse_another_cluster(&self, wanted: Option<&str>) -> Result<()> {
        let image = self.node.image();
        match wanted {
            Some(wanted) if wanted != image.cluster_id => refuse(format!(
                "this is the Arrow endpoint of cluster {}, not of {wanted}",
                image.cluster_id
            )),
            _ => Ok(()),
        }
    }

    fn partition(&self, topic: &str, index: i32) -> Result<Arc<Partition>> {
        let caller = Caller {
            identity: &Identity::anonymous(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            client_id: None,
            listener: 0,
        };
        let image = self.node.image();
        let authorizer = &image.permits.authorizer;
        if !authorizer.authorize(&caller, Operation::Read, Resource::Topic(topic)) {
            return refuse(format!("reading topic '{topic}' is not authorized"));
        }
        let Some(found) = image.topic(topic) else {
            return refuse(format!("there is no topic '{topic}'"));
        };
        let error = match found.leader(index) {
            Ok(partition) => return Ok(partition.clone()),
            Err(error) => error,
        };
        refuse(match error {
            NoLeader::Offline => format!("the log directory of {topic}-{index} is offline"),
            NoLeader::Elsewhere { .. } => format!("this broker does not lead {topic}-{index}"),
            NoLeader::Unknown => format!(
                "there is no partition {topic}-{index}: the topic has {}",
                found.partitions().len()
            ),
        })
    }
}

impl Home for LiveHome {
    fn check(&self, read: &AskedRead) -> Result<()> {
        // How to reach the log from elsewhere, `bootstrap.servers` and
        // `client`, is of no interest here.
        if read.place.path.is_some() {
            return refuse("path: a broker reads its own logs only".to_owned());
        }
        self.refuse_another_cluster(read.place.cluster_id.as_deref())?;
        self.partition(&read.topic, read.partition).map(drop)
    }

    fn read(&self, request: ReadRequest, losses: &Losses) -> Result<Rows> {
        let partition = self.partition(&request.topic, request.partition)?;
        let isolation = match request.isolation {
            Isolation::ReadUncommitted => ReadIsolation::HighWatermark,
            Isolation::ReadCommitted => ReadIsolation::LastStable,
        };
        let offsets = partition.log.offsets();
        let (end, what) = visible_end(offsets, isolation);
        let (log_start, log_end) = (offsets.log_start_offset, offsets.log_end_offset);
        let (start, stop) = request.range_within(log_start, log_end, end, what, losses)?;
        let source = LiveSource {
            topic: request.topic,
            partition,
            next_offset: start,
            stop,
            isolation,
            fail_on_data_loss: request.fail_on_data_loss,
            losses: losses.clone(),
            spare: Arc::default(),
        };
        let stream = FetchedStream::new(source, &request.shape, request.bounds);
        Ok(Box::new(stream.telling_progress()))
    }

    fn answer(&self, op: &str, _request: &[u8]) -> Result<Vec<u8>> {
        if op == "cluster" {
            let answer = serde_json::json!({"cluster.id": self.node.image().cluster_id});
            return Ok(answer.to_string().into_bytes());
        }
        refuse(format!(
            "a broker answers the ops read and cluster, not {op}: 'kafkalite arrow serve' plans"
        ))
    }
}

fn visible_end(offsets: LogOffsets, isolation: ReadIsolation) -> (i64, &'static str) {
    match isolation {
        ReadIsolation::LastStable => (offsets.last_stable_offset, "last stable offset"),
        _ => (offsets.high_watermark, "high watermark"),
    }
}

/// Fetches of one partition, one after the other.
struct LiveSource {
    topic: String,
    partition: Arc<Partition>,
    next_offset: i64,
    stop: i64,
    isolation: ReadIsolation,
    fail_on_data_loss: bool,
    losses: Losses,
    spare: Arc<Mutex<Vec<u8>>>,
}

impl FetchSource for LiveSource {
    type Bytes = Lent;

    fn next_chunk(&mut self) -> std::result::Result<Option<FetchedChunk<Lent>>, String> {
        while self.next_offset < self.stop {
            let error = match self.fetch() {
                Ok(fetched) => return Ok(fetched),
                Err(error) => error,
            };
            let sentence = self.describe(&error);
            let resumes_at = match error {
                Error::OffsetOutOfRange {
                    log_start_offset, ..
                } if log_start_offset > self.next_offset => log_start_offset,
                Error::OffsetOutOfRange { .. }
                | Error::LogDeleted { .. }
                | Error::InvalidArgument(_) => self.stop,
                _ => return Err(sentence),
            };
            if self.fail_on_data_loss {
                return Err(with_remedy(&sentence));
            }
            self.next_offset = resumes_at;
            self.losses.tell(sentence);
        }
        Ok(None)
    }

    /// The log is on a disk of this machine.
    fn may_wait(&self) -> bool {
        false
    }
}

impl LiveSource {
    fn fetch(&mut self) -> Result<Option<FetchedChunk<Lent>>> {
        let (log, start) = (&self.partition.log, self.next_offset);
        let (range, aborted) = match self.isolation {
            ReadIsolation::LastStable => log.read_committed(start, ARROW_FETCH_BYTES, true)?,
            isolation => {
                let range = log.read(start, ARROW_FETCH_BYTES, true, isolation)?;
                (range, Vec::new())
            }
        };
        if range.is_empty() {
            let (end, what) = visible_end(log.offsets(), self.isolation);
            return if end < self.stop {
                Err(Error::InvalidArgument(format!(
                    "the {what} is {end} now, before {}: the log was cut while it was read",
                    self.stop
                )))
            } else {
                // What is missing before the end was compacted away.
                Ok(None)
            };
        }
        let mut records = Lent::take(&self.spare, range.length_bytes as usize);
        range.read_at(records.as_mut(), 0)?;
        drop(range);
        self.next_offset = fetched_end(records.as_ref(), start);
        if self.next_offset == start {
            return Err(Error::CorruptMessage(format!(
                "no whole batch is where offset {start} is due"
            )));
        }
        Ok(Some(FetchedChunk {
            topic: self.topic.clone(),
            partition: self.partition.index,
            records,
            start,
            stop: self.stop,
            aborted: aborted
                .iter()
                .map(|each| (each.producer_id, each.first_offset))
                .collect(),
        }))
    }

    fn describe(&self, error: &Error) -> String {
        let name = format!("{}-{}", self.topic, self.partition.index);
        match error {
            Error::OffsetOutOfRange {
                offset,
                log_start_offset,
                ..
            } if offset < log_start_offset => format!(
                "{name}: offset {offset} was deleted while it was being read: the log starts at \
                 {log_start_offset} now"
            ),
            Error::LogDeleted { .. } => format!("{name} was deleted while it was being read"),
            error => format!("{name}: {error}"),
        }
    }
}

/// Bytes of a fetch in memory that the next fetch takes over.
struct Lent {
    bytes: Vec<u8>,
    length: usize,
    spare: Arc<Mutex<Vec<u8>>>,
}

impl Lent {
    fn take(spare: &Arc<Mutex<Vec<u8>>>, length: usize) -> Lent {
        let mut bytes = std::mem::take(&mut *spare.lock());
        if bytes.len() < length {
            bytes = vec![0; length];
        }
        Lent {
            bytes,
            length,
            spare: spare.clone(),
        }
    }

    fn as_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..self.length).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.bytes.len() <= SCRATCH_BYTES_KEPT_MAX {
            *self.spare.lock() = std::mem::take(&mut self.bytes);
        }
    }
}

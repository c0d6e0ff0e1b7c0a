//! The node and its data plane for Python, and the frames that Python answers.
#![expect(
    unsafe_code,
    reason = "Python hands over listening sockets as descriptors"
)]

use std::collections::HashMap;
use std::net::{IpAddr, TcpListener};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::arrow_server::{PyArrowServer, serve_node};
use super::claim::ClaimedDirectories;
use super::codec::{AnswerRoom, MessageCodec};
use super::door::{enter, raise};
use super::engine::{Configs, Log, ProducerEntry, log_config};
use super::figures::Figures;
use crate::api::{ApiKey, HOT_KEYS};
use crate::error::{Error, Result};
use crate::image::{Broker, Endpoint, Features, Partition};
use crate::limits::{
    ANSWER_BYTES_MAX, CONTROL_ANSWER_BYTES_MAX, FETCH_BYTES_MAX, FETCH_SESSIONS_MAX,
    REQUEST_ELEMENTS_MAX,
};
use crate::log::config::LogConfig;
use crate::log::directory::LogDirectory;
use crate::log::housekeeper::{CleanerSettings, Intervals};
use crate::net::admission::ConnectionLimits;
use crate::net::broker_core::BrokerCore;
use crate::net::control::log_calls::{self, Asked, LogAnswer, LogCall};
use crate::net::control::log_lifecycle;
use crate::net::control::metadata_append;
use crate::net::control::queue::{Answers, ControlAnswer, ControlFrame, Notices};
use crate::net::mailbox::Mailboxes;
use crate::net::rate::Windows;
use crate::net::settings::Settings;
use crate::node::{Loaded, Moved, Node, PartitionPlan, TopicPlan};
use crate::uuid::Uuid;
use crate::wire::header::begin_response;

/// Id, whether it is internal, configs, and of each partition the leader epoch and the directory's id.
type TopicFacts = ([u8; 16], bool, Configs, Vec<(i32, [u8; 16])>);

/// For the log: errors of ours, and warnings of what clients do.
type Sentences = (Vec<String>, Vec<String>);

/// Requests, numbers that may go on, sentences if there are any.
type Work = (Vec<Request>, Vec<u64>, Option<Sentences>);

/// A request that Python answers by `BrokerPlane.respond`, once.
#[pyclass(frozen, module = "kafkalite._native")]
pub struct Request {
    frame: ControlFrame,
}

#[pymethods]
impl Request {
    #[getter]
    fn api_key(&self) -> i16 {
        self.frame.api_key
    }

    #[getter]
    fn api_version(&self) -> i16 {
        self.frame.api_version
    }

    #[getter]
    fn correlation_id(&self) -> i32 {
        self.frame.correlation_id
    }

    #[getter]
    fn client_id(&self) -> Option<&str> {
        self.frame.client_id.as_deref()
    }

    #[getter]
    fn listener(&self) -> usize {
        self.frame.listener
    }

    #[getter]
    fn listener_name(&self) -> &str {
        &self.frame.listener_name
    }

    #[getter]
    fn principal(&self) -> &str {
        self.frame.principal.name()
    }

    #[getter]
    fn peer(&self) -> String {
        self.frame.peer.to_string()
    }

    /// What follows the header, as an object of the class of its message.
    fn decode<'py>(&self, kind: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, frame) = (kind.py(), &self.frame);
        codec_of(kind)?.get().decode_within(
            py,
            &frame.body,
            frame.api_version,
            REQUEST_ELEMENTS_MAX,
        )
    }
}

/// One node: its log directories, and from `start` to `stop` its network threads.
#[pyclass(frozen, module = "kafkalite._native")]
pub struct BrokerPlane {
    node: Arc<Node>,
    mailboxes: Arc<Mailboxes>,
    plane: Mutex<Option<Arc<BrokerCore>>>,
    answers: Mutex<Answers>,
    /// What had to be repaired at the start, a sentence each.
    #[pyo3(get)]
    repairs: Vec<String>,
    moved: Vec<Moved>,
    settings: Settings,
}

#[pymethods]
impl BrokerPlane {
    /// Takes over the log directories and loads the logs of `topics`.
    #[new]
    #[pyo3(signature = (*, claimed, topics, settings, cleaner))]
    fn new(
        py: Python<'_>,
        claimed: &ClaimedDirectories,
        topics: HashMap<String, TopicFacts>,
        settings: HashMap<String, i64>,
        cleaner: GivenCleaner,
    ) -> PyResult<BrokerPlane> {
        enter(py, || {
            let setting = |key: &str| match settings.get(key) {
                Some(value) => Ok(*value),
                None => Err(Error::InvalidArgument(format!(
                    "the setting {key} is missing"
                ))),
            };
            let count = |key: &str| Ok(usize::try_from(setting(key)?).unwrap_or(usize::MAX));
            let count_or = |key: &str, default: usize| {
                let value = settings.get(key);
                value.map_or(default, |value| usize::try_from(*value).unwrap_or(default))
            };
            let plane_settings = Settings {
                network_threads: count("num.network.threads")?,
                busy_poll: Duration::from_micros(count_or("kafkalite.busy.poll.us", 0) as u64),
                request_bytes_max: count("socket.request.max.bytes")?,
                answer_bytes_max: ANSWER_BYTES_MAX,
                listener_names: Vec::new(),
                connections: ConnectionLimits {
                    windows: Windows {
                        window_ms: 1_000 * count("quota.window.size.seconds")?.max(1) as u64,
                        count: count("quota.window.num")?.max(1) as u64,
                    },
                    ..ConnectionLimits::default()
                },
                queued_bytes_max: settings
                    .get("queued.max.request.bytes")
                    .copied()
                    .unwrap_or(-1),
                // A negative limit is none, as in Kafka.
                idle_ms_max: u64::try_from(setting("connections.max.idle.ms")?).unwrap_or(u64::MAX),
                fetch_bytes_max: settings
                    .get("fetch.max.bytes")
                    .map_or(FETCH_BYTES_MAX, |bytes| u64::try_from(*bytes).unwrap_or(0)),
                fetch_sessions_max: settings
                    .get("max.incremental.fetch.session.cache.slots")
                    .map_or(FETCH_SESSIONS_MAX, |slots| {
                        usize::try_from(*slots).unwrap_or(0)
                    }),
                auto_create_topics: setting("auto.create.topics.enable")? != 0,
                intervals: Intervals {
                    retention_check_ms: setting("log.retention.check.interval.ms")?,
                    first_retention_check_ms: setting("log.initial.task.delay.ms")?,
                    flush_check_ms: setting("log.flush.scheduler.interval.ms")?,
                    checkpoint_ms: setting("log.flush.offset.checkpoint.interval.ms")?,
                    producer_check_ms: setting("producer.id.expiration.check.interval.ms")?,
                },
                cleaner: cleaner.into(),
            };
            let mailboxes = Mailboxes::new(plane_settings.network_threads)
                .map_err(Error::io("eventfd", std::path::Path::new("/proc/self")))?;
            let plans = topic_plans(topics)?;
            let Loaded { node, notes, moved } =
                Node::load(claimed.take()?, &plans, mailboxes.clone())?;
            Ok(BrokerPlane {
                node: Arc::new(node),
                mailboxes,
                plane: Mutex::new(None),
                answers: Mutex::default(),
                repairs: notes,
                moved,
                settings: plane_settings,
            })
        })
    }

    /// Topic id and index of each partition that lay in another directory than `topics` said, and
    /// the id of that directory.
    #[getter]
    fn moved<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, i32, Bound<'py, PyBytes>)> {
        let moved = self.moved.iter();
        moved
            .map(|each| {
                let topic_id = PyBytes::new(py, &each.topic_id.0);
                let directory_id = PyBytes::new(py, &each.directory_id.0);
                (topic_id, each.partition, directory_id)
            })
            .collect()
    }

    /// That of the log directories.
    #[getter]
    fn cluster_id(&self) -> String {
        self.node.image().cluster_id.clone()
    }

    /// The api keys that Rust answers.
    #[staticmethod]
    fn native_keys() -> Vec<i16> {
        HOT_KEYS.iter().map(|key| key.key).collect()
    }

    /// Serves clients from now on.
    ///
    /// `listeners` are descriptors of listening sockets, which this takes over; `endpoints` what
    /// clients of each are told; `control_keys` (key, advertised lowest, lowest, highest, first
    /// flexible version) of the keys that Python answers; `names` those of the listeners, and `limits`
    /// those of their connections.
    #[pyo3(signature = (listeners, endpoints, rack, control_keys, *, names, limits))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn start(
        &self,
        py: Python<'_>,
        listeners: Vec<RawFd>,
        endpoints: Vec<(String, i32)>,
        rack: Option<String>,
        control_keys: Vec<(i16, i16, i16, i16, i16)>,
        names: Vec<String>,
        limits: GivenLimits,
    ) -> PyResult<()> {
        let mut settings = self.settings.clone();
        settings.listener_names = names.iter().map(|name| name.as_str().into()).collect();
        settings.connections = ConnectionLimits {
            windows: settings.connections.windows,
            ..limits.parsed().map_err(|error| raise(py, &error))?
        };
        // SAFETY: the caller gives up the descriptors, each of a listening TCP socket.
        let listeners: Vec<TcpListener> = listeners
            .into_iter()
            .map(|descriptor| unsafe { TcpListener::from(OwnedFd::from_raw_fd(descriptor)) })
            .collect();
        let keys = control_keys
            .into_iter()
            .map(|(key, advertised_min, min, max, flexible)| ApiKey {
                key,
                advertised_min,
                min,
                max,
                first_flexible: flexible,
            });
        let keys = keys.collect();
        let image = self.node.image();
        enter(py, || {
            self.node.set_brokers(vec![Broker {
                node_id: image.controller_id,
                rack,
                endpoints: endpoints
                    .into_iter()
                    .map(|(host, port)| Endpoint { host, port })
                    .collect(),
            }]);
            let mut plane = self.plane.lock();
            if plane.is_some() {
                return Err(Error::InvalidArgument(
                    "the node has started already".to_owned(),
                ));
            }
            *plane = Some(Arc::new(BrokerCore::start(
                settings,
                self.mailboxes.clone(),
                self.node.clone(),
                keys,
                listeners,
            )?));
            Ok(())
        })
    }

    /// Serves ranges of this node's logs as Arrow on a listening socket, which this takes over.
    fn serve_arrow(
        &self,
        py: Python<'_>,
        listener: RawFd,
        idle_ms_max: i64,
    ) -> PyResult<PyArrowServer> {
        serve_node(py, self.node.clone(), listener, idle_ms_max)
    }

    /// Requests for Python, the numbers given to `append` and `wake` that may go on, and sentences for
    /// the log if there are any; blocks until there is something, at most `timeout_ms`. None after
    /// `stop`. Of two threads that call it one waits until the other is stuck.
    #[pyo3(signature = (timeout_ms=None))]
    fn wait(&self, py: Python<'_>, timeout_ms: Option<u64>) -> PyResult<Option<Work>> {
        let timeout = timeout_ms.map(Duration::from_millis);
        let plane = self.started(py)?;
        // Of a turn that has failed.
        self.answers.lock().send(&plane.shared);
        let taken = enter(py, || Ok(log_calls::wait(timeout, &plane.shared)))?;
        Ok(taken.map(|taken| {
            let frames = taken.frames.into_iter();
            let requests = frames.map(|frame| Request { frame }).collect();
            let Notices { errors, warnings } = taken.notices;
            let are_any = !errors.is_empty() || !warnings.is_empty();
            (requests, taken.woken, are_any.then_some((errors, warnings)))
        }))
    }

    /// Has `wait` give `number`. Any thread may call it.
    fn wake(&self, number: u64) {
        self.mailboxes.control.wake(number);
    }

    /// Has batches of a coordinator appended to a partition by the next `wait`: one gives `number` once
    /// they are committed, or will never be, and `appended` says which.
    fn append(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        records: Vec<u8>,
        number: u64,
    ) -> PyResult<()> {
        self.call(py, topic, partition, Asked::Append(records), number)
    }

    /// Has the records of a partition below an offset go, by the next `wait`: one gives `number` then,
    /// and `records_deleted` says what became of it.
    fn delete_records(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        offset: i64,
        number: u64,
    ) -> PyResult<()> {
        self.call(py, topic, partition, Asked::DeleteRecords(offset), number)
    }

    /// Asks a partition for its producers, by the next `wait`: one gives `number` then, and
    /// `producers_described` says them.
    fn describe_producers(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        number: u64,
    ) -> PyResult<()> {
        self.call(py, topic, partition, Asked::Producers, number)
    }

    /// Counts bytes as memory that requests take, until they are given back by so many less than none.
    fn hold(&self, py: Python<'_>, bytes: i64) -> PyResult<()> {
        let shared = &self.started(py)?.shared;
        let count = usize::try_from(bytes.unsigned_abs()).unwrap_or(usize::MAX);
        match bytes < 0 {
            true => shared.release_memory(count),
            false => shared.budget.charge(count),
        }
        Ok(())
    }

    /// Whether the log directory of a partition does not answer, and requests that wait
    /// take so much of their memory that no more may wait for it.
    fn is_held_up(&self, py: Python<'_>, topic: &str, partition: i32) -> PyResult<bool> {
        let shared = &self.started(py)?.shared;
        if !shared.budget.is_half_used() {
            return Ok(false);
        }
        let image = self.node.image();
        let partition = image
            .topic(topic)
            .and_then(|topic| topic.partition(partition));
        let number = partition.map(|partition| shared.queues.number_of(&partition.directory));
        let queues = number.and_then(|number| shared.queues.get(number));
        Ok(queues.is_some_and(|queues| !queues.calls.is_open()))
    }

    /// The first offset of records that `append` has brought in.
    fn appended(&self, py: Python<'_>, number: u64) -> PyResult<i64> {
        let offset = self.answer_of(number).and_then(LogAnswer::first_offset);
        offset.map_err(|error| raise(py, &error))
    }

    /// The log start offset after `delete_records`.
    fn records_deleted(&self, py: Python<'_>, number: u64) -> PyResult<i64> {
        enter(py, || self.answer_of(number)?.log_start_offset())
    }

    /// What `describe_producers` asked for, by producer id.
    fn producers_described(&self, py: Python<'_>, number: u64) -> PyResult<Vec<ProducerEntry>> {
        let state = enter(py, || self.answer_of(number)?.producers())?;
        Ok(ProducerEntry::all_of(&state))
    }

    /// The log of a partition, if there is one.
    fn log(&self, topic: &str, partition: i32) -> Option<Log> {
        let image = self.node.image();
        let partition = image.topic(topic)?.partition(partition)?;
        Some(Log::new(partition.log.clone()))
    }

    /// Answers a request with a message, in the request's version.
    fn respond(
        &self,
        py: Python<'_>,
        request: &Request,
        response: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let plane = self.started(py)?;
        let asked = &request.frame;
        let flexible = plane
            .shared
            .key(asked.api_key)
            .is_some_and(|key| asked.api_version >= key.first_flexible);
        let mut writer = begin_response(asked.correlation_id, flexible, 256);
        let room = AnswerRoom::new(CONTROL_ANSWER_BYTES_MAX);
        let codec = codec_of(response)?;
        let written = codec
            .get()
            .write(response.clone(), asked.api_version, &mut writer, &room);
        let answer = match written {
            Ok(()) => ControlAnswer::Response(writer.bytes),
            Err(_) if room.is_over() => ControlAnswer::Refused(Error::MalformedRequest(format!(
                "its answer takes more than {CONTROL_ANSWER_BYTES_MAX} bytes of memory"
            ))),
            Err(error) => return Err(error),
        };
        self.answer(&plane, request, answer);
        Ok(())
    }

    /// Holds answers back, so that they leave together, until `send_answers`: nothing that takes long is
    /// to come before that.
    fn gather_answers(&self) {
        self.answers.lock().gather();
    }

    /// The answers leave that were held back.
    fn send_answers(&self, py: Python<'_>) -> PyResult<()> {
        let plane = self.started(py)?;
        self.answers.lock().send(&plane.shared);
        Ok(())
    }

    /// Has the request answered without Python, what it lacked being there now.
    fn answer_again(&self, py: Python<'_>, request: &Request) -> PyResult<()> {
        let plane = self.started(py)?;
        self.answer(&plane, request, ControlAnswer::Again);
        Ok(())
    }

    /// Limits of connections from now on.
    fn set_connection_limits(&self, py: Python<'_>, limits: GivenLimits) -> PyResult<()> {
        let shared = &self.started(py)?.shared;
        let limits = limits.parsed().map_err(|error| raise(py, &error))?;
        shared.set_connection_limits(limits);
        Ok(())
    }

    /// How the cleaners work from now on.
    fn set_cleaner(&self, py: Python<'_>, cleaner: GivenCleaner) -> PyResult<()> {
        enter(py, || {
            self.node.set_cleaner(cleaner.into());
            Ok(())
        })
    }

    /// Closes the connection of a request that cannot be answered.
    fn close_connection(&self, py: Python<'_>, request: &Request) -> PyResult<()> {
        let plane = self.started(py)?;
        self.answer(&plane, request, ControlAnswer::Close);
        Ok(())
    }

    /// Ids of the log directories where `count` new partitions go.
    fn place<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let plane = self.plane.lock().clone();
        let is_silent = |directory: &Arc<LogDirectory>| {
            let plane = plane.as_ref();
            plane.is_some_and(|plane| plane.shared.queues.is_silent(directory))
        };
        let ids = enter(py, || self.node.place(count, is_silent))?;
        Ok(ids.iter().map(|id| PyBytes::new(py, &id.0)).collect())
    }

    /// Has the logs made that topics lack, by the next `wait`: one gives `number` then, and
    /// `logs_changed` says whether they are there.
    fn make_logs(
        &self,
        py: Python<'_>,
        topics: HashMap<String, TopicFacts>,
        number: u64,
    ) -> PyResult<()> {
        enter(py, || {
            let missing = self.node.missing_logs(&topic_plans(topics)?);
            log_lifecycle::make_logs(missing, number, &self.mailboxes.control);
            Ok(())
        })
    }

    /// Has batches appended to the metadata and made durable, by the next `wait`: one gives `number` then,
    /// and `logs_changed` says whether they are.
    fn append_metadata(&self, log: &Log, batches: Vec<Vec<u8>>, leader_epoch: i32, number: u64) {
        let log = log.inner().clone();
        metadata_append::append(log, batches, leader_epoch, number, &self.mailboxes.control);
    }

    /// Returns once what `append_metadata` was given is on disk, or is known not to be. After `stop`, and
    /// the end of who called `wait`.
    fn finish_metadata(&self, py: Python<'_>) -> PyResult<()> {
        let plane = self.started(py)?;
        enter(py, || {
            plane.finish_metadata();
            Ok(())
        })
    }

    /// What became of `make_logs`, `delete_topics` or `append_metadata`.
    fn logs_changed(&self, py: Python<'_>, number: u64) -> PyResult<()> {
        enter(py, || self.answer_of(number)?.change())
    }

    /// Whether logs are being made or deleted, or the metadata is being written, in a directory that does
    /// not answer, and requests that wait take so much of their memory that no more may wait for it.
    fn is_change_held_up(&self, py: Python<'_>) -> PyResult<bool> {
        let shared = &self.started(py)?.shared;
        Ok(shared.budget.is_half_used() && shared.queues.are_changes_stuck())
    }

    /// Has clients see topics as they are now, with those partitions whose logs have been made.
    fn publish_topics(&self, py: Python<'_>, topics: HashMap<String, TopicFacts>) -> PyResult<()> {
        enter(py, || {
            self.node.publish_topics(&topic_plans(topics)?);
            Ok(())
        })
    }

    /// Takes topics away at once, and has their logs deleted by the next `wait`: one gives `number`
    /// then, and `logs_changed` says whether they are gone.
    fn delete_topics(&self, py: Python<'_>, names: Vec<String>, number: u64) -> PyResult<()> {
        enter(py, || {
            let gone = self.node.remove_topics(&names)?;
            log_lifecycle::delete_logs(gone, number, &self.mailboxes.control);
            Ok(())
        })
    }

    /// Gives the logs of a topic another configuration.
    fn set_topic_configs(&self, py: Python<'_>, name: &str, configs: Configs) -> PyResult<()> {
        enter(py, || {
            let config = log_config(&LogConfig::default(), &configs)?;
            self.node.set_topic_config(name, &config);
            Ok(())
        })
    }

    /// What ApiVersions says of features: (name, lowest, highest level) of the supported, (name,
    /// level) of the finalised, and up to which offset of the metadata that is so.
    fn set_features(
        &self,
        supported: Vec<(String, i16, i16)>,
        finalized: Vec<(String, i16)>,
        epoch: i64,
    ) {
        self.node.set_features(Features {
            supported,
            finalized,
            epoch,
        });
    }

    /// The log directories that could not be taken, or have failed since.
    fn offline_log_dirs(&self) -> Vec<String> {
        let paths = self.node.offline_log_dirs();
        paths
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    }

    /// Name -> (topic id, number of partitions).
    fn topics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let result = PyDict::new(py);
        for topic in self.node.image().topics() {
            let facts = (PyBytes::new(py, &topic.id.0), topic.partitions.len());
            result.set_item(&*topic.name, facts)?;
        }
        Ok(result)
    }

    /// What the node counts and holds, from `start` on.
    fn figures(&self, py: Python<'_>) -> PyResult<Figures> {
        Ok(Figures::new(self.node.clone(), self.started(py)?))
    }

    /// Takes no more requests, has those that are parked answered, and ends the threads. Frames
    /// that Python has must be answered meanwhile, by another thread; then `wait` gives None.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let plane = self.plane.lock().clone();
        enter(py, || {
            if let Some(plane) = plane {
                plane.stop();
            }
            Ok(())
        })
    }

    /// The clean stop of the log directories, after `stop`: everything on disk, checkpoints, and last
    /// the marker of a clean shutdown. Returns those that could not be stopped so, with the reason.
    fn close(&self, py: Python<'_>, broker_epoch: i64) -> PyResult<Vec<(String, String)>> {
        let plane = self.plane.lock().clone();
        enter(py, || {
            if let Some(plane) = plane {
                plane.finish_changes();
            }
            let failed = self.node.close(broker_epoch).into_iter();
            Ok(failed
                .map(|(path, error)| (path.to_string_lossy().into_owned(), error.to_string()))
                .collect())
        })
    }
}

impl BrokerPlane {
    fn started(&self, py: Python<'_>) -> PyResult<Arc<BrokerCore>> {
        self.plane.lock().clone().ok_or_else(|| {
            raise(
                py,
                &Error::InvalidArgument("the node has not started".to_owned()),
            )
        })
    }

    fn call(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        asked: Asked,
        number: u64,
    ) -> PyResult<()> {
        let partition = self.partition(py, topic, partition)?;
        let call = LogCall {
            partition,
            asked,
            number,
        };
        call.queue(&self.mailboxes.control);
        Ok(())
    }

    fn answer_of(&self, number: u64) -> Result<LogAnswer> {
        let unknown = || Error::InvalidArgument(format!("nothing was asked as {number}"));
        let answer = self.mailboxes.control.take_answer(number);
        answer.ok_or_else(unknown)
    }

    fn partition(&self, py: Python<'_>, topic: &str, index: i32) -> PyResult<Arc<Partition>> {
        let image = self.node.image();
        let found = image.topic(topic).and_then(|topic| topic.partition(index));
        found.cloned().ok_or_else(|| {
            let sentence = format!("there is no partition {topic}-{index}");
            raise(py, &Error::InvalidArgument(sentence))
        })
    }

    fn answer(&self, plane: &BrokerCore, request: &Request, answer: ControlAnswer) {
        let parked = request.frame.parked;
        self.answers.lock().add(parked, answer, &plane.shared);
    }
}

/// That of a message, or of its class.
fn codec_of<'py>(message: &Bound<'py, PyAny>) -> PyResult<Bound<'py, MessageCodec>> {
    let codec = message.getattr(pyo3::intern!(message.py(), "_codec"))?;
    Ok(codec.cast_into::<MessageCodec>()?)
}

/// `kafkalite.listeners.ConnectionLimits`.
#[derive(FromPyObject)]
struct GivenLimits {
    total: usize,
    by_listener: Vec<usize>,
    rate: i64,
    rate_by_listener: Vec<i64>,
    per_address: usize,
    by_address: HashMap<String, usize>,
}

impl GivenLimits {
    fn parsed(self) -> Result<ConnectionLimits> {
        let by_address = self.by_address.into_iter().map(|(address, limit)| {
            let parsed: IpAddr = address
                .parse()
                .map_err(|_| Error::InvalidArgument(format!("{address} is no address")))?;
            // As those of connections are.
            Ok((parsed.to_canonical(), limit))
        });
        Ok(ConnectionLimits {
            total: self.total,
            by_listener: self.by_listener,
            rate: per_second(self.rate),
            rate_by_listener: self.rate_by_listener.into_iter().map(per_second).collect(),
            per_address: self.per_address,
            by_address: by_address.collect::<Result<_>>()?,
            ..ConnectionLimits::default()
        })
    }
}

/// `kafkalite.broker.CleanerSettings`.
#[derive(FromPyObject)]
struct GivenCleaner {
    dedupe_buffer_bytes: i64,
    load_factor: f64,
    backoff_ms: i64,
}

impl From<GivenCleaner> for CleanerSettings {
    fn from(given: GivenCleaner) -> CleanerSettings {
        CleanerSettings {
            dedupe_buffer_bytes: usize::try_from(given.dedupe_buffer_bytes).unwrap_or_default(),
            load_factor: given.load_factor,
            backoff_ms: given.backoff_ms,
        }
    }
}

/// A rate of connections; beyond what a number of Kafka's may be, there is none.
fn per_second(rate: i64) -> u32 {
    u32::try_from(rate).unwrap_or(u32::MAX)
}

fn topic_plans(topics: HashMap<String, TopicFacts>) -> Result<Vec<TopicPlan>> {
    let plans = topics.into_iter();
    plans.map(|(name, facts)| topic_plan(name, facts)).collect()
}

fn topic_plan(
    name: String,
    (id, is_internal, configs, partitions): TopicFacts,
) -> Result<TopicPlan> {
    let partitions = partitions.into_iter();
    Ok(TopicPlan {
        config: log_config(&LogConfig::default(), &configs)?,
        name,
        id: Uuid(id),
        is_internal,
        partitions: partitions
            .map(|(leader_epoch, directory_id)| PartitionPlan {
                leader_epoch,
                directory_id: Uuid(directory_id),
            })
            .collect(),
    })
}

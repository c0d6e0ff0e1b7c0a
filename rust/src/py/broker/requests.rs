//! Requests that Python answers, and what else its control thread comes for.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::state::BrokerState;
use crate::access::{Caller, Operation, Resource};
use crate::error::Error;
use crate::limits::{
    ANSWER_BYTES_AT_ONCE, ANSWER_VALUES_AT_ONCE, CONTROL_ANSWER_BYTES_MAX, LARGE_REQUEST_BYTES,
    REQUEST_ELEMENTS_AT_ONCE, REQUEST_ELEMENTS_MAX,
};
use crate::net::broker_core::BrokerCore;
use crate::net::control::queue::{ControlAnswer, ControlFrame, ControlQueue, Notices};
use crate::net::control::wait::wait;
use crate::net::mailbox::Answers;
use crate::net::memory::HeldMemory;
use crate::net::memory::large_answer::LargeAnswers;
use crate::py::codec::codec_of;
use crate::py::door::{enter, raise};
use crate::py::message_budget::{AnswerBudget, ElementBudget};
use crate::wire::cursor::Writer;
use crate::wire::frame::SIZE_BYTES;
use crate::wire::header::begin_response;

/// For the log: errors of ours, and warnings of what clients do.
type Sentences = (Vec<String>, Vec<String>);

/// Requests, numbers that may go on, sentences if there are any.
type Work = (Vec<Request>, Vec<u64>, Option<Sentences>);

/// A request that Python answers by `Requests.respond`, once.
#[pyclass(frozen, module = "kafkalite._native")]
pub struct Request {
    /// Its body is taken out.
    frame: ControlFrame,
    /// Empty once a large one is decoded.
    body: Mutex<Vec<u8>>,
    /// The memory of the elements of a large one.
    elements: Mutex<Option<HeldMemory>>,
    /// Some of the memory of a large answer, until that is written.
    answer: Mutex<Option<HeldMemory>>,
}

impl Request {
    fn new(mut frame: ControlFrame) -> Request {
        Request {
            body: Mutex::new(std::mem::take(&mut frame.body)),
            elements: Mutex::default(),
            answer: Mutex::default(),
            frame,
        }
    }
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
        &self.frame.identity.principal
    }

    #[getter]
    fn client_host(&self) -> &str {
        &self.frame.identity.host
    }

    #[getter]
    fn security_protocol(&self) -> &'static str {
        self.frame.identity.protocol.name()
    }

    #[getter]
    fn peer(&self) -> String {
        self.frame.peer.to_string()
    }

    /// Somebody may still read the answer: the connection is not known to be closed.
    #[getter]
    fn is_connected(&self) -> bool {
        self.frame.session.strong_count() > 0
    }

    /// A question of the broker's own: may a transaction's batches be appended?
    #[getter]
    fn is_internal(&self) -> bool {
        self.frame.is_internal
    }

    /// Decodes the body as an object of the class of its message. `None`: it is large, and for
    /// `decode_large`.
    fn decode<'py>(&self, kind: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let body = self.body.lock();
        if body.len() > LARGE_REQUEST_BYTES {
            return Ok(None);
        }
        let budget = ElementBudget::new(REQUEST_ELEMENTS_AT_ONCE);
        let version = self.frame.api_version;
        let decoded = codec_of(kind)?
            .get()
            .decode_within(kind.py(), &body, version, &budget);
        if budget.is_over() {
            Ok(None)
        } else {
            decoded.map(Some)
        }
    }

    /// As `decode`, of a large one, once, by a thread that lets others have the GIL meanwhile.
    /// Elements count as memory of requests before they are made, until the request is gone.
    fn decode_large<'py>(&self, kind: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let body = std::mem::take(&mut *self.body.lock());
        let budget = ElementBudget::in_steps(REQUEST_ELEMENTS_MAX, self.frame.memory.beside());
        let version = self.frame.api_version;
        let decoded = codec_of(kind)?
            .get()
            .decode_within(kind.py(), &body, version, &budget);
        *self.elements.lock() = budget.into_memory();
        decoded
    }
}

impl Request {
    fn caller(&self) -> Caller<'_> {
        Caller {
            identity: &self.frame.identity,
            client_id: self.frame.client_id.as_deref(),
            listener: self.frame.listener,
        }
    }
}

/// The requests of one node.
#[pyclass(frozen, module = "kafkalite._native")]
pub struct Requests {
    broker: Arc<BrokerState>,
    answers: Mutex<Answers>,
    large_answers: Arc<LargeAnswers>,
}

#[pymethods]
impl Requests {
    /// Requests for Python, the numbers given to calls of logs and to `wake` that may go
    /// on, and sentences for the log if there are any; blocks until there is something,
    /// at most `timeout_ms`. None after `stop`. Of two threads that call it one waits
    /// until the other is stuck.
    #[pyo3(signature = (timeout_ms=None))]
    fn wait(&self, py: Python<'_>, timeout_ms: Option<u64>) -> PyResult<Option<Work>> {
        let timeout = timeout_ms.map(Duration::from_millis);
        let core = self.broker.started(py)?;
        // Of a round that has failed.
        self.answers.lock().send(&core.shared.mailboxes);
        let taken = enter(py, || {
            Ok(wait(timeout, core.shared.control(), &core.shared.storage))
        })?;
        Ok(taken.map(|taken| {
            let frames = taken.frames.into_iter();
            let requests = frames.map(Request::new).collect();
            let Notices { errors, warnings } = taken.notices;
            let are_any = !errors.is_empty() || !warnings.is_empty();
            (requests, taken.woken, are_any.then_some((errors, warnings)))
        }))
    }

    /// Has `wait` give `number`. Any thread may call it.
    fn wake(&self, number: u64) {
        self.broker.mailboxes.control.wake(number);
    }

    /// Counts bytes as memory that requests take, until they are given back
    /// by so many less than none.
    fn hold(&self, py: Python<'_>, bytes: i64) -> PyResult<()> {
        let shared = &self.broker.started(py)?.shared;
        let count = usize::try_from(bytes.unsigned_abs()).unwrap_or(usize::MAX);
        if bytes < 0 {
            shared.memory.release(count);
        } else {
            shared.memory.charge(count);
        }
        Ok(())
    }

    /// Says whether the client of a request may do an operation to a
    /// resource, by their codes in ACLs.
    #[pyo3(signature = (request, operation, kind, name=None))]
    fn may(
        &self,
        py: Python<'_>,
        request: &Request,
        operation: i8,
        kind: i8,
        name: Option<&str>,
    ) -> PyResult<bool> {
        let unknown = || Error::InvalidArgument(format!("there is no operation {operation}"));
        let operation = Operation::of_code(operation).ok_or_else(|| raise(py, &unknown()))?;
        let resource = resource(py, kind, name)?;
        let image = self.broker.node.image();
        let authorizer = &image.permits.authorizer;
        Ok(authorizer.authorize(&request.caller(), operation, resource))
    }

    /// The field of operations that the client of a request may do to a resource (KIP-430).
    #[pyo3(signature = (request, kind, name=None))]
    fn operations(
        &self,
        py: Python<'_>,
        request: &Request,
        kind: i8,
        name: Option<&str>,
    ) -> PyResult<i32> {
        let resource = resource(py, kind, name)?;
        let image = self.broker.node.image();
        let authorizer = &image.permits.authorizer;
        Ok(authorizer.authorized_operations(&request.caller(), resource))
    }

    /// Answers a request with a message, in the request's version. True: it is not answered, for
    /// the answer is large: `respond_large` is for it. Until then it counts as memory as far as it
    /// has been looked at.
    fn respond(
        &self,
        py: Python<'_>,
        request: &Request,
        response: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let budget = AnswerBudget::at_once(ANSWER_BYTES_AT_ONCE, ANSWER_VALUES_AT_ONCE);
        let is_large = self.respond_within(py, request, response.clone(), &budget)?;
        if is_large {
            let mut memory = request.frame.memory.beside();
            memory.grow(ANSWER_BYTES_AT_ONCE);
            *request.answer.lock() = Some(memory);
        }
        Ok(is_large)
    }

    /// Says whether a large answer may be written now; else `wait_for_room` comes first.
    fn has_room(&self, py: Python<'_>) -> PyResult<bool> {
        let memory = &self.broker.started(py)?.shared.memory;
        Ok(self.large_answers.has_room(memory))
    }

    /// Blocks as long as memory is short and large answers are on their way.
    fn wait_for_room(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.broker.started(py)?;
        enter(py, || {
            let shared = &core.shared;
            let now_ms = || shared.monotonic_ms();
            self.large_answers.wait_for_room(&shared.memory, now_ms);
            Ok(())
        })
    }

    /// As `respond`, of a large answer, which is taken out of its list, by a thread that lets
    /// others have the GIL meanwhile. What nobody else has of it is gone as soon as it is written.
    /// The answer counts as memory while it is written, and until it is sent.
    fn respond_large(
        &self,
        py: Python<'_>,
        request: &Request,
        response: &Bound<'_, PyList>,
    ) -> PyResult<()> {
        let memory = request.answer.lock().take();
        let memory = memory.unwrap_or_else(|| request.frame.memory.beside());
        let large = self.large_answers.begin(memory);
        let budget = AnswerBudget::in_steps(CONTROL_ANSWER_BYTES_MAX, large);
        let message = response.get_item(0)?;
        response.del_item(0)?;
        self.respond_within(py, request, message, &budget)?;
        Ok(())
    }

    /// Holds answers back, so that they leave together, until `send_answers`: nothing that takes
    /// long is to come before that.
    fn gather_answers(&self) {
        self.answers.lock().gather();
    }

    /// The answers leave that were held back.
    fn send_answers(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.broker.started(py)?;
        self.answers.lock().send(&core.shared.mailboxes);
        Ok(())
    }

    /// The request as the client has sent it, header and body, for whoever answers in this broker's
    /// place; or with another body, of the same version.
    #[pyo3(signature = (request, body=None))]
    fn forwarded<'py>(
        &self,
        py: Python<'py>,
        request: &Request,
        body: Option<&[u8]>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let core = self.broker.started(py)?;
        let asked = &request.frame;
        let sent = request.body.lock();
        let body = body.unwrap_or(&sent);
        let mut writer = Writer::with_capacity(64 + body.len());
        writer.i16(asked.api_key);
        writer.i16(asked.api_version);
        writer.i32(asked.correlation_id);
        writer.nullable_string(asked.client_id.as_deref(), false);
        writer.no_tags(is_flexible(&core, asked));
        writer.bytes.extend_from_slice(body);
        Ok(PyBytes::new(py, &writer.bytes))
    }

    /// Answers a request by the bytes, header and body, that another has answered it with.
    fn respond_forwarded(&self, py: Python<'_>, request: &Request, answer: &[u8]) -> PyResult<()> {
        let core = self.broker.started(py)?;
        let mut bytes = vec![0; SIZE_BYTES];
        bytes.extend_from_slice(answer);
        self.answer(&core, request, ControlAnswer::Response(bytes, None));
        Ok(())
    }

    /// Has the request answered without Python, what it lacked being there now.
    fn answer_again(&self, py: Python<'_>, request: &Request) -> PyResult<()> {
        let core = self.broker.started(py)?;
        self.answer(&core, request, ControlAnswer::Again);
        Ok(())
    }

    /// Answers a question of the broker's own: a code for each partition, in their order.
    fn respond_verified(&self, py: Python<'_>, request: &Request, codes: Vec<i16>) -> PyResult<()> {
        let plane = self.broker.started(py)?;
        self.answer(&plane, request, ControlAnswer::Verified(codes));
        Ok(())
    }

    /// Closes the connection of a request that cannot be answered.
    fn close_connection(&self, py: Python<'_>, request: &Request) -> PyResult<()> {
        let core = self.broker.started(py)?;
        self.answer(&core, request, ControlAnswer::Close);
        Ok(())
    }
}

impl Requests {
    pub fn new(broker: Arc<BrokerState>) -> Requests {
        Requests {
            broker,
            answers: Mutex::default(),
            large_answers: Arc::default(),
        }
    }

    /// The queue of the control thread.
    pub fn control(&self) -> Arc<ControlQueue> {
        self.broker.mailboxes.control.clone()
    }

    /// True: the answer has more values than are written at once, and nothing is answered.
    fn respond_within(
        &self,
        py: Python<'_>,
        request: &Request,
        response: Bound<'_, PyAny>,
        budget: &AnswerBudget,
    ) -> PyResult<bool> {
        let core = self.broker.started(py)?;
        let asked = &request.frame;
        let mut writer = begin_response(asked.correlation_id, is_flexible(&core, asked), 256);
        let codec = codec_of(&response)?;
        let written = codec
            .get()
            .write(response, asked.api_version, &mut writer, budget);
        let answer = match written {
            Ok(()) => {
                let large = budget.end(writer.bytes.len());
                ControlAnswer::Response(writer.bytes, large)
            }
            Err(_) if budget.is_long() => return Ok(true),
            Err(_) if budget.is_over() => ControlAnswer::Refused(Error::MalformedRequest(format!(
                "its answer takes more than {CONTROL_ANSWER_BYTES_MAX} bytes of memory"
            ))),
            Err(error) => return Err(error),
        };
        self.answer(&core, request, answer);
        Ok(false)
    }

    fn answer(&self, core: &BrokerCore, request: &Request, answer: ControlAnswer) {
        let parked = request.frame.parked;
        self.answers
            .lock()
            .add(parked, answer, &core.shared.mailboxes);
    }
}

fn is_flexible(core: &BrokerCore, asked: &ControlFrame) -> bool {
    let key = core.shared.context.keys.get(asked.api_key);
    key.is_some_and(|key| asked.api_version >= key.first_flexible)
}

fn resource<'a>(py: Python<'_>, kind: i8, name: Option<&'a str>) -> PyResult<Resource<'a>> {
    let unknown = || Error::InvalidArgument(format!("there is no resource of kind {kind}"));
    Resource::of_code(kind, name).ok_or_else(|| raise(py, &unknown()))
}

//! Connections of the broker's own (`net/outbound.rs`) as Python uses them.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::broker::requests::Requests;
use crate::net::outbound::{Call, Outbound};
use crate::py::door::{enter, raise};

/// The number of a call, the bytes behind the header of its answer, or why there is none.
type Told<'py> = (u64, Option<Bound<'py, PyBytes>>, Option<String>);

/// See `net/outbound.rs`.
#[pyclass(frozen, name = "Outbound", module = "kafkalite._native")]
pub struct PyOutbound {
    inner: Outbound,
}

#[pymethods]
impl PyOutbound {
    #[new]
    fn new(client_id: String) -> PyOutbound {
        PyOutbound {
            inner: Outbound::new(client_id),
        }
    }

    /// Has a request of a flexible version sent by the connection of this purpose.
    #[expect(clippy::too_many_arguments, reason = "the parts of a request")]
    fn call(
        &self,
        py: Python<'_>,
        number: u64,
        purpose: &str,
        address: (String, u16),
        api_key: i16,
        api_version: i16,
        body: Vec<u8>,
        timeout_ms: u64,
    ) -> PyResult<()> {
        let call = Call {
            number,
            address,
            api_key,
            api_version,
            body,
            due: Instant::now() + Duration::from_millis(timeout_ms),
        };
        let called = self.inner.call(purpose, call);
        called.map_err(|error| raise(py, &error))
    }

    /// Waits until there are answers, at most so long, and takes them.
    fn wait<'py>(&self, py: Python<'py>, timeout_ms: u64) -> PyResult<Vec<Told<'py>>> {
        let timeout = Duration::from_millis(timeout_ms);
        let outcomes = enter(py, || Ok(self.inner.wait(timeout)))?;
        let told = outcomes.into_iter().map(|(number, outcome)| match outcome {
            Ok(bytes) => (number, Some(PyBytes::new(py, &bytes)), None),
            Err(reason) => (number, None, Some(reason)),
        });
        Ok(told.collect())
    }

    /// From now on answers wake the control thread by `number`, which takes them by `wait`.
    fn wake_by(&self, requests: &Requests, number: u64) {
        self.inner.wake_by(requests.control(), number);
    }
}

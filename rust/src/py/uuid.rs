//! New ids for Python: those of topics, of clusters and of log directories.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::door::raise;
use crate::uuid::Uuid;

/// A new id, 16 bytes.
#[pyo3::pyfunction]
pub fn random_uuid_bytes(py: Python<'_>) -> PyResult<Bound<'_, PyBytes>> {
    Ok(PyBytes::new(py, &random(py)?.0))
}

/// A new id in Kafka's writing.
#[pyo3::pyfunction(name = "random_uuid")]
pub fn random_uuid_text(py: Python<'_>) -> PyResult<String> {
    Ok(random(py)?.to_string())
}

fn random(py: Python<'_>) -> PyResult<Uuid> {
    Uuid::random().map_err(|error| raise(py, &error))
}

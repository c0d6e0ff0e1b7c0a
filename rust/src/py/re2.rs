//! Regular expressions of clients, for Python. What a client may ask of them takes a second: both
//! calls work without the GIL.

use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::py::door::enter;
use crate::re2::Re2;

/// A pattern of RE2 that matches whole texts.
#[pyclass(frozen, module = "kafkalite._native", name = "Re2")]
pub struct PyRe2(Mutex<Re2>);

#[pymethods]
impl PyRe2 {
    /// `None` for a pattern that RE2 refuses, or that is beyond the bounds.
    #[staticmethod]
    fn compile(py: Python<'_>, pattern: &str) -> PyResult<Option<PyRe2>> {
        let compiled = enter(py, || Ok(Re2::compile(pattern)))?;
        Ok(compiled.map(|compiled| PyRe2(Mutex::new(compiled))))
    }

    /// Says of each text whether it matches.
    fn matches(&self, py: Python<'_>, texts: Vec<String>) -> PyResult<Vec<bool>> {
        enter(py, || {
            let mut compiled = self.0.lock();
            let texts = texts.into_iter();
            Ok(texts.map(|text| compiled.matches(&text)).collect())
        })
    }
}

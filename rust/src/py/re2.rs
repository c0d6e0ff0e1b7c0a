//! Regular expressions of clients, for Python.

use parking_lot::Mutex;

use crate::re2::Re2;

/// A pattern of RE2 that matches whole texts.
#[pyo3::pyclass(frozen, module = "kafkalite._native", name = "Re2")]
pub struct PyRe2(Mutex<Re2>);

#[pyo3::pymethods]
impl PyRe2 {
    /// `None` for a pattern that RE2 refuses, or that is beyond the bounds.
    #[staticmethod]
    fn compile(pattern: &str) -> Option<PyRe2> {
        Re2::compile(pattern).map(|compiled| PyRe2(Mutex::new(compiled)))
    }

    fn matches(&self, text: &str) -> bool {
        self.0.lock().matches(text)
    }
}

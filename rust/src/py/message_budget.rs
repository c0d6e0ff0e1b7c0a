//! Limits of messages that Python reads and writes: elements of a request, memory of an answer, and
//! steps between which others have the GIL.

use std::cell::{Cell, RefCell};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::door::{GilSteps, give_back_memory};
use crate::codec::Value;
use crate::error::Error;
use crate::limits::{ELEMENT_BYTES, GIVEN_BACK_BYTES, REQUEST_ELEMENTS_MAX};
use crate::net::memory::HeldMemory;
use crate::net::memory::large_answer::LargeAnswer;

/// Room for so many elements in all arrays of a message.
pub struct ElementBudget {
    left: Cell<usize>,
    is_over: Cell<bool>,
    /// Elements until others may have the GIL, and what counts the memory of elements before they
    /// are made; `None`: all are made at once.
    steps: Option<(GilSteps, RefCell<HeldMemory>)>,
}

impl ElementBudget {
    pub fn new(elements: usize) -> ElementBudget {
        ElementBudget {
            left: Cell::new(elements),
            is_over: Cell::new(false),
            steps: None,
        }
    }

    /// For a thread of its own, which gives the GIL away between elements.
    pub fn in_steps(elements: usize, memory: HeldMemory) -> ElementBudget {
        ElementBudget {
            steps: Some((GilSteps::default(), RefCell::new(memory))),
            ..ElementBudget::new(elements)
        }
    }

    /// Takes the elements of an array before they are made.
    pub fn admit(&self, count: usize) -> PyResult<()> {
        let Some(left) = self.left.get().checked_sub(count) else {
            self.is_over.set(true);
            let sentence = format!("it has more than {REQUEST_ELEMENTS_MAX} elements");
            return Err(Error::MalformedRequest(sentence).into());
        };
        self.left.set(left);
        if let Some((_, memory)) = &self.steps {
            memory.borrow_mut().grow(ELEMENT_BYTES * count);
        }
        Ok(())
    }

    /// Comes before each element.
    pub fn begin_element(&self, py: Python<'_>) {
        if let Some((steps, _)) = &self.steps {
            steps.count(py);
        }
    }

    pub fn is_in_steps(&self) -> bool {
        self.steps.is_some()
    }

    /// There were more elements.
    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// The memory that the elements count as.
    pub fn into_memory(self) -> Option<HeldMemory> {
        self.steps.map(|(_, memory)| memory.into_inner())
    }
}

/// Memory that the values of an answer may take, counted as `Value`s. What is in a message twice
/// counts twice, though it may be one object of Python's.
pub struct AnswerBudget {
    bytes: Cell<usize>,
    /// Values that are written at once; `None`: all, by a thread that gives
    /// the GIL away between them.
    values: Option<Cell<usize>>,
    steps: GilSteps,
    /// Bytes since memory was given back.
    written: Cell<usize>,
    /// The answer, if it is large, until `end`.
    large: RefCell<Option<LargeAnswer>>,
}

impl AnswerBudget {
    /// For so many bytes and values at once.
    pub fn at_once(bytes: usize, values: usize) -> AnswerBudget {
        AnswerBudget {
            bytes: Cell::new(bytes),
            values: Some(Cell::new(values)),
            steps: GilSteps::default(),
            written: Cell::new(0),
            large: RefCell::default(),
        }
    }

    /// For a thread of its own, which gives the GIL away between values. What they take counts as
    /// memory of the answer.
    pub fn in_steps(bytes: usize, large: LargeAnswer) -> AnswerBudget {
        AnswerBudget {
            values: None,
            large: RefCell::new(Some(large)),
            ..AnswerBudget::at_once(bytes, 0)
        }
    }

    pub fn endless() -> AnswerBudget {
        AnswerBudget::at_once(usize::MAX, usize::MAX)
    }

    pub fn take(&self, py: Python<'_>, bytes: usize) -> PyResult<()> {
        let written = self.written.get() + bytes;
        self.written.set(written % GIVEN_BACK_BYTES);
        if written >= GIVEN_BACK_BYTES && self.lets_go() {
            give_back_memory(py);
        }
        if self.lets_go()
            && let Some(large) = &mut *self.large.borrow_mut()
        {
            large.memory.grow(bytes);
        }
        take_from(&self.bytes, bytes)
    }

    pub fn take_value(&self, py: Python<'_>) -> PyResult<()> {
        self.take(py, size_of::<Value>())?;
        match &self.values {
            Some(values) => take_from(values, 1),
            None => {
                self.steps.count(py);
                Ok(())
            }
        }
    }

    /// Elements that nobody else has are let go of.
    pub fn lets_go(&self) -> bool {
        self.values.is_none()
    }

    /// Something found no room. A little may have been left for others.
    pub fn is_over(&self) -> bool {
        self.bytes.get() == 0
    }

    /// The answer is written, in so many bytes.
    pub fn end(&self, bytes: usize) -> Option<LargeAnswer> {
        let mut large = self.large.take();
        if let Some(large) = &mut large {
            large.memory.resize(bytes);
        }
        large
    }

    /// There is more than is written at once.
    pub fn is_long(&self) -> bool {
        let values = self.values.as_ref();
        values.is_some_and(|values| values.get() == 0 || self.is_over())
    }
}

/// Takes from what is left; all of it where that is not enough.
fn take_from(left: &Cell<usize>, count: usize) -> PyResult<()> {
    let after = left.get().checked_sub(count);
    left.set(after.unwrap_or(0));
    match after {
        Some(_) => Ok(()),
        None => Err(PyTypeError::new_err("more than fits")),
    }
}

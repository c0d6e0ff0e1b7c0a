//! The release of messages that nobody uses any more, in steps: all objects of a large one at once
//! would keep the GIL for a tenth of a second.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::codec::{MessageCodec, codec_of};
use super::door::{GilSteps, give_back_memory, references_to};

/// Empties a list of messages. They are taken apart as far as nobody else has them or what is in
/// them, and others have the GIL meanwhile: for a thread beside the control thread.
#[pyo3::pyfunction]
pub fn release(messages: &Bound<'_, PyList>) -> PyResult<()> {
    let steps = GilSteps::default();
    let is_some = !messages.is_empty();
    while let Some(message) = pop(messages)? {
        let codec = codec_of(&message)?;
        take_apart(message, Some(codec.get()), 1, &steps)?;
    }
    if is_some {
        give_back_memory(messages.py());
    }
    Ok(())
}

/// Takes a message, a list or a struct apart. The `references` to it are those of the caller
/// and of what it is still in.
fn take_apart(
    object: Bound<'_, PyAny>,
    codec: Option<&MessageCodec>,
    references: isize,
    steps: &GilSteps,
) -> PyResult<()> {
    let py = object.py();
    steps.count(py);
    if references_to(&object) > references {
        return Ok(());
    }
    if let Ok(list) = object.cast::<PyList>() {
        while let Some(element) = pop(list)? {
            take_apart(element, codec, 1, steps)?;
        }
        return Ok(());
    }
    for (index, name, inner) in codec.into_iter().flat_map(MessageCodec::nested) {
        let value = match object.cast::<PyTuple>() {
            Ok(fields) => fields.get_item(index)?,
            Err(_) => object.getattr(name.bind(py))?,
        };
        take_apart(value, inner, 2, steps)?;
    }
    Ok(())
}

fn pop<'py>(list: &Bound<'py, PyList>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(last) = list.len().checked_sub(1) else {
        return Ok(None);
    };
    let element = list.get_item(last)?;
    list.del_item(last)?;
    Ok(Some(element))
}

//! Messages for Python: objects of classes that `kafkalite.protocol.messages` makes from the table,
//! with an attribute a field. A class knows its message (`_name`, on the outermost), the names of its
//! fields (`_fields`) and the classes of its structs (`_structs`, one per field or None).

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use super::door::raise;
use crate::codec::schema::{Kind, Struct};
use crate::codec::{Message, Value, decode, encode};
use crate::uuid::Uuid;
use crate::wire::{Reader, Writer};

/// What Python makes a class of: (name, [(field, default, layout of its struct or None)]).
#[pyo3::pyfunction]
pub fn message_layout<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyTuple>> {
    let message = Message::find(name).map_err(|error| raise(py, &error))?;
    layout(py, &message.root)
}

fn layout<'py>(py: Python<'py>, of: &Struct) -> PyResult<Bound<'py, PyTuple>> {
    let fields = PyList::empty(py);
    for field in &of.fields {
        let element = match &field.kind {
            Kind::Array(element) => element,
            kind => kind,
        };
        let inner = match element {
            Kind::Struct(inner) => layout(py, inner)?.into_any(),
            _ => py.None().into_bound(py),
        };
        // A struct's default is made anew each time, of its class.
        let default = match &field.default {
            Value::Struct(_) => py.Ellipsis().into_bound(py),
            default => to_python(py, &field.kind, default, None)?,
        };
        fields.append((&field.name, default, inner))?;
    }
    (&of.name, fields).into_pyobject(py)
}

/// (api key or None, lowest and highest version, first flexible version or None) of a message.
#[pyo3::pyfunction]
pub fn message_versions(
    py: Python<'_>,
    name: &str,
) -> PyResult<(Option<i16>, i16, i16, Option<i16>)> {
    let message = Message::find(name).map_err(|error| raise(py, &error))?;
    let flexible = message.flexible;
    let first_flexible = (flexible.first <= flexible.last).then_some(flexible.first);
    Ok((
        message.api_key,
        message.versions.first,
        message.versions.last,
        first_flexible,
    ))
}

/// An object of `class` out of the body of its message in `version`; bytes behind it are an error.
#[pyo3::pyfunction]
pub fn decode_message<'py>(
    class: &Bound<'py, PyAny>,
    version: i16,
    body: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let name: String = class.getattr(pyo3::intern!(py, "_name"))?.extract()?;
    let decoded = Message::find(&name).and_then(|message| {
        let mut reader = Reader::new(body);
        let value = decode(&message, version, &mut reader)?;
        Ok((message, value))
    });
    let (message, value) = decoded.map_err(|error| raise(py, &error))?;
    struct_to_python(py, &message.root, &value, class)
}

/// The body of `object`'s message in `version`.
#[pyo3::pyfunction]
pub fn encode_message<'py>(
    object: &Bound<'py, PyAny>,
    version: i16,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut writer = Writer::default();
    encode_object(object, version, &mut writer, &mut AnswerRoom(usize::MAX))?;
    Ok(PyBytes::new(object.py(), &writer.bytes))
}

/// Bytes that values may take in memory. What is in a message twice counts twice, though it may be one
/// object of Python's.
pub struct AnswerRoom(pub usize);

impl AnswerRoom {
    fn take(&mut self, bytes: usize) -> PyResult<()> {
        match self.0.checked_sub(size_of::<Value>() + bytes) {
            Some(left) => self.0 = left,
            None => {
                self.0 = 0;
                return Err(PyTypeError::new_err("more than there is room for"));
            }
        }
        Ok(())
    }

    /// Something found no room. A little may have been left for others.
    pub fn is_over(&self) -> bool {
        self.0 == 0
    }
}

pub fn encode_object(
    object: &Bound<'_, PyAny>,
    version: i16,
    writer: &mut Writer,
    room: &mut AnswerRoom,
) -> PyResult<()> {
    let py = object.py();
    let name: String = object.getattr(pyo3::intern!(py, "_name"))?.extract()?;
    let message = Message::find(&name).map_err(|error| raise(py, &error))?;
    let value = struct_from_python(&message.root, object, room)?;
    encode(&message, version, &value, writer).map_err(|error| raise(py, &error))
}

fn to_python<'py>(
    py: Python<'py>,
    kind: &Kind,
    value: &Value,
    class: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Value::Int(value) => value.into_pyobject(py)?.into_any(),
        Value::Float(value) => value.into_pyobject(py)?.into_any(),
        Value::String(value) => PyString::new(py, value).into_any(),
        Value::Bytes(value) => PyBytes::new(py, value).into_any(),
        Value::Uuid(value) => PyBytes::new(py, &value.0).into_any(),
        Value::Array(values) => {
            let Kind::Array(element) = kind else {
                return Err(PyTypeError::new_err("an array where the table has none"));
            };
            let list = PyList::empty(py);
            for value in values {
                list.append(to_python(py, element, value, class)?)?;
            }
            list.into_any()
        }
        Value::Struct(_) => match (kind, class) {
            (Kind::Struct(inner), Some(class)) => struct_to_python(py, inner, value, class)?,
            _ => return Err(PyTypeError::new_err("a struct without a class")),
        },
    })
}

fn struct_to_python<'py>(
    py: Python<'py>,
    of: &Struct,
    value: &Value,
    class: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let Value::Struct(values) = value else {
        return Err(PyTypeError::new_err("not a struct"));
    };
    let structs = class.getattr(pyo3::intern!(py, "_structs"))?;
    let structs = structs.cast::<PyTuple>()?;
    let object = class.call_method1(pyo3::intern!(py, "__new__"), (class,))?;
    for (index, (field, value)) in of.fields.iter().zip(values).enumerate() {
        let inner = structs.get_item(index)?;
        let attribute = to_python(py, &field.kind, value, Some(&inner))?;
        object.setattr(PyString::intern(py, &field.name), attribute)?;
    }
    Ok(object)
}

fn struct_from_python(
    of: &Struct,
    object: &Bound<'_, PyAny>,
    room: &mut AnswerRoom,
) -> PyResult<Value> {
    let mut values = Vec::with_capacity(of.fields.len());
    for field in &of.fields {
        let attribute = object.getattr(PyString::intern(object.py(), &field.name))?;
        let value = from_python(&field.kind, &attribute, room).map_err(|error| {
            PyTypeError::new_err(format!("{}.{}: {error}", of.name, field.name))
        })?;
        values.push(value);
    }
    Ok(Value::Struct(values))
}

fn from_python(kind: &Kind, object: &Bound<'_, PyAny>, room: &mut AnswerRoom) -> PyResult<Value> {
    if object.is_none() {
        room.take(0)?;
        return Ok(Value::Null);
    }
    let value = match kind {
        Kind::Bool => Value::Bool(object.extract()?),
        Kind::Int8 | Kind::Int16 | Kind::Uint16 | Kind::Int32 | Kind::Uint32 | Kind::Int64 => {
            Value::Int(object.extract()?)
        }
        Kind::Float64 => Value::Float(object.extract()?),
        Kind::String => Value::String(object.extract()?),
        Kind::Uuid => Value::Uuid(Uuid(object.extract()?)),
        Kind::Bytes | Kind::Records => Value::Bytes(object.extract()?),
        Kind::Array(element) => {
            let mut values = Vec::new();
            for item in object.try_iter()? {
                values.push(from_python(element, &item?, room)?);
            }
            Value::Array(values)
        }
        Kind::Struct(inner) => struct_from_python(inner, object, room)?,
    };
    room.take(match &value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    })?;
    Ok(value)
}

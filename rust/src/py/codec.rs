//! Messages for Python: objects of classes that `kafkalite.protocol.messages` makes from the table,
//! with an attribute a field. They are read and written as they are, by what is remembered of each
//! class: its fields' names, their defaults, and the classes of its structs.
#![expect(
    unsafe_code,
    reason = "an object whose fields are all about to be set needs no __init__"
)]

use std::borrow::Cow;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple, PyType};

use super::door::{raise, references_to};
use super::message_budget::{AnswerBudget, ElementBudget};
use crate::codec::schema::{Kind, Struct};
use crate::codec::walk::{self, Maker, Source};
use crate::codec::{Message, Value};
use crate::error::Error;
use crate::uuid::Uuid;
use crate::wire::{Reader, Writer};

/// Most bodies are no larger.
const BODY_BYTES: usize = 128;

/// The fields of which Python makes a class: (name, [(field, default, layout
/// of its struct or None)]).
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
            default => default_to_python(py, default)?,
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

/// The default of a field that is no struct.
fn default_to_python<'py>(py: Python<'py>, default: &Value) -> PyResult<Bound<'py, PyAny>> {
    let (codec, budget) = (None, &ElementBudget::new(0));
    let maker = ObjectMaker { py, codec, budget };
    match default {
        Value::Bool(value) => maker.bool(*value),
        Value::Int(value) => maker.int(*value),
        Value::Float(value) => maker.float(*value),
        Value::String(value) => Ok(maker.string(value)),
        Value::Bytes(value) => Ok(maker.bytes(value)),
        Value::Uuid(value) => Ok(maker.uuid(value)),
        Value::Array(_) => maker.array(Vec::new()),
        Value::Null | Value::Struct(_) => Ok(maker.null()),
    }
}

/// Name, default, and codec of its struct.
type NewField<'py> = (Bound<'py, PyString>, Py<PyAny>, Option<Py<MessageCodec>>);

/// A class of `kafkalite.protocol.messages`, as the walk over the table needs it.
#[pyclass(frozen, module = "kafkalite._native")]
pub struct MessageCodec {
    class: Py<PyType>,
    name: String,
    /// `None` for the class of a struct.
    message: Option<Arc<Message>>,
    fields: Vec<ClassField>,
}

struct ClassField {
    name: Py<PyString>,
    default: FieldDefault,
    /// The codec of the struct in it, or of those in its array.
    inner: Option<Py<MessageCodec>>,
}

enum FieldDefault {
    Same(Py<PyAny>),
    NewList,
    NewStruct,
}

#[pymethods]
impl MessageCodec {
    /// `fields` are in the order of `message_layout`. `name` is that of a
    /// message if it `is_message`.
    #[new]
    fn new(
        py: Python<'_>,
        class_: Bound<'_, PyType>,
        name: String,
        is_message: bool,
        fields: Vec<NewField<'_>>,
    ) -> PyResult<MessageCodec> {
        let message = if is_message {
            Some(Message::find(&name)?)
        } else {
            None
        };
        let fields = fields.into_iter().map(|(name, default, inner)| {
            let default = match default.bind(py) {
                default if default.is(py.Ellipsis()) => FieldDefault::NewStruct,
                default if default.is_instance_of::<PyList>() => FieldDefault::NewList,
                _ => FieldDefault::Same(default),
            };
            Ok(ClassField {
                name: PyString::intern(py, name.to_str()?).unbind(),
                default,
                inner,
            })
        });
        Ok(MessageCodec {
            class: class_.unbind(),
            name,
            message,
            fields: fields.collect::<PyResult<_>>()?,
        })
    }

    /// Sets all fields of a new object, those that are not in `given` to their defaults.
    fn fill(&self, object: &Bound<'_, PyAny>, given: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = object.py();
        let mut left = given.len();
        for field in &self.fields {
            let name = field.name.bind(py);
            let value = match left {
                0 => None,
                _ => given.get_item(name)?,
            };
            left -= usize::from(value.is_some());
            let value = value.map_or_else(|| field.default(py), Ok)?;
            object.setattr(name, value)?;
        }
        if left == 0 {
            return Ok(());
        }
        let is_known = |name: &String| {
            let mut fields = self.fields.iter();
            fields.any(|field| field.name.bind(py).to_str().ok() == Some(name))
        };
        let given: Vec<String> = given.keys().extract()?;
        let unknown: Vec<String> = given.into_iter().filter(|name| !is_known(name)).collect();
        let sentence = format!("{} has no field {}", self.name, unknown.join(", "));
        Err(PyTypeError::new_err(sentence))
    }

    /// An object of the class out of the body of its message in `version`.
    pub fn decode<'py>(
        &self,
        py: Python<'py>,
        body: &[u8],
        version: i16,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.decode_within(py, body, version, &ElementBudget::new(usize::MAX))
    }

    /// The body of `object`'s message in `version`. It, and every struct in it, may be a tuple of
    /// the fields in the table's order.
    fn encode<'py>(
        &self,
        object: Bound<'py, PyAny>,
        version: i16,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let py = object.py();
        let mut writer = Writer::with_capacity(BODY_BYTES);
        self.write(object, version, &mut writer, &AnswerBudget::endless())?;
        Ok(PyBytes::new(py, &writer.bytes))
    }
}

impl MessageCodec {
    /// As `decode`, of so many elements as there is room for in all arrays together. Errors:
    /// `MalformedRequest` of more, before an object is made of the array that goes beyond.
    pub fn decode_within<'py>(
        &self,
        py: Python<'py>,
        body: &[u8],
        version: i16,
        budget: &ElementBudget,
    ) -> PyResult<Bound<'py, PyAny>> {
        let codec = Some(self);
        let maker = ObjectMaker { py, codec, budget };
        walk::read(self.message()?, version, maker, &mut Reader::new(body))
    }

    fn message(&self) -> Result<&Message, Error> {
        let no_message = || Error::InvalidArgument(format!("{} is no message", self.name));
        self.message.as_deref().ok_or_else(no_message)
    }

    /// Writes the body of `object`'s message in `version`. In steps, with the only reference to
    /// `object`: each element is gone when it is written.
    pub fn write(
        &self,
        object: Bound<'_, PyAny>,
        version: i16,
        writer: &mut Writer,
        budget: &AnswerBudget,
    ) -> PyResult<()> {
        let source = Attribute {
            is_last: budget.lets_go() && references_to(&object) == 1,
            object,
            codec: Some(self),
            of: None,
            budget,
        };
        walk::write(self.message()?, version, &source, writer)
    }

    /// The fields that hold others: index, name, and the codec of their structs.
    pub fn nested(&self) -> impl Iterator<Item = (usize, &Py<PyString>, Option<&MessageCodec>)> {
        let fields = self.fields.iter().enumerate();
        let nested = fields.filter(|(_, field)| !matches!(field.default, FieldDefault::Same(_)));
        nested.map(|(index, field)| (index, &field.name, field.codec()))
    }

    /// An object without fields.
    fn allocate<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let class = self.class.as_ptr().cast();
        // SAFETY: a class that Python code has made, with `object` for its only native base, so
        // this is its allocator; it gives a new reference, or null and an exception.
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(class, 0)) }
    }

    fn field(&self, index: usize) -> PyResult<&ClassField> {
        let unlike = || PyTypeError::new_err("a class that is unlike its message");
        self.fields.get(index).ok_or_else(unlike)
    }
}

/// The codec of a message, or of its class.
pub fn codec_of<'py>(message: &Bound<'py, PyAny>) -> PyResult<Bound<'py, MessageCodec>> {
    let codec = message.getattr(pyo3::intern!(message.py(), "_codec"))?;
    Ok(codec.cast_into::<MessageCodec>()?)
}

impl ClassField {
    fn default<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(match (&self.default, &self.inner) {
            (FieldDefault::Same(value), _) => value.bind(py).clone(),
            (FieldDefault::NewStruct, Some(inner)) => {
                let inner = inner.get();
                let object = inner.allocate(py)?;
                for field in &inner.fields {
                    object.setattr(field.name.bind(py), field.default(py)?)?;
                }
                object
            }
            _ => PyList::empty(py).into_any(),
        })
    }

    fn codec(&self) -> Option<&MessageCodec> {
        self.inner.as_ref().map(Py::get)
    }
}

/// Makes objects; `codec` is that of the struct at hand.
#[derive(Clone, Copy)]
struct ObjectMaker<'a, 'py> {
    py: Python<'py>,
    codec: Option<&'a MessageCodec>,
    budget: &'a ElementBudget,
}

impl<'a> ObjectMaker<'a, '_> {
    fn codec(self) -> PyResult<&'a MessageCodec> {
        let missing = || PyTypeError::new_err("a struct without a class");
        self.codec.ok_or_else(missing)
    }
}

impl<'py> Maker for ObjectMaker<'_, 'py> {
    type Made = Bound<'py, PyAny>;
    type Open = Bound<'py, PyAny>;
    type Error = PyErr;

    fn null(self) -> Self::Made {
        self.py.None().into_bound(self.py)
    }

    fn bool(self, value: bool) -> PyResult<Self::Made> {
        Ok(value.into_pyobject(self.py)?.to_owned().into_any())
    }

    fn int(self, value: i64) -> PyResult<Self::Made> {
        Ok(value.into_pyobject(self.py)?.into_any())
    }

    fn float(self, value: f64) -> PyResult<Self::Made> {
        Ok(value.into_pyobject(self.py)?.into_any())
    }

    fn string(self, value: &str) -> Self::Made {
        let made = PyString::new(self.py, value).into_any();
        if self.budget.is_in_steps() {
            // It is kept in the string: of all strings at once it would take
            // the control thread a while.
            let _ = made.hash();
        }
        made
    }

    fn bytes(self, value: &[u8]) -> Self::Made {
        PyBytes::new(self.py, value).into_any()
    }

    fn uuid(self, value: &Uuid) -> Self::Made {
        PyBytes::new(self.py, &value.0).into_any()
    }

    fn admit(self, count: usize) -> PyResult<()> {
        self.budget.admit(count)
    }

    fn begin_element(self) {
        self.budget.begin_element(self.py);
    }

    fn array(self, elements: Vec<Self::Made>) -> PyResult<Self::Made> {
        Ok(PyList::new(self.py, elements)?.into_any())
    }

    fn open(self, _of: &Struct) -> PyResult<Self::Open> {
        self.codec()?.allocate(self.py)
    }

    fn inside(self, index: usize) -> PyResult<Self> {
        let codec = self.codec()?.field(index)?.codec();
        Ok(ObjectMaker { codec, ..self })
    }

    fn set(self, open: &mut Self::Open, index: usize, made: Self::Made) -> PyResult<()> {
        let field = self.codec()?.field(index)?;
        open.setattr(field.name.bind(self.py), made)
    }

    fn set_default(self, open: &mut Self::Open, index: usize, _of: &Struct) -> PyResult<()> {
        let field = self.codec()?.field(index)?;
        open.setattr(field.name.bind(self.py), field.default(self.py)?)
    }

    fn close(self, open: Self::Open) -> Self::Made {
        open
    }
}

/// An object that is to be written.
struct Attribute<'a, 'py> {
    object: Bound<'py, PyAny>,
    /// The codec of its structs.
    codec: Option<&'a MessageCodec>,
    /// The struct and the field in which it is.
    of: Option<(&'a Struct, usize)>,
    budget: &'a AnswerBudget,
    /// Nobody else has it, nor that in which it is.
    is_last: bool,
}

impl<'a, 'py> Attribute<'a, 'py> {
    /// Of what is in this one.
    fn inside(
        &self,
        object: Bound<'py, PyAny>,
        codec: Option<&'a MessageCodec>,
        of: Option<(&'a Struct, usize)>,
    ) -> PyResult<Attribute<'a, 'py>> {
        self.budget.take_value(object.py())?;
        Ok(Attribute {
            // One reference is that of what it is in.
            is_last: self.is_last && references_to(&object) == 2,
            object,
            codec,
            of,
            budget: self.budget,
        })
    }

    /// Says where it was that something is not of its kind.
    fn told<T>(&self, extracted: PyResult<T>) -> PyResult<T> {
        extracted.map_err(|error| match self.of {
            Some((of, index)) => {
                let field = of.fields.get(index).map_or("", |field| &field.name);
                PyTypeError::new_err(format!("{}.{field}: {error}", of.name))
            }
            None => error,
        })
    }
}

impl<'a, 'py> Source<'a> for Attribute<'a, 'py> {
    type Error = PyErr;

    fn is_null(&self) -> bool {
        self.object.is_none()
    }

    fn bool(&self) -> PyResult<bool> {
        self.told(self.object.extract())
    }

    fn int(&self) -> PyResult<i64> {
        self.told(self.object.extract())
    }

    fn float(&self) -> PyResult<f64> {
        self.told(self.object.extract())
    }

    fn string(&self) -> PyResult<Cow<'_, str>> {
        let string = self.object.cast::<PyString>().map_err(PyErr::from);
        let string = self.told(string.and_then(|string| string.to_str()))?;
        self.budget.take(self.object.py(), string.len())?;
        Ok(string.into())
    }

    fn bytes(&self) -> PyResult<Cow<'_, [u8]>> {
        let bytes: Cow<'_, [u8]> = match self.object.cast::<PyBytes>() {
            Ok(bytes) => bytes.as_bytes().into(),
            Err(_) => self.told(self.object.extract::<Vec<u8>>())?.into(),
        };
        self.budget.take(self.object.py(), bytes.len())?;
        Ok(bytes)
    }

    fn uuid(&self) -> PyResult<Uuid> {
        self.told(self.object.extract()).map(Uuid)
    }

    fn elements(&self) -> PyResult<Vec<Self>> {
        let of_element = |object| self.inside(object, self.codec, self.of);
        let elements = self.told(self.object.try_iter())?;
        let elements: PyResult<Vec<Self>> = elements
            .map(|element| of_element(self.told(element)?))
            .collect();
        if self.is_last
            && let Ok(list) = self.object.cast::<PyList>()
        {
            list.del_slice(0, list.len())?;
        }
        elements
    }

    fn is_empty(&self) -> PyResult<bool> {
        self.told(self.object.is_empty())
    }

    fn field(&self, of: &'a Struct, index: usize) -> PyResult<Self> {
        let missing = || PyTypeError::new_err("a struct without a class");
        let field = self.codec.ok_or_else(missing)?.field(index)?;
        let attribute = match self.object.cast::<PyTuple>() {
            Ok(fields) => fields.get_item(index)?,
            Err(_) => self.object.getattr(field.name.bind(self.object.py()))?,
        };
        self.inside(attribute, field.codec(), Some((of, index)))
    }
}

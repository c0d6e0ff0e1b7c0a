//! Messages for Python: objects of classes that `kafkalite.protocol.messages` makes from the table,
//! with an attribute a field. They are read and written as they are, by what is remembered of each
//! class: its fields' names, their defaults, and the classes of its structs.
#![expect(
    unsafe_code,
    reason = "an object whose fields are all about to be set needs no __init__"
)]

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple, PyType};

use super::door::{offer_gil, raise};
use crate::codec::schema::{Kind, Struct};
use crate::codec::walk::{self, Maker, Source};
use crate::codec::{Message, Value};
use crate::error::Error;
use crate::limits::{ELEMENT_BYTES, GIL_STEP_VALUES, REQUEST_ELEMENTS_MAX};
use crate::net::memory::HeldMemory;
use crate::uuid::Uuid;
use crate::wire::{Reader, Writer};

/// Most bodies are no larger.
const BODY_BYTES: usize = 128;

/// The fields of which Python makes a class: (name, [(field, default, layout of its struct or None)]).
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
    let (codec, room) = (None, &ElementRoom::new(0));
    let maker = ObjectMaker { py, codec, room };
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
        let message = match is_message {
            true => Some(Message::find(&name)?),
            false => None,
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
        self.decode_within(py, body, version, &ElementRoom::new(usize::MAX))
    }

    /// The body of `object`'s message in `version`. It, and every struct in it, may be a tuple of the
    /// fields in the table's order.
    fn encode<'py>(
        &self,
        object: Bound<'py, PyAny>,
        version: i16,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let py = object.py();
        let mut writer = Writer::with_capacity(BODY_BYTES);
        self.write(object, version, &mut writer, &AnswerRoom::endless())?;
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
        room: &ElementRoom,
    ) -> PyResult<Bound<'py, PyAny>> {
        let codec = Some(self);
        let maker = ObjectMaker { py, codec, room };
        walk::read(self.message()?, version, maker, &mut Reader::new(body))
    }

    fn message(&self) -> Result<&Message, Error> {
        let no_message = || Error::InvalidArgument(format!("{} is no message", self.name));
        self.message.as_deref().ok_or_else(no_message)
    }

    /// Writes the body of `object`'s message in `version`.
    pub fn write(
        &self,
        object: Bound<'_, PyAny>,
        version: i16,
        writer: &mut Writer,
        room: &AnswerRoom,
    ) -> PyResult<()> {
        let source = Attribute {
            object,
            codec: Some(self),
            of: None,
            room,
        };
        walk::write(self.message()?, version, &source, writer)
    }

    /// An object without fields.
    fn allocate<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let class = self.class.as_ptr().cast();
        // SAFETY: a class that Python code has made, with `object` for its only native base, so this is
        // its allocator; it gives a new reference, or null and an exception.
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(class, 0)) }
    }

    fn field(&self, index: usize) -> PyResult<&ClassField> {
        let unlike = || PyTypeError::new_err("a class that is unlike its message");
        self.fields.get(index).ok_or_else(unlike)
    }
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

/// Room for so many elements in all arrays of a message.
pub struct ElementRoom {
    left: Cell<usize>,
    is_over: Cell<bool>,
    /// Elements until others may have the GIL, and what counts the memory of elements before they are
    /// made; `None`: all are made at once.
    steps: Option<(GilSteps, RefCell<HeldMemory>)>,
}

impl ElementRoom {
    pub fn new(elements: usize) -> ElementRoom {
        ElementRoom {
            left: Cell::new(elements),
            is_over: Cell::new(false),
            steps: None,
        }
    }

    /// For a thread of its own, which gives the GIL away between elements.
    pub fn in_steps(elements: usize, memory: HeldMemory) -> ElementRoom {
        ElementRoom {
            steps: Some((GilSteps::default(), RefCell::new(memory))),
            ..ElementRoom::new(elements)
        }
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

/// Offers the GIL to others from time to time.
#[derive(Default)]
struct GilSteps(Cell<usize>);

impl GilSteps {
    /// Counts a value.
    fn count(&self, py: Python<'_>) {
        self.0.set(self.0.get() + 1);
        if self.0.get() >= GIL_STEP_VALUES {
            self.0.set(0);
            offer_gil(py);
        }
    }
}

/// Makes objects; `codec` is that of the struct at hand.
#[derive(Clone, Copy)]
struct ObjectMaker<'a, 'py> {
    py: Python<'py>,
    codec: Option<&'a MessageCodec>,
    room: &'a ElementRoom,
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
        PyString::new(self.py, value).into_any()
    }

    fn bytes(self, value: &[u8]) -> Self::Made {
        PyBytes::new(self.py, value).into_any()
    }

    fn uuid(self, value: &Uuid) -> Self::Made {
        PyBytes::new(self.py, &value.0).into_any()
    }

    fn admit(self, count: usize) -> PyResult<()> {
        let Some(left) = self.room.left.get().checked_sub(count) else {
            self.room.is_over.set(true);
            let sentence = format!("it has more than {REQUEST_ELEMENTS_MAX} elements");
            return Err(Error::MalformedRequest(sentence).into());
        };
        self.room.left.set(left);
        if let Some((_, memory)) = &self.room.steps {
            memory.borrow_mut().grow(ELEMENT_BYTES * count);
        }
        Ok(())
    }

    fn begin_element(self) {
        if let Some((steps, _)) = &self.room.steps {
            steps.count(self.py);
        }
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

/// Memory that the values of an answer may take, counted as `Value`s. What is in a message twice counts
/// twice, though it may be one object of Python's.
pub struct AnswerRoom {
    bytes: Cell<usize>,
    /// Values that are written at once; `None`: all, by a thread that gives the GIL away between them.
    values: Option<Cell<usize>>,
    steps: GilSteps,
}

impl AnswerRoom {
    /// For so many values at once.
    pub fn at_once(bytes: usize, values: usize) -> AnswerRoom {
        AnswerRoom {
            values: Some(Cell::new(values)),
            ..AnswerRoom::in_steps(bytes)
        }
    }

    /// For a thread of its own, which gives the GIL away between values.
    pub fn in_steps(bytes: usize) -> AnswerRoom {
        AnswerRoom {
            bytes: Cell::new(bytes),
            values: None,
            steps: GilSteps::default(),
        }
    }

    fn endless() -> AnswerRoom {
        AnswerRoom::at_once(usize::MAX, usize::MAX)
    }

    fn take(&self, bytes: usize) -> PyResult<()> {
        take_from(&self.bytes, bytes)
    }

    fn take_value(&self, py: Python<'_>) -> PyResult<()> {
        self.take(size_of::<Value>())?;
        match &self.values {
            Some(values) => take_from(values, 1),
            None => {
                self.steps.count(py);
                Ok(())
            }
        }
    }

    /// Something found no room. A little may have been left for others.
    pub fn is_over(&self) -> bool {
        self.bytes.get() == 0
    }

    /// There are more values than are written at once.
    pub fn is_long(&self) -> bool {
        self.values.as_ref().is_some_and(|values| values.get() == 0)
    }
}

/// Takes from what is left; all of it where that is not enough.
fn take_from(left: &Cell<usize>, count: usize) -> PyResult<()> {
    let after = left.get().checked_sub(count);
    left.set(after.unwrap_or(0));
    match after {
        Some(_) => Ok(()),
        None => Err(PyTypeError::new_err("more than there is room for")),
    }
}

/// An object that is to be written.
struct Attribute<'a, 'py> {
    object: Bound<'py, PyAny>,
    /// The codec of its structs.
    codec: Option<&'a MessageCodec>,
    /// The struct and the field in which it is.
    of: Option<(&'a Struct, usize)>,
    room: &'a AnswerRoom,
}

impl<'a, 'py> Attribute<'a, 'py> {
    fn new(
        object: Bound<'py, PyAny>,
        codec: Option<&'a MessageCodec>,
        of: Option<(&'a Struct, usize)>,
        room: &'a AnswerRoom,
    ) -> PyResult<Attribute<'a, 'py>> {
        room.take_value(object.py())?;
        Ok(Attribute {
            object,
            codec,
            of,
            room,
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
        self.room.take(string.len())?;
        Ok(string.into())
    }

    fn bytes(&self) -> PyResult<Cow<'_, [u8]>> {
        let bytes: Cow<'_, [u8]> = match self.object.cast::<PyBytes>() {
            Ok(bytes) => bytes.as_bytes().into(),
            Err(_) => self.told(self.object.extract::<Vec<u8>>())?.into(),
        };
        self.room.take(bytes.len())?;
        Ok(bytes)
    }

    fn uuid(&self) -> PyResult<Uuid> {
        self.told(self.object.extract()).map(Uuid)
    }

    fn elements(&self) -> PyResult<Vec<Self>> {
        let of_element = |object| Attribute::new(object, self.codec, self.of, self.room);
        let elements = self.told(self.object.try_iter())?;
        elements
            .map(|element| of_element(self.told(element)?))
            .collect()
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
        Attribute::new(attribute, field.codec(), Some((of, index)), self.room)
    }
}

//! The schema table: which fields a message has in which version. The text is
//! `python/kafkalite/protocol/schema.txt`; its grammar is described in `tools/make_schema.py`. A
//! message is parsed on its first use, so that a start pays only for what it speaks.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::value::Value;
use crate::error::{Error, Result};
use crate::uuid::Uuid;

const TABLE: &str = include_str!("../../../python/kafkalite/protocol/schema.txt");

/// An inclusive range of versions; empty where `first > last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    pub first: i16,
    pub last: i16,
}

impl Versions {
    pub const NONE: Versions = Versions { first: 0, last: -1 };

    pub fn contains(&self, version: i16) -> bool {
        (self.first..=self.last).contains(&version)
    }

    fn parse(text: &str) -> Option<Versions> {
        if text == "none" {
            return Some(Versions::NONE);
        }
        if let Some(first) = text.strip_suffix('+') {
            return Some(Versions {
                first: first.parse().ok()?,
                last: i16::MAX,
            });
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some(Versions {
            first: first.parse().ok()?,
            last: last.parse().ok()?,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    Request,
    Response,
    Header,
    Data,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Float64,
    String,
    Uuid,
    Bytes,
    Records,
    Array(Box<Kind>),
    Struct(Arc<Struct>),
}

#[derive(Debug)]
pub struct Struct {
    pub name: String,
    pub fields: Vec<Field>,
}

#[derive(Debug)]
pub struct Field {
    pub name: String,
    pub kind: Kind,
    pub versions: Versions,
    pub nullable: Versions,
    pub tag: Option<u32>,
    pub tagged: Versions,
    /// A string that keeps its i16 length in flexible versions (`client_id` of the header).
    pub never_flexible: bool,
    pub default: Value,
}

#[derive(Debug)]
pub struct Message {
    pub kind: MessageKind,
    pub api_key: Option<i16>,
    pub versions: Versions,
    pub flexible: Versions,
    pub root: Arc<Struct>,
}

impl Message {
    /// The message called `name`, as `CreateTopicsRequest`.
    pub fn find(name: &str) -> Result<Arc<Message>> {
        static PARSED: OnceLock<Mutex<HashMap<String, Arc<Message>>>> = OnceLock::new();
        let mut parsed = PARSED.get_or_init(Default::default).lock();
        if let Some(message) = parsed.get(name) {
            return Ok(message.clone());
        }
        let text = texts().get(name).ok_or_else(|| {
            Error::InvalidArgument(format!("the schema table has no message {name:?}"))
        })?;
        let message = Arc::new(parse_message(text).ok_or_else(|| {
            Error::InvalidArgument(format!("the schema table's {name:?} cannot be read"))
        })?);
        parsed.insert(name.to_owned(), message.clone());
        Ok(message)
    }

    /// The name of a key, as `CreateTopics`.
    pub fn name_of_key(key: i16) -> Option<&'static str> {
        let head = format!("Request request {key} ");
        let mut bodies = texts().values();
        bodies.find_map(|body| Some(body.split_once(&head)?.0).filter(|name| !name.contains(' ')))
    }

    /// Names of all messages, in no order.
    pub fn names() -> impl Iterator<Item = &'static str> {
        texts().keys().copied()
    }
}

/// Where in the table each message is.
fn texts() -> &'static HashMap<&'static str, &'static str> {
    static TEXTS: OnceLock<HashMap<&'static str, &'static str>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let bodies = TABLE.split("\nmessage ").skip(1);
        bodies
            .filter_map(|body| Some((body.split(' ').next()?, body)))
            .collect()
    })
}

/// Reads `NAME KIND KEY VERSIONS FLEXIBLE` and the indented lines below it.
fn parse_message(text: &str) -> Option<Message> {
    let mut lines = text.lines().peekable();
    let head: Vec<&str> = lines.next()?.split(' ').collect();
    let [name, kind, key, versions, flexible] = head[..] else {
        return None;
    };
    Some(Message {
        kind: match kind {
            "request" => MessageKind::Request,
            "response" => MessageKind::Response,
            "header" => MessageKind::Header,
            _ => MessageKind::Data,
        },
        api_key: key.parse().ok(),
        versions: Versions::parse(versions)?,
        flexible: Versions::parse(flexible)?,
        root: Arc::new(Struct {
            name: name.to_owned(),
            fields: parse_fields(&mut lines, 1)?,
        }),
    })
}

fn parse_fields<'a>(
    lines: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
    depth: usize,
) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while let Some(line) = lines.peek() {
        if line.len() - line.trim_start().len() != depth {
            break;
        }
        let mut words = line.trim_start().split(' ');
        lines.next();
        let name = words.next()?.to_owned();
        let type_name = words.next()?;
        let versions = Versions::parse(words.next()?)?;
        let kind = parse_kind(type_name, lines, depth)?;
        let mut field = Field {
            default: default_value(&kind, None)?,
            name,
            kind,
            versions,
            nullable: Versions::NONE,
            tag: None,
            tagged: Versions::NONE,
            never_flexible: false,
        };
        for word in words {
            match word.split_once('=')? {
                ("nullable", range) => field.nullable = Versions::parse(range)?,
                ("tag", tag) => field.tag = Some(tag.parse().ok()?),
                ("tagged", range) => field.tagged = Versions::parse(range)?,
                ("flexible", _) => field.never_flexible = true,
                ("default", text) => field.default = default_value(&field.kind, Some(text))?,
                _ => return None,
            }
        }
        fields.push(field);
    }
    Some(fields)
}

fn parse_kind<'a>(
    name: &str,
    lines: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
    depth: usize,
) -> Option<Kind> {
    if let Some(element) = name.strip_prefix("[]") {
        return Some(Kind::Array(Box::new(parse_kind(element, lines, depth)?)));
    }
    if let Some(name) = name.strip_prefix('{') {
        return Some(Kind::Struct(Arc::new(Struct {
            name: name.to_owned(),
            fields: parse_fields(lines, depth + 1)?,
        })));
    }
    Some(match name {
        "bool" => Kind::Bool,
        "int8" => Kind::Int8,
        "int16" => Kind::Int16,
        "uint16" => Kind::Uint16,
        "int32" => Kind::Int32,
        "uint32" => Kind::Uint32,
        "int64" => Kind::Int64,
        "float64" => Kind::Float64,
        "string" => Kind::String,
        "uuid" => Kind::Uuid,
        "bytes" => Kind::Bytes,
        "records" => Kind::Records,
        _ => return None,
    })
}

/// The default in the table, or the type's own (zero, empty).
fn default_value(kind: &Kind, text: Option<&str>) -> Option<Value> {
    if text == Some("null") {
        return Some(Value::Null);
    }
    Some(match kind {
        Kind::Bool => Value::Bool(text == Some("true")),
        Kind::Int8 | Kind::Int16 | Kind::Uint16 | Kind::Int32 | Kind::Uint32 | Kind::Int64 => {
            Value::Int(match text {
                None => 0,
                Some(text) => match text.strip_prefix("0x") {
                    Some(hex) => i64::from_str_radix(hex, 16).ok()?,
                    None => text.parse().ok()?,
                },
            })
        }
        Kind::Float64 => Value::Float(text.unwrap_or("0").parse().ok()?),
        Kind::String => Value::String(text.unwrap_or_default().to_owned()),
        Kind::Uuid => Value::Uuid(Uuid::ZERO),
        Kind::Bytes | Kind::Records => Value::Bytes(Vec::new()),
        Kind::Array(_) => Value::Array(Vec::new()),
        Kind::Struct(inner) => default_struct(inner),
    })
}

/// A struct whose every field holds its default.
pub fn default_struct(of: &Struct) -> Value {
    Value::Struct(
        of.fields
            .iter()
            .map(|field| field.default.clone())
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_of_the_table_can_be_read() {
        let names: Vec<_> = Message::names().collect();
        assert!(names.len() > 250, "{}", names.len());
        for name in names {
            let message = Message::find(name).expect(name);
            assert!(message.versions.first <= message.versions.last, "{name}");
        }
    }

    #[test]
    fn a_struct_that_is_named_again_has_its_fields_at_each_place() {
        let message = Message::find("VoteResponse").expect("VoteResponse");
        assert_eq!(message.api_key, Some(52));
        let shared = Message::find("AddPartitionsToTxnResponse").expect("it");
        let per_topic = |field: &Field| match &field.kind {
            Kind::Array(element) => match &**element {
                Kind::Struct(inner) => inner.fields.len(),
                _ => 0,
            },
            _ => 0,
        };
        let arrays: Vec<_> = shared.root.fields.iter().map(per_topic).collect();
        assert_eq!(arrays, [0, 0, 2, 2]);
    }
}

//! The formats of keys and values, and what becomes of bad ones: the options of a read, under
//! the names that Spark gives to such things. Names and words are taken in any case, as Spark does.
//!
//! ```text
//! key.format, value.format      binary (default), string, json, avro, csv
//! value.flatten                 true: the fields of a typed value are columns of their own
//! mode                          PERMISSIVE (default), DROPMALFORMED, FAILFAST
//! columnNameOfCorruptRecord     _corrupt_record
//! key.csv.columns, value.csv.columns
//!                               names of a line's columns, if they are not the wanted fields
//! sep (delimiter), quote, escape, nullValue, ignoreLeadingWhiteSpace, ignoreTrailingWhiteSpace
//!                               of CSV; header is false
//! key.avro.schema, value.avro.schema
//!                               the writer's schema, JSON
//! key.avro.header, value.avro.header
//!                               none (default); confluent: 0 and the schema's id, 4 bytes
//! key.avro.registry, value.avro.registry
//!                               with that header: JSON, schema by id
//! ```

use std::collections::BTreeMap;

use super::decode::csv::CsvOptions;
use crate::error::{Error, Result};
use crate::limits::CSV_COLUMNS_MAX;

/// The format of a key's or a value's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Binary,
    /// UTF-8, with U+FFFD where it is not.
    String,
    Json,
    Csv,
    Avro,
}

impl Format {
    const ALL: [(&'static str, Format); 5] = [
        ("binary", Format::Binary),
        ("string", Format::String),
        ("json", Format::Json),
        ("avro", Format::Avro),
        ("csv", Format::Csv),
    ];

    /// True of formats whose bytes become the fields of a schema.
    pub fn is_typed(self) -> bool {
        matches!(self, Format::Json | Format::Csv | Format::Avro)
    }

    pub fn name(self) -> &'static str {
        let named = Format::ALL.iter().find(|(_, format)| *format == self);
        named.map_or("", |(name, _)| name)
    }
}

/// The treatment of a record that is not what was wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It is a row; the fields that it does not have are null.
    #[default]
    Permissive,
    /// It is no row.
    DropMalformed,
    /// The read ends with an error.
    FailFast,
}

const MODES: [(&str, Mode); 3] = [
    ("PERMISSIVE", Mode::Permissive),
    ("DROPMALFORMED", Mode::DropMalformed),
    ("FAILFAST", Mode::FailFast),
];

const FLAGS: [(&str, bool); 2] = [("true", true), ("false", false)];

/// The options of keys, or of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    pub format: Format,
    pub csv_columns: Option<Vec<String>>,
    pub avro_schema: Option<String>,
    pub avro_confluent: bool,
    /// Schemas by id.
    pub avro_registry: Option<String>,
}

/// The options, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formats {
    pub key: Side,
    pub value: Side,
    pub flatten: bool,
    pub mode: Mode,
    pub corrupt_column: String,
    pub csv: CsvOptions,
}

impl Default for Formats {
    fn default() -> Formats {
        Formats {
            key: Side::default(),
            value: Side::default(),
            flatten: false,
            mode: Mode::default(),
            corrupt_column: "_corrupt_record".to_owned(),
            csv: CsvOptions::default(),
        }
    }
}

impl Formats {
    /// Errors: `InvalidArgument` for an option, or a word for one, that there is not.
    pub fn read(options: &BTreeMap<String, String>) -> Result<Formats> {
        let mut formats = Formats::default();
        for (name, word) in options {
            formats.set(name, word)?;
        }
        if formats.flatten && !formats.value.format.is_typed() {
            return refuse(format!(
                "value.flatten=true, but value.format={} has no fields",
                formats.value.format.name()
            ));
        }
        Ok(formats)
    }

    fn set(&mut self, name: &str, word: &str) -> Result<()> {
        let lower = name.to_ascii_lowercase();
        match lower.as_str() {
            "value.flatten" => self.flatten = choose(name, word, &FLAGS)?,
            "mode" => self.mode = choose(name, word, &MODES)?,
            "columnnameofcorruptrecord" => self.corrupt_column = word.to_owned(),
            "header" if choose(name, word, &FLAGS)? => {
                return refuse("header=true is for files: a record has no header line".to_owned());
            }
            "header" => {}
            "sep" | "delimiter" if word.is_empty() => {
                return refuse(format!("{name} is empty: it separates columns"));
            }
            "sep" | "delimiter" => self.csv.sep = word.replace("\\t", "\t"),
            "quote" => self.csv.quote = byte(name, word)?,
            "escape" => self.csv.escape = byte(name, word)?,
            "nullvalue" => self.csv.null_value = word.to_owned(),
            "ignoreleadingwhitespace" => {
                self.csv.ignore_leading_white_space = choose(name, word, &FLAGS)?;
            }
            "ignoretrailingwhitespace" => {
                self.csv.ignore_trailing_white_space = choose(name, word, &FLAGS)?;
            }
            _ => match lower.split_once('.') {
                Some(("key", option)) => self.key.set(name, option, word)?,
                Some(("value", option)) => self.value.set(name, option, word)?,
                _ => return unknown(name),
            },
        }
        Ok(())
    }
}

impl Side {
    fn set(&mut self, name: &str, option: &str, word: &str) -> Result<()> {
        match option {
            "format" => self.format = choose(name, word, &Format::ALL)?,
            "csv.columns" => self.csv_columns = Some(names(name, word)?),
            "avro.schema" => self.avro_schema = Some(word.to_owned()),
            "avro.header" => {
                let headers = [("none", false), ("confluent", true)];
                self.avro_confluent = choose(name, word, &headers)?;
            }
            "avro.registry" => self.avro_registry = Some(word.to_owned()),
            _ => return unknown(name),
        }
        Ok(())
    }
}

/// A list `a,b` without the blanks around its names, or `["a", "b"]`, in which names are as they
/// are.
fn names(option: &str, word: &str) -> Result<Vec<String>> {
    let too_many = || {
        refuse(format!(
            "{option} names more than {CSV_COLUMNS_MAX} columns"
        ))
    };
    if !word.starts_with('[') {
        return if word.split(',').count() > CSV_COLUMNS_MAX {
            too_many()
        } else {
            Ok(word.split(',').map(|each| each.trim().to_owned()).collect())
        };
    }
    match serde_json::from_str::<Vec<String>>(word) {
        Ok(names) if names.len() > CSV_COLUMNS_MAX => too_many(),
        Ok(names) => Ok(names),
        Err(error) => refuse(format!(
            "{option} begins with '[' and is no list of names in JSON: {error}"
        )),
    }
}

fn unknown<T>(name: &str) -> Result<T> {
    refuse(format!(
        "formats has no option {name}: there are key.format, value.format, value.flatten, mode, \
         columnNameOfCorruptRecord, and those of CSV and Avro"
    ))
}

fn choose<T: Copy>(name: &str, word: &str, choices: &[(&str, T)]) -> Result<T> {
    let chosen = choices
        .iter()
        .find(|(each, _)| each.eq_ignore_ascii_case(word));
    match chosen {
        Some((_, value)) => Ok(*value),
        None => refuse(format!(
            "{name}={word} is unknown: it is {}",
            one_of(choices.iter().map(|(each, _)| *each))
        )),
    }
}

/// A character of ASCII; empty for none.
fn byte(name: &str, word: &str) -> Result<Option<u8>> {
    match word.as_bytes() {
        [] => Ok(None),
        [byte] if byte.is_ascii() => Ok(Some(*byte)),
        _ => refuse(format!("{name}={word} is not one character of ASCII")),
    }
}

fn refuse<T>(sentence: String) -> Result<T> {
    Err(Error::InvalidArgument(sentence))
}

/// `a`, `a or b`, `a, b or c`.
fn one_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.collect();
    match words.as_slice() {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

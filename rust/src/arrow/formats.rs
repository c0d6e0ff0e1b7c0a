//! What keys and values are, and what becomes of those that are not: the options of a read, under
//! the names that Spark gives to such things. Names and words are taken in any case, as Spark does.
//!
//! ```text
//! key.format, value.format       binary (default), string
//! ```

use std::collections::BTreeMap;

use crate::error::{Error, Result};

/// What the bytes of a key or a value are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Binary,
    /// UTF-8, with U+FFFD where it is not.
    String,
}

impl Format {
    const ALL: [(&'static str, Format); 2] =
        [("binary", Format::Binary), ("string", Format::String)];
}

/// The options, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Formats {
    pub key: Format,
    pub value: Format,
}

impl Formats {
    /// Errors: `InvalidArgument` for an option, or a word for one, that there is not.
    pub fn read(options: &BTreeMap<String, String>) -> Result<Formats> {
        let mut formats = Formats::default();
        for (name, word) in options {
            match name.to_ascii_lowercase().as_str() {
                "key.format" => formats.key = choose(name, word, &Format::ALL)?,
                "value.format" => formats.value = choose(name, word, &Format::ALL)?,
                _ => {
                    return Err(Error::InvalidArgument(format!(
                        "formats has no option {name}: there are key.format and value.format"
                    )));
                }
            }
        }
        Ok(formats)
    }
}

fn choose<T: Copy>(name: &str, word: &str, choices: &[(&str, T)]) -> Result<T> {
    let chosen = choices
        .iter()
        .find(|(each, _)| each.eq_ignore_ascii_case(word));
    match chosen {
        Some((_, value)) => Ok(*value),
        None => Err(Error::InvalidArgument(format!(
            "{name}={word} is unknown: it is {}",
            one_of(choices.iter().map(|(each, _)| *each))
        ))),
    }
}

/// `a`, `a or b`, `a, b or c`.
pub(super) fn one_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.collect();
    match words.as_slice() {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

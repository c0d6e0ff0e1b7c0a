//! One line of CSV a record, as Spark's `from_csv` reads it (univocity as Spark sets it up): a
//! value in quotes ends with a quote before the separator, and further quotes beside that one are
//! the value's; where something else follows, the value goes on up to the next separator, quotes
//! and all. A value without quotes that is empty is null. Missing and surplus columns make a record
//! bad, and the columns it has are still read.

use arrow_schema::DataType;

use super::build::{Record, Values};
use super::numeral::real;
use super::scalar;
use super::verdict::{Read, Reason};

/// Under Spark's names, with Spark's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvOptions {
    pub sep: String,
    pub quote: Option<u8>,
    pub escape: Option<u8>,
    pub null_value: String,
    pub ignore_leading_white_space: bool,
    pub ignore_trailing_white_space: bool,
}

impl Default for CsvOptions {
    fn default() -> CsvOptions {
        CsvOptions {
            sep: ",".to_owned(),
            quote: Some(b'"'),
            escape: Some(b'\\'),
            null_value: String::new(),
            ignore_leading_white_space: false,
            ignore_trailing_white_space: false,
        }
    }
}

/// Types that the columns of a line can have.
pub fn is_decodable(data_type: &DataType) -> bool {
    let is_nested = matches!(
        data_type,
        DataType::Struct(_) | DataType::List(_) | DataType::Map(..)
    );
    !is_nested && super::build::is_buildable(data_type)
}

/// Reads lines whose columns are known by their place.
#[derive(Clone, Debug, PartialEq)]
pub struct CsvReader {
    options: CsvOptions,
    /// For each column of a line the field that it fills.
    places: Vec<Option<usize>>,
    /// A value without its quotes and escapes.
    unquoted: Vec<u8>,
}

impl CsvReader {
    pub fn new(options: CsvOptions, places: Vec<Option<usize>>) -> CsvReader {
        CsvReader {
            options,
            places,
            unquoted: Vec::new(),
        }
    }

    pub fn read(&mut self, text: &[u8], row: &mut Record) -> Read {
        let line = text.strip_suffix(b"\n").unwrap_or(text);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Read::Row;
        }
        let mut rest = Some(line);
        let mut count = 0;
        let mut mismatch = None;
        while let Some(line) = rest {
            let place = self.places.get(count).copied().flatten();
            count += 1;
            let (value, behind) = self.value(line);
            rest = behind;
            let Some(index) = place else {
                continue;
            };
            let (Some(field), Some(name)) = (row.fields.get_mut(index), row.names.get(index))
            else {
                continue;
            };
            let (value, is_nothing) = match value {
                Found::Plain(value) => {
                    let value = trim(value, &self.options);
                    (value, value.is_empty())
                }
                Found::Unquoted => (self.unquoted.as_slice(), false),
            };
            if is_nothing || value == self.options.null_value.as_bytes() {
                field.push_null();
            } else if !push(value, &mut field.values) {
                field.push_null();
                let data_type = field.data_type();
                mismatch.get_or_insert_with(|| Reason::Field(name.clone(), data_type.clone()));
            }
        }
        if count != self.places.len() {
            return Read::Bad(Reason::Columns(count, self.places.len()));
        }
        mismatch.map_or(Read::Row, Read::Bad)
    }

    /// The value at the start, and what is behind its separator.
    fn value<'a>(&mut self, line: &'a [u8]) -> (Found<'a>, Option<&'a [u8]>) {
        let space = if self.options.ignore_leading_white_space {
            line.len() - line.trim_ascii_start().len()
        } else {
            0
        };
        let opened = line
            .get(space)
            .filter(|byte| Some(**byte) == self.options.quote);
        if opened.is_some() {
            let end = self.quoted(line, space + 1);
            let behind = line.get(end..).unwrap_or_default();
            return (Found::Unquoted, behind.get(self.options.sep.len()..));
        }
        match find(line, self.options.sep.as_bytes()) {
            Some(at) => (
                Found::Plain(line.get(..at).unwrap_or_default()),
                line.get(at + self.options.sep.len()..),
            ),
            None => (Found::Plain(line), None),
        }
    }

    /// Where the value in quotes, whose first byte is at `at`, ends; the
    /// value is in `unquoted` then.
    fn quoted(&mut self, line: &[u8], mut at: usize) -> usize {
        let CsvOptions { quote, escape, .. } = self.options;
        let sep = self.options.sep.as_bytes();
        self.unquoted.clear();
        if line.len() == at {
            self.unquoted.extend(quote);
        }
        while let Some(&byte) = line.get(at) {
            let next = line.get(at + 1).copied();
            at += 1;
            if Some(byte) == escape && next.is_some() && (next == quote || next == escape) {
                self.unquoted.extend(next);
                at += 1;
                continue;
            }
            if Some(byte) != quote {
                self.unquoted.push(byte);
                continue;
            }
            while line.get(at) == Some(&byte) {
                self.unquoted.push(byte);
                at += 1;
            }
            let mut behind = line.get(at..).unwrap_or_default();
            while let [b'\0'..=b' ', rest @ ..] = behind
                && !behind.starts_with(sep)
            {
                behind = rest;
            }
            if behind.is_empty() || behind.starts_with(sep) {
                return line.len() - behind.len();
            }
            let behind = line.get(at..).unwrap_or_default();
            let end = find(behind, sep).unwrap_or(behind.len());
            self.unquoted.insert(0, byte);
            self.unquoted.push(byte);
            self.unquoted.extend(behind.iter().take(end));
            if self.options.ignore_trailing_white_space {
                let length = self.unquoted.trim_ascii_end().len();
                self.unquoted.truncate(length);
            }
            return at + end;
        }
        // The closing quote is missing: the value is all that follows.
        line.len()
    }
}

/// Where the separator is first.
fn find(line: &[u8], sep: &[u8]) -> Option<usize> {
    match sep {
        [byte] => line.iter().position(|each| each == byte),
        _ => line.windows(sep.len().max(1)).position(|each| each == sep),
    }
}

/// A value as it stands, or one that is in `unquoted`.
enum Found<'a> {
    Plain(&'a [u8]),
    Unquoted,
}

fn trim<'a>(value: &'a [u8], options: &CsvOptions) -> &'a [u8] {
    let value = if options.ignore_leading_white_space {
        value.trim_ascii_start()
    } else {
        value
    };
    if options.ignore_trailing_white_space {
        value.trim_ascii_end()
    } else {
        value
    }
}

/// False: the text is no value of this type.
fn push(text: &[u8], into: &mut Values) -> bool {
    fn add<T>(value: Option<T>, values: &mut Vec<T>) -> bool {
        value.map(|value| values.push(value)).is_some()
    }
    match into {
        Values::Boolean(values) => {
            let is = |word: &[u8]| text.eq_ignore_ascii_case(word);
            add(
                is(b"true")
                    .then_some(true)
                    .or(is(b"false").then_some(false)),
                values,
            )
        }
        Values::Int8(values) => add(real(text), values),
        Values::Int16(values) => add(real(text), values),
        Values::Int32(values) => add(real(text), values),
        Values::Int64(values) => add(real(text), values),
        Values::Float32(values) => add(float(text), values),
        Values::Float64(values) => add(float(text), values),
        Values::Decimal(values, precision, scale) => {
            add(scalar::decimal(text, *precision, *scale), values)
        }
        Values::Date(values) => add(scalar::date(text), values),
        Values::Timestamp(values, zoned) => add(scalar::timestamp(text, *zoned), values),
        Values::Utf8(values) | Values::Binary(values) => {
            values.push(text);
            true
        }
        Values::Struct(_) | Values::List(..) | Values::Map(..) => false,
    }
}

/// As Java's `parseDouble`, without its hexadecimal numbers and its suffixes, and Spark's `Inf`.
fn float<T: std::str::FromStr + From<f32>>(text: &[u8]) -> Option<T> {
    let text = text.trim_ascii();
    match text {
        b"NaN" | b"+NaN" | b"-NaN" => Some(f32::NAN.into()),
        b"Inf" | b"Infinity" | b"+Infinity" => Some(f32::INFINITY.into()),
        b"-Inf" | b"-Infinity" => Some(f32::NEG_INFINITY.into()),
        _ if text
            .iter()
            .any(|byte| byte.is_ascii_alphabetic() && !matches!(byte, b'e' | b'E')) =>
        {
            None
        }
        _ => real(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::{Field, Fields};

    fn values(line: &str, options: CsvOptions) -> ([Option<String>; 3], bool) {
        use arrow_array::cast::AsArray;
        let names = ["a", "b", "c"];
        let fields = names.map(|name| Field::new(name, DataType::Utf8, true));
        let mut row = Record::new(&Fields::from(fields.to_vec())).expect("text");
        let mut reader = CsvReader::new(options, vec![Some(0), Some(1), Some(2)]);
        let read = reader.read(line.as_bytes(), &mut row);
        row.end_row();
        let columns = row.finish().expect("columns");
        let text = [0, 1, 2].map(|index| {
            let column = columns[index].as_string::<i32>();
            column.iter().next().flatten().map(str::to_owned)
        });
        (text, read == Read::Row)
    }

    #[test]
    fn quotes_and_missing_columns_are_read_as_spark_reads_them() {
        let none = None;
        for (line, expected, good) in [
            ("x,\"\",z", [Some("x"), none, Some("z")], true),
            ("x,  y  ,z", [Some("x"), Some("  y  "), Some("z")], true),
            ("\"x\"y,z,w", [Some("\"x\"y"), Some("z"), Some("w")], true),
            (
                "x,\"y\"z\",\"w\"",
                [Some("x"), Some("\"y\"z\""), Some("w")],
                true,
            ),
            ("x,\"a,b\",z", [Some("x"), Some("a,b"), Some("z")], true),
            ("x,\"a\\\"b\",z", [Some("x"), Some("a\"b"), Some("z")], true),
            ("x,\"a\\\\b\",z", [Some("x"), Some("a\\b"), Some("z")], true),
            (
                "x,\"a\"\"b\",z",
                [Some("x"), Some("\"a\"\"b\""), Some("z")],
                true,
            ),
            ("x,\"a\" ,z", [Some("x"), Some("a"), Some("z")], true),
            ("x,\"a\"\t\n,z", [Some("x"), Some("a"), Some("z")], true),
            // The separator within the quotes was the end of a value that goes on behind them.
            (
                "\"a,b\"c,d,e",
                [Some("\"a,b\"c"), Some("d"), Some("e")],
                true,
            ),
            (
                "\"a,\\\"b\"c,d,e",
                [Some("\"a,\"b\"c"), Some("d"), Some("e")],
                true,
            ),
            (
                "x,\"say \"\"a\"\"\",z",
                [Some("x"), Some("\"say \"\"a\"\"\""), Some("z")],
                true,
            ),
            (
                "x,\"a,\"\"\",z",
                [Some("x"), Some("a,\"\""), Some("z")],
                true,
            ),
            ("\"a\"\",b\",c", [Some("a\""), Some("b\""), Some("c")], true),
            ("\"\"\"", [Some("\""), none, none], false),
            ("\"", [Some("\""), none, none], false),
            ("x,a\\\"b,z", [Some("x"), Some("a\\\"b"), Some("z")], true),
            ("x,\"\\n\",z\n", [Some("x"), Some("\\n"), Some("z")], true),
            ("x,\"y", [Some("x"), Some("y"), none], false),
            ("x", [Some("x"), none, none], false),
            ("x,y,z,w", [Some("x"), Some("y"), Some("z")], false),
            (",,", [none, none, none], true),
            ("", [none, none, none], true),
        ] {
            let (found, is_good) = values(line, CsvOptions::default());
            assert_eq!(
                found,
                expected.map(|text| text.map(str::to_owned)),
                "{line}"
            );
            assert_eq!(is_good, good, "{line}");
        }
    }

    #[test]
    fn what_is_empty_is_null_whatever_else_is() {
        let options = CsvOptions {
            null_value: "NA".to_owned(),
            ..CsvOptions::default()
        };
        let text = |text: &str| Some(text.to_owned());
        for (line, expected) in [
            (",NA,x", [None, None, text("x")]),
            ("\"\",\"NA\",", [text(""), None, None]),
        ] {
            assert_eq!(values(line, options.clone()), (expected, true), "{line}");
        }
    }

    #[test]
    fn a_separator_may_have_several_bytes() {
        let options = CsvOptions {
            sep: "||".to_owned(),
            ..CsvOptions::default()
        };
        let (found, _) = values("x||\"y||\"||z", options);
        let expected = ["x", "y||", "z"].map(|text| Some(text.to_owned()));
        assert_eq!(found, expected);
    }
}

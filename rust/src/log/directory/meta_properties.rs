//! `meta.properties`: whose log directory this is. Written once when the directory is formatted
//! (and again when Kafka or we start with a directory that lacks its id), version 1:
//!
//! ```text
//! #
//! #Sat Nov 21 02:52:37 UTC 2026
//! node.id=1
//! directory.id=8jBfQKOvQ9qU1Kw2sJ9xTw
//! version=1
//! cluster.id=MkU3OEVBNTcwNTJENDM2Qk
//! ```
//!
//! It is a file of Java's `Properties`; the order is that of its hash table, up to JDK 17. A file
//! of version 0 (`broker.id`, of brokers with ZooKeeper) is read, too. Kafka: `MetaProperties`,
//! `MetaPropertiesEnsemble`.

use std::path::Path;

use crate::error::{Error, Result};
use crate::log::checkpoint_file::{lines, text_of};
use crate::uuid::Uuid;

pub const META_PROPERTIES_FILE: &str = "meta.properties";

/// Ids below this one have meanings of their own (`DirectoryId`): migrating, lost, unassigned.
const RESERVED_DIRECTORY_IDS: u128 = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    pub version: i32,
    /// Always there in version 1.
    pub cluster_id: Option<String>,
    /// `broker.id` in version 0. Always there in version 1.
    pub node_id: Option<i32>,
    /// Absent in directories formatted before Kafka 3.7.
    pub directory_id: Option<Uuid>,
}

impl MetaProperties {
    /// Errors: `CorruptFile` for text that is not the format; `LogDirRefused` naming what is
    /// missing or wrong, above all a version of the future.
    pub fn parse(text: &[u8], path: &Path) -> Result<MetaProperties> {
        let text = text_of(text, path)?;
        let properties = parse_properties(text).map_err(|(line, reason)| {
            Error::corrupt_file(path, 0, format!("line {line}: {reason}"))
        })?;
        // The later of two lines with one key counts.
        let find = |key: &str| {
            let found = properties.iter().rev().find(|(name, _)| name == key);
            found.map(|(_, value)| value.as_str())
        };
        let refuse = |reason: String| Error::LogDirRefused {
            path: path.to_path_buf(),
            reason,
        };
        let number = |key: &str| match find(key) {
            None => Ok(None),
            Some(value) => match value.parse::<i32>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(refuse(format!("{key}={value:?} is no number"))),
            },
        };
        let missing = |key: &str| refuse(format!("{key} is missing"));
        let version = number("version")?.unwrap_or(0);
        if !(0..=1).contains(&version) {
            return Err(refuse(format!(
                "version {version} is unknown, this broker knows 0 and 1"
            )));
        }
        let cluster_id = find("cluster.id").map(str::to_owned);
        let node_id = number(if version == 0 { "broker.id" } else { "node.id" })?;
        if version == 1 {
            cluster_id.as_ref().ok_or_else(|| missing("cluster.id"))?;
            node_id.ok_or_else(|| missing("node.id"))?;
        }
        let directory_id = match find("directory.id") {
            None => None,
            Some(value) => match Uuid::parse(value) {
                Some(id) if u128::from_be_bytes(id.0) >= RESERVED_DIRECTORY_IDS => Some(id),
                _ => return Err(refuse(format!("directory.id={value:?} is no directory id"))),
            },
        };
        Ok(MetaProperties {
            version,
            cluster_id,
            node_id,
            directory_id,
        })
    }

    /// The text as Kafka writes it at `now_ms` on a machine whose time zone is UTC.
    pub fn print(&self, now_ms: i64) -> String {
        let mut text = format!("#\n#{}\n", java_date(now_ms));
        let node_key = if self.version == 0 {
            "broker.id"
        } else {
            "node.id"
        };
        let lines = [
            (node_key, self.node_id.map(|id| id.to_string())),
            ("directory.id", self.directory_id.map(|id| id.to_string())),
            ("version", Some(self.version.to_string())),
            ("cluster.id", self.cluster_id.clone()),
        ];
        for (key, value) in lines {
            if let Some(value) = value {
                text.push_str(key);
                text.push('=');
                escape_value(&value, &mut text);
                text.push('\n');
            }
        }
        text
    }
}

/// As `Properties.store` escapes a value for a writer.
fn escape_value(value: &str, text: &mut String) {
    for (index, character) in value.chars().enumerate() {
        match character {
            ' ' if index == 0 => text.push_str("\\ "),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\u{c}' => text.push_str("\\f"),
            '\\' | '=' | ':' | '#' | '!' => {
                text.push('\\');
                text.push(character);
            }
            _ => text.push(character),
        }
    }
}

/// Keys and values of a `Properties` text in their order; an error names the line. Comments begin
/// with `#` or `!`; a backslash at its end joins a line with the next; key and value are parted by
/// `=`, `:` or blanks.
fn parse_properties(text: &str) -> std::result::Result<Vec<(String, String)>, (usize, String)> {
    let mut properties = Vec::new();
    let mut lines = lines(text).enumerate();
    while let Some((index, line)) = lines.next() {
        let mut logical = line.trim_start_matches(BLANKS).to_owned();
        if logical.is_empty() || logical.starts_with(['#', '!']) {
            continue;
        }
        while ends_open(&logical) {
            logical.pop();
            let (_, next) = lines.next().unwrap_or_default();
            logical.push_str(next.trim_start_matches(BLANKS));
        }
        let (key, value) = split_property(&logical);
        let unescape = |part: &str| unescape(part).map_err(|reason| (index + 1, reason));
        properties.push((unescape(key)?, unescape(value)?));
    }
    Ok(properties)
}

const BLANKS: [char; 3] = [' ', '\t', '\u{c}'];

/// Says whether an odd number of backslashes ends the line.
fn ends_open(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

fn split_property(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.char_indices().find(|(_, character)| {
        let ends = !escaped && (BLANKS.contains(character) || matches!(character, '=' | ':'));
        escaped = !escaped && *character == '\\';
        ends
    });
    let Some((end, _)) = end else {
        return (line, "");
    };
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start_matches(BLANKS);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, rest.trim_start_matches(BLANKS))
}

fn unescape(part: &str) -> std::result::Result<String, String> {
    let mut text = String::with_capacity(part.len());
    let mut characters = part.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('t') => text.push('\t'),
            Some('n') => text.push('\n'),
            Some('r') => text.push('\r'),
            Some('f') => text.push('\u{c}'),
            Some('u') => {
                let digits: String = characters.by_ref().take(4).collect();
                let code = u32::from_str_radix(&digits, 16)
                    .ok()
                    .and_then(char::from_u32);
                text.push(code.ok_or_else(|| format!("\\u{digits} is no character"))?);
            }
            Some(other) => text.push(other),
            None => {}
        }
    }
    Ok(text)
}

/// `java.util.Date.toString` in UTC: `Sat Nov 21 02:52:37 UTC 2026`.
fn java_date(now_ms: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let seconds = now_ms.div_euclid(1000);
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years begin in March here, so that the leap day is the last of its year.
    let shifted = day + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let month = (month_from_march + 2) % 12;
    let year = era * 400 + year_of_era + i64::from(month < 2);
    format!(
        "{} {} {:02} {:02}:{:02}:{:02} UTC {year}",
        DAYS[day.rem_euclid(7) as usize],
        MONTHS[month as usize],
        day_of_year - (153 * month_from_march + 2) / 5 + 1,
        second / 3600,
        second / 60 % 60,
        second % 60,
    )
}

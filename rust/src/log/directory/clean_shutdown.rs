//! The mark of a clean stop, `.kafka_cleanshutdown`, written last and removed at the next start. It
//! carries the broker epoch since Kafka 3.7 (KIP-966); before, it was empty. Kafka:
//! `CleanShutdownFileHandler`.
//!
//! ```text
//! {"version":0,"brokerEpoch":7}
//! ```

use json::{Json, parse_object};

const CLEAN_SHUTDOWN_VERSION: i32 = 0;

pub fn print(broker_epoch: i64) -> String {
    format!("{{\"version\":{CLEAN_SHUTDOWN_VERSION},\"brokerEpoch\":{broker_epoch}}}")
}

/// The broker epoch; `None` if the file says none or is no JSON. That is no error: Kafka then
/// goes on without one, and the stop was clean all the same.
pub fn parse(text: &[u8]) -> Option<i64> {
    let fields = parse_object(std::str::from_utf8(text).ok()?)?;
    let value = fields
        .into_iter()
        .rev()
        .find(|(name, _)| name == "brokerEpoch");
    match value {
        Some((_, Json::Number(number))) => number.parse().ok(),
        _ => None,
    }
}

/// As much of JSON as `.kafka_cleanshutdown` needs: one flat object.
mod json {
    pub enum Json {
        /// The digits as they stand.
        Number(String),
        Other,
    }

    /// Fields in order. `None`: no flat JSON object.
    pub fn parse_object(text: &str) -> Option<Vec<(String, Json)>> {
        let mut rest = text.trim_ascii().strip_prefix('{')?.trim_ascii_start();
        let mut fields = Vec::new();
        if let Some(end) = rest.strip_prefix('}') {
            return end.is_empty().then_some(fields);
        }
        loop {
            let (name, after) = string(rest)?;
            let after = after.trim_ascii_start().strip_prefix(':')?;
            let (value, after) = scalar(after.trim_ascii_start())?;
            fields.push((name.to_owned(), value));
            let after = after.trim_ascii_start();
            if let Some(end) = after.strip_prefix('}') {
                return end.is_empty().then_some(fields);
            }
            rest = after.strip_prefix(',')?.trim_ascii_start();
        }
    }

    /// A string without escapes being resolved (no name we look for has one).
    fn string(text: &str) -> Option<(&str, &str)> {
        let body = text.strip_prefix('"')?;
        let mut escaped = false;
        for (at, character) in body.char_indices() {
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return Some((&body[..at], &body[at + 1..])),
                _ => {}
            }
        }
        None
    }

    fn scalar(text: &str) -> Option<(Json, &str)> {
        if text.starts_with('"') {
            return string(text).map(|(_, rest)| (Json::Other, rest));
        }
        let end = text.find([',', '}', ' ', '\n', '\r', '\t'])?;
        let (word, rest) = text.split_at(end);
        match word {
            "true" | "false" | "null" => Some((Json::Other, rest)),
            _ if word.parse::<f64>().is_ok() => Some((Json::Number(word.to_owned()), rest)),
            _ => None,
        }
    }
}

//! What the command line says, `key=value` each, and the connections that follow from it.

use std::collections::HashMap;
use std::net::TcpStream;

use crate::Failure;

pub struct Arguments(HashMap<String, String>);

impl Arguments {
    /// Words without `=` say nothing.
    pub fn of(words: impl Iterator<Item = String>) -> Arguments {
        Arguments(
            words
                .filter_map(|word| {
                    word.split_once('=')
                        .map(|(key, value)| (key.to_owned(), value.to_owned()))
                })
                .collect(),
        )
    }

    pub fn text(&self, key: &str) -> Result<&str, Failure> {
        let value = self.0.get(key).map(String::as_str);
        value.ok_or_else(|| format!("{key}=… is missing").into())
    }

    pub fn number<T: std::str::FromStr>(&self, key: &str, default: T) -> Result<T, Failure> {
        match self.0.get(key) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| format!("{key}={text} is no number").into()),
        }
    }

    pub fn connections(&self) -> Result<Vec<TcpStream>, Failure> {
        (0..self.number("connections", 1)?)
            .map(|_| self.connect())
            .collect()
    }

    pub fn connect(&self) -> Result<TcpStream, Failure> {
        let stream = TcpStream::connect(self.text("broker")?)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

//! Request and response headers, and which keys and versions have which.
//!
//! ```text
//! request v1   api_key i16, api_version i16, correlation_id i32, client_id nullable string
//! request v2   the same (client_id stays a plain string), tagged fields
//! response v0  correlation_id i32
//! response v1  correlation_id i32, tagged fields
//! ```
//!
//! A request is flexible from the key's first flexible version on and then has header v2 and v1.
//! Two exceptions: the answer to ApiVersions always has header v0 (KIP-511: the client may not know
//! yet what the broker speaks), and SaslHandshake and OffsetDelete never became flexible.

use super::cursor::{Reader, Writer};
use super::frame::SIZE_BYTES;
use crate::error::Result;

pub const PRODUCE: i16 = 0;
pub const FETCH: i16 = 1;
pub const LIST_OFFSETS: i16 = 2;
pub const METADATA: i16 = 3;
pub const OFFSET_FETCH: i16 = 9;
pub const API_VERSIONS: i16 = 18;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<&'a str>,
    /// The version is one that uses compact types and tagged fields.
    pub flexible: bool,
}

impl<'a> RequestHeader<'a> {
    /// Reads the header of a frame's content. `first_flexible` says from which version a key is
    /// flexible; `None` is never. A key that the broker does not know is the caller's to refuse.
    pub fn read(
        reader: &mut Reader<'a>,
        first_flexible: impl FnOnce(i16) -> Option<i16>,
    ) -> Result<RequestHeader<'a>> {
        let api_key = reader.i16()?;
        let api_version = reader.i16()?;
        let correlation_id = reader.i32()?;
        let client_id = reader.nullable_string(false)?;
        let flexible = first_flexible(api_key).is_some_and(|first| api_version >= first);
        reader.skip_tags(flexible)?;
        Ok(RequestHeader {
            api_key,
            api_version,
            correlation_id,
            client_id,
            flexible,
        })
    }

    /// A response to this request: room for the size, then the header.
    /// `frame::finish` completes it.
    pub fn begin_response(&self, capacity: usize) -> Writer {
        begin_response(
            self.correlation_id,
            self.flexible && self.api_key != API_VERSIONS,
            capacity,
        )
    }
}

/// As `RequestHeader::begin_response`, for an answer made after the request's bytes are gone.
pub fn begin_response(correlation_id: i32, tagged: bool, capacity: usize) -> Writer {
    let bytes = Vec::with_capacity(capacity + SIZE_BYTES + 5);
    begin_response_behind(bytes, correlation_id, tagged)
}

/// Begins a response behind other responses.
pub fn begin_response_behind(bytes: Vec<u8>, correlation_id: i32, tagged: bool) -> Writer {
    let mut writer = Writer { bytes };
    writer.i32(0);
    writer.i32(correlation_id);
    writer.no_tags(tagged);
    writer
}

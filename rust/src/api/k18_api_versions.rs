//! ApiVersions (key 18), versions 0 to 4.
//!
//! Behaviour: the table of keys and versions that this broker answers in full. From version 3 on
//! the features follow as tagged fields; none is finalised until `__cluster_metadata` exists.
//!
//! Refusals: a version that is not known is answered, not refused: version 0 with error 35 and just
//! this key's own range, so that the client can try again (KIP-511). From version 3 on a client's
//! name or version that does not match `[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?` is error 42.
//!
//! Version notes: the response header is version 0 in every version (KIP-511).

use super::{ApiKey, code};
use crate::error::Result;
use crate::wire::{Reader, RequestHeader, Writer, frame};

pub const KEY: ApiKey = ApiKey {
    key: 18,
    advertised_min: 0,
    min: 0,
    max: 4,
    first_flexible: 3,
};

/// The whole answer. `keys` is the table, in the order of the keys.
pub fn answer(
    header: &RequestHeader<'_>,
    reader: &mut Reader<'_>,
    keys: &[ApiKey],
) -> Result<Vec<u8>> {
    let version = header.api_version;
    if !(KEY.min..=KEY.max).contains(&version) {
        return Ok(write(header, 0, code::UNSUPPORTED_VERSION, &[KEY]));
    }
    let mut error_code = code::NONE;
    if version >= 3 {
        let (name, software_version) = (reader.string(true)?, reader.string(true)?);
        reader.skip_tags(true)?;
        if !is_software_name(name) || !is_software_name(software_version) {
            error_code = code::INVALID_REQUEST;
        }
    }
    let keys = if error_code == code::NONE { keys } else { &[] };
    Ok(write(header, version, error_code, keys))
}

fn write(header: &RequestHeader<'_>, version: i16, error_code: i16, keys: &[ApiKey]) -> Vec<u8> {
    let flexible = version >= KEY.first_flexible;
    let mut writer: Writer = header.begin_response(16 + 7 * keys.len());
    writer.i16(error_code);
    writer.array_length(keys.len(), flexible);
    for key in keys {
        writer.i16(key.key);
        writer.i16(key.advertised_min);
        writer.i16(key.max);
        writer.no_tags(flexible);
    }
    if version >= 1 {
        writer.i32(0);
    }
    writer.no_tags(flexible);
    frame::finish(&mut writer.bytes, 0);
    writer.bytes
}

fn is_software_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter()
        .all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

//! ApiVersions (key 18), versions 0 to 4.
//!
//! Behaviour: the table of keys and versions that this broker answers in full. From version 3 on
//! the features follow as tagged fields (KIP-584): those supported, those finalised, and up to
//! which offset of `__cluster_metadata` that is so.
//!
//! A key that is forwarded has the versions that the active controller answers, too (KIP-590).
//!
//! Refusals: a version that is not known is answered, not refused: version 0 with error 35 and just
//! this key's own range, so that the client can try again (KIP-511). From version 3 on a client's
//! name or version that does not match `[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?` is error 42.
//!
//! Version notes: the response header is version 0 in every version (KIP-511). Before version 4 a
//! supported feature whose lowest level is 0 is left out (KIP-584, KAFKA-17011).

use super::handler::ApiKey;
use crate::codes;
use crate::error::Result;
use crate::image::Features;
use crate::wire::{Reader, RequestHeader, Writer};

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
    features: &Features,
) -> Result<Vec<u8>> {
    let version = header.api_version;
    if !(KEY.min..=KEY.max).contains(&version) {
        return Ok(write(header, 0, codes::UNSUPPORTED_VERSION, &[KEY], None));
    }
    let mut error_code = codes::NONE;
    if version >= 3 {
        let (name, software_version) = (reader.string(true)?, reader.string(true)?);
        reader.skip_tags(true)?;
        if !is_software_name(name) || !is_software_name(software_version) {
            error_code = codes::INVALID_REQUEST;
        }
    }
    if error_code != codes::NONE {
        return Ok(write(header, version, error_code, &[], None));
    }
    let told: Vec<ApiKey> = keys.iter().filter_map(|key| told(key, features)).collect();
    Ok(write(header, version, error_code, &told, Some(features)))
}

/// A key with the versions that are answered by whoever answers them; `None`: there is none.
fn told(key: &ApiKey, features: &Features) -> Option<ApiKey> {
    let mut forwarded = features.forwarded.iter();
    let Some((_, min, max)) = forwarded.find(|(forwarded, ..)| *forwarded == key.key) else {
        return Some(*key);
    };
    let advertised_min = key.advertised_min.max(*min);
    let max = key.max.min(*max);
    (advertised_min <= max).then_some(ApiKey {
        advertised_min,
        max,
        ..*key
    })
}

fn write(
    header: &RequestHeader<'_>,
    version: i16,
    error_code: i16,
    keys: &[ApiKey],
    features: Option<&Features>,
) -> Vec<u8> {
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
    match features {
        Some(features) if flexible => write_features(&mut writer, version, features),
        _ => writer.no_tags(flexible),
    }
    writer.bytes
}

/// Tag 0: supported features; 1: the epoch; 2: finalised features. What is empty is left out.
fn write_features(writer: &mut Writer, version: i16, features: &Features) {
    let mut supported = Writer::default();
    let shown = features.supported.iter();
    let shown: Vec<_> = shown
        .filter(|(_, min, _)| version >= 4 || *min > 0)
        .collect();
    supported.array_length(shown.len(), true);
    for (name, min, max) in &shown {
        supported.string(name, true);
        supported.i16(*min);
        supported.i16(*max);
        supported.no_tags(true);
    }
    let mut epoch = Writer::default();
    epoch.i64(features.epoch);
    let mut finalized = Writer::default();
    finalized.array_length(features.finalized.len(), true);
    for (name, level) in &features.finalized {
        finalized.string(name, true);
        finalized.i16(*level);
        finalized.i16(*level);
        finalized.no_tags(true);
    }
    let fields = [
        (!shown.is_empty()).then_some(supported),
        Some(epoch),
        (!features.finalized.is_empty()).then_some(finalized),
    ];
    let present = (0..)
        .zip(fields)
        .filter_map(|(tag, field)| Some((tag, field?)));
    let present: Vec<(u32, Writer)> = present.collect();
    writer.uvarint(present.len() as u32);
    for (tag, field) in present {
        writer.uvarint(tag);
        writer.uvarint(field.bytes.len() as u32);
        writer.bytes.extend_from_slice(&field.bytes);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn range_of(forwarded: &[(i16, i16, i16)]) -> Option<(i16, i16)> {
        let features = Features {
            forwarded: forwarded.to_vec(),
            ..Features::default()
        };
        let create_topics = ApiKey {
            key: 19,
            advertised_min: 2,
            min: 0,
            max: 7,
            first_flexible: 5,
        };
        told(&create_topics, &features).map(|key| (key.advertised_min, key.max))
    }

    #[test]
    fn a_forwarded_key_has_the_versions_that_both_brokers_know() {
        assert_eq!(range_of(&[]), Some((2, 7)));
        assert_eq!(range_of(&[(20, 1, 1)]), Some((2, 7)));
        assert_eq!(range_of(&[(19, 0, 9)]), Some((2, 7)));
        assert_eq!(range_of(&[(20, 1, 1), (19, 3, 5)]), Some((3, 5)));
        assert_eq!(range_of(&[(19, 8, 9)]), None);
    }
}

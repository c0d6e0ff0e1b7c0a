//! The means by which requests are read and answered, by whichever thread does.

use crate::api::fetch_sessions::FetchSessions;
use crate::api::{ApiKey, HOT_KEYS};
use crate::codec::schema::Message;
use crate::error::{Error, Result};
use crate::net::settings::Settings;
use crate::wire::header::API_VERSIONS;
use crate::wire::{Reader, RequestHeader};

pub struct RequestContext {
    pub settings: Settings,
    pub keys: ApiKeys,
    pub fetch_sessions: FetchSessions,
}

/// All keys that are answered.
pub struct ApiKeys {
    /// In their order.
    all: Vec<ApiKey>,
    by_key: Vec<Option<ApiKey>>,
}

impl ApiKeys {
    /// `control_keys` are those that Python answers.
    pub fn new(control_keys: Vec<ApiKey>) -> ApiKeys {
        let mut all: Vec<ApiKey> = HOT_KEYS.to_vec();
        all.extend(control_keys);
        all.sort_by_key(|key| key.key);
        let mut by_key = vec![None; all.last().map_or(0, |key| key.key as usize + 1)];
        for key in &all {
            by_key[key.key as usize] = Some(*key);
        }
        ApiKeys { all, by_key }
    }

    pub fn all(&self) -> &[ApiKey] {
        &self.all
    }

    pub fn get(&self, key: i16) -> Option<ApiKey> {
        *self.by_key.get(usize::try_from(key).ok()?)?
    }
}

/// Reads the header of a request that is spoken here. Errors: one that cannot be read,
/// an unknown key, a version that is not spoken, unless it is ApiVersions', which says
/// so in its answer (KIP-511).
pub fn read_header<'a>(reader: &mut Reader<'a>, keys: &ApiKeys) -> Result<RequestHeader<'a>> {
    let mut known = None;
    let header = RequestHeader::read(reader, |key| {
        known = keys.get(key);
        known.map(|known| known.first_flexible)
    })?;
    let (api_key, version) = (header.api_key, header.api_version);
    let key = known.ok_or_else(|| Error::MalformedRequest(format!("unknown API key {api_key}")))?;
    if !(key.min..=key.max).contains(&version) && api_key != API_VERSIONS {
        let name = Message::name_of_key(api_key).unwrap_or("unknown");
        let reason = format!("{name} (API key {api_key}) has no version {version}");
        return Err(Error::MalformedRequest(reason));
    }
    Ok(header)
}

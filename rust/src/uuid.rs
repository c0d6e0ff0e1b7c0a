//! Ids of topics and of log directories: 128 bits, which Kafka writes as 22 characters of URL-safe
//! base64 (`org.apache.kafka.common.Uuid`).

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::error::{Error, Result};

/// Big-endian, as on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Stands for none.
    pub const ZERO: Uuid = Uuid([0; 16]);

    /// A new one (version 4 of RFC 9562), as Kafka makes them: none that
    /// begins with a dash in base64.
    pub fn random() -> Result<Uuid> {
        loop {
            let mut id = [0; 16];
            getrandom::fill(&mut id)
                .map_err(|error| Error::InvalidArgument(format!("no randomness: {error}")))?;
            id[6] = id[6] & 0x0f | 0x40;
            id[8] = id[8] & 0x3f | 0x80;
            // The first six bits 62 are `-` in base64url.
            if id[0] >> 2 != 62 {
                return Ok(Uuid(id));
            }
        }
    }

    /// `None`: not base64, or not of 16 bytes. Padding may be there or not, as in Java.
    pub fn parse(text: &str) -> Option<Uuid> {
        const DECODER: GeneralPurpose = GeneralPurpose::new(
            &alphabet::URL_SAFE,
            GeneralPurposeConfig::new()
                .with_decode_padding_mode(DecodePaddingMode::Indifferent)
                .with_decode_allow_trailing_bits(true),
        );
        let bytes = DECODER.decode(text).ok()?;
        Some(Uuid(bytes.try_into().ok()?))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(self.0))
    }
}

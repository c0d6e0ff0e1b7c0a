//! A second reader of batches, slow and plain, that shares no code with the engine: it copies
//! everything, computes in wide integers, and checks CRCs bit by bit. Both must agree.

use std::io::Read;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainRecord {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

struct Bytes(Vec<u8>);

impl Bytes {
    fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        (count <= self.0.len()).then(|| self.0.drain(..count).collect())
    }

    /// A big-endian signed integer of `width` bytes.
    fn int(&mut self, width: usize) -> Option<i128> {
        let bytes = self.take(width)?;
        let mut value = if bytes[0] >= 0x80 { -1 } else { 0 };
        for byte in bytes {
            value = value * 256 + i128::from(byte);
        }
        Some(value)
    }

    /// A zig-zag varint of at most `bytes_max` bytes, cut to `bits`.
    fn varint(&mut self, bytes_max: u32, bits: u32) -> Option<i128> {
        let mut value: u128 = 0;
        for index in 0..bytes_max {
            let byte = self.take(1)?[0];
            value += u128::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                value %= 1 << bits;
                let half = (value / 2) as i128;
                return Some(if value.is_multiple_of(2) {
                    half
                } else {
                    -half - 1
                });
            }
        }
        None
    }

    fn slice(&mut self) -> Option<Option<Vec<u8>>> {
        let length = self.varint(5, 32)?;
        if length < 0 {
            Some(None)
        } else {
            self.take(length as usize).map(Some)
        }
    }

    fn sized(&mut self) -> Option<Option<Vec<u8>>> {
        let length = self.int(4)?;
        if length < 0 {
            Some(None)
        } else {
            self.take(length as usize).map(Some)
        }
    }
}

/// The records of one batch of any magic; `None` if anything about it is wrong.
pub fn read_batch(batch: &[u8]) -> Option<Vec<PlainRecord>> {
    match *batch.get(16)? {
        0 | 1 => read_message(batch),
        2 => read_current(batch),
        _ => None,
    }
}

fn read_current(batch: &[u8]) -> Option<Vec<PlainRecord>> {
    let mut bytes = Bytes(batch.to_vec());
    let base_offset = bytes.int(8)?;
    let length = bytes.int(4)?;
    if length != batch.len() as i128 - 12 || length < 49 {
        return None;
    }
    bytes.take(5)?;
    if bytes.int(4)? as u32 != crc(0x82f6_3b78, &batch[21..]) {
        return None;
    }
    let attributes = bytes.int(2)?;
    bytes.take(4)?;
    let base_timestamp = bytes.int(8)?;
    let max_timestamp = bytes.int(8)?;
    bytes.take(14)?;
    let count = bytes.int(4)?;
    let mut records = Bytes(if count > 0 {
        inflate(attributes as u8 & 7, &bytes.0)?
    } else {
        vec![]
    });
    let mut result = Vec::new();
    for _ in 0..count {
        let length = usize::try_from(records.varint(5, 32)?).ok()?;
        let mut record = Bytes(records.take(length)?);
        record.take(1)?;
        let timestamp_delta = record.varint(10, 64)?;
        let offset_delta = record.varint(5, 32)?;
        let (key, value) = (record.slice()?, record.slice()?);
        let mut headers = Vec::new();
        let headers_count = record.varint(5, 32)?;
        if headers_count < 0 {
            return None;
        }
        for _ in 0..headers_count {
            headers.push((record.slice()??, record.slice()?));
        }
        if !record.0.is_empty() {
            return None;
        }
        result.push(PlainRecord {
            offset: (base_offset + offset_delta) as i64,
            timestamp: if attributes & 8 != 0 {
                max_timestamp as i64
            } else {
                (base_timestamp + timestamp_delta) as i64
            },
            key,
            value,
            headers,
        });
    }
    (records.0.is_empty()).then_some(result)
}

fn read_message(message: &[u8]) -> Option<Vec<PlainRecord>> {
    let (outer, attributes) = read_one_message(message)?;
    if attributes & 7 == 0 {
        return Some(vec![outer]);
    }
    let magic = message[16];
    let mut stream = outer.value.clone()?;
    if attributes & 7 == 3 && magic == 0 {
        stream[6] = (twox_hash::XxHash32::oneshot(0, &stream[4..6]) >> 8) as u8;
    }
    let mut inner = inflate(attributes & 7, &stream)?;
    let mut result = Vec::new();
    while !inner.is_empty() {
        let size = 12 + Bytes(inner.get(8..12)?.to_vec()).int(4)? as usize;
        let (mut record, _) = read_one_message(inner.get(..size)?)?;
        inner.drain(..size);
        if attributes & 8 != 0 {
            record.timestamp = outer.timestamp;
        }
        result.push(record);
    }
    if magic == 1 {
        let first = outer.offset - result.last()?.offset;
        result.iter_mut().for_each(|record| record.offset += first);
    }
    Some(result)
}

fn read_one_message(message: &[u8]) -> Option<(PlainRecord, u8)> {
    let mut bytes = Bytes(message.to_vec());
    let offset = bytes.int(8)? as i64;
    if bytes.int(4)? != message.len() as i128 - 12
        || bytes.int(4)? as u32 != crc(0xedb8_8320, &message[16..])
    {
        return None;
    }
    let magic = bytes.int(1)?;
    let attributes = bytes.take(1)?[0];
    let timestamp = if magic == 1 { bytes.int(8)? as i64 } else { -1 };
    let (key, value) = (bytes.sized()?, bytes.sized()?);
    let headers = Vec::new();
    Some((
        PlainRecord {
            offset,
            timestamp,
            key,
            value,
            headers,
        },
        attributes,
    ))
}

/// A reflected CRC-32 of either polynomial, one bit at a time.
pub fn crc(polynomial: u32, bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ polynomial
            } else {
                crc >> 1
            };
        }
    }
    !crc
}

fn inflate(codec: u8, stream: &[u8]) -> Option<Vec<u8>> {
    let mut output = Vec::new();
    match codec {
        0 => output = stream.to_vec(),
        1 => {
            flate2::read::MultiGzDecoder::new(stream)
                .read_to_end(&mut output)
                .ok()?;
        }
        2 if stream.starts_with(b"\x82SNAPPY\0") => {
            let mut blocks = Bytes(stream.get(16..)?.to_vec());
            while !blocks.0.is_empty() {
                let block = blocks.sized()??;
                output.extend(snap::raw::Decoder::new().decompress_vec(&block).ok()?);
            }
        }
        2 => output = snap::raw::Decoder::new().decompress_vec(stream).ok()?,
        3 => {
            lz4_flex::frame::FrameDecoder::new(stream)
                .read_to_end(&mut output)
                .ok()?;
        }
        4 => output = zstd::stream::decode_all(stream).ok()?,
        _ => return None,
    }
    Some(output)
}

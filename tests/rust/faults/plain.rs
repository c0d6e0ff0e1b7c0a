//! The slow, plain second reader of Kafka's format: what a log ought to hold, from its bytes alone.
//! It shares no code with the engine.

use crate::plain_reader::crc;

/// One batch of magic 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainBatch {
    pub position: usize,
    pub base_offset: i64,
    pub last_offset: i64,
    /// As it lies on disk.
    pub bytes: Vec<u8>,
}

impl PlainBatch {
    pub fn next_offset(&self) -> i64 {
        self.last_offset + 1
    }

    pub fn end(&self) -> usize {
        self.position + self.bytes.len()
    }

    pub fn producer_id(&self) -> i64 {
        i64::from_be_bytes(field(&self.bytes, 43))
    }

    pub fn producer_epoch(&self) -> i16 {
        i16::from_be_bytes(field(&self.bytes, 51))
    }

    pub fn base_sequence(&self) -> i32 {
        i32::from_be_bytes(field(&self.bytes, 53))
    }

    pub fn is_transactional(&self) -> bool {
        self.bytes[22] & 0x10 != 0
    }

    pub fn is_control(&self) -> bool {
        self.bytes[22] & 0x20 != 0
    }

    /// The CRC and all that it covers.
    pub fn content(&self) -> &[u8] {
        &self.bytes[17..]
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[at..at + N]);
    value
}

/// The batches of a file up to the first thing that is none: a batch of magic 2, whole, with the
/// right CRC, whose offsets lie at or behind `next_offset` and behind those of the batch before.
pub fn valid_prefix(file: &[u8], mut next_offset: i64) -> Vec<PlainBatch> {
    let mut batches = Vec::new();
    let mut position = 0;
    while let Some(batch) = batch_at(file, position) {
        if batch.base_offset < next_offset {
            break;
        }
        next_offset = batch.next_offset();
        position = batch.end();
        batches.push(batch);
    }
    batches
}

/// As `valid_prefix` of a file that was damaged from byte `from` on, of which `whole` was the valid
/// prefix before: what lies below need not be read again.
pub fn valid_prefix_of_damaged(file: &[u8], from: usize, whole: &[PlainBatch]) -> Vec<PlainBatch> {
    let intact = whole.iter().take_while(|batch| batch.end() <= from);
    let mut batches: Vec<PlainBatch> = intact.cloned().collect();
    let (mut position, mut next_offset) = batches
        .last()
        .map_or((0, 0), |last| (last.end(), last.next_offset()));
    while let Some(batch) = batch_at(file, position) {
        if batch.base_offset < next_offset {
            break;
        }
        (position, next_offset) = (batch.end(), batch.next_offset());
        batches.push(batch);
    }
    batches
}

/// The offset behind whole batches that lie back to back, by their headers alone; `None` if the
/// last of them is cut. For bytes that are compared with known ones afterwards.
pub fn next_offset_behind(bytes: &[u8]) -> (usize, Option<i64>) {
    let (mut position, mut next_offset) = (0, None);
    while let Some(header) = bytes.get(position..position + 27) {
        let size = i32::from_be_bytes(field(header, 8)) as usize + 12;
        if size > bytes.len() - position {
            break;
        }
        let base_offset = i64::from_be_bytes(field(header, 0));
        next_offset = Some(base_offset + i64::from(i32::from_be_bytes(field(header, 23))) + 1);
        position += size;
    }
    (position, next_offset)
}

fn batch_at(file: &[u8], position: usize) -> Option<PlainBatch> {
    let rest = &file[position..];
    if rest.len() < 61 {
        return None;
    }
    let size = usize::try_from(i32::from_be_bytes(field(rest, 8))).ok()? + 12;
    if size < 61 || size > rest.len() || rest[16] != 2 {
        return None;
    }
    let base_offset = i64::from_be_bytes(field(rest, 0));
    let delta = i32::from_be_bytes(field(rest, 23));
    let stored = u32::from_be_bytes(field(rest, 17));
    if base_offset < 0 || delta < 0 || crc32c(&rest[21..size]) != stored {
        return None;
    }
    Some(PlainBatch {
        position,
        base_offset,
        last_offset: base_offset.checked_add(i64::from(delta))?,
        bytes: rest[..size].to_vec(),
    })
}

/// CRC-32C through tables made from the polynomial, eight bytes at a time: the long runs spend most
/// of their time here.
fn crc32c(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut crc = u32::MAX;
    for word in words {
        let [a, b, c, d] = (crc ^ u32::from_le_bytes(field(word, 0))).to_le_bytes();
        let ahead = [a, b, c, d, word[4], word[5], word[6], word[7]];
        crc = (0..8).fold(0, |crc, at| crc ^ TABLES[7 - at][ahead[at] as usize]);
    }
    let step =
        |crc: u32, byte: &u8| TABLES[0][((crc ^ u32::from(*byte)) & 0xff) as usize] ^ (crc >> 8);
    !rest.iter().fold(crc, step)
}

const POLYNOMIAL: u32 = 0x82f6_3b78;
/// What a byte adds to the CRC when so many bytes follow it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut at = 0;
    while at < 256 {
        let mut crc = at as u32;
        let mut followers = 0;
        while followers < 8 {
            let mut bit = 0;
            while bit < 8 {
                crc = (crc >> 1) ^ (POLYNOMIAL * (crc & 1));
                bit += 1;
            }
            tables[followers][at] = crc;
            followers += 1;
        }
        at += 1;
    }
    tables
}

#[test]
fn the_crc_by_table_is_the_crc_by_bits() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    let text = b"a text that is longer than two words";
    for start in 0..9 {
        assert_eq!(crc32c(&text[start..]), crc(POLYNOMIAL, &text[start..]));
    }
}

//! The four codecs of Kafka, written as its Java client writes them; `inflate.rs` reads them.
//!
//! A batch's records, or the value of a legacy wrapper message, are one compressed stream:
//!
//! ```text
//! id  codec   framing on the wire
//!  1  gzip    RFC 1952, several members allowed, what follows the last one ignored
//!  2  snappy  xerial: 82 'SNAPPY' 00, version i32, compatible i32, then blocks of
//!             length i32 (big-endian) + raw snappy; or one raw snappy block without a frame
//!  3  lz4     LZ4 frame: magic 04 22 4d 18, FLG, BD, [content size], HC, then blocks of
//!             length u32 (little-endian, top bit: stored) + bytes [+ xxh32]; a zero length ends
//!  4  zstd    RFC 8878, several frames allowed; not for magic 0 and 1
//! ```

use std::io::{self, Write};

use twox_hash::XxHash32;

use crate::error::{Error, Result};

/// `compression.type` without "producer"; the discriminant is the id in a batch's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Codec {
    #[default]
    None = 0,
    Gzip = 1,
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

impl Codec {
    pub const ALL: [Codec; 5] = [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ];

    /// The codec of an id in a batch's attributes. Errors: `UnsupportedCompression` for 5 to 7.
    pub fn from_id(id: u8) -> Result<Codec> {
        match id {
            0 => Ok(Codec::None),
            1 => Ok(Codec::Gzip),
            2 => Ok(Codec::Snappy),
            3 => Ok(Codec::Lz4),
            4 => Ok(Codec::Zstd),
            _ => Err(Error::UnsupportedCompression(format!(
                "compression type id {id} is unknown"
            ))),
        }
    }

    pub fn id(self) -> u8 {
        self as u8
    }

    /// The name in `compression.type`.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    /// `None` for what is no codec, such as "producer" and "uncompressed", which a topic config
    /// resolves before it comes here.
    pub fn from_name(name: &str) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| codec.name() == name)
    }

    /// Says whether Kafka takes the level for this codec (`CompressionType.levelValidator`).
    pub fn level_is_valid(self, level: i32) -> bool {
        match self {
            Codec::None | Codec::Snappy => false,
            Codec::Gzip => level == -1 || (1..=9).contains(&level),
            Codec::Lz4 => (1..=17).contains(&level),
            Codec::Zstd => (-131_072..=22).contains(&level),
        }
    }
}

/// Compresses `input` into one stream of the codec. `level`: as `compression.*.level`, `None` for
/// the default. Errors: `InvalidArgument` for a level that Kafka refuses.
///
/// LZ4 levels other than 9 choose a slower, denser coder in Kafka's Java library; here every level
/// uses the one fast coder. The format is the same.
pub fn compress(codec: Codec, level: Option<i32>, input: &[u8]) -> Result<Vec<u8>> {
    check_level(codec, level)?;
    if codec == Codec::Zstd {
        // In one piece, so that the frame says how long its content is.
        let compressed = zstd::bulk::compress(input, level.unwrap_or(3));
        return compressed.map_err(|error| refused(codec, error));
    }
    let mut deflation = Deflation::begin(codec, level, input.len())?;
    let pushed = deflation.push(input)?;
    deflation.finish(&input[pushed..])
}

fn check_level(codec: Codec, level: Option<i32>) -> Result<()> {
    match level {
        Some(level) if !codec.level_is_valid(level) => Err(Error::InvalidArgument(format!(
            "{} does not support compression level {level}",
            codec.name()
        ))),
        _ => Ok(()),
    }
}

fn refused(codec: Codec, error: impl std::fmt::Display) -> Error {
    Error::InvalidArgument(format!("{}: {error}", codec.name()))
}

/// One stream that is compressed as its content comes.
pub struct Deflation {
    codec: Codec,
    coder: Coder,
}

enum Coder {
    Plain(Vec<u8>),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Snappy(Vec<u8>),
    Lz4(Vec<u8>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Deflation {
    /// `size_hint`: bytes of content, as far as they are known. Errors: those of [`compress`].
    pub fn begin(codec: Codec, level: Option<i32>, size_hint: usize) -> Result<Deflation> {
        check_level(codec, level)?;
        let mut output = Vec::with_capacity(size_hint / 2 + 64);
        let coder = match codec {
            Codec::None => Coder::Plain(output),
            Codec::Gzip => {
                let level = match level {
                    Some(level @ 1..=9) => flate2::Compression::new(level as u32),
                    _ => flate2::Compression::default(),
                };
                let builder = flate2::GzBuilder::new().operating_system(255);
                Coder::Gzip(builder.write(output, level))
            }
            Codec::Snappy => {
                output.extend_from_slice(&XERIAL_MAGIC);
                output.extend_from_slice(&1_i32.to_be_bytes());
                output.extend_from_slice(&1_i32.to_be_bytes());
                Coder::Snappy(output)
            }
            Codec::Lz4 => {
                output.extend_from_slice(&LZ4_MAGIC);
                let descriptor = [LZ4_FLAGS, LZ4_BLOCK_DESCRIPTOR];
                output.extend_from_slice(&descriptor);
                output.push(lz4_header_checksum(&descriptor));
                Coder::Lz4(output)
            }
            Codec::Zstd => {
                let encoder = zstd::stream::write::Encoder::new(output, level.unwrap_or(3));
                Coder::Zstd(encoder.map_err(|error| refused(codec, error))?)
            }
        };
        Ok(Deflation { codec, coder })
    }

    /// Compresses as much of `input` as fills whole blocks, and returns how much that is: the rest
    /// is to be given again, with more behind it.
    pub fn push(&mut self, input: &[u8]) -> Result<usize> {
        let block_bytes = match &self.coder {
            Coder::Snappy(_) => XERIAL_BLOCK_BYTES,
            Coder::Lz4(_) => LZ4_BLOCK_BYTES,
            Coder::Plain(_) | Coder::Gzip(_) | Coder::Zstd(_) => 1,
        };
        let whole = input.len() - input.len() % block_bytes;
        let codec = self.codec;
        let deflated = self.deflate(&input[..whole]);
        deflated.map_err(|error| refused(codec, error))?;
        Ok(whole)
    }

    /// Compresses the last part and returns the stream.
    pub fn finish(mut self, rest: &[u8]) -> Result<Vec<u8>> {
        let codec = self.codec;
        let deflated = self.deflate(rest);
        deflated.map_err(|error| refused(codec, error))?;
        let output = match self.coder {
            Coder::Plain(output) | Coder::Snappy(output) => Ok(output),
            Coder::Gzip(encoder) => encoder.finish(),
            Coder::Lz4(mut output) => {
                output.extend_from_slice(&0_u32.to_le_bytes());
                Ok(output)
            }
            Coder::Zstd(encoder) => encoder.finish(),
        };
        output.map_err(|error| refused(codec, error))
    }

    /// Bytes of the stream so far; what a coder holds back does not count.
    pub fn size_bytes(&self) -> usize {
        match &self.coder {
            Coder::Plain(output) | Coder::Snappy(output) | Coder::Lz4(output) => output.len(),
            Coder::Gzip(encoder) => encoder.get_ref().len(),
            Coder::Zstd(encoder) => encoder.get_ref().len(),
        }
    }

    fn deflate(&mut self, input: &[u8]) -> io::Result<()> {
        match &mut self.coder {
            Coder::Plain(output) => output.extend_from_slice(input),
            Coder::Gzip(encoder) => encoder.write_all(input)?,
            Coder::Snappy(output) => deflate_snappy(input, output)?,
            Coder::Lz4(output) => deflate_lz4(input, output)?,
            Coder::Zstd(encoder) => encoder.write_all(input)?,
        }
        Ok(())
    }
}

impl std::fmt::Debug for Deflation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deflation").finish_non_exhaustive()
    }
}

// --- snappy -------------------------------------------------------------------------------------

pub(super) const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
pub(super) const XERIAL_HEADER_BYTES: usize = 16;
/// Block size of xerial's `SnappyOutputStream`, bytes before compression.
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;

fn deflate_snappy(input: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
    let mut encoder = snap::raw::Encoder::new();
    for block in input.chunks(XERIAL_BLOCK_BYTES) {
        let at = output.len();
        output.resize(at + 4 + snap::raw::max_compress_len(block.len()), 0);
        let length = encoder.compress(block, &mut output[at + 4..])?;
        output[at..at + 4].copy_from_slice(&(length as u32).to_be_bytes());
        output.truncate(at + 4 + length);
    }
    Ok(())
}

// --- lz4 ----------------------------------------------------------------------------------------

pub(super) const LZ4_MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();
pub(super) const LZ4_STORED: u32 = 0x8000_0000;
/// FLG as Kafka's `Lz4BlockOutputStream` writes it: version 1, independent blocks, no checksums.
const LZ4_FLAGS: u8 = 0x60;
/// BD for blocks of 64 KiB.
const LZ4_BLOCK_DESCRIPTOR: u8 = 0x40;
const LZ4_BLOCK_BYTES: usize = 64 * 1024;

pub(super) fn lz4_header_checksum(descriptor: &[u8]) -> u8 {
    (XxHash32::oneshot(0, descriptor) >> 8) as u8
}

fn deflate_lz4(input: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
    for block in input.chunks(LZ4_BLOCK_BYTES) {
        let at = output.len();
        let room = lz4_flex::block::get_maximum_output_size(block.len());
        output.resize(at + 4 + room, 0);
        let length = lz4_flex::block::compress_into(block, &mut output[at + 4..])
            .map_err(io::Error::other)?;
        if length < block.len() {
            output[at..at + 4].copy_from_slice(&(length as u32).to_le_bytes());
            output.truncate(at + 4 + length);
        } else {
            output.truncate(at);
            output.extend_from_slice(&(block.len() as u32 | LZ4_STORED).to_le_bytes());
            output.extend_from_slice(block);
        }
    }
    Ok(())
}

//! The four codecs of Kafka, read under a cap and written as Kafka's Java client writes them.
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
//!
//! Lengths inside these streams are claims of whoever wrote them. Nothing is allocated for a claim
//! that the bytes at hand cannot honour, and output stops at [`inflated_bytes_max`].

use std::io::Write;

use flate2::{Decompress, FlushDecompress, Status};
use twox_hash::XxHash32;
use zstd::zstd_safe::{DCtx, InBuffer, OutBuffer, ResetDirective};

use crate::error::{Error, Result};
use crate::limits::{
    INFLATED_BYTES_MAX, INFLATION_RATIO_FREE_BYTES, INFLATION_RATIO_MAX, SCRATCH_BYTES_KEPT_MAX,
};

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

    /// Level if none is configured (`compression.gzip.level`, `.lz4.level`, `.zstd.level`).
    pub fn level_default(self) -> Option<i32> {
        match self {
            Codec::None | Codec::Snappy => None,
            Codec::Gzip => Some(-1),
            Codec::Lz4 => Some(9),
            Codec::Zstd => Some(3),
        }
    }

    /// Whether Kafka takes the level for this codec (`CompressionType.levelValidator`).
    pub fn level_is_valid(self, level: i32) -> bool {
        match self {
            Codec::None | Codec::Snappy => false,
            Codec::Gzip => level == -1 || (1..=9).contains(&level),
            Codec::Lz4 => (1..=17).contains(&level),
            Codec::Zstd => (-131_072..=22).contains(&level),
        }
    }
}

/// Bytes that a stream of `compressed_bytes` may inflate to before it is refused as a bomb.
pub fn inflated_bytes_max(compressed_bytes: usize) -> usize {
    compressed_bytes
        .saturating_mul(INFLATION_RATIO_MAX)
        .clamp(INFLATION_RATIO_FREE_BYTES, INFLATED_BYTES_MAX)
}

/// Inflates one stream into `output`, which is cleared first. `magic` is the format of the batch
/// that holds the stream: magic 0 carries LZ4 frames with a wrong header checksum (KAFKA-3160).
///
/// Errors: `InvalidRecord` if the stream is broken, ends early, or inflates beyond
/// [`inflated_bytes_max`]. Many streams in a row: keep an [`Inflater`].
pub fn decompress(codec: Codec, magic: i8, input: &[u8], output: &mut Vec<u8>) -> Result<()> {
    Inflater::default().inflate(codec, magic, input, output)
}

/// Decoder states worth keeping between streams (tens of KiB each, made on first use).
#[derive(Default)]
pub struct Inflater {
    gzip: Option<Decompress>,
    zstd: Option<DCtx<'static>>,
    snappy: snap::raw::Decoder,
    lz4_block: Vec<u8>,
}

impl std::fmt::Debug for Inflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflater").finish_non_exhaustive()
    }
}

impl Inflater {
    /// As [`decompress`]. After an error the next stream starts clean.
    pub fn inflate(
        &mut self,
        codec: Codec,
        magic: i8,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<()> {
        output.clear();
        output.shrink_to(SCRATCH_BYTES_KEPT_MAX);
        let bytes_max = inflated_bytes_max(input.len());
        match codec {
            Codec::None => {
                output.extend_from_slice(input);
                Ok(())
            }
            Codec::Gzip => {
                let state = self.gzip.get_or_insert_with(|| Decompress::new(false));
                inflate_gzip(state, input, output, bytes_max)
            }
            Codec::Snappy => inflate_snappy(&mut self.snappy, input, output, bytes_max),
            Codec::Lz4 => {
                let result = inflate_lz4(&mut self.lz4_block, magic, input, output, bytes_max);
                self.lz4_block.shrink_to(SCRATCH_BYTES_KEPT_MAX);
                result
            }
            Codec::Zstd if magic < 2 => Err(Error::InvalidRecord(format!(
                "zstd is not allowed in a message of magic {magic}"
            ))),
            Codec::Zstd => self.inflate_zstd(input, output, bytes_max),
        }
    }

    fn inflate_zstd(&mut self, input: &[u8], output: &mut Vec<u8>, bytes_max: usize) -> Result<()> {
        let context = self.zstd.get_or_insert_with(DCtx::create);
        let result = match context.reset(ResetDirective::SessionOnly) {
            Ok(_) => inflate_zstd(context, input, output, bytes_max),
            Err(code) => Err(broken_zstd(code)),
        };
        // A frame may ask for a window of 128 MiB; such a context is not kept.
        if context.sizeof() > SCRATCH_BYTES_KEPT_MAX {
            self.zstd = None;
        }
        result
    }
}

/// Compresses `input` into one stream of the codec. `level`: as `compression.*.level`, `None` for
/// the default. Errors: `InvalidArgument` for a level that Kafka refuses.
///
/// LZ4 levels other than 9 choose a slower, denser coder in Kafka's Java library; here every level
/// uses the one fast coder. The format is the same.
pub fn compress(codec: Codec, level: Option<i32>, input: &[u8]) -> Result<Vec<u8>> {
    if let Some(level) = level
        && !codec.level_is_valid(level)
    {
        return Err(Error::InvalidArgument(format!(
            "{} does not support compression level {level}",
            codec.name()
        )));
    }
    match codec {
        Codec::None => Ok(input.to_vec()),
        Codec::Gzip => deflate_gzip(level, input),
        Codec::Snappy => deflate_snappy(input),
        Codec::Lz4 => deflate_lz4(input),
        Codec::Zstd => zstd::bulk::compress(input, level.unwrap_or(3))
            .map_err(|error| Error::InvalidArgument(format!("zstd: {error}"))),
    }
}

fn broken(codec: &str, reason: impl std::fmt::Display) -> Error {
    Error::InvalidRecord(format!("broken {codec} stream: {reason}"))
}

fn broken_zstd(code: usize) -> Error {
    broken("zstd", zstd::zstd_safe::get_error_name(code))
}

fn too_large(codec: &str, bytes_max: usize) -> Error {
    Error::InvalidRecord(format!("{codec} stream inflates beyond {bytes_max} bytes"))
}

/// Makes room for the next piece of output: at least 16 KiB, doubling, never far beyond the cap.
fn reserve_piece(output: &mut Vec<u8>, bytes_max: usize) {
    if output.capacity() - output.len() < 4 * 1024 {
        let piece = output.len().max(16 * 1024);
        output.reserve_exact(piece.min(bytes_max.saturating_sub(output.len()) + 4 * 1024));
    }
}

// --- gzip ---------------------------------------------------------------------------------------

const GZIP_FLAG_HEADER_CRC: u8 = 2;
const GZIP_FLAG_EXTRA: u8 = 4;
const GZIP_FLAG_NAME: u8 = 8;
const GZIP_FLAG_COMMENT: u8 = 16;

fn inflate_gzip(
    state: &mut Decompress,
    input: &[u8],
    output: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<()> {
    let header = gzip_header_bytes(input).ok_or_else(|| broken("gzip", "not a gzip header"))?;
    let mut rest = inflate_gzip_member(state, &input[header..], output, bytes_max)?;
    // As java.util.zip.GZIPInputStream: further members are read, anything else is ignored.
    while let Some(header) = gzip_header_bytes(rest) {
        rest = inflate_gzip_member(state, &rest[header..], output, bytes_max)?;
    }
    Ok(())
}

/// Bytes of the member header at the start of `input`; `None` if there is no whole one.
fn gzip_header_bytes(input: &[u8]) -> Option<usize> {
    let [0x1f, 0x8b, 8, flags, ..] = input else {
        return None;
    };
    let mut at = 10;
    if flags & GZIP_FLAG_EXTRA != 0 {
        let field = input.get(at..at + 2)?;
        at += 2 + usize::from(u16::from_le_bytes([field[0], field[1]]));
    }
    for flag in [GZIP_FLAG_NAME, GZIP_FLAG_COMMENT] {
        if flags & flag != 0 {
            at += input.get(at..)?.iter().position(|byte| *byte == 0)? + 1;
        }
    }
    if flags & GZIP_FLAG_HEADER_CRC != 0 {
        let field = input.get(at..at + 2)?;
        let crc = crc32fast::hash(&input[..at]) as u16;
        if u16::from_le_bytes([field[0], field[1]]) != crc {
            return None;
        }
        at += 2;
    }
    (at <= input.len()).then_some(at)
}

/// Inflates one member whose header is behind us and checks its trailer (CRC-32, size modulo
/// 2³²). Answers what follows it.
fn inflate_gzip_member<'a>(
    state: &mut Decompress,
    input: &'a [u8],
    output: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<&'a [u8]> {
    state.reset(false);
    let start = output.len();
    let mut rest = input;
    loop {
        reserve_piece(output, bytes_max);
        let (read_before, length_before) = (state.total_in(), output.len());
        let status = state
            .decompress_vec(rest, output, FlushDecompress::None)
            .map_err(|error| broken("gzip", error))?;
        let read = (state.total_in() - read_before) as usize;
        rest = &rest[read..];
        if output.len() > bytes_max {
            return Err(too_large("gzip", bytes_max));
        }
        if status == Status::StreamEnd {
            break;
        }
        if read == 0 && output.len() == length_before {
            return Err(broken("gzip", "it ends early"));
        }
    }
    let Some((trailer, rest)) = rest.split_first_chunk::<8>() else {
        return Err(broken("gzip", "it ends early"));
    };
    let [c0, c1, c2, c3, s0, s1, s2, s3] = *trailer;
    let member = &output[start..];
    if u32::from_le_bytes([c0, c1, c2, c3]) != crc32fast::hash(member) {
        return Err(broken("gzip", "its CRC does not match"));
    }
    if u32::from_le_bytes([s0, s1, s2, s3]) != member.len() as u32 {
        return Err(broken("gzip", "its size does not match"));
    }
    Ok(rest)
}

fn deflate_gzip(level: Option<i32>, input: &[u8]) -> Result<Vec<u8>> {
    let level = match level {
        Some(level @ 1..=9) => flate2::Compression::new(level as u32),
        _ => flate2::Compression::default(),
    };
    let output = Vec::with_capacity(input.len() / 2 + 32);
    let mut encoder = flate2::GzBuilder::new()
        .operating_system(255)
        .write(output, level);
    encoder
        .write_all(input)
        .and_then(|()| encoder.finish())
        .map_err(|error| Error::InvalidArgument(format!("gzip: {error}")))
}

// --- snappy -------------------------------------------------------------------------------------

const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_HEADER_BYTES: usize = 16;
/// Block size of xerial's `SnappyOutputStream`, bytes before compression.
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;
/// The longest run that a snappy element of two bytes can stand for is 11, of three bytes 64.
const SNAPPY_RATIO_MAX: usize = 22;

fn inflate_snappy(
    decoder: &mut snap::raw::Decoder,
    input: &[u8],
    output: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<()> {
    if input.len() < XERIAL_HEADER_BYTES || !input.starts_with(&XERIAL_MAGIC) {
        return inflate_snappy_block(decoder, input, output, bytes_max);
    }
    let mut rest = &input[XERIAL_MAGIC.len()..];
    check_xerial_versions(&mut rest)?;
    // Fewer than four bytes at the end are no block: SnappyInputStream ends there too.
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        rest = after;
        if *length == XERIAL_MAGIC[..4] && rest.starts_with(&XERIAL_MAGIC[4..]) {
            rest = &rest[4..];
            check_xerial_versions(&mut rest)?;
            continue;
        }
        let length = usize::try_from(i32::from_be_bytes(*length))
            .map_err(|_| broken("snappy", "a block has a negative length"))?;
        let Some((block, after)) = rest.split_at_checked(length) else {
            return Err(broken("snappy", "it ends early"));
        };
        inflate_snappy_block(decoder, block, output, bytes_max)?;
        rest = after;
    }
    Ok(())
}

fn check_xerial_versions(rest: &mut &[u8]) -> Result<()> {
    let Some((versions, after)) = rest.split_first_chunk::<8>() else {
        return Err(broken("snappy", "it ends early"));
    };
    let [_, _, _, _, c0, c1, c2, c3] = *versions;
    if i32::from_be_bytes([c0, c1, c2, c3]) < 1 {
        return Err(broken(
            "snappy",
            "an incompatible version of xerial's frame",
        ));
    }
    *rest = after;
    Ok(())
}

fn inflate_snappy_block(
    decoder: &mut snap::raw::Decoder,
    block: &[u8],
    output: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<()> {
    let length = snap::raw::decompress_len(block).map_err(|error| broken("snappy", error))?;
    if length > block.len().saturating_mul(SNAPPY_RATIO_MAX) {
        return Err(broken("snappy", "a block claims more than it can hold"));
    }
    let start = output.len();
    if start + length > bytes_max {
        return Err(too_large("snappy", bytes_max));
    }
    output.resize(start + length, 0);
    let written = decoder
        .decompress(block, &mut output[start..])
        .map_err(|error| broken("snappy", error))?;
    output.truncate(start + written);
    Ok(())
}

fn deflate_snappy(input: &[u8]) -> Result<Vec<u8>> {
    let mut output = Vec::with_capacity(XERIAL_HEADER_BYTES + input.len() / 2 + 64);
    output.extend_from_slice(&XERIAL_MAGIC);
    output.extend_from_slice(&1_i32.to_be_bytes());
    output.extend_from_slice(&1_i32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in input.chunks(XERIAL_BLOCK_BYTES) {
        let at = output.len();
        output.resize(at + 4 + snap::raw::max_compress_len(block.len()), 0);
        let length = encoder
            .compress(block, &mut output[at + 4..])
            .map_err(|error| Error::InvalidArgument(format!("snappy: {error}")))?;
        output[at..at + 4].copy_from_slice(&(length as u32).to_be_bytes());
        output.truncate(at + 4 + length);
    }
    Ok(output)
}

// --- lz4 ----------------------------------------------------------------------------------------

const LZ4_MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();
const LZ4_STORED: u32 = 0x8000_0000;
/// FLG as Kafka's `Lz4BlockOutputStream` writes it: version 1, independent blocks, no checksums.
const LZ4_FLAGS: u8 = 0x60;
/// BD for blocks of 64 KiB.
const LZ4_BLOCK_DESCRIPTOR: u8 = 0x40;
const LZ4_BLOCK_BYTES: usize = 64 * 1024;
/// One byte of an LZ4 block stands for at most 255 bytes of output.
const LZ4_RATIO_MAX: usize = 255;

struct Lz4Frame {
    block_checksum: bool,
    content_checksum: bool,
    block_bytes_max: usize,
    header_bytes: usize,
}

/// The subset of the frame format that Kafka's `Lz4BlockInputStream` takes: version 1, independent
/// blocks, no dictionary; content size and content checksum may be there and are not looked at.
fn inflate_lz4(
    scratch: &mut Vec<u8>,
    magic: i8,
    input: &[u8],
    output: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<()> {
    let frame = parse_lz4_header(magic, input)?;
    let mut rest = &input[frame.header_bytes..];
    let ends_early = || broken("lz4", "it ends early");
    loop {
        let (length, after) = rest.split_first_chunk::<4>().ok_or_else(ends_early)?;
        let length = u32::from_le_bytes(*length);
        let stored = length & LZ4_STORED != 0;
        let length = (length & !LZ4_STORED) as usize;
        if length == 0 {
            // What follows the end mark is not read, as in Kafka.
            return if frame.content_checksum && after.len() < 4 {
                Err(ends_early())
            } else {
                Ok(())
            };
        }
        if length > frame.block_bytes_max {
            return Err(broken("lz4", format!("a block of {length} bytes")));
        }
        let (block, after) = after.split_at_checked(length).ok_or_else(ends_early)?;
        rest = after;
        if frame.block_checksum {
            let (checksum, after) = rest.split_first_chunk::<4>().ok_or_else(ends_early)?;
            if u32::from_le_bytes(*checksum) != XxHash32::oneshot(0, block) {
                return Err(broken("lz4", "a block's checksum does not match"));
            }
            rest = after;
        }
        if stored {
            output.extend_from_slice(block);
        } else {
            inflate_lz4_block(scratch, block, frame.block_bytes_max, output)?;
        }
        if output.len() > bytes_max {
            return Err(too_large("lz4", bytes_max));
        }
    }
}

fn inflate_lz4_block(
    scratch: &mut Vec<u8>,
    block: &[u8],
    block_bytes_max: usize,
    output: &mut Vec<u8>,
) -> Result<()> {
    let room = block_bytes_max.min(block.len() * LZ4_RATIO_MAX + 16);
    if scratch.len() < room {
        scratch.resize(room, 0);
    }
    let written = lz4_flex::block::decompress_into(block, &mut scratch[..room])
        .map_err(|error| broken("lz4", error))?;
    output.extend_from_slice(&scratch[..written]);
    Ok(())
}

fn parse_lz4_header(magic: i8, input: &[u8]) -> Result<Lz4Frame> {
    let (Some(start), Some(&flags), Some(&descriptor)) =
        (input.get(..4), input.get(4), input.get(5))
    else {
        return Err(broken("lz4", "it ends early"));
    };
    if *start != LZ4_MAGIC {
        return Err(broken("lz4", "not an LZ4 frame"));
    }
    if flags >> 6 != 1 || flags & 0x20 == 0 || flags & 0x03 != 0 {
        return Err(broken(
            "lz4",
            format!("frame flags {flags:#04x} are not supported"),
        ));
    }
    let block_size_id = u32::from(descriptor >> 4);
    if descriptor & 0x8f != 0 || block_size_id < 4 {
        return Err(broken("lz4", format!("block descriptor {descriptor:#04x}")));
    }
    let checksum_at = if flags & 0x08 != 0 { 14 } else { 6 };
    let Some(&checksum) = input.get(checksum_at) else {
        return Err(broken("lz4", "it ends early"));
    };
    // Old clients hashed the magic along with the descriptor (KAFKA-3160): in magic 0 Kafka looks
    // away; since magic 1 the checksum has to be right.
    if magic > 0 && checksum != lz4_header_checksum(&input[4..checksum_at]) {
        return Err(broken(
            "lz4",
            "the frame descriptor's checksum does not match",
        ));
    }
    Ok(Lz4Frame {
        block_checksum: flags & 0x10 != 0,
        content_checksum: flags & 0x04 != 0,
        block_bytes_max: 1 << (2 * block_size_id + 8),
        header_bytes: checksum_at + 1,
    })
}

fn lz4_header_checksum(descriptor: &[u8]) -> u8 {
    (XxHash32::oneshot(0, descriptor) >> 8) as u8
}

fn deflate_lz4(input: &[u8]) -> Result<Vec<u8>> {
    let mut output = Vec::with_capacity(input.len() / 2 + 64);
    output.extend_from_slice(&LZ4_MAGIC);
    let descriptor = [LZ4_FLAGS, LZ4_BLOCK_DESCRIPTOR];
    output.extend_from_slice(&descriptor);
    output.push(lz4_header_checksum(&descriptor));
    for block in input.chunks(LZ4_BLOCK_BYTES) {
        let at = output.len();
        let room = lz4_flex::block::get_maximum_output_size(block.len());
        output.resize(at + 4 + room, 0);
        let length = lz4_flex::block::compress_into(block, &mut output[at + 4..])
            .map_err(|error| Error::InvalidArgument(format!("lz4: {error}")))?;
        if length < block.len() {
            output[at..at + 4].copy_from_slice(&(length as u32).to_le_bytes());
            output.truncate(at + 4 + length);
        } else {
            output.truncate(at);
            output.extend_from_slice(&(block.len() as u32 | LZ4_STORED).to_le_bytes());
            output.extend_from_slice(block);
        }
    }
    output.extend_from_slice(&0_u32.to_le_bytes());
    Ok(output)
}

// --- zstd ---------------------------------------------------------------------------------------

fn inflate_zstd(
    context: &mut DCtx<'static>,
    input: &[u8],
    output: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<()> {
    let mut source = InBuffer::around(input);
    loop {
        reserve_piece(output, bytes_max);
        let (read, length) = (source.pos(), output.len());
        let mut target = OutBuffer::around_pos(output, length);
        let hint = context
            .decompress_stream(&mut target, &mut source)
            .map_err(broken_zstd)?;
        if output.len() > bytes_max {
            return Err(too_large("zstd", bytes_max));
        }
        let consumed = source.pos() == input.len();
        if hint == 0 && consumed {
            return Ok(());
        }
        if consumed && output.len() < output.capacity()
            || read == source.pos() && length == output.len()
        {
            return Err(broken("zstd", "it ends early"));
        }
    }
}

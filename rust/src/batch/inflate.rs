//! Compressed records, inflated piece by piece: whoever looks at the records one after the
//! other needs room for a piece, whatever a batch inflates to. The framing of each codec
//! stands in `compression.rs`.
//!
//! ```text
//! codec   a piece is                          needed besides
//! gzip    what there is room for, 16 KiB on   32 KiB
//! snappy  a block: 32 KiB of xerial's, or     -
//!         all of a stream without a frame,
//!         at most 22 times its bytes
//! lz4     a block, at most 4 MiB              a block
//! zstd    what there is room for, 16 KiB on   the frame's window: 8 MiB up to level 19, 128 MiB above,
//!                                             as far as it has been filled
//! ```
//!
//! Lengths inside these streams are claims of whoever wrote them. Nothing is allocated for a claim
//! that the bytes at hand cannot honour, and output stops at [`inflated_bytes_max`].

use flate2::{Decompress, FlushDecompress, Status};
use twox_hash::XxHash32;
use zstd::zstd_safe::{DCtx, InBuffer, OutBuffer, ResetDirective};

use super::compression::{
    Codec, LZ4_MAGIC, LZ4_STORED, XERIAL_HEADER_BYTES, XERIAL_MAGIC, lz4_header_checksum,
};
use crate::error::{Error, Result};
use crate::limits::{
    BATCH_BYTES_MAX, INFLATION_RATIO_FREE_BYTES, INFLATION_RATIO_MAX, SCRATCH_BYTES_KEPT_MAX,
};

/// Bytes that a stream of `compressed_bytes` may inflate to before it is refused as a bomb.
pub fn inflated_bytes_max(compressed_bytes: usize) -> usize {
    compressed_bytes
        .saturating_mul(INFLATION_RATIO_MAX)
        .clamp(INFLATION_RATIO_FREE_BYTES, BATCH_BYTES_MAX)
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
pub struct Inflater {
    gzip: Option<Decompress>,
    zstd: Option<DCtx<'static>>,
    snappy: snap::raw::Decoder,
    lz4_block: Vec<u8>,
    /// Bytes that may still be inflated, by all streams together.
    pub left_bytes: usize,
    /// Bytes that one stream may inflate to, whatever its own size allows.
    pub stream_bytes_max: usize,
}

impl Default for Inflater {
    fn default() -> Inflater {
        Inflater {
            gzip: None,
            zstd: None,
            snappy: snap::raw::Decoder::new(),
            lz4_block: Vec::new(),
            left_bytes: usize::MAX,
            stream_bytes_max: usize::MAX,
        }
    }
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
        let mut inflation = self.begin(codec, magic, input)?;
        let inflated = inflation.fill(self, output, usize::MAX);
        self.give_back();
        inflated.map(drop)
    }

    /// Memory that it holds, in bytes, beside a few tens of KiB.
    pub fn held_bytes(&self) -> usize {
        let zstd = self.zstd.as_ref().map_or(0, |context| context.sizeof());
        self.lz4_block.capacity() + zstd
    }

    /// Between two streams: lets go of what a large one has needed.
    pub fn give_back(&mut self) {
        self.lz4_block.shrink_to(SCRATCH_BYTES_KEPT_MAX);
        // A frame may ask for a window of 128 MiB; such a context is not kept.
        let is_large = |context: &mut DCtx<'static>| context.sizeof() > SCRATCH_BYTES_KEPT_MAX;
        drop(self.zstd.take_if(is_large));
    }

    /// Begins with a stream of which nothing is inflated yet. Errors: `InvalidRecord` for a
    /// stream whose head is broken.
    pub fn begin<'a>(&mut self, codec: Codec, magic: i8, input: &'a [u8]) -> Result<Inflation<'a>> {
        let stream = match codec {
            Codec::None => Stream::Plain(input),
            Codec::Gzip => {
                let state = self.gzip.get_or_insert_with(|| Decompress::new(false));
                let header = gzip_header_bytes(input);
                let header = header.ok_or_else(|| broken("gzip", "not a gzip header"))?;
                state.reset(false);
                Stream::Gzip(Member::new(&input[header..]))
            }
            Codec::Snappy => Stream::Snappy(Blocks::new(input)?),
            Codec::Lz4 => {
                let frame = parse_lz4_header(magic, input)?;
                let rest = &input[frame.header_bytes..];
                Stream::Lz4(frame, rest)
            }
            Codec::Zstd if magic < 2 => {
                return Err(Error::InvalidRecord(format!(
                    "zstd is not allowed in a message of magic {magic}"
                )));
            }
            Codec::Zstd => {
                let context = self.zstd.get_or_insert_with(DCtx::create);
                let reset = context.reset(ResetDirective::SessionOnly);
                reset.map_err(broken_zstd)?;
                Stream::Zstd { input, at: 0 }
            }
        };
        Ok(Inflation {
            stream,
            bytes_max: inflated_bytes_max(input.len()).min(self.stream_bytes_max),
            inflated_bytes: 0,
            is_over: false,
        })
    }
}

/// One stream on its way.
pub struct Inflation<'a> {
    stream: Stream<'a>,
    bytes_max: usize,
    /// So far.
    inflated_bytes: usize,
    is_over: bool,
}

/// The rest of the input.
enum Stream<'a> {
    Plain(&'a [u8]),
    Gzip(Member<'a>),
    Snappy(Blocks<'a>),
    Lz4(Lz4Frame, &'a [u8]),
    Zstd { input: &'a [u8], at: usize },
}

/// A stream on its way whose input is elsewhere meanwhile.
pub struct Paused {
    stream: Stream<'static>,
    rest_bytes: usize,
    bytes_max: usize,
    inflated_bytes: usize,
}

impl Paused {
    /// Goes on with the input that the stream was begun with.
    pub fn resume(self, input: &[u8]) -> Inflation<'_> {
        let at = input.len().saturating_sub(self.rest_bytes);
        Inflation {
            stream: self.stream.with_rest(input.get(at..).unwrap_or_default()),
            bytes_max: self.bytes_max,
            inflated_bytes: self.inflated_bytes,
            is_over: false,
        }
    }
}

impl Stream<'_> {
    fn rest_bytes(&self) -> usize {
        match self {
            Stream::Plain(rest) | Stream::Lz4(_, rest) => rest.len(),
            Stream::Gzip(member) => member.rest.len(),
            Stream::Snappy(blocks) => blocks.rest.len(),
            Stream::Zstd { input, at } => input.len() - at,
        }
    }

    /// The same place in the same input, which may have moved.
    fn with_rest(self, rest: &[u8]) -> Stream<'_> {
        match self {
            Stream::Plain(_) => Stream::Plain(rest),
            Stream::Lz4(frame, _) => Stream::Lz4(frame, rest),
            Stream::Gzip(member) => Stream::Gzip(Member { rest, ..member }),
            Stream::Snappy(blocks) => Stream::Snappy(Blocks { rest, ..blocks }),
            Stream::Zstd { .. } => Stream::Zstd { input: rest, at: 0 },
        }
    }
}

impl Inflation<'_> {
    /// Lets go of the input. `None`: the stream is over.
    pub fn pause(self) -> Option<Paused> {
        let paused = Paused {
            rest_bytes: self.stream.rest_bytes(),
            stream: self.stream.with_rest(&[]),
            bytes_max: self.bytes_max,
            inflated_bytes: self.inflated_bytes,
        };
        Some(paused).filter(|_| !self.is_over)
    }

    /// Appends to `output` until it holds `wanted_bytes`, or a piece more, or the stream has ended.
    /// Returns whether it has. `inflater` is the one that it was begun with, which has begun no
    /// other since. Errors: those of [`decompress`]; `TooCostly` where `inflater` has no
    /// bytes left.
    pub fn fill(
        &mut self,
        inflater: &mut Inflater,
        output: &mut Vec<u8>,
        wanted_bytes: usize,
    ) -> Result<bool> {
        while !self.is_over && output.len() < wanted_bytes {
            if inflater.left_bytes == 0 {
                return Err(Error::TooCostly);
            }
            let before = output.len();
            let room = self.bytes_max - self.inflated_bytes;
            self.is_over = self.inflate_piece(inflater, output, room)?;
            let inflated_bytes = output.len() - before;
            self.inflated_bytes += inflated_bytes;
            inflater.left_bytes = inflater.left_bytes.saturating_sub(inflated_bytes);
        }
        Ok(self.is_over)
    }

    /// One piece, of at most `room` bytes. Returns whether it was the last.
    fn inflate_piece(
        &mut self,
        inflater: &mut Inflater,
        output: &mut Vec<u8>,
        room: usize,
    ) -> Result<bool> {
        let start = output.len();
        let (is_last, codec) = match &mut self.stream {
            Stream::Plain(input) => {
                output.extend_from_slice(input);
                return Ok(true);
            }
            Stream::Gzip(member) => {
                let state = inflater.gzip.get_or_insert_with(|| Decompress::new(false));
                reserve_piece(output, room);
                (member.inflate(state, output)?, "gzip")
            }
            Stream::Snappy(blocks) => {
                let decoder = &mut inflater.snappy;
                let room = (room, self.bytes_max);
                (blocks.inflate_next(decoder, output, room)?, "snappy")
            }
            Stream::Lz4(frame, rest) => {
                let block = &mut inflater.lz4_block;
                (inflate_lz4_next(frame, rest, block, output)?, "lz4")
            }
            Stream::Zstd { input, at } => {
                let context = inflater.zstd.get_or_insert_with(DCtx::create);
                reserve_piece(output, room);
                (inflate_zstd(context, input, at, output)?, "zstd")
            }
        };
        if output.len() - start > room {
            return Err(too_large(codec, self.bytes_max));
        }
        Ok(is_last)
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

/// Makes room for the next piece of output: at least 16 KiB, doubling, never
/// far beyond what may come.
fn reserve_piece(output: &mut Vec<u8>, room: usize) {
    if output.capacity() - output.len() < 4 * 1024 {
        let piece = output.len().max(16 * 1024);
        output.reserve_exact(piece.min(room.saturating_add(4 * 1024)));
    }
}

// --- gzip ---------------------------------------------------------------------------------------

const GZIP_FLAG_HEADER_CRC: u8 = 2;
const GZIP_FLAG_EXTRA: u8 = 4;
const GZIP_FLAG_NAME: u8 = 8;
const GZIP_FLAG_COMMENT: u8 = 16;

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

/// A member whose header is behind us, and what follows it.
struct Member<'a> {
    rest: &'a [u8],
    crc: crc32fast::Hasher,
    /// Modulo 2³², as the trailer counts.
    size_bytes: u32,
}

impl<'a> Member<'a> {
    fn new(rest: &'a [u8]) -> Member<'a> {
        Member {
            rest,
            crc: crc32fast::Hasher::new(),
            size_bytes: 0,
        }
    }

    /// Inflates what there is room for, and goes on to the next member behind the last of this one.
    fn inflate(&mut self, state: &mut Decompress, output: &mut Vec<u8>) -> Result<bool> {
        let (read_before, length_before) = (state.total_in(), output.len());
        let status = state
            .decompress_vec(self.rest, output, FlushDecompress::None)
            .map_err(|error| broken("gzip", error))?;
        let read = (state.total_in() - read_before) as usize;
        self.rest = &self.rest[read..];
        let inflated = &output[length_before..];
        self.crc.update(inflated);
        self.size_bytes = self.size_bytes.wrapping_add(inflated.len() as u32);
        if status == Status::StreamEnd {
            return self.end(state);
        }
        if read == 0 && inflated.is_empty() {
            return Err(broken("gzip", "it ends early"));
        }
        Ok(false)
    }

    /// Checks the trailer (CRC-32, size). As java.util.zip.GZIPInputStream: further members are
    /// read, anything else is ignored.
    fn end(&mut self, state: &mut Decompress) -> Result<bool> {
        let Some((trailer, rest)) = self.rest.split_first_chunk::<8>() else {
            return Err(broken("gzip", "it ends early"));
        };
        let [c0, c1, c2, c3, s0, s1, s2, s3] = *trailer;
        let crc = std::mem::take(&mut self.crc).finalize();
        if u32::from_le_bytes([c0, c1, c2, c3]) != crc {
            return Err(broken("gzip", "its CRC does not match"));
        }
        if u32::from_le_bytes([s0, s1, s2, s3]) != self.size_bytes {
            return Err(broken("gzip", "its size does not match"));
        }
        let Some(header) = gzip_header_bytes(rest) else {
            return Ok(true);
        };
        state.reset(false);
        *self = Member::new(&rest[header..]);
        Ok(false)
    }
}

// --- snappy -------------------------------------------------------------------------------------

/// The longest run that a snappy element of two bytes can stand for is 11, of three bytes 64.
const SNAPPY_RATIO_MAX: usize = 22;

/// The rest of a snappy stream.
struct Blocks<'a> {
    rest: &'a [u8],
    /// In xerial's frame; else one block without.
    is_framed: bool,
}

impl<'a> Blocks<'a> {
    fn new(input: &'a [u8]) -> Result<Blocks<'a>> {
        let is_framed = input.len() >= XERIAL_HEADER_BYTES && input.starts_with(&XERIAL_MAGIC);
        let mut rest = input;
        if is_framed {
            rest = &rest[XERIAL_MAGIC.len()..];
            check_xerial_versions(&mut rest)?;
        }
        Ok(Blocks { rest, is_framed })
    }

    fn inflate_next(
        &mut self,
        decoder: &mut snap::raw::Decoder,
        output: &mut Vec<u8>,
        room: (usize, usize),
    ) -> Result<bool> {
        if !self.is_framed {
            inflate_snappy_block(decoder, self.rest, output, room)?;
            return Ok(true);
        }
        // Fewer than four bytes at the end are no block: SnappyInputStream ends there too.
        let Some((length, after)) = self.rest.split_first_chunk::<4>() else {
            return Ok(true);
        };
        self.rest = after;
        if *length == XERIAL_MAGIC[..4] && after.starts_with(&XERIAL_MAGIC[4..]) {
            self.rest = &after[4..];
            check_xerial_versions(&mut self.rest)?;
            return Ok(false);
        }
        let length = usize::try_from(i32::from_be_bytes(*length))
            .map_err(|_| broken("snappy", "a block has a negative length"))?;
        let Some((block, after)) = after.split_at_checked(length) else {
            return Err(broken("snappy", "it ends early"));
        };
        self.rest = after;
        inflate_snappy_block(decoder, block, output, room)?;
        Ok(false)
    }
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
    (room, bytes_max): (usize, usize),
) -> Result<()> {
    let length = snap::raw::decompress_len(block).map_err(|error| broken("snappy", error))?;
    if length > block.len().saturating_mul(SNAPPY_RATIO_MAX) {
        return Err(broken("snappy", "a block claims more than it can hold"));
    }
    let start = output.len();
    if length > room {
        return Err(too_large("snappy", bytes_max));
    }
    output.resize(start + length, 0);
    let written = decoder
        .decompress(block, &mut output[start..])
        .map_err(|error| broken("snappy", error))?;
    output.truncate(start + written);
    Ok(())
}

// --- lz4 ----------------------------------------------------------------------------------------

/// One byte of an LZ4 block stands for at most 255 bytes of output.
const LZ4_RATIO_MAX: usize = 255;

struct Lz4Frame {
    block_checksum: bool,
    content_checksum: bool,
    block_bytes_max: usize,
    header_bytes: usize,
}

/// The next block of the subset of the frame format that Kafka's `Lz4BlockInputStream` takes:
/// version 1, independent blocks, no dictionary; content size and content checksum may be
/// there and are not looked at.
fn inflate_lz4_next(
    frame: &Lz4Frame,
    rest: &mut &[u8],
    scratch: &mut Vec<u8>,
    output: &mut Vec<u8>,
) -> Result<bool> {
    let ends_early = || broken("lz4", "it ends early");
    let (length, after) = rest.split_first_chunk::<4>().ok_or_else(ends_early)?;
    let length = u32::from_le_bytes(*length);
    let stored = length & LZ4_STORED != 0;
    let length = (length & !LZ4_STORED) as usize;
    if length == 0 {
        // What follows the end mark is not read, as in Kafka.
        return if frame.content_checksum && after.len() < 4 {
            Err(ends_early())
        } else {
            Ok(true)
        };
    }
    if length > frame.block_bytes_max {
        return Err(broken("lz4", format!("a block of {length} bytes")));
    }
    let (block, after) = after.split_at_checked(length).ok_or_else(ends_early)?;
    *rest = after;
    if frame.block_checksum {
        let (checksum, after) = rest.split_first_chunk::<4>().ok_or_else(ends_early)?;
        if u32::from_le_bytes(*checksum) != XxHash32::oneshot(0, block) {
            return Err(broken("lz4", "a block's checksum does not match"));
        }
        *rest = after;
    }
    if stored {
        output.extend_from_slice(block);
    } else {
        inflate_lz4_block(scratch, block, frame.block_bytes_max, output)?;
    }
    Ok(false)
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

// --- zstd ---------------------------------------------------------------------------------------

fn inflate_zstd(
    context: &mut DCtx<'static>,
    input: &[u8],
    at: &mut usize,
    output: &mut Vec<u8>,
) -> Result<bool> {
    let mut source = InBuffer::around(input);
    source.set_pos(*at);
    let length = output.len();
    let mut target = OutBuffer::around_pos(output, length);
    let hint = context
        .decompress_stream(&mut target, &mut source)
        .map_err(broken_zstd)?;
    let consumed = source.pos() == input.len();
    if hint == 0 && consumed {
        return Ok(true);
    }
    if consumed && output.len() < output.capacity() || *at == source.pos() && length == output.len()
    {
        return Err(broken("zstd", "it ends early"));
    }
    *at = source.pos();
    Ok(false)
}

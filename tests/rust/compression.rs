//! The four codecs: round trips, foreign framings, broken streams, bombs.

use kafkalite::batch::compression::{Codec, compress};
use kafkalite::batch::inflate::{decompress, inflated_bytes_max};
use kafkalite::error::Error;
use kafkalite::limits::INFLATION_RATIO_FREE_BYTES;
use proptest::prelude::*;
use twox_hash::XxHash32;

const CODECS: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

fn inflate(codec: Codec, magic: i8, input: &[u8]) -> Result<Vec<u8>, Error> {
    let mut output = b"what was here before".to_vec();
    decompress(codec, magic, input, &mut output).map(|()| output)
}

/// Text that compresses, of any length, the same for the same seed.
fn text(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|index| b"the quick brown fox "[(index * 7 + index / 64) % 20])
        .collect()
}

/// Bytes that do not compress.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

#[test]
fn what_is_compressed_inflates_to_the_same_bytes() {
    for codec in CODECS {
        for length in [0, 1, 100, 32 << 10, (32 << 10) + 1, 64 << 10, 300_000] {
            for input in [text(length), noise(length), vec![0; length]] {
                let compressed = compress(codec, None, &input).expect("compresses");
                let inflated = inflate(codec, 2, &compressed).expect("inflates");
                assert!(inflated == input, "{codec:?} {length}");
            }
        }
    }
}

#[test]
fn every_level_that_kafka_takes_works_and_no_other() {
    let input = text(5_000);
    for (codec, good, bad) in [
        (Codec::Gzip, vec![-1, 1, 6, 9], vec![0, 10, -2]),
        (Codec::Lz4, vec![1, 9, 17], vec![0, 18, -1]),
        (
            Codec::Zstd,
            vec![-131_072, -5, 1, 3, 22],
            vec![23, -131_073],
        ),
        (Codec::Snappy, vec![], vec![1]),
    ] {
        for level in good {
            let compressed = compress(codec, Some(level), &input).expect("a level of Kafka's");
            assert_eq!(inflate(codec, 2, &compressed).expect("inflates"), input);
        }
        for level in bad {
            let refused = compress(codec, Some(level), &input);
            assert!(
                matches!(refused, Err(Error::InvalidArgument(_))),
                "{codec:?} {level}"
            );
        }
    }
}

#[test]
fn a_stream_cut_at_any_byte_is_refused() {
    let input = text(100_000);
    for codec in CODECS {
        let stream = compress(codec, None, &input).expect("compresses");
        for length in (0..stream.len()).step_by(if stream.len() > 4_000 { 37 } else { 1 }) {
            match inflate(codec, 2, &stream[..length]) {
                Err(Error::InvalidRecord(_)) => {}
                // A raw snappy block or an empty zstd stream has no end mark to miss; what
                // comes out is less than the whole and so fails as records.
                Ok(output) => assert!(output.len() < input.len(), "{codec:?} {length}"),
                Err(other) => panic!("{codec:?} {length}: {other}"),
            }
        }
    }
}

#[test]
fn snappy_is_written_in_xerials_frame_and_read_without_one() {
    let input = text(70_000);
    let framed = compress(Codec::Snappy, None, &input).expect("compresses");
    assert_eq!(&framed[..16], b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01");
    let raw = snap::raw::Encoder::new()
        .compress_vec(&input)
        .expect("compresses");
    assert_eq!(inflate(Codec::Snappy, 2, &raw).expect("a raw block"), input);
    let twice: Vec<u8> = [framed.clone(), framed].concat();
    let inflated = inflate(Codec::Snappy, 2, &twice).expect("two streams in a row");
    assert_eq!(inflated, [input.clone(), input].concat());
}

#[test]
fn a_snappy_block_that_claims_gigabytes_is_refused_before_anything_is_allocated() {
    let claim = [0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, 0x41];
    assert!(matches!(
        inflate(Codec::Snappy, 2, &claim),
        Err(Error::InvalidRecord(_))
    ));
    let mut framed = compress(Codec::Snappy, None, b"").expect("compresses");
    framed.extend_from_slice(&7_i32.to_be_bytes());
    framed.extend_from_slice(&claim);
    assert!(matches!(
        inflate(Codec::Snappy, 2, &framed),
        Err(Error::InvalidRecord(_))
    ));
    framed[16..20].copy_from_slice(&(-1_i32).to_be_bytes());
    assert!(matches!(
        inflate(Codec::Snappy, 2, &framed),
        Err(Error::InvalidRecord(_))
    ));
}

#[test]
fn gzip_members_in_a_row_are_one_stream_and_garbage_behind_them_is_ignored() {
    let one = compress(Codec::Gzip, None, b"one ").expect("compresses");
    let two = compress(Codec::Gzip, Some(9), b"two").expect("compresses");
    let stream = [one.clone(), two, b"\0\0garbage".to_vec()].concat();
    assert_eq!(
        inflate(Codec::Gzip, 2, &stream).expect("inflates"),
        b"one two"
    );
    let mut wrong_crc = one.clone();
    let crc_at = one.len() - 8;
    wrong_crc[crc_at] ^= 1;
    assert!(matches!(
        inflate(Codec::Gzip, 2, &wrong_crc),
        Err(Error::InvalidRecord(_))
    ));
}

#[test]
fn a_gzip_header_may_carry_a_name_a_comment_extra_bytes_and_a_checksum() {
    let plain = compress(Codec::Gzip, None, b"records").expect("compresses");
    let mut header = vec![0x1f, 0x8b, 8, 2 | 4 | 8 | 16, 0, 0, 0, 0, 0, 3];
    header.extend_from_slice(b"\x03\0abcname\0comment\0");
    let crc = crc32fast::hash(&header) as u16;
    header.extend_from_slice(&crc.to_le_bytes());
    header.extend_from_slice(&plain[10..]);
    assert_eq!(
        inflate(Codec::Gzip, 2, &header).expect("inflates"),
        b"records"
    );
    let crc_at = 10 + 5 + 5 + 8;
    header[crc_at] ^= 1;
    assert!(inflate(Codec::Gzip, 2, &header).is_err());
}

/// Old Java clients hashed the frame's magic along with its descriptor (KAFKA-3160), and only in
/// magic 0 does Kafka look away.
#[test]
fn lz4_with_the_wrong_header_checksum_is_read_in_magic_0_only() {
    let mut stream = compress(Codec::Lz4, None, b"an old message").expect("compresses");
    let right = stream[6];
    stream[6] = (XxHash32::oneshot(0, &stream[..6]) >> 8) as u8;
    assert_ne!(stream[6], right, "the two checksums differ");
    assert_eq!(
        inflate(Codec::Lz4, 0, &stream).expect("inflates"),
        b"an old message"
    );
    for magic in [1, 2] {
        assert!(matches!(
            inflate(Codec::Lz4, magic, &stream),
            Err(Error::InvalidRecord(_))
        ));
    }
}

/// Frames that other clients make: block checksums, a content size, larger blocks, stored blocks.
#[test]
fn lz4_frames_of_other_writers_are_read() {
    let stored = |flags: u8, descriptor: u8, size: &[u8], tail: &[u8]| {
        let header = [&[flags, descriptor][..], size].concat();
        let mut stream = 0x184D_2204_u32.to_le_bytes().to_vec();
        stream.extend_from_slice(&header);
        stream.push((XxHash32::oneshot(0, &header) >> 8) as u8);
        stream.extend_from_slice(&(0x8000_0000_u32 | 5).to_le_bytes());
        stream.extend_from_slice(b"block");
        stream.extend_from_slice(tail);
        stream
    };
    let end = 0_u32.to_le_bytes();
    let checksum = XxHash32::oneshot(0, b"block").to_le_bytes();
    for stream in [
        stored(0x60, 0x40, &[], &end),
        stored(0x60, 0x70, &[], &end),
        stored(0x68, 0x40, &5_u64.to_le_bytes(), &end),
        stored(0x70, 0x40, &[], &[checksum, end].concat()),
        stored(0x64, 0x40, &[], &[end, [1, 2, 3, 4]].concat()),
        stored(0x60, 0x40, &[], &[&end[..], b"what follows"].concat()),
    ] {
        assert_eq!(inflate(Codec::Lz4, 2, &stream).expect("inflates"), b"block");
    }
    for (what, stream) in [
        (
            "a wrong block checksum",
            stored(0x70, 0x40, &[], &[[0; 4], end].concat()),
        ),
        ("no end mark", stored(0x60, 0x40, &[], &[])),
        ("no content checksum", stored(0x64, 0x40, &[], &end)),
        ("dependent blocks", stored(0x40, 0x40, &[], &end)),
        ("a dictionary", stored(0x61, 0x40, &[], &end)),
        ("version 2", stored(0xa0, 0x40, &[], &end)),
        ("blocks of 16 KiB", stored(0x60, 0x30, &[], &end)),
        ("reserved bits", stored(0x60, 0x41, &[], &end)),
    ] {
        assert!(
            matches!(
                inflate(Codec::Lz4, 2, &stream),
                Err(Error::InvalidRecord(_))
            ),
            "{what}"
        );
    }
}

#[test]
fn zstd_frames_in_a_row_are_one_stream_and_no_message_before_magic_2_may_hold_one() {
    let one = compress(Codec::Zstd, None, b"one ").expect("compresses");
    let two = compress(Codec::Zstd, Some(-5), b"two").expect("compresses");
    let stream = [one, two].concat();
    assert_eq!(
        inflate(Codec::Zstd, 2, &stream).expect("inflates"),
        b"one two"
    );
    for magic in [0, 1] {
        assert!(matches!(
            inflate(Codec::Zstd, magic, &stream),
            Err(Error::InvalidRecord(_))
        ));
    }
}

#[test]
fn a_bomb_is_refused_at_the_cap_whatever_the_codec() {
    let zeros = vec![0; 64 << 20];
    let bomb = compress(Codec::Zstd, Some(19), &zeros).expect("compresses");
    assert!(
        inflated_bytes_max(bomb.len()) < zeros.len(),
        "{} bytes",
        bomb.len()
    );
    let refused = inflate(Codec::Zstd, 2, &bomb);
    assert!(matches!(refused, Err(Error::InvalidRecord(_))));
    // The other codecs cannot reach the ratio; what they can make is let through.
    for codec in [Codec::Gzip, Codec::Lz4, Codec::Snappy] {
        let stream = compress(codec, None, &zeros).expect("compresses");
        assert!(inflated_bytes_max(stream.len()) >= zeros.len());
        assert!(inflate(codec, 2, &stream).expect("inflates") == zeros);
    }
    assert_eq!(inflated_bytes_max(0), INFLATION_RATIO_FREE_BYTES);
}

proptest! {
    #[test]
    fn any_bytes_survive_every_codec(input in proptest::collection::vec(any::<u8>(), 0..5_000)) {
        for codec in CODECS {
            let compressed = compress(codec, None, &input).expect("compresses");
            prop_assert_eq!(&inflate(codec, 2, &compressed).expect("inflates"), &input);
        }
    }

    #[test]
    fn any_bytes_are_inflated_or_refused_without_a_panic(
        input in proptest::collection::vec(any::<u8>(), 0..500), codec in 0_usize..4, magic in 0_i8..3,
    ) {
        match inflate(CODECS[codec], magic, &input) {
            Ok(output) => prop_assert!(output.len() <= inflated_bytes_max(input.len())),
            Err(error) => prop_assert!(matches!(error, Error::InvalidRecord(_))),
        }
    }
}

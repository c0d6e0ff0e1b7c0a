//! Which partition a key belongs to: Kafka's default, so that the same key goes to the same
//! partition whoever produces it (`BuiltInPartitioner.partitionForKey`).

/// MurmurHash2, 32 bits, with the seed of Kafka's Java client (`Utils.murmur2`).
pub fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    let mut hash = SEED ^ bytes.len() as u32;
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        k = k.wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    if !tail.is_empty() {
        for (at, byte) in tail.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> 15
}

/// The partition of `key` among `count`, which must not be 0.
pub fn partition_for_key(key: &[u8], count: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % count
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are those that Kafka's `UtilsTest.testMurmur2` asserts.
    #[test]
    fn hashes_are_those_of_the_java_client() {
        let known: [(&str, i32); 7] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
            ("", 275_646_681),
        ];
        for (text, hash) in known {
            assert_eq!(murmur2(text.as_bytes()) as i32, hash, "{text}");
        }
    }
}

//! Records without meaning, for `kafkalite perf produce`: made as fast as a core can write them, so
//! that what is measured is the broker.

use crate::batch::build::BatchBuilder;
use crate::error::Result;

/// The kind of the values.
#[derive(Clone, Debug)]
pub enum Payload {
    /// So many random letters, A to Z, as kafka-producer-perf-test makes them.
    Random { size_bytes: usize },
    /// One of these, at random. Must not be empty.
    Listed(Vec<Vec<u8>>),
    /// The number of the record, in decimal.
    Monotonic,
}

/// An endless sequence of records, the same each time.
#[derive(Debug)]
pub struct LoadRecords {
    payload: Payload,
    random: u64,
    records_count: u64,
    scratch: Vec<u8>,
}

impl LoadRecords {
    pub fn new(payload: Payload) -> LoadRecords {
        LoadRecords {
            payload,
            random: 0x9e37_79b9_7f4a_7c15,
            records_count: 0,
            scratch: Vec::new(),
        }
    }

    /// Adds the next records, at least one: up to `records_max` of them, or until the batch has
    /// `batch_bytes`. Returns their number and the bytes of their values.
    pub fn fill(
        &mut self,
        builder: &mut BatchBuilder,
        timestamp: i64,
        records_max: usize,
        batch_bytes: usize,
    ) -> Result<(usize, usize)> {
        // A record has at most so many bytes beside its value.
        const OVERHEAD: usize = 21;
        let (mut count, mut value_bytes) = (0, 0);
        loop {
            self.next_value();
            builder.append(timestamp, None, Some(&self.scratch), &[])?;
            count += 1;
            value_bytes += self.scratch.len();
            let next_bytes = builder.size_bytes() + self.scratch.len() + OVERHEAD;
            if count >= records_max || next_bytes > batch_bytes {
                return Ok((count, value_bytes));
            }
        }
    }

    fn next_value(&mut self) {
        self.scratch.clear();
        match &self.payload {
            Payload::Random { size_bytes } => {
                self.scratch.resize(*size_bytes, 0);
                for chunk in self.scratch.chunks_mut(8) {
                    let letters = next_random(&mut self.random).to_le_bytes();
                    for (to, from) in chunk.iter_mut().zip(letters) {
                        *to = b'A' + ((u16::from(from) * 26) >> 8) as u8;
                    }
                }
            }
            Payload::Listed(values) => {
                let index = next_random(&mut self.random) as usize % values.len().max(1);
                if let Some(value) = values.get(index) {
                    self.scratch.extend_from_slice(value);
                }
            }
            Payload::Monotonic => {
                let number = self.records_count.to_string();
                self.scratch.extend_from_slice(number.as_bytes());
            }
        }
        self.records_count += 1;
    }
}

/// xorshift64*.
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::RecordReader;
    use crate::batch::build::BatchOptions;

    fn values(payload: Payload, records_max: usize, batch_bytes: usize) -> Vec<Vec<u8>> {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        let mut load = LoadRecords::new(payload);
        let (count, bytes) = load
            .fill(&mut builder, 1, records_max, batch_bytes)
            .expect("they fit");
        let batch = builder.finish().expect("it is built");
        let mut reader = RecordReader::new();
        let records = reader.read(&batch).expect("a batch");
        let values: Vec<Vec<u8>> = records
            .map(|record| record.expect("a record").value.expect("a value").to_vec())
            .collect();
        assert_eq!(values.len(), count);
        assert_eq!(values.iter().map(Vec::len).sum::<usize>(), bytes);
        values
    }

    #[test]
    fn random_values_are_letters_of_the_size_and_differ() {
        let values = values(Payload::Random { size_bytes: 100 }, 50, 1 << 20);
        assert_eq!(values.len(), 50);
        assert!(values.iter().all(|value| value.len() == 100));
        assert!(values.iter().flatten().all(u8::is_ascii_uppercase));
        assert_ne!(values[0], values[1]);
    }

    #[test]
    fn a_batch_keeps_to_its_bytes_but_has_one_record_at_least() {
        let full = values(Payload::Random { size_bytes: 100 }, usize::MAX, 16_384);
        assert!((140..160).contains(&full.len()), "{}", full.len());
        assert_eq!(values(Payload::Random { size_bytes: 900 }, 9, 100).len(), 1);
    }

    #[test]
    fn monotonic_values_count_up() {
        let values = values(Payload::Monotonic, 3, 1 << 20);
        assert_eq!(values, [b"0".to_vec(), b"1".to_vec(), b"2".to_vec()]);
    }
}

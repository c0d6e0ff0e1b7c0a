//! The records of a compressed batch (magic 2) on their way into columns, inflated a window at a
//! time: a batch may inflate to a thousand times its bytes, and would be held for as long as the
//! client of an endpoint takes to read the columns.
//!
//! ```text
//! inflated  │ passed: let go of │ window: whole records, and a part of one │ still to be inflated │
//!                               0        cursor.at
//! ```
//!
//! Most batches fit into one window, and cost no more than if they were inflated as a whole.

use super::super::columns::ColumnBuilder;
use super::{RecordCursor, Walked, append_records};
use crate::batch::inflate::{Inflater, Paused};
use crate::batch::varint::read_varint;
use crate::batch::{BatchHeader, Codec};
use crate::error::{Error, Result};
use crate::limits::ARROW_INFLATED_BYTES;

/// A varint of 32 bits has no more bytes.
const VARINT_BYTES_MAX: usize = 5;

/// The records of one batch after the other.
#[derive(Default)]
pub(in crate::arrow) struct InflatedRecords {
    inflater: Inflater,
    window: Vec<u8>,
    /// `None`: the batch's last byte is in the window.
    rest: Option<Paused>,
}

/// What is wrong with a batch.
pub(in crate::arrow) enum Fault {
    Stream(Error),
    /// With the record at the cursor.
    Record(&'static str),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Stream(error)
    }
}

/// True of a batch whose records have to be inflated.
pub(in crate::arrow) fn is_inflated(header: &BatchHeader) -> bool {
    header.magic == 2 && header.is_compressed() && header.records_count > 0
}

impl InflatedRecords {
    /// Begins with a batch that `is_inflated`. `records` is what follows its header, here and in
    /// `append`. Errors: `InvalidRecord` for a broken stream.
    pub fn begin(&mut self, header: &BatchHeader, records: &[u8]) -> Result<()> {
        self.window.clear();
        self.window.shrink_to(ARROW_INFLATED_BYTES);
        self.inflater.give_back();
        let codec = Codec::from_id(header.codec_id())?;
        let inflation = self.inflater.begin(codec, header.magic, records)?;
        self.rest = inflation.pause();
        self.fill(records, ARROW_INFLATED_BYTES)
    }

    /// Memory that is held for the batch at hand, bytes.
    pub fn held_bytes(&self) -> usize {
        self.window.capacity() + self.inflater.held_bytes()
    }

    /// Takes records of the batch at hand with offsets in `start .. stop`, from the cursor on,
    /// whose place is one in the window. After an error the builder must be thrown away.
    pub fn append(
        &mut self,
        builder: &mut ColumnBuilder,
        header: &BatchHeader,
        records: &[u8],
        cursor: &mut RecordCursor,
        (start, stop): (i64, i64),
    ) -> std::result::Result<Walked, Fault> {
        let count = header.records_count as usize;
        while self.rest.is_some() {
            let left = count - cursor.passed;
            let whole = whole_records(&self.window, cursor.at, left);
            if whole.count == 0 {
                let window_bytes = self.window.len();
                // All have been passed, and there must be nothing behind them; or one is longer
                // than the window.
                let next = if left == 0 { 1 } else { whole.next_bytes };
                self.fill(records, cursor.at.saturating_add(next))?;
                if self.window.len() == window_bytes && self.rest.is_some() {
                    break;
                }
                if left == 0 {
                    break;
                }
                continue;
            }
            let header = BatchHeader {
                records_count: (cursor.passed + whole.count) as i32,
                ..*header
            };
            let window = self.window.get(..whole.end).unwrap_or_default();
            let walked = append_records(builder, &header, window, cursor, start, stop);
            let walked = walked.map_err(Fault::Record)?;
            if walked == Walked::Full || cursor.passed < header.records_count as usize {
                return Ok(walked);
            }
            self.window.drain(..cursor.at);
            cursor.at = 0;
            self.fill(records, ARROW_INFLATED_BYTES)?;
        }
        append_records(builder, header, &self.window, cursor, start, stop).map_err(Fault::Record)
    }

    /// Inflates until the window has so many bytes, or a piece more, or the stream is over.
    fn fill(&mut self, records: &[u8], window_bytes: usize) -> Result<()> {
        let Some(paused) = self.rest.take() else {
            return Ok(());
        };
        let mut inflation = paused.resume(records);
        inflation.fill(&mut self.inflater, &mut self.window, window_bytes)?;
        self.rest = inflation.pause();
        if self.rest.is_none() {
            self.inflater.give_back();
        }
        Ok(())
    }
}

/// The records that are in a window as a whole.
struct Whole {
    count: usize,
    /// Where the last of them ends.
    end: usize,
    /// Bytes from there on that the next one needs to be whole, as far as it can be told; 0 if its
    /// length cannot be one.
    next_bytes: usize,
}

/// Of `count_max` records at most, from `at` on.
fn whole_records(window: &[u8], at: usize, count_max: usize) -> Whole {
    let mut whole = Whole {
        count: 0,
        end: at,
        next_bytes: 0,
    };
    while whole.count < count_max {
        let mut body_at = whole.end;
        let Some(length) = read_varint(window, &mut body_at) else {
            let is_cut_off = window.len() - whole.end < VARINT_BYTES_MAX;
            whole.next_bytes = if is_cut_off { VARINT_BYTES_MAX } else { 0 };
            break;
        };
        let end = usize::try_from(length).map(|length| body_at.saturating_add(length));
        let Ok(end) = end else {
            whole.next_bytes = 0;
            break;
        };
        if end > window.len() {
            whole.next_bytes = end - whole.end;
            break;
        }
        whole.end = end;
        whole.count += 1;
    }
    whole
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;

    use super::*;
    use crate::arrow::columns::BatchBounds;
    use crate::arrow::shape::Shape;
    use crate::batch::header::{RECORD_BATCH_OVERHEAD, RECORDS_COUNT_AT};
    use crate::batch::{BatchBuilder, BatchOptions};

    const CODECS: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    /// Large ones have some noise: what inflates too well is refused as a bomb.
    fn value(offset: i64, size: usize) -> Vec<u8> {
        let mut value = vec![offset as u8; size];
        let mut noise = offset as u32;
        for byte in value.iter_mut().take(size / 500) {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (noise >> 24) as u8;
        }
        value
    }

    fn batch(codec: Codec, sizes: &[usize]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions {
            codec,
            ..BatchOptions::default()
        });
        for (offset, size) in sizes.iter().enumerate() {
            let offset = offset as i64;
            let appended = builder.append(offset, None, Some(&value(offset, *size)), &[]);
            appended.expect("it fits");
        }
        builder.finish().expect("it is built")
    }

    /// Offset and size of each value, and the most memory that was held between two batches.
    type Found = (Vec<(i64, usize)>, usize);

    fn read(batch: &[u8], bytes: usize, stop: i64) -> std::result::Result<Found, String> {
        let header = BatchHeader::parse(batch).expect("good").expect("whole");
        let records = &batch[RECORD_BATCH_OVERHEAD..];
        let names = ["offset", "value"];
        let shape = Shape::from_names(&names).expect("a shape");
        let bounds = BatchBounds {
            rows: 100_000,
            bytes,
        };
        let mut builder = ColumnBuilder::new(&shape, bounds);
        builder.start_partition("t", 0);
        let mut inflated = InflatedRecords::default();
        let begun = inflated.begin(&header, records);
        begun.map_err(|error| error.to_string())?;
        let (mut rows, mut held_bytes) = (Vec::new(), 0);
        let mut cursor = RecordCursor::default();
        loop {
            let walked = inflated.append(&mut builder, &header, records, &mut cursor, (1, stop));
            let walked = walked.map_err(|fault| match fault {
                Fault::Stream(error) => error.to_string(),
                Fault::Record(reason) => format!("record {}: {reason}", cursor.passed + 1),
            })?;
            held_bytes = held_bytes.max(inflated.held_bytes());
            if builder.rows() > 0 {
                let batch = builder.finish().expect("rows").expect("rows");
                let offsets = batch.column(0).as_primitive::<Int64Type>().values();
                let values = batch.column(1).as_binary::<i32>();
                for (offset, value) in offsets.iter().zip(values.iter().flatten()) {
                    assert!(value == self::value(*offset, value.len()), "{offset}");
                    rows.push((*offset, value.len()));
                }
            }
            if walked == Walked::Exhausted {
                return Ok((rows, held_bytes));
            }
        }
    }

    fn rows(sizes: &[usize], stop: usize) -> Vec<(i64, usize)> {
        let rows = sizes.iter().enumerate().take(stop).skip(1);
        rows.map(|(offset, size)| (offset as i64, *size)).collect()
    }

    #[test]
    fn windows_lose_and_repeat_no_record_whatever_the_sizes() {
        let large = 3 * ARROW_INFLATED_BYTES;
        let exact = ARROW_INFLATED_BYTES - 10;
        for sizes in [
            vec![1; 10],
            vec![100; 30_000],
            vec![exact, 1, exact, exact + 1, 2, exact + 9, 0],
            [vec![10, large, 0, large], vec![1000; 3000]].concat(),
            vec![large],
        ] {
            for codec in CODECS {
                let batch = batch(codec, &sizes);
                for (bytes, stop) in [(1 << 16, usize::MAX), (1 << 29, usize::MAX), (1 << 16, 3)] {
                    let stop_offset = i64::try_from(stop).unwrap_or(i64::MAX);
                    let (found, _) = read(&batch, bytes, stop_offset).expect("good records");
                    assert!(
                        found == rows(&sizes, stop),
                        "{codec:?} {} {bytes}",
                        sizes.len()
                    );
                }
            }
        }
    }

    /// A client that took its rows slowly held all of an inflated batch, 96 MB of 200 KB, and
    /// none of it was counted.
    #[test]
    fn a_reader_that_waits_holds_a_window_and_not_all_of_a_batch() {
        let sizes = [1 << 20; 96];
        for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd] {
            let (found, held_bytes) = read(&batch(codec, &sizes), 100_000, i64::MAX).expect("rows");
            assert_eq!(found.len(), 95);
            // Windows of zstd and blocks of LZ4 are what the stream asks for.
            assert!(held_bytes < 16 << 20, "{codec:?}: {held_bytes}");
        }
    }

    #[test]
    fn a_count_that_lies_is_told_also_beyond_the_first_window() {
        let sizes = [1000; 5000];
        for codec in CODECS {
            let mut batch = batch(codec, &sizes);
            for (count, reason) in [
                (4999_i32, "record 5000: bytes follow its last record"),
                (5001, "record 5001: its length is cut off"),
            ] {
                batch[RECORDS_COUNT_AT..][..4].copy_from_slice(&count.to_be_bytes());
                let refused = read(&batch, 1 << 29, i64::MAX);
                assert_eq!(refused.expect_err("refused"), reason);
            }
        }
    }

    #[test]
    fn a_stream_that_breaks_beyond_the_first_window_is_told() {
        for codec in CODECS {
            let batch = batch(codec, &[1000; 5000]);
            let cut = &batch[..batch.len() - batch.len() / 10];
            let header = BatchHeader::parse(&batch).expect("good").expect("whole");
            let mut inflated = InflatedRecords::default();
            let records = &cut[RECORD_BATCH_OVERHEAD..];
            let shape = Shape::from_names(&["offset"]).expect("a shape");
            let bounds = BatchBounds {
                rows: 100_000,
                bytes: 1 << 29,
            };
            let mut builder = ColumnBuilder::new(&shape, bounds);
            let begun = inflated.begin(&header, records);
            let mut cursor = RecordCursor::default();
            let walked = begun.map_err(Fault::Stream).and_then(|()| {
                inflated.append(&mut builder, &header, records, &mut cursor, (0, i64::MAX))
            });
            assert!(matches!(walked, Err(Fault::Stream(_))), "{codec:?}");
        }
    }
}

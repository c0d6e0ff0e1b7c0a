//! Records of one partition on their way into columns: the buffers of one Arrow batch, bounded in
//! rows and bytes, filled by `walk.rs` (magic 2) or record by record (older formats).
//!
//! What is the same in every row (topic, partition) is built once per partition and sliced. Nulls
//! are kept as a list of rows, so that a column without nulls pays nothing for them.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, Int32Array, Int64Array, ListArray, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field};
use arrow_select::filter::filter_record_batch;

use super::decode::build::null_buffer;
use super::formats::{Format, Mode};
use super::growth::Growth;
use super::schema::{Column, header_field, header_fields};
use super::shape::{Output, Shape, Wanted};
use super::typed::{Bad, TypedBatch, TypedRows};
use crate::error::Error;
use crate::limits::{ARROW_BATCH_BYTES_MAX, ARROW_DECODED_RATIO};

/// Rows and bytes at which an Arrow batch is full. One record larger than `bytes` goes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchBounds {
    pub rows: usize,
    /// Keys, values and headers together, as they stand in the log.
    pub bytes: usize,
}

impl BatchBounds {
    /// Bytes that the typed fields of a batch may take. A record of two bytes can stand for a row
    /// of hundreds of fields, and have more items in its lists than bytes of its own.
    pub(super) fn decoded_bytes(&self) -> usize {
        let bytes = self.bytes.saturating_mul(ARROW_DECODED_RATIO);
        bytes.min(ARROW_BATCH_BYTES_MAX)
    }

    /// The most bytes of memory that a batch of this shape takes, unless one record alone takes
    /// more. `topic_bytes`: of the topic's name.
    pub(super) fn memory_bytes(&self, shape: &Shape, topic_bytes: usize) -> usize {
        let rows = self.rows.saturating_mul(shape.row_bytes(topic_bytes));
        let growth = Growth::of_rows(shape);
        let typed = growth.row_bytes.saturating_mul(self.rows);
        let items = growth.bytes_per_byte.saturating_mul(self.bytes);
        let decoded = typed.saturating_add(items).min(self.decoded_bytes());
        // Bytes as they stand in the log, and once more as texts of typed fields.
        let texts = if growth.row_bytes > 0 { self.bytes } else { 0 };
        let of_log = self.bytes.saturating_add(texts);
        of_log.saturating_add(rows).saturating_add(decoded)
    }
}

/// The records of one partition, gathered until `finish`.
pub struct ColumnBuilder {
    shape: Shape,
    typed: TypedRows,
    /// The partition's name, for errors.
    place: String,
    pub(super) bounds: BatchBounds,
    pub(super) wanted: Wanted,
    topic: Option<ArrayRef>,
    partition: Option<ArrayRef>,
    pub(super) rows: usize,
    /// Bytes of the wanted keys, values and headers, as they stand in the log.
    pub(super) bytes: usize,
    key_growth: Growth,
    value_growth: Growth,
    /// Bytes that the typed fields of the rows take at most, but for texts.
    decoded_bytes: usize,
    pub(super) keys: BinaryColumn,
    pub(super) values: BinaryColumn,
    pub(super) key_sizes: SizeColumn,
    pub(super) value_sizes: SizeColumn,
    pub(super) offsets: Vec<i64>,
    pub(super) timestamps: Vec<i64>,
    pub(super) timestamp_nulls: Vec<u32>,
    pub(super) timestamp_types: Vec<i32>,
    pub(super) headers: HeadersColumn,
}

impl ColumnBuilder {
    pub fn new(shape: &Shape, bounds: BatchBounds) -> ColumnBuilder {
        ColumnBuilder {
            shape: shape.clone(),
            typed: TypedRows::new(shape),
            place: String::new(),
            bounds,
            wanted: shape.wanted(),
            topic: None,
            partition: None,
            rows: 0,
            bytes: 0,
            key_growth: Growth::of(shape.key()),
            value_growth: Growth::of(shape.value()),
            decoded_bytes: 0,
            keys: BinaryColumn::new(),
            values: BinaryColumn::new(),
            key_sizes: SizeColumn::default(),
            value_sizes: SizeColumn::default(),
            offsets: Vec::new(),
            timestamps: Vec::new(),
            timestamp_nulls: Vec::new(),
            timestamp_types: Vec::new(),
            headers: HeadersColumn::new(),
        }
    }

    /// The rows that follow are of this partition. There must be none unfinished.
    pub fn start_partition(&mut self, topic: &str, partition: i32) {
        debug_assert_eq!(self.rows, 0);
        let rows = self.bounds.rows;
        self.place = format!("{topic}-{partition}");
        self.topic = self.shape.contains(Column::Topic).then(|| {
            let offsets = OffsetBuffer::from_repeated_length(topic.len(), rows);
            let bytes = Buffer::from_vec(topic.as_bytes().repeat(rows));
            Arc::new(StringArray::new(offsets, bytes, None)) as ArrayRef
        });
        self.partition = self.shape.contains(Column::Partition).then(|| {
            Arc::new(PrimitiveArray::<Int32Type>::from_value(partition, rows)) as ArrayRef
        });
    }

    /// Gives back the memory that is kept for rows to come. There must be none unfinished;
    /// `start_partition` is due next.
    pub fn release(&mut self) {
        debug_assert_eq!(self.rows, 0);
        self.typed = TypedRows::new(&self.shape);
        (self.topic, self.partition) = (None, None);
        (self.keys, self.values) = (BinaryColumn::new(), BinaryColumn::new());
        (self.key_sizes, self.value_sizes) = (SizeColumn::default(), SizeColumn::default());
        (self.offsets, self.timestamps) = (Vec::new(), Vec::new());
        (self.timestamp_nulls, self.timestamp_types) = (Vec::new(), Vec::new());
        self.headers = HeadersColumn::new();
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The most bytes of memory that a batch of the rows so far takes; 0 if there are none.
    pub fn unfinished_bytes(&self) -> usize {
        if self.rows == 0 {
            return 0;
        }
        let HeadersColumn { keys, values, .. } = &self.headers;
        let columns = [&self.keys, &self.values, keys, values];
        let of_log: usize = columns.iter().map(|each| each.bytes.capacity()).sum();
        let is_typed = self.key_growth.row_bytes + self.value_growth.row_bytes > 0;
        let texts = if is_typed { self.bytes } else { 0 };
        // Columns that are the same in all rows are there for as many as a batch may have.
        let rows = (self.bounds.rows).saturating_mul(self.shape.row_bytes(self.place.len()));
        let decoded = self.decoded_bytes.min(self.bounds.decoded_bytes());
        of_log
            .saturating_add(texts)
            .saturating_add(rows)
            .saturating_add(decoded)
    }

    /// No column needs a look into the records: the count of a batch is enough.
    pub fn counts_only(&self) -> bool {
        self.wanted == Wanted::default()
    }

    /// Takes room for a record, of whose wanted parts there are so many bytes. False: it must
    /// wait for the next batch.
    #[inline]
    pub(super) fn has_room_for(&mut self, key: usize, value: usize, headers: usize) -> bool {
        let bytes = self.bytes.saturating_add(key + value + headers);
        let decoded_bytes = (self.decoded_bytes)
            .saturating_add(self.key_growth.bytes_of(key))
            .saturating_add(self.value_growth.bytes_of(value));
        let is_full = bytes > self.bounds.bytes || decoded_bytes > self.bounds.decoded_bytes();
        if self.rows >= self.bounds.rows || (self.rows > 0 && is_full) {
            return false;
        }
        self.bytes = bytes;
        self.decoded_bytes = decoded_bytes;
        true
    }

    /// Adds up to `count` rows of which nothing is wanted but their number; the number added.
    pub fn append_count(&mut self, count: usize, timestamp_type: i32) -> usize {
        let added = count.min(self.bounds.rows.saturating_sub(self.rows));
        self.rows += added;
        self.append_timestamp_type(timestamp_type);
        added
    }

    /// Fills the column up to the rows there are.
    pub(super) fn append_timestamp_type(&mut self, timestamp_type: i32) {
        if self.shape.contains(Column::TimestampType) {
            self.timestamp_types.resize(self.rows, timestamp_type);
        }
    }

    /// In Kafka milliseconds, in Arrow microseconds; what does not fit (the year 294,247 and
    /// later, which Kafka accepts as `CreateTime`) is null.
    #[inline]
    pub(super) fn push_timestamp(&mut self, timestamp_ms: i64) {
        match timestamp_ms.checked_mul(1000) {
            Some(timestamp_us) => self.timestamps.push(timestamp_us),
            None => {
                self.timestamp_nulls.push(self.timestamps.len() as u32);
                self.timestamps.push(0);
            }
        }
    }

    /// The rows gathered so far as one Arrow batch, `None` if all of them were bad and
    /// are left out; the builder is empty afterwards. Errors: `InvalidRecord` for a
    /// bad one that must not be.
    pub fn finish(&mut self) -> Result<Option<RecordBatch>, Error> {
        let arrow = |error: ArrowError| Error::InvalidRecord(error.to_string());
        let wanted = self.wanted;
        let keys = wanted.key.then(|| self.keys.finish()).transpose();
        let values = wanted.value.then(|| self.values.finish()).transpose();
        let (keys, values) = (keys.map_err(arrow)?, values.map_err(arrow)?);
        let typed = self.typed.decode(keys.as_ref(), values.as_ref());
        let typed = typed.map_err(arrow)?;
        if self.typed.mode() == Mode::FailFast
            && let Some(bad) = typed.first_bad()
        {
            return Err(self.refuse(&bad));
        }
        let good = match self.typed.mode() {
            Mode::DropMalformed => typed.good_rows(self.rows),
            Mode::Permissive | Mode::FailFast => None,
        };
        let batch = self.assemble(keys, values, &typed).map_err(arrow)?;
        self.rows = 0;
        self.bytes = 0;
        self.decoded_bytes = 0;
        let Some(good) = good else {
            return Ok(Some(batch));
        };
        let batch = filter_record_batch(&batch, &good).map_err(arrow)?;
        Ok(Some(batch).filter(|batch| batch.num_rows() > 0))
    }

    /// The columns side by side, in the order of the shape.
    fn assemble(
        &mut self,
        mut keys: Option<BinaryArray>,
        mut values: Option<BinaryArray>,
        typed: &TypedBatch,
    ) -> Result<RecordBatch, ArrowError> {
        let rows = self.rows;
        let offsets = Int64Array::from(take(&mut self.offsets));
        let missing = || ArrowError::ComputeError("a column that was not gathered".into());
        let mut arrays = Vec::with_capacity(self.shape.outputs().len());
        let schema = Arc::clone(self.shape.schema());
        let formats = self.shape.formats();
        for (output, field) in self.shape.outputs().iter().zip(schema.fields()) {
            let array: ArrayRef = match output {
                Output::Column(Column::Key) => match &typed.key {
                    Some(columns) => columns.as_struct()?,
                    None => to_format(keys.take().ok_or_else(missing)?, formats.key.format)?,
                },
                Output::Column(Column::Value) => match &typed.value {
                    Some(columns) => columns.as_struct()?,
                    None => to_format(values.take().ok_or_else(missing)?, formats.value.format)?,
                },
                Output::ValueField(index) => {
                    let columns = typed.value.as_ref();
                    let column = columns.and_then(|columns| columns.field(*index));
                    column.ok_or_else(missing)?
                }
                Output::Corrupt => Arc::new(typed.corrupt(rows)),
                Output::Column(Column::KeySize) => Arc::new(self.key_sizes.finish()?),
                Output::Column(Column::ValueSize) => Arc::new(self.value_sizes.finish()?),
                Output::Column(Column::Topic) => slice(&self.topic, rows)?,
                Output::Column(Column::Partition) => slice(&self.partition, rows)?,
                Output::Column(Column::Offset) => Arc::new(offsets.clone()),
                Output::Column(Column::Timestamp) => {
                    let nulls = null_buffer(rows, &mut self.timestamp_nulls);
                    let values = ScalarBuffer::from(take(&mut self.timestamps));
                    let array = TimestampMicrosecondArray::try_new(values, nulls)?;
                    Arc::new(array.with_timezone("UTC"))
                }
                Output::Column(Column::TimestampType) => {
                    Arc::new(Int32Array::from(take(&mut self.timestamp_types)))
                }
                Output::Column(Column::Headers) => Arc::new(self.headers.finish(field)?),
            };
            arrays.push(array);
        }
        // Of a batch without columns nothing else says how many rows it has.
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(schema, arrays, &options)
    }

    fn refuse(&self, bad: &Bad) -> Error {
        let Bad { row, what, reason } = bad;
        let offset = self.offsets.get(*row).copied().unwrap_or(-1);
        let side = match *what {
            "key" => &self.shape.formats().key,
            _ => &self.shape.formats().value,
        };
        Error::InvalidRecord(format!(
            "the {what} of {} at offset {offset} is not the {} that is wanted, and mode=FAILFAST: \
             {reason}",
            self.place,
            side.format.name()
        ))
    }
}

fn to_format(bytes: BinaryArray, format: Format) -> Result<ArrayRef, ArrowError> {
    Ok(match format {
        Format::String => Arc::new(to_utf8(bytes)?),
        Format::Binary | Format::Json | Format::Csv | Format::Avro => Arc::new(bytes),
    })
}

/// The first rows of a column that is the same in all of them.
fn slice(whole: &Option<ArrayRef>, rows: usize) -> Result<ArrayRef, ArrowError> {
    match whole {
        Some(array) if array.len() >= rows => Ok(array.slice(0, rows)),
        _ => Err(ArrowError::ComputeError("rows without a partition".into())),
    }
}

/// The buffer as it is, and an empty one of the same size in its place: the next batch is likely
/// to be as large, and growing would copy it several times over.
fn take<T>(buffer: &mut Vec<T>) -> Vec<T> {
    let next = Vec::with_capacity(buffer.len() + buffer.len() / 16);
    let mut full = std::mem::replace(buffer, next);
    if full.capacity() > 2 * full.len() {
        full.shrink_to_fit();
    }
    full
}

/// Where each item of a column ends, with Arrow's 0 in front. 32 bits: `BatchBounds::bytes` keeps
/// what is appended well below 2 GiB.
pub(super) struct Ends(Vec<i32>);

impl Ends {
    fn new() -> Ends {
        Ends(vec![0])
    }

    fn count(&self) -> usize {
        self.0.len() - 1
    }

    fn last(&self) -> i32 {
        self.0.last().copied().unwrap_or(0)
    }

    pub fn reserve(&mut self, count: usize) {
        self.0.reserve(count);
    }

    /// `end` is checked against 2 GiB when the batch is finished.
    #[inline]
    fn push(&mut self, end: usize) {
        self.0.push(end as i32);
    }

    fn finish(&mut self, end: usize) -> Result<OffsetBuffer<i32>, ArrowError> {
        if i32::try_from(end).is_err() {
            return Err(ArrowError::OffsetOverflowError(end));
        }
        let ends = take(&mut self.0);
        self.0.push(0);
        Ok(OffsetBuffer::new(ScalarBuffer::from(ends)))
    }
}

/// Sizes of byte strings that are not copied.
#[derive(Default)]
pub(super) struct SizeColumn {
    sizes: Vec<i32>,
    null_rows: Vec<u32>,
}

impl SizeColumn {
    /// A size fits: it was read from 32 bits.
    #[inline]
    pub fn push(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.sizes.push(bytes.len() as i32),
            None => {
                self.null_rows.push(self.sizes.len() as u32);
                self.sizes.push(0);
            }
        }
    }

    pub fn reserve(&mut self, count: usize) {
        self.sizes.reserve(count);
    }

    fn finish(&mut self) -> Result<Int32Array, ArrowError> {
        let nulls = null_buffer(self.sizes.len(), &mut self.null_rows);
        Int32Array::try_new(ScalarBuffer::from(take(&mut self.sizes)), nulls)
    }
}

/// As text; U+FFFD stands where bytes are no UTF-8.
fn to_utf8(bytes: BinaryArray) -> Result<StringArray, ArrowError> {
    let (offsets, values, nulls) = bytes.into_parts();
    match StringArray::try_new(offsets.clone(), values.clone(), nulls.clone()) {
        Ok(text) => Ok(text),
        Err(_) => {
            let bytes = BinaryArray::try_new(offsets, values, nulls)?;
            let text = bytes.iter().map(|each| each.map(String::from_utf8_lossy));
            Ok(text.collect())
        }
    }
}

/// Byte strings one behind the other.
pub(super) struct BinaryColumn {
    pub ends: Ends,
    pub bytes: Vec<u8>,
    null_rows: Vec<u32>,
}

impl BinaryColumn {
    fn new() -> BinaryColumn {
        BinaryColumn {
            ends: Ends::new(),
            bytes: Vec::new(),
            null_rows: Vec::new(),
        }
    }

    #[inline]
    pub fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len());
    }

    #[inline]
    pub fn push_nullable(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.push(value),
            None => {
                self.null_rows.push(self.ends.count() as u32);
                self.ends.push(self.bytes.len());
            }
        }
    }

    fn finish(&mut self) -> Result<BinaryArray, ArrowError> {
        let nulls = null_buffer(self.ends.count(), &mut self.null_rows);
        let offsets = self.ends.finish(self.bytes.len())?;
        BinaryArray::try_new(offsets, Buffer::from_vec(take(&mut self.bytes)), nulls)
    }

    fn finish_utf8(&mut self) -> Result<StringArray, ArrowError> {
        let nulls = null_buffer(self.ends.count(), &mut self.null_rows);
        let offsets = self.ends.finish(self.bytes.len())?;
        StringArray::try_new(offsets, Buffer::from_vec(take(&mut self.bytes)), nulls)
    }
}

/// Lists of headers. A key that is no UTF-8 gets U+FFFD where it is not, as in the Java consumer.
pub(super) struct HeadersColumn {
    keys: BinaryColumn,
    values: BinaryColumn,
    ends: Ends,
    null_rows: Vec<u32>,
}

impl HeadersColumn {
    fn new() -> HeadersColumn {
        HeadersColumn {
            keys: BinaryColumn::new(),
            values: BinaryColumn::new(),
            ends: Ends::new(),
            null_rows: Vec::new(),
        }
    }

    /// Adds a header to the list that `end_list` will end.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        match std::str::from_utf8(key) {
            Ok(key) => self.keys.push(key.as_bytes()),
            Err(_) => self.keys.push(String::from_utf8_lossy(key).as_bytes()),
        }
        self.values.push_nullable(value);
    }

    /// Ends the list of one record; without a header in it, it is null, as in Spark's connector.
    pub fn end_list(&mut self) {
        let end = self.keys.ends.count();
        if self.ends.last() as usize == end {
            self.null_rows.push(self.ends.count() as u32);
        }
        self.ends.push(end);
    }

    /// `field` names the items of the list.
    fn finish(&mut self, field: &Field) -> Result<ListArray, ArrowError> {
        let item = match field.data_type() {
            DataType::List(item) => Arc::clone(item),
            _ => header_field(),
        };
        let nulls = null_buffer(self.ends.count(), &mut self.null_rows);
        let offsets = self.ends.finish(self.keys.ends.count())?;
        let keys = Arc::new(self.keys.finish_utf8()?) as ArrayRef;
        let values = Arc::new(self.values.finish()?) as ArrayRef;
        let entries = StructArray::try_new(header_fields(), vec![keys, values], None)?;
        ListArray::try_new(item, offsets, Arc::new(entries), nulls)
    }
}

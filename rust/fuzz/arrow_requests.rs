//! Promises for any bytes that a client sends to the Arrow endpoint: they are a request or are
//! refused, and what is read of a request keeps the bounds. A broken promise is a panic.

use kafkalite::arrow::serve::request::request_length;
use kafkalite::arrow::serve::{Losses, Request};
use kafkalite::limits::{ARROW_BATCH_BYTES_MAX, ARROW_BATCH_ROWS_MAX, ARROW_REQUEST_BYTES_MAX};

/// The content of a request, its length taken off.
pub fn arrow_requests(data: &[u8]) {
    if let Some(prefix) = data.first_chunk()
        && let Ok(length) = request_length(*prefix, ARROW_REQUEST_BYTES_MAX)
    {
        assert!((1..=ARROW_REQUEST_BYTES_MAX).contains(&length));
    }
    is_read(data);
}

/// Whether the bytes are a read that may be tried.
pub fn is_read(data: &[u8]) -> bool {
    let shaped = match Request::parse(data, None) {
        Ok(Request::Read(read)) => read.shaped(),
        Ok(Request::Other(other)) => {
            other.check_schema().ok();
            return false;
        }
        Err(error) => Err(error),
    };
    let Ok(read) = shaped else {
        return false;
    };
    assert!((1..=ARROW_BATCH_ROWS_MAX).contains(&read.bounds.rows));
    assert!((1..=ARROW_BATCH_BYTES_MAX).contains(&read.bounds.bytes));
    if let Ok((start, stop)) = read.range_within(10, 30, 20, "high watermark", &Losses::default()) {
        assert!(start <= stop && (10..=30).contains(&start));
    }
    true
}

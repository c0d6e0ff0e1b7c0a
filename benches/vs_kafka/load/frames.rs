//! Where requests begin and end, whichever their key.

use kafkalite::wire::{Writer, frame};

/// Size, key, version, correlation id, client id, tags: a flexible request's beginning.
pub fn begin_request(key: i16, version: i16, capacity: usize) -> Writer {
    let mut writer = Writer::with_capacity(capacity);
    writer.i32(0);
    writer.i16(key);
    writer.i16(version);
    writer.i32(0);
    writer.nullable_string(Some("load"), false);
    writer.no_tags(true);
    writer
}

pub fn finish_request(mut writer: Writer) -> Vec<u8> {
    let finished = frame::finish(&mut writer.bytes, 0, i32::MAX);
    finished.expect("a request far below 2 GiB");
    writer.bytes
}

//! Frames: every request and response on a connection is an i32 size and that many bytes.
//!
//! ```text
//! 0 size    i32   bytes that follow, 0 <= size <= socket.request.max.bytes
//! 4 request header and body, or response header and body
//! ```

use crate::error::{Error, Result};

/// Bytes of the size field.
pub const SIZE_BYTES: usize = 4;

/// Size of the whole next frame, its size field included, once the field has arrived. A size out
/// of bounds closes the connection before a byte is allocated for it.
#[inline]
pub fn frame_size(bytes: &[u8], request_bytes_max: usize) -> Result<Option<usize>> {
    let Some(field) = bytes.first_chunk::<SIZE_BYTES>() else {
        return Ok(None);
    };
    let size = i32::from_be_bytes(*field);
    match usize::try_from(size) {
        Ok(size) if size <= request_bytes_max => Ok(Some(SIZE_BYTES + size)),
        _ => Err(Error::MalformedRequest(format!(
            "a frame of {size} bytes; socket.request.max.bytes is {request_bytes_max}"
        ))),
    }
}

/// Puts the size in front of a response that was begun with `begin`. `file_bytes` more bytes of
/// the frame come out of files.
#[inline]
pub fn finish(response: &mut [u8], file_bytes: usize) {
    let size = response.len() - SIZE_BYTES + file_bytes;
    let size = i32::try_from(size).expect("a response is bounded far below 2 GiB");
    response[..SIZE_BYTES].copy_from_slice(&size.to_be_bytes());
}

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

/// Puts the size in front of a response that was begun with `begin_response`. `further_bytes` of
/// the frame follow it. Errors: `MalformedRequest` where that is more than `bytes_max`; nobody asks
/// for so much who means it.
#[inline]
pub fn finish(response: &mut [u8], further_bytes: usize, bytes_max: i32) -> Result<()> {
    let Some((field, content)) = response.split_first_chunk_mut::<SIZE_BYTES>() else {
        return Err(Error::InvalidArgument("a response has a size".to_owned()));
    };
    let size = content.len() + further_bytes;
    match i32::try_from(size) {
        Ok(size) if size <= bytes_max => *field = size.to_be_bytes(),
        _ => {
            let reason = format!("its answer takes {size} bytes, and a frame {bytes_max}");
            return Err(Error::MalformedRequest(reason));
        }
    }
    Ok(())
}

//! How much memory typed fields take for the bytes of a key or value: known before they are
//! decoded, so that a batch ends before it is too large.

use super::decode::{Reader, build};
use super::shape::{Shape, Typed};

/// How much more than its bytes a typed key or value takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Growth {
    /// Bytes that its fields take, whatever its own are.
    pub row_bytes: usize,
    /// Bytes that items of lists take for a byte of its own.
    pub bytes_per_byte: usize,
}

impl Growth {
    pub fn of(typed: Option<&Typed>) -> Growth {
        let Some(typed) = typed else {
            return Growth::default();
        };
        let types = || typed.fields.iter().map(|field| field.data_type());
        let item_bytes = types().map(build::item_bytes_max).max().unwrap_or(0);
        // In JSON an item has a byte and a comma at least; of Avro no more are taken
        // than a record has bytes.
        let item_size = match typed.reader {
            Reader::Json | Reader::Csv(_) => 2,
            Reader::Avro(_) => 1,
        };
        Growth {
            row_bytes: types().map(build::width_bytes).sum(),
            bytes_per_byte: item_bytes.div_ceil(item_size),
        }
    }

    /// The growth of keys and values together.
    pub fn of_rows(shape: &Shape) -> Growth {
        let (key, value) = (Growth::of(shape.key()), Growth::of(shape.value()));
        Growth {
            row_bytes: key.row_bytes + value.row_bytes,
            bytes_per_byte: key.bytes_per_byte.max(value.bytes_per_byte),
        }
    }

    #[inline]
    pub fn bytes_of(&self, size: usize) -> usize {
        self.row_bytes
            .saturating_add(self.bytes_per_byte.saturating_mul(size))
    }
}

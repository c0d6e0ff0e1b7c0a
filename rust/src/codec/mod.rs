//! The codec of every message that is not on the hot path: one table of fields, made out of Kafka's
//! own definitions (`tools/make_schema.py`), and one walk over it in each direction. The same codec
//! reads and writes requests, responses, metadata records and the coordinators' records.

pub mod schema;
pub mod value;
pub mod value_codec;
pub mod walk;

pub use schema::{Message, MessageKind};
pub use value::Value;
pub use value_codec::{decode, encode};

//! Reading what lies on disk without changing it, for `kafkalite log dump`
//! and `kafkalite log verify`.

pub mod findings;
pub mod inspect;
pub mod verify;
pub mod verify_segment;

//! The memory that requests and answers take, bounded for all connections together.
//!
//! ```text
//! budget        how much there is, and who may have some
//! slow_client   who holds some that others wait for, and hardly goes on
//! ```

pub mod budget;
pub mod slow_client;

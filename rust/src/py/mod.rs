//! The engine as Python sees it. Only this folder and `lib.rs` name pyo3, behind the feature
//! `python`. Every function here converts arguments, goes through `door::enter`, converts the
//! result; a decision belongs to the engine or to Python.

pub mod arrow;
pub mod arrow_server;
pub mod batch;
pub mod broker;
pub mod client;
pub mod codec;
pub mod door;
pub mod engine;
pub mod engine_for_tests;
pub mod java;
pub mod log;
pub mod message_budget;
pub mod outbound;
pub mod re2;
pub mod release;
pub mod uuid;

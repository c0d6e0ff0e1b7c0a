//! Producer state: each of Kafka's rules by name, then every sequence of events against a slow
//! model.

mod model;
mod overlays;
mod partition;
mod sequences;
mod snapshots;
mod transactions;

//! Clusters of three to five brokers in one thread, each history determined by one number:
//! `make sim-cluster SEED=7`.
//!
//! A broker is the engine as it is: `Node`, logs on a storage in memory, replicas, what a
//! leader knows of its followers, the follower's session, Produce, Fetch and ListOffsets from
//! bytes to bytes. Threads, sockets and disks are played by the files here, and Kafka's
//! controllers by a model of theirs.
//!
//! ```text
//! world.rs       events, time, the network        plan.rs      what a seed is about
//! broker.rs      a disk and a process on it       faults.rs    what strikes
//! membership.rs  how it belongs to the cluster    clients.rs   producers and consumers
//! serving.rs     what others ask of it            checker.rs   what must hold, after each event and at the end
//! fetcher.rs     how it follows                   metadata_checker.rs, mirrors.rs   parts of that
//! seam.rs        the engine's words for things    planted.rs   bugs that must be found
//! controller.rs  the model of the controllers     seeds.rs     the runs
//! bytes.rs       requests and records as bytes    stories.rs   bugs that Kafka had, and ours, told without a seed
//! ```

mod broker;
mod bytes;
mod checker;
mod clients;
mod controller;
mod faults;
mod fetcher;
mod membership;
mod metadata_checker;
mod mirrors;
mod plan;
mod planted;
mod seam;
mod seeds;
mod serving;
mod stories;
mod world;

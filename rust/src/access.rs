//! Who asks, and what they may do: asked by the hot handlers at the places and in the order in which
//! Kafka asks its authorizer. Until there are ACLs everyone is `User:ANONYMOUS` and may do everything.

use std::net::IpAddr;
use std::sync::Arc;

/// As Kafka writes it: `User:ANONYMOUS`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    pub fn new(name: &str) -> Principal {
        Principal(name.into())
    }

    pub fn name(&self) -> &str {
        &self.0
    }
}

/// Whoever connects to a listener without authentication.
impl Default for Principal {
    fn default() -> Principal {
        Principal::new("User:ANONYMOUS")
    }
}

/// Who asks: what an authorizer and a quota may look at.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub principal: &'a Principal,
    pub client_id: Option<&'a str>,
    pub address: IpAddr,
    /// Index of the listener that the client came in by.
    pub listener: usize,
}

/// Operations (`AclOperation`) that hot keys ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
    Describe,
    ClusterAction,
}

/// The resource that an operation is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    Topic(&'a str),
    Cluster,
}

pub trait Authorizer: Send + Sync {
    /// Must not block: a network thread asks.
    fn authorize(&self, caller: &Caller<'_>, operation: Operation, resource: Resource<'_>) -> bool;
}

/// Everyone may do everything.
pub struct AllowAll;

impl Authorizer for AllowAll {
    fn authorize(&self, _: &Caller<'_>, _: Operation, _: Resource<'_>) -> bool {
        true
    }
}

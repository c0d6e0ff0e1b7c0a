//! Identities of clients, and the check of what they may do: every handler, in both languages,
//! makes it at the places and in the order in which Kafka asks its authorizer. Until there are ACLs
//! everyone may do everything.
//!
//! The authorizer stands in the image (`image/permits.rs`): the next image may bring another one.

use std::net::IpAddr;

/// The security protocol of a listener (`listener.security.protocol.map`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecurityProtocol {
    #[default]
    Plaintext,
}

impl SecurityProtocol {
    pub fn name(self) -> &'static str {
        match self {
            SecurityProtocol::Plaintext => "PLAINTEXT",
        }
    }
}

/// A client, as its connection has it: made once a connection, and again where
/// the client logs in anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// As Kafka writes it: `User:ANONYMOUS`.
    pub principal: Box<str>,
    /// The client's address as ACLs and logs have it, `0:0:0:0:0:0:0:1`.
    pub host: Box<str>,
    pub protocol: SecurityProtocol,
}

impl Identity {
    /// The identity of a client that connects without authentication.
    pub fn anonymous(address: IpAddr) -> Identity {
        Identity {
            principal: "User:ANONYMOUS".into(),
            host: java_host(address).into(),
            protocol: SecurityProtocol::Plaintext,
        }
    }
}

/// An address as Java's `InetAddress.getHostAddress` prints it: IPv6 with all its words.
fn java_host(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let words = address.segments().map(|word| format!("{word:x}"));
            words.join(":")
        }
    }
}

/// The client that asks: what an authorizer and a quota may look at.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub identity: &'a Identity,
    pub client_id: Option<&'a str>,
    /// Index of the listener that the client came in by.
    pub listener: usize,
}

/// Operations, by their codes (`AclOperation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum Operation {
    Read = 3,
    Write,
    Create,
    Delete,
    Alter,
    Describe,
    ClusterAction,
    DescribeConfigs,
    AlterConfigs,
    IdempotentWrite,
    CreateTokens,
    DescribeTokens,
    TwoPhaseCommit,
}

impl Operation {
    const ALL: [Operation; 13] = [
        Operation::Read,
        Operation::Write,
        Operation::Create,
        Operation::Delete,
        Operation::Alter,
        Operation::Describe,
        Operation::ClusterAction,
        Operation::DescribeConfigs,
        Operation::AlterConfigs,
        Operation::IdempotentWrite,
        Operation::CreateTokens,
        Operation::DescribeTokens,
        Operation::TwoPhaseCommit,
    ];

    pub fn of_code(code: i8) -> Option<Operation> {
        let mut all = Operation::ALL.into_iter();
        all.find(|operation| *operation as i8 == code)
    }

    /// Its bit in a field of authorized operations (KIP-430).
    fn bit(self) -> i32 {
        1 << self as i8
    }
}

/// The resource that an operation is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    Topic(&'a str),
    /// Some topic, whichever (`Authorizer.authorizeByResourceType`).
    AnyTopic,
    Group(&'a str),
    Cluster,
    TransactionalId(&'a str),
    DelegationToken(&'a str),
    User(&'a str),
}

impl<'a> Resource<'a> {
    /// The resource of a `ResourceType`'s code; without a name some topic, or the cluster.
    pub fn of_code(code: i8, name: Option<&'a str>) -> Option<Resource<'a>> {
        match (code, name) {
            (2, Some(name)) => Some(Resource::Topic(name)),
            (2, None) => Some(Resource::AnyTopic),
            (3, Some(name)) => Some(Resource::Group(name)),
            (4, None) => Some(Resource::Cluster),
            (5, Some(name)) => Some(Resource::TransactionalId(name)),
            (6, Some(name)) => Some(Resource::DelegationToken(name)),
            (7, Some(name)) => Some(Resource::User(name)),
            _ => None,
        }
    }

    /// The operations that there are of it and that an answer tells of
    /// (`AclEntry.supportedOperations`).
    fn operations(self) -> &'static [Operation] {
        use Operation::*;
        match self {
            Resource::Topic(_) | Resource::AnyTopic => &[
                Read,
                Write,
                Create,
                Describe,
                Delete,
                Alter,
                DescribeConfigs,
                AlterConfigs,
            ],
            Resource::Group(_) => &[Read, Describe, Delete, DescribeConfigs, AlterConfigs],
            Resource::Cluster => &[
                Create,
                ClusterAction,
                DescribeConfigs,
                AlterConfigs,
                IdempotentWrite,
                Alter,
                Describe,
            ],
            Resource::TransactionalId(_) => &[Describe, Write, TwoPhaseCommit],
            Resource::DelegationToken(_) => &[Describe],
            Resource::User(_) => &[CreateTokens, DescribeTokens],
        }
    }
}

pub trait Authorizer: Send + Sync {
    /// Must not block: a network thread asks.
    fn authorize(&self, caller: &Caller<'_>, operation: Operation, resource: Resource<'_>) -> bool;

    /// The field of authorized operations: a bit for each operation that the caller may do.
    fn authorized_operations(&self, caller: &Caller<'_>, resource: Resource<'_>) -> i32 {
        let operations = resource.operations().iter();
        let allowed = operations.filter(|each| self.authorize(caller, **each, resource));
        allowed.fold(0, |bits, operation| bits | operation.bit())
    }
}

/// Everyone may do everything.
pub struct AllowAll;

impl Authorizer for AllowAll {
    fn authorize(&self, _: &Caller<'_>, _: Operation, _: Resource<'_>) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_as_java_prints_it() {
        let told = |text: &str| Identity::anonymous(text.parse().expect("an address")).host;
        assert_eq!(&*told("127.0.0.1"), "127.0.0.1");
        assert_eq!(&*told("::ffff:10.0.0.7"), "10.0.0.7");
        assert_eq!(&*told("::1"), "0:0:0:0:0:0:0:1");
        assert_eq!(&*told("fe80::a:0:b"), "fe80:0:0:0:0:a:0:b");
    }

    /// The bits that clients of a broker without an authorizer have always been told.
    #[test]
    fn whoever_may_do_everything_has_all_bits() {
        let identity = Identity::anonymous(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
        let caller = Caller {
            identity: &identity,
            client_id: None,
            listener: 0,
        };
        let bits = |resource| AllowAll.authorized_operations(&caller, resource);
        assert_eq!(bits(Resource::Topic("t")), 0b1101_1111_1000);
        assert_eq!(bits(Resource::Group("g")), 0b1101_0100_1000);
        assert_eq!(bits(Resource::Cluster), 0b1_1111_1010_0000);
    }

    #[test]
    fn codes_are_those_of_kafka() {
        for operation in Operation::ALL {
            assert_eq!(Operation::of_code(operation as i8), Some(operation));
        }
        assert_eq!(Operation::of_code(15), Some(Operation::TwoPhaseCommit));
        assert_eq!(Operation::of_code(2), None);
        assert_eq!(Resource::of_code(4, None), Some(Resource::Cluster));
        assert_eq!(Resource::of_code(3, None), None);
    }
}

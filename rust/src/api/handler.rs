//! The things that every handler has in common: the key that it declares, and what it may look at.

use crate::access::{Caller, Operation, Resource};
use crate::image::Image;

/// A key with the versions that are answered and the first that is flexible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiKey {
    pub key: i16,
    /// Lowest version in the table of ApiVersions.
    pub advertised_min: i16,
    /// Lowest version that is answered.
    pub min: i16,
    pub max: i16,
    pub first_flexible: i16,
}

/// All that a handler may look at besides its request.
pub struct Ask<'a> {
    pub image: &'a Image,
    pub caller: Caller<'a>,
}

impl Ask<'_> {
    pub fn may(&self, operation: Operation, resource: Resource<'_>) -> bool {
        let authorizer = &self.image.permits.authorizer;
        authorizer.authorize(&self.caller, operation, resource)
    }

    /// The field of operations that the caller may do to a resource (KIP-430).
    pub fn operations(&self, resource: Resource<'_>) -> i32 {
        let authorizer = &self.image.permits.authorizer;
        authorizer.authorized_operations(&self.caller, resource)
    }
}

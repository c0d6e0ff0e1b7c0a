//! The rights and the quotas of clients. A part of the image, so that a request is judged by those
//! that held when it began, and that a change of ACLs is one exchange of a pointer.

use std::sync::Arc;

use crate::access::{AllowAll, Authorizer};
use crate::quota::{Quotas, Unlimited};

#[derive(Clone)]
pub struct Permits {
    pub authorizer: Arc<dyn Authorizer>,
    pub quotas: Arc<dyn Quotas>,
}

/// Everyone may do everything, and nobody waits.
impl Default for Permits {
    fn default() -> Permits {
        Permits {
            authorizer: Arc::new(AllowAll),
            quotas: Arc::new(Unlimited),
        }
    }
}

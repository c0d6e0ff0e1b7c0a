//! A broker as clients see it.

/// A live broker, with its endpoint for each listener of this node, in their order; `None` where it
/// has no listener of that name.
#[derive(Clone, Debug)]
pub struct Broker {
    pub node_id: i32,
    pub rack: Option<String>,
    pub endpoints: Vec<Option<Endpoint>>,
}

impl Broker {
    pub fn endpoint(&self, listener: usize) -> Option<&Endpoint> {
        self.endpoints.get(listener)?.as_ref()
    }
}

#[derive(Clone, Debug)]
pub struct Endpoint {
    pub host: String,
    pub port: i32,
}

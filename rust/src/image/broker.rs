//! A broker as clients see it.

/// A live broker: one endpoint per listener, in the order of `listeners`.
#[derive(Clone, Debug)]
pub struct Broker {
    pub node_id: i32,
    pub rack: Option<String>,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug)]
pub struct Endpoint {
    pub host: String,
    pub port: i32,
}

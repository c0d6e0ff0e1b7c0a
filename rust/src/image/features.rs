//! The features of the cluster (KIP-584), as ApiVersions tells them.

/// Features with their levels. A finalised one is at a level; one at level 0 is not listed.
#[derive(Clone, Debug, Default)]
pub struct Features {
    /// Name, lowest and highest level.
    pub supported: Vec<(String, i16, i16)>,
    pub finalized: Vec<(String, i16)>,
    /// The offset in `__cluster_metadata-0` up to which `finalized` is known.
    pub epoch: i64,
    /// Key, lowest and highest version that the active controller answers, of those keys that are
    /// forwarded to it; empty where nothing is.
    pub forwarded: Vec<(i16, i16, i16)>,
}

impl Features {
    /// A replica that is no leader any more leaves the ISR although it is the last one (KIP-966).
    pub fn has_eligible_leaders(&self) -> bool {
        let mut finalized = self.finalized.iter();
        finalized.any(|(name, _)| name == "eligible.leader.replicas.version")
    }
}

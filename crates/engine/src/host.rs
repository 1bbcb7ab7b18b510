//! The host that owns a pool.

/// A host, as recorded in pools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its hostid, or 0.
    pub id: u64,
    /// Its name.
    pub name: String,
}

impl Host {
    /// Its hostid, if it has one.
    pub fn hostid(&self) -> Option<u64> {
        (self.id != 0).then_some(self.id)
    }
}

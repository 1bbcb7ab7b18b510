//! A machine that has a pool.

/// A machine, as pools remember who had them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its hostid; 0 if it has none.
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

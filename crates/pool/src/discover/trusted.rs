//! A found pool without leaves that must not be believed.
//!
//! Idea: a witness knows which leaves lack data that the pool's last user has acknowledged. If other leaves
//! are missing, those would be an older state of the pool, so they are left out. They come back as devices
//! that were away, and are resilvered.

use super::FoundPool;
use crate::config::{VdevConfig, VdevKind};
use crate::error::{PoolError, Result};
use cenote_format::units::{Guid, VdevId};
use std::collections::BTreeSet;

impl FoundPool {
    /// The same without these leaves, unless all devices of the pool are here.
    ///
    /// # Errors
    /// [`PoolError::Unavailable`]: a vdev can't do without them.
    pub fn without(mut self, lacking: &BTreeSet<Guid>) -> Result<FoundPool> {
        let is_here = |guid| self.devices.contains_key(&guid);
        if lacking.is_empty() || self.config.vdevs.iter().all(|top| is_whole(top, &is_here)) {
            return Ok(self);
        }
        let has_all = |guid| is_here(guid) && !lacking.contains(&guid);
        if let Some(top) = self.config.vdevs.iter().find(|top| !suffices(top, &has_all)) {
            let why = "by the witness, the devices that are here lack data that the pool's last user has \
                       acknowledged; attach the others";
            let (pool, vdev) = (self.name().into(), VdevId(top.id));
            return Err(PoolError::Unavailable { pool, vdev, why: why.into() });
        }
        self.devices.retain(|guid, _| !lacking.contains(guid));
        Ok(self)
    }
}

fn is_whole(top: &VdevConfig, is_here: &impl Fn(Guid) -> bool) -> bool {
    let has_device = |leaf: &&VdevConfig| matches!(leaf.kind, VdevKind::Disk | VdevKind::File);
    top.kind != VdevKind::Missing && top.leaves().filter(has_device).all(|leaf| is_here(leaf.guid))
}

/// Whether leaves with all data are enough for a vdev.
fn suffices(vdev: &VdevConfig, has_all: &impl Fn(Guid) -> bool) -> bool {
    let children = || vdev.children.iter().map(|child| suffices(child, has_all));
    match vdev.kind {
        VdevKind::Disk | VdevKind::File => has_all(vdev.guid),
        VdevKind::Raidz | VdevKind::Draid => {
            let ill = children().enumerate().filter(|(_, is_well)| !is_well);
            vdev.failures(ill.map(|(index, _)| index)) <= vdev.parity
        }
        VdevKind::Hole | VdevKind::Indirect => true,
        VdevKind::Missing | VdevKind::DistributedSpare | VdevKind::Unknown(_) => false,
        VdevKind::Root | VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => {
            children().any(|is_well| is_well)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vdev(kind: VdevKind, guid: u64, children: Vec<VdevConfig>) -> VdevConfig {
        VdevConfig { kind, guid: Guid(guid), parity: 1, children, ..VdevConfig::default() }
    }

    #[test]
    fn vdevs_suffice_by_their_kind() {
        let disk = |guid| vdev(VdevKind::Disk, guid, Vec::new());
        let mirror = vdev(VdevKind::Mirror, 10, vec![disk(1), disk(2)]);
        let replacing = vdev(VdevKind::Replacing, 11, vec![disk(3), disk(4)]);
        let raidz = vdev(VdevKind::Raidz, 12, vec![disk(1), disk(2), replacing]);
        let with = |vdev: &VdevConfig, all: &[u64]| suffices(vdev, &|guid: Guid| all.contains(&guid.0));
        assert!(with(&mirror, &[2]) && !with(&mirror, &[3]));
        assert!(with(&raidz, &[1, 4]) && with(&raidz, &[1, 2]) && !with(&raidz, &[3, 4]));
        assert!(with(&vdev(VdevKind::Indirect, 13, Vec::new()), &[]));
        assert!(!with(&vdev(VdevKind::Missing, 14, Vec::new()), &[1]));
    }
}

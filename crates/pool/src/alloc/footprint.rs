//! The allocated size of a block on a top-level vdev, and the alignment of blocks.

use super::unit::Unit;
use crate::config::{VdevConfig, VdevKind};
use crate::vdev::draid::DraidGroup;
use crate::vdev::raidz::Raidz;
use cenote_format::units::{PhysicalBirth, Psize};

#[derive(Debug, Clone)]
pub(super) struct Footprint {
    ashift: u32,
    shape: Shape,
    /// Data disks of a full row.
    pub(super) data_disks: u64,
}

#[derive(Debug, Clone)]
enum Shape {
    Sectors,
    Raidz(Raidz),
    Draid(DraidGroup),
}

impl Footprint {
    pub(super) fn new(config: &VdevConfig) -> Footprint {
        let (children, parity) = (config.children.len(), config.parity);
        let (shape, disks) = match (&config.kind, config.draid) {
            (VdevKind::Raidz, _) => {
                let width = children;
                let expand_txgs = config.raidz_expand_txgs.clone();
                // Until the reflow ends, blocks have the previous width.
                let reflow = config.raidz_expanding.then(Default::default);
                let raidz = Raidz { parity, width, ashift: config.ashift, expand_txgs, reflow };
                (Shape::Raidz(raidz), children)
            }
            (VdevKind::Draid, Some(draid)) => {
                let group = DraidGroup { data: draid.data, parity: parity as u64, ashift: config.ashift };
                (Shape::Draid(group), children.saturating_sub(draid.spares as usize))
            }
            _ => (Shape::Sectors, 1),
        };
        let data_disks = (disks.saturating_sub(parity)).max(1) as u64;
        Footprint { ashift: config.ashift, shape, data_disks }
    }

    /// `vdev_psize_to_asize_txg`.
    pub(super) fn asize(&self, Psize(psize_bytes): Psize, birth: PhysicalBirth) -> u64 {
        match &self.shape {
            Shape::Sectors => psize_bytes.max(1).next_multiple_of(1 << self.ashift),
            Shape::Raidz(raidz) => raidz.asize(psize_bytes, birth),
            Shape::Draid(group) => group.asize(psize_bytes),
        }
    }

    /// A sector, or a row of a dRAID redundancy group.
    pub(super) fn unit(&self) -> Unit {
        Unit::new(match &self.shape {
            Shape::Draid(group) => group.row_bytes(),
            _ => 1 << self.ashift,
        })
    }
}

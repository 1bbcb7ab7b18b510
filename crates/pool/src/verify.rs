//! Verification: every copy and every parity column of many blocks, in disk order.

use crate::check::Check;
use crate::place::Place;
use crate::pool::Pool;
use crate::recover::{FaultKind, recover};
use cenote_format::blkptr::{Blkptr, Dva};
use cenote_format::units::{Guid, VdevId};

/// A block to verify.
#[derive(Debug, Clone, Copy)]
pub struct VerifyItem {
    /// The block.
    pub bp: Blkptr,
    /// Where it belongs, given back in findings.
    pub place: Place,
}

/// What is wrong with a copy or column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The device failed to read it.
    Unreadable,
    /// It is not what was written.
    Checksum,
    /// A parity column that does not fit its data.
    Parity,
    /// No copy of the block can be read or rebuilt: its data is lost.
    Lost,
}

/// One bad copy or column of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Index of the block among the items.
    pub item: usize,
    /// The block.
    pub place: Place,
    /// The top-level vdev of the copy.
    pub vdev: VdevId,
    /// The leaf, if one is to blame.
    pub leaf: Option<Guid>,
    /// Byte offset on that leaf's device, labels included; without a leaf, on the top-level vdev.
    pub offset_bytes: u64,
    /// Bytes there.
    pub len_bytes: u64,
    /// What is wrong.
    pub fault: Fault,
}

impl Pool {
    /// Reads every copy and parity column of these blocks and reports each bad one. Missing devices are not
    /// reported block by block; a block that can't be rebuilt without them is ([`Fault::Lost`]).
    pub async fn verify_many(&self, blocks: Vec<VerifyItem>) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (index, item) in blocks.iter().enumerate() {
            for dva in item.bp.dvas().filter(|dva| !dva.gang) {
                self.examine(index, item, &dva, &mut findings).await;
            }
        }
        findings
    }

    /// Reads all there is of one copy and says what is wrong with it.
    async fn examine(&self, index: usize, item: &VerifyItem, dva: &Dva, findings: &mut Vec<Finding>) {
        let finding = |leaf, offset_bytes, len_bytes, fault| Finding {
            item: index,
            place: item.place,
            vdev: dva.vdev,
            leaf,
            offset_bytes,
            len_bytes,
            fault,
        };
        let psize = item.bp.psize().0 as usize;
        let check = Check::of(&item.bp, self.salt());
        let map = self.vdevs().map(dva, psize, item.bp.physical_birth());
        let recovered = match (check, &map) {
            (Ok(check), Ok(map)) => recover(self, map, psize, &check).await.ok(),
            _ => None,
        };
        let Some(recovered) = recovered else {
            findings.push(finding(None, dva.offset_bytes, dva.asize.0, Fault::Lost));
            return;
        };
        for fault in recovered.faults {
            let kind = match fault.kind {
                FaultKind::Unreadable => Fault::Unreadable,
                FaultKind::WrongData => Fault::Checksum,
                FaultKind::WrongParity => Fault::Parity,
            };
            findings.push(finding(Some(fault.leaf.guid), fault.offset_bytes, fault.len as u64, kind));
        }
    }
}

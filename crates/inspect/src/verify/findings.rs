//! Keeps the worst findings, with a separate limit for each rank.
//!
//! Idea: the number of findings is known only at the end. Until then each rank keeps its first `most`, so
//! that mild findings never displace worse ones. At the end the list is cut, and owners are looked up for the
//! rest.
//!
//! ```text
//!   structures, bad addresses | lost blocks | danger | repairable | notices      first `most` of each
//!   \____________________ first `most` of all ____/ ---> owners ---> report
//! ```
//!
//! Memory: `most` findings per rank, some hundred bytes each, 20 MB with the default of 10,000.

use cenote_dataset::Mos;
use cenote_format::units::{DatasetId, Guid};
use cenote_pool::{Fault, Pool, Zbookmark};
use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::check::Damaged;
use super::owner::{Owner, Owners};
use super::report::{BadBlock, BadPiece, DatasetDamage, DeviceDamage, FaultKind, Finding, Severity};

/// A finding whose owner is not looked up yet.
#[derive(Debug)]
pub(super) enum Found {
    /// An invalid structure.
    Structure(Zbookmark, String),
    /// An invalid address.
    BadAddress(Zbookmark, String),
    /// A damaged block.
    Block(Damaged),
    /// A finding about the pool's own metadata.
    Unowned(Finding),
}

/// Orders the worst first.
type Rank = (Reverse<Severity>, u8);

impl Found {
    fn rank(&self) -> Rank {
        match self {
            // Everything below was not visited, so no other finding reports it.
            Found::Structure(..) | Found::BadAddress(..) => (Reverse(Severity::Lost), 0),
            Found::Block(damaged) if damaged.is_lost() => (Reverse(Severity::Lost), 1),
            Found::Block(_) => (Reverse(Severity::Repairable), 0),
            Found::Unowned(finding) => (Reverse(finding.severity()), 1),
        }
    }

    fn dataset(&self) -> DatasetId {
        match self {
            Found::Structure(place, _) | Found::BadAddress(place, _) => place.dataset,
            Found::Block(damaged) => damaged.item.place.dataset,
            Found::Unowned(_) => DatasetId(0),
        }
    }

    async fn named(self, pool: &Pool, names: &Names, owners: &mut Owners<'_>) -> Finding {
        match self {
            Found::Structure(place, why) => Finding::Structure { owner: owners.of(place, None).await, why },
            Found::BadAddress(place, why) => Finding::BadAddress { owner: owners.of(place, None).await, why },
            Found::Block(damaged) => {
                let owner = owners.of(damaged.item.place, Some(&damaged.item.bp)).await;
                Finding::Block(bad_block(pool, names, &damaged, owner))
            }
            Found::Unowned(finding) => finding,
        }
    }
}

#[derive(Debug)]
pub(super) struct Findings {
    most: usize,
    names: Names,
    kept: BTreeMap<Rank, Vec<Found>>,
    /// The total number, including those not kept.
    pub(super) count: u64,
    pub(super) lost_blocks: u64,
    pub(super) repairable_blocks: u64,
    devices: BTreeMap<Guid, DeviceDamage>,
    /// Numbers of lost and repairable blocks.
    datasets: BTreeMap<DatasetId, (u64, u64)>,
}

impl Findings {
    /// Empty; at most `most` findings will be reported.
    pub(super) fn new(most: usize, names: Names) -> Findings {
        Findings {
            most,
            names,
            kept: BTreeMap::new(),
            count: 0,
            lost_blocks: 0,
            repairable_blocks: 0,
            devices: BTreeMap::new(),
            datasets: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, found: Found) {
        self.count += 1;
        if let Found::Block(damaged) = &found {
            self.blame(damaged);
        }
        let rank = self.kept.entry(found.rank()).or_default();
        if rank.len() < self.most {
            rank.push(found);
        }
    }

    fn blame(&mut self, damaged: &Damaged) {
        let (lost, repairable) = self.datasets.entry(damaged.item.place.dataset).or_default();
        match damaged.is_lost() {
            true => (*lost, self.lost_blocks) = (*lost + 1, self.lost_blocks + 1),
            false => (*repairable, self.repairable_blocks) = (*repairable + 1, self.repairable_blocks + 1),
        }
        for finding in &damaged.findings {
            let Some(guid) = finding.leaf else { continue };
            let device = self.devices.entry(guid).or_default();
            match finding.fault {
                Fault::Unreadable => device.unreadable += 1,
                Fault::Parity => device.parity += 1,
                Fault::Checksum | Fault::CopyLost | Fault::Lost => device.checksum += 1,
            }
            device.bytes += finding.len_bytes;
        }
    }

    pub(super) fn devices(&self, pool: &Pool) -> Vec<DeviceDamage> {
        let named = |(guid, damage): (&Guid, &DeviceDamage)| DeviceDamage {
            device: self.names.of(pool, *guid),
            ..damage.clone()
        };
        self.devices.iter().map(named).collect()
    }

    /// Damage by dataset, most damaged first.
    pub(super) async fn datasets(&self, mos: &Mos) -> Vec<DatasetDamage> {
        let mut owners = Owners::new(mos);
        let mut damage = Vec::with_capacity(self.datasets.len());
        for (&dataset, &(lost_blocks, repairable_blocks)) in &self.datasets {
            let dataset = owners.dataset(dataset).await;
            damage.push(DatasetDamage { dataset, lost_blocks, repairable_blocks });
        }
        damage.sort_by_key(|damage| Reverse((damage.lost_blocks, damage.repairable_blocks)));
        damage
    }

    /// The worst findings, worst first.
    fn worst(self) -> impl Iterator<Item = Found> {
        self.kept.into_values().flatten().take(self.most)
    }

    /// The worst findings with their owners.
    pub(super) async fn named(mut self, mos: &Mos) -> Vec<Finding> {
        let mut owners = Owners::new(mos);
        let names = std::mem::take(&mut self.names);
        let mut found: Vec<(usize, Found)> = self.worst().enumerate().collect();
        // Grouped by dataset, since `Owners` keeps only one open at a time.
        found.sort_by_key(|(_, found)| found.dataset());
        let mut named = Vec::with_capacity(found.len());
        for (place, found) in found {
            named.push((place, found.named(mos.pool(), &names, &mut owners).await));
        }
        named.sort_by_key(|(place, _)| *place);
        named.into_iter().map(|(_, finding)| finding).collect()
    }
}

fn bad_block(pool: &Pool, names: &Names, damaged: &Damaged, owner: Owner) -> BadBlock {
    let piece = |finding: &cenote_pool::Finding| BadPiece {
        vdev: finding.vdev.0,
        device: finding.leaf.map(|guid| names.of(pool, guid)),
        offset_bytes: finding.offset_bytes,
        len_bytes: finding.len_bytes,
        fault: match finding.fault {
            Fault::Unreadable => FaultKind::Unreadable,
            Fault::Checksum => FaultKind::Checksum,
            Fault::Parity => FaultKind::Parity,
            Fault::CopyLost | Fault::Lost => FaultKind::Lost,
        },
    };
    BadBlock {
        lost: damaged.is_lost(),
        owner,
        logical_bytes: damaged.item.bp.lsize().0,
        birth_txg: damaged.item.bp.logical_birth().0,
        pieces: damaged.findings.iter().map(piece).collect(),
    }
}

/// Paths of a pool's devices when its verification began: a device may be replaced meanwhile.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<Guid, String>);

impl Names {
    pub(super) fn now(pool: &Pool) -> Names {
        let found = pool.tree().found();
        Names(found.devices.iter().map(|(guid, device)| (*guid, device.path.clone())).collect())
    }

    fn of(&self, pool: &Pool, guid: Guid) -> String {
        self.0.get(&guid).cloned().unwrap_or_else(|| device_name(pool, guid))
    }
}

/// The path where a leaf was found, otherwise its guid.
pub(super) fn device_name(pool: &Pool, guid: Guid) -> String {
    pool.tree().found().devices.get(&guid).map_or_else(|| guid.to_string(), |device| device.path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Extent;
    use cenote_format::blkptr::Blkptr;
    use cenote_format::units::VdevId;
    use cenote_pool::VerifyItem;

    fn leak(at: u64) -> Found {
        Found::Unowned(Finding::Leaked(Extent::new(VdevId(0), at << 12, 4096)))
    }

    fn block(fault: Fault) -> Found {
        let place = Zbookmark::default();
        let finding = cenote_pool::Finding {
            item: 0,
            place,
            vdev: VdevId(0),
            leaf: None,
            offset_bytes: 0,
            len_bytes: 512,
            fault,
        };
        Found::Block(Damaged { item: VerifyItem { bp: Blkptr::HOLE, place }, findings: vec![finding] })
    }

    #[test]
    fn the_worst_is_kept_however_late_it_comes() {
        let mut findings = Findings::new(4, Names::default());
        (0..10).for_each(|at| findings.add(leak(at)));
        (0..10).for_each(|_| findings.add(block(Fault::Checksum)));
        (0..10).for_each(|_| findings.add(block(Fault::Lost)));
        findings.add(Found::Structure(Zbookmark::default(), "no dnode".into()));
        findings.add(Found::BadAddress(Zbookmark::default(), "beyond the end".into()));
        assert_eq!((findings.lost_blocks, findings.repairable_blocks, findings.count), (10, 10, 32));
        let worst: Vec<Found> = findings.worst().collect();
        let [Found::Structure(..), Found::BadAddress(..), Found::Block(a), Found::Block(b)] = &worst[..]
        else {
            panic!("{worst:?}")
        };
        assert!(a.is_lost() && b.is_lost());
    }
}

//! Expected accounts of datasets, counted block by block, independent of the engine's sums.
//!
//! ```text
//!   referenced      all blocks of a version
//!   unique          those in neither the version before it nor the one after it
//!   used by head    the head's, less those of its origin
//!   by snapshots    those in any of its snapshots and not in the head, less those of its origin
//!   by children     their use, and their unused reservations
//! ```

use std::collections::BTreeMap;

use cenote_dataset::{Dataset, Mos};
use cenote_format::Phys;
use cenote_format::blkptr::Blkptr;
use cenote_format::dsl::DslDirPhys;
use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_object::Zap;
use cenote_object::object::Visited;

/// Blocks of a version by address and birth, with their sizes.
type Blocks = BTreeMap<(u64, u64, Txg), u64>;

/// Compares all accounts of a pool with its blocks.
pub(crate) async fn assert_accounts(mos: &Mos, name: &str) {
    let mut versions: BTreeMap<DatasetId, Blocks> = BTreeMap::new();
    let heads = mos.all_datasets().await.unwrap();
    for head in &heads {
        for version in head.snapshots().await.unwrap().iter().chain([head]) {
            versions.insert(version.id(), blocks(mos, version).await);
        }
    }
    for head in &heads {
        let snapshots = head.snapshots().await.unwrap();
        for version in snapshots.iter().chain([head]) {
            let own = &versions[&version.id()];
            let phys = version.phys();
            let said = format!("{name}: {}", version.name());
            assert_eq!(phys.referenced_bytes, own.values().sum::<u64>(), "{said}: referenced");
            let neighbours =
                [phys.prev_snapshot, phys.next_snapshot].map(|id| versions.get(&DatasetId(id.0)));
            let is_alone = |key| neighbours.iter().flatten().all(|other| !other.contains_key(key));
            let unique = own.iter().filter(|(key, _)| is_alone(key)).map(|(_, bytes)| bytes).sum::<u64>();
            assert_eq!(phys.unique_bytes, unique, "{said}: unique");
        }
        assert_directory(mos, head, &snapshots, &versions, name).await;
    }
}

async fn assert_directory(
    mos: &Mos,
    head: &Dataset,
    snapshots: &[Dataset],
    versions: &BTreeMap<DatasetId, Blocks>,
    name: &str,
) {
    let origin = head.origin().await.unwrap().map_or(Txg(0), |origin| origin.creation_txg());
    let is_own = |key: &(u64, u64, Txg)| key.2 > origin;
    let in_head = &versions[&head.id()];
    let by_head: u64 = in_head.iter().filter(|(key, _)| is_own(key)).map(|(_, bytes)| bytes).sum();
    let mut gone = Blocks::new();
    for snapshot in snapshots {
        let of_snapshot = versions[&snapshot.id()].iter();
        gone.extend(of_snapshot.filter(|(key, _)| is_own(key) && !in_head.contains_key(key)));
    }
    let dir = head.dir().phys();
    let (mut children, mut promised) = (0, 0);
    for entry in Zap::open_id(mos.objset(), dir.child_dirs_zap).await.unwrap().to_vec().await.unwrap() {
        let dnode = mos.objset().dnode(ObjectId(entry.value.as_u64().unwrap())).await.unwrap();
        let child = DslDirPhys::decode(dnode.bonus(), dnode.endian()).unwrap();
        children += child.used_bytes;
        promised += child.reserved_bytes.saturating_sub(child.used_bytes);
    }
    let settings = head.dir().props().await.unwrap().unwrap();
    let refreservation = settings.get_u64("refreservation").await.unwrap().unwrap_or(0);
    let held_back = refreservation.saturating_sub(head.phys().unique_bytes);
    let said = format!("{name}: {}", head.name());
    let used = &dir.used_breakdown;
    assert_eq!(used.head_bytes, by_head, "{said}: used by the dataset");
    assert_eq!(used.snapshots_bytes, gone.values().sum::<u64>(), "{said}: used by snapshots");
    assert_eq!(used.children_bytes, children, "{said}: used by children");
    assert_eq!(used.children_reservation_bytes, promised, "{said}: promised to children");
    assert_eq!(used.refreservation_bytes, held_back, "{said}: used by refreservation");
    let sum = by_head + used.snapshots_bytes + children + promised + held_back;
    assert_eq!(dir.used_bytes, sum, "{said}: used");
}

async fn blocks(mos: &Mos, version: &Dataset) -> Blocks {
    let objset = version.objset().await.unwrap();
    let mut blocks = Blocks::new();
    let mut note = |bp: &Blkptr| {
        if let Some(dva) = bp.dvas().next().filter(|_| !bp.is_embedded()) {
            blocks.insert((dva.vdev.0, dva.offset_bytes, bp.logical_birth()), mos.dsize(bp));
        }
    };
    note(objset.bp());
    let mut objects: Vec<_> = objset.meta().into_iter().collect();
    let mut dnodes = objset.dnodes(ObjectId(0), objset.last_object());
    while let Some(batch) = dnodes.next_batch().await {
        for (id, _) in batch.unwrap().dnodes {
            objects.push(objset.object(id).await.unwrap());
        }
    }
    for object in objects {
        let mut walk = object.walk();
        while let Some(batch) = walk.next_batch().await {
            for visited in batch {
                match visited {
                    Visited::Block { bp, .. } => note(&bp),
                    Visited::Unreadable { error, .. } => panic!("{}: {error}", version.name()),
                }
            }
        }
    }
    blocks
}

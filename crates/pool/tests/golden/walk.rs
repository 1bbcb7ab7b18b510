//! Walks all blocks of a pool, for tests: knows just enough about objects to follow every pointer.

use cenote_device::Bytes;
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr, BlkptrKind};
use cenote_format::dnode::{Dnode, ObjectType};
use cenote_format::dsl::DslDatasetPhys;
use cenote_format::objset::ObjsetPhys;
use cenote_format::words::Phys;
use cenote_pool::{FoundPool, Pool, ReadContext, Zbookmark, discover};
use cenote_runtime::Runtime;
use std::collections::HashSet;

pub async fn find(rt: &Runtime, name: &str) -> FoundPool {
    let golden = cenote_testkit::golden(name);
    let discovery = discover(rt, &[golden.images()]).await;
    assert_eq!(discovery.pools.len(), 1, "{name}: {:?}", discovery.problems);
    let found = discovery.pools.into_iter().next().unwrap();
    assert_eq!(found.name(), golden.facts().pool);
    found
}

/// Every block below the pool's newest root, each once; all are read through `read_many`.
pub async fn all_blocks(pool: &Pool) -> Vec<Blkptr> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let mut level = vec![pool.uberblock().rootbp];
    while !level.is_empty() {
        level.retain(|bp| bp.kind() == BlkptrKind::Normal && seen.insert(bp.words()[..6].to_vec()));
        found.extend(&level);
        level.retain(leads_on);
        let requests = level.iter().map(|bp| (*bp, ReadContext::new(Zbookmark::default()))).collect();
        let blocks = pool.read_many(requests).await;
        let next = level.iter().zip(blocks).flat_map(|(bp, block)| {
            let block = block.unwrap_or_else(|error| panic!("{}: {bp:?}: {error}", pool.name()));
            pointers(bp, &block)
        });
        level = next.collect();
    }
    found
}

fn leads_on(bp: &Blkptr) -> bool {
    bp.level() > 0 || matches!(bp.object_type(), ObjectType::OBJSET | ObjectType::DNODE)
}

fn pointers(bp: &Blkptr, block: &Bytes) -> Vec<Blkptr> {
    let endian = bp.endian();
    if bp.level() > 0 {
        return block.chunks_exact(BLKPTR_BYTES).map(|raw| Blkptr::decode(raw, endian).unwrap()).collect();
    }
    let mut found = Vec::new();
    if bp.object_type() == ObjectType::OBJSET {
        let phys = ObjsetPhys::decode(block, endian).unwrap();
        let dnodes = [phys.meta_dnode, phys.userused_dnode, phys.groupused_dnode, phys.projectused_dnode];
        dnodes.iter().flatten().for_each(|dnode| found.extend(dnode.blkptrs()));
        return found;
    }
    let mut at = 0;
    while at < block.len() {
        let Some(dnode) = Dnode::decode(block.slice(at..), endian).unwrap() else {
            at += 512;
            continue;
        };
        at += usize::from(dnode.slots) * 512;
        found.extend(dnode.blkptrs());
        found.extend(dnode.spill());
        if dnode.bonus_type == ObjectType::DSL_DATASET
            && let Ok(dataset) = DslDatasetPhys::decode(dnode.bonus(), endian)
        {
            found.push(dataset.bp);
        }
    }
    found
}

//! Changes of block lists and packed lists, against models in memory.

use std::collections::BTreeMap;

use cenote_format::blkptr::Blkptr;
use cenote_format::bpobj::BpobjEntry;
use cenote_format::dnode::ObjectType;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::units::{ObjectId, Txg};
use cenote_object::deadlist::{BlockLists, Bpobj, Deadlist, DeadlistEdit, Remains};
use cenote_object::feature_counts::FeatureCounts;
use cenote_object::{Edit, LiveObjset, NewObject, Objset};
use cenote_runtime::{Rng, Runtime};
use cenote_testkit::{golden, golden_pools};

use crate::open;

/// File's data or indirect block, or an embedded one.
fn block(rng: &mut Rng, birth: u64) -> BpobjEntry {
    let mut words = [0; 16];
    let (psize, lsize) = (rng.below(16), 255);
    let level = rng.below(4) / 3;
    words[6] = lsize | psize << 16 | 19 << 48 | level << 56 | 1 << 63;
    words[10] = birth;
    if rng.below(8) == 0 {
        words[6] |= 1 << 39;
    } else {
        (words[0], words[1]) = (psize + 1, rng.below(1 << 40));
        words[11..].fill(rng.next_u64());
    }
    BpobjEntry { bp: Blkptr::from_words(words), freed: false }
}

fn dsize(bp: &Blkptr) -> u64 {
    bp.asize().0 * 3 / 4
}

type Model = BTreeMap<Txg, Vec<[u64; 16]>>;

/// Checks every list's entries and counts against the model.
async fn check(view: &Objset, id: ObjectId, model: &Model) {
    let deadlist = Deadlist::open(view, id).await.unwrap();
    let Deadlist::ByBirth { phys, .. } = &deadlist else { panic!("by birth") };
    let lists = deadlist.by_birth().await.unwrap();
    assert_eq!(
        lists.iter().map(|(key, _)| *key).collect::<Vec<_>>(),
        model.keys().copied().collect::<Vec<_>>()
    );
    let mut total = [0; 3];
    for ((key, list), wanted) in lists.iter().zip(model.values()) {
        let list = Bpobj::open(view, *list).await.unwrap();
        let (held, sums) = content(&list, dsize).await;
        let mut wanted = wanted.clone();
        wanted.sort_unstable();
        assert_eq!(held, wanted, "list {key:?}");
        let phys = list.phys();
        assert_eq!([phys.bytes, phys.compressed_bytes, phys.uncompressed_bytes], sums, "list {key:?}");
        total.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
    }
    assert_eq!([phys.used_bytes, phys.compressed_bytes, phys.uncompressed_bytes], total);
}

/// Entries of a list sorted by words, and their space.
async fn content(list: &Bpobj, dsize: impl Fn(&Blkptr) -> u64) -> (Vec<[u64; 16]>, [u64; 3]) {
    let (mut held, mut sums) = (Vec::new(), [0u64; 3]);
    let mut entries = list.entries();
    while let Some(batch) = entries.next_batch().await {
        for BpobjEntry { bp, freed } in batch.unwrap() {
            let stored = if bp.is_embedded() { 0 } else { bp.psize().0 };
            let is_metadata = bp.level() > 0 || bp.object_type().is_metadata();
            let unpacked = if is_metadata { stored } else { bp.lsize().0 };
            for (sum, bytes) in sums.iter_mut().zip([dsize(&bp), stored, unpacked]) {
                // Livelists subtract freed blocks.
                *sum = if freed { sum.wrapping_sub(bytes) } else { sum.wrapping_add(bytes) };
            }
            held.push(*bp.words());
        }
    }
    held.sort_unstable();
    (held, sums)
}

/// Snapshots come and go, blocks die.
#[test]
fn deadlists_hold_what_a_model_holds() {
    let rt = Runtime::real(Some(2));
    let pool = golden("single");
    let seed = rt.random_u64();
    eprintln!("seed {seed:#x}");
    rt.block_on(async {
        let mos = open(&rt, &pool).await;
        let live = LiveObjset::new(mos.objset().clone(), Txg(1 << 40));
        let edit = live.edit();
        let lists = BlockLists::new(&edit, &dsize);
        let shared_before = FeatureCounts::of(&edit).count("empty_bpobj").await.unwrap();
        let mut rng = Rng::new(seed);
        let mut all = Vec::new();
        for _ in 0..3 {
            let mut deadlist = DeadlistEdit::create(lists).await.unwrap();
            let mut model = Model::new();
            for key in (0..10).map(|key| Txg(key * 100)) {
                deadlist.add_key(key).await.unwrap();
                model.insert(key, Vec::new());
            }
            for _ in 0..60 {
                change(&mut deadlist, &mut model, &mut rng).await;
            }
            deadlist.store().await.unwrap();
            check(&edit.view(), deadlist.object(), &model).await;
            all.push((deadlist, model));
        }
        let (mut kept, mut kept_model) = all.remove(0);
        for (other, model) in all {
            kept.merge(other).await.unwrap();
            for (key, entries) in model {
                kept_model.range_mut(..=key).next_back().unwrap().1.extend(entries);
            }
            kept.store().await.unwrap();
            check(&edit.view(), kept.object(), &kept_model).await;
        }
        let plain = lists.create().await.unwrap();
        kept.move_to(plain, Txg(300)).await.unwrap();
        let mut moved: Vec<_> = kept_model.split_off(&Txg(300)).into_values().flatten().collect();
        moved.sort_unstable();
        check(&edit.view(), kept.object(), &kept_model).await;
        let plain_list = Bpobj::open(&edit.view(), plain).await.unwrap();
        let (held, sums) = content(&plain_list, dsize).await;
        assert!(held == moved && plain_list.phys().bytes == sums[0]);

        let clone = kept.clone_keys(Txg(200)).await.unwrap();
        let keys = kept_model.range(..Txg(200)).map(|(key, _)| (*key, Vec::new())).collect();
        check(&edit.view(), clone, &keys).await;
        DeadlistEdit::open(lists, clone).await.unwrap().free().await.unwrap();
        kept.free().await.unwrap();
        lists.free(plain).await.unwrap();
        let shared = FeatureCounts::of(&edit).count("empty_bpobj").await.unwrap();
        assert_eq!(shared, shared_before);
    });
}

async fn change(deadlist: &mut DeadlistEdit<'_>, model: &mut Model, rng: &mut Rng) {
    let newest = model.keys().next_back().copied().unwrap();
    let any = *model.keys().nth(rng.below(model.len() as u64) as usize).unwrap();
    match rng.below(6) {
        0 => {
            let key = Txg(newest.0 + 1 + rng.below(100));
            deadlist.add_key(key).await.unwrap();
            model.insert(key, Vec::new());
        }
        1 if any.0 > 0 => {
            deadlist.remove_key(any).await.unwrap();
            let entries = model.remove(&any).unwrap();
            model.range_mut(..any).next_back().unwrap().1.extend(entries);
        }
        _ => {
            // Sometimes more than the 1024 of a block.
            let count = if rng.below(5) == 0 { 3000 } else { rng.below(40) };
            let entries: Vec<_> = (0..count)
                .map(|_| {
                    let birth = 1 + rng.below(newest.0 + 100);
                    block(rng, birth)
                })
                .collect();
            deadlist.insert(&entries).await.unwrap();
            for entry in entries {
                let list = model.range_mut(..entry.bp.logical_birth()).next_back().unwrap().1;
                list.push(*entry.to_blkptr().words());
            }
        }
    }
}

/// OpenZFS's deadlists merge into new ones without loss, and their counts fit.
#[test]
fn golden_deadlists_merge_without_loss() {
    let rt = Runtime::real(Some(2));
    for pool in golden_pools() {
        let name = pool.name();
        rt.block_on(async {
            let mos = open(&rt, &pool).await;
            let live = LiveObjset::new(mos.objset().clone(), Txg(1 << 40));
            let edit = live.edit();
            let dsize = |bp: &Blkptr| mos.dsize(bp);
            let lists = BlockLists::new(&edit, &dsize);
            for id in deadlists(mos.objset()).await {
                let old = DeadlistEdit::open(lists, id).await.unwrap();
                let (before, sums) = all_entries(&edit, id, dsize).await;
                let space = old.space();
                let counted = [space.used_bytes, space.compressed_bytes, space.uncompressed_bytes];
                assert_eq!(counted, sums, "{name}: {id}");
                let new = old.clone_keys(Txg(u64::MAX)).await.unwrap();
                let mut new = DeadlistEdit::open(lists, new).await.unwrap();
                new.merge(old).await.unwrap();
                new.store().await.unwrap();
                assert_eq!(all_entries(&edit, new.object(), dsize).await.0, before, "{name}: {id}");
                assert_eq!(new.space(), space, "{name}: {id}");
                assert!(DeadlistEdit::open(lists, id).await.is_err(), "it is gone");
            }
        });
    }
}

async fn deadlists(mos: &Objset) -> Vec<ObjectId> {
    let mut found = Vec::new();
    let mut dnodes = mos.dnodes(ObjectId(1), mos.last_object());
    while let Some(batch) = dnodes.next_batch().await {
        for (id, dnode) in batch.unwrap().dnodes {
            if dnode.object_type == ObjectType::DEADLIST {
                found.push(id);
            }
        }
    }
    found
}

async fn all_entries(
    edit: &Edit,
    id: ObjectId,
    dsize: impl Fn(&Blkptr) -> u64,
) -> (Vec<[u64; 16]>, [u64; 3]) {
    let (mut all, mut total) = (Vec::new(), [0u64; 3]);
    for list in Deadlist::open(&edit.view(), id).await.unwrap().lists().await.unwrap() {
        let (held, sums) = content(&list, &dsize).await;
        all.extend(held);
        total.iter_mut().zip(sums).for_each(|(total, sum)| *total = total.wrapping_add(sum));
    }
    all.sort_unstable();
    (all, total)
}

#[test]
fn packed_lists_are_rewritten_shorter_and_longer() {
    let rt = Runtime::real(Some(2));
    let pool = golden("single");
    rt.block_on(async {
        let mos = open(&rt, &pool).await;
        let live = LiveObjset::new(mos.objset().clone(), Txg(1 << 40));
        let edit = live.edit();
        let new = NewObject::of(ObjectType::PACKED_NVLIST).block_bytes(512);
        let id = edit.create(&new).await.unwrap();
        for count in [3, 400, 20] {
            let mut list = Nvlist::new();
            for i in 0..count {
                list.insert(&format!("key {i}"), NvValue::Uint64(i * count));
            }
            edit.write_nvlist(id, &list).await.unwrap();
            let object = edit.view().object(id).await.unwrap();
            let size = u64::from_ne_bytes(object.dnode().bonus().try_into().unwrap());
            let packed = object.read(0, size as usize).await.unwrap();
            let read = Nvlist::decode(&packed).unwrap();
            assert!(read.iter().eq(list.iter()));
        }
    });
}

/// Counts changes of a deadlist with `keys` keys, when all its keys and then the deadlist are removed.
async fn changes_of_going(live: &LiveObjset, keys: u64) -> u64 {
    let edit = live.edit();
    let lists = BlockLists::new(&edit, &|_| 512);
    let mut deadlist = DeadlistEdit::create(lists).await.unwrap();
    for key in 0..keys {
        deadlist.add_key(Txg(key)).await.unwrap();
    }
    let next = deadlist.clone_keys(Txg(u64::MAX)).await.unwrap();
    let mut next = DeadlistEdit::open(lists, next).await.unwrap();
    let before = edit.changes();
    deadlist.drop_from(Txg(1)).await.unwrap();
    next.drop_from(Txg(1)).await.unwrap();
    next.merge(deadlist).await.unwrap();
    next.free().await.unwrap();
    edit.changes() - before
}

/// Otherwise, destroying snapshots would cost the square of their number.
#[test]
fn a_deadlist_goes_at_a_cost_that_does_not_depend_on_its_keys() {
    let rt = Runtime::real(Some(2));
    let pool = golden("single");
    rt.block_on(async {
        let mos = open(&rt, &pool).await;
        let live = LiveObjset::new(mos.objset().clone(), Txg(1 << 40));
        let few = changes_of_going(&live, 10).await;
        assert_eq!(changes_of_going(&live, 1000).await, few);
        assert!(few < 30, "{few} changes");
    });
}

/// Merges deadlists into one by way of `Remains`; returns the changes that took.
async fn changes_of_dissolving(live: &LiveObjset, count: usize, rng: &mut Rng) -> u64 {
    let edit = live.edit();
    let lists = BlockLists::new(&edit, &dsize);
    let (mut all, mut model) = (Vec::new(), Model::new());
    for _ in 0..=count {
        let mut deadlist = DeadlistEdit::create(lists).await.unwrap();
        for key in (0..12).map(|key| Txg(key * 100)) {
            deadlist.add_key(key).await.unwrap();
            model.entry(key).or_default();
        }
        // The keys from 900 on stay empty.
        let entries: Vec<_> = (0..30)
            .map(|n| {
                let birth = 1 + n % 9 * 100 + rng.below(100);
                block(rng, birth)
            })
            .collect();
        deadlist.insert(&entries).await.unwrap();
        deadlist.store().await.unwrap();
        for entry in entries {
            let list = model.range_mut(..entry.bp.logical_birth()).next_back().unwrap().1;
            list.push(*entry.to_blkptr().words());
        }
        all.push(deadlist.object());
    }
    let mut kept = DeadlistEdit::open(lists, all.remove(0)).await.unwrap();
    let (before, mut remains) = (edit.changes(), Remains::default());
    for id in all {
        let going = DeadlistEdit::open_last(lists, id).await.unwrap();
        let aside = going.put_aside();
        assert_eq!(aside.key_count(), 9, "only keys with lists of their own are kept");
        DeadlistEdit::resume(lists, id, aside).dissolve(&mut remains).await.unwrap();
    }
    kept.absorb(remains).await.unwrap();
    kept.store().await.unwrap();
    let changes = edit.changes() - before;
    check(&edit.view(), kept.object(), &model).await;
    kept.free().await.unwrap();
    changes
}

/// If each were merged into the next, lists would move again and again.
#[test]
fn deadlists_of_a_run_merge_at_a_cost_in_proportion_to_their_number() {
    let rt = Runtime::real(Some(2));
    let pool = golden("single");
    let mut rng = Rng::new(rt.random_u64());
    rt.block_on(async {
        let mos = open(&rt, &pool).await;
        let live = LiveObjset::new(mos.objset().clone(), Txg(1 << 40));
        let shared_before = FeatureCounts::of(&live.edit()).count("empty_bpobj").await.unwrap();
        let few = changes_of_dissolving(&live, 4, &mut rng).await;
        let many = changes_of_dissolving(&live, 32, &mut rng).await;
        assert!(many < few * 9, "{few} changes for 4, {many} for 32");
        let shared = FeatureCounts::of(&live.edit()).count("empty_bpobj").await.unwrap();
        assert_eq!(shared, shared_before);
    });
}

//! Changes of ZAPs, against a model in memory and OpenZFS's layout of the same names.

use std::collections::{BTreeMap, BTreeSet};

use cenote_format::dnode::ObjectType;
use cenote_format::units::{BlockId, ObjectId, Txg};
use cenote_format::zap::{Leaf, ZAP_FLAG_HASH64, ZAP_FLAG_PRE_HASHED_KEY, ZAP_FLAG_UINT64_KEY};
use cenote_object::zap::fold::{U8_CANON_DECOMP, U8_TEXTPREP_TOUPPER};
use cenote_object::{DatasetError, LiveObjset, NewZap, Objset, Zap, ZapEdit, ZapKey, ZapValue};
use cenote_runtime::{Rng, Runtime};
use cenote_testkit::{golden, golden_pools};

use crate::open;
use crate::zap_audit::audit;

/// Object set for new objects.
async fn scratch(rt: &Runtime) -> LiveObjset {
    let pool = golden("single");
    let mos = open(rt, &pool).await;
    LiveObjset::new(mos.objset().clone(), Txg(1 << 40))
}

/// Parameters of a random run.
struct Run {
    zap: NewZap,
    /// Number of possible names.
    names: u64,
    steps: u64,
    /// Whether values may be arrays.
    arrays: bool,
    name: fn(u64) -> Vec<u8>,
    /// Minimum blocks reached, to prove growth.
    blocks: u64,
}

fn short(n: u64) -> Vec<u8> {
    format!("file-{n}").into_bytes()
}

/// Lengths from 1 to 250.
fn any_length(n: u64) -> Vec<u8> {
    format!("{n}{}", "x".repeat((n * 7919 % 245) as usize)).into_bytes()
}

/// Up to eight spellings that normalize to one name.
fn spelled(n: u64) -> Vec<u8> {
    let spell = |i: u32, c: &str| if n >> i & 1 == 1 { c.to_uppercase() } else { c.into() };
    format!("{}{}{}{}", spell(0, "ab"), spell(1, "\u{e4}"), spell(2, "x"), n / 8).into_bytes()
}

fn value(rng: &mut Rng, arrays: bool) -> ZapValue {
    if !arrays || rng.below(3) == 0 {
        return ZapValue::from_u64(rng.next_u64());
    }
    let int_bytes = [1, 2, 4, 8][rng.below(4) as usize];
    let mut raw = vec![0; rng.below(12) as usize * usize::from(int_bytes)];
    rng.fill(&mut raw);
    ZapValue::new(int_bytes, raw.into())
}

#[test]
fn a_changed_zap_holds_what_a_map_holds() {
    let plain = || NewZap::of(ObjectType::DIRECTORY_CONTENTS);
    let fold = U8_TEXTPREP_TOUPPER | U8_CANON_DECOMP;
    let small = |shift| plain().with_flags(ZAP_FLAG_HASH64, shift);
    let runs = [
        Run { zap: plain(), names: 800, steps: 6000, arrays: false, name: short, blocks: 1 },
        Run { zap: plain(), names: 40_000, steps: 60_000, arrays: false, name: short, blocks: 100 },
        Run { zap: plain(), names: 3000, steps: 12_000, arrays: true, name: any_length, blocks: 20 },
        Run {
            zap: plain().normalized(fold),
            names: 1500,
            steps: 6000,
            arrays: false,
            name: spelled,
            blocks: 1,
        },
        Run {
            zap: plain().normalized(fold),
            names: 900,
            steps: 2500,
            arrays: true,
            name: spelled,
            blocks: 3,
        },
        Run { zap: small(10), names: 20_000, steps: 40_000, arrays: true, name: short, blocks: 1000 },
        Run { zap: small(9), names: 12_000, steps: 20_000, arrays: false, name: short, blocks: 1000 },
    ];
    let rt = Runtime::real(Some(2));
    let seed = rt.random_u64();
    rt.block_on(async {
        let live = scratch(&rt).await;
        for (i, run) in runs.iter().enumerate() {
            eprintln!("run {i}, seed {seed:#x}");
            random_run(&live, run, Rng::stream(seed, i as u64)).await;
        }
    });
}

async fn random_run(live: &LiveObjset, run: &Run, mut rng: Rng) {
    let edit = live.edit();
    let id = run.zap.create(&edit).await.unwrap();
    let zap = ZapEdit::new(&edit, id);
    let mut model: BTreeMap<Vec<u8>, ZapValue> = BTreeMap::new();
    // Grows, shrinks to little, and grows again.
    for step in 0..run.steps {
        let is_shrinking = (run.steps / 2..run.steps * 3 / 4).contains(&step);
        let name = (run.name)(rng.below(run.names));
        let key = ZapKey::Name(&name);
        let new = value(&mut rng, run.arrays);
        match rng.below(10) {
            0..6 if !is_shrinking => {
                let added = zap.add(key, &new).await;
                match model.get(&name) {
                    None => added.unwrap(),
                    Some(_) => assert!(matches!(added, Err(DatasetError::EntryExists { .. })), "{added:?}"),
                }
                model.entry(name).or_insert(new);
            }
            6 => {
                zap.update(key, &new).await.unwrap();
                model.insert(name, new);
            }
            _ => {
                let wanted = match is_shrinking {
                    true => model.range(name.clone()..).next().map_or(name, |(name, _)| name.clone()),
                    false => name,
                };
                let removed = zap.remove(ZapKey::Name(&wanted)).await;
                match model.remove(&wanted) {
                    Some(_) => removed.unwrap(),
                    None => assert!(matches!(removed, Err(DatasetError::NoEntry { .. })), "{removed:?}"),
                }
            }
        }
    }
    check(&edit.view(), id, &model).await;
    let blocks = edit.view().dnode(id).await.unwrap().max_block_id.0 + 1;
    assert!(blocks >= run.blocks, "{blocks} blocks");
    for (name, value) in model.iter().step_by(17) {
        assert_eq!(zap.get(name.as_slice()).await.unwrap().as_ref(), Some(value));
    }
    let names: Vec<Vec<u8>> = model.keys().cloned().collect();
    for name in &names {
        zap.remove(name.as_slice()).await.unwrap();
    }
    check(&edit.view(), id, &BTreeMap::new()).await;
}

/// The ZAP holds exactly the model and is whole.
async fn check(view: &Objset, id: ObjectId, model: &BTreeMap<Vec<u8>, ZapValue>) {
    let zap = Zap::open_id(view, id).await.unwrap();
    audit(&zap).await;
    assert_eq!(zap.count(), model.len() as u64);
    let listed = zap.to_vec().await.unwrap();
    assert_eq!(listed.len(), model.len());
    for entry in &listed {
        assert_eq!(model.get(&entry.name[..]), Some(&entry.value), "{:?}", entry.name_text());
    }
    for (name, value) in model {
        assert_eq!(zap.lookup(name).await.unwrap().as_ref(), Some(value));
    }
}

/// A block held by a reader or a syncing txg does not change.
#[test]
fn a_block_that_somebody_looks_at_does_not_change() {
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let live = scratch(&rt).await;
        let edit = live.edit();
        let id = NewZap::of(ObjectType::ZAP_OTHER).create(&edit).await.unwrap();
        let zap = ZapEdit::new(&edit, id);
        zap.add("a", 1).await.unwrap();
        let held = Zap::open_id(&edit.view(), id).await.unwrap();
        zap.update("a", 2).await.unwrap();
        zap.add("b", &ZapValue::from_text("makes it fat")).await.unwrap();
        assert_eq!(held.lookup(b"a").await.unwrap(), Some(1.into()));
        let now = Zap::open_id(&edit.view(), id).await.unwrap();
        assert_eq!(now.lookup(b"a").await.unwrap(), Some(2.into()));
        assert_eq!(now.lookup(b"b").await.unwrap().unwrap().as_text().unwrap(), "makes it fat");
        assert_eq!(
            Zap::open_id(&live.on_disk(), ObjectId(1)).await.unwrap().get_u64("a").await.unwrap(),
            None
        );
    });
}

/// OpenZFS doubles a large table block by block, and may stop halfway.
#[test]
fn a_table_that_is_half_copied_is_finished() {
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let live = scratch(&rt).await;
        let edit = live.edit();
        let id =
            NewZap::of(ObjectType::ZAP_OTHER).with_flags(ZAP_FLAG_HASH64, 10).create(&edit).await.unwrap();
        let block = async |number: u64| {
            edit.view().object(id).await.unwrap().read_block(BlockId(number)).await.unwrap().0
        };
        let (mut model, mut n) = (BTreeMap::new(), 0);
        let mut add = async |model: &mut BTreeMap<Vec<u8>, ZapValue>| {
            ZapEdit::new(&edit, id).add(&short(n)[..], n).await.unwrap();
            model.insert(short(n), n.into());
            n += 1;
        };
        let words = |bytes: &[u8]| -> Vec<u64> {
            bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
        };
        while words(&block(0).await)[3] < 4 {
            add(&mut model).await;
        }
        let mut header = words(&block(0).await);
        let (first, blocks, next) = (header[2], header[3], header[7]);
        (header[5], header[6], header[7]) = (next, 1, next + 2 * blocks);
        let copied: Vec<u64> = words(&block(first).await).iter().flat_map(|&pointer| [pointer; 2]).collect();
        edit.write_words(id, next * 128, &copied).await.unwrap();
        edit.write_words(id, 0, &header).await.unwrap();
        for _ in 0..3000 {
            add(&mut model).await;
        }
        let header = words(&block(0).await);
        assert!(header[2] != first && header[3] >= 2 * blocks);
        check(&edit.view(), id, &model).await;
    });
}

/// Txg that only read tables writes nothing.
#[test]
fn looking_into_a_table_changes_nothing() {
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let live = scratch(&rt).await;
        let edit = live.edit();
        let mut tables = fat_tables(&live.view()).await;
        tables.push(ObjectId(1));
        for id in tables {
            for entry in Zap::open_id(&live.view(), id).await.unwrap().to_vec().await.unwrap() {
                let found = ZapEdit::new(&edit, id).get(&entry.name[..]).await.unwrap();
                assert_eq!(found, Some(entry.value));
            }
            assert_eq!(ZapEdit::new(&edit, id).get("no such entry").await.unwrap(), None);
        }
        assert!(!live.is_dirty());
        ZapEdit::new(&edit, ObjectId(1)).add("no such entry", 1).await.unwrap();
        assert!(live.is_dirty());
    });
}

/// Numeric keys, many with the same hash.
#[test]
fn keys_of_numbers_and_crowds_of_one_hash() {
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let live = scratch(&rt).await;
        let edit = live.edit();
        let flags = ZAP_FLAG_HASH64 | ZAP_FLAG_UINT64_KEY | ZAP_FLAG_PRE_HASHED_KEY;
        let id = NewZap::of(ObjectType::DDT_ZAP).with_flags(flags, 15).create(&edit).await.unwrap();
        let zap = ZapEdit::new(&edit, id);
        let key = |n: u64| [(n / 40).wrapping_mul(0x9E37_79B9_7F4A_7C15), n, 1, 2, 3];
        for n in 0..20_000 {
            zap.add(&key(n)[..], &ZapValue::from_words(&[n, n * n])).await.unwrap();
        }
        for n in (0..20_000).step_by(3) {
            zap.remove(&key(n)[..]).await.unwrap();
        }
        for n in (0..20_000).step_by(6) {
            zap.add(&key(n)[..], n).await.unwrap();
        }
        let reader = Zap::open_id(&edit.view(), id).await.unwrap();
        audit(&reader).await;
        for n in 0..20_000 {
            let wanted = match n % 6 {
                0 => Some(ZapValue::from_u64(n)),
                3 => None,
                _ => Some(ZapValue::from_words(&[n, n * n])),
            };
            assert_eq!(reader.lookup_words(&key(n)).await.unwrap(), wanted, "{n}");
        }
        let refused = zap.add("a name", 1).await;
        assert!(matches!(refused, Err(DatasetError::EntryRefused { .. })), "{refused:?}");

        // Splitting cannot separate equal hashes.
        let crowd = async |n: u64| zap.add(&[7 << 50, n][..], 1).await;
        let mut n = 0;
        while crowd(n).await.is_ok() {
            n += 1;
        }
        assert!(matches!(crowd(n).await, Err(DatasetError::EntryRefused { .. })));
        let reader = Zap::open_id(&edit.view(), id).await.unwrap();
        audit(&reader).await;
        assert!(n > 300 && reader.lookup_words(&[7 << 50, n - 1]).await.unwrap().is_some(), "{n}");
    });
}

#[test]
fn counters_vanish_at_zero_and_bad_entries_are_refused() {
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let live = scratch(&rt).await;
        let edit = live.edit();
        let id = NewZap::of(ObjectType::USERGROUP_USED).create(&edit).await.unwrap();
        let zap = ZapEdit::new(&edit, id);
        assert_eq!(zap.increment("a", 5).await.unwrap(), 5);
        assert_eq!(zap.increment("a", -2).await.unwrap(), 3);
        assert_eq!(zap.get("a").await.unwrap(), Some(3.into()));
        assert_eq!(zap.increment("a", -3).await.unwrap(), 0);
        assert_eq!(zap.increment("b", 0).await.unwrap(), 0);
        check(&edit.view(), id, &BTreeMap::new()).await;
        let long = "n".repeat(256);
        for name in ["", "a\0b", &long] {
            let refused = zap.add(name, 1).await;
            assert!(matches!(refused, Err(DatasetError::EntryRefused { .. })), "{refused:?}");
        }
        let large = ZapValue::new(1, vec![0; 8193].into());
        assert!(matches!(zap.add("a", &large).await, Err(DatasetError::EntryRefused { .. })));
        check(&edit.view(), id, &BTreeMap::new()).await;
    });
}

/// Without removals, a table's leaves depend on its names alone, so OpenZFS's leaves must reappear.
#[test]
fn the_names_of_a_golden_table_make_the_same_leaves() {
    let rt = Runtime::real(Some(2));
    let (mut same, mut compared) = (0, 0);
    for pool in golden_pools() {
        rt.block_on(async {
            let mos = open(&rt, &pool).await;
            let mut sets = vec![mos.objset().clone()];
            for dataset in mos.all_datasets().await.unwrap() {
                sets.extend(dataset.objset().await.ok());
            }
            for set in sets {
                for id in fat_tables(&set).await {
                    let old = Zap::open_id(&set, id).await.unwrap();
                    let (leaves, again) = (leaves(&old).await, made_again(&set, &old).await);
                    compared += 1;
                    same += u32::from(leaves == again);
                }
            }
        });
    }
    eprintln!("{same} of {compared} tables have the same leaves");
    // Removed names may leave additional leaves.
    assert!(compared > 0 && same * 10 >= compared * 9, "{same} of {compared}");
}

/// Fat tables of text names in native byte order.
async fn fat_tables(set: &Objset) -> Vec<ObjectId> {
    let mut found = Vec::new();
    let mut dnodes = set.dnodes(ObjectId(1), set.last_object());
    while let Some(batch) = dnodes.next_batch().await {
        let Ok(batch) = batch else { continue };
        for (id, dnode) in batch.dnodes {
            if dnode.object_type.is_zap() && dnode.max_block_id.0 > 0 {
                found.push(id);
            }
        }
    }
    let mut tables = Vec::new();
    for id in found {
        match Zap::open_id(set, id).await {
            Ok(zap) if !zap.has_word_keys() && zap.to_vec().await.is_ok() => tables.push(id),
            _ => {}
        }
    }
    tables
}

/// Prefixes and lengths of a table's leaves.
async fn leaves(zap: &Zap) -> BTreeSet<(u32, u64)> {
    let object = zap.object();
    let mut leaves = BTreeSet::new();
    for id in 1..=object.dnode().max_block_id.0 {
        let (block, endian) = object.read_block(BlockId(id)).await.unwrap();
        if let Ok(leaf) = Leaf::decode(block, endian) {
            leaves.insert((leaf.prefix_len, leaf.prefix));
        }
    }
    leaves
}

/// Leaves of a new table with the same salt and names, added in value order.
async fn made_again(set: &Objset, old: &Zap) -> BTreeSet<(u32, u64)> {
    let live = LiveObjset::new(set.clone(), Txg(1 << 40));
    let edit = live.edit();
    let (header, endian) = old.object().read_block(BlockId(0)).await.unwrap();
    let word = |index: usize| endian.u64(header[index * 8..index * 8 + 8].try_into().unwrap());
    let new = NewZap::of(old.object().dnode().object_type).normalized(word(11)).salt(word(10));
    let new = if word(12) == 0 { new } else { new.with_flags(word(12), header.len().ilog2()) };
    let id = new.create(&edit).await.unwrap();
    let mut entries = old.to_vec().await.unwrap();
    entries.sort_by_key(|entry| entry.value.as_u64());
    for entry in &entries {
        ZapEdit::new(&edit, id).add(&entry.name[..], &entry.value).await.unwrap();
    }
    let again = Zap::open_id(&edit.view(), id).await.unwrap();
    for entry in entries {
        assert_eq!(again.lookup(&entry.name).await.unwrap(), Some(entry.value));
    }
    leaves(&again).await
}

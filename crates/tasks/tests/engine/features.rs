//! Features enabled in an open pool affect later writes.

use bytes::Bytes;
use cenote_dataset::FeatureState;
use cenote_engine::Engine;
use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::pool as names;
use cenote_format::features::{Feature, SPA_FEATURES};
use cenote_format::units::{BlockId, Psize};
use cenote_object::{NewObject, ZapEdit, ZapValue};
use cenote_pool::alloc::{AllocClass, AllocRequest};
use cenote_pool::{ReadContext, VdevKind};
use cenote_runtime::{Rng, Runtime};
use cenote_tasks::PoolSetting;

use crate::common::{POOL, assert_zdb_is_content, create, create_with, create_with_sectors, reopen};

const RECORD_BYTES: u32 = 4096;

/// `zpool upgrade` in the daemon. A hole without a birth looks as old as the file: an incremental stream
/// would leave the old bytes in its place.
#[test]
fn features_enabled_in_an_open_pool_take_effect_with_the_next_txg() {
    let rt = Runtime::real(Some(2));
    let folder = tempfile::tempdir().unwrap();
    rt.block_on(async {
        let before = ["lz4_compress", "extensible_dataset", "async_destroy"];
        let before = before.into_iter().filter_map(Feature::by_name).collect();
        let engine = create_with(&rt, folder.path(), &(VdevKind::Disk, 0, 1), before).await;
        let dataset = engine.dataset(POOL).await.unwrap();
        let hold = engine.hold().await.unwrap();
        let new = NewObject::of(ObjectType::UINT64_OTHER).block_bytes(RECORD_BYTES);
        let object = dataset.edit(&hold).create(&new).await.unwrap();
        for block in 0..8 {
            let data = vec![b'0' + block as u8; RECORD_BYTES as usize];
            dataset.edit(&hold).write_block(object, BlockId(block), data.into()).await.unwrap();
        }
        drop(hold);
        engine.sync_all().await.unwrap();

        for name in ["hole_birth", "embedded_data"] {
            let feature = Feature::by_name(name).unwrap();
            cenote_tasks::set_pool(&engine, PoolSetting::Feature(feature)).await.unwrap();
        }
        let hold = engine.hold().await.unwrap();
        let txg = hold.txg();
        dataset.edit(&hold).punch(object, BlockId(2), 2).await.unwrap();
        let short = Bytes::from(vec![b'x'; RECORD_BYTES as usize]);
        dataset.edit(&hold).write_block(object, BlockId(5), short).await.unwrap();
        drop(hold);
        engine.sync_all().await.unwrap();

        let object = dataset.live().on_disk().object(object).await.unwrap();
        let hole = object.blkptr(0, BlockId(2)).await.unwrap();
        assert!(hole.is_hole());
        assert_eq!(hole.logical_birth(), txg, "the hole does not say when it was made");
        assert!(object.blkptr(0, BlockId(5)).await.unwrap().is_embedded(), "a small block was not embedded");
        drop((object, dataset, engine));
        assert_zdb_is_content(folder.path(), "features");
    });
}

/// Writes an incompressible block and syncs; returns its pointer.
async fn write_block(engine: &Engine, seed: u64) -> Blkptr {
    let dataset = engine.dataset(POOL).await.unwrap();
    let mut data = vec![0; 128 << 10];
    Rng::new(seed).fill(&mut data);
    let hold = engine.hold().await.unwrap();
    let new = NewObject::of(ObjectType::UINT64_OTHER).block_bytes(data.len() as u32);
    let object = dataset.edit(&hold).create(&new).await.unwrap();
    dataset.edit(&hold).write_block(object, BlockId(0), data.into()).await.unwrap();
    drop(hold);
    engine.sync_all().await.unwrap();
    dataset.live().on_disk().object(object).await.unwrap().blkptr(0, BlockId(0)).await.unwrap()
}

/// Leaves no free range of more than 8 KiB.
async fn fragment(engine: &Engine) {
    let hold = engine.hold().await.unwrap();
    let request = AllocRequest::new(AllocClass::Normal, Psize(8 << 10), 1, hold.txg());
    let mut taken = Vec::new();
    while let Ok(dvas) = engine.allocator().allocate(&request) {
        taken.extend(dvas);
    }
    taken.iter().step_by(4).for_each(|dva| engine.allocator().unallocate(dva, hold.txg()).unwrap());
}

#[test]
fn gang_headers_become_larger_once_a_block_had_too_many_pieces() {
    const NAME: &str = "dynamic_gang_header";
    let rt = Runtime::real(Some(2));
    for is_enabled in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        rt.block_on(async {
            let features = SPA_FEATURES.iter().filter(|feature| is_enabled || feature.name != NAME);
            let layout = (VdevKind::Disk, 0, 1);
            let engine = create_with_sectors(&rt, folder.path(), &layout, Some(12), features.collect()).await;
            fragment(&engine).await;
            let mut sizes = Vec::new();
            for seed in 0..3 {
                let bp = write_block(&engine, seed).await;
                assert!(bp.is_gang(), "{bp:?}");
                let pool = engine.pool();
                let header = pool.as_stored().gang_header(&bp, &ReadContext::default()).await.unwrap();
                let sector = pool.tree().vdevs().gang_header_bytes(bp.dvas());
                sizes.push((header.header_bytes(), sector));
                assert_eq!(pool.read(&bp, &ReadContext::default()).await.unwrap().len(), 128 << 10);
            }
            let mos = reopen(&rt, folder.path()).await;
            let state =
                mos.features().await.unwrap().into_iter().find(|(one, _)| one.name == NAME).unwrap().1;
            let guid = Feature::by_name(NAME).unwrap().guid.to_owned();
            let in_labels = mos.pool().tree().found().config.features_for_read.contains(&guid);
            match is_enabled {
                true => {
                    assert_eq!(sizes, [(512, 4096), (4096, 4096), (4096, 4096)]);
                    assert!(state == FeatureState::Active && in_labels, "{state}");
                }
                false => {
                    assert_eq!(sizes, [(512, 4096); 3]);
                    assert!(state == FeatureState::Disabled && !in_labels, "{state}");
                }
            }
        });
    }
}

#[test]
fn a_pool_with_an_unknown_feature_is_read_and_says_what_keeps_it_from_being_written() {
    let rt = Runtime::real(Some(2));
    let folder = tempfile::tempdir().unwrap();
    rt.block_on(async {
        let engine = create(&rt, folder.path(), &(VdevKind::Disk, 0, 1)).await;
        let note = engine.run(|context| {
            Box::pin(async move {
                let edit = context.edit();
                let table = context.directory_object(names::FEATURES_FOR_WRITE).await?;
                let texts = context.directory_object(names::FEATURE_DESCRIPTIONS).await?;
                ZapEdit::new(&edit, table).add("org.example:idle", 0).await?;
                ZapEdit::new(&edit, table).add("org.example:shiny", 2).await?;
                let text = ZapValue::from_text("all is shiny");
                ZapEdit::new(&edit, texts).add("org.example:shiny", &text).await
            })
        });
        note.await.unwrap();
        drop(engine);
        let mos = reopen(&rt, folder.path()).await;
        assert_eq!(mos.features_in_the_way().await.unwrap(), ["org.example:shiny (all is shiny)"]);
        mos.dataset(POOL).await.unwrap();
        let refused = Engine::start(&mos).await.err().unwrap().to_string();
        assert!(refused.contains("org.example:shiny (all is shiny)"), "{refused}");
    });
}

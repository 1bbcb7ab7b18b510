//! Equal blocks, stored once until their last owner is gone, with old and new dedup tables.

use bytes::Bytes;
use cenote_dataset::Value;
use cenote_engine::Engine;
use cenote_format::dnode::ObjectType;
use cenote_format::features::{FEATURES_OF_2_3, SPA_FEATURES};
use cenote_format::units::ObjectId;
use cenote_object::NewObject;
use cenote_pool::VdevKind;
use cenote_runtime::Runtime;

use crate::common::{POOL, assert_zdb_is_content, create_with, destroy, reopen, reopen_to_write};

const BLOCK_BYTES: usize = 16 << 10;
const BLOCKS: usize = 20;

/// Distinct, incompressible blocks.
fn content() -> Bytes {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u8
    };
    (0..BLOCKS * BLOCK_BYTES).map(|_| next()).collect()
}

async fn write_object(engine: &Engine) -> ObjectId {
    let dataset = engine.dataset(POOL).await.unwrap();
    let hold = engine.hold().await.unwrap();
    let edit = dataset.edit(&hold);
    let new = NewObject::of(ObjectType::PLAIN_FILE_CONTENTS).block_bytes(BLOCK_BYTES as u32);
    let object = edit.create(&new).await.unwrap();
    edit.write(object, 0, content()).await.unwrap();
    object
}

#[test]
fn alike_blocks_are_stored_once_until_their_last_owner_goes() {
    let rt = Runtime::real(Some(2));
    for is_fast in [true, false] {
        let name = if is_fast { "fast" } else { "legacy" };
        let folder = tempfile::tempdir().unwrap();
        rt.block_on(async {
            let features = SPA_FEATURES[..FEATURES_OF_2_3]
                .iter()
                .filter(|feature| is_fast || feature.name != "fast_dedup");
            let engine = create_with(&rt, folder.path(), &(VdevKind::Disk, 0, 1), features.collect()).await;
            cenote_tasks::set_property(&engine, POOL, "dedup", Value::Number(1)).await.unwrap();
            let first = write_object(&engine).await;
            // In the same txg, and in another.
            let second = write_object(&engine).await;
            engine.sync_all().await.unwrap();
            let third = write_object(&engine).await;
            engine.sync_all().await.unwrap();
            drop(engine);

            let summary = reopen(&rt, folder.path()).await.dedup_summary().await.unwrap();
            assert_eq!((summary.blocks, summary.ratio_percent()), (BLOCKS as u64, 300), "{name}");
            assert_zdb_is_content(folder.path(), name);

            let engine = reopen_to_write(&rt, folder.path()).await;
            destroy(&engine, first).await;
            destroy(&engine, third).await;
            drop(engine);
            let mos = reopen(&rt, folder.path()).await;
            assert_eq!(mos.dedup_summary().await.unwrap().ratio_percent(), 100, "{name}");
            let objset = mos.dataset(POOL).await.unwrap().objset().await.unwrap();
            let left = objset.object(second).await.unwrap().read(0, BLOCKS * BLOCK_BYTES).await.unwrap();
            assert!(left == content(), "{name}");

            let engine = reopen_to_write(&rt, folder.path()).await;
            destroy(&engine, second).await;
            drop(engine);
            assert!(reopen(&rt, folder.path()).await.dedup_tables().await.unwrap().is_empty(), "{name}");
            assert_zdb_is_content(folder.path(), name);
        });
    }
}

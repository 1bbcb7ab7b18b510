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
use cenote_tasks::{PoolSetting, Prune, prune_dedup, set_pool};

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

/// Entries of the tables, and space that deduplication saves.
async fn entries(engine: &Engine) -> (u64, u64) {
    let summary = engine.mos().await.unwrap().dedup_summary().await.unwrap();
    (summary.blocks, summary.saved_bytes())
}

#[test]
fn old_blocks_of_one_owner_leave_the_table_and_are_freed_with_their_owner() {
    let folder = tempfile::tempdir().unwrap();
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let features = SPA_FEATURES[..FEATURES_OF_2_3].iter().collect();
        let engine = create_with(&rt, folder.path(), &(VdevKind::Disk, 0, 1), features).await;
        assert_eq!(prune_dedup(&engine, Prune::Percent(100)).await.unwrap(), 0, "there is no table");
        cenote_tasks::set_property(&engine, POOL, "dedup", Value::Number(1)).await.unwrap();
        let first = write_object(&engine).await;
        engine.sync_all().await.unwrap();
        let refused = prune_dedup(&engine, Prune::OlderThan(u64::MAX)).await.unwrap_err().to_string();
        assert!(refused.contains("invalid argument"), "{refused}");
        assert_eq!(prune_dedup(&engine, Prune::OlderThan(3600)).await.unwrap(), 0, "nothing is that old");
        // An entry is older than the second in which it is taken out.
        rt.sleep(std::time::Duration::from_millis(1100)).await;
        assert_eq!(prune_dedup(&engine, Prune::Percent(100)).await.unwrap(), BLOCKS as u64);
        assert_eq!(entries(&engine).await, (0, 0));
        // Equal blocks are stored anew; of two owners, they are not taken out.
        let second = write_object(&engine).await;
        let third = write_object(&engine).await;
        engine.sync_all().await.unwrap();
        let (blocks, saved) = entries(&engine).await;
        assert!(blocks == BLOCKS as u64 && saved >= (BLOCKS * BLOCK_BYTES) as u64);
        rt.sleep(std::time::Duration::from_millis(1100)).await;
        assert_eq!(prune_dedup(&engine, Prune::Percent(100)).await.unwrap(), 0);
        drop(engine);
        assert_zdb_is_content(folder.path(), "pruned");

        let engine = reopen_to_write(&rt, folder.path()).await;
        let used = async || engine.mos().await.unwrap().usage().await.unwrap()[0].allocated_bytes;
        let before = used().await;
        destroy(&engine, first).await;
        engine.force_sync().await.unwrap();
        engine.force_sync().await.unwrap();
        assert!(used().await + (BLOCKS * BLOCK_BYTES) as u64 <= before + (64 << 10), "they are free");
        let objset = engine.mos().await.unwrap().dataset(POOL).await.unwrap().objset().await.unwrap();
        for object in [second, third] {
            let left = objset.object(object).await.unwrap().read(0, BLOCKS * BLOCK_BYTES).await.unwrap();
            assert!(left == content());
        }
        drop((objset, engine));
        assert_zdb_is_content(folder.path(), "pruned, and the owner is gone");
    });
}

#[test]
fn tables_at_their_quota_take_no_new_blocks_and_still_share_known_ones() {
    let folder = tempfile::tempdir().unwrap();
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let features = SPA_FEATURES[..FEATURES_OF_2_3].iter().collect();
        let engine = create_with(&rt, folder.path(), &(VdevKind::Disk, 0, 1), features).await;
        cenote_tasks::set_property(&engine, POOL, "dedup", Value::Number(1)).await.unwrap();
        let write = async |from: usize| {
            let dataset = engine.dataset(POOL).await.unwrap();
            let hold = engine.hold().await.unwrap();
            let edit = dataset.edit(&hold);
            let new = NewObject::of(ObjectType::PLAIN_FILE_CONTENTS).block_bytes(BLOCK_BYTES as u32);
            let object = edit.create(&new).await.unwrap();
            let half = content().slice(from * BLOCK_BYTES..(from + BLOCKS / 2) * BLOCK_BYTES);
            edit.write(object, 0, half).await.unwrap();
            drop(hold);
            engine.sync_all().await.unwrap();
            object
        };
        let quota = async |bytes| {
            let quota = PoolSetting::Number("dedup_table_quota".into(), bytes);
            set_pool(&engine, quota).await.unwrap();
        };
        let half = (BLOCKS / 2) as u64;
        write(0).await;
        assert_eq!(entries(&engine).await, (half, 0));
        quota(1).await;
        let outside = write(BLOCKS / 2).await;
        assert_eq!(entries(&engine).await, (half, 0), "new ones stay outside");
        write(0).await;
        let (blocks, saved) = entries(&engine).await;
        assert!(blocks == half && saved >= half * BLOCK_BYTES as u64, "known ones are shared: {saved}");
        quota(0).await;
        write(BLOCKS / 2).await;
        assert_eq!(entries(&engine).await.0, 2 * half, "without a quota, all enter");
        destroy(&engine, outside).await;
        drop(engine);
        assert_zdb_is_content(folder.path(), "quota");
    });
}

#[test]
fn tables_without_ages_are_not_pruned() {
    let folder = tempfile::tempdir().unwrap();
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let features = SPA_FEATURES[..FEATURES_OF_2_3].iter().filter(|one| one.name != "fast_dedup");
        let engine = create_with(&rt, folder.path(), &(VdevKind::Disk, 0, 1), features.collect()).await;
        let refused = prune_dedup(&engine, Prune::Percent(100)).await.unwrap_err().to_string();
        assert!(refused.contains("unsupported version or feature"), "{refused}");
    });
}

//! Features that are enabled while the pool is open: what is written afterwards is written accordingly.

use bytes::Bytes;
use cenote_format::dnode::ObjectType;
use cenote_format::features::Feature;
use cenote_format::units::BlockId;
use cenote_object::NewObject;
use cenote_pool::VdevKind;
use cenote_runtime::Runtime;
use cenote_tasks::PoolSetting;

use crate::common::{POOL, assert_zdb_is_content, create_with};

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

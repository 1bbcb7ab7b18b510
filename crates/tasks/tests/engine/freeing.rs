//! Datasets destroyed in the background, a few blocks per txg, with reopens in between. `zdb` finds the rest
//! of the tree by the recorded bookmark.

use cenote_format::dsl::names::DMU_POOL_DIRECTORY_OBJECT;
use cenote_pool::VdevKind;
use cenote_runtime::{Rng, Runtime};
use cenote_tasks::Settings;

use crate::accounts::assert_accounts;
use crate::common::{
    Load, Model, POOL, assert_equal, assert_zdb_is_content, create, fill, reopen, reopen_to_write, seed, work,
};

const LOAD: Load = Load { steps: 120, max_offset: 2 << 20, max_len: 40_000 };
/// Txgs between reopens.
const TXGS: u64 = 4;

#[test]
fn a_destroyed_dataset_goes_bit_by_bit_and_never_twice() {
    let rt = Runtime::real(Some(2));
    let mut rng = Rng::new(seed(&rt, "freeing"));
    let folder = tempfile::tempdir().unwrap();
    rt.block_on(async {
        let engine = create(&rt, folder.path(), &(VdevKind::Raidz, 1, 3)).await;
        let (mut kept, mut gone) = (Model::new(), Model::new());
        for name in ["made/gone", "made/stays"] {
            let fill = Box::new(|live| Box::pin(fill(live)) as _);
            cenote_tasks::create_filesystem(&engine, name, Settings::default(), fill).await.unwrap();
        }
        work(&engine, POOL, &mut kept, &mut rng, LOAD).await;
        work(&engine, "made/gone", &mut gone, &mut rng, LOAD).await;
        engine.sync_all().await.unwrap();
        // Txgs follow each other immediately while there is something to free: any number may pass before
        // this thread checks again.
        engine.frees().set_per_txg(0);
        cenote_tasks::destroy_dataset(&engine, "made/gone").await.unwrap();
        assert!(engine.frees().is_pending(), "all went before the pool was opened anew");
        drop(engine);

        let mut txgs = 0;
        loop {
            let engine = reopen_to_write(&rt, folder.path()).await;
            if !engine.frees().is_pending() {
                break;
            }
            engine.frees().set_per_txg(10 + rng.below(30));
            for _ in 0..TXGS {
                // Freed space is reused at once.
                work(&engine, POOL, &mut kept, &mut rng, Load { steps: 5, ..LOAD }).await;
                engine.sync_all().await.unwrap();
                txgs += 1;
            }
            drop(engine);
            assert_zdb_is_content(folder.path(), &format!("after {txgs} txgs"));
        }
        let mos = reopen(&rt, folder.path()).await;
        assert_equal(&mos, POOL, &kept, "freeing").await;
        assert_accounts(&mos, "freeing").await;
        let directory = mos.objset().object(DMU_POOL_DIRECTORY_OBJECT).await.unwrap();
        let directory = cenote_object::Zap::open(directory).await.unwrap();
        assert_eq!(directory.get_u64("bptree_obj").await.unwrap(), None);
    });
}

//! Self-healing reads rewrite bad copies.

use cenote_engine::Engine;
use cenote_pool::VdevKind;
use cenote_runtime::{Rng, Runtime};
use cenote_tasks::mend;

use crate::common::{
    Load, Model, POOL, assert_equal, assert_zdb_is_content, create, reopen, reopen_to_write, seed, spoil,
    work,
};

const LOAD: Load = Load { steps: 200, max_offset: 2 << 20, max_len: 100_000 };

fn found(engine: &Engine) -> u64 {
    engine.pool().counters().errors().iter().map(|(_, errors)| errors.checksum).sum()
}

#[test]
fn columns_that_a_read_finds_wrong_are_written_again() {
    let rt = Runtime::real(Some(2));
    let mut rng = Rng::new(seed(&rt, "mend"));
    let folder = tempfile::tempdir().unwrap();
    rt.block_on(async {
        let engine = create(&rt, folder.path(), &(VdevKind::Raidz, 1, 3)).await;
        let mut model = Model::new();
        work(&engine, POOL, &mut model, &mut rng, LOAD).await;
        engine.sync_all().await.unwrap();
        drop(engine);
        spoil(&folder.path().join("disk1.img"));
        let engine = reopen_to_write(&rt, folder.path()).await;
        let name = "what is wrong";
        assert_equal(&engine.mos().await.unwrap(), POOL, &model, name).await;
        let wrong = found(&engine);
        assert!(wrong > 0, "nothing was spoiled");
        mend(&engine).await.unwrap();
        engine.sync_all().await.unwrap();
        drop(engine);
        let mos = reopen(&rt, folder.path()).await;
        assert_equal(&mos, POOL, &model, name).await;
        let counters = mos.pool().counters().errors();
        assert!(counters.iter().all(|(_, errors)| errors.checksum == 0), "{counters:?}");
        assert!(mos.error_log().await.unwrap().is_empty());
    });
    assert_zdb_is_content(folder.path(), "mended");
}

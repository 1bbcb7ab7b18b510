//! Groups written one after the other: objects of one dataset, on vdevs of every kind.

use cenote_pool::VdevKind;
use cenote_runtime::{Rng, Runtime};

use crate::common::{
    Layout, Load, Model, POOL, assert_equal, assert_zdb_is_content, create, reopen, reopen_to_write, seed,
    work,
};

/// Kind, parity and number of devices of a pool's only vdev for data.
const LAYOUTS: [Layout; 5] = [
    (VdevKind::Disk, 0, 1),
    (VdevKind::Mirror, 0, 3),
    (VdevKind::Raidz, 1, 3),
    (VdevKind::Raidz, 2, 5),
    (VdevKind::Raidz, 3, 7),
];

const LOAD: Load = Load { steps: 20, max_offset: 3 << 20, max_len: 300_000 };

#[test]
fn objects_survive_groups_and_zdb_finds_nothing_wrong() {
    let rt = Runtime::real(Some(2));
    for layout in &LAYOUTS {
        let name = format!("{:?}", layout);
        let mut rng = Rng::new(seed(&rt, &name));
        let folder = tempfile::tempdir().unwrap();
        rt.block_on(async {
            let mut model = Model::new();
            for is_new in [true, false] {
                let engine = match is_new {
                    true => create(&rt, folder.path(), layout).await,
                    false => reopen_to_write(&rt, folder.path()).await,
                };
                for _ in 0..4 {
                    work(&engine, POOL, &mut model, &mut rng, LOAD).await;
                    engine.sync_all().await.unwrap();
                }
                drop(engine);
                assert_equal(&reopen(&rt, folder.path()).await, POOL, &model, &name).await;
                assert_zdb_is_content(folder.path(), &name);
            }
        });
    }
}

//! Commits of a file system idle for several txgs.

use cenote_dataset::{ImportOptions, import};
use cenote_fs::{Change, FsOptions, FsWriter};
use cenote_pool::{VdevClass, VdevKind, discover};
use cenote_runtime::Runtime;

use crate::intent_log::create;
use crate::on_disk::POOL;
use crate::scratch::{at, file};

#[test]
fn a_commit_after_idle_groups_is_in_the_log() {
    let rt = Runtime::real(Some(2));
    let folder = tempfile::tempdir().unwrap();
    rt.block_on(async {
        let engine =
            create(&rt, folder.path(), &[(VdevClass::Normal, VdevKind::Disk, 0, 1)], 128 << 20).await;
        let fs = {
            let dataset = engine.dataset(POOL).await.unwrap();
            FsWriter::open(dataset.clone(), FsOptions::default()).await.unwrap()
        };
        for (round, name) in ["first", "second", "third"].into_iter().enumerate() {
            cenote_tasks::snapshot(&engine, &[format!("{POOL}@{round}")]).await.unwrap();
            cenote_tasks::snapshot(&engine, &[format!("{POOL}@{round}-again")]).await.unwrap();
            let hold = engine.hold().await.unwrap();
            let edit = fs.live().edit();
            assert_eq!(edit.txg(), hold.txg(), "changes belong to the open txg");
            let change = Change { edit: &edit, now: at(7) };
            fs.create(change, fs.root(), name.as_bytes(), &file(0o600)).await.unwrap();
            drop(hold);
            fs.commit(None).await.unwrap();
        }
        drop((fs, engine));
        let found = discover(&rt, &[folder.path().into()]).await;
        let mos = import(&rt, &found.pools[0], &ImportOptions::default()).await.unwrap();
        let log = mos.dataset(POOL).await.unwrap().objset().await.unwrap().intent_log().await;
        assert!(log.damaged.is_none() && log.records.len() == 1, "{log:?}");
    });
}

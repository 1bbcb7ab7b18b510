//! Compares a new file system with an unused one created by the module.

use std::collections::BTreeMap;

use cenote_format::units::ObjectId;
use cenote_fs::filesystem::MASTER_NODE;
use cenote_fs::write::{NewFilesystem, XattrStore, create_filesystem};
use cenote_fs::{Change, FsOptions};
use cenote_object::{Objset, Zap, ZapValue};
use cenote_runtime::Runtime;
use cenote_testkit::{golden, needs};

use crate::common;
use crate::scratch::{ZFS, at, empty};

async fn table(objset: &Objset, id: ObjectId) -> BTreeMap<String, ZapValue> {
    let entries = Zap::open_id(objset, id).await.unwrap().to_vec().await.unwrap();
    entries.into_iter().map(|entry| (entry.name_text(), entry.value)).collect()
}

/// The tables of a file system, and the types of the objects they name.
async fn tables(objset: &Objset) -> Vec<(String, String)> {
    const OBJECTS: [&str; 3] = ["ROOT", "DELETE_QUEUE", "SA_ATTRS"];
    let mut all = Vec::new();
    let mut sa = None;
    for (name, value) in table(objset, MASTER_NODE).await {
        let id = ObjectId(value.as_u64().unwrap());
        if !OBJECTS.contains(&name.as_str()) {
            all.push((name, format!("{value:?}")));
            continue;
        }
        sa = if name == "SA_ATTRS" { Some(id) } else { sa };
        let dnode = objset.dnode(id).await.unwrap();
        let head = dnode.head();
        let shape = (head.object_type, head.bonus_type, head.bonus.len(), head.slots, head.data_block_bytes);
        all.push((name, format!("{shape:?} {:?}", &head.bonus.get(..8))));
    }
    for (name, value) in table(objset, sa.unwrap()).await {
        let id = ObjectId(value.as_u64().unwrap());
        let entries = table(objset, id).await;
        all.push((name, format!("{:?} {entries:?}", objset.dnode(id).await.unwrap().object_type)));
    }
    all
}

#[test]
fn a_new_file_system_has_the_modules_tables() {
    let pool = golden("single");
    let rt = Runtime::real(Some(2));
    rt.block_on(async {
        let mos = common::open_golden(&rt, &pool).await;
        let dataset = mos.dataset("single/empty").await.unwrap();
        let theirs = tables(&dataset.objset().await.unwrap()).await;
        let live = empty(&mos, ZFS);
        let edit = live.edit();
        let change = Change { edit: &edit, now: at(1) };
        create_filesystem(&live, change, &NewFilesystem::default(), FsOptions::default()).await.unwrap();
        assert_eq!(tables(&live.view()).await, theirs);
    });
}

#[test]
fn options_are_what_properties_say() {
    let options = options_of("gang", "ggang/r1M");
    assert_eq!((options.record_bytes, options.dnode_slots), (1 << 20, 1));
    assert!(options.projects);
    let options = options_of("tree", "gtree/xattr-dir-auto");
    assert_eq!((options.xattr, options.dnode_slots), (XattrStore::Dir, 2));
}

#[needs("legacy-v28")]
#[test]
fn an_old_pool_has_no_projects() {
    assert!(!options_of("legacy-v28", "glegv28").projects);
}

fn options_of(pool: &str, dataset: &str) -> FsOptions {
    let rt = Runtime::real(Some(2));
    let pool = golden(pool);
    rt.block_on(async {
        let mos = common::open_golden(&rt, &pool).await;
        FsOptions::of(&mos, &mos.dataset(dataset).await.unwrap()).await.unwrap()
    })
}

//! Changes to golden pools' objects before they are on disk.

use bytes::Bytes;
use cenote_format::dnode::ObjectType;
use cenote_format::units::{BlockId, ObjectId, Txg};
use cenote_object::{LiveObjset, NewObject};
use cenote_runtime::Runtime;
use cenote_testkit::golden_pools;

use crate::open;

#[test]
fn changes_show_and_what_is_not_changed_shows_through() {
    let rt = Runtime::real(Some(2));
    for pool in golden_pools().take(3) {
        rt.block_on(async {
            let mos = open(&rt, &pool).await;
            let live = LiveObjset::new(mos.objset().clone(), Txg(1 << 40));
            let edit = live.edit();
            let new = NewObject::of(ObjectType::UINT64_OTHER).block_bytes(4096);
            let id = edit.create(&new).await.unwrap();
            edit.write(id, 4090, Bytes::from_static(b"over the edge")).await.unwrap();
            let object = live.view().object(id).await.unwrap();
            assert_eq!(&object.read(4088, 20).await.unwrap()[..], b"\0\0over the edge\0\0\0\0\0");
            assert_eq!(object.next_data(0).await.unwrap(), Some(0));

            edit.punch(id, BlockId(0), 1).await.unwrap();
            let object = live.view().object(id).await.unwrap();
            assert_eq!(object.next_data(0).await.unwrap(), Some(4096));
            assert_eq!(&object.read(4094, 4).await.unwrap()[..], b"\0\0he");

            let directory = ObjectId(1);
            let block = async |view: cenote_object::Objset| {
                view.object(directory).await.unwrap().read_block(BlockId(0)).await.unwrap().0
            };
            let old = block(live.view()).await;
            edit.write(directory, 8, Bytes::from_static(b"changed")).await.unwrap();
            let new = block(live.view()).await;
            assert_eq!((&new[..8], &new[8..15], &new[15..]), (&old[..8], &b"changed"[..], &old[15..]));
            assert_eq!(block(live.on_disk()).await, old);

            edit.destroy(id).await.unwrap();
            assert!(live.view().object(id).await.is_err());
        });
    }
}

/// New object numbers are neither in the tree on disk nor used twice.
#[test]
fn numbers_of_new_objects_are_free() {
    let rt = Runtime::real(Some(2));
    for pool in golden_pools() {
        let name = pool.name();
        rt.block_on(async {
            let mos = open(&rt, &pool).await;
            let live = LiveObjset::new(mos.objset().clone(), Txg(1 << 40));
            let mut seen = std::collections::BTreeSet::new();
            for i in 0..500 {
                let slots = [1, 2, 8][i % 3];
                let new = NewObject::of(ObjectType::UINT64_OTHER).slots(slots);
                let id = live.edit().create(&new).await.unwrap();
                for slot in id.0..id.0 + u64::from(slots) {
                    assert!(mos.objset().dnode(ObjectId(slot)).await.is_err(), "{name}: {slot}");
                    assert!(seen.insert(slot), "{name}: {slot} twice");
                }
            }
        });
    }
}

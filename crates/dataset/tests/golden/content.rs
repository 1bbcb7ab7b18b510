//! Sequential reads of objects with part of their tree lost.

use cenote_dataset::Mos;
use cenote_format::dnode::{DNODE_CORE_BYTES, Dnode, ObjectType};
use cenote_format::units::{BlockId, ObjectId};
use cenote_object::Object;
use cenote_runtime::Runtime;
use cenote_testkit::golden;

use crate::open;

/// Offset of a block pointer's checksum.
const BLKPTR_CHECKSUM_BYTES: usize = 96;

/// File with a single indirect block.
async fn file_with_indirect_block(mos: &Mos) -> Option<Object> {
    for dataset in mos.all_datasets().await.unwrap() {
        let set = dataset.objset().await.unwrap();
        let mut dnodes = set.dnodes(ObjectId(0), set.last_object());
        while let Some(batch) = dnodes.next_batch().await {
            for (id, dnode) in batch.unwrap().dnodes {
                let is_file = dnode.object_type == ObjectType::PLAIN_FILE_CONTENTS;
                if is_file && dnode.levels == 2 && dnode.max_block_id.0 >= 3 {
                    return Some(Object::new(set.clone(), id, dnode));
                }
            }
        }
    }
    None
}

#[test]
fn what_lies_under_a_lost_indirect_block_is_one_piece() {
    let rt = Runtime::real(Some(2));
    let pool = golden("single");
    rt.block_on(async {
        let mos = open(&rt, &pool).await;
        let whole = file_with_indirect_block(&mos).await.expect("the pool has a file of several blocks");
        let mut raw = whole.dnode().raw().to_vec();
        raw[DNODE_CORE_BYTES + BLKPTR_CHECKSUM_BYTES] ^= 1;
        let dnode = Dnode::decode(raw.into(), whole.dnode().endian()).unwrap().unwrap();
        let lost = Object::new(whole.objset().clone(), whole.id(), dnode);
        assert!(lost.next_data_block(BlockId(0)).await.is_err());

        // Leave out half a block at either end.
        let half = whole.block_bytes() / 2;
        let (start, end) = (half, whole.capacity_bytes() - half);
        let mut chunks = lost.chunks(start, end);
        let piece = chunks.next().await.unwrap();
        assert!(piece.data.is_err());
        assert_eq!((piece.offset_bytes, piece.len_bytes), (start, end - start));
        assert!(chunks.next().await.is_none());
    });
}

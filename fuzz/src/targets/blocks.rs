//! Block pointers and the blocks that hold them.

use bytes::Bytes;
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr};
use cenote_format::bytes::{Endian, Writer};
use cenote_format::dnode::Dnode;
use cenote_format::gang::GangHeader;
use cenote_format::objset::ObjsetPhys;
use cenote_format::zil::{LogBlock, LogLayout};

use super::{both, consume};

fn use_blkptr(bp: &Blkptr) {
    consume((bp.kind(), bp.lsize(), bp.psize(), bp.asize(), bp.is_gang(), bp.fill(), bp.level()));
    consume((bp.logical_birth(), bp.physical_birth(), bp.checksum(), bp.crypt_params()));
    consume((bp.embedded_payload(), bp.dvas().count(), format!("{bp:?}")));
}

/// A block of block pointers.
pub fn blkptr(data: &[u8]) {
    for chunk in data.chunks(BLKPTR_BYTES) {
        for endian in super::ENDIANS {
            let Ok(bp) = Blkptr::decode(chunk, endian) else { continue };
            use_blkptr(&bp);
            let mut writer = Writer::new(endian);
            bp.write(&mut writer);
            assert_eq!(writer.finish(), chunk, "a block pointer keeps its bytes");
        }
    }
}

/// A gang header.
pub fn gang(data: &[u8]) {
    let Ok(header) = GangHeader::decode(data) else { return };
    assert_eq!(GangHeader::decode(&header.encode()).as_ref(), Ok(&header), "encoded and decoded again");
}

fn use_dnode(dnode: &Dnode) {
    dnode.blkptrs().chain(dnode.spill()).for_each(|bp| use_blkptr(&bp));
    consume((dnode.bonus(), dnode.fanout_shift(), dnode.raw(), dnode.detach(), dnode.blkptr(0)));
}

/// A block of dnodes, one per slot.
pub fn dnode(data: &[u8]) {
    both(data, |block, endian| {
        for at in (0..=block.len()).step_by(512) {
            if let Ok(Some(dnode)) = Dnode::decode(block.slice(at..), endian) {
                use_dnode(&dnode);
            }
        }
    });
}

/// The head of an object set.
pub fn objset(data: &[u8]) {
    both(data, |block, endian| {
        let Ok(head) = ObjsetPhys::decode(&block, endian) else { return };
        head.meta_dnode.iter().for_each(use_dnode);
        consume(head);
    });
}

/// A block of an intent log in both layouts, and its records.
pub fn zil(data: &[u8]) {
    let block = Bytes::copy_from_slice(data);
    for layout in [LogLayout::Tail, LogLayout::Head] {
        let Ok(log) = LogBlock::decode(&block, layout) else { continue };
        let records: Vec<_> = log.records().collect();
        records.iter().flatten().for_each(|r| consume((r.operation.txtype(), r.operation.type_name())));
        // A record takes at least its 32-byte header, so there can't be more.
        assert!(records.len() <= data.len() / 32 + 1, "{} records", records.len());
    }
    for endian in [Endian::Little, Endian::Big] {
        consume(cenote_format::zil::LogRecord::decode(&block, endian));
    }
}

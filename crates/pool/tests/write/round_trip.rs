//! Round trips: every layout, compression, checksum and number of copies; encrypted; and with every column
//! verified.

use crate::lab::{FIRST_TXG, Lab, Layout, block, noise, props, simulate};
use bytes::Bytes;
use cenote_codec::checksum::Checksum;
use cenote_codec::compress::Compression;
use cenote_codec::crypto::{Cipher, MasterKey};
use cenote_device::Device;
use cenote_format::blkptr::{Blkptr, BlkptrKind};
use cenote_format::dnode::ObjectType;
use cenote_format::units::Txg;
use cenote_pool::{DatasetKey, PoolError, ReadContext, VerifyItem, WriteProps, Written, Zbookmark};
use cenote_runtime::Rng;
use std::sync::Arc;

pub const LAYOUTS: [Layout; 9] = [
    Layout::Disk,
    Layout::Mirror(3),
    Layout::Raidz(1, 3),
    Layout::Raidz(1, 4),
    Layout::Raidz(2, 5),
    Layout::Raidz(3, 7),
    Layout::Draid(1, 2, 7, 1),
    Layout::Draid(2, 4, 8, 2),
    Layout::Draid(3, 4, 9, 1),
];
const COMPRESSIONS: [Compression; 7] = [
    Compression::Off,
    Compression::Lzjb,
    Compression::Zle,
    Compression::Lz4,
    Compression::Gzip1,
    Compression::Gzip9,
    Compression::Zstd,
];
const CHECKSUMS: [Checksum; 8] = [
    Checksum::Off,
    Checksum::Fletcher2,
    Checksum::Fletcher4,
    Checksum::Sha256,
    Checksum::Sha512,
    Checksum::Skein,
    Checksum::EdonR,
    Checksum::Blake3,
];

/// 512 bytes to 1 MiB, small ones more often.
fn some_len(rng: &mut Rng) -> usize {
    let most = 1 << (1 + rng.below(11));
    512 * (1 + rng.below(most)) as usize
}

/// Reads everything back and verifies every copy and column.
pub async fn check_all(lab: &Lab, written: &[(Blkptr, Bytes)], ctx: &ReadContext) {
    for (bp, data) in written {
        assert_eq!(lab.pool.read(bp, ctx).await.unwrap(), data, "{bp:?}");
    }
    let items = written.iter().map(|(bp, _)| VerifyItem { bp: *bp, place: Zbookmark::default() });
    assert_eq!(lab.pool.verify_many(items.collect()).await, []);
}

#[test]
fn every_layout_compression_and_checksum() {
    for (seed, layout) in (100..).zip(LAYOUTS) {
        simulate(seed, async |rt| {
            let ashift = if seed % 2 == 0 { 9 } else { 12 };
            let lab = Lab::of(&rt, layout, ashift).await;
            let mut rng = Rng::new(seed);
            let mut written = Vec::new();
            for compression in COMPRESSIONS {
                for checksum in CHECKSUMS {
                    let len = some_len(&mut rng);
                    let data = if rng.chance(0.5) { block(&mut rng, len) } else { noise(&mut rng, len) };
                    let copies = 1 + rng.below(3) as u8;
                    let props = WriteProps { compression, checksum, copies, ..props() };
                    let bp = lab.write(&data, &props, FIRST_TXG).await.bp;
                    assert_eq!(bp.dvas().count(), usize::from(copies));
                    assert_eq!((bp.lsize().0, bp.fill()), (data.len() as u64, 1));
                    assert_eq!((bp.logical_birth(), bp.physical_birth().txg()), (FIRST_TXG, FIRST_TXG));
                    written.push((bp, data));
                }
            }
            check_all(&lab, &written, &ReadContext::default()).await;
            assert!(lab.pool.lacking().all().is_empty());
            let stored: u64 = written.iter().map(|(bp, _)| bp.asize().0).sum();
            assert_eq!(lab.allocated_bytes(), stored, "{layout:?}");
        });
    }
}

#[test]
fn a_draid_fills_its_rows_with_zeros_for_those_who_rebuild_it_without_knowing_blocks() {
    simulate(6, async |rt| {
        let lab = Lab::of(&rt, Layout::Draid(2, 4, 8, 2), 9).await;
        let (start, len) = (4 << 20, 64 << 10);
        for disk in lab.disks.values() {
            disk.memory.write_at(start, vec![0xaa; len].into()).await.unwrap();
        }
        let data = noise(&mut Rng::new(6), 5 * 512);
        let bp = lab.write(&data, &props(), FIRST_TXG).await.bp;
        // Two rows of two parity and four data sectors; the block fills five.
        assert_eq!(bp.asize().0, 12 * 512);
        let mut sectors = Vec::new();
        for disk in lab.disks.values() {
            let bytes = disk.memory.read_at(start, len).await.unwrap();
            sectors.extend(bytes.chunks(512).filter(|sector| **sector != [0xaa; 512]).map(<[u8]>::to_vec));
        }
        assert_eq!(sectors.len(), 12);
        assert_eq!(sectors.iter().filter(|sector| **sector == [0; 512]).count(), 3);
        assert!(data.chunks(512).all(|sector| sectors.iter().any(|stored| stored == sector)));
    });
}

#[test]
fn compressed_sizes_suit_the_vdevs() {
    simulate(1, async |rt| {
        let mut rng = Rng::new(1);
        for (ashift, layout, unit) in
            [(9, Layout::Disk, 512), (12, Layout::Disk, 4096), (12, Layout::Draid(1, 2, 7, 1), 8192)]
        {
            let lab = Lab::of(&rt, layout, ashift).await;
            let data = block(&mut rng, 128 << 10);
            let bp = lab.write(&data, &props(), FIRST_TXG).await.bp;
            assert!(bp.psize().0 < 112 << 10 && bp.psize().0.is_multiple_of(unit), "{bp:?}");
            // Saving less than an eighth is not worth it.
            let mut stiff = noise(&mut rng, 16 << 10).to_vec();
            stiff[..1024].fill(0);
            let bp = lab.write(&stiff.into(), &props(), FIRST_TXG).await.bp;
            assert_eq!((bp.psize().0, bp.compression_id()), (16 << 10, Compression::Off as u8));
        }
    });
}

#[test]
fn zeros_are_holes_unless_compression_is_off() {
    simulate(2, async |rt| {
        let lab = Lab::of(&rt, Layout::Disk, 9).await;
        let zeros = Bytes::from(vec![0; 8192]);
        let data = block(&mut Rng::new(2), 8192);
        assert_eq!(lab.write(&zeros, &props(), FIRST_TXG).await.bp, Blkptr::HOLE);
        let empty = WriteProps { compression: Compression::Empty, ..props() };
        assert_eq!(lab.write(&zeros, &empty, FIRST_TXG).await.bp, Blkptr::HOLE);
        assert_eq!(lab.write(&data, &empty, FIRST_TXG).await.bp.psize().0, 8192);
        let off = WriteProps { compression: Compression::Off, ..props() };
        assert_eq!(lab.write(&zeros, &off, FIRST_TXG).await.bp.kind(), BlkptrKind::Normal);
        // With hole_birth, a hole that replaces a block records its birth.
        let previous = lab.write(&data, &props(), FIRST_TXG).await.bp;
        for (hole_birth, birth) in [(true, Txg(9)), (false, Txg(0))] {
            let props = WriteProps { previous, hole_birth, ..props() };
            let hole = lab.write(&zeros, &props, Txg(9)).await.bp;
            assert_eq!((hole.kind(), hole.logical_birth()), (BlkptrKind::Hole, birth));
        }
    });
}

#[test]
fn small_payloads_stay_in_the_pointer() {
    simulate(3, async |rt| {
        let lab = Lab::of(&rt, Layout::Disk, 12).await;
        let data = Bytes::from([b"the same again, ".as_slice(); 64].concat());
        let embed = WriteProps { embed: true, ..props() };
        let bp = lab.write(&data, &embed, FIRST_TXG).await.bp;
        assert_eq!((bp.kind(), lab.allocated_bytes()), (BlkptrKind::Embedded, 0));
        assert_eq!(lab.pool.read(&bp, &ReadContext::default()).await.unwrap(), data);
        for props in [
            props(),
            WriteProps { place: Zbookmark { level: 1, ..embed.place }, ..embed.clone() },
            WriteProps { object_type: ObjectType::DNODE, ..embed.clone() },
            WriteProps { compression: Compression::Off, ..embed },
        ] {
            assert_eq!(lab.write(&data, &props, FIRST_TXG).await.bp.kind(), BlkptrKind::Normal, "{props:?}");
        }
    });
}

#[test]
fn what_did_not_change_is_not_written_again() {
    simulate(4, async |rt| {
        let lab = Lab::of(&rt, Layout::Raidz(1, 3), 9).await;
        let mut rng = Rng::new(4);
        let data = block(&mut rng, 32 << 10);
        let strong = WriteProps { checksum: Checksum::Sha256, nop_write: true, ..props() };
        let previous = lab.write(&data, &strong, FIRST_TXG).await.bp;
        let again = WriteProps { previous, ..strong };
        assert_eq!(lab.write(&data, &again, Txg(9)).await, Written { bp: previous, keeps_place: true });
        let other = block(&mut rng, 32 << 10);
        for (data, props) in [
            (&other, again.clone()),
            (&data, WriteProps { nop_write: false, ..again.clone() }),
            (&data, WriteProps { checksum: Checksum::Sha512, ..again.clone() }),
            (&data, WriteProps { copies: 2, ..again.clone() }),
            (&data, WriteProps { compression: Compression::Zle, ..again }),
        ] {
            let written = lab.write(data, &props, Txg(9)).await;
            assert!(!written.keeps_place && written.bp.logical_birth() == Txg(9), "{props:?}");
        }
        let weak = lab.write(&data, &props(), FIRST_TXG).await.bp;
        let weak = WriteProps { previous: weak, nop_write: true, ..props() };
        assert!(!lab.write(&data, &weak, Txg(9)).await.keeps_place);
    });
}

#[test]
fn later_passes_write_blocks_of_the_same_group_in_place() {
    for (seed, layout) in (20..).zip([Layout::Mirror(2), Layout::Raidz(2, 5), Layout::Draid(1, 2, 7, 1)]) {
        simulate(seed, async |rt| {
            let lab = Lab::of(&rt, layout, 9).await;
            let mut rng = Rng::new(seed);
            let first = noise(&mut rng, 16 << 10);
            let first = lab.write(&first, &props(), FIRST_TXG).await.bp;
            let taken = lab.allocated_bytes();
            let again = WriteProps { previous: first, sync_pass: 2, copies: 1, ..props() };
            let data = noise(&mut rng, 16 << 10);
            let second = lab.write(&data, &again, FIRST_TXG).await;
            assert!(second.keeps_place && second.bp.dvas().eq(first.dvas()));
            assert_eq!(lab.allocated_bytes(), taken);
            check_all(&lab, &[(second.bp, data.clone())], &ReadContext::default()).await;

            let in_pass_1 = WriteProps { sync_pass: 1, ..again.clone() };
            assert!(!lab.write(&data, &in_pass_1, FIRST_TXG).await.keeps_place);
            assert!(!lab.write(&data, &again, Txg(9)).await.keeps_place);
            let shorter = block(&mut rng, 16 << 10);
            assert!(!lab.write(&shorter, &again, FIRST_TXG).await.keeps_place);
            // In late passes nothing is compressed, so no block gets shorter.
            let late = WriteProps { sync_pass: 8, ..again };
            assert!(lab.write(&shorter, &late, FIRST_TXG).await.keeps_place);
        });
    }
}

#[test]
fn encrypted_blocks_of_every_kind() {
    for (seed, cipher) in (40..).zip(Cipher::ALL) {
        simulate(seed, async |rt| {
            let lab = Lab::of(&rt, Layout::Raidz(1, 4), 9).await;
            let mut rng = Rng::new(seed);
            let master = MasterKey::new(cipher, 7, &[3; 32], &[4; 64]);
            let key = Some(Arc::new(DatasetKey::new(master)));
            let ctx = ReadContext::default().with_key(key.clone());
            let props = |object_type, level| {
                let place = Zbookmark { level, ..Zbookmark::default() };
                WriteProps { place, object_type, key: key.clone(), ..props() }
            };
            let data = block(&mut rng, 64 << 10);

            let file = WriteProps { copies: 3, ..props(ObjectType::PLAIN_FILE_CONTENTS, 0) };
            let first = lab.write(&data, &file, FIRST_TXG).await.bp;
            assert!(first.is_encrypted() && first.dvas().count() == 2 && first.psize().0 < 64 << 10);
            let second = lab.write(&data, &file, FIRST_TXG).await.bp;
            let (a, b) = (first.crypt_params(), second.crypt_params());
            assert!(a.salt == b.salt && a.iv != b.iv && a.mac != b.mac);
            assert!(matches!(
                lab.pool.read(&first, &ReadContext::default()).await,
                Err(PoolError::NoKey { .. })
            ));

            let clear = lab.write(&data, &props(ObjectType::MASTER_NODE, 0), FIRST_TXG).await.bp;
            assert!(clear.is_authenticated());
            let mut pointers = Vec::new();
            for bp in [first, second, clear, Blkptr::HOLE] {
                pointers.extend(bp.words().iter().flat_map(|word| word.to_ne_bytes()));
            }
            let pointers = Bytes::from(pointers);
            let indirect =
                lab.write(&pointers, &props(ObjectType::PLAIN_FILE_CONTENTS, 1), FIRST_TXG).await.bp;
            assert!(indirect.has_indirect_mac());

            let mut dnodes = vec![0; 16 << 10];
            // A used dnode with a secret bonus: type, bonus type, one pointer, bonus length.
            (dnodes[0], dnodes[3], dnodes[4], dnodes[10]) = (19, 1, 44, 100);
            dnodes[192..292].fill(7);
            let dnodes = Bytes::from(dnodes);
            let dnode = WriteProps { fill: 1, ..props(ObjectType::DNODE, 0) };
            let dnode = lab.write(&dnodes, &dnode, FIRST_TXG).await.bp;
            assert_eq!(dnode.compression_id(), Compression::Off as u8);
            let written = [
                (first, data.clone()),
                (second, data.clone()),
                (clear, data),
                (indirect, pointers),
                (dnode, dnodes),
            ];
            check_all(&lab, &written, &ctx).await;

            // An object set stores its MACs inside.
            let mut objset = vec![0; 4096];
            (objset[0], objset[704]) = (10, 2);
            let objset = Bytes::from(objset);
            let bp = lab.write(&objset, &props(ObjectType::OBJSET, 0), FIRST_TXG).await.bp;
            let read = lab.pool.read(&bp, &ctx).await.unwrap();
            assert!(read[..720] == objset[..720] && read[720..752] != objset[720..752]);
        });
    }
}

#[test]
fn what_can_be_no_block_is_refused() {
    simulate(5, async |rt| {
        let lab = Lab::of(&rt, Layout::Disk, 9).await;
        let refused = async |len: usize, props: WriteProps| {
            let result = lab.pool.write(&lab.space, vec![1; len].into(), &props, FIRST_TXG).await;
            assert!(matches!(result, Err(PoolError::BadWrite { .. })), "{result:?}");
        };
        refused(0, props()).await;
        refused(1000, props()).await;
        refused((16 << 20) + 512, props()).await;
        refused(512, WriteProps { checksum: Checksum::Label, ..props() }).await;
        refused(512, WriteProps { checksum: Checksum::On, ..props() }).await;
        refused(512, WriteProps { compression: Compression::On, ..props() }).await;
        assert_eq!(lab.allocated_bytes(), 0);
    });
}

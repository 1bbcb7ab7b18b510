//! Writes to golden pools: OpenZFS's own `zdb` checks our blocks, parity, labels and uberblocks.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "tests say what they skip")]

use crate::walk::all_blocks;
use bytes::Bytes;
use cenote_codec::compress::Compression;
use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::ObjectType;
use cenote_format::label::{LabelConfig, PoolConfig as LabelPool, VdevConfig, VdevKind};
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Txg, VdevId};
use cenote_pool::alloc::{Allocator, NewMetaslab};
use cenote_pool::label::{LabelUpdate, read_labels};
use cenote_pool::{FoundPool, Pool, ReadContext, WriteProps, Zbookmark, discover};
use cenote_runtime::{Rng, Runtime};
use cenote_testkit::{copy_image, golden, needs};
use std::path::Path;

/// The output of zdb; `None`, with a message, without zdb.
fn zdb(images: &Path, words: &[&str]) -> Option<Vec<u8>> {
    let output = cenote_testkit::zdb(images, words)?;
    assert!(output.status.success(), "zdb {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout)
}

/// The pool's space: every range that a pointer leads to is allocated.
async fn space_of(pool: &Pool) -> Allocator {
    let space = Allocator::new();
    let blocks = all_blocks(pool).await;
    for (id, top) in (0..).map(VdevId).zip(pool.tree().vdevs().tops()) {
        let slab = |index| {
            let (start_bytes, size_bytes) = (index << top.metaslab_shift, 1 << top.metaslab_shift);
            NewMetaslab { index, start_bytes, size_bytes, allocated: Default::default() }
        };
        let mut metaslabs: Vec<_> = (0..top.asize_bytes >> top.metaslab_shift).map(slab).collect();
        for dva in blocks.iter().flat_map(|bp| bp.dvas()).filter(|dva| dva.vdev == id) {
            let slab = &mut metaslabs[(dva.offset_bytes >> top.metaslab_shift) as usize];
            slab.allocated.insert(dva.offset_bytes, dva.asize.0);
        }
        if top.kind.holds_data() {
            space.add_vdev(top, metaslabs);
        }
    }
    space
}

/// The configuration as the MOS would have it, merged from the labels.
async fn configuration(found: &FoundPool) -> LabelPool {
    let device = &found.devices.values().next().unwrap().device;
    let list = read_labels(&**device).await.remove(0).config.unwrap();
    let LabelConfig::Member(config) = LabelConfig::decode(&list).unwrap() else { panic!("no member") };
    let root = VdevConfig::new(VdevKind::Root, 0, found.guid());
    let vdev_tree = VdevConfig { children: found.config.vdevs.clone(), ..root };
    LabelPool { vdev_tree, ..config }
}

/// Writes a large block and a new root with the old root's content, and makes that the pool's state. Returns
/// the large block's pointer.
async fn write_txg(rt: &Runtime, found: &FoundPool, data: &Bytes) -> Blkptr {
    let old = found.uberblocks[0];
    let pool = Pool::assemble(rt, found, &old).await.unwrap();
    let space = space_of(&pool).await;
    let txg = Txg(found.uberblocks[0].txg.0 + 1);
    let props = |object_type| WriteProps::new(Zbookmark::default(), object_type);
    let off = WriteProps { compression: Compression::Off, ..props(ObjectType::PLAIN_FILE_CONTENTS) };
    let large = pool.write(&space, data.clone(), &off, txg).await.unwrap().bp;

    let root = pool.read(&old.rootbp, &ReadContext::default()).await.unwrap();
    let props = WriteProps { copies: 3, fill: old.rootbp.fill(), ..props(ObjectType::OBJSET) };
    let rootbp = pool.write(&space, root, &props, txg).await.unwrap().bp;
    let uberblock = Uberblock { txg, rootbp, timestamp_s: old.timestamp_s + 1, ..old };
    let config = LabelPool { txg, ..configuration(found).await };
    let dirty: Vec<VdevId> = (0..found.config.vdevs.len() as u64).map(VdevId).collect();
    let update = LabelUpdate { config: &config, uberblock: &uberblock, dirty: &dirty };
    pool.labels().write(&update).await.unwrap();
    large
}

#[test]
fn zdb_reads_what_we_write() {
    assert_zdb_reads(&[("single", 0), ("draidspare", 1)]);
}

#[needs("mirror", "raidz1", "raidz2", "raidz3", "special")]
#[test]
fn zdb_reads_what_we_write_even_without_some_disks() {
    assert_zdb_reads(&[("mirror", 1), ("raidz1", 1), ("raidz2", 2), ("raidz3", 3), ("special", 0)]);
}

/// Writes to copies of golden pools and has zdb read the blocks, without some of the disks.
fn assert_zdb_reads(pools: &[(&str, usize)]) {
    let rt = Runtime::real(None);
    for (seed, &(name, spare_disks)) in (500..).zip(pools) {
        let golden = golden(name);
        let folder = tempfile::tempdir().unwrap();
        for disk in golden.facts().disks {
            let file = disk.file.trim_end_matches(".zst");
            copy_image(&golden.images().join(file), &folder.path().join(file));
        }
        let pool = golden.facts().pool;
        let Some(before) = zdb(folder.path(), &["-d", &pool]) else { return };
        println!("{name}: seed {seed}");
        let mut data = vec![0; 100 << 10];
        Rng::new(seed).fill(&mut data);
        let data = Bytes::from(data);
        let large = rt.block_on(async {
            let found = discover(&rt, &[folder.path().to_owned()]).await.pools.remove(0);
            let found = found.open_for_writing(&rt).await.unwrap();
            write_txg(&rt, &found, &data).await
        });
        let root = String::from_utf8(zdb(folder.path(), &["-u", &pool]).unwrap()).unwrap();
        assert!(root.contains(&format!("txg = {}\n", large.logical_birth())), "{name}: {root}");
        assert_eq!(zdb(folder.path(), &["-d", &pool]), Some(before), "{name}");

        let mut images: Vec<_> = folder.path().read_dir().unwrap().map(|file| file.unwrap().path()).collect();
        images.sort();
        images.iter().take(spare_disks).for_each(|image| std::fs::remove_file(image).unwrap());
        let dva = large.dvas().next().unwrap();
        let block = format!("{}:{:x}:{:x}:r", dva.vdev, dva.offset_bytes, data.len());
        assert!(zdb(folder.path(), &["-R", &pool, &block]).unwrap() == data, "{name} {block}");
    }
}

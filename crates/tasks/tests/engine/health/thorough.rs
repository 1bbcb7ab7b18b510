//! Thorough scrubs find blocks that match their checksums and decode to nothing.

use std::sync::Arc;

use bytes::Bytes;
use cenote_codec::compress::Compression;
use cenote_dataset::Mos;
use cenote_device::{MemoryDevice, Op, Traced};
use cenote_engine::Engine;
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::scan::ScanPhys;
use cenote_format::units::{BlockId, Lsize, ObjectId, Txg};
use cenote_object::NewObject;
use cenote_pool::create::NewDevice;
use cenote_pool::write::StoredBlock;
use cenote_runtime::Rng;
use cenote_tasks::{ScrubDepth, pause_scrub, run_scan, start_scrub, start_scrub_between};

use super::{LOAD, Lab, simulate};
use crate::common::{Model, POOL, create_on, work};

/// Writes a block that claims to be compressed and is not.
async fn write_nonsense(engine: &Engine) -> ObjectId {
    let dataset = engine.dataset(POOL).await.unwrap();
    let hold = engine.hold().await.unwrap();
    let edit = dataset.edit(&hold);
    let object = edit.create(&NewObject::of(ObjectType::UINT64_OTHER).block_bytes(16 << 10)).await.unwrap();
    let block = StoredBlock {
        bytes: Bytes::from(vec![0xff; 4096]),
        lsize: Lsize(16 << 10),
        compression: Compression::Lz4,
        endian: Endian::Little,
        crypt: None,
    };
    edit.write_stored(object, BlockId(0), block).await.unwrap();
    drop((edit, hold));
    engine.sync_all().await.unwrap();
    object
}

impl Lab {
    async fn mos(&self) -> Mos {
        self.engine.mos().await.unwrap()
    }

    async fn scan(&self) -> ScanPhys {
        run_scan(&self.engine, &|_| {}).await.unwrap();
        self.mos().await.scan_status().await.unwrap().unwrap()
    }
}

async fn start_thorough(engine: &Engine) -> Result<(), String> {
    let started = start_scrub_between(engine, Txg(0), None, ScrubDepth::Thorough).await;
    started.map_err(|error| error.to_string())
}

#[test]
fn only_a_thorough_scrub_finds_what_does_not_decompress() {
    simulate(|rt| async move {
        let lab = Lab::new(&rt, 2).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(12));
        lab.work(&mut model, &mut rng).await;
        let object = write_nonsense(&lab.engine).await;
        start_scrub(&lab.engine, Txg(0)).await.unwrap();
        let scan = lab.scan().await;
        assert!(!scan.is_thorough() && scan.errors == 0, "every checksum is right: {scan:?}");

        start_thorough(&lab.engine).await.unwrap();
        let scan = lab.scan().await;
        assert!(scan.is_thorough() && scan.errors == 1, "{scan:?}");
        let errors = lab.mos().await.error_log().await.unwrap();
        assert!(errors.len() == 1 && errors[0].place.object == object, "{errors:?}");

        // A scrub goes on as it began.
        lab.engine.background().settings().set("zfs_scan_suspend_progress", 1).unwrap();
        start_scrub(&lab.engine, Txg(0)).await.unwrap();
        pause_scrub(&lab.engine).await.unwrap();
        assert!(start_thorough(&lab.engine).await.unwrap_err().contains("is no thorough one"));
        start_scrub(&lab.engine, Txg(0)).await.unwrap();
        lab.engine.background().settings().set("zfs_scan_suspend_progress", 0).unwrap();
        assert_eq!(lab.scan().await.errors, 0);
    });
}

#[test]
fn a_thorough_scrub_reads_no_more_than_another() {
    simulate(|rt| async move {
        let disk = Arc::new(Traced::new(Arc::new(MemoryDevice::new("disk", 96 << 20)), 0, &rt));
        let device = NewDevice { path: "disk".into(), device: disk.clone(), is_file: false };
        let engine = create_on(&rt, vec![device]).await;
        let (mut model, mut rng) = (Model::new(), Rng::new(13));
        work(&engine, POOL, &mut model, &mut rng, LOAD).await;
        engine.sync_all().await.unwrap();
        let mut reads = Vec::new();
        for is_thorough in [false, true] {
            match is_thorough {
                true => start_thorough(&engine).await.unwrap(),
                false => start_scrub(&engine, Txg(0)).await.unwrap(),
            }
            let before = disk.count(Op::Read).ended;
            run_scan(&engine, &|_| {}).await.unwrap();
            reads.push(disk.count(Op::Read).ended - before);
        }
        assert!(reads[1] < reads[0] + reads[0] / 4 + 4, "{reads:?} reads");
    });
}

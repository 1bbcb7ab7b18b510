//! Initializing writes the word that its order chose, also after an interruption.

use std::os::unix::fs::FileExt;
use std::path::Path;

use cenote_dataset::Mos;
use cenote_engine::Engine;
use cenote_format::dsl::names::vdev_zap::INITIALIZE_VALUE;
use cenote_format::units::Guid;
use cenote_object::Zap;
use cenote_pool::{INITIALIZE_PATTERN, Pass, PoolState, VdevKind};
use cenote_runtime::Runtime;
use cenote_tasks::{PassOrder, order_pass, run_passes};

use crate::common::{assert_zdb_is_content, create, reopen, reopen_to_write};

const START: PassOrder = PassOrder::Start { rate: 0, fill: None };
const ZERO: PassOrder = PassOrder::Start { rate: 0, fill: Some(0) };

/// The word in the only leaf's ZAP.
async fn recorded(mos: &Mos) -> Option<u64> {
    let leaf = mos.pool_config().vdevs[0].leaf_zap;
    Zap::open_id(mos.objset(), leaf).await.unwrap().get_u64(INITIALIZE_VALUE).await.unwrap()
}

async fn order(engine: &Engine, order: PassOrder) {
    let leaf: Guid = engine.mos().await.unwrap().pool_config().vdevs[0].guid;
    order_pass(engine, leaf, Pass::Initialize, order).await.unwrap();
}

/// Sectors of the disk that hold this word, behind the front labels.
fn sectors_of(folder: &Path, word: u64) -> usize {
    let mut image = vec![0; 80 << 20];
    std::fs::File::open(folder.join("disk0.img")).unwrap().read_exact_at(&mut image, 8 << 20).unwrap();
    let holds = |sector: &&[u8]| sector.chunks_exact(8).all(|held| held == word.to_ne_bytes());
    image.chunks_exact(512).filter(holds).count()
}

#[test]
fn a_resumed_initialization_writes_the_word_that_it_began_with() {
    let rt = Runtime::real(Some(2));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    rt.block_on(async {
        let engine = create(&rt, folder, &(VdevKind::Disk, 0, 1)).await;
        order(&engine, START).await;
        assert!(run_passes(&engine, &|_| {}).await.unwrap().is_empty());
        let filled = sectors_of(folder, INITIALIZE_PATTERN);
        assert!(filled > 100_000, "{filled}");
        assert_eq!(recorded(&engine.mos().await.unwrap()).await, Some(INITIALIZE_PATTERN));

        order(&engine, ZERO).await;
        order(&engine, PassOrder::Suspend).await;
        engine.close(PoolState::Exported).await.unwrap();
        drop(engine);
        assert_eq!(recorded(&reopen(&rt, folder).await).await, Some(0));
        let kept = sectors_of(folder, INITIALIZE_PATTERN);
        assert!(kept > filled / 50 * 49, "it was suspended at once: {kept} of {filled}");

        let engine = reopen_to_write(&rt, folder).await;
        order(&engine, START).await;
        assert!(run_passes(&engine, &|_| {}).await.unwrap().is_empty());
        let (left, zeros) = (sectors_of(folder, INITIALIZE_PATTERN), sectors_of(folder, 0));
        assert!(left < filled / 50 && zeros > filled / 50 * 49, "{left} and {zeros} of {filled}");

        // A completed pass does not pass its word on.
        order(&engine, START).await;
        assert_eq!(recorded(&engine.mos().await.unwrap()).await, Some(INITIALIZE_PATTERN));
        order(&engine, PassOrder::Cancel).await;
        order(&engine, PassOrder::Forget).await;
        assert_eq!(recorded(&engine.mos().await.unwrap()).await, None);
        engine.close(PoolState::Exported).await.unwrap();
    });
    assert_zdb_is_content(folder, "initialized");
}

//! The pool without its old disks.

use std::sync::Arc;

use cenote_cache::CacheOptions;
use cenote_dataset::{Dataset, ImportOptions, Mos, import};
use cenote_device::Device;
use cenote_fs::Filesystem;
use cenote_pool::discover_devices;
use cenote_runtime::Runtime;
use cenote_testkit::image::Image;

use super::{Files, State};
use crate::check::check_sound;
use crate::pools::{Disks, Layout};

/// The outcome of a history.
pub struct Left {
    pub images: Vec<Image>,
    pub state: State,
    /// The content of the pool when its checkpoint was taken.
    pub checkpoint: Option<State>,
    /// The operations.
    pub log: Vec<String>,
}

/// All files are readable without some disks, and the pool is sound with all.
pub async fn check(rt: &Runtime, layout: &Layout, left: &Left, gone: &[usize]) -> Result<(), String> {
    let disks = || Disks::new(rt, layout.shape(), left.images.clone());
    let all = open(rt, disks().devices(), false).await?;
    compare(&all, &left.state).await.map_err(|why| format!("with all disks: {why}"))?;
    check_sound(&all).await?;
    let mos = open(rt, disks().devices_but(gone), false).await?;
    compare(&mos, &left.state).await.map_err(|why| format!("without {gone:?}: {why}"))?;
    let Some(state) = &left.checkpoint else { return Ok(()) };
    let mos = open(rt, disks().devices_but(gone), true).await?;
    compare(&mos, state).await.map_err(|why| format!("without {gone:?}, the checkpoint: {why}"))
}

async fn open(rt: &Runtime, devices: Vec<Arc<dyn Device>>, checkpoint: bool) -> Result<Mos, String> {
    let found = discover_devices(devices).await;
    let [found] = &found.pools[..] else { return Err(format!("no pool: {:?}", found.problems)) };
    let cache = CacheOptions { data: true, ..CacheOptions::metadata(4 << 20) };
    let options = ImportOptions { checkpoint, cache, ..ImportOptions::default() };
    import(rt, found, &options).await.map_err(|error| error.to_string())
}

/// Checks that the pool holds exactly this state.
async fn compare(mos: &Mos, state: &State) -> Result<(), String> {
    let heads = mos.all_datasets().await.map_err(|error| error.to_string())?;
    let mut snapshots = 0;
    for head in &heads {
        let files = state.heads.get(head.name()).ok_or_else(|| format!("{} is there", head.name()))?;
        compare_files(head, files).await?;
        for snapshot in head.snapshots().await.map_err(|error| error.to_string())? {
            let files = number(snapshot.name()).and_then(|number| state.snapshots.get(&number));
            compare_files(&snapshot, files.ok_or_else(|| format!("{} is there", snapshot.name()))?).await?;
            snapshots += 1;
        }
    }
    match (heads.len(), snapshots) == (state.heads.len(), state.snapshots.len()) {
        true => Ok(()),
        false => Err(format!("there are {} datasets and {snapshots} snapshots", heads.len())),
    }
}

/// The number of a snapshot.
pub fn number(name: &str) -> Option<u64> {
    name.split_once("@s")?.1.parse().ok()
}

async fn compare_files(dataset: &Dataset, files: &Files) -> Result<(), String> {
    let differs = |why: String| format!("{}: {why}", dataset.name());
    let objset = dataset.objset().await.map_err(|error| differs(error.to_string()))?;
    let fs = Filesystem::open(objset).await.map_err(|error| differs(error.to_string()))?;
    let names = fs.list(fs.root()).await.map_err(|error| differs(error.to_string()))?;
    if names.len() != files.len() {
        return Err(differs(format!("{} files instead of {}", names.len(), files.len())));
    }
    for entry in names {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let expected = files.get(&name).ok_or_else(|| differs(format!("{name} is there")))?;
        let in_file = |error: cenote_fs::FsError| differs(format!("{name}: {error}"));
        let file = fs.open_file(entry.object).await.map_err(in_file)?;
        let read = file.read(0, file.attr().size).await.map_err(in_file)?;
        if read[..] != expected[..] {
            return Err(differs(format!("{name} has other content")));
        }
    }
    Ok(())
}

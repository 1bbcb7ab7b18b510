//! Selects the files, devices and remote disks to examine, and reads their labels.

use super::partition::partitions;
use super::seat::{Seat, identity};
use super::writing::Base;
use super::{Problem, problem};
use crate::label::{Label, SPA_MINDEVSIZE, read_labels};
use cenote_device::{Device, DeviceError, OpenOptions, Place, block_devices};
use cenote_format::label::LABEL_BYTES;
use cenote_runtime::Runtime;
use futures::StreamExt;
use std::collections::{BTreeSet, HashSet};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A sleeping disk needs some seconds; a hung one never answers.
const PATIENCE: Duration = Duration::from_secs(30);
const SCAN_WIDTH: usize = 16;

/// A device with at least one usable label.
pub(super) struct Scanned {
    pub(super) device: Arc<dyn Device>,
    pub(super) base: Base,
    /// Where its bytes lie: the same for `sda1` and for the first partition found on `sda`.
    pub(super) seat: Option<Seat>,
    pub(super) labels: Vec<Label>,
}

/// Failures are reported only for places that the user `named`.
struct Candidate {
    place: Place,
    named: bool,
}

pub(super) async fn scan(rt: &Runtime, places: &[Place]) -> (Vec<Scanned>, Vec<Problem>) {
    let asked: Vec<PathBuf> = places.iter().filter_map(|place| place.path().map(Path::to_owned)).collect();
    let (mut candidates, mut problems) = rt.blocking(move || candidates(&asked)).await;
    let remote: BTreeSet<&Place> = places.iter().filter(|place| place.is_remote()).collect();
    candidates.extend(remote.into_iter().map(|place| Candidate { place: place.clone(), named: true }));
    let runtime = rt.clone();
    let step = move |candidate: Candidate| {
        let runtime = runtime.clone();
        async move { scan_patiently(&runtime, &candidate).await }
    };
    let mut scanned = Vec::new();
    let mut results = std::pin::pin!(rt.map_bounded(SCAN_WIDTH, candidates, step));
    while let Some((found, trouble)) = results.next().await {
        scanned.extend(found);
        problems.extend(trouble);
    }
    // A kernel partition and the same partition found inside its disk count once. The kernel's is kept,
    // because only it can be locked alone.
    scanned.sort_by_key(|one| one.is_window());
    let mut seats = HashSet::new();
    scanned.retain(|one| one.seat.is_none_or(|seat| seats.insert(seat)));
    (scanned, problems)
}

impl Scanned {
    fn is_window(&self) -> bool {
        matches!(&self.base, Base::Place(place) if self.device.describe() != place.to_string())
    }
}

/// Block devices of this machine that can hold a vdev, including partitions. Too small for one are card
/// readers without a medium, unused loop devices, and loop devices of small mounts.
pub fn machine_devices() -> Vec<PathBuf> {
    let large = block_devices().into_iter().filter(|device| device.size_kib * 1024 >= SPA_MINDEVSIZE);
    let mut names: Vec<String> = large.map(|device| device.name).collect();
    names.sort();
    names.into_iter().map(|name| Path::new("/dev").join(name)).collect()
}

fn candidates(paths: &[PathBuf]) -> (Vec<Candidate>, Vec<Problem>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for path in paths {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => match folder(path) {
                Ok(entries) => found.extend(entries),
                Err(error) => {
                    problems.push(problem(path.display(), format!("can't list the folder: {error}")));
                }
            },
            Ok(_) => found.push((path.clone(), true)),
            Err(error) => problems.push(problem(path.display(), format!("{error}; check the path"))),
        }
    }
    // A disk may have many names (by-id, by-path); the first one requested is kept.
    found.retain(|(path, _)| identity(path).is_none_or(|id| seen.insert(id)));
    let candidate = |(path, named)| Candidate { place: Place::Path(path), named };
    (found.into_iter().map(candidate).collect(), problems)
}

fn folder(path: &Path) -> std::io::Result<Vec<(PathBuf, bool)>> {
    let mut names: Vec<PathBuf> = std::fs::read_dir(path)?.flatten().map(|entry| entry.path()).collect();
    names.sort();
    let may_be_vdev = |path: &PathBuf| {
        let kind = std::fs::metadata(path).map(|metadata| (metadata.file_type(), metadata.len()));
        kind.is_ok_and(|(kind, len)| kind.is_block_device() || (kind.is_file() && len >= LABEL_BYTES))
    };
    let found = names.into_iter().filter(may_be_vdev);
    Ok(found.map(|path| (path, false)).collect())
}

async fn scan_patiently(rt: &Runtime, candidate: &Candidate) -> (Vec<Scanned>, Option<Problem>) {
    rt.timeout(PATIENCE, scan_one(rt, candidate)).await.unwrap_or_else(|_| {
        let why = format!("did not answer within {} s, and is left out", PATIENCE.as_secs());
        (Vec::new(), Some(problem(&candidate.place, why)))
    })
}

async fn scan_one(rt: &Runtime, candidate: &Candidate) -> (Vec<Scanned>, Option<Problem>) {
    let complain = |why: String| Some(problem(&candidate.place, why));
    let device = match cenote_remote::open(&candidate.place, OpenOptions::READ_ONLY, rt).await {
        Ok(device) => device,
        // A folder of devices holds empty drives and the like, but disks without permission are reported.
        Err(DeviceError::Open { .. }) if !candidate.named => return (Vec::new(), None),
        Err(error) => {
            // The problem names the path already.
            let (text, path) = (error.to_string(), format!("{}: ", candidate.place));
            return (Vec::new(), complain(text.strip_prefix(&path).unwrap_or(&text).to_owned()));
        }
    };
    let seat = match candidate.place.path().map(Path::to_owned) {
        Some(path) => rt.blocking(move || Seat::of(&path)).await,
        None => None,
    };
    look_at(device, Base::Place(candidate.place.clone()), seat, candidate.named).await
}

pub(super) async fn scan_devices(devices: Vec<Arc<dyn Device>>) -> (Vec<Scanned>, Vec<Problem>) {
    let (mut scanned, mut problems) = (Vec::new(), Vec::new());
    for device in devices {
        let (found, trouble) = look_at(device.clone(), Base::Given(device), None, true).await;
        scanned.extend(found);
        problems.extend(trouble);
    }
    (scanned, problems)
}

/// The labels of a device, or of its partitions. A lack of them is a problem only if `named`.
async fn look_at(
    device: Arc<dyn Device>,
    base: Base,
    seat: Option<Seat>,
    named: bool,
) -> (Vec<Scanned>, Option<Problem>) {
    let name = device.describe().to_owned();
    let complain = |why: String| Some(problem(&name, why));
    let labels = read_labels(&*device).await;
    if is_of_use(&labels) {
        return (vec![Scanned { device, seat, base, labels }], None);
    }
    let mut found = Vec::new();
    for (start_bytes, partition) in partitions(&device).await {
        let labels = read_labels(&*partition).await;
        if is_of_use(&labels) {
            let seat = seat.map(|seat| seat.behind(start_bytes));
            found.push(Scanned { device: partition, base: base.clone(), seat, labels });
        }
    }
    let unreadable = labels.iter().find_map(|label| label.unreadable.as_ref());
    let trouble = match unreadable {
        Some(error) if found.is_empty() => complain(format!("labels can't be read: {error}")),
        None if found.is_empty() && named && device.size_bytes() < LABEL_BYTES => {
            let size_bytes = device.size_bytes();
            complain(format!(
                "has {size_bytes} bytes, less than a ZFS label: not a disk of a pool, or cut short"
            ))
        }
        None if found.is_empty() && named => {
            complain("no ZFS label here: not a vdev, or all four labels are destroyed".into())
        }
        _ => None,
    };
    (found, trouble)
}

fn is_of_use(labels: &[Label]) -> bool {
    labels.iter().any(|label| label.config.is_some() || !label.uberblocks.is_empty())
}

//! One dataset: opened as far as copying requires, and copied into its own folder.
//!
//! ```text
//!   DEST/pool/a/b/...          file system pool/a/b     nested, as if all were mounted
//!   DEST/pool/a@monday/...     its snapshot
//!   DEST/pool/vol.img          volume pool/vol          DEST/pool/vol@monday.img
//! ```

use cenote_dataset::Dataset;
use cenote_format::objset::ObjsetType;
use cenote_fs::{FsError, Volume};
use cenote_object::DatasetError;
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::copy::{Copier, CopySource, Folder, Loss, LossKind, Name, Reason, VolumeSink};
use crate::error::Result;

/// A dataset that can be copied.
#[derive(Debug, Clone)]
pub(super) enum Opened {
    /// A file system or a snapshot of one, whose root is readable.
    Filesystem { dataset: Dataset, filesystem: cenote_fs::Filesystem },
    /// A volume or a snapshot of one.
    Volume(Volume),
}

/// Opens a dataset and checks its root.
pub(super) async fn open(dataset: &Dataset) -> Result<Opened, FsError> {
    let objset = dataset.objset().await?;
    if objset.phys().objset_type == ObjsetType::Zvol {
        return Ok(Opened::Volume(Volume::open(objset).await?));
    }
    let filesystem = cenote_fs::Filesystem::open(objset).await?;
    filesystem.attr(filesystem.root()).await?;
    Ok(Opened::Filesystem { dataset: dataset.clone(), filesystem })
}

/// Opens a file system with damaged tables, using tables of an older state where necessary.
pub(super) async fn salvage(dataset: &Dataset, older: Option<&Opened>) -> Result<Opened, FsError> {
    let older = match older {
        Some(Opened::Filesystem { filesystem, .. }) => Some(filesystem.sa_registry()),
        _ => None,
    };
    let filesystem = cenote_fs::Filesystem::salvage(dataset.objset().await?, older).await?;
    filesystem.attr(filesystem.root()).await?;
    Ok(Opened::Filesystem { dataset: dataset.clone(), filesystem })
}

/// Whether the data is encrypted and the key was not given.
pub(super) fn is_locked(error: &FsError) -> bool {
    matches!(error, FsError::Dataset(error) if error.is_locked())
}

/// Whether the dataset does not exist in this tree (rather than being damaged).
pub(super) fn is_absent(error: &FsError) -> bool {
    matches!(error, FsError::Dataset(DatasetError::NoDataset { .. }))
}

/// Opens a dataset's own folder, creating it if needed.
pub(super) fn folder_of(root: &Folder, name: &str) -> Result<Folder, Errno> {
    let (above, last) = place_of(root, name)?;
    make(&above, last)
}

/// The parent of a dataset's folder, created if needed, and the last part of its name.
fn place_of<'a>(root: &Folder, name: &'a str) -> Result<(Folder, &'a str), Errno> {
    let (above, last) = name.rsplit_once('/').unwrap_or(("", name));
    let mut folder = root.again()?;
    for part in above.split('/').filter(|part| !part.is_empty()) {
        folder = make(&folder, part)?;
    }
    Ok((folder, last))
}

/// Creates a folder for a dataset. If a file of the parent dataset has that name, another name is used.
fn make(folder: &Folder, name: &str) -> Result<Folder, Errno> {
    let made = |name: &str| folder.make(&Name::or_stand_in(name.as_bytes()), Mode::RWXU);
    match made(name) {
        Err(Errno::NOTDIR | Errno::LOOP | Errno::EXIST) => made(&format!("{name}.dataset")),
        done => done,
    }
}

pub(super) async fn copy(copier: &Copier, opened: &Opened, root: &Folder, name: &str) {
    let lost = match opened {
        Opened::Filesystem { filesystem, .. } => match folder_of(root, name) {
            Ok(folder) => {
                let object = filesystem.root();
                let source = CopySource { filesystem: filesystem.clone(), object, path: b"/".to_vec() };
                copier.copy_into(&source, &folder).await;
                return;
            }
            Err(errno) => Reason::System(errno),
        },
        Opened::Volume(volume) => match copy_volume(copier, volume, root, name).await {
            Ok(()) => return,
            Err(reason) => reason,
        },
    };
    copier.lost(Loss { path: b"/".to_vec(), kind: LossKind::File, reason: lost });
}

async fn copy_volume(copier: &Copier, volume: &Volume, root: &Folder, name: &str) -> Result<(), Reason> {
    let (folder, last) = place_of(root, name)?;
    let name = Name::or_stand_in(format!("{last}.img").as_bytes());
    copier.copy_volume(volume, b"/", VolumeSink::File(folder, name)).await
}

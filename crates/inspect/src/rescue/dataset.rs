//! One dataset: opened as far as copying needs, and copied into the folder that is its own.
//!
//! ```text
//!   DEST/pool/a/b/...          file system pool/a/b     as if all were mounted in one another
//!   DEST/pool/a@monday/...     its snapshot
//!   DEST/pool/vol.img          volume pool/vol          DEST/pool/vol@monday.img
//! ```

use cenote_dataset::{Dataset, DatasetError};
use cenote_format::objset::ObjsetType;

use super::*;

/// A dataset that can be copied.
#[derive(Debug, Clone)]
pub(super) enum Opened {
    /// A file system or a snapshot of one, whose root can be read.
    Filesystem { dataset: Dataset, filesystem: cenote_fs::Filesystem },
    /// A volume or a snapshot of one.
    Volume(Volume),
}

/// Opens a dataset and looks at its root.
pub(super) async fn open(dataset: &Dataset) -> Result<Opened, FsError> {
    let objset = dataset.objset().await?;
    if objset.phys().objset_type == ObjsetType::Zvol {
        return Ok(Opened::Volume(Volume::open(objset).await?));
    }
    let filesystem = cenote_fs::Filesystem::open(objset).await?;
    filesystem.attr(filesystem.root()).await?;
    Ok(Opened::Filesystem { dataset: dataset.clone(), filesystem })
}

/// The data are encrypted and the key was not given.
pub(super) fn is_locked(error: &FsError) -> bool {
    matches!(error, FsError::Dataset(error) if error.is_locked())
}

/// No such dataset in this tree, as opposed to one that is damaged.
pub(super) fn is_absent(error: &FsError) -> bool {
    matches!(error, FsError::Dataset(DatasetError::NoDataset { .. }))
}

/// Makes (if need be) and opens a dataset's own folder.
pub(super) fn folder_of(root: &Folder, name: &str) -> Result<Folder, Errno> {
    let (above, last) = place_of(root, name)?;
    make(&above, last)
}

/// The folder above a dataset's own, made if need be, and the last part of its name.
fn place_of<'a>(root: &Folder, name: &'a str) -> Result<(Folder, &'a str), Errno> {
    let (above, last) = name.rsplit_once('/').unwrap_or(("", name));
    let mut folder = root.again()?;
    for part in above.split('/').filter(|part| !part.is_empty()) {
        folder = make(&folder, part)?;
    }
    Ok((folder, last))
}

/// A folder for a dataset. Where a file of the dataset above has taken the name, it gets another.
fn make(folder: &Folder, name: &str) -> Result<Folder, Errno> {
    let made = |name: &str| folder.make(&Name::new(name.as_bytes()).ok_or(Errno::INVAL)?, Mode::RWXU);
    match made(name) {
        Err(Errno::NOTDIR | Errno::LOOP | Errno::EXIST) => made(&format!("{name}.dataset")),
        done => done,
    }
}

/// Copies all of a dataset; losses are told to the copier's listener.
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
    let name = Name::new(format!("{last}.img").as_bytes()).ok_or(Errno::INVAL)?;
    copier.copy_volume(volume, b"/", VolumeSink::File(folder, name)).await
}

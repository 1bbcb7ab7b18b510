//! Volumes of open pools, as disks for network protocols.
//!
//! ```text
//!   name --> pool, dataset --> head: VolumeWriter, shared with commands           } ServedVolume
//!                          --> snapshot: a view, and a hold on the snapshot       }
//! ```
//!
//! Idea: each use of a volume is recorded with its pool ([`Clients`]), so that an export can name the clients
//! in its way, or disconnect them. Properties control serving, and move with the pool: `volmode=none` hides a
//! volume, `snapdev=visible` lists its snapshots, and the user property [`SERVE_PROPERTY`] can be `off` or
//! `ro`.
//!
//! Locking: any number of tasks may use a served volume at once.

mod clients;
mod watch;

pub use clients::{Client, Clients, Noted, Presence};
pub use watch::{LOOK, Watch};

use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_dataset::{Dataset, KeyStatus, Property, Source};
use cenote_engine::{Engine, Need, SnapshotHold};
use cenote_format::objset::ObjsetType;
use cenote_format::units::{Guid, Txg};
use cenote_fs::{FsError, Refusal, Volume, VolumeSource, VolumeWriter};
use cenote_object::{DatasetError, Wait};

use crate::cancel::Cancel;
use crate::pools::Pools;

/// User property for serving a volume: `on` (the default), `off`, or `ro`.
pub const SERVE_PROPERTY: &str = "org.cenote:serve";

/// User property for a unit of a shared iSCSI target: `TARGET:NUMBER`. Not inherited.
pub const LUN_PROPERTY: &str = "org.cenote:iscsi.lun";

/// Bytes zeroed per txg; longer ranges are split.
const ZERO_BYTES: u64 = 1 << 30;
/// Zeroing may write two edge blocks, and metadata.
const ZERO_NEED_BYTES: u64 = 1 << 20;

/// Sharing blocks may write metadata.
const SHARE_NEED_BYTES: u64 = 1 << 20;

/// Why a volume is not served.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum Unserved {
    #[error("there is no volume '{name}'")]
    Unknown { name: String },
    #[error("'{name}' is not a volume")]
    Kind { name: String },
    #[error("'{name}' is not served: {why}")]
    Hidden { name: String, why: String },
    #[error("the key of '{name}' is not loaded")]
    Key { name: String },
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    #[error(transparent)]
    Volume(#[from] FsError),
}

/// A volume visible to clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeInfo {
    /// The GUIDs of its pool and itself, which renames keep.
    pub guids: (Guid, Guid),
    /// Its name, including the snapshot's.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// `volblocksize`.
    pub block_bytes: u64,
    /// Whether clients cannot change it.
    pub is_read_only: bool,
    /// Its own [`LUN_PROPERTY`].
    pub lun: Option<String>,
}

/// A snapshot to compare a volume with.
pub struct Earlier {
    txg: Txg,
    volume: Volume,
}

/// A volume that a client uses.
pub struct ServedVolume {
    kind: Kind,
    name: String,
    guid: Guid,
    // Last: dropping it reports the client as gone.
    noted: Arc<Noted>,
}

enum Kind {
    Head(Engine, Arc<VolumeWriter>, Access),
    /// The hold keeps it from being destroyed.
    Snapshot(Volume, SnapshotHold),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Full,
    ReadOnly,
}

impl ServedVolume {
    /// Opens a volume for a client.
    ///
    /// # Errors
    /// There is no such volume, or it is not served.
    #[boxed]
    pub async fn open(
        pools: &Pools,
        name: &str,
        who: &str,
        cancel: &Cancel,
    ) -> Result<ServedVolume, Unserved> {
        let unknown = || Unserved::Unknown { name: name.into() };
        let pool = pools.get(name.split(['/', '@']).next().unwrap_or_default()).ok_or_else(unknown)?;
        // First, so that a later export waits or is refused.
        let noted = Noted::new(pool, name, Arc::new(who.to_owned()), cancel);
        ServedVolume::open_noted(Arc::new(noted), name).await
    }

    /// Opens a volume for a client already recorded.
    ///
    /// # Errors
    /// As [`ServedVolume::open`].
    #[boxed]
    pub async fn open_noted(noted: Arc<Noted>, name: &str) -> Result<ServedVolume, Unserved> {
        let pool = &noted.pool;
        let mos = pool.engine.mos().await?;
        let dataset = match mos.dataset(name).await {
            Err(DatasetError::NoDataset { .. }) => return Err(Unserved::Unknown { name: name.into() }),
            found => found?,
        };
        // Snapshots follow their volume.
        let head = match name.split_once('@') {
            Some((head, _)) => mos.dataset(head).await?,
            None => dataset.clone(),
        };
        let access = access(&head, &dataset).await?;
        let kind = if dataset.is_snapshot() {
            let (dataset, snapshot) = pool.engine.snapshot(name).await?;
            let hold = snapshot.hold().ok_or_else(|| Unserved::Unknown { name: name.into() })?;
            Kind::Snapshot(Volume::open(dataset.objset().await?.not_keeping()).await?, hold)
        } else {
            Kind::Head(pool.engine.clone(), VolumeWriter::shared(&pool.engine, name).await?, access)
        };
        Ok(ServedVolume { kind, name: name.into(), guid: dataset.guid(), noted })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The GUIDs of its pool and itself, which renames keep.
    pub fn guids(&self) -> (Guid, Guid) {
        (self.noted.pool.engine.pool().tree().guid(), self.guid)
    }

    /// Its own [`LUN_PROPERTY`].
    pub async fn own_lun(&self) -> Result<Option<String>, DatasetError> {
        if self.name.contains('@') {
            return Ok(None);
        }
        own_lun(&self.noted.pool.engine.mos().await?.dataset(&self.name).await?).await
    }

    /// Engine and name for property changes, unless read-only.
    pub fn changeable(&self) -> Option<(&Engine, &str)> {
        self.writer().ok().map(|(engine, _)| (engine, self.name()))
    }

    /// Its size now, in bytes.
    pub fn size_bytes(&self) -> u64 {
        match &self.kind {
            Kind::Head(_, writer, _) => writer.size_bytes(),
            Kind::Snapshot(volume, _) => volume.size_bytes(),
        }
    }

    /// `volblocksize`.
    pub fn block_bytes(&self) -> u64 {
        match &self.kind {
            Kind::Head(_, writer, _) => writer.block_bytes(),
            Kind::Snapshot(volume, _) => volume.block_bytes(),
        }
    }

    /// Whether clients cannot change it.
    pub fn is_read_only(&self) -> bool {
        !matches!(self.kind, Kind::Head(_, _, Access::Full))
    }

    async fn view(&self) -> Result<Volume, FsError> {
        match &self.kind {
            Kind::Head(_, writer, _) => writer.view().await,
            Kind::Snapshot(volume, _) => Ok(volume.clone()),
        }
    }

    /// Runs a client's operation, timed if the volume is a head.
    async fn timed<T>(&self, wait: Wait, work: impl Future<Output = T>) -> T {
        match &self.kind {
            Kind::Head(engine, writer, _) => {
                writer.live().traffic().timed(engine.runtime(), wait, work).await
            }
            Kind::Snapshot(..) => work.await,
        }
    }

    /// Reads a range within the volume.
    ///
    /// # Errors
    /// A block can't be read.
    #[boxed]
    pub async fn read(&self, range: Range<u64>) -> Result<Bytes, FsError> {
        let read = async { self.view().await?.read(range.start, range.end - range.start).await };
        self.timed(Wait::Read, read).await
    }

    /// Writes at an offset. Durable after [`ServedVolume::flush`], or at once with `sync=always`.
    ///
    /// # Errors
    /// It is read-only or too small, or the pool is full.
    #[boxed]
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), FsError> {
        let (engine, writer) = self.writer()?;
        let (need, volume) = (Need::Write(data.len() as u64), writer.clone());
        let write = async {
            let write = |edit| async move { volume.write(&edit, offset, data).await };
            engine.change(writer.live(), need, write).await?;
            self.after_change().await
        };
        self.timed(Wait::Write, write).await
    }

    /// Zeroes a range, and frees its whole blocks.
    ///
    /// # Errors
    /// As [`ServedVolume::write`].
    #[boxed]
    pub async fn zero(&self, range: Range<u64>) -> Result<(), FsError> {
        let (engine, writer) = self.writer()?;
        for part in parts(range, ZERO_BYTES) {
            let volume = writer.clone();
            engine
                .change(writer.live(), Need::Write(ZERO_NEED_BYTES), |edit| async move {
                    volume.write_zeros(&edit, part).await
                })
                .await?;
        }
        self.after_change().await
    }

    /// Frees a range's whole blocks.
    ///
    /// # Errors
    /// As [`ServedVolume::write`].
    #[boxed]
    pub async fn discard(&self, range: Range<u64>) -> Result<(), FsError> {
        let (engine, writer) = self.writer()?;
        for part in parts(range, ZERO_BYTES) {
            let volume = writer.clone();
            engine
                .change(writer.live(), Need::Free, |edit| async move { volume.discard(&edit, part).await })
                .await?;
        }
        self.after_change().await
    }

    /// Shares whole blocks of another volume's range. Returns the bytes shared from its start; 0 if
    /// impossible.
    ///
    /// # Errors
    /// As [`ServedVolume::write`].
    #[boxed]
    pub async fn share(&self, offset: u64, from: &ServedVolume, range: Range<u64>) -> Result<u64, FsError> {
        let (engine, writer) = self.writer()?;
        let mut has_waited = false;
        loop {
            let source = match &from.kind {
                Kind::Head(_, writer, _) => VolumeSource::Live(writer.clone()),
                Kind::Snapshot(volume, hold) => VolumeSource::Snapshot(volume.clone(), hold.clone()),
            };
            let (volume, range) = (writer.clone(), range.clone());
            let sharing = engine.change(writer.live(), Need::Write(SHARE_NEED_BYTES), |edit| async move {
                volume.clone_range(&edit, &source, range, offset).await
            });
            match sharing.await {
                Err(error) if error.refusal() == Some(Refusal::Again) && has_waited => return Ok(0),
                // Blocks can be shared once their txg is on disk.
                Err(error) if error.refusal() == Some(Refusal::Again) => engine.sync_all().await?,
                Ok(0) => return Ok(0),
                shared => {
                    let bytes = shared?;
                    self.after_change().await?;
                    return Ok(bytes);
                }
            }
            has_waited = true;
        }
    }

    /// Makes all writes so far durable.
    ///
    /// # Errors
    /// Neither the log nor a txg could be written.
    #[boxed]
    pub async fn flush(&self) -> Result<(), FsError> {
        match &self.kind {
            Kind::Head(_, writer, _) => self.timed(Wait::Commit, writer.commit()).await,
            Kind::Snapshot(..) => Ok(()),
        }
    }

    /// Whether a range starts with data, and the end of that extent.
    ///
    /// # Errors
    /// An indirect block can't be read.
    #[boxed]
    pub async fn extent(&self, range: Range<u64>) -> Result<(bool, u64), FsError> {
        self.view().await?.extent(range).await
    }

    /// Opens a snapshot of this volume for comparison.
    ///
    /// # Errors
    /// The snapshot can't be read.
    #[boxed]
    pub async fn earlier(&self, snapshot: &str) -> Result<Option<Earlier>, FsError> {
        let head = self.name.split('@').next().unwrap_or_default();
        let mos = self.noted.pool.engine.mos().await?;
        let Some(found) = mos.dataset(head).await?.snapshot(snapshot).await? else { return Ok(None) };
        Ok(Some(Earlier { txg: found.creation_txg(), volume: Volume::open(found.objset().await?).await? }))
    }

    /// Whether a range starts with blocks that may have changed since a snapshot, and the end of that extent;
    /// as of the last txg.
    ///
    /// # Errors
    /// An indirect block can't be read.
    #[boxed]
    pub async fn changed_since(&self, since: &Earlier, range: Range<u64>) -> Result<(bool, u64), FsError> {
        match &self.kind {
            Kind::Snapshot(volume, _) => volume.differs_from(&since.volume, since.txg, range).await,
            Kind::Head(engine, writer, _) => {
                if writer.live().dirty_bytes() > 0 {
                    engine.sync_all().await?;
                }
                let on_disk = Volume::open(writer.live().on_disk()).await?;
                on_disk.differs_from(&since.volume, since.txg, range).await
            }
        }
    }

    fn writer(&self) -> Result<(&Engine, &Arc<VolumeWriter>), FsError> {
        match &self.kind {
            Kind::Head(engine, writer, Access::Full) => Ok((engine, writer)),
            _ => Err(DatasetError::unsuitable(&self.name, "is read-only").into()),
        }
    }

    async fn after_change(&self) -> Result<(), FsError> {
        match &self.kind {
            Kind::Head(_, writer, _) if writer.is_sync_always() => writer.commit().await,
            _ => Ok(()),
        }
    }
}

/// All volumes and volume snapshots visible to clients.
///
/// # Errors
/// A pool's datasets can't be read.
#[boxed]
pub async fn list(pools: &Pools) -> Result<Vec<VolumeInfo>, DatasetError> {
    let mut all = Vec::new();
    for pool in pools.all() {
        for head in pool.engine.mos().await?.reachable_datasets().await?.0 {
            // Omit volumes that can't be served.
            if !matches!(head.content_type().await, Ok(ObjsetType::Zvol)) {
                continue;
            }
            let is_visible = head.property("snapdev").await?.is_some_and(|it| it.literal() == "visible");
            let snapshots = if is_visible { head.snapshots().await? } else { Vec::new() };
            for dataset in std::iter::once(&head).chain(&snapshots) {
                let Ok(access) = access(&head, dataset).await else { continue };
                let Ok(volume) = Volume::open(dataset.objset().await?).await else { continue };
                let lun = if dataset.is_snapshot() { None } else { own_lun(dataset).await? };
                all.push(VolumeInfo {
                    guids: (pool.guid(), dataset.guid()),
                    name: dataset.name().into(),
                    size_bytes: volume.size_bytes(),
                    block_bytes: volume.block_bytes(),
                    is_read_only: access == Access::ReadOnly,
                    lun,
                });
            }
        }
    }
    Ok(all)
}

/// A volume's path below a folder; `None` if its name leads out of there.
pub fn path_below(dir: &Path, name: &str) -> Option<PathBuf> {
    let is_plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    is_plain.then(|| dir.join(name))
}

async fn own_lun(volume: &Dataset) -> Result<Option<String>, DatasetError> {
    let found = volume.property(LUN_PROPERTY).await?;
    let is_own = |property: &Property| !matches!(property.source, Source::Inherited(_));
    Ok(found.filter(is_own).map(|property| property.literal()))
}

/// The access to a volume or its snapshot, if served.
async fn access(head: &Dataset, dataset: &Dataset) -> Result<Access, Unserved> {
    let name = || dataset.name().to_owned();
    if head.content_type().await? != ObjsetType::Zvol {
        return Err(Unserved::Kind { name: name() });
    }
    let value = async |property: &str| -> Result<String, DatasetError> {
        Ok(head.property(property).await?.map(|property| property.literal()).unwrap_or_default())
    };
    let hidden = |why: &str| Unserved::Hidden { name: name(), why: why.into() };
    if value("volmode").await? == "none" {
        return Err(hidden("volmode=none"));
    }
    let serve = value(SERVE_PROPERTY).await?;
    match &*serve {
        "" | "on" | "ro" => {}
        "off" => return Err(hidden(&format!("{SERVE_PROPERTY}=off"))),
        other => return Err(hidden(&format!("{SERVE_PROPERTY}={other} is none of on, ro and off"))),
    }
    if dataset.key_status().await? == KeyStatus::Unavailable {
        return Err(Unserved::Key { name: name() });
    }
    match dataset.is_snapshot() || serve == "ro" || value("readonly").await? == "on" {
        true => Ok(Access::ReadOnly),
        false => Ok(Access::Full),
    }
}

fn parts(range: Range<u64>, most_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    range.step_by(most_bytes as usize).map(move |start| start..end.min(start + most_bytes))
}

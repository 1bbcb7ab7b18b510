//! Raises the version of a file system.
//!
//! Idea: the version decides the form of new entries and attributes; old ones are read and changed as before.
//! From version 5 on there is a table of attributes, and old znodes become attributes at their first change.
//! A writer keeps the version with which it was opened, so a file system in use is refused.
//!
//! Source: OpenZFS `zfs_vfsops.c` (`zfs_set_version`).

use cenote_boxed::boxed;
use cenote_engine::{Engine, Need};
use cenote_format::dnode::ObjectType;
use cenote_object::{DatasetError, Edit, NewZap, ZapEdit};

use crate::error::{FsError, Result};
use crate::filesystem::{Filesystem, MASTER_NODE};
use crate::write::{FsOptions, FsWriter, ZPL_VERSION_SA};

/// Most bytes written: the master node and the table of attributes.
const MOST_BYTES: u64 = 64 << 10;

/// Raises a file system to a version that its pool supports, unless it has that or a later one. Returns its
/// version before.
///
/// # Errors
/// It is in use; it can't be read or changed.
#[boxed]
pub async fn upgrade_filesystem(engine: &Engine, name: &str, version: u64) -> Result<u64> {
    let mos = engine.mos().await?;
    let found = mos.dataset(name).await?;
    let mut before = None;
    // Another opening waits for this one, and finds the new version.
    let open = async || {
        let dataset = engine.dataset_as(&found).await?;
        let now = Filesystem::open(dataset.view()).await?.master().version;
        before = Some(now);
        if now < version {
            let raise = move |edit: Edit| async move { raise(&edit, version).await };
            engine.change(dataset.live(), Need::Write(MOST_BYTES), raise).await?;
        }
        let options = FsOptions::of(&mos, &found).await?;
        Ok::<_, FsError>(FsWriter::open(dataset, options).await?.0)
    };
    engine.handle(found.id(), open).await?;
    before.ok_or_else(|| DatasetError::busy(name, "another command has it open").into())
}

async fn raise(edit: &Edit, version: u64) -> Result<()> {
    let master = ZapEdit::new(edit, MASTER_NODE);
    master.update("VERSION", version).await?;
    let table = master.get("SA_ATTRS").await?.and_then(|value| value.as_u64()).unwrap_or(0);
    if version >= ZPL_VERSION_SA && table == 0 {
        let table = NewZap::of(ObjectType::SA_MASTER_NODE).create(edit).await?;
        master.update("SA_ATTRS", table.0).await?;
    }
    Ok(())
}

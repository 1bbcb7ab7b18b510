//! Replays changes of names.

use cenote_format::sa::ZplAttr;
use cenote_format::units::ObjectId;
use cenote_format::zil::record::{NewObject, RenameKind};
use cenote_format::znode::FileKind;

use super::super::make::{Making, NewFile, NewKind};
use super::super::znode::Znode;
use super::super::{Change, FsWriter, RenameMode};
use super::{AsLogged, Replay, contradiction, time};
use crate::attr::pflags;
use crate::error::{FsError, Refusal, Result};

impl Replay<'_> {
    pub(super) async fn create(&self, new: &NewObject, name: &[u8], target: Option<&[u8]>) -> Result<()> {
        self.fs.check_name(new.directory, name)?;
        let _held = self.fs.0.locks.exclusive(&[new.directory]).await;
        let mut parent = self.fs.load_dir(self.change.edit, new.directory).await?;
        if self.fs.find(self.change.edit, new.directory, name).await?.is_some() {
            return Err(Refusal::Exists.named(new.directory, name));
        }
        let id = self.fs.make_logged(self.change, &parent, new, target).await?;
        let kind = FileKind::from_mode(new.mode);
        if let Err(error) = self.fs.add_name(self.change, &mut parent, name, id, kind).await {
            self.change.edit.destroy(id).await?;
            return Err(error);
        }
        self.fs.save(self.change.edit, &mut parent).await
    }

    /// Recreates the hidden directory of a file.
    pub(super) async fn xattr_dir(&self, new: &NewObject) -> Result<()> {
        let _held = self.fs.0.locks.exclusive(&[new.directory]).await;
        let mut node = self.fs.load(self.change.edit, new.directory).await?;
        let making = Making {
            flags: pflags::XATTR,
            as_logged: Some(new.into()),
            ..Making::apart(self.fs, node.id, new.mode as u32 & 0o7777, (new.uid, new.gid))
        };
        let id = self.fs.make(Change { now: time(new.crtime), ..self.change }, &making).await?;
        node.set_u64(ZplAttr::Xattr, id.0);
        self.fs.save(self.change.edit, &mut node).await
    }

    pub(super) async fn remove(&self, dir: ObjectId, name: &[u8], is_directory: bool) -> Result<()> {
        let gone = match is_directory {
            true => Some(self.fs.rmdir(self.change, dir, name).await?),
            false => self.fs.unlink(self.change, dir, name).await?,
        };
        self.free_all(gone).await
    }

    pub(super) async fn rename(
        &self,
        kind: &RenameKind,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
    ) -> Result<()> {
        let (mode, logged) = match kind {
            RenameKind::Replace => (RenameMode::Replace, None),
            RenameKind::Exchange => (RenameMode::Exchange, None),
            RenameKind::Whiteout(new) => {
                (RenameMode::Whiteout { replaces: true, owner: (new.uid, new.gid) }, Some(new))
            }
        };
        let gone = self.fs.rename_as_logged(self.change, from, to, mode, logged).await?;
        self.free_all(gone).await
    }

    /// No file is open during a replay: a file without names is freed at once, since its number may soon be
    /// reused.
    async fn free_all(&self, gone: Option<ObjectId>) -> Result<()> {
        if let Some(gone) = gone {
            while !self.fs.free_unlinked(self.change, gone).await? {}
        }
        Ok(())
    }
}

impl FsWriter {
    /// Recreates an object without a name yet, in a directory whose lock the caller holds.
    pub(in super::super) async fn make_logged(
        &self,
        change: Change<'_>,
        parent: &Znode,
        new: &NewObject,
        target: Option<&[u8]>,
    ) -> Result<ObjectId> {
        let (mode, kind) = (new.mode as u32, new_kind(new, target)?);
        let file = NewFile { kind, mode: mode & 0o7777, umask: 0, uid: new.uid, gid: new.gid };
        let making =
            Making { mode, gid: new.gid, as_logged: Some(new.into()), ..Making::child(self, parent, &file)? };
        // All its times are its creation time.
        self.make(Change { now: time(new.crtime), ..change }, &making).await
    }
}

impl From<&NewObject> for AsLogged {
    fn from(new: &NewObject) -> AsLogged {
        AsLogged { object: new.object, slots: new.slots.min(32) as u8, generation: new.generation }
    }
}

fn new_kind<'t>(new: &NewObject, target: Option<&'t [u8]>) -> Result<NewKind<'t>, FsError> {
    let device = ((new.rdev >> 20) as u32, new.rdev as u32 & 0xf_ffff);
    Ok(match FileKind::from_mode(new.mode) {
        FileKind::Regular => NewKind::Regular,
        FileKind::Directory => NewKind::Directory,
        FileKind::Symlink => {
            NewKind::Symlink(target.ok_or_else(|| contradiction("creates a link without a target"))?)
        }
        FileKind::Fifo => NewKind::Fifo,
        FileKind::Socket => NewKind::Socket,
        FileKind::CharDevice => NewKind::CharDevice(device.0, device.1),
        FileKind::BlockDevice => NewKind::BlockDevice(device.0, device.1),
        _ => return Err(contradiction("creates a file of unknown type")),
    })
}

//! Moves names.
//!
//! Idea: both names are looked up, then the directories and files are locked together, by number; if the
//! names have changed by then, this is repeated. Only one directory at a time moves to another, so the path
//! from its new parent to the root stays fixed, and is checked not to contain the directory.
//!
//! Locking: `moves` comes before object locks. If a look-up shows that a directory moves, the object locks
//! are released, `moves` is taken, and the look-up is repeated.
//!
//! Source: OpenZFS `zfs_vnops_os.c` (`zfs_rename`, `zfs_rename_check`).

use cenote_boxed::boxed;
use cenote_format::sa::ZplAttr;
use cenote_format::units::ObjectId;
use cenote_format::zil::record::{NewObject, RenameKind};
use cenote_format::znode::FileKind;
use cenote_object::Edit;
use tokio::sync::MutexGuard;

use super::locks::Held;
use super::logging::new_object;
use super::make::{Making, NewFile, NewKind};
use super::names::check_empty;
use super::znode::Znode;
use super::{Change, FsWriter};
use crate::attr::pflags;
use crate::directory::{DirEntry, MAX_DEPTH};
use crate::error::{FsError, Refusal, Result};

/// Treatment of a file that already has the new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// It loses the name.
    Replace,
    /// Nothing: the rename fails.
    NoReplace,
    /// The two swap names.
    Exchange,
    /// Replaces or refuses; leaves a whiteout, a character device 0:0, under the old name.
    Whiteout {
        /// Whether an existing file loses the new name.
        replaces: bool,
        /// User and group of the whiteout, to which it is charged.
        owner: (u64, u64),
    },
}

/// Marks a name as removed in a layer of an overlay.
const WHITEOUT: NewFile<'static> =
    NewFile { kind: NewKind::CharDevice(0, 0), mode: 0, umask: 0, uid: 0, gid: 0 };

type DirName<'a> = (ObjectId, &'a [u8]);

/// Held while a directory moves to another one.
type Turn<'a> = Option<MutexGuard<'a, ()>>;

/// The directories involved: one or two.
struct Parents {
    from: Znode,
    /// `None` if the same.
    to: Option<Znode>,
}

impl Parents {
    fn to(&mut self) -> &mut Znode {
        self.to.as_mut().unwrap_or(&mut self.from)
    }
}

impl FsWriter {
    /// Moves a name. Returns the file that lost its last name as a result: see [`FsWriter::unlink`].
    ///
    /// # Errors
    /// The name does not exist; the file with the new name has another type or is not empty; a directory
    /// would contain itself; refusals of files and directories; damage.
    #[boxed]
    pub async fn rename(
        &self,
        change: Change<'_>,
        from: DirName<'_>,
        to: DirName<'_>,
        mode: RenameMode,
    ) -> Result<Option<ObjectId>> {
        self.rename_as_logged(change, from, to, mode, None).await
    }

    /// The same, with a logged whiteout's values.
    pub(super) async fn rename_as_logged(
        &self,
        change: Change<'_>,
        from: DirName<'_>,
        to: DirName<'_>,
        mode: RenameMode,
        logged: Option<&NewObject>,
    ) -> Result<Option<ObjectId>> {
        self.check_name(to.0, to.1)?;
        let (_held, source, target) = self.hold_both(change.edit, from, to).await?;
        let mut parents = Parents {
            from: self.load_dir(change.edit, from.0).await?,
            to: if from.0 == to.0 { None } else { Some(self.load_dir(change.edit, to.0).await?) },
        };
        let mut file = self.load(change.edit, source.object).await?;
        self.check_rename(change.edit, &mut parents, &file, (&source, to)).await?;
        let Some(target) = target else {
            if mode == RenameMode::Exchange {
                return Err(Refusal::NotFound.named(to.0, to.1));
            }
            let whiteout = self.make_whiteout(change, &parents.from, mode, logged).await?;
            self.move_name(change, &mut parents, &mut file, &source.name, to.1).await?;
            let kind = self.leave(change, &mut parents, &source.name, whiteout.as_ref()).await?;
            self.save_parents(change, &mut parents).await?;
            self.notes(change).renamed(&[file.id], kind, (from.0, &source.name), to);
            self.note_whiteout(change, &parents.from, whiteout.as_ref())?;
            return Ok(None);
        };
        if matches!(mode, RenameMode::NoReplace | RenameMode::Whiteout { replaces: false, .. }) {
            return Err(Refusal::Exists.named(to.0, to.1));
        }
        if target.object == source.object {
            // Two names of one file both stay; a single name may change its spelling.
            if from.0 == to.0 && target.name == source.name && source.name != to.1 {
                self.move_name(change, &mut parents, &mut file, &source.name, to.1).await?;
                self.save_parents(change, &mut parents).await?;
                self.notes(change).renamed(&[file.id], RenameKind::Replace, (from.0, &source.name), to);
            }
            return Ok(None);
        }
        let mut other = self.load(change.edit, target.object).await?;
        self.may_remove(parents.to(), &other)?;
        if mode == RenameMode::Exchange {
            self.check_inside(change.edit, &other, from.0).await?;
            self.may_enter(&parents.from, &other)?;
            self.exchange(change, &mut parents, (&mut file, &source), (&mut other, &target)).await?;
            self.save_parents(change, &mut parents).await?;
            let files = [file.id, other.id];
            self.notes(change).renamed(&files, RenameKind::Exchange, (from.0, &source.name), to);
            return Ok(None);
        }
        check_replacing(&file, &other, to)?;
        let whiteout = self.make_whiteout(change, &parents.from, mode, logged).await?;
        self.remove_name(change, parents.to(), &target.name, other.is_dir()?).await?;
        let gone = self.drop_link(change, &mut other).await?.then_some(other.id);
        self.move_name(change, &mut parents, &mut file, &source.name, to.1).await?;
        let kind = self.leave(change, &mut parents, &source.name, whiteout.as_ref()).await?;
        self.save_parents(change, &mut parents).await?;
        self.notes(change).renamed(&[file.id], kind, (from.0, &source.name), to);
        self.note_whiteout(change, &parents.from, whiteout.as_ref())?;
        gone.inspect(|&gone| self.notes(change).forget(gone));
        Ok(gone)
    }

    /// Looks up both names and locks everything involved.
    async fn hold_both(
        &self,
        edit: &Edit,
        from: DirName<'_>,
        to: DirName<'_>,
    ) -> Result<((Turn<'_>, Held<'_>), DirEntry, Option<DirEntry>)> {
        let mut wanted = vec![from.0, to.0];
        let mut turn = None;
        loop {
            let held = self.0.locks.exclusive(&wanted).await;
            let source = self.find(edit, from.0, from.1).await?;
            let source = source.ok_or_else(|| Refusal::NotFound.named(from.0, from.1))?;
            let target = self.find(edit, to.0, to.1).await?;
            let found: Vec<&DirEntry> = [Some(&source), target.as_ref()].into_iter().flatten().collect();
            let may_be_dir = |entry: &&DirEntry| entry.kind.is_none_or(|kind| kind == FileKind::Directory);
            let needs_turn = turn.is_none() && from.0 != to.0 && found.iter().any(may_be_dir);
            if !needs_turn && found.iter().all(|entry| wanted.contains(&entry.object)) {
                return Ok(((turn, held), source, target));
            }
            wanted = [from.0, to.0].into_iter().chain(found.iter().map(|entry| entry.object)).collect();
            if needs_turn {
                // `moves` comes before the object locks.
                drop(held);
                turn = Some(self.0.moves.lock().await);
            }
        }
    }

    async fn check_rename(
        &self,
        edit: &Edit,
        parents: &mut Parents,
        file: &Znode,
        (source, to): (&DirEntry, DirName<'_>),
    ) -> Result<()> {
        self.may_remove(&parents.from, file)?;
        let is_apart = parents.from.flags()? & pflags::XATTR != parents.to().flags()? & pflags::XATTR;
        if is_apart || source.object == to.0 {
            return Err(Refusal::Invalid.named(to.0, to.1));
        }
        self.may_add(parents.to())?;
        self.may_enter(parents.to(), file)?;
        self.check_inside(edit, file, to.0).await
    }

    /// Refuses to move a directory below itself.
    async fn check_inside(&self, edit: &Edit, file: &Znode, place: ObjectId) -> Result<()> {
        if !file.is_dir()? {
            return Ok(());
        }
        let mut at = place;
        for _ in 0..MAX_DEPTH {
            if at == file.id {
                return Err(Refusal::Invalid.of(file.id));
            }
            let parent = ObjectId(self.load(edit, at).await?.u64(ZplAttr::Parent)?);
            if parent == at {
                return Ok(());
            }
            at = parent;
        }
        Err(FsError::Orphan { object: place })
    }

    /// Moves a file to an unused name; the caller saves the directories.
    async fn move_name(
        &self,
        change: Change<'_>,
        parents: &mut Parents,
        file: &mut Znode,
        old: &[u8],
        new: &[u8],
    ) -> Result<()> {
        let kind = file.kind()?;
        self.remove_name(change, &mut parents.from, old, kind == FileKind::Directory).await?;
        self.add_name(change, parents.to(), new, file.id, kind).await?;
        settle(change, file, parents.to())?;
        self.save(change.edit, file).await
    }

    /// Makes the whiteout of a rename, if it leaves one. First, since only this may exceed a quota.
    async fn make_whiteout(
        &self,
        change: Change<'_>,
        parent: &Znode,
        mode: RenameMode,
        logged: Option<&NewObject>,
    ) -> Result<Option<Znode>> {
        let RenameMode::Whiteout { owner: (uid, gid), .. } = mode else { return Ok(None) };
        let id = match logged {
            Some(new) => self.make_logged(change, parent, new, None).await?,
            None => {
                let new = NewFile { uid, gid, ..WHITEOUT };
                self.make(change, &Making::child(self, parent, &new)?).await?
            }
        };
        Ok(Some(self.load(change.edit, id).await?))
    }

    /// Gives a whiteout the old name, in the directory that the caller saves.
    async fn leave(
        &self,
        change: Change<'_>,
        parents: &mut Parents,
        name: &[u8],
        whiteout: Option<&Znode>,
    ) -> Result<RenameKind> {
        let Some(whiteout) = whiteout else { return Ok(RenameKind::Replace) };
        self.add_name(change, &mut parents.from, name, whiteout.id, whiteout.kind()?).await?;
        Ok(RenameKind::Whiteout(new_object(whiteout, parents.from.id)?))
    }

    fn note_whiteout(&self, change: Change<'_>, parent: &Znode, whiteout: Option<&Znode>) -> Result<()> {
        whiteout.map_or(Ok(()), |whiteout| self.notes(change).inherited(parent, whiteout))
    }

    /// Swaps two names; the caller saves the directories.
    async fn exchange(
        &self,
        change: Change<'_>,
        parents: &mut Parents,
        (file, source): (&mut Znode, &DirEntry),
        (other, target): (&mut Znode, &DirEntry),
    ) -> Result<()> {
        self.remove_name(change, &mut parents.from, &source.name, file.is_dir()?).await?;
        self.remove_name(change, parents.to(), &target.name, other.is_dir()?).await?;
        self.add_name(change, parents.to(), &target.name, file.id, file.kind()?).await?;
        self.add_name(change, &mut parents.from, &source.name, other.id, other.kind()?).await?;
        settle(change, file, parents.to())?;
        settle(change, other, &parents.from)?;
        self.save(change.edit, file).await?;
        self.save(change.edit, other).await
    }

    async fn save_parents(&self, change: Change<'_>, parents: &mut Parents) -> Result<()> {
        if let Some(to) = &mut parents.to {
            self.save(change.edit, to).await?;
        }
        self.save(change.edit, &mut parents.from).await
    }
}

/// Updates a file that moved into a directory.
fn settle(change: Change<'_>, file: &mut Znode, dir: &Znode) -> Result<()> {
    let inherited = dir.flags()? & pflags::PROJINHERIT;
    file.set_u64(ZplAttr::Parent, dir.id.0);
    file.set_u64(ZplAttr::Flags, file.flags()? | pflags::AV_MODIFIED | inherited);
    file.state_changed(change)
}

fn check_replacing(file: &Znode, other: &Znode, to: DirName<'_>) -> Result<()> {
    match (file.is_dir()?, other.is_dir()?) {
        (true, false) => Err(Refusal::NotDirectory.named(to.0, to.1)),
        (false, true) => Err(Refusal::IsDirectory.named(to.0, to.1)),
        (true, true) => check_empty(other),
        (false, false) => Ok(()),
    }
}

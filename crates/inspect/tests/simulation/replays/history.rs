//! A random history of one file system: all operations, commits in between.
//!
//! Rules come and go with them: flags, inherited projects, quotas, properties. Many operations are refused,
//! which this test ignores; many are accepted only because a rule was just removed.

use bytes::Bytes;
use cenote_dataset::Value;
use cenote_engine::Engine;
use cenote_format::units::ObjectId;
use cenote_fs::acl::{Ace, AceWho};
use cenote_fs::attr::pflags;
use cenote_fs::write::{CloneSource, NewFile, NewKind, RenameMode, SetAttr, SetXattr};
use cenote_fs::{Change, Counted, FileKind, FsWriter, Result, SpaceBy, Timestamp};
use cenote_runtime::{Rng, Runtime};
use cenote_testkit::image::Image;

use super::shot::Shot;
use crate::journal::{Journal, Moment};
use crate::pools::{Disks, Layout, POOL, create};

/// The scope of an acknowledgement, besides all names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Covers {
    All,
    File(ObjectId),
}

/// A returned commit or sync.
pub struct Ack {
    pub done: Moment,
    pub covers: Covers,
    /// The state that it made durable.
    pub shot: usize,
}

pub struct History {
    pub before: Vec<Image>,
    pub journal: Journal,
    /// The state at first, and after each operation.
    pub shots: Vec<Shot>,
    /// When each operation began.
    pub begun: Vec<Moment>,
    pub acks: Vec<Ack>,
}

const NAMES: [&[u8]; 7] = [b"a", b"b", b"c", b"d", b"e", b"f", b"a name that is longer than most"];
const FLAGS: [u64; 6] = [
    pflags::IMMUTABLE,
    pflags::APPENDONLY,
    pflags::NOUNLINK,
    pflags::READONLY,
    pflags::NODUMP,
    pflags::PROJINHERIT,
];
/// `ACE_FILE_INHERIT_ACE` and `ACE_DIRECTORY_INHERIT_ACE`.
const INHERITS: u16 = 0x3;
/// An access ACL with an entry for user 3, and the same without entries beside the mode's.
const POSIX_ACLS: [&[(u16, u16, u32)]; 2] = [
    &[(1, 7, !0), (2, 5, 3), (4, 4, !0), (0x10, 5, !0), (0x20, 1, !0)],
    &[(1, 6, !0), (4, 2, !0), (0x20, 0, !0)],
];

impl History {
    pub async fn record(rt: &Runtime, layout: &Layout, steps: usize) -> History {
        let disks = Disks::new(rt, layout.shape(), layout.blank());
        let engine = create(rt, layout, &disks.devices()).await;
        for (property, value) in [("acltype", 1), ("xattr", 2)] {
            cenote_tasks::set_property(&engine, POOL, property, Value::Number(value)).await.unwrap();
        }
        let fs = FsWriter::shared(&engine, POOL).await.unwrap();
        // The log begins.
        fs.commit(None).await.unwrap();
        engine.sync_all().await.unwrap();
        disks.take_journal();
        let before = disks.images();
        let shots = vec![Shot::of(&fs.view(), None).await.unwrap()];
        let history =
            History { before, journal: Journal::default(), shots, begun: Vec::new(), acks: Vec::new() };
        let mut worker = Worker { engine, fs, disks, rng: rt.rng(), history, seconds: 100 };
        for _ in 0..steps {
            worker.step().await;
        }
        worker.history.journal = worker.disks.take_journal();
        worker.history
    }
}

struct Worker {
    engine: Engine,
    fs: FsWriter,
    disks: Disks,
    rng: Rng,
    history: History,
    seconds: i64,
}

impl Worker {
    fn now(&self) -> Moment {
        self.disks.journal.lock().now
    }

    async fn step(&mut self) {
        match self.rng.below(32) {
            0..9 => {
                let file = self.any(|_| true);
                let covers = if self.rng.below(6) == 0 { Covers::All } else { Covers::File(file) };
                let file = if covers == Covers::All { None } else { Some(file) };
                self.fs.commit(file).await.unwrap();
                self.acknowledge(covers);
            }
            9 => {
                self.engine.sync_all().await.unwrap();
                self.acknowledge(Covers::All);
            }
            10 => self.set_property().await,
            _ => {
                self.history.begun.push(self.now());
                self.operate().await;
                let last = self.history.shots.last();
                let shot = Shot::of(&self.fs.view(), last).await.unwrap();
                self.history.shots.push(shot);
            }
        }
    }

    fn acknowledge(&mut self, covers: Covers) {
        let (done, shot) = (self.now(), self.history.shots.len() - 1);
        self.history.acks.push(Ack { done, covers, shot });
    }

    async fn set_property(&mut self) {
        let (property, values): (&str, &[u64]) = match self.rng.below(4) {
            0 => ("xattr", &[1, 2]),
            1 => ("aclmode", &[0, 2, 3, 4]),
            2 => ("aclinherit", &[0, 1, 3, 4, 5]),
            _ => ("longname", &[0, 1]),
        };
        let value = values[self.rng.below(values.len() as u64) as usize];
        cenote_tasks::set_property(&self.engine, POOL, property, Value::Number(value)).await.unwrap();
        self.acknowledge(Covers::All);
    }

    /// One of the files of these kinds; the root if none.
    fn any(&mut self, wanted: impl Fn(FileKind) -> bool) -> ObjectId {
        let shot = self.history.shots.last().unwrap();
        let all: Vec<_> =
            shot.files.iter().filter(|(_, seen)| wanted(seen.place.kind)).map(|(id, _)| *id).collect();
        if all.is_empty() { self.fs.root() } else { all[self.rng.below(all.len() as u64) as usize] }
    }

    /// A directory and a name, which usually exists.
    fn place(&mut self) -> (ObjectId, Bytes) {
        let dir = self.any(|kind| kind == FileKind::Directory);
        let shot = self.history.shots.last().unwrap();
        let names: Vec<_> = shot.files[&dir].place.names.keys().cloned().collect();
        if !names.is_empty() && self.rng.below(3) > 0 {
            return (dir, names[self.rng.below(names.len() as u64) as usize].clone());
        }
        (dir, Bytes::from_static(NAMES[self.rng.below(NAMES.len() as u64) as usize]))
    }

    /// The file that a name leads to.
    fn at(&self, (dir, name): &(ObjectId, Bytes)) -> Option<ObjectId> {
        self.history.shots.last().unwrap().files[dir].place.names.get(name).copied()
    }

    /// A random operation in the open txg; often one that a rule forbade until just now.
    async fn operate(&mut self) {
        let hold = self.engine.hold().await.unwrap();
        let fs = self.fs.clone();
        let edit = fs.live().edit();
        self.seconds += 1;
        let change = Change { edit: &edit, now: Timestamp { seconds: self.seconds, nanoseconds: 7 } };
        let mut unnamed = false;
        let done = match self.rng.below(24) {
            0..5 => self.create(change).await,
            5 | 6 => self.free_and_remove(change).await,
            7 => {
                let (file, (dir, name)) = (self.any(|kind| kind != FileKind::Directory), self.place());
                fs.link(change, file, dir, &name).await
            }
            8..11 => self.rename(change).await,
            11..15 => self.change_content(change).await,
            15..19 => self.set_attr(change).await,
            19 => self.set_acl(change).await,
            20 | 21 => self.set_xattr(change).await,
            22 => {
                unnamed = true;
                self.create_unnamed(change).await
            }
            _ => {
                let by = SpaceBy::ALL[self.rng.below(3) as usize];
                let counted = [Counted::Bytes, Counted::Objects][self.rng.below(2) as usize];
                let (owner, limit) = (self.rng.below(4), [0, 0, 1, 1 << 40][self.rng.below(4) as usize]);
                fs.set_quota(change.edit, by, counted, owner, limit).await
            }
        };
        if let Err(error) = done {
            assert!(error.refusal().is_some(), "{error}");
        }
        drop(hold);
        if unnamed {
            // Its first name is acknowledged only with a txg.
            self.engine.sync_all().await.unwrap();
        }
    }

    async fn create(&mut self, change: Change<'_>) -> Result<()> {
        let (dir, name) = self.place();
        let kinds =
            [NewKind::Directory, NewKind::Symlink(b"target"), NewKind::Fifo, NewKind::CharDevice(1, 3)];
        let kind = kinds.get(self.rng.below(8) as usize).copied().unwrap_or(NewKind::Regular);
        let mode = self.rng.below(0o10000) as u32;
        let (uid, gid) = (self.rng.below(4), self.rng.below(4));
        let new = NewFile { kind, mode, umask: 0o22, uid, gid };
        self.fs.create(change, dir, &name, &new).await.map(|_| ())
    }

    async fn create_unnamed(&mut self, change: Change<'_>) -> Result<()> {
        let (dir, name) = self.place();
        let new = NewFile { kind: NewKind::Regular, mode: 0o640, umask: 0, uid: 1, gid: 1 };
        let file = self.fs.create_unnamed(change, dir, &new).await?;
        self.fs.write(change, file, 0, Bytes::from_static(b"before it had a name")).await.ok();
        let linked = self.fs.link(change, file, dir, &name).await;
        if linked.is_err() {
            self.free(change, Some(file)).await;
        }
        linked
    }

    async fn free(&self, change: Change<'_>, gone: Option<ObjectId>) {
        if let Some(gone) = gone {
            assert!(self.fs.free_unlinked(change, gone).await.unwrap());
        }
    }

    /// Removes the flags that protect a file and its directory, as `chattr -R =` does.
    async fn loosen(&mut self, change: Change<'_>, objects: &[ObjectId]) -> Result<()> {
        for object in objects {
            let project = (self.rng.below(2) == 0).then(|| self.rng.below(3) as u32);
            let clear_flags = FLAGS.iter().sum();
            self.fs
                .set_attr(change, *object, &SetAttr { clear_flags, project, ..SetAttr::default() })
                .await?;
        }
        Ok(())
    }

    async fn free_and_remove(&mut self, change: Change<'_>) -> Result<()> {
        let place = self.place();
        let Some(file) = self.at(&place) else { return Ok(()) };
        if self.rng.below(3) > 0 {
            self.loosen(change, &[file, place.0]).await?;
        }
        let is_dir = self.history.shots.last().unwrap().files[&file].place.kind == FileKind::Directory;
        let gone = match is_dir {
            true => Some(self.fs.rmdir(change, place.0, &place.1).await?),
            false => self.fs.unlink(change, place.0, &place.1).await?,
        };
        self.free(change, gone).await;
        Ok(())
    }

    async fn rename(&mut self, change: Change<'_>) -> Result<()> {
        let (from, to) = (self.place(), self.place());
        if self.rng.below(3) > 0 {
            let mut objects = vec![from.0, to.0];
            objects.extend([self.at(&from), self.at(&to)].into_iter().flatten());
            self.loosen(change, &objects).await?;
        }
        let modes = [
            RenameMode::Replace,
            RenameMode::NoReplace,
            RenameMode::Exchange,
            RenameMode::Whiteout { replaces: true, owner: (0, 0) },
            RenameMode::Whiteout { replaces: false, owner: (0, 0) },
        ];
        let mode = modes[self.rng.below(5) as usize];
        let gone = self.fs.rename(change, (from.0, &from.1), (to.0, &to.1), mode).await?;
        self.free(change, gone).await;
        Ok(())
    }

    async fn change_content(&mut self, change: Change<'_>) -> Result<()> {
        let file = self.any(|kind| kind == FileKind::Regular);
        let limit = [600, 5000, 300_000][self.rng.below(3) as usize];
        let (start, len) = (self.rng.below(limit), self.rng.below(limit));
        match self.rng.below(8) {
            0 => self.fs.punch(change, file, start..start + len).await,
            1 => self.fs.zero_range(change, file, start..start + len).await,
            2 => {
                let set = SetAttr { size: Some(start), ..SetAttr::default() };
                self.fs.set_attr(change, file, &set).await
            }
            3 => {
                let source = self.any(|kind| kind == FileKind::Regular);
                let source_fs = CloneSource::Live(&self.fs);
                self.fs.clone_range(change, source_fs, (source, 0), (file, 0), 1 << 20).await.map(|_| ())
            }
            choice => {
                // Whole blocks get their own blocks.
                let (start, len) = if choice == 4 { (0, 128 << 10) } else { (start, len) };
                let mut data = vec![0; len as usize];
                self.rng.fill(&mut data);
                self.fs.write(change, file, start, data.into()).await
            }
        }
    }

    async fn set_attr(&mut self, change: Change<'_>) -> Result<()> {
        let object = self.any(|_| true);
        let bits = self.rng.next_u64();
        let chosen = |bit: u64, value: u64| (bits >> bit & 3 == 0).then_some(value);
        let flag = FLAGS[self.rng.below(6) as usize];
        let sets = bits >> 16 & 1 == 0;
        let set = SetAttr {
            mode: chosen(0, bits >> 20 & 0o7777).map(|mode| mode as u32),
            uid: chosen(2, bits >> 40 & 3),
            gid: chosen(4, bits >> 42 & 3),
            mtime: chosen(6, 0).map(|_| Timestamp { seconds: 5, nanoseconds: 1 }),
            project: chosen(8, bits >> 44 & 1).map(|project| project as u32),
            set_flags: if sets { flag } else { 0 },
            clear_flags: if sets { 0 } else { flag },
            ..SetAttr::default()
        };
        self.fs.set_attr(change, object, &set).await
    }

    async fn set_acl(&mut self, change: Change<'_>) -> Result<()> {
        let object = self.any(|kind| kind != FileKind::Symlink);
        let whos = [AceWho::Owner, AceWho::OwningGroup, AceWho::Everyone];
        let ace = |rng: &mut Rng| Ace {
            ace_type: rng.below(2) as u16,
            flags: if rng.below(2) == 0 { INHERITS } else { 0 },
            mask: rng.below(0x40) as u32,
            who: whos[rng.below(3) as usize],
            object_types: None,
        };
        let entries = (0..1 + self.rng.below(5)).map(|_| ace(&mut self.rng)).collect();
        self.fs.set_acl(change, object, entries).await
    }

    async fn set_xattr(&mut self, change: Change<'_>) -> Result<()> {
        let object = self.any(|kind| matches!(kind, FileKind::Regular | FileKind::Directory));
        let kind = self.history.shots.last().unwrap().files[&object].place.kind;
        let names: [&[u8]; 4] =
            [b"user.a", b"user.b", b"system.posix_acl_access", b"system.posix_acl_default"];
        let name = names[self.rng.below(if kind == FileKind::Directory { 4 } else { 3 }) as usize];
        let limit = [20, 300, 40_000][self.rng.below(3) as usize];
        let value = match name.starts_with(b"system") {
            true => posix_acl(POSIX_ACLS[self.rng.below(2) as usize]),
            false => vec![7; 1 + self.rng.below(limit) as usize],
        };
        let value = (self.rng.below(4) > 0).then_some(value);
        self.fs.set_xattr(change, object, name, value.as_deref(), SetXattr::Any).await
    }
}

/// As `setfacl` passes it.
fn posix_acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

//! Random operations from a seed (`CENOTE_SEED`, otherwise a new one, which is printed) on new and golden
//! file systems: each must succeed or fail like the model, and the content read back must equal the model's.

#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::collections::BTreeMap;

use cenote_engine::OpenDataset;
use cenote_format::units::ObjectId;
use cenote_fs::attr::FileKind;
use cenote_fs::write::{NewFile, NewFilesystem, NewKind, RenameMode, SetAttr, SetXattr, XattrStore};
use cenote_fs::{
    CaseSensitivity, Change, Filesystem, FsError, FsOptions, FsWriter, Normalization, Refusal, Timestamp,
};
use cenote_object::LiveObjset;
use cenote_runtime::Runtime;
use cenote_testkit::golden_pools;

use crate::common;
use crate::model::{Model, Node};
use crate::random::Random;
use crate::scratch::{TXG, at, on_new, pattern};

const NAMES: [&str; 9] = [
    "a",
    "b",
    "c",
    "d",
    "e.txt",
    "f\u{e9}",
    "quite a long name, longer than slots of micro ZAPs are",
    "g",
    "h",
];

pub fn seed() -> u64 {
    let given = std::env::var("CENOTE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| Runtime::real(Some(1)).random_u64());
    println!("CENOTE_SEED={seed}");
    seed
}

/// A file system and its model, below one directory.
pub struct Pair {
    pub fs: FsWriter,
    model: Model,
    random: Random,
    top: ObjectId,
    /// Also set extended attributes with empty values, which intent log records can't express.
    pub empty_xattrs: bool,
}

impl Pair {
    /// Starts in a new directory of a file system.
    pub async fn begin(fs: FsWriter, seed: u64) -> Pair {
        let now = at(1);
        let edit = fs.live().edit();
        let new = NewFile { kind: NewKind::Directory, mode: 0o755, umask: 0, uid: 7, gid: 8 };
        let top = fs.create(Change { edit: &edit, now }, fs.root(), b"compared", &new).await.unwrap();
        let node = node(FileKind::Directory, 0o755, (7, 8), now, fs.root());
        let model = Model { nodes: BTreeMap::from([(top, node)]), now };
        Pair { fs, model, random: Random(seed), top, empty_xattrs: true }
    }

    pub async fn run(&mut self, steps: usize) {
        for step in 0..steps {
            self.model.now = at(100 + step as i64);
            self.step().await.unwrap_or_else(|why| panic!("step {step}: {why}"));
            if step % 100 == 99 || step + 1 == steps {
                self.compare().await;
            }
        }
        assert_eq!(self.fs.view().unlinked().await.unwrap(), []);
    }

    fn any(&mut self, wanted: impl Fn(&Node) -> bool) -> Option<ObjectId> {
        let all: Vec<_> =
            self.model.nodes.iter().filter(|(_, node)| wanted(node)).map(|(id, _)| *id).collect();
        if all.is_empty() { None } else { Some(all[self.random.below(all.len() as u64) as usize]) }
    }

    fn any_file(&mut self) -> ObjectId {
        self.any(|node| node.kind == FileKind::Regular).unwrap_or(self.top)
    }

    /// A directory and a name, which usually exists already.
    fn place(&mut self) -> (ObjectId, Vec<u8>) {
        let dir = self.any(|node| node.kind == FileKind::Directory).unwrap();
        let names: Vec<_> = self.model.nodes[&dir].names.keys().cloned().collect();
        if !names.is_empty() && self.random.below(3) > 0 {
            return (dir, names[self.random.below(names.len() as u64) as usize].clone());
        }
        (dir, NAMES[self.random.below(NAMES.len() as u64) as usize].as_bytes().to_vec())
    }

    async fn step(&mut self) -> Result<(), String> {
        match self.random.below(20) {
            0..6 => self.create().await,
            6 => {
                let (id, (dir, name)) = (self.any(|_| true).unwrap(), self.place());
                let edit = self.fs.live().edit();
                let ours = self.fs.link(Change { edit: &edit, now: self.model.now }, id, dir, &name).await;
                same("link", ours, self.model.link(id, dir, &name))
            }
            7..9 => self.remove().await,
            9..12 => self.rename().await,
            12..16 => self.change_content().await,
            16..18 => self.set_attr().await,
            _ => self.set_xattr().await,
        }
    }

    async fn create(&mut self) -> Result<(), String> {
        let (dir, name) = self.place();
        let target = pattern(self.random.next(), 1 + self.random.below(300) as usize);
        let target: Vec<u8> = target.iter().map(|b| b'a' + b % 26).collect();
        let kind = match self.random.below(9) {
            0..3 => NewKind::Directory,
            3 => NewKind::Symlink(&target),
            4 => NewKind::Fifo,
            5 => NewKind::CharDevice(1, self.random.below(9) as u32),
            _ => NewKind::Regular,
        };
        let (mode, owner) = (self.random.below(0o2000) as u32, (self.random.below(3) as u32, 5));
        let new = NewFile { kind, mode, umask: 0o22, uid: owner.0.into(), gid: owner.1.into() };
        let expected = self.model.can_create(dir, &name);
        let edit = self.fs.live().edit();
        let ours = self.fs.create(Change { edit: &edit, now: self.model.now }, dir, &name, &new).await;
        if let Ok(id) = &ours {
            let (kind, content) = match kind {
                NewKind::Directory => (FileKind::Directory, Vec::new()),
                NewKind::Symlink(_) => (FileKind::Symlink, target.clone()),
                NewKind::Fifo => (FileKind::Fifo, Vec::new()),
                NewKind::CharDevice(..) => (FileKind::CharDevice, Vec::new()),
                _ => (FileKind::Regular, Vec::new()),
            };
            let node = Node { content, ..node(kind, mode & !0o22, owner, self.model.now, dir) };
            self.model.create(dir, &name, *id, node);
        }
        same("create", ours.map(|_| ()), expected)
    }

    async fn remove(&mut self) -> Result<(), String> {
        let (dir, name) = self.place();
        let as_dir = self.random.below(2) == 0;
        let expected = self.model.remove(dir, &name, as_dir);
        let edit = self.fs.live().edit();
        let change = Change { edit: &edit, now: self.model.now };
        let ours = match as_dir {
            true => self.fs.rmdir(change, dir, &name).await.map(Some),
            false => self.fs.unlink(change, dir, &name).await,
        };
        self.free(change, &ours).await;
        same("remove", ours, expected)
    }

    async fn free(&self, change: Change<'_>, gone: &Result<Option<ObjectId>, FsError>) {
        if let Ok(Some(gone)) = gone {
            assert!(self.fs.free_unlinked(change, *gone).await.unwrap());
        }
    }

    async fn rename(&mut self) -> Result<(), String> {
        let (from, to) = (self.place(), self.place());
        let (from, to) = ((from.0, &from.1[..]), (to.0, &to.1[..]));
        let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
        let mode = modes[self.random.below(3) as usize];
        let edit = self.fs.live().edit();
        let change = Change { edit: &edit, now: self.model.now };
        let ours = self.fs.rename(change, from, to, mode).await;
        self.free(change, &ours).await;
        same("rename", ours, self.model.rename(from, to, mode))
    }

    async fn change_content(&mut self) -> Result<(), String> {
        let id = self.any_file();
        let limit = [600, 5000, 400_000][self.random.below(3) as usize];
        let (start, len) = (self.random.below(limit) as usize, self.random.below(limit) as usize);
        let edit = self.fs.live().edit();
        let change = Change { edit: &edit, now: self.model.now };
        match self.random.below(5) {
            0 => {
                let ours = self.fs.punch(change, id, start as u64..(start + len) as u64).await;
                same("punch", ours, self.model.punch(id, start..start + len))
            }
            1 => {
                let set = SetAttr { size: Some(start as u64), ..SetAttr::default() };
                same("truncate", self.fs.set_attr(change, id, &set).await, self.model.truncate(id, start))
            }
            _ => {
                let data = pattern(self.random.next(), len);
                let ours = self.fs.write(change, id, start as u64, data.clone()).await;
                same("write", ours, self.model.write(id, start, &data))
            }
        }
    }

    async fn set_attr(&mut self) -> Result<(), String> {
        let id = self.any(|_| true).unwrap();
        let bits = self.random.next();
        let mtime = at(-(self.random.below(1 << 33) as i64));
        let chosen = |bit: u64, value: u64| (bits >> bit & 1 != 0).then_some(value);
        let set = SetAttr {
            mode: chosen(0, bits >> 8 & 0o1777).map(|mode| mode as u32),
            uid: chosen(1, bits >> 20 & 3),
            gid: chosen(2, bits >> 24 & 3),
            mtime: chosen(3, 0).map(|_| mtime),
            atime: chosen(4, 0).map(|_| at(9)),
            ..SetAttr::default()
        };
        let edit = self.fs.live().edit();
        let ours = self.fs.set_attr(Change { edit: &edit, now: self.model.now }, id, &set).await;
        let now = self.model.now;
        let node = self.model.node(id);
        node.permissions = set.mode.unwrap_or(node.permissions);
        node.owner.0 = set.uid.map_or(node.owner.0, |id| id as u32);
        node.owner.1 = set.gid.map_or(node.owner.1, |id| id as u32);
        node.mtime = set.mtime.unwrap_or(node.mtime);
        node.atime = set.atime.unwrap_or(node.atime);
        node.ctime = now;
        same("set_attr", ours, Ok(()))
    }

    async fn set_xattr(&mut self) -> Result<(), String> {
        let id = self.any(|_| true).unwrap();
        let name = ["user.a", "user.b", "trusted.c"][self.random.below(3) as usize];
        let limit = [20, 300, 40_000][self.random.below(3) as usize];
        let len = self.random.below(limit).max(u64::from(!self.empty_xattrs));
        let value = (self.random.below(4) > 0).then(|| pattern(self.random.next(), len as usize));
        let edit = self.fs.live().edit();
        let change = Change { edit: &edit, now: self.model.now };
        let ours = self.fs.set_xattr(change, id, name.as_bytes(), value.as_deref(), SetXattr::Any).await;
        same("set_xattr", ours, self.model.set_xattr(id, name, value.as_deref()))
    }

    /// Reads everything back.
    async fn compare(&self) {
        self.compare_with(&Filesystem::open(self.fs.live().view()).await.unwrap()).await;
    }

    /// Compares a file system with the model.
    pub async fn compare_with(&self, fs: &Filesystem) {
        self.model.compare_with(fs, None).await;
    }

    /// The expected content, once the file system itself is gone.
    pub fn into_model(self) -> Model {
        self.model
    }
}

impl Model {
    /// Compares a file system with this. Times may be that of a replay instead; a time set on a directory is
    /// replayed after changes of names.
    pub async fn compare_with(&self, fs: &Filesystem, replayed_at: Option<Timestamp>) {
        for (&id, node) in &self.nodes {
            let attr = fs.attr(id).await.unwrap();
            let what = format!("object {id}: {attr:?}");
            assert_eq!(
                (attr.kind(), attr.permissions(), attr.owner()),
                (node.kind, node.permissions, node.owner),
                "{what}"
            );
            let times = [(attr.atime, node.atime), (attr.mtime, node.mtime), (attr.ctime, node.ctime)];
            for (shown, expected) in times {
                let is_late = replayed_at.is_some() && node.kind == FileKind::Directory;
                assert!(is_late || shown == expected || Some(shown) == replayed_at, "{what}: {expected:?}");
            }
            assert_eq!((attr.links, attr.parent), (node.links, node.parent), "{what}");
            let xattrs = fs.xattrs(id).await.unwrap();
            let xattrs: BTreeMap<_, _> = xattrs
                .into_iter()
                .map(|x| (String::from_utf8(x.name.to_vec()).unwrap(), x.value.to_vec()))
                .collect();
            assert!(xattrs == node.xattrs, "{what}: {:?} {:?}", xattrs.keys(), node.xattrs.keys());
            match node.kind {
                FileKind::Directory => {
                    let names = fs.list(id).await.unwrap();
                    assert_eq!(attr.size, names.len() as u64 + 2, "{what}");
                    let shown: BTreeMap<_, _> =
                        names.into_iter().map(|e| (e.name.to_vec(), e.object)).collect();
                    assert_eq!(shown, node.names, "{what}");
                }
                FileKind::Symlink => assert_eq!(fs.read_link(id).await.unwrap(), node.content, "{what}"),
                _ => {
                    assert_eq!(attr.size, node.content.len() as u64, "{what}");
                    let file = fs.open_file(id).await.unwrap();
                    assert!(file.read(0, attr.size).await.unwrap() == node.content, "{what}");
                }
            }
        }
    }
}

fn node(
    kind: FileKind,
    permissions: u32,
    owner: (u32, u32),
    now: cenote_fs::Timestamp,
    parent: ObjectId,
) -> Node {
    Node {
        kind,
        permissions,
        owner,
        atime: now,
        mtime: now,
        ctime: now,
        content: Vec::new(),
        xattrs: BTreeMap::new(),
        names: BTreeMap::new(),
        links: if kind == FileKind::Directory { 2 } else { 1 },
        parent,
    }
}

/// Both succeeded equally, or both refused for the same reason.
fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    ours: Result<T, FsError>,
    model: Result<T, Refusal>,
) -> Result<(), String> {
    let refusal = ours.as_ref().map_err(FsError::refusal);
    if refusal == model.as_ref().map_err(|why| Some(*why)) {
        return Ok(());
    }
    Err(format!("{what}: {ours:?}, in the model {model:?}"))
}

#[test]
fn random_operations_on_new_file_systems() {
    let seed = seed();
    for (round, record_bytes) in [512, 4096, 128 << 10, 1 << 20].into_iter().enumerate() {
        let options = FsOptions {
            record_bytes,
            xattr: if round % 2 == 0 { XattrStore::Sa } else { XattrStore::Dir },
            dnode_slots: [1, 2, 4, 1][round],
            ..FsOptions::default()
        };
        let new = NewFilesystem {
            case: [CaseSensitivity::Sensitive, CaseSensitivity::Insensitive, CaseSensitivity::Mixed]
                [round % 3],
            normalization: if round == 1 { Normalization::FormD } else { Normalization::None },
            ..NewFilesystem::default()
        };
        on_new(new, options, async |fs| Pair::begin(fs, seed + round as u64).await.run(1500).await);
    }
}

#[test]
fn random_operations_on_golden_file_systems() {
    let seed = seed();
    let rt = Runtime::real(Some(2));
    for pool in golden_pools() {
        rt.block_on(async {
            let mos = common::open_golden(&rt, &pool).await;
            let facts = pool.facts();
            let heads = facts.datasets.iter().filter(|f| f.manifest.is_some() && !f.name.contains('@'));
            for facts in heads {
                let Ok(dataset) = mos.dataset(&facts.name).await else { continue };
                let Ok(objset) = dataset.objset().await else { continue };
                let live = LiveObjset::new(objset, TXG);
                let xattr = XattrStore::Sa;
                let options = FsOptions { xattr, ..FsOptions::of(&mos, &dataset).await.unwrap() };
                let Ok(fs) = FsWriter::open(OpenDataset::without_log(live), options).await else { continue };
                // Pools left by a crash have files in the delete queue: those are freed first.
                let edit = fs.live().edit();
                while fs.drain_delete_queue(Change { edit: &edit, now: at(1) }).await.unwrap() > 0 {}
                println!("{}", facts.name);
                Pair::begin(fs, seed).await.run(150).await;
            }
        });
    }
}

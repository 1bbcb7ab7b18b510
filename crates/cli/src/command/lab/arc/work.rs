//! The seven tests: inodes made in many directories, and trees copied as rsync does.
//!
//! Directories are chosen unevenly, as in use: a few of them most of the time (the cube of a random number).
//! Content compresses well, so that the modelled disk can be small; in the cache it has its full size.

use bytes::Bytes;
use cenote_engine::{Engine, Need};
use cenote_format::units::ObjectId;
use cenote_fs::FsWriter;
use cenote_fs::write::{NewFile, NewKind, RenameMode, SetAttr};
use cenote_runtime::Rng;

use super::super::model::said;
use super::Made;
use super::pool::Bench;

/// How much is made.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Inodes that a test makes; of the largest files a hundredth.
    pub inodes: u64,
    pub cache_bytes: u64,
}

/// What a directory gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaf {
    Directory,
    File { bytes: u64 },
}

/// One of the seven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Test {
    pub leaf: Leaf,
    /// Made by copying a tree of these.
    pub is_copy: bool,
}

const EMPTY: Leaf = Leaf::File { bytes: 0 };
const SMALL: Leaf = Leaf::File { bytes: 4 << 10 };
const LARGE: Leaf = Leaf::File { bytes: 4 << 20 };
/// Inodes for each directory that they are in.
const FAN: u64 = 40;
/// Inodes in the place of one large file.
const LARGE_COST: u64 = 100;

impl Test {
    /// In the order of the report.
    pub const ALL: [Test; 7] = [
        Test { leaf: Leaf::Directory, is_copy: false },
        Test { leaf: EMPTY, is_copy: false },
        Test { leaf: SMALL, is_copy: false },
        Test { leaf: LARGE, is_copy: false },
        Test { leaf: Leaf::Directory, is_copy: true },
        Test { leaf: EMPTY, is_copy: true },
        Test { leaf: SMALL, is_copy: true },
    ];

    /// Its number there.
    pub fn number(self) -> u8 {
        Test::ALL.iter().position(|test| *test == self).map_or(0, |index| index as u8 + 1)
    }

    /// What it does.
    pub fn about(self) -> String {
        let what = match self.leaf {
            Leaf::Directory => "empty directories".to_owned(),
            Leaf::File { bytes: 0 } => "empty files".to_owned(),
            Leaf::File { bytes } => format!("{} KiB files", bytes >> 10),
        };
        match self.is_copy {
            true => format!("Copying a dataset of many {what} as rsync does"),
            false => format!("Creating many {what}"),
        }
    }
}

impl Scale {
    /// Inodes that a test makes, apart from the directories that they are in.
    pub fn inodes_of(self, test: Test) -> u64 {
        if test.leaf == LARGE { self.inodes / LARGE_COST } else { self.inodes }.max(1)
    }

    /// All that a run makes, what the test finds included: its progress.
    pub fn total_of(self, test: Test) -> u64 {
        self.inodes_of(test) * if test.is_copy { 2 } else { 1 }
    }

    fn directories(self) -> u64 {
        (self.inodes / FAN).max(1)
    }
}

/// Makes what a test finds: directories, and for a copy the tree that is copied.
pub async fn prepare(
    engine: &Engine,
    fs: &FsWriter,
    test: Test,
    scale: Scale,
    counter: &Made,
) -> Result<(), String> {
    let background = engine.sync_in_background();
    let source = make(engine, fs, fs.root(), b"source".to_vec(), NewKind::Directory).await?;
    for n in 0..scale.directories() {
        make(engine, fs, source, format!("d{n}").into_bytes(), NewKind::Directory).await?;
    }
    if test.is_copy {
        let mut places = Places::new(fs, source, scale).await?;
        for n in 0..scale.inodes_of(test) {
            let dir = places.next();
            let made = make_leaf(engine, fs, dir, format!("{:08x}", n.wrapping_mul(0x9e37_79b1)), test.leaf);
            made.await?;
            counter.add(1);
        }
        make(engine, fs, fs.root(), b"copy".to_vec(), NewKind::Directory).await?;
    }
    drop(background);
    Ok(())
}

/// Runs a test.
pub async fn run(bench: &mut Bench, test: Test, scale: Scale) -> Result<(), String> {
    let (engine, fs) = (bench.engine.clone(), bench.fs.clone());
    let source = find(&fs, fs.root(), b"source").await?;
    if test.is_copy {
        let copy = find(&fs, fs.root(), b"copy").await?;
        return copy_all(bench, &engine, &fs, (source, copy)).await;
    }
    let mut places = Places::new(&fs, source, scale).await?;
    for n in 0..scale.inodes_of(test) {
        let name = format!("{:08x}", n.wrapping_mul(0x9e37_79b1));
        make_leaf(&engine, &fs, places.next(), name, test.leaf).await?;
        bench.made(1);
    }
    Ok(())
}

/// The directories, in the order in which they are used.
struct Places {
    dirs: Vec<ObjectId>,
    rng: Rng,
}

impl Places {
    async fn new(fs: &FsWriter, source: ObjectId, scale: Scale) -> Result<Places, String> {
        let mut dirs = Vec::new();
        for n in 0..scale.directories() {
            dirs.push(find(fs, source, format!("d{n}").as_bytes()).await?);
        }
        Ok(Places { dirs, rng: Rng::new(1) })
    }

    fn next(&mut self) -> ObjectId {
        let part = self.rng.below(1 << 20) as f64 / f64::from(1 << 20);
        self.dirs[(part.powi(3) * self.dirs.len() as f64) as usize]
    }
}

/// As rsync does: a directory is listed and all in it looked at; each is looked for at the destination, made
/// under another name, filled, given its attributes and renamed. Directories get their times at the end.
async fn copy_all(
    bench: &mut Bench,
    engine: &Engine,
    fs: &FsWriter,
    (source, copy): (ObjectId, ObjectId),
) -> Result<(), String> {
    let mut directories = vec![(source, copy)];
    let mut made = Vec::new();
    while let Some((from, to)) = directories.pop() {
        let mut entries = fs.list(from).await.map_err(said)?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in &entries {
            fs.view().attr(entry.object).await.map_err(said)?;
        }
        for entry in entries {
            let attr = fs.view().attr(entry.object).await.map_err(said)?;
            if fs.lookup(to, &entry.name).await.map_err(said)?.is_some() {
                continue;
            }
            if attr.is_dir() {
                let id = make(engine, fs, to, entry.name.to_vec(), NewKind::Directory).await?;
                directories.push((entry.object, id));
                made.push(id);
                bench.made(1);
                continue;
            }
            let hidden = [b".".as_slice(), &entry.name, b".Xa7d2Q"].concat();
            let id = make(engine, fs, to, hidden.clone(), NewKind::Regular).await?;
            if attr.size > 0 {
                let file = fs.view().open_file(entry.object).await.map_err(said)?;
                let data = file.read(0, attr.size).await.map_err(said)?;
                write(engine, fs, id, data).await?;
            }
            set_time(engine, fs, id).await?;
            let name = entry.name.to_vec();
            let renamed = fs.change(engine, Need::Write(0), move |fs, change| {
                Box::pin(async move {
                    fs.rename(change, (to, &hidden), (to, &name), RenameMode::NoReplace).await.map(drop)
                })
            });
            renamed.await.map_err(said)?;
            bench.made(1);
        }
    }
    for id in made.into_iter().rev() {
        set_time(engine, fs, id).await?;
    }
    Ok(())
}

async fn find(fs: &FsWriter, dir: ObjectId, name: &[u8]) -> Result<ObjectId, String> {
    let found = fs.lookup(dir, name).await.map_err(said)?;
    found.map(|entry| entry.object).ok_or_else(|| "a directory of the test is not there".into())
}

async fn make_leaf(
    engine: &Engine,
    fs: &FsWriter,
    dir: ObjectId,
    name: String,
    leaf: Leaf,
) -> Result<(), String> {
    let Leaf::File { bytes } = leaf else {
        return make(engine, fs, dir, name.into_bytes(), NewKind::Directory).await.map(drop);
    };
    let id = make(engine, fs, dir, name.into_bytes(), NewKind::Regular).await?;
    if bytes > 0 {
        write(engine, fs, id, content(id, bytes)).await?;
    }
    Ok(())
}

/// A sixteenth of it random: what compresses better than that lies in pointers.
fn content(id: ObjectId, bytes: u64) -> Bytes {
    let mut rng = Rng::new(id.0);
    let mut content = vec![0; bytes as usize];
    content.chunks_mut(4096).for_each(|page| rng.fill(&mut page[..256]));
    content.into()
}

async fn make(
    engine: &Engine,
    fs: &FsWriter,
    dir: ObjectId,
    name: Vec<u8>,
    kind: NewKind<'static>,
) -> Result<ObjectId, String> {
    let new = NewFile { kind, mode: 0o755, umask: 0, uid: 0, gid: 0 };
    let made = fs.change(engine, Need::Write(0), move |fs, change| {
        Box::pin(async move { fs.create(change, dir, &name, &new).await })
    });
    made.await.map_err(said)
}

async fn write(engine: &Engine, fs: &FsWriter, id: ObjectId, data: Bytes) -> Result<(), String> {
    let written = fs.change(engine, Need::Write(data.len() as u64), move |fs, change| {
        Box::pin(async move { fs.write(change, id, 0, data).await })
    });
    written.await.map_err(said)
}

async fn set_time(engine: &Engine, fs: &FsWriter, id: ObjectId) -> Result<(), String> {
    let set = fs.change(engine, Need::Write(0), move |fs, change| {
        let set = SetAttr { mtime: Some(change.now), ..SetAttr::default() };
        Box::pin(async move { fs.set_attr(change, id, &set).await })
    });
    set.await.map_err(said)
}

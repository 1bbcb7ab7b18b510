//! Operations on a tree: create, stat, read or delete every leaf, list every folder.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::room::Room;
use super::{Leaf, Order, Shape};
use crate::load::control::Control;
use crate::load::control::crew::Crew;
use crate::load::measurement::Tally;
use crate::load::measurement::tally::nanoseconds;
use crate::load::workload::content::Content;
use crate::load::workload::permutation::Permutation;
use crate::load::workload::random::Random;
use crate::{LabError, Result};

/// Bytes per read and write.
pub(super) const CHUNK_BYTES: usize = 256 << 10;
/// Leaves that a worker takes at once, limited to [`RUN_BYTES`].
const RUN_LEAVES: u64 = 64;
const RUN_BYTES: u64 = 4 << 20;

/// A tree on a file system.
#[derive(Debug, Clone)]
pub struct Tree {
    /// Shape without location.
    pub shape: Shape,
    /// Root folder.
    pub root: PathBuf,
    /// Leaves `0..made` exist.
    pub made: u64,
}

/// Workers, order and time limit of a step.
#[derive(Debug, Clone, Copy)]
pub struct How<'a> {
    /// Number of workers.
    pub workers: u32,
    /// Order of the leaves.
    pub order: Order,
    /// Time limit; if set, [`Room`] is checked as well.
    pub until: Option<Instant>,
    /// For stop requests and progress.
    pub control: &'a Control,
}

/// Result of a step.
#[derive(Debug)]
pub struct Done {
    /// Operations by kind.
    pub tallies: Vec<(&'static str, Tally)>,
    /// Number of created files and folders.
    pub inodes: u64,
    /// Duration in nanoseconds.
    pub elapsed_ns: u64,
    /// The step ended because space ran low.
    pub full: bool,
}

struct Hands {
    tally: Tally,
    inodes: u64,
    /// Folder used last, with its path.
    folder: Option<u64>,
    path: PathBuf,
    name: String,
    content: Content,
}

impl Tree {
    /// A tree that does not exist yet.
    pub fn new(shape: Shape, root: PathBuf) -> Tree {
        Tree { shape, root, made: 0 }
    }

    /// Creates its leaves and their folders.
    ///
    /// # Errors
    /// A leaf cannot be created, or the work was stopped.
    pub fn create(&mut self, how: How<'_>) -> Result<Done> {
        fs::create_dir(&self.root).map_err(LabError::io(self.root.display().to_string()))?;
        let room = Room::half_of_free(&self.root)?;
        let go_on = || how.until.is_none() || room.is_left();
        let bytes = self.shape.bytes();
        let begun = Instant::now();
        let (hands, made) = self.crew(how).each(
            self.shape.count,
            go_on,
            |w| self.hands(begun, w),
            |hands, leaf| {
                self.go_to(hands, leaf, true)?;
                hands.path.push(&hands.name);
                room.take(bytes);
                let made =
                    hands.tally.time(bytes, || make_leaf(&hands.path, self.shape.leaf, &mut hands.content));
                made.map_err(LabError::io(format!("cannot create {}", hands.path.display())))?;
                hands.path.pop();
                hands.inodes += 1;
                Ok(())
            },
        )?;
        self.made = made;
        Ok(done("create", begun, hands, !go_on()))
    }

    /// Stats each leaf.
    ///
    /// # Errors
    /// A leaf has vanished, or the work was stopped.
    pub fn stat(&self, how: How<'_>) -> Result<Done> {
        self.each_leaf("stat", 0, how, |path, _| fs::symlink_metadata(path).map(drop))
    }

    /// Reads each file.
    ///
    /// # Errors
    /// A file cannot be read, or the work was stopped.
    pub fn read(&self, how: How<'_>) -> Result<Done> {
        self.each_leaf("read", self.shape.bytes(), how, |path, buffer| {
            let mut file = File::open(path)?;
            while file.read(buffer)? > 0 {}
            Ok(())
        })
    }

    /// Lists each folder.
    ///
    /// # Errors
    /// A folder cannot be listed, or the work was stopped.
    pub fn list(&self, how: How<'_>) -> Result<Done> {
        let begun = Instant::now();
        let order = Visits::of(how.order, self.shape.folders(self.made), self.shape.seed);
        let crew = Crew { at_once: 1, ..self.crew(how) };
        let (hands, _) = crew.each(
            order.count,
            || true,
            |w| self.hands(begun, w),
            |hands, number| {
                let path = self.shape.folder_path(&self.root, order.at(number));
                let listed =
                    hands.tally.time(0, || fs::read_dir(&path)?.try_for_each(|entry| entry.map(drop)));
                listed.map_err(LabError::io(format!("cannot list {}", path.display())))
            },
        )?;
        Ok(done("list", begun, hands, false))
    }

    /// Deletes all leaves, then the folders.
    ///
    /// # Errors
    /// An entry cannot be deleted, or the work was stopped.
    pub fn delete(&mut self, how: How<'_>) -> Result<Done> {
        let leaf = self.shape.leaf;
        let done = self.each_leaf("delete", 0, how, |path, _| match leaf {
            Leaf::Folder => fs::remove_dir(path),
            Leaf::File { .. } => fs::remove_file(path),
        })?;
        for folder in (0..self.shape.folders(self.made)).rev() {
            how.control.check()?;
            self.remove_folder(folder)?;
        }
        if self.shape.depth > 0 {
            remove(&self.root)?;
        }
        self.made = 0;
        Ok(done)
    }

    /// Removes a folder, and any parents that become empty: folders go from last to first.
    fn remove_folder(&self, folder: u64) -> Result<()> {
        let mut number = folder;
        for level in (1..=self.shape.depth).rev() {
            remove(&self.shape.folder_above(&self.root, number, level))?;
            match self.shape.first_of(number) {
                Some(above) => number = above,
                None => return Ok(()),
            }
        }
        if self.shape.depth == 0 { remove(&self.root) } else { Ok(()) }
    }

    fn each_leaf(
        &self,
        what: &'static str,
        bytes: u64,
        how: How<'_>,
        one: impl Fn(&Path, &mut [u8]) -> io::Result<()> + Sync,
    ) -> Result<Done> {
        let begun = Instant::now();
        let order = Visits::of(how.order, self.made, self.shape.seed);
        let state = |w| Ok((self.hands(begun, w)?, vec![0; if bytes > 0 { CHUNK_BYTES } else { 0 }]));
        let (hands, _) = self.crew(how).each(
            self.made,
            || true,
            state,
            |(hands, buffer), number| {
                self.go_to(hands, order.at(number), false)?;
                hands.path.push(&hands.name);
                let done = hands.tally.time(bytes, || one(&hands.path, buffer));
                done.map_err(LabError::io(format!("{what} {}", hands.path.display())))?;
                hands.path.pop();
                Ok(())
            },
        )?;
        Ok(done(what, begun, hands.into_iter().map(|(hands, _)| hands).collect(), false))
    }

    fn crew<'a>(&self, how: How<'a>) -> Crew<'a> {
        let at_once = (RUN_BYTES / self.shape.bytes().max(1)).clamp(1, RUN_LEAVES);
        Crew { workers: how.workers, until: how.until, at_once, control: how.control }
    }

    fn hands(&self, begun: Instant, worker: u32) -> Result<Hands> {
        let bytes = usize::try_from(self.shape.bytes()).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        Ok(Hands {
            tally: Tally::new(begun),
            inodes: 0,
            folder: None,
            path: PathBuf::new(),
            name: String::new(),
            content: Content::new(bytes, self.shape.seed, worker)?,
        })
    }

    /// Sets the worker's path to the leaf's folder, and its name to the leaf's.
    fn go_to(&self, hands: &mut Hands, leaf: u64, make: bool) -> Result<()> {
        let folder = self.shape.folder_of(leaf);
        if hands.folder != Some(folder) {
            hands.path = self.shape.folder_path(&self.root, folder);
            hands.folder = Some(folder);
            if make {
                hands.inodes += make_folders(&hands.path)
                    .map_err(LabError::io(format!("cannot create {}", hands.path.display())))?;
            }
        }
        self.shape.name(leaf, &mut hands.name);
        Ok(())
    }
}

fn done(what: &'static str, begun: Instant, hands: Vec<Hands>, full: bool) -> Done {
    let mut tally = Tally::new(begun);
    hands.iter().for_each(|hands| tally.add(&hands.tally));
    Done {
        tallies: vec![(what, tally)],
        inodes: hands.iter().map(|hands| hands.inodes).sum(),
        elapsed_ns: nanoseconds(Instant::now(), begun),
        full,
    }
}

/// Numbers below a count: in order, or each once in random order.
struct Visits {
    count: u64,
    shuffled: Option<Permutation>,
}

impl Visits {
    fn of(order: Order, count: u64, seed: u64) -> Visits {
        let shuffled = match order {
            Order::Random if count > 0 => Some(Permutation::new(count, &mut Random::new(seed, 0))),
            Order::Random | Order::Sequential => None,
        };
        Visits { count, shuffled }
    }

    fn at(&self, number: u64) -> u64 {
        self.shuffled.as_ref().map_or(number, |shuffled| shuffled.get(number))
    }
}

/// Creates the folder and its missing parents; returns how many were created.
fn make_folders(path: &Path) -> io::Result<u64> {
    match DirBuilder::new().mode(0o755).create(path) {
        Ok(()) => Ok(1),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(0),
        Err(e) if e.kind() == ErrorKind::NotFound => match path.parent() {
            Some(above) => Ok(make_folders(above)? + make_folders(path)?),
            None => Err(e),
        },
        Err(e) => Err(e),
    }
}

fn make_leaf(path: &Path, leaf: Leaf, content: &mut Content) -> io::Result<()> {
    let Leaf::File { bytes } = leaf else {
        return DirBuilder::new().mode(0o755).create(path);
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    let mut left = bytes;
    while left > 0 {
        let part = content.next(left);
        file.write_all(part)?;
        left -= part.len() as u64;
    }
    Ok(())
}

fn remove(folder: &Path) -> Result<()> {
    fs::remove_dir(folder).map_err(LabError::io(format!("cannot delete {}", folder.display())))
}

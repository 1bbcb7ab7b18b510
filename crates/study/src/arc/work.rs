//! The work of the tests.
//!
//! As in practice, a few directories are chosen mostly (the cube of a random number). Content compresses
//! well, so the modelled disk can be small; in the cache it has its full size.

use bytes::Bytes;
use cenote_format::units::ObjectId;
use cenote_fs::write::NewKind;
use cenote_runtime::Rng;

use super::test::{Leaf, Scale, Test};
use crate::bench::{Bench, Steps};
use crate::error::Result;

/// Prepares the directories of a test, and the source tree of a copy.
pub(super) async fn prepare(bench: &Bench, test: Test, scale: Scale, steps: &Steps) -> Result<()> {
    let background = bench.engine.sync_in_background();
    let root = bench.fs.root();
    let source = bench.create(root, b"source".to_vec(), NewKind::Directory).await?;
    for n in 0..scale.directories() {
        bench.create(source, format!("d{n}").into_bytes(), NewKind::Directory).await?;
    }
    if test.is_copy {
        make_all(bench, source, test, scale, |made| steps.add(made)).await?;
        bench.create(root, b"copy".to_vec(), NewKind::Directory).await?;
    }
    drop(background);
    Ok(())
}

/// Runs a test; `made` is called after inodes are created.
pub(super) async fn run(bench: &Bench, test: Test, scale: Scale, mut made: impl FnMut(u64)) -> Result<()> {
    let source = bench.find(bench.fs.root(), b"source").await?;
    if test.is_copy {
        let copy = bench.find(bench.fs.root(), b"copy").await?;
        return copy_all(bench, (source, copy), made).await;
    }
    make_all(bench, source, test, scale, &mut made).await
}

async fn make_all(
    bench: &Bench,
    source: ObjectId,
    test: Test,
    scale: Scale,
    mut made: impl FnMut(u64),
) -> Result<()> {
    let mut places = Places::new(bench, source, scale).await?;
    for n in 0..scale.inodes_of(test) {
        let name = format!("{:08x}", n.wrapping_mul(0x9e37_79b1));
        make_leaf(bench, places.next(), name.into_bytes(), test.leaf).await?;
        made(1);
    }
    Ok(())
}

struct Places {
    dirs: Vec<ObjectId>,
    rng: Rng,
}

impl Places {
    async fn new(bench: &Bench, source: ObjectId, scale: Scale) -> Result<Places> {
        let mut dirs = Vec::new();
        for n in 0..scale.directories() {
            dirs.push(bench.find(source, format!("d{n}").as_bytes()).await?);
        }
        Ok(Places { dirs, rng: Rng::new(1) })
    }

    fn next(&mut self) -> ObjectId {
        let part = self.rng.below(1 << 20) as f64 / f64::from(1 << 20);
        self.dirs[(part.powi(3) * self.dirs.len() as f64) as usize]
    }
}

/// Like rsync: lists a directory, stats its entries, looks each up at the destination, creates it under
/// another name, fills it, sets its attributes and renames it. Directories get their times at the end.
async fn copy_all(
    bench: &Bench,
    (source, copy): (ObjectId, ObjectId),
    mut made: impl FnMut(u64),
) -> Result<()> {
    let fs = &bench.fs;
    let mut directories = vec![(source, copy)];
    let mut copies = Vec::new();
    while let Some((from, to)) = directories.pop() {
        let mut entries = fs.list(from).await?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in &entries {
            fs.view().attr(entry.object).await?;
        }
        for entry in entries {
            let attr = fs.view().attr(entry.object).await?;
            if fs.lookup(to, &entry.name).await?.is_some() {
                continue;
            }
            if attr.is_dir() {
                let id = bench.create(to, entry.name.to_vec(), NewKind::Directory).await?;
                directories.push((entry.object, id));
                copies.push(id);
                made(1);
                continue;
            }
            let hidden = [b".".as_slice(), &entry.name, b".Xa7d2Q"].concat();
            let id = bench.create(to, hidden.clone(), NewKind::Regular).await?;
            if attr.size > 0 {
                let file = fs.view().open_file(entry.object).await?;
                bench.write(id, 0, file.read(0, attr.size).await?).await?;
            }
            bench.set_time(id).await?;
            bench.rename(to, hidden, entry.name.to_vec()).await?;
            made(1);
        }
    }
    for id in copies.into_iter().rev() {
        bench.set_time(id).await?;
    }
    Ok(())
}

async fn make_leaf(bench: &Bench, dir: ObjectId, name: Vec<u8>, leaf: Leaf) -> Result<()> {
    let Leaf::File { bytes } = leaf else {
        return bench.create(dir, name, NewKind::Directory).await.map(drop);
    };
    let id = bench.create(dir, name, NewKind::Regular).await?;
    if bytes > 0 {
        bench.write(id, 0, content(id, bytes)).await?;
    }
    Ok(())
}

/// One sixteenth is random: content that compresses better would be embedded in block pointers.
fn content(id: ObjectId, bytes: u64) -> Bytes {
    let mut rng = Rng::new(id.0);
    let mut content = vec![0; bytes as usize];
    content.chunks_mut(4096).for_each(|page| rng.fill(&mut page[..256]));
    content.into()
}

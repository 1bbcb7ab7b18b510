//! Many concurrent operations on a few directories: in any order, the result must be consistent.

use std::collections::BTreeMap;

use bytes::Bytes;
use cenote_format::units::ObjectId;
use cenote_fs::attr::FileKind;
use cenote_fs::write::{NewFilesystem, RenameMode, SetXattr};
use cenote_fs::{Change, FsError, FsOptions, FsWriter};

use crate::random::Random;
use crate::scratch::{at, dir, file, on_new};

const TASKS: u64 = 8;
const STEPS: usize = 600;

#[test]
fn operations_at_the_same_time_leave_a_sound_tree() {
    on_new(NewFilesystem::default(), FsOptions::default(), async |fs| {
        let rt = fs.live().view().pool().runtime().clone();
        let seed = rt.random_u64();
        println!("seed {seed}");
        let edit = fs.live().edit();
        let change = Change { edit: &edit, now: at(1) };
        let mut dirs = vec![fs.root()];
        for i in 0..4 {
            let parent = dirs[i / 2];
            let id = fs.create(change, parent, format!("dir{i}").as_bytes(), &dir(0o755)).await.unwrap();
            // Never empty, so it is never removed; it may move.
            fs.create(change, id, b"stays", &file(0o644)).await.unwrap();
            dirs.push(id);
        }
        let work = |task| {
            let (fs, dirs) = (fs.clone(), dirs.clone());
            rt.spawn(async move {
                let mut random = Random(seed ^ task);
                for _ in 0..STEPS {
                    step(&fs, &dirs, &mut random).await;
                }
            })
        };
        for task in (0..TASKS).map(work).collect::<Vec<_>>() {
            task.await.unwrap();
        }
        check(&fs).await;
    });
}

/// One operation, which may be refused.
async fn step(fs: &FsWriter, dirs: &[ObjectId], random: &mut Random) {
    let edit = fs.live().edit();
    let change = Change { edit: &edit, now: at(2) };
    let mut place = || {
        let dir = dirs[random.below(dirs.len() as u64) as usize];
        (dir, format!("dir{}", random.below(6)))
    };
    let (from, to) = (place(), place());
    let (from_name, to_name) = (from.1.as_bytes(), to.1.as_bytes());
    let outcome = match random.below(8) {
        0 => fs.create(change, to.0, to_name, &dir(0o700)).await.map(|_| None),
        1 => fs.create(change, to.0, to_name, &file(0o700)).await.map(|_| None),
        2 => fs.unlink(change, from.0, from_name).await,
        3 => fs.rmdir(change, from.0, from_name).await.map(Some),
        4 => fs.rename(change, (from.0, from_name), (to.0, to_name), RenameMode::Replace).await,
        5 => fs.rename(change, (from.0, from_name), (to.0, to_name), RenameMode::Exchange).await,
        6 => match fs.lookup(from.0, from_name).await {
            Ok(Some(entry)) => fs.link(change, entry.object, to.0, to_name).await.map(|()| None),
            other => other.map(|_| None),
        },
        _ => match fs.lookup(from.0, from_name).await {
            Ok(Some(entry)) => {
                let value = Bytes::from(vec![7; random.below(600) as usize]);
                let set = fs.set_xattr(change, entry.object, b"user.x", Some(&value), SetXattr::Any).await;
                set.and(fs.write(change, entry.object, random.below(2000), value).await).map(|()| None)
            }
            other => other.map(|_| None),
        },
    };
    match outcome {
        Ok(Some(gone)) => assert!(fs.free_unlinked(change, gone).await.unwrap()),
        Ok(None) => {}
        Err(error) => assert!(is_refusal(&error), "{error:?}"),
    }
}

fn is_refusal(error: &FsError) -> bool {
    error.refusal().is_some()
}

/// Sizes and links match the names, parents lead to the root, nothing is left over.
async fn check(fs: &FsWriter) {
    let view = fs.view();
    let mut names = BTreeMap::<ObjectId, u64>::new();
    let mut todo = vec![fs.root()];
    while let Some(dir) = todo.pop() {
        let attr = view.attr(dir).await.unwrap();
        let entries = view.list(dir).await.unwrap();
        let below = entries.iter().filter(|entry| entry.kind == Some(FileKind::Directory)).count();
        assert_eq!((attr.size, attr.links), (entries.len() as u64 + 2, below as u64 + 2));
        for entry in entries {
            *names.entry(entry.object).or_default() += 1;
            if entry.kind == Some(FileKind::Directory) {
                assert_eq!(view.attr(entry.object).await.unwrap().parent, dir);
                todo.push(entry.object);
            }
        }
    }
    let mut found = 0;
    for id in (1..20_000).map(ObjectId) {
        let Ok(dnode) = view.objset().dnode(id).await else { continue };
        if !cenote_fs::Filesystem::is_file(&dnode) || id == fs.root() {
            continue;
        }
        found += 1;
        let attr = view.attr(id).await.unwrap();
        if attr.kind() != FileKind::Directory {
            assert_eq!(Some(&attr.links), names.get(&id), "object {id}");
        }
        assert!(names.contains_key(&id), "object {id} has no name");
    }
    assert_eq!(found, names.len());
    assert_eq!(view.unlinked().await.unwrap(), []);
}

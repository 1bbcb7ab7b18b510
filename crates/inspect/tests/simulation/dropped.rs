//! Cancelled operations: each operation's future is dropped at every await. Afterwards the operation is done
//! whole or not at all, and it leaves nothing behind.
//!
//! ```text
//!   for times in 1..   prepare the operation, and sync; poll it `times` times, drop it before the next poll;
//!   until it ends      then all trees are whole, and the pool is sound
//! ```
//!
//! One in a few awaits is tried, starting at another one each time; `CENOTE_STRIDE=1` tries them all.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use cenote_dataset::Value;
use cenote_device::{Delayed, Device, Latency};
use cenote_engine::{Engine, Need};
use cenote_format::units::ObjectId;
use cenote_fs::write::{Changing, CloneSource, NewFile, NewKind, RenameMode, SetAttr, SetXattr};
use cenote_fs::{Change, FileKind, Filesystem, FsOptions, FsWriter, SpaceBy, VolumeWriter};
use cenote_pool::VdevClass::Normal;
use cenote_pool::VdevKind::Mirror;
use cenote_runtime::Runtime;
use cenote_tasks::InUse;

use crate::check::{ask_zdb, check_sound};
use crate::cuts::{number, simulate};
use crate::pools::{Disks, Layout, POOL, create, fill, now, open};

/// Reads take time, so they are awaited.
const SLOW: Latency = Latency { fixed: Duration::from_micros(20), jitter: Duration::ZERO, bytes_per_s: None };
const CACHE_BYTES: usize = 4 << 20;
/// All files belong to this user.
const UID: u64 = 7;
const CONTENT: usize = 60_000;
const RECORD_BYTES: u64 = 8 << 10;
const VOLUME_BYTES: u64 = 256 << 10;

/// Polls a future up to `times` times, then drops it. Returns its output if it ended before.
pub async fn poll_times<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), times);
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Numbers of polls after which operations are dropped.
fn stops() -> impl Iterator<Item = usize> {
    let stride = number("CENOTE_STRIDE").unwrap_or(15) as usize;
    let first = 1 + Runtime::real(Some(1)).random_u64() as usize % stride;
    (first..).step_by(stride)
}

/// A pool on slow disks, and one of its file systems.
struct Lab {
    rt: Runtime,
    layout: Layout,
    disks: Disks,
    engine: Engine,
    fs: FsWriter,
}

impl Lab {
    async fn new(rt: &Runtime) -> Lab {
        let layout = Layout { vdevs: vec![(Mirror, 0, 2, Normal)], sector_bytes: 512, spares: 0 };
        let disks = Disks::new(rt, layout.shape(), layout.blank());
        let slow = |disk| Arc::new(Delayed::new(disk, SLOW, rt)) as Arc<dyn Device>;
        let devices: Vec<_> = disks.devices().into_iter().map(slow).collect();
        let engine = create(rt, &layout, &devices).await;
        let record = Value::Number(RECORD_BYTES);
        cenote_tasks::set_property(&engine, POOL, "recordsize", record).await.unwrap();
        let fs = FsWriter::shared(&engine, POOL).await.unwrap();
        Lab { rt: rt.clone(), layout, disks, engine, fs }
    }

    /// Empties the cache, so that the next operation awaits its reads.
    async fn settle(&self) {
        self.engine.sync_all().await.unwrap();
        // The accounts are read once for each txg: this is not part of an operation.
        let nothing = |_| std::future::ready(Ok::<_, cenote_object::DatasetError>(()));
        self.engine.change(self.fs.live(), Need::Free, nothing).await.unwrap();
        self.engine.cache().set_budget(0);
    }

    /// Waits until dropped operations have ended.
    async fn recover(&self) {
        self.engine.cache().set_budget(CACHE_BYTES);
        self.engine.force_sync().await.unwrap();
        self.disks.take_journal();
    }

    /// Every block is intact, none is leaked, and every tree is whole.
    async fn check(&self, what: &str) {
        self.engine.sync_all().await.unwrap();
        let copy = Disks::new(&self.rt, self.layout.shape(), self.disks.images());
        let mos = open(&self.rt, copy.devices()).await.unwrap();
        check_sound(&mos).await.unwrap_or_else(|why| panic!("{what}: {why}"));
        for dataset in mos.all_datasets().await.unwrap() {
            if let Ok(fs) = Filesystem::open(dataset.objset().await.unwrap()).await {
                check_tree(&fs).await.unwrap_or_else(|why| panic!("{what}: {}: {why}", dataset.name()));
            }
        }
    }
}

/// Sizes and links match the names, parents lead to the root, every object has a name, and the counts are
/// right.
pub async fn check_tree(fs: &Filesystem) -> Result<(), String> {
    let (mut names, mut todo) = (BTreeMap::<ObjectId, u64>::new(), vec![fs.root()]);
    while let Some(dir) = todo.pop() {
        let (attr, entries) = (fs.attr(dir).await.unwrap(), fs.list(dir).await.unwrap());
        let below = entries.iter().filter(|entry| entry.kind == Some(FileKind::Directory)).count();
        let (size, links) = (entries.len() as u64 + 2, below as u64 + 2);
        if (attr.size, attr.links) != (size, links) {
            return Err(format!(
                "directory {dir} says {} and {}, not {size} and {links}",
                attr.size, attr.links
            ));
        }
        for entry in entries {
            *names.entry(entry.object).or_default() += 1;
            let attr = fs.attr(entry.object).await.map_err(|error| format!("{entry:?}: {error}"))?;
            if attr.is_dir() && attr.parent != dir {
                return Err(format!("{entry:?} of {dir} is in {}", attr.parent));
            }
            todo.extend(attr.is_dir().then_some(entry.object));
        }
    }
    let unlinked = fs.unlinked().await.unwrap();
    let (mut found, mut owned) = (0, 0);
    let mut dnodes = fs.objset().dnodes(ObjectId(1), fs.objset().last_object());
    while let Some(batch) = dnodes.next_batch().await {
        for (id, dnode) in &batch.unwrap().dnodes {
            if !Filesystem::is_file(dnode) {
                continue;
            }
            let attr = fs.attr(*id).await.unwrap();
            owned += u64::from(attr.uid == UID);
            if *id == fs.root() || attr.flags & cenote_fs::attr::pflags::XATTR != 0 {
                continue;
            }
            found += 1;
            let is_named = names.get(id).is_some_and(|&links| attr.is_dir() || links == attr.links);
            let is_gone = unlinked.contains(id) && attr.links == 0;
            if !(is_named || is_gone) {
                return Err(format!("object {id} has {} links, and names: {:?}", attr.links, names.get(id)));
            }
        }
    }
    let counted = fs.space_of(SpaceBy::User, UID).await.unwrap().used_objects;
    if (found, owned) == (names.len() + unlinked.len(), counted) {
        return Ok(());
    }
    Err(format!("{found} objects, {} names, {} without; {owned} of {counted}", names.len(), unlinked.len()))
}

/// The targets of the operations: a directory with a file of two names, another file, an empty directory, a
/// nonempty one, a file without a name and one in the delete queue.
#[derive(Clone, Copy)]
struct Ids {
    dir: ObjectId,
    file: ObjectId,
    other: ObjectId,
    sub: ObjectId,
    unnamed: ObjectId,
    unlinked: ObjectId,
}

fn new(kind: NewKind<'_>) -> NewFile<'_> {
    NewFile { kind, mode: 0o755, umask: 0, uid: UID, gid: 8 }
}

/// Bytes that do not compress to nothing.
fn content(seed: u8, len: usize) -> Bytes {
    (0..len).map(|at| ((at * 31 + at / 251) as u8) ^ seed).collect()
}

async fn make_ids(fs: &FsWriter, change: Change<'_>, number: usize) -> cenote_fs::Result<Ids> {
    let name = format!("dir{number}");
    let dir = fs.create(change, fs.root(), name.as_bytes(), &new(NewKind::Directory)).await?;
    let file = fs.create(change, dir, b"file", &new(NewKind::Regular)).await?;
    fs.link(change, file, dir, b"link").await?;
    fs.write(change, file, 0, content(1, CONTENT)).await?;
    fs.set_xattr(change, file, b"user.long", Some(&[3; 2000]), SetXattr::Any).await?;
    let other = fs.create(change, dir, b"other", &new(NewKind::Regular)).await?;
    fs.write(change, other, 0, content(2, CONTENT)).await?;
    fs.create(change, dir, b"empty", &new(NewKind::Directory)).await?;
    let sub = fs.create(change, dir, b"sub", &new(NewKind::Directory)).await?;
    fs.create(change, sub, b"below", &new(NewKind::Symlink(b"somewhere"))).await?;
    let unnamed = fs.create_unnamed(change, dir, &new(NewKind::Regular)).await?;
    let unlinked = fs.create(change, dir, b"gone", &new(NewKind::Regular)).await?;
    fs.write(change, unlinked, 0, content(3, CONTENT)).await?;
    fs.unlink(change, dir, b"gone").await?;
    Ok(Ids { dir, file, other, sub, unnamed, unlinked })
}

type Operation = for<'a> fn(&'a FsWriter, Change<'a>, Ids) -> Changing<'a, ()>;

fn operations() -> Vec<(&'static str, Operation)> {
    vec![
        ("create", |fs, change, ids| {
            Box::pin(
                async move { fs.create(change, ids.dir, b"new", &new(NewKind::Regular)).await.map(drop) },
            )
        }),
        ("mkdir", |fs, change, ids| {
            Box::pin(
                async move { fs.create(change, ids.dir, b"new", &new(NewKind::Directory)).await.map(drop) },
            )
        }),
        ("create_unnamed", |fs, change, ids| {
            Box::pin(
                async move { fs.create_unnamed(change, ids.dir, &new(NewKind::Regular)).await.map(drop) },
            )
        }),
        ("link", |fs, change, ids| fs.link(change, ids.other, ids.sub, b"new")),
        ("link an unnamed file", |fs, change, ids| fs.link(change, ids.unnamed, ids.sub, b"new")),
        ("unlink", |fs, change, ids| {
            Box::pin(async move { fs.unlink(change, ids.dir, b"link").await.map(drop) })
        }),
        ("unlink the last name", |fs, change, ids| {
            Box::pin(async move { fs.unlink(change, ids.dir, b"other").await.map(drop) })
        }),
        ("rmdir", |fs, change, ids| {
            Box::pin(async move { fs.rmdir(change, ids.dir, b"empty").await.map(drop) })
        }),
        ("rename", |fs, change, ids| {
            Box::pin(async move {
                let (from, to) = ((ids.dir, &b"sub"[..]), (fs.root(), &b"moved"[..]));
                // Makes room for the last one.
                let mode = if fs.lookup(to.0, to.1).await?.is_some() {
                    RenameMode::Exchange
                } else {
                    RenameMode::NoReplace
                };
                fs.rename(change, from, to, mode).await.map(drop)
            })
        }),
        ("rename over a file", |fs, change, ids| {
            Box::pin(async move {
                let (from, to) = ((ids.dir, &b"file"[..]), (ids.dir, &b"other"[..]));
                fs.rename(change, from, to, RenameMode::Replace).await.map(drop)
            })
        }),
        ("exchange", |fs, change, ids| {
            Box::pin(async move {
                let (from, to) = ((ids.sub, &b"below"[..]), (ids.dir, &b"empty"[..]));
                fs.rename(change, from, to, RenameMode::Exchange).await.map(drop)
            })
        }),
        ("write", |fs, change, ids| fs.write(change, ids.file, 20_000, content(5, CONTENT))),
        ("truncate", |fs, change, ids| {
            Box::pin(async move {
                let set = SetAttr { size: Some(20_000), uid: Some(UID + 1), ..SetAttr::default() };
                fs.set_attr(change, ids.file, &set).await
            })
        }),
        ("chmod", |fs, change, ids| {
            Box::pin(async move {
                let set = SetAttr { mode: Some(0o600), project: Some(5), ..SetAttr::default() };
                fs.set_attr(change, ids.file, &set).await
            })
        }),
        ("punch", |fs, change, ids| fs.punch(change, ids.file, 10_000..40_000)),
        ("zero_range", |fs, change, ids| fs.zero_range(change, ids.file, 10_000..80_000)),
        ("clone_range", |fs, change, ids| {
            Box::pin(async move {
                let empty = ids.unnamed;
                let whole =
                    fs.clone_range(change, CloneSource::Live(fs), (ids.file, 0), (empty, 0), u64::MAX);
                whole.await.map(drop)
            })
        }),
        ("set_xattr", |fs, change, ids| {
            Box::pin(async move {
                fs.set_xattr(change, ids.other, b"user.new", Some(&[1; 3000]), SetXattr::Any).await
            })
        }),
        ("set_xattr in a directory", |fs, change, ids| {
            Box::pin(async move {
                fs.set_xattr(change, ids.other, b"user.new", Some(&[1; 60_000]), SetXattr::Any).await
            })
        }),
        ("free_unlinked", |fs, change, ids| {
            Box::pin(async move { fs.free_unlinked(change, ids.unlinked).await.map(drop) })
        }),
        ("drain_delete_queue", |fs, change, _| {
            Box::pin(async move { fs.drain_delete_queue(change).await.map(drop) })
        }),
        ("two operations", |fs, change, ids| {
            Box::pin(async move {
                fs.unlink(change, ids.dir, b"link").await?;
                fs.create(change, ids.dir, b"link", &new(NewKind::CharDevice(0, 0))).await.map(drop)
            })
        }),
    ]
}

#[test]
fn operations_on_files_are_done_whole_or_not_at_all() {
    for (name, operation) in operations() {
        simulate(1, |rt| async move {
            let lab = Lab::new(&rt).await;
            for times in stops() {
                let made = lab.fs.change(&lab.engine, Need::Write(1 << 20), move |fs, change| {
                    Box::pin(make_ids(fs, change, times))
                });
                let ids = made.await.unwrap();
                lab.settle().await;
                let need = Need::Write(1 << 20);
                let changed = lab.fs.change(&lab.engine, need, move |fs, change| operation(fs, change, ids));
                let done = poll_times(times, changed).await;
                lab.recover().await;
                if let Some(done) = done {
                    done.unwrap_or_else(|error| panic!("{name}: {error}"));
                    break;
                }
            }
            lab.check(name).await;
        });
    }
}

#[test]
fn commits_are_written_to_their_end() {
    simulate(2, |rt| async move {
        let lab = Lab::new(&rt).await;
        for times in stops() {
            let made = lab.fs.change(&lab.engine, Need::Write(1 << 20), move |fs, change| {
                Box::pin(make_ids(fs, change, times))
            });
            made.await.unwrap();
            lab.fs.commit(None).await.unwrap();
            let wrote = lab.fs.change(&lab.engine, Need::Write(1 << 20), move |fs, change| {
                Box::pin(async move {
                    let name = format!("file{times}");
                    let id = fs.create(change, fs.root(), name.as_bytes(), &new(NewKind::Regular)).await?;
                    // Whole blocks get their own blocks.
                    fs.write(change, id, 0, content(9, 8 * RECORD_BYTES as usize)).await?;
                    Ok(id)
                })
            });
            let id = wrote.await.unwrap();
            let done = poll_times(times, lab.fs.commit(Some(id))).await;
            // Other operations are still served.
            lab.fs.commit(None).await.unwrap();
            if done.is_some() {
                break;
            }
        }
        lab.check("commit").await;
    });
}

#[test]
fn operations_on_volumes_are_done_whole_or_not_at_all() {
    type Act = fn(Arc<VolumeWriter>, cenote_object::Edit) -> Changing<'static, ()>;
    let operations: [(&str, Act); 4] = [
        ("write", |volume, edit| {
            Box::pin(async move { volume.write(&edit, 3000, content(8, 100_000)).await })
        }),
        ("write_zeros", |volume, edit| {
            Box::pin(async move { volume.write_zeros(&edit, 3000..103_000).await })
        }),
        ("discard", |volume, edit| Box::pin(async move { volume.discard(&edit, 8192..106_496).await })),
        ("resize", |volume, edit| Box::pin(async move { volume.resize(&edit, VOLUME_BYTES / 2).await })),
    ];
    for (name, operation) in operations {
        simulate(3, |rt| async move {
            let lab = Lab::new(&rt).await;
            let make = Box::new(move |live: cenote_object::LiveObjset| {
                let making: futures::future::BoxFuture<'static, cenote_object::Result<()>> =
                    Box::pin(async move {
                        let edit = live.edit();
                        VolumeWriter::create(live.clone(), &edit, VOLUME_BYTES, 8 << 10).await.unwrap();
                        Ok(())
                    });
                making
            });
            let volume = format!("{POOL}/volume");
            cenote_tasks::create_volume(&lab.engine, &volume, Vec::new(), make).await.unwrap();
            let volume = VolumeWriter::shared(&lab.engine, &volume).await.unwrap();
            let shown = async || {
                let view = volume.view().await.unwrap();
                (view.size_bytes(), view.read(0, view.size_bytes()).await.unwrap())
            };
            let mut outcomes = Vec::new();
            for times in stops() {
                let filling = volume.clone();
                let fill = |edit| async move {
                    filling.resize(&edit, VOLUME_BYTES).await?;
                    filling.write(&edit, 0, content(7, VOLUME_BYTES as usize)).await
                };
                lab.engine.change(volume.live(), Need::Write(VOLUME_BYTES), fill).await.unwrap();
                lab.settle().await;
                let changing = volume.clone();
                let act = |edit| async move { operation(changing, edit).await };
                let need = Need::Write(VOLUME_BYTES);
                let done = poll_times(times, lab.engine.change(volume.live(), need, act)).await;
                lab.recover().await;
                outcomes.push(shown().await);
                if let Some(done) = done {
                    done.unwrap_or_else(|error| panic!("{name}: {error}"));
                    break;
                }
            }
            let whole = outcomes.pop().unwrap();
            let before = (VOLUME_BYTES, content(7, VOLUME_BYTES as usize));
            let is_either = |outcome: &(u64, Bytes)| [&whole, &before].contains(&outcome);
            assert!(outcomes.iter().all(is_either), "{name}");
            lab.check(name).await;
        });
    }
}

/// Datasets and the pool: tasks run when the txg is written, even if their caller is gone.
#[test]
fn tasks_are_done_whole_or_not_at_all() {
    type Task = for<'a> fn(&'a Engine, usize) -> Changing<'a, ()>;
    let tasks: [(&str, Task); 6] = [
        ("snapshot and destroy", |engine, number| {
            Box::pin(async move {
                let names = [format!("{POOL}@own{number}")];
                cenote_tasks::snapshot(engine, &names).await?;
                Ok(cenote_tasks::destroy_snapshots(engine, &names, InUse::Refuse).await?)
            })
        }),
        ("create", |engine, number| {
            Box::pin(async move {
                let at = now(engine.runtime());
                let fill = Box::new(move |live| -> futures::future::BoxFuture<'static, _> {
                    Box::pin(fill(live, at, FsOptions::default()))
                });
                Ok(cenote_tasks::create_filesystem(engine, &format!("{POOL}/new{number}"), Vec::new(), fill)
                    .await?)
            })
        }),
        ("clone and destroy", |engine, number| {
            Box::pin(async move {
                let (origin, clone) = (format!("{POOL}@base"), format!("{POOL}/clone{number}"));
                cenote_tasks::clone_snapshot(engine, &origin, &clone, Vec::new()).await?;
                Ok(cenote_tasks::destroy_dataset(engine, &clone).await?)
            })
        }),
        ("rename", |engine, number| {
            Box::pin(async move {
                let at = now(engine.runtime());
                let fill = Box::new(move |live| -> futures::future::BoxFuture<'static, _> {
                    Box::pin(fill(live, at, FsOptions::default()))
                });
                let (from, to) = (format!("{POOL}/from{number}"), format!("{POOL}/to{number}"));
                cenote_tasks::create_filesystem(engine, &from, Vec::new(), fill).await?;
                Ok(cenote_tasks::rename(engine, &from, &to).await?)
            })
        }),
        ("set", |engine, number| {
            Box::pin(async move {
                let value = Value::Number(512 << (number % 8));
                Ok(cenote_tasks::set_property(engine, POOL, "recordsize", value).await?)
            })
        }),
        ("open", |engine, number| {
            Box::pin(async move {
                FsWriter::shared(engine, &format!("{POOL}/child{}", number % 3)).await.map(drop)
            })
        }),
    ];
    for (name, task) in tasks {
        simulate(4, |rt| async move {
            let lab = Lab::new(&rt).await;
            let at = now(&rt);
            for child in 0..3 {
                let fill = Box::new(move |live| -> futures::future::BoxFuture<'static, _> {
                    Box::pin(fill(live, at, FsOptions::default()))
                });
                let name = format!("{POOL}/child{child}");
                cenote_tasks::create_filesystem(&lab.engine, &name, Vec::new(), fill).await.unwrap();
            }
            cenote_tasks::snapshot(&lab.engine, &[format!("{POOL}@base")]).await.unwrap();
            let made = lab.fs.change(&lab.engine, Need::Write(1 << 20), move |fs, change| {
                Box::pin(make_ids(fs, change, 0))
            });
            made.await.unwrap();
            for times in stops() {
                lab.settle().await;
                let done = poll_times(times, task(&lab.engine, times)).await;
                lab.recover().await;
                if let Some(done) = done {
                    done.unwrap_or_else(|error| panic!("{name}: {error}"));
                    break;
                }
            }
            lab.check(name).await;
            if name == "clone and destroy" {
                ask_zdb(&lab.disks.images()).unwrap();
            }
        });
    }
}

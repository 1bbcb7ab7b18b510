//! Rewrites the blocks that a survey's rules choose.
//!
//! Idea: a walk keeps freed blocks of its tree from being reused. So each window of pointers comes from the
//! newest state, which is let go while the window's tasks run. Writers judge blocks again by their current
//! pointers.
//!
//! Locking: counters are independent relaxed atomics.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cenote_boxed::boxed;
use cenote_dataset::Mos;
use cenote_dataset::traverse::{Met, Position};
use cenote_engine::{Engine, Need};
use cenote_format::blkptr::{BLKPTR_BYTES, Blkptr};
use cenote_format::dnode::{DNODES_PER_BLOCK, ObjectType};
use cenote_format::units::ObjectId;
use cenote_fs::write::{REWRITE_BYTES, Wanted};
use cenote_fs::{FsWriter, Refusal, Rewrite, VolumeWriter};
use cenote_pool::Zbookmark;
use futures::{StreamExt, TryStreamExt, stream};

use super::choice::{Choice, Surplus};
use super::survey::{Plan, fills, of_head};
use super::{Aim, Options};
use crate::error::Result;

/// A window ends with the batch in which it has this many tasks or bytes.
const WINDOW_TASKS: usize = 4096;
const WINDOW_BYTES: u64 = 256 << 20;
/// Objects rewritten concurrently.
const AT_ONCE: usize = 8;
/// Walks of all datasets to even out vdevs: moved blocks fall on all vdevs, by their free space.
const ROUNDS: usize = 4;

/// Rewriting under way: progress, and a way to stop it.
#[derive(Debug, Default)]
pub struct Work {
    /// Bytes of blocks rewritten, as they were stored.
    bytes: AtomicU64,
    /// Objects that could not be rewritten: immutable, unreadable.
    left: AtomicU64,
    stopped: AtomicBool,
}

impl Work {
    /// Stops after the blocks under way.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was requested.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Bytes of blocks rewritten so far, as they were stored.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Objects left alone: immutable or unreadable.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }
}

impl Plan {
    /// Bytes to be rewritten, about.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Rewrites blocks of the planned datasets. Ends early if `work` is stopped.
///
/// # Errors
/// The pool or a quota is full; a txg could not be written.
#[boxed]
pub async fn rebalance(engine: &Engine, plans: Vec<Plan>, options: &Options, work: &Arc<Work>) -> Result<()> {
    let _syncing = engine.sync_in_background();
    for round in 0..ROUNDS {
        let surplus = Surplus::of(&fills(&engine.mos().await?).await?);
        let is_uneven = options.aims.contains(&Aim::NewVdevs) && !surplus.is_empty();
        if round > 0 && !is_uneven {
            break;
        }
        for plan in &plans {
            let mut choice = plan.choice.clone();
            choice.surplus = surplus.clone();
            let writer = Writer::open(engine, plan).await?;
            Rewriting { engine, plan, choice: Arc::new(choice), writer, work }.run().await?;
        }
        if work.is_stopped() {
            break;
        }
        engine.sync_all().await?;
    }
    Ok(())
}

/// Blocks of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Task {
    object: ObjectId,
    part: Part,
    /// As stored.
    bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Those wanted.
    Wanted(Range<u64>),
    /// Any one of them, for the indirect blocks above it.
    One(Range<u64>),
    /// The dnode of one of the objects from this on.
    Dnode,
}

enum Writer {
    Files(FsWriter),
    Volume(Arc<VolumeWriter>),
}

impl Writer {
    async fn open(engine: &Engine, plan: &Plan) -> Result<Writer> {
        Ok(match plan.is_volume {
            true => Writer::Volume(VolumeWriter::shared(engine, &plan.name).await?),
            false => Writer::Files(FsWriter::shared(engine, &plan.name).await?),
        })
    }
}

struct Rewriting<'a> {
    engine: &'a Engine,
    plan: &'a Plan,
    choice: Arc<Choice>,
    writer: Writer,
    work: &'a Arc<Work>,
}

impl Rewriting<'_> {
    async fn run(&self) -> Result<()> {
        let mut from = Some(Position::default());
        while let Some(position) = from.filter(|_| !self.work.is_stopped()) {
            let mos = self.engine.mos().await?;
            let physical = mos.enabled_features().await?.contains("physical_rewrite");
            let (tasks, next) = self.window(&mos, position).await?;
            drop(mos);
            let run = |task| async move { self.attempt(task, physical).await };
            stream::iter(tasks).map(run).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
            from = next;
        }
        Ok(())
    }

    /// The tasks of the next window, and the position after it.
    async fn window(&self, mos: &Mos, from: Position) -> Result<(Vec<Task>, Option<Position>)> {
        let Ok(dataset) = mos.dataset(&self.plan.name).await else { return Ok((Vec::new(), None)) };
        let (mut tasks, mut met, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut tree = of_head(mos, &dataset, from, &mut met);
        while tree.step(&mut met).await {
            for found in met.drain(..) {
                if let Met::Block { bp, place } = found
                    && let Some(task) = self.task(&bp, &place)
                {
                    bytes += task.bytes;
                    join(&mut tasks, task);
                }
            }
            if tasks.len() >= WINDOW_TASKS || bytes >= WINDOW_BYTES || self.work.is_stopped() {
                return Ok((tasks, tree.position()));
            }
        }
        Ok((tasks, None))
    }

    fn task(&self, bp: &Blkptr, place: &Zbookmark) -> Option<Task> {
        if self.choice.is_held(bp) {
            return None;
        }
        self.choice.aim(bp)?;
        let (object, bytes) = (place.object, bp.asize().0);
        let block = place.block.0;
        let part = match (bp.object_type(), place.level) {
            (ObjectType::DNODE, 0) => {
                let object = ObjectId(block.checked_mul(DNODES_PER_BLOCK)?);
                return Some(Task { object, part: Part::Dnode, bytes });
            }
            (ObjectType::PLAIN_FILE_CONTENTS | ObjectType::ZVOL | ObjectType::DIRECTORY_CONTENTS, level) => {
                match level {
                    0 => Part::Wanted(block..block + 1),
                    _ => Part::One(leaves(block, level, bp.lsize().0)?),
                }
            }
            _ => return None,
        };
        Some(Task { object, part, bytes })
    }

    /// Runs a task. A missing, immutable or unreadable object is no failure of the work.
    async fn attempt(&self, task: Task, physical: bool) -> Result<()> {
        if self.work.is_stopped() {
            return Ok(());
        }
        match self.carry_out(&task, physical).await {
            Ok(()) => {
                self.work.bytes.fetch_add(task.bytes, Ordering::Relaxed);
                Ok(())
            }
            Err(error) if error.refusal() == Some(Refusal::NotFound) => Ok(()),
            Err(error) if error.is_damage() || error.refusal() == Some(Refusal::NotPermitted) => {
                self.work.left.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn carry_out(&self, task: &Task, physical: bool) -> cenote_fs::error::Result<()> {
        let (object, held) = (task.object, self.choice.held_until);
        let how = |wanted, one| {
            let cloned = self.plan.cloned.clone();
            Arc::new(Rewrite { physical, born_after: held, cloned, wanted, one })
        };
        match &task.part {
            Part::Wanted(blocks) => {
                self.blocks(object, blocks.clone(), how(Some(self.wanted()), false)).await
            }
            Part::One(blocks) => self.blocks(object, blocks.clone(), how(None, true)).await,
            Part::Dnode => {
                let Writer::Files(fs) = &self.writer else { return Ok(()) };
                let objects = object.0..object.0 + DNODES_PER_BLOCK;
                fs.change(self.engine, Need::Write(0), move |fs, change| {
                    Box::pin(async move { fs.rewrite_dnode(change, objects).await })
                })
                .await
            }
        }
    }

    /// The choice by a block's pointer at the time of the write.
    fn wanted(&self) -> Arc<Wanted> {
        let choice = self.choice.clone();
        Arc::new(move |bp| match choice.aim(bp) {
            Some(aim) => {
                if aim == Aim::NewVdevs {
                    choice.surplus.take(bp);
                }
                true
            }
            None => false,
        })
    }

    async fn blocks(
        &self,
        object: ObjectId,
        blocks: Range<u64>,
        how: Arc<Rewrite>,
    ) -> cenote_fs::error::Result<()> {
        let mut next = Some(blocks.start);
        while let Some(first) = next.filter(|_| !self.work.is_stopped()) {
            let (how, blocks) = (how.clone(), first..blocks.end);
            next = match &self.writer {
                Writer::Volume(volume) => {
                    let need = Need::Write(REWRITE_BYTES.max(volume.block_bytes()));
                    let writer = volume.clone();
                    let rewrite = move |edit| async move { writer.rewrite(&edit, blocks, &how).await };
                    self.engine.change(volume.live(), need, rewrite).await?
                }
                Writer::Files(fs) => {
                    fs.change(self.engine, Need::Write(REWRITE_BYTES), move |fs, change| {
                        Box::pin(async move { fs.rewrite_part(change, object, blocks, &how).await })
                    })
                    .await?
                }
            };
        }
        Ok(())
    }
}

/// The data blocks below an indirect block; `None`: beyond any object.
fn leaves(block: u64, level: u8, indirect_bytes: u64) -> Option<Range<u64>> {
    let count = (indirect_bytes / BLKPTR_BYTES as u64).checked_pow(level.into())?;
    let start = block.checked_mul(count)?;
    Some(start..start.checked_add(count)?)
}

/// Adds a task, to the last one if it goes on there.
fn join(tasks: &mut Vec<Task>, task: Task) {
    if let Some(last) = tasks.last_mut().filter(|last| last.object == task.object)
        && let (Part::Wanted(blocks), Part::Wanted(more)) = (&mut last.part, &task.part)
        && blocks.end == more.start
    {
        blocks.end = more.end;
        last.bytes += task.bytes;
        return;
    }
    tasks.push(task);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_indirect_block_spans_the_leaves_below_it() {
        let blocks = 128 << 10;
        assert_eq!(leaves(0, 1, blocks), Some(0..1024));
        assert_eq!(leaves(3, 1, blocks), Some(3072..4096));
        assert_eq!(leaves(1, 2, blocks), Some(1 << 20..2 << 20));
        assert_eq!(leaves(u64::MAX, 1, blocks), None);
        assert_eq!(leaves(0, 9, blocks), None);
    }

    #[test]
    fn runs_of_blocks_are_one_task() {
        let task = |object, blocks: Range<u64>| Task {
            object: ObjectId(object),
            part: Part::Wanted(blocks),
            bytes: 1,
        };
        let mut tasks = Vec::new();
        for one in [task(7, 0..1), task(7, 1..2), task(7, 5..6), task(8, 6..7)] {
            join(&mut tasks, one);
        }
        let joined = Task { bytes: 2, ..task(7, 0..2) };
        assert_eq!(tasks, [joined, task(7, 5..6), task(8, 6..7)]);
    }
}

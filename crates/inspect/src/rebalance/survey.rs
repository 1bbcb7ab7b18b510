//! Counts the blocks that a rewrite would change.

use std::sync::Arc;

use cenote_boxed::boxed;
use cenote_dataset::keys::KeyStatus;
use cenote_dataset::sharing::Brt;
use cenote_dataset::traverse::{Met, Part, Position, Tree};
use cenote_dataset::{Dataset, DatasetKind, Mos};
use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::ObjectType;
use cenote_format::units::{BlockId, Txg, VdevId};
use cenote_pool::{VdevClass, Zbookmark};

use super::choice::{Choice, Surplus};
use super::sample::Samples;
use super::{Aim, Fill, Gain, Options, Survey};
use crate::error::Result;

/// A dataset to work on, and how its blocks are chosen.
pub struct Plan {
    pub(super) name: String,
    pub(super) is_volume: bool,
    pub(super) choice: Choice,
    /// Tables of clones, whose blocks stay.
    pub(super) cloned: Arc<[Brt]>,
    /// Bytes that will be rewritten, about.
    pub(super) bytes: u64,
}

/// Space of the vdevs that store data.
///
/// # Errors
/// A space map is damaged.
#[boxed]
pub async fn fills(mos: &Mos) -> Result<Vec<Fill>> {
    let vdevs = mos.pool().tree().vdevs();
    let tops = mos.pool().status().root.children;
    let name = |vdev: VdevId| tops.iter().find(|top| top.id == vdev.0).map(|top| top.name.clone());
    let usage = mos.usage().await?;
    let stores = |class| matches!(class, VdevClass::Normal | VdevClass::Special);
    Ok(usage
        .into_iter()
        .filter(|usage| stores(usage.class))
        .filter(|usage| vdevs.top(usage.vdev).is_some_and(|top| !top.non_allocating))
        .map(|usage| Fill {
            vdev: usage.vdev,
            name: name(usage.vdev).unwrap_or_default(),
            class: usage.class,
            size_bytes: usage.size_bytes,
            allocated_bytes: usage.allocated_bytes,
        })
        .collect())
}

/// Surveys datasets. `tell` hears of bytes looked at, and of all bytes.
///
/// # Errors
/// Space maps, properties or tables of clones are damaged. Unreadable metadata are left out.
#[boxed]
pub async fn survey(
    mos: &Mos,
    datasets: &[Dataset],
    options: &Options,
    tell: &(dyn Fn(u64, u64) + Sync),
) -> Result<(Survey, Vec<Plan>)> {
    let fills = fills(mos).await?;
    let surplus = Surplus::of(&fills);
    let cloned: Arc<[Brt]> = mos.cloned_blocks().await?.into();
    let mut survey = Survey { gains: Aim::ALL.map(Gain::none).to_vec(), ..Survey::default() };
    survey.gains.retain(|gain| options.aims.contains(&gain.aim));
    let total: u64 = datasets.iter().map(|dataset| dataset.phys().referenced_bytes).sum();
    let (mut plans, mut done) = (Vec::new(), 0);
    for dataset in datasets {
        survey.datasets += 1;
        if !matches!(dataset.key_status().await?, KeyStatus::None | KeyStatus::Available) {
            survey.without_key.push(dataset.name().to_owned());
            continue;
        }
        let choice = Choice::of(mos, dataset, &options.aims, &fills, surplus.clone()).await?;
        let mut walk = Walk {
            dataset,
            samples: Samples::new(mos.pool().runtime().rng()),
            choice,
            cloned: cloned.clone(),
            gains: survey.gains.iter().map(|gain| Gain::none(gain.aim)).collect(),
            other_record_sizes: 0,
        };
        walk.run(mos, |bytes| tell(done + bytes, total)).await?;
        done += dataset.phys().referenced_bytes;
        survey.other_record_sizes += walk.other_record_sizes;
        let mut bytes = 0;
        let (mut choice, mut gains) = (walk.choice, walk.gains);
        if options.aims.contains(&Aim::Compression) {
            let verdict = walk.samples.judge(dataset, &choice).await?;
            gains.push(verdict.gain);
            choice.keeps = verdict.keeps;
        }
        for gain in gains {
            bytes += gain.bytes - if options.shared { 0 } else { gain.held_bytes };
            survey.gains.iter_mut().filter(|sum| sum.aim == gain.aim).for_each(|sum| sum.add(&gain));
        }
        let is_volume = dataset.kind().await? == DatasetKind::Volume;
        let cloned = if options.shared { Arc::default() } else { cloned.clone() };
        if options.shared {
            choice.held_until = Txg(0);
        }
        if bytes > 0 {
            plans.push(Plan { name: dataset.name().to_owned(), is_volume, choice, cloned, bytes });
        }
    }
    survey.vdevs = fills;
    Ok((survey, plans))
}

/// A walk over one dataset's pointers.
struct Walk<'a> {
    dataset: &'a Dataset,
    choice: Choice,
    cloned: Arc<[Brt]>,
    samples: Samples,
    /// All but that of compression, which the samples decide.
    gains: Vec<Gain>,
    other_record_sizes: u64,
}

impl Walk<'_> {
    async fn run(&mut self, mos: &Mos, tell: impl Fn(u64)) -> Result<()> {
        let [record_bytes] = self.dataset.numbers(["recordsize"]).await?;
        let mut met = Vec::new();
        let mut tree = of_head(mos, self.dataset, Position::default(), &mut met);
        let mut bytes = 0;
        loop {
            for found in met.drain(..) {
                let Met::Block { bp, place } = found else { continue };
                bytes += mos.dsize(&bp);
                let is_second_block = place.level == 0 && place.block == BlockId(1);
                let is_file = bp.object_type() == ObjectType::PLAIN_FILE_CONTENTS;
                if is_second_block && is_file && bp.lsize().0 != record_bytes {
                    self.other_record_sizes += 1;
                }
                self.count(&bp, &place).await?;
            }
            tell(bytes);
            if !tree.step(&mut met).await {
                return Ok(());
            }
        }
    }

    async fn count(&mut self, bp: &Blkptr, place: &Zbookmark) -> Result<()> {
        let Some(aim) = self.choice.aim(bp) else { return Ok(()) };
        let is_held = self.choice.is_held(bp) || Brt::any_has(&self.cloned, bp).await?;
        if aim == Aim::Compression {
            self.samples.meet(place.object, place.block, bp, is_held);
            return Ok(());
        }
        let (bytes, saved_bytes) = match aim {
            Aim::NewWidth => (bp.asize().0, bp.asize().0 - self.choice.bytes_now(bp)),
            _ => (bp.asize().0, 0),
        };
        if aim == Aim::NewVdevs && !is_held {
            self.choice.surplus.take(bp);
        }
        let held_bytes = if is_held { bytes } else { 0 };
        let one = Gain { aim, blocks: 1, bytes, held_bytes, saved_bytes };
        self.gains.iter_mut().filter(|gain| gain.aim == aim).for_each(|gain| gain.add(&one));
        Ok(())
    }
}

/// The tree of a dataset's live content, from a position on.
pub(super) fn of_head(mos: &Mos, dataset: &Dataset, from: Position, met: &mut Vec<Met>) -> Tree {
    let phys = dataset.phys();
    let part = Part { dataset: dataset.id(), root: phys.bp, head: true, born_after: Txg(0), from };
    Tree::of_objset(mos.pool(), &part, met)
}

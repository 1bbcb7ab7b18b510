//! Recovery: putting a block together from whatever is left of one copy.
//!
//! Idea: a read failed, or some part of what was read is wrong and nothing tells which. So everything is
//! read: every column, with parity, from every leaf that should hold it. For each unit (see
//! [`crate::vdev::map`]) there is then a choice: one of the versions that were read, or *rebuilt* from the
//! others. The block's checksum judges. The most likely choice is tried first, then all that differ from it
//! in one unit, in two, up to three (parity can't make up for more), so the fewest faults win.
//!
//! On a RAID-Z that was expanded, what one child had spoilt before is now on all of them. So the children of
//! that time ([`Former`]) are doubted like units: whatever was on one is rebuilt.
//!
//! Once the truth is known, every version that differs from it is wrong, parity included: its leaf is
//! blamed, unless it was known to be behind when it was read, or the mismatch may be no damage (`mismatch`).
//!
//! Source: OpenZFS `vdev_raidz_combrec`, `raidz_simulate_failure`, `vdev_indirect_reconstruct`.

use crate::check::Check;
use crate::context::ReadContext;
use crate::mismatch::Mismatch;
use crate::pool::Pool;
use crate::read::{preferred, read_column};
use crate::vdev::leaf::Leaf;
use crate::vdev::map::{BlockMap, Column, Former, MapError, Row};
use crate::vdev::queue::IoClass;
use crate::vdev::{Layout, VdevTree};
use bytes::{Bytes, BytesMut};
use cenote_codec::checksum::ChecksumError;
use cenote_codec::raidz;
use cenote_format::units::Guid;
use cenote_runtime::WorkKind;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Units that may differ from the likely choice at once; parity can't make up for more.
const MAX_DEVIATIONS: usize = 3;
/// The most bytes hashed in search of one block, and the fewest attempts for a large block.
const MAX_HASHED_BYTES: usize = 8 << 30;
const MIN_ATTEMPTS: usize = 2_048;
const MAX_ATTEMPTS: usize = 100_000;

/// Why a copy could not be used.
#[derive(Debug, Clone)]
pub(crate) enum CopyError {
    /// Not enough could be read.
    Unreadable(String),
    /// Everything was read, and nothing matches the checksum.
    Mismatch(ChecksumError),
    /// The address is impossible.
    BadAddress(String),
}

impl From<MapError> for CopyError {
    fn from(error: MapError) -> Self {
        match error {
            MapError::BadAddress(why) => CopyError::BadAddress(why),
            MapError::Absent(why) => CopyError::Unreadable(why),
        }
    }
}

impl CopyError {
    /// The more informative of two copies' errors: damage rather than absence, either rather than a bad
    /// address.
    pub(crate) fn worse(first: Option<CopyError>, second: CopyError) -> Option<CopyError> {
        let rank = |error: &CopyError| match error {
            CopyError::BadAddress(_) => 0,
            CopyError::Unreadable(_) => 1,
            CopyError::Mismatch(_) => 2,
        };
        Some(match first {
            Some(first) if rank(&first) >= rank(&second) => first,
            _ => second,
        })
    }
}

/// A block that was put together.
pub(crate) struct Recovered {
    /// `psize` bytes with the right checksum.
    pub(crate) data: Bytes,
    /// The ranges that turned out to be wrong or unreadable.
    pub(crate) faults: Vec<ColumnFault>,
}

/// A wrong range on a leaf.
pub(crate) struct ColumnFault {
    pub(crate) leaf: Arc<Leaf>,
    pub(crate) offset_bytes: u64,
    pub(crate) len: usize,
    pub(crate) kind: FaultKind,
    /// What should be there; in a dRAID with the zeros that fill its row.
    pub(crate) truth: Bytes,
    /// Where an expansion has copied it.
    pub(crate) also_at: Vec<(Arc<Leaf>, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    Unreadable,
    WrongData,
    WrongParity,
}

/// The bytes that a leaf returned for a column; `None` if it failed.
pub(crate) struct Version {
    pub(crate) leaf: Arc<Leaf>,
    pub(crate) bytes: Option<Bytes>,
}

/// Everything that was read of one copy: `versions[row][column][leaf]`.
struct Gathered<'a> {
    map: &'a BlockMap,
    versions: Vec<Vec<Vec<Version>>>,
    /// They come after the units where something is chosen for each.
    formers: Vec<Former>,
    /// Leaves that were behind when they were read. A resilver may have ended since.
    lagging: Vec<Guid>,
    last_error: Option<String>,
}

/// Where to take a unit's bytes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Version(usize),
    Rebuilt,
    /// For a former child: what was chosen for the units.
    AsItIs,
}

/// Reads everything and finds the combination with the right checksum.
pub(crate) async fn recover(
    pool: &Pool,
    vdevs: &VdevTree,
    map: &BlockMap,
    psize: usize,
    check: &Check<'_>,
    ctx: &ReadContext,
) -> Result<Recovered, CopyError> {
    let gathered = gather(vdevs, map, pool.reads(), check.is_vacuous()).await;
    let attempts = (MAX_HASHED_BYTES / psize.max(1)).clamp(MIN_ATTEMPTS, MAX_ATTEMPTS);
    let mut search = Search { gathered: &gathered, check, psize, attempts, last: None };
    let found = search.run();
    let tried = (attempts - search.attempts) as u64;
    pool.runtime().work(WorkKind::ParityReconstruct, tried * psize as u64).await;
    pool.runtime().work(check.work(), tried * psize as u64).await;
    let Some(block) = found else {
        return Err(match search.last {
            Some(error) => {
                if pool.counts() && pool.meaning(check, ctx) == Mismatch::Damage {
                    gathered.blame_all(vdevs);
                }
                CopyError::Mismatch(error)
            }
            None => {
                CopyError::Unreadable(gathered.last_error.unwrap_or("too few devices are present".into()))
            }
        });
    };
    let mut faults = gathered.faults(vdevs, &block);
    if check.is_vacuous() {
        // Nothing tells which is right: what may be old is taken to be wrong.
        faults.retain(|fault| vdevs.lacks(&fault.leaf, map.birth));
    }
    let is_to_blame = |fault: &&ColumnFault| {
        fault.kind != FaultKind::Unreadable
            && !gathered.was_lagging(&fault.leaf)
            && !vdevs.is_lagging(&fault.leaf)
    };
    if pool.counts() && pool.meaning_of_part(check, ctx) == Mismatch::Damage {
        faults.iter().filter(is_to_blame).for_each(|fault| fault.leaf.blame());
    }
    Ok(Recovered { data: Bytes::from(block).slice(..psize), faults })
}

/// The same from as little as makes the block: a version of each data column, and parity for those that
/// nobody has or that can't be read. `had` is what was read already. Names what leaves lack, and what can't
/// be read. `None` if that is not the block, or nothing tells whether it is.
pub(crate) async fn recover_simply(
    pool: &Pool,
    vdevs: &VdevTree,
    map: &BlockMap,
    psize: usize,
    check: &Check<'_>,
    had: Vec<Option<Version>>,
) -> Option<Recovered> {
    if check.is_vacuous() {
        return None;
    }
    let gathered = gather_least(vdevs, map, pool.reads(), had).await;
    let choices: Vec<Choice> = (0..map.units).map(|unit| gathered.likely(unit)).collect();
    let block = gathered.assemble(&choices)?;
    pool.runtime().work(check.work(), psize as u64).await;
    check.verify(block.get(..psize)?).ok()?;
    let faults = gathered.faults(vdevs, &block);
    Some(Recovered { data: Bytes::from(block).slice(..psize), faults })
}

/// What leaves lack of a range of which nothing tells what it holds, from leaves that lack nothing. `None` if
/// these do not make it, or a read fails.
pub(crate) async fn recover_unchecked(
    pool: &Pool,
    vdevs: &VdevTree,
    map: &BlockMap,
) -> Option<Vec<ColumnFault>> {
    let gathered = gather_least(vdevs, map, pool.reads(), Vec::new()).await;
    if gathered.last_error.is_some() {
        return None;
    }
    let choices: Vec<Choice> = (0..map.units).map(|unit| gathered.likely(unit)).collect();
    Some(gathered.faults(vdevs, &gathered.assemble(&choices)?))
}

/// Reads as little as should do; what leaves lack is taken for unread. For what can't be read it takes
/// another leaf, or parity, as long as there is any. `had` is what was read already of the data columns that
/// are not empty, in order.
async fn gather_least<'a>(
    vdevs: &VdevTree,
    map: &'a BlockMap,
    class: IoClass,
    had: Vec<Option<Version>>,
) -> Gathered<'a> {
    let mut gathered =
        Gathered { map, versions: Vec::new(), formers: Vec::new(), lagging: Vec::new(), last_error: None };
    let mut had = had.into_iter();
    for row in &map.rows {
        let mut columns: Vec<Vec<Version>> = row.columns.iter().map(|_| Vec::new()).collect();
        for (column, versions) in row.columns.iter().zip(&mut columns).skip(row.parity) {
            versions.extend(if column.len > 0 { had.next().flatten() } else { None });
        }
        loop {
            let sources = least_sources(vdevs, map, row, &columns);
            if sources.is_empty() {
                break;
            }
            let reads = sources.into_iter().map(|(index, leaf)| async move {
                let read = read_column(vdevs, &leaf, row, &row.columns[index], class).await;
                (index, leaf, read)
            });
            for (index, leaf, read) in futures::future::join_all(reads).await {
                let bytes = read.map_err(|error| gathered.last_error = Some(error.to_string())).ok();
                columns[index].push(Version { leaf, bytes });
            }
        }
        for (column, versions) in row.columns.iter().zip(&mut columns) {
            // Those that were read come first.
            versions.sort_by_key(|version| version.bytes.is_none());
            // Of nothing, everybody has everything.
            let bytes = (column.len == 0).then(Bytes::new);
            let has_it = source(vdevs, map, row, column, &[]).filter(|_| column.len == 0);
            versions.extend(has_it.map(|leaf| Version { leaf, bytes: bytes.clone() }));
            let leaves = vdevs.leaves_of(row, column, map.birth).into_iter();
            let lacking = leaves.filter(|leaf| vdevs.lacks(leaf, map.birth));
            versions.extend(lacking.map(|leaf| Version { leaf, bytes: bytes.clone() }));
        }
        gathered.versions.push(columns);
    }
    gathered
}

/// What is still to be read of a row: a version of each data column, and parity for those that have none
/// left.
fn least_sources(
    vdevs: &VdevTree,
    map: &BlockMap,
    row: &Row,
    columns: &[Vec<Version>],
) -> Vec<(usize, Arc<Leaf>)> {
    let is_read = |index: usize| columns[index].iter().any(|version| version.bytes.is_some());
    let next = |index: usize| source(vdevs, map, row, &row.columns[index], &columns[index]);
    let (mut sources, mut wanting) = (Vec::new(), 0usize);
    let data = row.parity..row.columns.len();
    for index in data.filter(|index| row.columns[*index].len > 0 && !is_read(*index)) {
        match next(index) {
            Some(leaf) => sources.push((index, leaf)),
            None => wanting += 1,
        }
    }
    wanting = wanting.saturating_sub((0..row.parity).filter(|index| is_read(*index)).count());
    let parity = (0..row.parity).filter(|index| !is_read(*index));
    sources.extend(parity.filter_map(|index| Some((index, next(index)?))).take(wanting));
    sources
}

/// The leaf to read a column from, of those that have it and were not `tried`.
fn source(
    vdevs: &VdevTree,
    map: &BlockMap,
    row: &Row,
    column: &Column,
    tried: &[Version],
) -> Option<Arc<Leaf>> {
    let is_tried = |leaf: &Arc<Leaf>| tried.iter().any(|version| Arc::ptr_eq(&version.leaf, leaf));
    let mut leaves = vdevs.leaves_of(row, column, map.birth);
    leaves.retain(|leaf| !vdevs.lacks(leaf, map.birth) && !is_tried(leaf));
    if let Some(first) = leaves.iter().position(|leaf| leaf.is_read_first()) {
        return Some(leaves.swap_remove(first));
    }
    let preferred = preferred(vdevs, map, row, column);
    let preferred = preferred.filter(|leaf| !vdevs.lacks(leaf, map.birth) && !is_tried(leaf));
    preferred.or_else(|| leaves.into_iter().next())
}

/// Reads all that is there. What may be old does not count if `nothing_tells` whether it is, as long as there
/// is anything else.
async fn gather<'a>(
    vdevs: &VdevTree,
    map: &'a BlockMap,
    class: IoClass,
    nothing_tells: bool,
) -> Gathered<'a> {
    let formers = vdevs.formers(map);
    let lagging = vdevs.leaves().iter().filter(|leaf| vdevs.is_lagging(leaf)).map(|leaf| leaf.guid).collect();
    let mut gathered = Gathered { map, versions: Vec::new(), formers, lagging, last_error: None };
    for row in &map.rows {
        let mut reads = Vec::new();
        let mut counts = Vec::new();
        for column in &row.columns {
            let leaves = vdevs.leaves_of(row, column, map.birth);
            counts.push(leaves.len());
            reads.extend(leaves.into_iter().map(|leaf| async move {
                let read = leaf.read(class, column.offset_bytes, column.len).await;
                (leaf, read)
            }));
        }
        let mut results = futures::future::join_all(reads).await.into_iter();
        let mut columns = Vec::with_capacity(counts.len());
        for count in counts {
            let versions = results.by_ref().take(count).map(|(leaf, result)| {
                let bytes = result.map_err(|error| gathered.last_error = Some(error.to_string())).ok();
                Version { leaf, bytes }
            });
            columns.push(versions.collect());
        }
        if nothing_tells {
            leave_out_old(vdevs, map, row, &mut columns);
        }
        gathered.versions.push(columns);
    }
    gathered
}

/// Takes the versions of a row that may be old for unread, if the row can be had without them.
fn leave_out_old(vdevs: &VdevTree, map: &BlockMap, row: &Row, columns: &mut [Vec<Version>]) {
    let may_be_old = |version: &Version| vdevs.lacks(&version.leaf, map.birth);
    let is_current = |version: &Version| version.bytes.is_some() && !may_be_old(version);
    if columns.iter().filter(|versions| !versions.iter().any(is_current)).count() <= row.parity {
        columns.iter_mut().flatten().filter(|version| may_be_old(version)).for_each(|old| old.bytes = None);
    }
}

struct Search<'a> {
    gathered: &'a Gathered<'a>,
    check: &'a Check<'a>,
    psize: usize,
    /// Combinations that may still be tried.
    attempts: usize,
    /// The checksum result of the last complete combination.
    last: Option<ChecksumError>,
}

impl Search<'_> {
    /// The block, in whole sectors.
    fn run(&mut self) -> Option<Vec<u8>> {
        let units = (0..self.gathered.map.units).map(|unit| self.gathered.likely(unit));
        let likely: Vec<Choice> = units.chain(self.gathered.formers.iter().map(|_| Choice::AsItIs)).collect();
        let mut found = None;
        for deviations in 0..=MAX_DEVIATIONS.min(likely.len()) {
            let mut choices = likely.clone();
            let outcome = self.deviate(&likely, &mut choices, 0, deviations, &mut found);
            if outcome.is_break() {
                break;
            }
        }
        found
    }

    /// Tries all choices that differ from the likely ones in `left` units from `unit` on.
    fn deviate(
        &mut self,
        likely: &[Choice],
        choices: &mut Vec<Choice>,
        unit: usize,
        left: usize,
        found: &mut Option<Vec<u8>>,
    ) -> ControlFlow<()> {
        if left == 0 {
            return self.attempt(choices, found);
        }
        for changed in unit..likely.len() {
            for alternative in self.gathered.alternatives(changed, likely[changed]) {
                choices[changed] = alternative;
                self.deviate(likely, choices, changed + 1, left - 1, found)?;
            }
            choices[changed] = likely[changed];
        }
        ControlFlow::Continue(())
    }

    /// Puts the block together; stops once it is right or enough was tried.
    fn attempt(&mut self, choices: &[Choice], found: &mut Option<Vec<u8>>) -> ControlFlow<()> {
        if self.attempts == 0 {
            return ControlFlow::Break(());
        }
        let Some(block) = self.gathered.assemble(choices) else { return ControlFlow::Continue(()) };
        self.attempts -= 1;
        match self.check.verify(&block[..self.psize]) {
            Ok(()) => {
                *found = Some(block);
                ControlFlow::Break(())
            }
            Err(error) => {
                self.last = Some(error);
                ControlFlow::Continue(())
            }
        }
    }
}

impl Gathered<'_> {
    /// All columns of a unit, with everything read for each.
    fn unit(&self, unit: usize) -> impl Iterator<Item = (&Row, &Column, &[Version])> {
        self.map.rows.iter().zip(&self.versions).flat_map(move |(row, versions)| {
            let columns = row.columns.iter().zip(versions);
            columns.filter(move |(column, _)| column.unit == unit).map(move |(c, v)| (row, c, v.as_slice()))
        })
    }

    /// The first version that is present for all columns of the unit.
    fn likely(&self, unit: usize) -> Choice {
        self.complete_versions(unit).next().map_or(Choice::Rebuilt, Choice::Version)
    }

    fn complete_versions(&self, unit: usize) -> impl Iterator<Item = usize> + '_ {
        let count = self.unit(unit).map(|(.., versions)| versions.len()).min().unwrap_or(0);
        (0..count).filter(move |&v| self.unit(unit).all(|(.., versions)| versions[v].bytes.is_some()))
    }

    /// The other possibilities for a unit: versions that differ, or rebuilding if there is parity.
    fn alternatives(&self, unit: usize, likely: Choice) -> Vec<Choice> {
        let first = match likely {
            Choice::Version(first) => first,
            Choice::Rebuilt => return Vec::new(),
            Choice::AsItIs => return vec![Choice::Rebuilt],
        };
        let same = |a: usize, b: usize| self.unit(unit).all(|(.., v)| v[a].bytes == v[b].bytes);
        let others = self.complete_versions(unit).filter(|&v| v != first && !same(v, first));
        let mut found: Vec<Choice> = others.map(Choice::Version).collect();
        if self.unit(unit).any(|(row, column, _)| row.parity > 0 && column.len > 0) {
            found.push(Choice::Rebuilt);
        }
        found
    }

    /// The block by these choices; `None` if too much would have to be rebuilt.
    fn assemble(&self, choices: &[Choice]) -> Option<Vec<u8>> {
        let (units, formers) = choices.split_at(self.map.units);
        let formers = self.formers.iter().zip(formers).filter(|(_, choice)| **choice == Choice::Rebuilt);
        let doubted: Vec<Former> = formers.map(|(former, _)| *former).collect();
        let mut block = vec![0; self.map.data_bytes];
        for (row, versions) in self.map.rows.iter().zip(&self.versions) {
            let chosen = |index: usize| match units[row.columns[index].unit] {
                _ if doubted.iter().any(|former| former.had(row, &row.columns[index])) => None,
                Choice::Version(v) => versions[index].get(v)?.bytes.as_ref(),
                Choice::Rebuilt | Choice::AsItIs => None,
            };
            let mut rebuilt: Vec<(usize, Vec<u8>)> = Vec::new();
            for (index, column) in row.columns.iter().enumerate().skip(row.parity) {
                match chosen(index) {
                    Some(bytes) => block[column.data_at..column.data_at + column.len].copy_from_slice(bytes),
                    None if column.len == 0 => {}
                    None => rebuilt.push((index, vec![0; column.len])),
                }
            }
            if rebuilt.is_empty() {
                continue;
            }
            let mut targets = rebuilt.iter_mut().peekable();
            let columns = (0..row.columns.len()).map(|index| match chosen(index) {
                Some(bytes) => raidz::Column::Present(bytes),
                None if index >= row.parity && row.columns[index].len == 0 => raidz::Column::Present(&[]),
                None => match targets.next_if(|(wanted, _)| *wanted == index) {
                    Some((_, buffer)) => raidz::Column::Missing(buffer),
                    None => raidz::Column::Unknown,
                },
            });
            let mut columns: Vec<raidz::Column<'_>> = columns.collect();
            raidz::reconstruct(row.parity, &mut columns).ok()?;
            for (index, bytes) in rebuilt {
                let column = row.columns[index];
                block[column.data_at..column.data_at + column.len].copy_from_slice(&bytes);
            }
        }
        Some(block)
    }

    /// Everything that differs from the true block.
    fn faults(&self, vdevs: &VdevTree, block: &[u8]) -> Vec<ColumnFault> {
        let mut faults = Vec::new();
        for (row, versions) in self.map.rows.iter().zip(&self.versions) {
            let parity = true_parity(row, block);
            let is_draid =
                vdevs.layout_of(row.top).is_some_and(|top| matches!(top.layout, Layout::Draid(..)));
            let row_bytes = if is_draid { row.columns.first().map_or(0, |column| column.len) } else { 0 };
            for (index, (column, versions)) in row.columns.iter().zip(versions).enumerate() {
                let copied = |(slot, offset_bytes)| {
                    let copy = Column { slot, offset_bytes, ..*column };
                    vdevs
                        .leaves_of(row, &copy, self.map.birth)
                        .into_iter()
                        .map(move |leaf| (leaf, offset_bytes))
                };
                let also_at: Vec<_> = column.also_at.into_iter().flat_map(copied).collect();
                let (truth, wrong) = match parity.get(index) {
                    Some(parity) => (parity.as_slice(), FaultKind::WrongParity),
                    None => (&block[column.data_at..column.data_at + column.len], FaultKind::WrongData),
                };
                for version in versions {
                    let kind = match &version.bytes {
                        None => FaultKind::Unreadable,
                        Some(bytes) if bytes != truth => wrong,
                        Some(_) => continue,
                    };
                    let (leaf, offset_bytes) = (version.leaf.clone(), column.offset_bytes);
                    let truth = padded(truth, row_bytes);
                    let (len, also_at) = (column.len, also_at.clone());
                    faults.push(ColumnFault { leaf, offset_bytes, len, kind, truth, also_at });
                }
            }
        }
        faults
    }

    fn was_lagging(&self, leaf: &Leaf) -> bool {
        leaf.names().any(|name| self.lagging.contains(&name))
    }

    /// Nothing matches: every leaf that returned data is suspect.
    fn blame_all(&self, vdevs: &VdevTree) {
        for version in self.versions.iter().flatten().flatten() {
            let lags = || self.was_lagging(&version.leaf) || vdevs.is_lagging(&version.leaf);
            if version.bytes.is_some() && !lags() {
                version.leaf.blame();
            }
        }
    }
}

/// The correct parity columns for a row of this block.
fn true_parity(row: &Row, block: &[u8]) -> Vec<Vec<u8>> {
    let mut parity: Vec<Vec<u8>> =
        row.columns[..row.parity].iter().map(|column| vec![0; column.len]).collect();
    if !parity.is_empty() {
        let data: Vec<&[u8]> =
            row.data().iter().map(|column| &block[column.data_at..column.data_at + column.len]).collect();
        let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        // A row's shape comes from the geometry and always fits; if it did not, parity would be reported as
        // wrong.
        let _ = raidz::generate(&mut targets, &data);
    }
    parity
}

/// A column with the zeros behind it that make it as long as others of its row.
fn padded(column: &[u8], len: usize) -> Bytes {
    let mut longer = BytesMut::zeroed(len.max(column.len()));
    longer[..column.len()].copy_from_slice(column);
    longer.freeze()
}

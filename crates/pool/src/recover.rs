//! Recovery: reconstructs a block from the intact parts of one copy.
//!
//! Idea: a read failed, or some unknown part of the data is wrong. So every column, with parity, is read from
//! every leaf that should hold it. Each unit (see [`crate::vdev::map`]) then has several candidates: the
//! versions read, or *rebuilding* from the others. The block's checksum decides. The most likely choice is
//! tried first, then all that differ from it in one unit, in two, up to three, so the fewest faults win.
//!
//! On an expanded RAID-Z, damage from one former child is spread over all children. So the children of that
//! time ([`Former`]) are doubted like units: everything on one is rebuilt.
//!
//! Every version that differs from the verified block is wrong, parity included. Its leaf is blamed, unless
//! known to be behind when read, or the mismatch may be no damage (`mismatch`).
//!
//! Source: OpenZFS `vdev_raidz_combrec`, `raidz_simulate_failure`, `vdev_indirect_reconstruct`.

use crate::check::Check;
use crate::context::ReadContext;
use crate::mismatch::Mismatch;
use crate::pool::Pool;
use crate::read::{is_avoided, preferred, read_column};
use crate::vdev::leaf::Leaf;
use crate::vdev::map::{BlockMap, Column, Former, MapError, Row};
use crate::vdev::queue::IoClass;
use crate::vdev::{Layout, VdevTree};
use bytes::{Bytes, BytesMut};
use cenote_codec::checksum::ChecksumError;
use cenote_codec::raidz;
use cenote_format::bytes::is_zero;
use cenote_format::units::Guid;
use cenote_runtime::WorkKind;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Parity can't make up for more.
const MAX_DEVIATIONS: usize = 3;
/// Limits for one block; a large one gets at least [`MIN_ATTEMPTS`].
const MAX_HASHED_BYTES: usize = 8 << 30;
const MIN_ATTEMPTS: usize = 2_048;
const MAX_ATTEMPTS: usize = 100_000;

#[derive(Debug, Clone)]
pub(crate) enum CopyError {
    Unreadable(String),
    /// No combination matches the checksum.
    Mismatch(ChecksumError),
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
    /// The more informative error: damage, then absence, then a bad address.
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

pub(crate) struct Recovered {
    pub(crate) data: Bytes,
    /// The wrong or unreadable ranges.
    pub(crate) faults: Vec<ColumnFault>,
}

pub(crate) struct ColumnFault {
    pub(crate) leaf: Arc<Leaf>,
    pub(crate) offset_bytes: u64,
    pub(crate) len: usize,
    pub(crate) kind: FaultKind,
    /// The leaf was behind when it was read. A resilver may have ended since.
    pub(crate) was_lagging: bool,
    /// With the zeros that fill a dRAID's row.
    pub(crate) truth: Bytes,
    /// Copies made by an expansion.
    pub(crate) also_at: Vec<(Arc<Leaf>, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    Unreadable,
    WrongData,
    WrongParity,
}

/// A leaf's bytes of a column; `None` if it failed.
pub(crate) struct Version {
    pub(crate) leaf: Arc<Leaf>,
    pub(crate) bytes: Option<Bytes>,
}

struct Gathered<'a> {
    map: &'a BlockMap,
    versions: Vec<Vec<Vec<Version>>>,
    /// Their choices follow the units'.
    formers: Vec<Former>,
    /// Leaves that were behind when read.
    lagging: Vec<Guid>,
    last_error: Option<String>,
}

/// Source of a unit's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Version(usize),
    Rebuilt,
    /// For a former child: as chosen for the units.
    AsItIs,
}

/// Reads everything and finds the right combination.
pub(crate) async fn recover(
    pool: &Pool,
    vdevs: &VdevTree,
    map: &BlockMap,
    psize: usize,
    check: &Check<'_>,
    ctx: &ReadContext,
) -> Result<Recovered, CopyError> {
    let mut gathered = gather(vdevs, map, pool.reads(), check.is_vacuous()).await;
    gathered.lagging.extend(vdevs.behind_at(pool.uberblock().txg));
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
    let mut faults = gathered.faults_of_filled(vdevs, &block, psize);
    if check.is_vacuous() {
        // Without a checksum, possibly outdated versions are taken to be wrong.
        faults.retain(|fault| vdevs.lacks(&fault.leaf, map.birth));
    }
    let is_to_blame = |fault: &&ColumnFault| {
        fault.kind != FaultKind::Unreadable && !fault.was_lagging && !vdevs.is_lagging(&fault.leaf)
    };
    if pool.counts() && pool.meaning_of_part(check, ctx) == Mismatch::Damage {
        faults.iter().filter(is_to_blame).for_each(|fault| fault.leaf.blame());
    }
    Ok(Recovered { data: Bytes::from(block).slice(..psize), faults })
}

/// Recovers from a minimal read: one version of each data column, or parity in its place. `had` was read
/// already. Reports missing and unreadable ranges. `None` if the result cannot be verified.
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
    let (data, filler) = block.split_at_checked(psize)?;
    check.verify(data).ok()?;
    if !is_zero(filler) {
        // Only all columns tell whether it is wrong.
        return None;
    }
    let faults = gathered.faults(vdevs, &block);
    Some(Recovered { data: Bytes::from(block).slice(..psize), faults })
}

/// Reconstructs a range without a checksum from complete leaves; reports the ranges that others lack.
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

/// Reads the minimum, without ranges that leaves lack. After a failure it tries another leaf, then parity.
/// `had` holds the non-empty data columns already read.
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
            let sources = least_sources(vdevs, map, row, &columns, class);
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
            // Versions with data come first.
            versions.sort_by_key(|version| version.bytes.is_none());
            // Every leaf has an empty column.
            let bytes = (column.len == 0).then(Bytes::new);
            let has_it = source(vdevs, map, row, column, &[], class).filter(|_| column.len == 0);
            versions.extend(has_it.map(|leaf| Version { leaf, bytes: bytes.clone() }));
            let leaves = vdevs.leaves_of(row, column, map.birth).into_iter();
            let lacking = leaves.filter(|leaf| vdevs.lacks(leaf, map.birth));
            versions.extend(lacking.map(|leaf| Version { leaf, bytes: bytes.clone() }));
        }
        gathered.versions.push(columns);
    }
    gathered
}

/// Versions of missing data columns, or parity for exhausted ones. Leaves that sit out come last.
fn least_sources(
    vdevs: &VdevTree,
    map: &BlockMap,
    row: &Row,
    columns: &[Vec<Version>],
    class: IoClass,
) -> Vec<(usize, Arc<Leaf>)> {
    let is_read = |index: usize| columns[index].iter().any(|version| version.bytes.is_some());
    let next = |index: usize| source(vdevs, map, row, &row.columns[index], &columns[index], class);
    let (mut sources, mut avoided, mut wanting) = (Vec::new(), Vec::new(), 0usize);
    let data = row.parity..row.columns.len();
    for index in data.filter(|index| row.columns[*index].len > 0 && !is_read(*index)) {
        match next(index) {
            Some(leaf) if is_avoided(&leaf, row, class) => {
                avoided.push((index, leaf));
                wanting += 1;
            }
            Some(leaf) => sources.push((index, leaf)),
            None => wanting += 1,
        }
    }
    wanting = wanting.saturating_sub((0..row.parity).filter(|index| is_read(*index)).count());
    let parity = (0..row.parity).filter(|index| !is_read(*index));
    let parity = parity.filter_map(|index| Some((index, next(index)?)));
    let (slow, parity): (Vec<_>, Vec<_>) = parity.partition(|(_, leaf)| is_avoided(leaf, row, class));
    let lacking = wanting.saturating_sub(parity.len());
    sources.extend(parity.into_iter().take(wanting));
    sources.extend(avoided.into_iter().chain(slow).take(lacking));
    sources
}

/// A complete leaf not yet `tried`.
fn source(
    vdevs: &VdevTree,
    map: &BlockMap,
    row: &Row,
    column: &Column,
    tried: &[Version],
    class: IoClass,
) -> Option<Arc<Leaf>> {
    let is_tried = |leaf: &Arc<Leaf>| tried.iter().any(|version| Arc::ptr_eq(&version.leaf, leaf));
    let mut leaves = vdevs.leaves_of(row, column, map.birth);
    leaves.retain(|leaf| !vdevs.lacks(leaf, map.birth) && !is_tried(leaf));
    if let Some(first) = leaves.iter().position(|leaf| leaf.is_read_first()) {
        return Some(leaves.swap_remove(first));
    }
    let preferred = preferred(vdevs, map, row, column, class);
    let preferred = preferred.filter(|leaf| !vdevs.lacks(leaf, map.birth) && !is_tried(leaf));
    preferred.or_else(|| leaves.into_iter().next())
}

/// Reads all versions; with `nothing_tells`, leaves out possibly outdated ones where possible.
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

/// Drops possibly outdated versions that a row can do without.
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
    attempts: usize,
    /// Result of the last complete combination.
    last: Option<ChecksumError>,
}

impl Search<'_> {
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

    /// Tries all choices that differ in `left` units from `unit` on.
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

    /// Stops at success or when attempts run out.
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
    /// A unit's columns, with their versions.
    fn unit(&self, unit: usize) -> impl Iterator<Item = (&Row, &Column, &[Version])> {
        self.map.rows.iter().zip(&self.versions).flat_map(move |(row, versions)| {
            let columns = row.columns.iter().zip(versions);
            columns.filter(move |(column, _)| column.unit == unit).map(move |(c, v)| (row, c, v.as_slice()))
        })
    }

    /// The first version present for all columns.
    fn likely(&self, unit: usize) -> Choice {
        self.complete_versions(unit).next().map_or(Choice::Rebuilt, Choice::Version)
    }

    fn complete_versions(&self, unit: usize) -> impl Iterator<Item = usize> + '_ {
        let count = self.unit(unit).map(|(.., versions)| versions.len()).min().unwrap_or(0);
        (0..count).filter(move |&v| self.unit(unit).all(|(.., versions)| versions[v].bytes.is_some()))
    }

    /// Differing versions, and, with parity, rebuilding.
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

    /// `None` if too much would have to be rebuilt.
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

    /// Differences from a block. Its checksum does not cover the filler behind its data, which may be wrong,
    /// too: zeros are right, unless other bytes leave fewer faults to explain. Otherwise honest leaves'
    /// parity would be accused, and replaced by that of a wrong filler.
    fn faults_of_filled(&self, vdevs: &VdevTree, block: &[u8], psize: usize) -> Vec<ColumnFault> {
        let as_read = self.faults(vdevs, block);
        if block.get(psize..).is_none_or(is_zero) {
            return as_read;
        }
        let mut filled = block.to_vec();
        filled[psize..].fill(0);
        let filled = self.faults(vdevs, &filled);
        if filled.len() <= as_read.len() { filled } else { as_read }
    }

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
                    let was_lagging = self.was_lagging(&leaf);
                    faults.push(ColumnFault { leaf, offset_bytes, len, kind, was_lagging, truth, also_at });
                }
            }
        }
        faults
    }

    fn was_lagging(&self, leaf: &Leaf) -> bool {
        leaf.names().any(|name| self.lagging.contains(&name))
    }

    /// Blames every leaf that returned data.
    fn blame_all(&self, vdevs: &VdevTree) {
        for version in self.versions.iter().flatten().flatten() {
            let lags = || self.was_lagging(&version.leaf) || vdevs.is_lagging(&version.leaf);
            if version.bytes.is_some() && !lags() {
                version.leaf.blame();
            }
        }
    }
}

fn true_parity(row: &Row, block: &[u8]) -> Vec<Vec<u8>> {
    let mut parity: Vec<Vec<u8>> =
        row.columns[..row.parity].iter().map(|column| vec![0; column.len]).collect();
    if !parity.is_empty() {
        let data: Vec<&[u8]> =
            row.data().iter().map(|column| &block[column.data_at..column.data_at + column.len]).collect();
        let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        // The geometry guarantees a valid shape; a mismatch would be reported as wrong parity.
        let _ = raidz::generate(&mut targets, &data);
    }
    parity
}

/// A column extended with zeros to the row's length.
fn padded(column: &[u8], len: usize) -> Bytes {
    let mut longer = BytesMut::zeroed(len.max(column.len()));
    longer[..column.len()].copy_from_slice(column);
    longer.freeze()
}

//! RAID-Z parity: generation, reconstruction, and detection of wrong parity columns.
//!
//! A RAID-Z row is `parity_count` (1 to 3) parity columns followed by the data columns, one column per disk.
//! dRAID rows look the same here.
//!
//! ```text
//!            P        Q        D0       D1       D2       D3
//!         +--------+--------+--------+--------+--------+--------+
//!         |        |        |        |        |        |        |
//!         |        |        |        |        +--------+--------+  a short column counts as if
//!         +--------+--------+--------+--------+ . . . . . . . .    filled up with zeros
//! ```
//!
//! Idea: generation weighs the data by fixed factors; reconstruction weighs the remaining columns by factors
//! solved for (module `code`). So the only primitive is *combine*: up to three targets, each a weighted sum
//! of the same sources. A [`Kernel`] reads each source byte once and keeps partial sums in registers, so
//! parity costs about as much as reading the data.
//!
//! Invariants: all parity columns have equal length and no data column is longer. There are at most
//! [`MAX_DATA_COLUMNS`] data columns, because the powers of 2 repeat after 255. No more columns are missing
//! than parity. Violations are errors that leave every buffer unwritten.
//!
//! The caller chooses the parity to use: a [`Column::Unknown`] is neither read nor written. Combinatorial
//! reconstruction marks one set of suspect columns after another.
//!
//! Source: OpenZFS `vdev_raidz.c`, `vdev_raidz_math_impl.h`.

mod code;
mod combine;
mod gf;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

use crate::Kernel;
use code::{ColumnRole, Solution, weight};
use combine::{Term, combine};

/// RAID-Z3. `VDEV_RAIDZ_MAXPARITY`.
pub const MAX_PARITY: usize = 3;

/// Most data columns: the order of 2 in the field.
pub const MAX_DATA_COLUMNS: usize = 255;

/// Strip of recomputed parity during verification; fits in the first-level cache.
const VERIFY_STRIP_BYTES: usize = 4096;

/// Rejection of a row, before any write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RaidzError {
    /// A row has one to three parity columns.
    #[error("{0} parity columns: a RAID-Z row has 1 to 3")]
    ParityCount(usize),
    /// A row has one to 255 data columns.
    #[error("{0} data columns: a RAID-Z row has 1 to 255")]
    DataCount(usize),
    /// Parity columns have equal length, and no data column is longer.
    #[error("column {column} is {len} bytes long, which does not fit parity columns of {parity_len}")]
    ColumnLength {
        /// Index in the row, parity first.
        column: usize,
        /// Column length in bytes.
        len: usize,
        /// Parity column length in bytes.
        parity_len: usize,
    },
    /// More missing data columns than present parity columns.
    #[error("{missing} data columns are missing and {parity} parity columns present: read more columns")]
    TooManyMissing {
        /// Absent data columns.
        missing: usize,
        /// Present parity columns.
        parity: usize,
    },
}

/// Column of a row to reconstruct.
#[derive(Debug)]
pub enum Column<'a> {
    /// Read and trusted.
    Present(&'a [u8]),
    /// To be rebuilt into this buffer, whose content does not matter.
    Missing(&'a mut [u8]),
    /// Not read or not trusted, and not wanted.
    Unknown,
}

/// Computes parity columns (P, then Q, then R) of `data`.
pub fn generate(parity: &mut [&mut [u8]], data: &[&[u8]]) -> Result<(), RaidzError> {
    Kernel::best().generate(parity, data)
}

/// Rebuilds the [`Column::Missing`] columns of a row with `parity_count` leading parity columns.
///
/// Uses the first present parity columns, one for each missing or unknown data column.
pub fn reconstruct(parity_count: usize, columns: &mut [Column<'_>]) -> Result<(), RaidzError> {
    Kernel::best().reconstruct(parity_count, columns)
}

/// For each parity column, whether it differs from the parity of `data`. Skips `None` columns.
pub fn verify_parity(parity: &[Option<&[u8]>], data: &[&[u8]]) -> Result<[bool; MAX_PARITY], RaidzError> {
    Kernel::best().verify_parity(parity, data)
}

impl Kernel {
    /// [`generate`] with this kernel.
    pub fn generate(self, parity: &mut [&mut [u8]], data: &[&[u8]]) -> Result<(), RaidzError> {
        let lengths = parity.iter().map(|column| Some(column.len()));
        check_shape(parity.len(), lengths.chain(data.iter().map(|column| Some(column.len()))))?;
        combine(self, parity, &parity_terms(data));
        Ok(())
    }

    /// [`reconstruct`] with this kernel.
    pub fn reconstruct(self, parity_count: usize, columns: &mut [Column<'_>]) -> Result<(), RaidzError> {
        check_shape(parity_count, columns.iter().map(Column::len))?;
        let solution = solve(parity_count, columns)?;
        let (mut wanted, mut targets) = (Vec::with_capacity(MAX_PARITY), Vec::with_capacity(MAX_PARITY));
        let mut sources = Vec::with_capacity(columns.len());
        for (index, column) in columns.iter_mut().enumerate() {
            let place = ColumnRole::of(index, parity_count);
            match column {
                Column::Present(bytes) => sources.push((place, *bytes)),
                Column::Missing(bytes) => {
                    wanted.push(place);
                    targets.push(&mut **bytes);
                }
                Column::Unknown => {}
            }
        }
        let terms: Vec<Term> = sources
            .into_iter()
            .filter_map(|(place, bytes)| {
                let mut factors = [0; MAX_PARITY];
                for (factor, &target) in factors.iter_mut().zip(&wanted) {
                    *factor = solution.factor(place, target);
                }
                (factors != [0; MAX_PARITY]).then_some(Term { bytes, factors })
            })
            .collect();
        combine(self, &mut targets, &terms);
        Ok(())
    }

    /// [`verify_parity`] with this kernel.
    pub fn verify_parity(
        self,
        parity: &[Option<&[u8]>],
        data: &[&[u8]],
    ) -> Result<[bool; MAX_PARITY], RaidzError> {
        let lengths = parity.iter().map(|column| column.map(<[u8]>::len));
        check_shape(parity.len(), lengths.chain(data.iter().map(|column| Some(column.len()))))?;
        let terms = parity_terms(data);
        let len = parity.iter().flatten().map(|column| column.len()).max().unwrap_or(0);
        let mut differs = [false; MAX_PARITY];
        let mut scratch = [[0; VERIFY_STRIP_BYTES]; MAX_PARITY];
        let mut strip_terms = Vec::with_capacity(terms.len());
        for start in (0..len).step_by(VERIFY_STRIP_BYTES) {
            let end = len.min(start + VERIFY_STRIP_BYTES);
            strip_terms.clear();
            strip_terms.extend(terms.iter().filter_map(|term| term.window(start, end)));
            let mut strips = scratch.each_mut().map(|strip| &mut strip[..end - start]);
            combine(self, &mut strips[..parity.len()], &strip_terms);
            for ((differs, column), strip) in differs.iter_mut().zip(parity).zip(&strips) {
                *differs |= column.is_some_and(|column| column[start..end] != **strip);
            }
        }
        Ok(differs)
    }
}

impl Column<'_> {
    fn len(&self) -> Option<usize> {
        match self {
            Column::Present(bytes) => Some(bytes.len()),
            Column::Missing(bytes) => Some(bytes.len()),
            Column::Unknown => None,
        }
    }
}

fn check_shape(
    parity_count: usize,
    lengths: impl Iterator<Item = Option<usize>> + Clone,
) -> Result<(), RaidzError> {
    if !(1..=MAX_PARITY).contains(&parity_count) {
        return Err(RaidzError::ParityCount(parity_count));
    }
    let data_count = lengths.clone().count().saturating_sub(parity_count);
    if !(1..=MAX_DATA_COLUMNS).contains(&data_count) {
        return Err(RaidzError::DataCount(data_count));
    }
    let Some(parity_len) = lengths.clone().take(parity_count).flatten().next() else {
        return Ok(());
    };
    for (column, len) in lengths.enumerate() {
        let fits = |len| if column < parity_count { len == parity_len } else { len <= parity_len };
        if let Some(len) = len.filter(|&len| !fits(len)) {
            return Err(RaidzError::ColumnLength { column, len, parity_len });
        }
    }
    Ok(())
}

fn parity_terms<'a>(data: &[&'a [u8]]) -> Vec<Term<'a>> {
    let terms = data.iter().enumerate().map(|(index, bytes)| {
        let factors = std::array::from_fn(|row| weight(row, index, data.len()));
        Term { bytes, factors }
    });
    terms.collect()
}

/// Uses the first present parity columns.
fn solve(parity_count: usize, columns: &[Column<'_>]) -> Result<Solution, RaidzError> {
    let present = |column: &Column| matches!(column, Column::Present(_));
    let (parity, data) = columns.split_at(parity_count);
    let unknown: Vec<usize> = (0..data.len()).filter(|&index| !present(&data[index])).collect();
    let mut rows: Vec<usize> = (0..parity.len()).filter(|&row| present(&parity[row])).collect();
    if unknown.len() > rows.len() {
        return Err(RaidzError::TooManyMissing { missing: unknown.len(), parity: rows.len() });
    }
    rows.truncate(unknown.len());
    Ok(Solution::new(data.len(), unknown, rows))
}

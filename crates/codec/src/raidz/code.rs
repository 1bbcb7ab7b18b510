//! The RAID-Z code as a small matrix: each wanted column as a combination of known ones.
//!
//! With `n` data columns, parity row `r` weighs data column `i` with `(2^r)^(n-1-i)`:
//!
//! ```text
//!   P = D0 + D1 + ... + Dn-1                      r = 0, weights of 1
//!   Q = 2^(n-1)·D0 + ... + 2·Dn-2 + Dn-1          r = 1, powers of 2
//!   R = 4^(n-1)·D0 + ... + 4·Dn-2 + Dn-1          r = 2, powers of 4
//! ```
//!
//! Idea: with `k` unknown data columns, `k` known parity columns are `k` linear equations. Inverting their
//! `k×k` matrix (k <= 3) gives each unknown column as a weighted sum of known ones; so, by substitution, does
//! an unknown parity column. Every wanted column is a row of weights over the *same* known columns, and a
//! kernel computes all in one pass.
//!
//! Any choice of up to 3 rows is invertible for distinct columns: the determinants of one, two or three rows,
//! including P with R, are products of differences of powers of 2 or of 4. Those are nonzero for up to 255
//! columns, because 2 and 4 have order 255.
//!
//! Source: OpenZFS `vdev_raidz.c` (theory comments on parity and reconstruction).

use super::{MAX_PARITY, gf};

pub(super) fn weight(row: usize, index: usize, data_count: usize) -> u8 {
    gf::power_of_two(row * (data_count - 1 - index))
}

/// Up to three unknown data columns in terms of known columns.
pub(super) struct Solution {
    data_count: usize,
    /// Indices among the data columns.
    unknown: Vec<usize>,
    /// Parity rows that serve as equations.
    rows: Vec<usize>,
    /// `inverse[u][e]`: weight of equation `e` in unknown column `u`.
    inverse: Matrix,
}

impl Solution {
    /// Solves for `unknown` with parity rows `rows`: equally many, at most three, distinct.
    pub(super) fn new(data_count: usize, unknown: Vec<usize>, rows: Vec<usize>) -> Solution {
        debug_assert!(unknown.len() == rows.len() && rows.len() <= MAX_PARITY);
        let mut matrix = [[0; MAX_PARITY]; MAX_PARITY];
        for (equation, &row) in matrix.iter_mut().zip(&rows) {
            for (cell, &index) in equation.iter_mut().zip(&unknown) {
                *cell = weight(row, index, data_count);
            }
        }
        let inverse = invert(matrix, rows.len());
        Solution { data_count, unknown, rows, inverse }
    }

    fn data_in_unknown(&self, index: usize, u: usize) -> u8 {
        let terms = self.rows.iter().zip(&self.inverse[u]);
        terms.fold(0, |sum, (&row, &factor)| sum ^ gf::multiply(factor, weight(row, index, self.data_count)))
    }

    /// Weight of the known column `from` in the wanted column `to`.
    ///
    /// Unused parity columns and unknown columns have weight zero.
    pub(super) fn factor(&self, from: ColumnRole, to: ColumnRole) -> u8 {
        match to {
            ColumnRole::Data(wanted) => match self.unknown.iter().position(|&index| index == wanted) {
                Some(u) => self.factor_in_unknown(from, u),
                None => u8::from(from == to),
            },
            ColumnRole::Parity(row) => {
                let direct = match from {
                    ColumnRole::Data(index) => weight(row, index, self.data_count),
                    ColumnRole::Parity(_) => 0,
                };
                let substituted = self.unknown.iter().enumerate().map(|(u, &index)| {
                    gf::multiply(weight(row, index, self.data_count), self.factor_in_unknown(from, u))
                });
                substituted.fold(direct, |sum, term| sum ^ term)
            }
        }
    }

    fn factor_in_unknown(&self, from: ColumnRole, u: usize) -> u8 {
        match from {
            ColumnRole::Data(index) => self.data_in_unknown(index, u),
            ColumnRole::Parity(row) => match self.rows.iter().position(|&known| known == row) {
                Some(equation) => self.inverse[u][equation],
                None => 0,
            },
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnRole {
    Parity(usize),
    Data(usize),
}

impl ColumnRole {
    pub(super) fn of(column: usize, parity_count: usize) -> ColumnRole {
        match column.checked_sub(parity_count) {
            Some(index) => ColumnRole::Data(index),
            None => ColumnRole::Parity(column),
        }
    }
}

type Matrix = [[u8; MAX_PARITY]; MAX_PARITY];

/// Gauss-Jordan elimination; the leading `size × size` part must be regular.
fn invert(mut matrix: Matrix, size: usize) -> Matrix {
    let mut result = [[0; MAX_PARITY]; MAX_PARITY];
    for (i, row) in result.iter_mut().enumerate() {
        row[i] = 1;
    }
    for pivot in 0..size {
        if let Some(swap) = (pivot..size).find(|&row| matrix[row][pivot] != 0) {
            matrix.swap(pivot, swap);
            result.swap(pivot, swap);
        }
        let scale = gf::inverse(matrix[pivot][pivot]);
        for column in 0..size {
            matrix[pivot][column] = gf::multiply(matrix[pivot][column], scale);
            result[pivot][column] = gf::multiply(result[pivot][column], scale);
        }
        for row in (0..size).filter(|&row| row != pivot) {
            let factor = matrix[row][pivot];
            for column in 0..size {
                matrix[row][column] ^= gf::multiply(factor, matrix[pivot][column]);
                result[row][column] ^= gf::multiply(factor, result[pivot][column]);
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_of_rows_is_regular_for_the_widest_row() {
        // One unknown is trivial; for two and three, the first column is combined with all others.
        let product = |a: &Matrix, b: &Matrix, size: usize| {
            let mut c = [[0; MAX_PARITY]; MAX_PARITY];
            for i in 0..size {
                for j in 0..size {
                    c[i][j] = (0..size).fold(0, |sum, k| sum ^ gf::multiply(a[i][k], b[k][j]));
                }
            }
            c
        };
        for rows in [&[0, 1][..], &[0, 2], &[1, 2], &[0, 1, 2]] {
            for other in 1..254 {
                let columns = [0, other, 254];
                let mut matrix = [[0; MAX_PARITY]; MAX_PARITY];
                for (i, &row) in rows.iter().enumerate() {
                    for j in 0..rows.len() {
                        matrix[i][j] = weight(row, columns[j], 255);
                    }
                }
                let identity = product(&invert(matrix, rows.len()), &matrix, rows.len());
                for (i, row) in identity.iter().enumerate().take(rows.len()) {
                    for (j, &cell) in row.iter().enumerate().take(rows.len()) {
                        assert_eq!(cell, u8::from(i == j), "rows {rows:?}, columns {columns:?}");
                    }
                }
            }
        }
    }
}

//! Joins the sums of interleaved lanes into the total sums.
//!
//! A vector register reads `LANES` words at once and keeps a checksum per lane: lane `j` sees the words
//! `j, j + LANES, j + 2·LANES, ...`. After `n` rounds a word of round `k`, with `m = n - k`, has been counted
//! in its lane's first four sums
//!
//! ```text
//!   1,   m,   m(m+1)/2,   m(m+1)(m+2)/6          times, that is C(m+s-1, s) times in sum s
//! ```
//!
//! and belongs `C(x+s-1, s)` times into total sum `s`, where `x = LANES·m - j` is its distance from the end.
//! That is a polynomial of degree `s` in `m`, so a weighted sum of the lane's counts 0 to `s`; by Newton's
//! formula the weights are the polynomial's backward differences at `m = 0`. The compiler computes them from
//! `LANES`.
//!
//! Source: the series in OpenZFS `zfs_fletcher.c` (theory comment).

/// Sums of a checksum, at most.
const ORDERS: usize = 4;

/// Total sums from lane sums: `sums[s][j]` is sum `s` of lane `j`.
pub(super) fn join<const SUMS: usize, const LANES: usize>(sums: &[[u64; LANES]; SUMS]) -> [u64; SUMS] {
    std::array::from_fn(|order| {
        let mut total = 0u64;
        for (lower, weights) in sums.iter().zip(&Weights::<LANES>::TABLE[order]).take(order + 1) {
            for (sum, weight) in lower.iter().zip(weights) {
                total = total.wrapping_add(sum.wrapping_mul(*weight));
            }
        }
        total
    })
}

struct Weights<const LANES: usize>;

impl<const LANES: usize> Weights<LANES> {
    /// `TABLE[order][lower][lane]`: weight of a lane's sum `lower` in total sum `order`.
    const TABLE: [[[u64; LANES]; ORDERS]; ORDERS] = {
        let mut table = [[[0; LANES]; ORDERS]; ORDERS];
        let mut cell = 0;
        while cell < ORDERS * LANES {
            let (order, lane) = (cell / LANES, cell % LANES);
            let weights = backward_differences(order, lane as i64, LANES as i64);
            let mut lower = 0;
            while lower <= order {
                // Negative weights wrap, as the sums do.
                table[order][lower][lane] = weights[lower] as u64;
                lower += 1;
            }
            cell += 1;
        }
        table
    };
}

/// Backward differences at `m = 0` of `C(x + order - 1, order)` with `x = lanes·m - lane`.
const fn backward_differences(order: usize, lane: i64, lanes: i64) -> [i64; ORDERS] {
    let mut values = [0; ORDERS];
    let mut i = 0;
    while i < ORDERS {
        let x = -lanes * i as i64 - lane;
        values[i] = match order {
            0 => 1,
            1 => x,
            2 => x * (x + 1) / 2,
            _ => x * (x + 1) * (x + 2) / 6,
        };
        i += 1;
    }
    let mut round = 1;
    while round < ORDERS {
        let mut i = ORDERS - 1;
        while i >= round {
            values[i] = values[i - 1] - values[i];
            i -= 1;
        }
        round += 1;
    }
    values
}

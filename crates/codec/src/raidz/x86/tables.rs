//! Multiplication tables for vector instructions; computed by the compiler from `raidz::gf`.

use crate::raidz::gf::double;

/// Products of a factor with low and high nibbles: `f·x = low[x & 15] ^ high[x >> 4]`.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct NibbleProducts {
    pub(super) low: [u8; 16],
    pub(super) high: [u8; 16],
}

/// [`NibbleProducts`] of each factor, for byte shuffles. 8 KiB.
pub(super) static NIBBLE_PRODUCTS: [NibbleProducts; 256] = nibble_products();

/// Each factor as an 8×8 bit matrix for `GF2P8AFFINEQB`, which works in any representation of the field;
/// `GF2P8MULB` is fixed to polynomial 0x11b. 2 KiB.
pub(super) static BIT_MATRICES: [u64; 256] = bit_matrices();

const fn nibble_products() -> [NibbleProducts; 256] {
    let mut table = [NibbleProducts { low: [0; 16], high: [0; 16] }; 256];
    let mut factor = 0;
    while factor < 256 {
        let multiples = doublings(factor as u8);
        let mut nibble = 0;
        while nibble < 16 {
            let mut bit = 0;
            while bit < 4 {
                if nibble >> bit & 1 != 0 {
                    table[factor].low[nibble] ^= multiples[bit];
                    table[factor].high[nibble] ^= multiples[bit + 4];
                }
                bit += 1;
            }
            nibble += 1;
        }
        factor += 1;
    }
    table
}

const fn bit_matrices() -> [u64; 256] {
    let mut table = [0; 256];
    let mut factor = 0;
    while factor < 256 {
        // Matrix column j is factor · 2^j; operand byte 7 - i holds row i.
        let columns = doublings(factor as u8);
        let mut cell = 0;
        while cell < 64 {
            let (i, j) = (cell / 8, cell % 8);
            table[factor] |= ((columns[j] >> i & 1) as u64) << ((7 - i) * 8 + j);
            cell += 1;
        }
        factor += 1;
    }
    table
}

const fn doublings(factor: u8) -> [u8; 8] {
    let mut multiples = [factor; 8];
    let mut j = 1;
    while j < 8 {
        multiples[j] = double(multiples[j - 1]);
        j += 1;
    }
    multiples
}

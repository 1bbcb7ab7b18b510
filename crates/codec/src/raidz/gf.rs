//! Arithmetic of GF(2^8), the field RAID-Z computes in.
//!
//! A byte is a polynomial over GF(2): addition is XOR, multiplication is polynomial multiplication
//! modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11d). In this field 2 generates every non-zero element.
//!
//! Functions here are meant for single factors. Bytes in bulk belong to the kernels, which read the two
//! tables of prepared factors below.
//!
//! Source: OpenZFS vdev_raidz.c (theory comment).

/// The field polynomial without its leading term, which shifting a byte left drops.
pub(super) const POLYNOMIAL: u8 = 0x1d;

/// `2^e` for exponents up to the sum of two logarithms.
static POWERS_OF_TWO: [u8; 510] = powers_of_two();

/// `LOGARITHMS[2^e] = e` for `e < 255`; the entry of zero means nothing.
static LOGARITHMS: [u8; 256] = logarithms();

/// `a · b`.
pub(super) fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let log = |element: u8| usize::from(LOGARITHMS[usize::from(element)]);
    POWERS_OF_TWO[log(a) + log(b)]
}

/// `2^exponent`.
pub(super) fn power_of_two(exponent: usize) -> u8 {
    POWERS_OF_TWO[exponent % 255]
}

/// `1 / a`. The inverse of zero does not exist; what comes out for it means nothing.
pub(super) fn inverse(a: u8) -> u8 {
    POWERS_OF_TWO[255 - usize::from(LOGARITHMS[usize::from(a)])]
}

/// `2 · a`, by shifting and reducing: what the tables are made from.
const fn double(a: u8) -> u8 {
    (a << 1) ^ ((a >> 7) * POLYNOMIAL)
}

const fn powers_of_two() -> [u8; 510] {
    let mut table = [1; 510];
    let mut exponent = 1;
    while exponent < 510 {
        table[exponent] = double(table[exponent - 1]);
        exponent += 1;
    }
    table
}

const fn logarithms() -> [u8; 256] {
    let powers = powers_of_two();
    let mut table = [0; 256];
    let mut exponent = 0;
    while exponent < 255 {
        table[powers[exponent] as usize] = exponent as u8;
        exponent += 1;
    }
    table
}

/// Products of a factor with every low and every high nibble: `f·x = low[x & 15] ^ high[x >> 4]`.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct NibbleProducts {
    pub(super) low: [u8; 16],
    pub(super) high: [u8; 16],
}

/// [`NibbleProducts`] of each factor, for byte-shuffle instructions. 8 KiB.
pub(super) static NIBBLE_PRODUCTS: [NibbleProducts; 256] = nibble_products();

/// Each factor as an 8×8 bit matrix in the layout of `GF2P8AFFINEQB`, which multiplies in any
/// representation of the field, unlike `GF2P8MULB` whose polynomial is fixed to 0x11b. 2 KiB.
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
        // Column j of the matrix is factor · 2^j; byte 7 - i of the operand holds row i.
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

/// `factor · 2^j` for each bit `j` of a byte.
const fn doublings(factor: u8) -> [u8; 8] {
    let mut multiples = [factor; 8];
    let mut j = 1;
    while j < 8 {
        multiples[j] = double(multiples[j - 1]);
        j += 1;
    }
    multiples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_has_inverses_and_two_generates_it() {
        let mut seen = [false; 256];
        for exponent in 0..255 {
            let element = power_of_two(exponent);
            assert!(!seen[usize::from(element)], "2^{exponent} repeats an element");
            seen[usize::from(element)] = true;
            assert_eq!(multiply(element, inverse(element)), 1);
        }
        assert_eq!(power_of_two(8), POLYNOMIAL);
    }
}

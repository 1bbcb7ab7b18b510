//! Arithmetic of GF(2^8), the field of RAID-Z.
//!
//! A byte is a polynomial over GF(2): addition is XOR, multiplication is polynomial multiplication modulo
//! `x^8 + x^4 + x^3 + x^2 + 1` (0x11d). In this field 2 generates every nonzero element. Bulk bytes are the
//! kernels' job.
//!
//! Source: OpenZFS `vdev_raidz.c` (theory comment).

/// Field polynomial without the leading term, which a left shift drops.
pub(super) const POLYNOMIAL: u8 = 0x1d;

/// `2^e` up to the sum of two logarithms.
static POWERS_OF_TWO: [u8; 510] = powers_of_two();

/// `LOGARITHMS[2^e] = e` for `e < 255`; the entry of zero is meaningless.
static LOGARITHMS: [u8; 256] = logarithms();

pub(super) fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let log = |element: u8| usize::from(LOGARITHMS[usize::from(element)]);
    POWERS_OF_TWO[log(a) + log(b)]
}

pub(super) fn power_of_two(exponent: usize) -> u8 {
    POWERS_OF_TWO[exponent % 255]
}

/// `1 / a`; meaningless for zero.
pub(super) fn inverse(a: u8) -> u8 {
    POWERS_OF_TWO[255 - usize::from(LOGARITHMS[usize::from(a)])]
}

/// `2 · a`, by shift and reduction; builds the tables.
pub(super) const fn double(a: u8) -> u8 {
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

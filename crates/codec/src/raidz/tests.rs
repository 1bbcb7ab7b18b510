//! Every kernel against an independent bytewise oracle.

use super::*;

/// Multiplication in GF(2^8) modulo 0x11d, by definition.
fn times(a: u8, b: u8) -> u8 {
    let product = (0..8).filter(|bit| b >> bit & 1 == 1).fold(0u16, |sum, bit| sum ^ u16::from(a) << bit);
    let reduced = (8..16).rev().fold(product, |rest, bit| match rest >> bit & 1 {
        1 => rest ^ 0x11d << (bit - 8),
        _ => rest,
    });
    reduced as u8
}

/// Parity by definition: P, Q and R are the data as digits to the base 1, 2 and 4.
fn oracle_parity(data: &[Vec<u8>], count: usize) -> Vec<Vec<u8>> {
    let len = data.iter().map(Vec::len).max().unwrap_or(0);
    let digit = |column: &Vec<u8>, at: usize| column.get(at).copied().unwrap_or(0);
    let parity_byte = |base, at| data.iter().fold(0, |sum, column| times(sum, base) ^ digit(column, at));
    [1, 2, 4][..count].iter().map(|&base| (0..len).map(|at| parity_byte(base, at)).collect()).collect()
}

/// The first column has `len` bytes, each other one `len` or `short`.
fn random_columns(seed: u64, count: usize, len: usize, short: usize) -> Vec<Vec<u8>> {
    let mut state = seed;
    let mut next = || {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27) >> 16
    };
    let lengths: Vec<usize> =
        (0..count).map(|index| if index > 0 && next() & 1 == 1 { short } else { len }).collect();
    lengths.into_iter().map(|len| (0..len).map(|_| next() as u8).collect()).collect()
}

/// Long and short column lengths: whole vectors, odd tails, only a tail, an empty column.
const LENGTHS: [(usize, usize); 8] =
    [(1, 0), (7, 6), (64, 64), (257, 31), (512, 0), (1000, 999), (1536, 1024), (4096 + 512, 4096)];

fn slices(columns: &[Vec<u8>]) -> Vec<&[u8]> {
    columns.iter().map(Vec::as_slice).collect()
}

fn subsets(count: usize, most: usize) -> impl Iterator<Item = Vec<usize>> {
    let sets = (0u32..1 << count).filter(move |bits| bits.count_ones() as usize <= most);
    sets.map(move |bits| (0..count).filter(|index| bits >> index & 1 == 1).collect())
}

/// Rebuilds `missing` without `unknown`, and checks every byte written.
fn check_rebuild(kernel: Kernel, parity_count: usize, row: &[Vec<u8>], missing: &[usize], unknown: &[usize]) {
    let mut written: Vec<Vec<u8>> = row.iter().map(|column| vec![0xa5; column.len()]).collect();
    let columns = row.iter().zip(&mut written).enumerate();
    let columns = columns.map(|(index, (truth, buffer))| {
        if unknown.contains(&index) {
            Column::Unknown
        } else if missing.contains(&index) {
            Column::Missing(buffer)
        } else {
            Column::Present(truth)
        }
    });
    let mut columns: Vec<Column> = columns.collect();
    kernel.reconstruct(parity_count, &mut columns).expect("enough parity is present");
    for &index in missing.iter().filter(|index| !unknown.contains(index)) {
        assert_eq!(
            written[index],
            row[index],
            "{}: column {index} of {}, {parity_count} parity, missing {missing:?}, unknown {unknown:?}",
            kernel.name(),
            row.len()
        );
    }
}

#[test]
fn every_kernel_generates_the_parity_of_the_definition() {
    for kernel in Kernel::available() {
        for (seed, (len, short)) in LENGTHS.into_iter().enumerate() {
            for count in [1, 2, 3, 8, 13, 255] {
                let data = random_columns(seed as u64, count, len, short);
                for parity_count in 1..=MAX_PARITY {
                    let mut parity = vec![vec![0xa5; len]; parity_count];
                    let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
                    kernel.generate(&mut targets, &slices(&data)).expect("a well-formed row");
                    let expected = oracle_parity(&data, parity_count);
                    assert!(parity == expected, "{}: {count} columns of {len}/{short}", kernel.name());
                }
            }
        }
    }
}

#[test]
fn every_kernel_rebuilds_every_set_of_missing_columns() {
    for kernel in Kernel::available() {
        for (seed, (len, short)) in LENGTHS.into_iter().enumerate() {
            for parity_count in 1..=MAX_PARITY {
                for data_count in [1, 4, 6] {
                    let data = random_columns(seed as u64, data_count, len, short);
                    let row = [oracle_parity(&data, parity_count), data].concat();
                    for missing in subsets(row.len(), parity_count) {
                        check_rebuild(kernel, parity_count, &row, &missing, &[]);
                    }
                }
            }
        }
    }
}

#[test]
fn a_column_that_is_not_trusted_is_neither_read_nor_rebuilt() {
    let data = random_columns(1, 5, 700, 512);
    for kernel in Kernel::available() {
        let mut row = [oracle_parity(&data, 3), data.clone()].concat();
        for unknown in subsets(row.len(), 2) {
            for missing in (0..row.len()).filter(|column| !unknown.contains(column)) {
                check_rebuild(kernel, 3, &row, &[missing], &unknown);
            }
        }
        // A wrong parity column is harmless only when left out.
        row[0][3] ^= 1;
        check_rebuild(kernel, 3, &row, &[4, 5], &[0]);
        let lied_to = std::panic::catch_unwind(|| check_rebuild(kernel, 3, &row, &[4, 5], &[]));
        assert!(lied_to.is_err());
    }
}

#[test]
fn the_widest_row_is_rebuilt() {
    let data = random_columns(2, MAX_DATA_COLUMNS, 100, 64);
    let row = [oracle_parity(&data, 3), data].concat();
    for kernel in Kernel::available() {
        for missing in [[3, 4, 5], [0, 3, 257], [1, 100, 257], [2, 128, 256], [0, 1, 2], [255, 256, 257]] {
            check_rebuild(kernel, 3, &row, &missing, &[]);
        }
    }
}

#[test]
fn verification_names_the_parity_columns_that_differ() {
    let len = 3 * VERIFY_STRIP_BYTES + 512;
    let data = random_columns(3, 6, len, len - 512);
    let truth = oracle_parity(&data, 3);
    for kernel in Kernel::available() {
        for damaged in subsets(3, 3) {
            for at in [0, VERIFY_STRIP_BYTES, len - 1] {
                let mut parity = truth.clone();
                damaged.iter().for_each(|&row| parity[row][at] ^= 0x10);
                let read: Vec<Option<&[u8]>> = parity.iter().map(|column| Some(column.as_slice())).collect();
                let differs = kernel.verify_parity(&read, &slices(&data)).expect("a well-formed row");
                assert_eq!(differs, [0, 1, 2].map(|row| damaged.contains(&row)));
                let differs = kernel.verify_parity(&[None, read[1], None], &slices(&data));
                assert_eq!(differs, Ok([false, damaged.contains(&1), false]));
            }
        }
    }
}

#[test]
fn rows_that_make_no_sense_are_refused() {
    let (long, short) = ([0; 8], [0; 4]);
    assert_eq!(generate(&mut [], &[&long]), Err(RaidzError::ParityCount(0)));
    assert_eq!(verify_parity(&[None; 4], &[&long]), Err(RaidzError::ParityCount(4)));
    assert_eq!(generate(&mut [&mut [0; 8]], &[]), Err(RaidzError::DataCount(0)));
    assert_eq!(generate(&mut [&mut [0; 8]], &[&long[..]; 256]), Err(RaidzError::DataCount(256)));
    assert_eq!(reconstruct(3, &mut [Column::Unknown]), Err(RaidzError::DataCount(0)));
    let too_long = RaidzError::ColumnLength { column: 2, len: 8, parity_len: 4 };
    assert_eq!(generate(&mut [&mut [0; 4]], &[&short, &long]), Err(too_long));
    let uneven = RaidzError::ColumnLength { column: 1, len: 4, parity_len: 8 };
    assert_eq!(generate(&mut [&mut [0; 8], &mut [0; 4]], &[&short]), Err(uneven));

    let mut buffer = [7; 8];
    let mut row = [Column::Present(&long), Column::Missing(&mut buffer), Column::Unknown];
    let too_many = RaidzError::TooManyMissing { missing: 2, parity: 1 };
    assert_eq!(reconstruct(1, &mut row), Err(too_many));
    assert_eq!(buffer, [7; 8], "a refused row is not written to");
}

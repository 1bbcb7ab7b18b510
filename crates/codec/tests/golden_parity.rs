//! Parity written by the OpenZFS kernel module, found in golden pools without their structure.
//!
//! If a block fills a whole RAID-Z row, its sectors lie at the same offset of all disks, rotated. The test
//! takes the sectors at every offset as a row, in every rotation. If the first sector is the XOR of the data,
//! which does not happen by chance, it is P; the other parity must then match this crate's.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

use std::fs::File;
use std::os::unix::fs::FileExt;

use cenote_codec::raidz::{Column, generate, reconstruct, verify_parity};
use cenote_testkit::{golden, needs};

const SECTOR_BYTES: usize = 512;
/// `VDEV_LABEL_START_SIZE`: allocation starts after labels and boot area.
const FIRST_SECTOR_OFFSET: u64 = 4 << 20;
const STEP_BYTES: u64 = 4096;
const ENOUGH_ROWS: usize = 100;

type Sector = [u8; SECTOR_BYTES];

#[needs("raidz2")]
#[test]
fn raidz2_rows_of_the_kernel_module_agree() {
    check_pool("raidz2", 2);
}

#[needs("raidz3")]
#[test]
fn raidz3_rows_of_the_kernel_module_agree() {
    check_pool("raidz3", 3);
}

fn check_pool(name: &str, parity_count: usize) {
    let folder = golden(name).images();
    let disks: Vec<File> =
        (0..).map_while(|disk| File::open(folder.join(format!("disk{disk}.img"))).ok()).collect();
    let disk_bytes = disks[0].metadata().expect("an image").len();
    let mut rows = 0;
    for offset in (FIRST_SECTOR_OFFSET..disk_bytes - STEP_BYTES).step_by(STEP_BYTES as usize) {
        let mut sectors = vec![[0; SECTOR_BYTES]; disks.len()];
        for (disk, sector) in disks.iter().zip(&mut sectors) {
            disk.read_exact_at(sector, offset).expect("an image as long as the first");
        }
        if !tells_something(&sectors) {
            continue;
        }
        for _ in 0..sectors.len() {
            sectors.rotate_left(1);
            let mut p = [0; SECTOR_BYTES];
            generate(&mut [&mut p], &slices(&sectors[parity_count..])).expect("a well-formed row");
            if p == sectors[0] {
                check_row(&sectors, parity_count, offset);
                rows += 1;
            }
        }
        if rows >= ENOUGH_ROWS {
            return;
        }
    }
    panic!("only {rows} full rows in {name}: the test proves too little");
}

/// Whether a zero XOR is significant: empty or repeated sectors (short rows of equal metadata) cancel each
/// other.
fn tells_something(sectors: &[Sector]) -> bool {
    let repeated = |index: usize, sector| sectors[..index].contains(sector);
    !sectors.iter().enumerate().any(|(index, sector)| *sector == [0; SECTOR_BYTES] || repeated(index, sector))
}

fn slices(sectors: &[Sector]) -> Vec<&[u8]> {
    sectors.iter().map(|sector| &sector[..]).collect()
}

fn check_row(row: &[Sector], parity_count: usize, offset: u64) {
    let (parity, data) = row.split_at(parity_count);
    let parity: Vec<Option<&[u8]>> = parity.iter().map(|sector| Some(&sector[..])).collect();
    assert_eq!(verify_parity(&parity, &slices(data)), Ok([false; 3]), "parity at {offset:#x}");

    let lost = parity_count..2 * parity_count;
    let mut rebuilt = vec![[0; SECTOR_BYTES]; row.len()];
    let columns = row.iter().zip(&mut rebuilt).enumerate();
    let columns = columns.map(|(index, (sector, buffer))| match lost.contains(&index) {
        true => Column::Missing(buffer),
        false => Column::Present(sector),
    });
    reconstruct(parity_count, &mut columns.collect::<Vec<_>>()).expect("enough parity");
    assert_eq!(rebuilt[lost.clone()], row[lost], "data at {offset:#x}");
}

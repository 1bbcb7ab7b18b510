//! Memory of decoded blocks, used again ([`Spare`]).
//!
//! What it held is overwritten: whoever fills it must fill all of it. Bounds: blocks of 4 to 128 KiB; of each size, 2 MiB wait at most.

use bytes::Bytes;
use cenote_device::Spare;

/// Sizes kept are powers of two from this shift on: 4, 8, 16, 32, 64, 128 KiB.
const FIRST_SHIFT: u32 = 12;
/// Most bytes of a size that wait.
const MOST_BYTES: usize = 2 << 20;

static SPARE: [Spare; 6] = [
    Spare::new(MOST_BYTES >> 12),
    Spare::new(MOST_BYTES >> 13),
    Spare::new(MOST_BYTES >> 14),
    Spare::new(MOST_BYTES >> 15),
    Spare::new(MOST_BYTES >> 16),
    Spare::new(MOST_BYTES >> 17),
];

/// A block of `len` bytes, all of them written by `fill`, which finds zeros or an earlier block's content there.
pub(crate) fn filled<E>(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Bytes, E> {
    let spare = spare_of(len);
    let mut block = spare.and_then(Spare::take).unwrap_or_else(|| vec![0; len]);
    fill(&mut block)?;
    Ok(match spare {
        Some(spare) => spare.lend(block),
        None => block.into(),
    })
}

fn spare_of(len: usize) -> Option<&'static Spare> {
    let shift = len.is_power_of_two().then(|| len.ilog2())?;
    SPARE.get(shift.checked_sub(FIRST_SHIFT)? as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_what_was_filled_in_whatever_its_memory_held() {
        for len in [1000, 4096, 16 << 10, 128 << 10, 1 << 20] {
            for byte in [1, 2, 3] {
                let block = filled::<()>(len, |memory| {
                    memory.fill(byte);
                    Ok(())
                });
                assert_eq!(block.unwrap(), vec![byte; len]);
            }
            assert_eq!(filled(len, |_| Err("unreadable")), Err("unreadable"));
        }
    }
}

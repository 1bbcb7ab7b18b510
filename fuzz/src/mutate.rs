//! Mutates inputs with a seeded generator: the same seed makes the same input.
//!
//! On-disk structures consist of words. So most mutations put a troublesome number (zero, one next to a power
//! of two, the input's length) into an aligned field of one to eight bytes, in either byte order.

use cenote_runtime::Rng;

/// Longest input made from shorter ones.
pub const MAX_INPUT_BYTES: usize = 256 << 10;
/// log2 of the most changes per input.
const MAX_CHANGES_SHIFT: u64 = 4;

/// Builds a case: an input (or noise) with a few changes.
pub fn case(rng: &mut Rng, inputs: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut data = match rng.below(50) {
        0 => noise(rng),
        _ => pick(rng, inputs).cloned().unwrap_or_else(|| noise(rng)),
    };
    for _ in 0..1u64 << rng.below(MAX_CHANGES_SHIFT + 1) {
        change(rng, &mut data, inputs);
    }
    let longest = inputs.iter().map(|(_, input)| input.len()).max().unwrap_or(0);
    data.truncate(longest.max(MAX_INPUT_BYTES));
    data
}

fn pick<'a>(rng: &mut Rng, inputs: &'a [(String, Vec<u8>)]) -> Option<&'a Vec<u8>> {
    inputs.get(rng.below(inputs.len() as u64) as usize).map(|(_, data)| data)
}

fn noise(rng: &mut Rng) -> Vec<u8> {
    let mut data = vec![0; 1 << rng.below(13)];
    rng.fill(&mut data);
    data
}

fn change(rng: &mut Rng, data: &mut Vec<u8>, inputs: &[(String, Vec<u8>)]) {
    match rng.below(12) {
        0 => flip_bit(rng, data),
        1 => set_byte(rng, data),
        2..=6 => set_field(rng, data),
        7 => nudge_field(rng, data),
        8 => copy_within(rng, data),
        9 => splice(rng, data, inputs),
        10 if rng.chance(0.3) => data.truncate(place(rng, data)),
        _ => repeat(rng, data),
    }
}

/// Picks an offset: half of the time near the front, where headers are, else mostly in nonzero data.
fn place(rng: &mut Rng, data: &[u8]) -> usize {
    let len = data.len() as u64;
    if rng.chance(0.5) && len <= MAX_INPUT_BYTES as u64 {
        return rng.below(len.min(256)) as usize;
    }
    let mut at = 0;
    for _ in 0..64 {
        at = rng.below(len) as usize;
        if data.get(at) != Some(&0) {
            break;
        }
    }
    at
}

fn flip_bit(rng: &mut Rng, data: &mut [u8]) {
    let at = place(rng, data);
    if let Some(byte) = data.get_mut(at) {
        *byte ^= 1 << rng.below(8);
    }
}

fn set_byte(rng: &mut Rng, data: &mut [u8]) {
    let at = place(rng, data);
    if let Some(byte) = data.get_mut(at) {
        *byte = rng.next_u64() as u8;
    }
}

/// Picks an aligned field of 1, 2, 4 or 8 bytes.
fn field<'a>(rng: &mut Rng, data: &'a mut [u8]) -> &'a mut [u8] {
    let bytes = 1 << rng.below(4);
    let at = place(rng, data) / bytes * bytes;
    data.get_mut(at..at + bytes).unwrap_or_default()
}

fn put(field: &mut [u8], number: u64, big_endian: bool) {
    let len = field.len();
    match big_endian {
        true => field.copy_from_slice(&number.to_be_bytes()[8 - len..]),
        false => field.copy_from_slice(&number.to_le_bytes()[..len]),
    }
}

fn set_field(rng: &mut Rng, data: &mut [u8]) {
    let (length, big_endian) = (data.len() as u64, rng.chance(0.5));
    let number = match rng.below(8) {
        0 => 0,
        1 => u64::MAX,
        2 => rng.below(32),
        3 => length.wrapping_add(rng.below(17)).wrapping_sub(8),
        4 => u64::from(rng.next_u64() as u32),
        5 => rng.next_u64(),
        _ => (1u64 << rng.below(64)).wrapping_add(rng.below(3)).wrapping_sub(1),
    };
    put(field(rng, data), number, big_endian);
}

/// Adds or subtracts a little.
fn nudge_field(rng: &mut Rng, data: &mut [u8]) {
    let (big_endian, by) = (rng.chance(0.5), rng.below(65).wrapping_sub(32));
    let field = field(rng, data);
    let mut word = [0; 8];
    let len = field.len();
    let number = match big_endian {
        true => {
            word[8 - len..].copy_from_slice(field);
            u64::from_be_bytes(word)
        }
        false => {
            word[..len].copy_from_slice(field);
            u64::from_le_bytes(word)
        }
    };
    put(field, number.wrapping_add(by), big_endian);
}

fn copy_within(rng: &mut Rng, data: &mut [u8]) {
    let (from, to) = (place(rng, data), place(rng, data));
    let len = rng.below(129).min((data.len() - from.max(to)) as u64) as usize;
    data.copy_within(from..from + len, to);
}

/// Overwrites a part with a part of another input.
fn splice(rng: &mut Rng, data: &mut [u8], inputs: &[(String, Vec<u8>)]) {
    let Some(other) = pick(rng, inputs) else { return };
    let (from, to) = (place(rng, other), place(rng, data));
    let len = rng.below(513).min((other.len() - from).min(data.len() - to) as u64) as usize;
    data[to..to + len].copy_from_slice(&other[from..from + len]);
}

/// Repeats a part of the input.
fn repeat(rng: &mut Rng, data: &mut Vec<u8>) {
    let from = place(rng, data);
    let len = rng.below(65).min((data.len() - from) as u64) as usize;
    let part = data[from..from + len].to_vec();
    data.splice(from..from, part);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_cases_and_most_differ() {
        let inputs = vec![("a".to_string(), (0..=255).collect()), ("b".to_string(), vec![7; 4000])];
        let make = |seed| (0..2000).map(move |i| Rng::stream(seed, i)).map(|mut rng| case(&mut rng, &inputs));
        let first: Vec<_> = make(5).collect();
        assert!(make(5).eq(first.iter().cloned()));
        let different: std::collections::HashSet<_> = first.iter().collect();
        assert!(different.len() > 1500, "{} of 2000 cases differ", different.len());
        assert!(make(6).zip(first).filter(|(a, b)| a == b).count() < 500);
    }

    #[test]
    fn nothing_is_mutated_from_nothing() {
        for i in 0..5000 {
            case(&mut Rng::stream(1, i), &[("empty".into(), Vec::new())]);
            case(&mut Rng::stream(1, i), &[]);
        }
    }
}

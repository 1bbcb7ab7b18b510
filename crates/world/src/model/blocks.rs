//! The blocks of a volume.
//!
//! Idea: writes of many clients at once give thousands of states that differ in a few blocks. A sum of all
//! blocks' hashes follows each change, so two states are compared by one number.

use super::data::Data;

/// Blocks; empty ones are zeros.
#[derive(Debug, Clone)]
pub struct Blocks {
    all: Vec<Data>,
    /// Of each block's hash at its place.
    sum: u128,
}

impl From<Vec<Data>> for Blocks {
    fn from(all: Vec<Data>) -> Blocks {
        let sum = all.iter().enumerate().fold(0, |sum, (at, data)| sum ^ placed(at, data));
        Blocks { all, sum }
    }
}

impl Blocks {
    /// All blocks, in order.
    pub fn all(&self) -> &[Data] {
        &self.all
    }

    /// Writes a block. `false`: there is none.
    pub fn set(&mut self, at: usize, data: Data) -> bool {
        let Some(block) = self.all.get_mut(at) else { return false };
        self.sum ^= placed(at, block) ^ placed(at, &data);
        *block = data;
        true
    }
}

fn placed(at: usize, data: &Data) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(at as u64).to_le_bytes()).update(data.hash().as_bytes());
    let mut sum = [0; 16];
    hasher.finalize_xof().fill(&mut sum);
    u128::from_le_bytes(sum)
}

impl PartialEq for Blocks {
    fn eq(&self, other: &Blocks) -> bool {
        self.sum == other.sum && self.all.len() == other.all.len()
    }
}

impl Eq for Blocks {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_equal_by_content_and_place() {
        let of = |content: [&'static str; 3]| Blocks::from(content.map(Data::from).to_vec());
        let mut changed = of(["a", "", ""]);
        assert!(changed.set(1, "b".into()) && !changed.set(3, "b".into()));
        assert_eq!(changed, of(["a", "b", ""]));
        assert_ne!(changed, of(["b", "a", ""]));
        assert!(changed.set(0, "".into()) && changed.set(1, "".into()));
        assert_eq!(changed, of(["", "", ""]));
    }
}

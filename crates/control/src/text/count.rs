//! Counts with their nouns: `1 file`, `12,345 files`.

use indicatif::HumanCount;

/// A count with a regular plural: `0 blocks`, `1 block`, `2 blocks`.
pub fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", HumanCount(count), if count == 1 { "" } else { "s" })
}

/// A count with another plural: `1 file was`, `2 files were`.
pub fn counted_as(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", HumanCount(count), if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let counts = [(0, "0 files"), (1, "1 file"), (2, "2 files"), (12_345, "12,345 files")];
        for (count, text) in counts {
            assert_eq!(counted(count, "file"), text);
        }
        assert_eq!(counted_as(1, "file was", "files were"), "1 file was");
        assert_eq!(counted_as(2, "file was", "files were"), "2 files were");
    }
}

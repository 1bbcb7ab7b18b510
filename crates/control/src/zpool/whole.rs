//! Verbs on a pool as a whole.

pub mod checkpoint;
pub mod create;
pub mod destroy;
pub mod export;
pub mod import;
pub mod reguid;
pub mod split;
pub mod sync;

/// `ZFS_MAX_DATASET_NAME_LEN` less `/$ORIGIN@$ORIGIN`.
const MOST_NAME_BYTES: usize = 240;

/// OpenZFS's rules for names of new pools (`zpool_name_valid`).
///
/// # Errors
/// The rule that a name breaks.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    let is_reserved = ["mirror", "raidz", "draid", "spare"].iter().any(|word| name.starts_with(word));
    if is_reserved || name == "log" {
        return Err("name is reserved");
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err("name must begin with a letter");
    }
    if name.len() >= MOST_NAME_BYTES {
        return Err("name is too long");
    }
    match name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.: ".contains(c)) {
        true => Ok(()),
        false => Err("names may contain letters, digits, '-', '_', '.', ':' and blanks only"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules() {
        for fine in ["tank", "a", "A.b-c_d:e f", "logs", "my-mirror"] {
            assert_eq!(check_name(fine), Ok(()), "{fine}");
        }
        let long = "x".repeat(240);
        for wrong in [
            "", "1a", "mirror", "mirrors", "raidz2x", "draid", "spares", "log", "a/b", "a@b", "\u{e9}", "c%",
            &long,
        ] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
    }
}

//! Deadlists and livelists: block pointers in lists by birth.
//!
//! Idea: a deadlist is a ZAP object (type `DEADLIST`) with a summary as bonus. Its keys are hexadecimal txgs;
//! the `bpobj` under key T holds the blocks born after T and no later than the next key. Before pool version
//! 26, a deadlist was a plain bpobj. A clone's livelist has the same shape, with entries marked as allocated
//! or freed (see `bpobj`).
//!
//! Source: OpenZFS `dsl_deadlist.h`, `dsl_deadlist.c`.

use crate::error::{FormatError, Result};
use crate::units::Txg;
use crate::words::{Pad, word_struct};

word_struct! {
    /// Bonus of a `DEADLIST` object, `dsl_deadlist_phys_t`.
    pub struct DeadlistPhys("deadlist", bytes: 320, required: 3) {
        /// Space of all blocks.
        pub used_bytes: u64,
        /// Stored bytes.
        pub compressed_bytes: u64,
        /// Uncompressed bytes.
        pub uncompressed_bytes: u64,
        /// Reserved.
        pub pad: Pad<37>,
    }
}

/// Parses a deadlist's key.
pub fn parse_deadlist_key(name: &[u8]) -> Result<Txg> {
    parse_hex(name)
        .map(Txg)
        .ok_or(FormatError::Corrupt { what: "deadlist key", why: "is not a hexadecimal number" })
}

/// Formats a deadlist's key.
pub fn deadlist_key(mintxg: Txg) -> String {
    format!("{:x}", mintxg.0)
}

/// Parses `%llx`: exactly 1 to 16 hexadecimal digits.
pub(crate) fn parse_hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            b'A'..=b'F' => digit - b'A' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::check_phys;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_those_of_the_disk_and_words_come_back() {
        check_phys::<DeadlistPhys>();
    }

    proptest! {
        #[test]
        fn keys_round_trip(txg in any::<u64>()) {
            prop_assert_eq!(parse_deadlist_key(deadlist_key(Txg(txg)).as_bytes()).unwrap(), Txg(txg));
        }
    }

    #[test]
    fn other_names_are_refused() {
        for bad in ["", "g", "-1", "0x1", "11112222333344445", " 1"] {
            assert!(parse_deadlist_key(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}

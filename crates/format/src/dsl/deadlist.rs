//! Deadlists and livelists: block pointers sorted into lists by birth.
//!
//! Idea: a deadlist is a ZAP object (type `DEADLIST`) whose bonus sums it up. Its keys are txgs in
//! hexadecimal; the list (`bpobj`) under key T holds the blocks born after T and no later than the next
//! key. Before pool version 26 a deadlist was one plain bpobj. A clone's livelist has the same shape, and
//! its entries are marked as allocated or freed (see `bpobj`).
//!
//! Source: OpenZFS `dsl_deadlist.h`, `dsl_deadlist.c`.

use crate::error::{FormatError, Result};
use crate::units::Txg;
use crate::words::{Pad, word_struct};

word_struct! {
    /// Sum of a deadlist, `dsl_deadlist_phys_t`: 320 bytes, the bonus of a `DEADLIST` object.
    pub struct DeadlistPhys("deadlist", bytes: 320, required: 3) {
        /// Space of all its blocks.
        pub used_bytes: u64,
        /// Their bytes as stored.
        pub compressed_bytes: u64,
        /// Their bytes before compression.
        pub uncompressed_bytes: u64,
        /// Reserved.
        pub pad: Pad<37>,
    }
}

/// The txg that a deadlist's key names.
pub fn parse_deadlist_key(name: &[u8]) -> Result<Txg> {
    parse_hex(name)
        .map(Txg)
        .ok_or(FormatError::Corrupt { what: "deadlist key", why: "is not a hexadecimal number" })
}

/// The key of a txg.
pub fn deadlist_key(mintxg: Txg) -> String {
    format!("{:x}", mintxg.0)
}

/// A number written with `%llx`: 1 to 16 hexadecimal digits and nothing else.
pub(crate) fn parse_hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |n, &d| Some(n << 4 | u64::from(char::from(d).to_digit(16)?)))
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

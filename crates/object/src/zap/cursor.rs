//! Listing a ZAP in hash order from any point on.
//!
//! Idea: a name's hash and differentiator never change while it exists. So a listing resumes at a point
//! between two names, even days later and in a changed table: names present all the time come exactly once,
//! as `readdir` must promise.
//!
//! Layout: a point is a number with the upper 28 bits of the hash below (the others are zero), and the next
//! differentiator above. With hashes of 48 bits the differentiator has the remaining 16.
//!
//! Source: OpenZFS `zap.c` (`zap_cursor_serialize`).

use cenote_boxed::boxed;
use cenote_format::zap::{ZAP_FLAG_HASH64, ZapBlock0};

use super::{Zap, ZapEntry, ZapValue};
use crate::error::Result;

/// Most entries of a micro ZAP at once: few readers take all of them.
const MOST_ENTRIES: usize = 256;

/// A point in hash order. Only [`Cursor::START`] compares meaningfully, as the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor(pub u64);

impl Cursor {
    /// Before all names.
    pub const START: Cursor = Cursor(0);

    fn at(hash: u64, cd: u64, hash_bits: u32) -> Cursor {
        Cursor(hash >> (64 - hash_bits) | cd << hash_bits)
    }

    fn parts(self, hash_bits: u32) -> (u64, u64) {
        (self.0 << (64 - hash_bits), self.0 >> hash_bits)
    }
}

impl Zap {
    /// Some entries from `from` on in hash order, each with the point behind it; empty at the end.
    ///
    /// # Errors
    /// Damage.
    #[boxed]
    pub async fn entries_from(&self, from: Cursor) -> Result<Vec<(ZapEntry, Cursor)>> {
        let hash_bits = if self.block0.hasher().flags & ZAP_FLAG_HASH64 != 0 { 48 } else { 28 };
        let (mut hash, cd) = from.parts(hash_bits);
        let mut first = (hash, cd);
        let fat = match &*self.block0 {
            ZapBlock0::Micro(micro) => {
                let mut entries: Vec<_> = micro
                    .entries()
                    .map(|entry| (self.hash(entry.name), u64::from(entry.cd), entry))
                    .collect();
                entries.retain(|(hash, cd, _)| (*hash, *cd) >= first);
                entries.sort_unstable_by_key(|(hash, cd, _)| (*hash, *cd));
                let with_point = |(hash, cd, entry): (u64, u64, cenote_format::zap::MicroEntry<'_>)| {
                    let name = bytes::Bytes::copy_from_slice(entry.name);
                    let value = ZapValue::from_u64(entry.value);
                    (ZapEntry { name, value }, Cursor::at(hash, cd + 1, hash_bits))
                };
                return Ok(entries.into_iter().take(MOST_ENTRIES).map(with_point).collect());
            }
            ZapBlock0::Fat(fat) => fat,
        };
        loop {
            let leaf = self.leaf(fat, hash).await?;
            let mut entries = Vec::new();
            for entry in leaf.entries() {
                let entry = entry.map_err(|e| self.object.format(e))?;
                if (entry.hash, u64::from(entry.cd)) >= first {
                    let point = Cursor::at(entry.hash, u64::from(entry.cd) + 1, hash_bits);
                    entries.push(((entry.hash, entry.cd), (self.entry(&entry)?, point)));
                }
            }
            if !entries.is_empty() {
                entries.sort_unstable_by_key(|(order, _)| *order);
                return Ok(entries.into_iter().map(|(_, entry)| entry).collect());
            }
            // The next leaf, unless this is the last prefix.
            let next = leaf.prefix.checked_add(1).filter(|_| leaf.prefix_len > 0);
            let next = next.and_then(|prefix| prefix.checked_mul(1u64.checked_shl(64 - leaf.prefix_len)?));
            let Some(next) = next else { return Ok(Vec::new()) };
            hash = next;
            first = (next, 0);
        }
    }
}

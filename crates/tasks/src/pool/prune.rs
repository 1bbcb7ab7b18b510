//! Takes old blocks with one reference out of deduplication tables (`zpool ddtprune`).
//!
//! ```text
//!   tables on disk --old, one reference--> candidates --a txg each 50,000--> entries removed
//! ```
//!
//! Idea: such blocks are unlikely to be found again, and their entries cost space and lookups. A block
//! without an entry has one owner, which frees it as any other block. An entry changed since it was read is
//! left alone. Only tables of feature `fast_dedup` know the age of their entries.
//!
//! Memory: the candidates of a txg.
//!
//! Source: OpenZFS `ddt.c` (`ddt_prune_unique_entries`, `ddt_prune_walk`).

use cenote_boxed::boxed;
use cenote_dataset::sharing::{Ddt, DdtEntries};
use cenote_engine::Engine;
use cenote_format::blkptr::Blkptr;
use cenote_format::ddt::{DdtClass, DdtFlat, DdtValue, ddt_blkptr};
use cenote_object::{DatasetError, Result};

/// `zfs_ddt_prunes_per_txg`.
const MOST_PER_TXG: usize = 50_000;
/// `HIST_BINS`: ages in hours by powers of two.
const BINS: usize = 16;
const HOUR_S: u64 = 3600;

/// Entries to take out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prune {
    /// Those of this age in seconds.
    OlderThan(u64),
    /// About this share of them, the oldest first.
    Percent(u64),
}

/// Takes entries with one reference out of the deduplication tables. Returns their number.
///
/// # Errors
/// The pool lacks feature `fast_dedup`; the age is before 1970; damaged tables.
#[boxed]
pub async fn prune_dedup(engine: &Engine, what: Prune) -> Result<u64> {
    let refuse = |why: &str| DatasetError::unsuitable(engine.pool().name(), why.to_owned());
    if !engine.mos().await?.enabled_features().await?.contains("fast_dedup") {
        return Err(refuse("unsupported version or feature"));
    }
    let now_s = engine.runtime().unix_time_ns() / 1_000_000_000;
    let before_s = match what {
        Prune::OlderThan(age_s) => now_s.checked_sub(age_s).filter(|before| *before > 0),
        Prune::Percent(percent) => match oldest_to_keep(engine, percent, now_s).await? {
            Some(age_s) => now_s.checked_sub(age_s),
            // The share is less than an entry. OpenZFS takes out all then.
            None => return Ok(0),
        },
    };
    let before_s = before_s.ok_or_else(|| refuse("invalid argument"))?;
    let (mut candidates, mut pruned) = (Vec::new(), 0);
    let mut walk = Walk::new(engine).await?;
    while let Some(batch) = walk.next().await? {
        let old = batch.into_iter().filter(|(_, entry)| entry.class_start_s < before_s);
        candidates.extend(old.map(|(bp, _)| bp));
        if candidates.len() >= MOST_PER_TXG {
            pruned += take_out(engine, std::mem::take(&mut candidates), before_s).await?;
        }
    }
    if !candidates.is_empty() {
        pruned += take_out(engine, candidates, before_s).await?;
    }
    Ok(pruned)
}

async fn take_out(engine: &Engine, blocks: Vec<Blkptr>, before_s: u64) -> Result<u64> {
    engine
        .run_on_pool(move |context| {
            Box::pin(async move {
                let pruned = context.prune_dedup(&blocks, before_s).await?;
                if pruned > 0 {
                    context.log_event("ddtprune", &format!("entries={pruned}")).await?;
                }
                Ok(pruned)
            })
        })
        .await
}

/// The age in seconds from which on entries are a share of all. Ages are counted by powers of two.
async fn oldest_to_keep(engine: &Engine, percent: u64, now_s: u64) -> Result<Option<u64>> {
    let mut ages = [0u64; BINS];
    let mut walk = Walk::new(engine).await?;
    while let Some(batch) = walk.next().await? {
        for (_, entry) in batch {
            let hours = now_s.saturating_sub(entry.class_start_s) / HOUR_S;
            let bin = (u64::BITS - hours.leading_zeros()) as usize;
            ages[bin.min(BINS - 1)] += 1;
        }
    }
    Ok(age_of_share(&ages, percent))
}

fn age_of_share(ages: &[u64; BINS], percent: u64) -> Option<u64> {
    let mut wanted = ages.iter().sum::<u64>() * percent / 100;
    if wanted == 0 {
        return None;
    }
    for (bin, count) in ages.iter().enumerate().rev() {
        if wanted <= *count {
            return Some(if bin == 0 { 0 } else { (1 << (bin - 1)) * HOUR_S });
        }
        wanted -= count;
    }
    None
}

/// Entries with one reference in the tables on disk, except logged ones, which are new.
struct Walk {
    tables: Vec<Ddt>,
    current: Option<(u8, DdtEntries)>,
}

impl Walk {
    async fn new(engine: &Engine) -> Result<Walk> {
        let mut tables = engine.mos().await?.dedup_tables().await?;
        tables.retain(Ddt::is_flat);
        Ok(Walk { tables, current: None })
    }

    async fn next(&mut self) -> Result<Option<Vec<(Blkptr, DdtFlat)>>> {
        loop {
            let Some((checksum_id, entries)) = &mut self.current else {
                let Some(table) = self.tables.pop() else { return Ok(None) };
                let mut entries = table.entries().await?;
                // The logged ones come first.
                entries.next_batch().await.transpose()?;
                self.current = Some((table.checksum_id, entries));
                continue;
            };
            match entries.next_batch().await.transpose()? {
                None => self.current = None,
                Some(batch) => {
                    let of_one = batch.into_iter().filter(|item| item.class == Some(DdtClass::Unique));
                    let found = of_one.filter_map(|item| match (&item.value, item.value.phys().next()) {
                        (DdtValue::Flat(flat), Some(set)) if flat.refcount == 1 => {
                            Some((ddt_blkptr(*checksum_id, &item.key, &set), *flat))
                        }
                        _ => None,
                    });
                    return Ok(Some(found.collect()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_begins_at_a_power_of_two_hours() {
        let mut ages = [0; BINS];
        assert_eq!(age_of_share(&ages, 100), None, "no entries");
        // Under an hour; 1; 2 and 3; 4 to 7; 16384 and more.
        (ages[0], ages[1], ages[2], ages[3], ages[15]) = (50, 20, 10, 10, 10);
        for (percent, hours) in [(1, 1 << 14), (10, 1 << 14), (11, 4), (20, 4), (30, 2), (50, 1), (51, 0)] {
            assert_eq!(age_of_share(&ages, percent), Some(hours * HOUR_S), "{percent} %");
        }
        ages = [0; BINS];
        ages[15] = 50;
        assert_eq!(age_of_share(&ages, 1), None, "half an entry");
    }
}

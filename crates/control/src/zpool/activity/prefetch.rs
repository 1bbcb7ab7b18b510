//! `zpool prefetch`: reads dedup and clone tables into the cache, so that frees and deduplicated writes don't
//! wait for each of their blocks.
//!
//! Source: OpenZFS `zpool_main.c` (`zpool_do_prefetch`), `ddt.c` (`ddt_prefetch_all`), `brt.c`
//! (`brt_prefetch_all`).

use cenote_dataset::Mos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Runs, Verb};

/// Load the deduplication and block-cloning tables into memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Prefetch {
    /// Daemon's pool.
    pub pool: String,
    /// Tables; none: both.
    #[serde(default)]
    pub tables: Option<Tables>,
}

/// Tables of shared blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tables {
    /// Deduplicated blocks (DDT).
    Ddt,
    /// Cloned blocks (BRT).
    Brt,
}

/// Entries read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Prefetched {
    /// DDT entries.
    pub ddt_entries: u64,
    /// BRT entries.
    pub brt_entries: u64,
}

impl Verb for Prefetch {
    const NAME: &'static str = "zpool prefetch";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const RUNS: Runs = Runs::InDaemon;
    type Answer = Prefetched;

    /// # Errors
    /// No daemon holds the pool; a table can't be read.
    async fn carry_out(self, session: &Session) -> Result<Answered<Prefetched>, ControlError> {
        let found = session.find_pool(&self.pool).await?;
        let not_open = || {
            ControlError::Refused(format!(
                "cannot prefetch '{}': no daemon holds the pool (`cenote serve`), so nothing stays in memory",
                self.pool
            ))
        };
        let mos = session.held(&found).ok_or_else(not_open)?.engine.mos().await?;
        let mut read = Prefetched::default();
        if self.tables != Some(Tables::Brt) {
            read.ddt_entries = ddt(&mos).await?;
        }
        if self.tables != Some(Tables::Ddt) {
            read.brt_entries = brt(&mos).await?;
        }
        Ok(read.into())
    }
}

async fn ddt(mos: &Mos) -> Result<u64, ControlError> {
    let mut count = 0;
    for table in mos.dedup_tables().await? {
        let mut entries = table.entries().await?;
        while let Some(batch) = entries.next_batch().await {
            count += batch?.len() as u64;
        }
    }
    Ok(count)
}

async fn brt(mos: &Mos) -> Result<u64, ControlError> {
    let mut count = 0;
    for table in mos.cloned_blocks().await? {
        let mut entries = table.entries();
        while let Some(batch) = entries.next_batch().await {
            count += batch?.len() as u64;
        }
    }
    Ok(count)
}

//! The claim of an importer, and the stake before the first change.
//!
//! A claim goes to label 0 of all leaves and keeps the uberblock's time, so the owner's heartbeats outrank
//! it. A stake goes to all labels and has the present time: no claim can hide it.

use super::{Legs, MultihostError, MultihostSettings, Phase, Waiting, Watched};
use crate::error::Result;
use cenote_boxed::boxed;
use cenote_format::label::VDEV_LABELS;
use cenote_format::uberblock::Uberblock;
use cenote_runtime::Instant;
use std::time::Duration;

/// `MMP_IMPORT_VERIFY_ITERS`.
const CLAIM_ROUNDS: u32 = 10;
/// For pools whose uberblock does not record one.
const DEFAULT_INTERVAL_MS: u32 = 1000;
const FIRST: [u32; 1] = [0];

/// The right to change a pool, while its newest uberblock is the one seen last.
#[derive(Clone)]
pub struct Stake {
    legs: Legs,
    seen: Uberblock,
    /// Before a claim.
    original: Option<Uberblock>,
}

/// The right to change a pool that needed no watch, or, once claimed, of one watched. May be dropped at any
/// time: a claim not taken back only uses up sequence numbers of its second.
///
/// # Errors
/// [`MultihostError::Active`]; [`MultihostError::LegsMissing`], [`MultihostError::LegsFailed`].
#[boxed]
pub async fn begin_stake(
    legs: Legs,
    seen: Uberblock,
    watched: Option<Watched>,
    tell: &(dyn Fn(Waiting) + Sync),
) -> Result<Stake> {
    let stake = Stake { legs, seen, original: None };
    let Some(watched) = watched else { return Ok(stake) };
    let pool = stake.legs.pool.clone();
    if watched.newest.rank() != seen.rank() {
        return Err(stake.legs.active().of(&pool));
    }
    match stake.claim(tell).await {
        Ok(claimed) => Ok(claimed),
        Err((stake, error)) => {
            stake.give_back().await;
            Err(error.of(&pool))
        }
    }
}

impl Stake {
    async fn claim(mut self, tell: &(dyn Fn(Waiting) + Sync)) -> Result<Stake, (Stake, MultihostError)> {
        let rt = self.legs.runtime.clone();
        let original = self.seen;
        if self.legs.newest().await.map(|newest| newest.rank()) != Some(original.rank()) {
            let error = self.legs.active();
            return Err((self, error));
        }
        self.original = Some(original);
        let interval = original.mmp_interval_ms().unwrap_or(DEFAULT_INTERVAL_MS);
        let interval = Duration::from_millis(interval.into());
        // If the numbers of this second are used up, they begin anew.
        let first = original.mmp_seq().filter(|seq| *seq < u16::MAX).unwrap_or(0);
        for round in 0..CLAIM_ROUNDS {
            tell(Waiting { phase: Phase::Claim, done: interval * round, total: interval * CLAIM_ROUNDS });
            let seq = first + 1 + (rt.random_u64() % u64::from(u16::MAX - first)) as u16;
            let claimed = original.with_mmp_seq(seq);
            if let Err(error) = self.legs.write(&claimed, &FIRST).await {
                return Err((self, error));
            }
            rt.sleep(interval).await;
            if self.legs.newest().await.map(|newest| newest.rank()) != Some(claimed.rank()) {
                let error = self.legs.active();
                return Err((self, error));
            }
            self.seen = claimed;
        }
        Ok(self)
    }

    /// Undoes a claim, so that sequence numbers don't run out.
    #[boxed]
    pub async fn give_back(&self) {
        if let Some(original) = &self.original {
            // Only numbers are lost.
            drop(self.legs.write(original, &FIRST).await);
        }
    }

    /// Makes the pool visibly ours right before its first change: nobody may have written since, and all
    /// labels of the present devices get a heartbeat. Returns a moment at which the pool certainly was, and
    /// the heartbeat.
    ///
    /// # Errors
    /// As [`begin_stake`].
    #[boxed]
    pub async fn take(&self, settings: &MultihostSettings) -> Result<(Instant, Uberblock)> {
        self.put_down(settings).await.map_err(|error| error.of(&self.legs.pool))
    }

    async fn put_down(&self, settings: &MultihostSettings) -> Result<(Instant, Uberblock), MultihostError> {
        if self.legs.newest().await.map(|newest| newest.rank()) != Some(self.seen.rank()) {
            return Err(self.legs.active());
        }
        let now_s = self.legs.runtime.unix_time_ns() / 1_000_000_000;
        let seq = match now_s > self.seen.timestamp_s {
            true => 1,
            false => self.seen.mmp_seq().unwrap_or(0).saturating_add(1),
        };
        let delay_ns = settings.interval().as_nanos() as u64;
        let timestamp_s = self.seen.timestamp_s.max(now_s);
        let beat = Uberblock { timestamp_s, ..self.seen }.with_mmp(Some((delay_ns, settings.recorded(seq))));
        let all: Vec<u32> = (0..VDEV_LABELS).collect();
        self.legs.write_where_possible(&beat, &all).await?;
        let now = self.legs.runtime.now();
        match self.legs.newest().await.map(|newest| newest.rank()) == Some(beat.rank()) {
            true => Ok((now, beat)),
            false => Err(self.legs.active()),
        }
    }
}

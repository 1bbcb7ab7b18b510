//! Whether there is room for a change: the pool's size, quotas and reservations.
//!
//! Idea: a change says how much it may write before it is made, and takes a hold for that ([`Engine::hold_for`]). It is compared, on the way
//! from its dataset up to the root, with what the last group on disk uses and with all that has changed since, at its worst.
//!
//! ```text
//!   used                      >= quota          refused: ENOSPC at the root, else EDQUOT
//!   used + changes * 24       >= quota * 33/32  wait for the group: most will have become much less
//!   else                                        go on; what fits into a reservation is no matter of those above
//! ```
//!
//! Frees need no room but the pool's own, and of that half of the slop is for them. Space that was freed comes back two groups later:
//! who finds the pool full waits for that.
//!
//! Source: OpenZFS `dsl_dir.c` (`dsl_dir_tempreserve_impl`), `dsl_dataset.c` (`dsl_dataset_check_quota`), `dsl_pool.c`
//! (`dsl_pool_unreserved_space`).

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_pool::alloc::AllocClass;
use parking_lot::Mutex;

use super::{Engine, Hold};
use crate::dsl::{Dataset, Dir};
use crate::error::{DatasetError, Result};
use crate::live::LiveObjset;

/// `spa_asize_inflation`: three copies, each with all the parity there can be, and as much again for what leads to them.
const ASIZE_INFLATION: u64 = 24;
/// Groups after which all that was freed can be allocated again: `TXG_DEFER_SIZE`, and the one that frees.
const PATIENCE: usize = 4;

/// What a change needs.
#[derive(Debug, Clone, Copy)]
pub enum Need {
    /// Bytes of content that it writes at most, and something for names and attributes.
    Write(u64),
    /// It frees more than it writes.
    Free,
}

/// Accounts of opened datasets, and what holds have asked for.
#[derive(Default)]
pub(super) struct Room(Mutex<State>);

#[derive(Default)]
struct State {
    as_of: Txg,
    pool: PoolRoom,
    accounts: BTreeMap<DatasetId, Arc<Accounts>>,
    asked: BTreeMap<DatasetId, u64>,
    asked_by_all: u64,
}

/// What the pool can hold.
#[derive(Debug, Default, Clone, Copy)]
struct PoolRoom {
    for_writes: u64,
    for_frees: u64,
}

/// A dataset and the directories from its own up to the root, as a group left them.
#[derive(Debug, Default)]
struct Accounts {
    referenced: u64,
    unique: u64,
    refquota: u64,
    refreservation: u64,
    dirs: Vec<DirAccount>,
}

#[derive(Debug)]
struct DirAccount {
    id: ObjectId,
    used: u64,
    quota: u64,
    reserved: u64,
}

/// Whether a change may be made.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Fits,
    /// It may, once what has changed is on disk.
    Wait,
    /// The pool is full.
    Full,
    OverQuota,
}

/// Gives back what a hold has asked for.
pub(super) struct Asked {
    room: Arc<Room>,
    dataset: DatasetId,
    bytes: u64,
}

impl Drop for Asked {
    fn drop(&mut self) {
        let mut state = self.room.0.lock();
        if let Some(asked) = state.asked.get_mut(&self.dataset) {
            *asked -= self.bytes;
            state.asked_by_all -= self.bytes;
        }
    }
}

impl Engine {
    /// Takes a hold for a change of a dataset; waits while there is too much in memory, or where room may come.
    ///
    /// # Errors
    /// [`DatasetError::NoSpace`], [`DatasetError::OverQuota`]; [`DatasetError::Stopped`].
    pub async fn hold_for(&self, dataset: &LiveObjset, need: Need) -> Result<Hold> {
        let mut patience = PATIENCE;
        loop {
            self.wait_for_memory().await?;
            self.read_accounts(dataset.dataset_id()).await?;
            let hold = self.hold().await?;
            let verdict = match self.ask(dataset.dataset_id(), need) {
                Ok(asked) => return Ok(hold.with(asked)),
                Err(verdict) => verdict,
            };
            drop(hold);
            if verdict != Verdict::Wait {
                patience -= 1;
                if patience == 0 || !self.has_more_room_soon() {
                    return Err(self.refused(dataset.dataset_id(), need, verdict));
                }
            }
            // A group, whether anything has changed or not: time passes in groups.
            self.run(|_| Box::pin(async { Ok(()) })).await?;
        }
    }

    fn has_more_room_soon(&self) -> bool {
        let deferred = self.0.allocator.class_space(AllocClass::Normal).deferred_bytes;
        deferred > 0 || self.dirty_bytes() > 0
    }

    /// Asks for room, and notes it.
    fn ask(&self, dataset: DatasetId, need: Need) -> Result<Asked, Verdict> {
        let dirty_of_all = self.dirty_bytes();
        let mut state = self.0.room.0.lock();
        // Opened a moment ago: its first change goes through.
        if let Some(accounts) = state.accounts.get(&dataset) {
            // What fits beside all that is in flight anywhere need not be looked at more closely.
            let of_all = (dirty_of_all + state.asked_by_all).saturating_mul(ASIZE_INFLATION);
            if accounts.verdict(need, state.pool, |_| of_all) != Verdict::Fits {
                let in_flight = self.in_flight(&state);
                match accounts.verdict(need, state.pool, |dir| in_flight.get(&dir).copied().unwrap_or(0)) {
                    Verdict::Fits => {}
                    other => return Err(other),
                }
            }
        }
        let bytes = need.bytes();
        *state.asked.entry(dataset).or_default() += bytes;
        state.asked_by_all += bytes;
        Ok(Asked { room: self.0.room.clone(), dataset, bytes })
    }

    /// What may yet be written below each directory.
    fn in_flight(&self, state: &State) -> BTreeMap<ObjectId, u64> {
        let mut in_flight: BTreeMap<ObjectId, u64> = BTreeMap::new();
        for (id, open) in self.0.datasets.lock().iter() {
            let asked = state.asked.get(id).copied().unwrap_or(0);
            let bytes = (open.objset.dirty_bytes() + asked).saturating_mul(ASIZE_INFLATION);
            for dir in state.accounts.get(id).iter().flat_map(|accounts| &accounts.dirs) {
                *in_flight.entry(dir.id).or_default() += bytes;
            }
        }
        in_flight
    }

    /// Reads the accounts of all opened datasets, once for each group on disk, and when `dataset` has come since.
    async fn read_accounts(&self, dataset: DatasetId) -> Result<()> {
        let as_of = self.synced()?;
        {
            let state = self.0.room.0.lock();
            if state.as_of == as_of && state.accounts.contains_key(&dataset) {
                return Ok(());
            }
        }
        let open: Vec<DatasetId> = self.0.datasets.lock().keys().copied().collect();
        let mos = self.mos().await?;
        let deferred = self.0.allocator.class_space(AllocClass::Normal).deferred_bytes;
        let for_writes = mos.usable_bytes().await?.saturating_sub(deferred);
        let for_frees = for_writes.saturating_add(mos.slop_bytes() / 2);
        let mut accounts = BTreeMap::new();
        for id in open {
            // One that is being destroyed has none.
            if let Ok(dataset) = mos.dataset_by_id(id).await {
                accounts.insert(id, Arc::new(Accounts::of(&dataset).await?));
            }
        }
        let mut state = self.0.room.0.lock();
        (state.as_of, state.pool, state.accounts) = (as_of, PoolRoom { for_writes, for_frees }, accounts);
        Ok(())
    }

    fn refused(&self, dataset: DatasetId, need: Need, verdict: Verdict) -> DatasetError {
        let name = self.0.pool.read().name().into();
        match verdict {
            Verdict::OverQuota => DatasetError::OverQuota { pool: name, dataset },
            _ => DatasetError::NoSpace { name, needed_bytes: need.bytes(), available_bytes: 0 },
        }
    }
}

impl Need {
    fn bytes(self) -> u64 {
        match self {
            Need::Write(bytes) => bytes,
            Need::Free => 0,
        }
    }
}

impl Accounts {
    async fn of(dataset: &Dataset) -> Result<Accounts> {
        let phys = dataset.phys();
        let chain = std::iter::successors(Some(dataset.dir()), |dir| dir.parent());
        let account = |dir: &Dir| {
            let phys = dir.phys();
            DirAccount {
                id: dir.id(),
                used: phys.used_bytes,
                quota: phys.quota_bytes,
                reserved: phys.reserved_bytes,
            }
        };
        Ok(Accounts {
            referenced: phys.referenced_bytes,
            unique: phys.unique_bytes,
            refquota: dataset.setting("refquota").await?,
            refreservation: dataset.setting("refreservation").await?,
            dirs: chain.map(account).collect(),
        })
    }

    /// `in_flight`: what may yet be written below a directory.
    fn verdict(&self, need: Need, pool: PoolRoom, in_flight: impl Fn(ObjectId) -> u64) -> Verdict {
        let frees = matches!(need, Need::Free);
        let mut asked = need.bytes().max(1).saturating_mul(ASIZE_INFLATION);
        for (depth, dir) in self.dirs.iter().enumerate() {
            let is_root = depth + 1 == self.dirs.len();
            let flying = in_flight(dir.id);
            let (mut used, mut promised) = (dir.used, 0);
            if depth == 0 {
                if !frees && self.refquota != 0 && self.referenced.saturating_add(flying) >= self.refquota {
                    let may_shrink = flying > 0 || self.referenced < self.refquota;
                    return if may_shrink { Verdict::Wait } else { Verdict::OverQuota };
                }
                // What is kept for this dataset counts as used, but not against itself.
                let kept = self.refreservation.saturating_sub(self.unique);
                used = used.saturating_sub(kept);
                promised = asked.min(kept.saturating_sub(flying));
            }
            let mut quota = if frees || dir.quota == 0 { u64::MAX } else { dir.quota };
            let mut over = Verdict::OverQuota;
            let pool_room = if frees { pool.for_frees } else { pool.for_writes };
            if is_root && pool_room < quota {
                (quota, over) = (pool_room, Verdict::Full);
            }
            if used >= quota {
                return over;
            }
            let stretch = if quota == u64::MAX { 0 } else { quota >> 5 };
            if used.saturating_add(flying) >= quota.saturating_add(stretch) {
                return Verdict::Wait;
            }
            let before = used.saturating_add(flying);
            let after = before.saturating_add(asked - promised);
            asked = after.max(dir.reserved) - before.max(dir.reserved);
            if asked == 0 {
                return Verdict::Fits;
            }
        }
        Verdict::Fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const POOL: PoolRoom = PoolRoom { for_writes: 1000 * MIB, for_frees: 1010 * MIB };

    /// Used, quota and reservation of a directory, in MiB.
    fn accounts(dirs: &[(u64, u64, u64)]) -> Accounts {
        let dir = |(id, &(used, quota, reserved)): (u64, &(u64, u64, u64))| DirAccount {
            id: ObjectId(id),
            used: used * MIB,
            quota: quota * MIB,
            reserved: reserved * MIB,
        };
        Accounts { dirs: (0..).zip(dirs).map(dir).collect(), ..Accounts::default() }
    }

    fn verdict(accounts: &Accounts, need: Need, flying: u64) -> Verdict {
        accounts.verdict(need, POOL, |_| flying * MIB)
    }

    #[test]
    fn a_full_pool_refuses_writes_and_takes_frees() {
        let full = accounts(&[(10, 0, 0), (1000, 0, 0)]);
        assert_eq!(verdict(&full, Need::Write(1), 0), Verdict::Full);
        assert_eq!(verdict(&full, Need::Free, 0), Verdict::Fits);
        assert_eq!(verdict(&accounts(&[(10, 0, 0), (1010, 0, 0)]), Need::Free, 0), Verdict::Full);
        let nearly = accounts(&[(10, 0, 0), (999, 0, 0)]);
        assert_eq!(verdict(&nearly, Need::Write(MIB), 0), Verdict::Fits);
        assert_eq!(verdict(&nearly, Need::Write(MIB), 40), Verdict::Wait);
    }

    #[test]
    fn quotas_hold_at_every_level() {
        assert_eq!(verdict(&accounts(&[(10, 10, 0), (10, 0, 0)]), Need::Write(1), 0), Verdict::OverQuota);
        assert_eq!(verdict(&accounts(&[(10, 0, 0), (50, 40, 0), (50, 0, 0)]), Need::Write(1), 0), {
            Verdict::OverQuota
        });
        assert_eq!(verdict(&accounts(&[(10, 10, 0), (10, 0, 0)]), Need::Free, 0), Verdict::Fits);
        let small = Accounts { referenced: 5 * MIB, refquota: 6 * MIB, ..accounts(&[(10, 0, 0)]) };
        assert_eq!(verdict(&small, Need::Write(1), 0), Verdict::Fits);
        assert_eq!(verdict(&small, Need::Write(1), 1), Verdict::Wait);
        let over = Accounts { referenced: 6 * MIB, ..small };
        assert_eq!(verdict(&over, Need::Write(1), 0), Verdict::OverQuota);
    }

    #[test]
    fn what_is_reserved_can_be_written_though_the_pool_is_full() {
        assert_eq!(verdict(&accounts(&[(10, 0, 100), (1000, 0, 0)]), Need::Write(MIB), 0), Verdict::Fits);
        assert_eq!(verdict(&accounts(&[(90, 0, 100), (1000, 0, 0)]), Need::Write(MIB), 0), Verdict::Full);
        let volume = Accounts {
            unique: 10 * MIB,
            refreservation: 200 * MIB,
            ..accounts(&[(200, 0, 0), (1000, 0, 0)])
        };
        assert_eq!(verdict(&volume, Need::Write(MIB), 0), Verdict::Fits);
        let used_up = Accounts { unique: 200 * MIB, ..volume };
        assert_eq!(verdict(&used_up, Need::Write(MIB), 0), Verdict::Full);
    }
}

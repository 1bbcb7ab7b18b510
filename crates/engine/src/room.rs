//! Space checks: whether pool size, quotas and reservations allow a change.
//!
//! Idea: a change states beforehand how much it may write ([`Engine::change`]). From its dataset up to the
//! root, that is compared with the space used by the last txg on disk plus the worst case of all changes
//! since.
//!
//! ```text
//!   used                      >= quota          refused: ENOSPC at the root, else EDQUOT
//!   used + changes * 24       >= quota * 33/32  wait for the txg: the real size is mostly much less
//!   else                                        go on; a reservation shields those above it
//! ```
//!
//! Frees are checked only against the pool's size, and may use half of the slop. Freed space returns two txgs
//! later; a change that finds the pool full waits for it.
//!
//! Source: OpenZFS `dsl_dir.c` (`dsl_dir_tempreserve_impl`), `dsl_dataset.c` (`dsl_dataset_check_quota`),
//! `dsl_pool.c` (`dsl_pool_unreserved_space`).

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_dataset::{Dir, Mos, setting_in};
use cenote_format::dsl::DslDirPhys;
use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_object::{Result, Zap};
use parking_lot::Mutex;

/// `spa_asize_inflation`: three copies with the most parity, twice for indirect blocks.
pub(crate) const ASIZE_INFLATION: u64 = 24;
/// Txgs until freed space can be reused: `TXG_DEFER_SIZE`, and the one that frees.
pub(crate) const PATIENCE: usize = 4;

/// Space need of a change.
#[derive(Debug, Clone, Copy)]
pub enum Need {
    /// Most bytes written; an allowance for names and attributes.
    Write(u64),
    /// Frees more than it writes.
    Free,
}

/// Accounts of datasets that have changed, and reservations of holds.
#[derive(Default)]
pub(crate) struct Room(pub(crate) Mutex<RoomState>);

#[derive(Default)]
pub(crate) struct RoomState {
    pub(crate) as_of: Txg,
    pub(crate) pool: PoolRoom,
    /// Count of renames ([`crate::Names`]) when the directories of `accounts` were read.
    pub(crate) renames: u64,
    /// Each as of its dataset's last change.
    pub(crate) accounts: BTreeMap<DatasetId, Arc<Accounts>>,
    pub(crate) asked: BTreeMap<DatasetId, u64>,
    pub(crate) asked_by_all: u64,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct PoolRoom {
    pub(crate) for_writes: u64,
    pub(crate) for_frees: u64,
}

/// A dataset and its directories up to the root, as of a txg.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    pub(crate) as_of: Txg,
    pub(crate) referenced: u64,
    pub(crate) unique: u64,
    pub(crate) refquota: u64,
    pub(crate) refreservation: u64,
    pub(crate) dirs: Vec<DirAccount>,
}

#[derive(Debug)]
pub(crate) struct DirAccount {
    pub(crate) id: ObjectId,
    pub(crate) used: u64,
    pub(crate) quota: u64,
    pub(crate) reserved: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fits,
    /// Retry after the changes are on disk.
    Wait,
    Full,
    OverQuota,
}

pub(crate) struct Asked {
    pub(crate) room: Arc<Room>,
    pub(crate) dataset: DatasetId,
    pub(crate) bytes: u64,
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

impl Need {
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Need::Write(bytes) => bytes,
            Need::Free => 0,
        }
    }
}

impl Accounts {
    /// Needs no names: to find one, all siblings would be looked at. `None`: the dataset is being destroyed.
    pub(crate) async fn of(mos: &Mos, dataset: DatasetId, as_of: Txg) -> Result<Option<Accounts>> {
        let Ok(phys) = mos.dataset_phys(dataset).await else { return Ok(None) };
        let Ok(chain) = Dir::chain(mos, phys.dir).await else { return Ok(None) };
        let (mut refquota, mut refreservation) = (0, 0);
        if let Some((_, own)) = chain.first().filter(|(_, own)| own.props_zap.0 != 0) {
            let props = Zap::open_id(mos.objset(), own.props_zap).await?;
            refquota = setting_in(&props, "refquota").await?;
            refreservation = setting_in(&props, "refreservation").await?;
        }
        let account = |(id, phys): (ObjectId, DslDirPhys)| DirAccount {
            id,
            used: phys.used_bytes,
            quota: phys.quota_bytes,
            reserved: phys.reserved_bytes,
        };
        Ok(Some(Accounts {
            as_of,
            referenced: phys.referenced_bytes,
            unique: phys.unique_bytes,
            refquota,
            refreservation,
            dirs: chain.into_iter().map(account).collect(),
        }))
    }

    /// `in_flight`: most bytes yet to be written below a directory.
    pub(crate) fn verdict(&self, need: Need, pool: PoolRoom, in_flight: impl Fn(ObjectId) -> u64) -> Verdict {
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
                // The refreservation counts as used, except against its own dataset.
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

    /// From used, quota and reservation in MiB.
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

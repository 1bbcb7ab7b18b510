//! Space accounting: charges births and deaths of blocks to their dataset and the directories above.
//!
//! ```text
//!   dataset    referenced, unique          of this version
//!   dir        used by head, snapshots     of all its versions
//!   parent ... used by children            sums; the larger of reservation and use
//! ```
//!
//! A dead block born after the last snapshot is freed. Another goes to the deadlist, which lists blocks that
//! only snapshots hold, and moves from the head's account to the snapshots'.
//!
//! All sums cover a whole txg; the order of births and deaths within it does not matter.
//!
//! Source: OpenZFS `dsl_dataset.c` (`dsl_dataset_block_born`, `dsl_dataset_block_kill`), `dsl_dir.c`
//! (`dsl_dir_diduse_transfer_space`).

use cenote_boxed::boxed;
use cenote_codec::compress::Compression;
use cenote_dataset::dir::ABOVE;
use cenote_format::Phys;
use cenote_format::blkptr::Blkptr;
use cenote_format::bpobj::BpobjEntry;
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::{DD_FLAG_USED_BREAKDOWN, DslDatasetPhys, DslDirPhys, UsedBreakdown};
use cenote_format::units::{DatasetId, ObjectId, Txg};
use cenote_object::deadlist::{BlockLists, DeadlistEdit};
use cenote_object::trail::Trail;
use cenote_object::{Edit, Result};

use crate::bookmarks::note_in_bookmarks;
use crate::context::SyncContext;
use crate::livelist::{drop_useless_livelist, livelist, note_in_livelist};
use crate::store::sink::Ledger;
use crate::store::space_delta::SpaceDelta;

/// Block size of the deferred list; small, since each txg writes it.
const DEFERRED_BLOCK_BYTES: u32 = 16 << 10;

/// Accounts of a directory, `dd_used_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// `DD_USED_HEAD`.
    Head,
    /// `DD_USED_SNAP`.
    Snapshots,
    /// `DD_USED_CHILD`.
    Children,
    /// `DD_USED_CHILD_RSRV`.
    ChildrenReservation,
    /// `DD_USED_REFRSRV`.
    Refreservation,
}

impl Account {
    fn of(self, breakdown: &mut UsedBreakdown) -> &mut u64 {
        match self {
            Account::Head => &mut breakdown.head_bytes,
            Account::Snapshots => &mut breakdown.snapshots_bytes,
            Account::Children => &mut breakdown.children_bytes,
            Account::ChildrenReservation => &mut breakdown.children_reservation_bytes,
            Account::Refreservation => &mut breakdown.refreservation_bytes,
        }
    }
}

impl SyncContext {
    /// `reserved_bytes` is the refreservation.
    pub(crate) async fn settle(
        &mut self,
        dataset: DatasetId,
        bp: Blkptr,
        ledger: Ledger,
        reserved_bytes: u64,
    ) -> Result<()> {
        let id = ObjectId(dataset.0);
        let mut head = self.dataset_phys(id).await?;
        let (mut gone, mut kept) = (SpaceDelta::default(), Vec::new());
        if let Some(livelist) = livelist(self, head.dir).await? {
            note_in_livelist(self, head.dir, livelist, &ledger.births, &ledger.dead).await?;
        }
        note_in_bookmarks(self, id, head.prev_snapshot_txg, &ledger.dead).await?;
        for dead in ledger.dead {
            if dead.allocation_birth() > head.prev_snapshot_txg {
                gone = gone + self.space_of(&dead);
                self.free(dead);
            } else {
                kept.push(dead);
            }
        }
        let kept_space = self.keep_for_snapshots(&head, &kept).await?;

        let unique_before = head.unique_bytes.max(reserved_bytes);
        let unique = ledger.born + -gone;
        head.bp = bp;
        add(&mut head.unique_bytes, unique.used);
        let referenced = unique + -kept_space;
        add(&mut head.referenced_bytes, referenced.used);
        add(&mut head.compressed_bytes, referenced.compressed);
        add(&mut head.uncompressed_bytes, referenced.uncompressed);
        let delta = head.unique_bytes.max(reserved_bytes) as i64 - unique_before as i64;
        self.set_dataset_phys(id, &head).await?;
        self.charge(
            head.dir,
            SpaceDelta { used: delta, ..unique },
            unique.used,
            Account::Refreservation,
            Account::Head,
        )
        .await?;
        match livelist(self, head.dir).await? {
            Some(_) => drop_useless_livelist(self, head.dir).await,
            None => Ok(()),
        }
    }

    /// Moves dead blocks to the deadlist of snapshots; returns their space.
    async fn keep_for_snapshots(&mut self, head: &DslDatasetPhys, dead: &[Blkptr]) -> Result<SpaceDelta> {
        let mut space = SpaceDelta::default();
        if dead.is_empty() {
            return Ok(space);
        }
        let mut previous = self.dataset_phys(head.prev_snapshot).await?;
        let origin_txg = self.origin_txg(head.dir).await?;
        let (mut only_previous, mut of_this_dir) = (0, 0);
        for bp in dead {
            let one = self.space_of(bp);
            space = space + one;
            if bp.allocation_birth() > previous.prev_snapshot_txg {
                only_previous += one.used;
            }
            if bp.allocation_birth() > origin_txg {
                of_this_dir += one.used;
            }
        }
        // A clone's first snapshot is its origin, whose next version is another dataset: the block is not
        // unique to it.
        if only_previous != 0 && self.is_next(&previous, head).await? {
            add(&mut previous.unique_bytes, only_previous);
            self.set_dataset_phys(head.prev_snapshot, &previous).await?;
        }
        match self.append_to_deadlist(head.deadlist, dead).await {
            // With the last of its snapshots their space leaks, nothing else.
            Err(error) if error.is_damage() => {
                self.syncing.pool.read_errors().note_unlisted(space.used.unsigned_abs(), &error);
            }
            done => done?,
        }
        self.transfer(head.dir, of_this_dir, Account::Head, Account::Snapshots).await?;
        Ok(space)
    }

    /// Makes a block list.
    #[boxed]
    pub async fn make_list(&self) -> Result<ObjectId> {
        BlockLists::new(&self.edit(), &self.dsize()).create().await
    }

    /// Makes a list of deferred frees. Uncompressed: passes converge sooner if sizes don't change.
    #[boxed]
    pub async fn make_deferred_list(&self) -> Result<ObjectId> {
        let (edit, list) = (self.edit(), self.make_list().await?);
        edit.set_block_bytes(list, DEFERRED_BLOCK_BYTES).await?;
        edit.set_storage(list, 0, Compression::Off as u8).await?;
        Ok(list)
    }

    pub(crate) async fn append_to_list(&self, list: ObjectId, blocks: &[Blkptr]) -> Result<()> {
        BlockLists::new(&self.edit(), &self.dsize()).append(list, &entries(blocks)).await.map(|_| ())
    }

    pub(crate) async fn take_list(&self, list: ObjectId) -> Result<Vec<Blkptr>> {
        BlockLists::new(&self.edit(), &self.dsize()).take_all(list).await
    }

    /// Makes an empty deadlist.
    #[boxed]
    pub async fn make_deadlist(&self) -> Result<ObjectId> {
        let (edit, dsize) = (self.edit(), self.dsize());
        Ok(DeadlistEdit::create(BlockLists::new(&edit, &dsize)).await?.object())
    }

    /// Makes an empty deadlist with the keys below a txg of another.
    #[boxed]
    pub async fn clone_deadlist(&self, deadlist: ObjectId, below: Txg) -> Result<ObjectId> {
        let (edit, dsize) = (self.edit(), self.dsize());
        let opened = self.open_deadlist(BlockLists::new(&edit, &dsize), deadlist).await?;
        let clone = opened.clone_keys(below).await?;
        self.close_deadlist(opened).await?;
        Ok(clone)
    }

    /// Adds a key: blocks born after it get their own list.
    #[boxed]
    pub async fn add_deadlist_key(&self, deadlist: ObjectId, key: Txg) -> Result<()> {
        let (edit, dsize) = (self.edit(), self.dsize());
        let lists = BlockLists::new(&edit, &dsize);
        if !self.deadlists.lock().is_open(deadlist) {
            self.engine.head_deadlists.lock().take(deadlist);
            return DeadlistEdit::add_key_to(lists, deadlist, key).await;
        }
        let mut opened = self.open_deadlist(lists, deadlist).await?;
        opened.add_key(key).await?;
        self.close_deadlist(opened).await
    }

    /// Size of a block in accounts.
    pub fn dsize(&self) -> impl Fn(&Blkptr) -> u64 + Sync + use<> {
        let pool = self.syncing.pool.clone();
        move |bp| pool.tree().vdevs().dsize(bp)
    }

    /// Whether `next` directly follows the snapshot in its own chain.
    async fn is_next(&self, snapshot: &DslDatasetPhys, next: &DslDatasetPhys) -> Result<bool> {
        Ok(self.dataset_phys(snapshot.next_snapshot).await?.guid == next.guid)
    }

    /// Creation txg of a clone's origin; 0: no clone.
    #[boxed]
    pub async fn origin_txg(&self, dir: ObjectId) -> Result<Txg> {
        match self.dir_phys(dir).await?.origin {
            ObjectId(0) => Ok(Txg(0)),
            origin => Ok(self.dataset_phys(origin).await?.creation_txg),
        }
    }

    /// Charges a directory (`dsl_dir_diduse_space`).
    #[boxed]
    pub async fn use_space(&mut self, dir: ObjectId, space: SpaceDelta, account: Account) -> Result<()> {
        self.charge(dir, space, space.used, account, account).await
    }

    /// Charges `space` to a directory, `to_new` of it to account `new` and the rest to `old`, and so on
    /// upwards (`dsl_dir_diduse_transfer_space`).
    pub(crate) async fn charge(
        &mut self,
        dir: ObjectId,
        space: SpaceDelta,
        to_new: i64,
        old: Account,
        new: Account,
    ) -> Result<()> {
        let (mut at, mut space, mut to_new, mut old, mut new) = (dir, space, to_new, old, new);
        let mut trail = Trail::new(&self.edit().view(), ABOVE);
        while at.0 != 0 {
            trail.enter(at)?;
            let mut phys = self.dir_phys(at).await?;
            let accounted = phys.used_bytes.max(phys.reserved_bytes);
            add(&mut phys.used_bytes, space.used);
            add(&mut phys.compressed_bytes, space.compressed);
            add(&mut phys.uncompressed_bytes, space.uncompressed);
            if phys.flags & DD_FLAG_USED_BREAKDOWN != 0 {
                add(old.of(&mut phys.used_breakdown), space.used - to_new);
                add(new.of(&mut phys.used_breakdown), to_new);
            }
            let accounted = phys.used_bytes.max(phys.reserved_bytes) as i64 - accounted as i64;
            self.set_dir_phys(at, &phys).await?;
            to_new = space.used;
            space.used = accounted;
            (old, new) = (Account::ChildrenReservation, Account::Children);
            at = phys.parent;
        }
        Ok(())
    }

    /// Moves space between accounts of a directory (`dsl_dir_transfer_space`).
    #[boxed]
    pub async fn transfer(&mut self, dir: ObjectId, bytes: i64, from: Account, to: Account) -> Result<()> {
        let mut phys = self.dir_phys(dir).await?;
        if bytes != 0 && phys.flags & DD_FLAG_USED_BREAKDOWN != 0 {
            add(from.of(&mut phys.used_breakdown), -bytes);
            add(to.of(&mut phys.used_breakdown), bytes);
            self.set_dir_phys(dir, &phys).await?;
        }
        Ok(())
    }

    /// A dataset or snapshot as of this txg.
    #[boxed]
    pub async fn dataset_phys(&self, id: ObjectId) -> Result<DslDatasetPhys> {
        bonus(&self.edit(), id).await
    }

    /// A directory as of this txg.
    #[boxed]
    pub async fn dir_phys(&self, id: ObjectId) -> Result<DslDirPhys> {
        bonus(&self.edit(), id).await
    }

    /// Changes a dataset or snapshot.
    #[boxed]
    pub async fn set_dataset_phys(&self, id: ObjectId, phys: &DslDatasetPhys) -> Result<()> {
        self.edit().set_bonus(id, ObjectType::DSL_DATASET, phys.encode(Endian::NATIVE).into()).await
    }

    /// Changes a directory.
    #[boxed]
    pub async fn set_dir_phys(&self, id: ObjectId, phys: &DslDirPhys) -> Result<()> {
        self.edit().set_bonus(id, ObjectType::DSL_DIR, phys.encode(Endian::NATIVE).into()).await
    }
}

async fn bonus<P: Phys>(edit: &Edit, id: ObjectId) -> Result<P> {
    let view = edit.view();
    let dnode = view.dnode(id).await?;
    P::decode(dnode.bonus(), dnode.endian()).map_err(|e| view.format(id, e))
}

pub(crate) fn entries(blocks: &[Blkptr]) -> Vec<BpobjEntry> {
    blocks.iter().map(|&bp| BpobjEntry { bp, freed: false }).collect()
}

/// Adds a signed delta; stops at zero in a damaged pool.
pub fn add(account: &mut u64, delta: i64) {
    *account = account.saturating_add_signed(delta);
}

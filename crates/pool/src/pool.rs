//! An assembled pool: a cheap handle for reading and writing blocks.
//!
//! A pool is assembled twice. The labels alone give a tree that can read the MOS. The MOS holds the trusted
//! configuration, from which the same devices are assembled again.
//!
//! Idea: the pool itself reads, writes, frees and verifies blocks. Everything else is behind a face that
//! borrows it:
//!
//! ```text
//!   tree()         vdevs, configuration, devices that come and go      pool/tree
//!   counters()     errors and load of each leaf                        pool/counters
//!   devices()      devices that hang, are cut short or not the leaf's  devices
//!   lacking()      leaves that lack data                               lacking
//!   repair()       heals, scrubs, restores blocks                      heal
//!   by_range()     copies and fills ranges, blind to blocks            by_range
//!   expansion()    of a RAID-Z                                         reflow
//!   labels()       makes a txg the pool's state                        label/write
//!   txg_writes()   the steps of a txg's writes                         write/steps
//!   log_blocks()   blocks of intent logs                               write/log
//!   as_stored()    blocks not decoded                                  as_stored
//!   suspension()   waits for devices                                   suspend
//!   read_errors()  faults met, to be handled later                     read_errors
//! ```
//!
//! Locking: a [`Pool`] may be cloned and used from any task. Its parts synchronise themselves.

mod counters;
mod tree;

use crate::alloc::{Allocator, Keeper, KeptSpace};
use crate::config::{PoolConfig, PoolState};
use crate::discover::FoundPool;
use crate::error::Result;
use crate::label::Beats;
use crate::read_errors::ReadErrors;
use crate::second::SecondLevel;
use crate::suspend::state::{Suspension, Waits};
use crate::vdev::missed::Missed;
use crate::vdev::queue::IoClass;
use crate::vdev::reflow::Reflowed;
use crate::write::retained::blocks::Retained;
use cenote_boxed::boxed;
use cenote_codec::checksum::ChecksumSalt;
use cenote_format::indirect::IndirectMapping;
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{Guid, Txg, VdevId};
use cenote_runtime::Runtime;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use tree::Parts;

pub use counters::Counters;
pub use tree::{LeavesInUse, Tree};

/// An assembled pool. Cloning it costs a few atomic increments.
#[derive(Clone)]
pub struct Pool {
    live: Arc<Live>,
    uberblock: Arc<Uberblock>,
    reads: IoClass,
    writes: IoClass,
    /// Whether errors count on the leaf.
    counts: bool,
    waits: Waits,
    /// Keeps the blocks of this uberblock's tree from reuse.
    kept: Option<KeptSpace>,
}

struct Live {
    runtime: Runtime,
    name: String,
    salt: Option<ChecksumSalt>,
    may_be_live: bool,
    tree: Tree,
    read_errors: Arc<ReadErrors>,
    suspension: Suspension,
    beats: Beats,
    retained: Retained,
    /// A larger gang header would have helped.
    cramped: AtomicBool,
    second: RwLock<Option<Arc<dyn SecondLevel>>>,
    /// Set once the pool changes.
    keeper: OnceLock<Arc<Keeper>>,
}

/// Facts from the MOS that labels do not contain.
#[derive(Debug, Clone)]
pub struct Trusted {
    /// Its configuration ([`PoolConfig::from_mos`]).
    pub config: PoolConfig,
    /// Mappings of removed top-level vdevs.
    pub indirect: BTreeMap<VdevId, Arc<IndirectMapping>>,
    /// Txgs that leaves missed according to their DTLs, first and last.
    pub noted: BTreeMap<Guid, Vec<(Txg, Txg)>>,
    /// Txgs that leaves may have missed, with and without a DTL.
    pub behind: BTreeMap<Guid, Vec<(Txg, Txg)>>,
    /// `org.illumos:checksum_salt`.
    pub checksum_salt: Option<[u8; 32]>,
}

impl Pool {
    /// Assembles a pool from labels alone: enough to read the MOS. Blocks of removed vdevs and salted
    /// checksums need [`Pool::with_trusted`]. A missing device fails only reads of blocks that it alone
    /// holds.
    #[boxed]
    pub async fn assemble(rt: &Runtime, found: &FoundPool, uberblock: &Uberblock) -> Result<Pool> {
        let parts = Parts {
            config: found.config.clone(),
            found: Arc::new(found.clone()),
            indirect: BTreeMap::new(),
            missed: Missed::default(),
            noted: BTreeMap::new(),
            reflowed: Reflowed::of(uberblock),
            settings: Arc::default(),
            leaves: &[],
        };
        let live = Live {
            runtime: rt.clone(),
            name: found.config.name.clone(),
            salt: None,
            may_be_live: found.state() == PoolState::Active && !found.is_writable(),
            tree: Tree::new(rt, parts),
            read_errors: Arc::default(),
            suspension: Suspension::default(),
            beats: Beats::default(),
            retained: Retained::default(),
            cramped: AtomicBool::new(false),
            second: RwLock::default(),
            keeper: OnceLock::new(),
        };
        let (reads, writes) = (IoClass::SyncRead, IoClass::AsyncWrite);
        let (live, uberblock) = (Arc::new(live), Arc::new(*uberblock));
        Ok(Pool { live, uberblock, reads, writes, counts: true, waits: Waits::Never, kept: None })
    }

    /// A view at another uberblock, a later one or a checkpoint's, with this view's [`KeptSpace`].
    pub fn at(&self, uberblock: &Uberblock) -> Pool {
        Pool { uberblock: Arc::new(*uberblock), ..self.clone() }
    }

    /// Marks the pool as changing.
    pub fn begin_to_change(&self, space: &Allocator) {
        space.keeper().finish(self.uberblock.txg);
        // An engine that failed to start may have left another keeper.
        drop(self.live.keeper.set(space.keeper().clone()));
    }

    /// A view whose tree stays whole. The space must have been kept before the view was taken. `None`: for
    /// long-term holders, which keep no space.
    pub fn keeping(&self, kept: impl Into<Option<KeptSpace>>) -> Pool {
        Pool { kept: kept.into(), ..self.clone() }
    }

    /// Keeps the on-disk state, if the pool changes.
    pub fn keep_now(&self) -> Option<KeptSpace> {
        self.live.keeper.get().map(|keeper| keeper.keep(false))
    }

    /// Whether this view's blocks cannot have been freed and overwritten.
    pub fn has_whole_tree(&self) -> bool {
        self.has_kept(None)
    }

    /// For a read with its own `kept` space.
    pub(crate) fn has_kept(&self, kept: Option<&KeptSpace>) -> bool {
        match (kept.or(self.kept.as_ref()), self.live.keeper.get()) {
            (Some(kept), _) => !kept.is_given_up(),
            (None, Some(keeper)) => keeper.is_recent(self.uberblock.txg),
            (None, None) => true,
        }
    }

    /// A view for I/O of a class. A read class leaves writes unchanged, and vice versa.
    pub fn for_class(&self, class: IoClass) -> Pool {
        match class {
            IoClass::SyncRead | IoClass::AsyncRead => Pool { reads: class, ..self.clone() },
            IoClass::SyncWrite | IoClass::AsyncWrite => Pool { writes: class, ..self.clone() },
            _ => Pool { reads: class, writes: class, ..self.clone() },
        }
    }

    /// A view that does not count errors again.
    pub fn without_counting(&self) -> Pool {
        Pool { counts: false, ..self.clone() }
    }

    /// A view with other [`Waits`].
    pub fn waiting(&self, waits: Waits) -> Pool {
        Pool { waits, ..self.clone() }
    }

    pub(crate) fn waits(&self) -> Waits {
        self.waits
    }

    pub(crate) fn counts(&self) -> bool {
        self.counts
    }

    pub(crate) fn reads(&self) -> IoClass {
        self.reads
    }

    pub(crate) fn writes(&self) -> IoClass {
        self.writes
    }

    pub(crate) fn second(&self) -> &RwLock<Option<Arc<dyn SecondLevel>>> {
        &self.live.second
    }

    pub(crate) fn second_level(&self) -> Option<Arc<dyn SecondLevel>> {
        match self.reads {
            IoClass::SyncRead | IoClass::AsyncRead => self.live.second.read().clone(),
            _ => None,
        }
    }

    /// The pool with the MOS's configuration. It keeps devices and error counters, but is independent from
    /// here on.
    #[boxed]
    pub async fn with_trusted(&self, trusted: Trusted) -> Result<Pool> {
        let (name, tree) = (trusted.config.name.clone(), self.tree());
        let before = tree.vdevs();
        let parts = Parts {
            config: trusted.config,
            found: tree.found(),
            indirect: trusted.indirect,
            missed: Missed::of(trusted.behind),
            noted: trusted.noted,
            reflowed: Reflowed::of(&self.uberblock),
            settings: tree.settings().clone(),
            leaves: before.leaves(),
        };
        let tree = Tree::new(self.runtime(), parts);
        // The tree built from labels did not know which leaves are behind.
        let vdevs = tree.vdevs();
        vdevs
            .leaves()
            .iter()
            .filter(|leaf| vdevs.is_lagging(leaf))
            .for_each(|leaf| leaf.forgive_mismatches());
        let live = Live {
            runtime: self.runtime().clone(),
            name,
            salt: trusted.checksum_salt.map(ChecksumSalt::new),
            may_be_live: self.live.may_be_live,
            tree,
            read_errors: self.live.read_errors.clone(),
            suspension: Suspension::default(),
            beats: Beats::default(),
            retained: Retained::default(),
            cramped: AtomicBool::new(false),
            second: RwLock::default(),
            keeper: OnceLock::new(),
        };
        Ok(Pool { live: Arc::new(live), ..self.clone() })
    }

    /// Time, tasks and randomness.
    pub fn runtime(&self) -> &Runtime {
        &self.live.runtime
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.live.name
    }

    /// This view's uberblock.
    pub fn uberblock(&self) -> &Uberblock {
        &self.uberblock
    }

    /// The vdevs, shared by all views.
    pub fn tree(&self) -> &Tree {
        &self.live.tree
    }

    /// Errors and load of each leaf.
    pub fn counters(&self) -> Counters<'_> {
        Counters(self.tree())
    }

    /// Whether the pool waits for its devices.
    pub fn suspension(&self) -> &Suspension {
        &self.live.suspension
    }

    pub(crate) fn beats(&self) -> &Beats {
        &self.live.beats
    }

    pub(crate) fn retained(&self) -> &Retained {
        &self.live.retained
    }

    pub(crate) fn cramped(&self) -> &AtomicBool {
        &self.live.cramped
    }

    /// Faults met by reads, shared by all views.
    pub fn read_errors(&self) -> &ReadErrors {
        &self.live.read_errors
    }

    pub(crate) fn salt(&self) -> Option<&ChecksumSalt> {
        self.live.salt.as_ref()
    }

    /// Whether another system may be writing: the pool was never exported, and we do not hold it.
    pub(crate) fn may_be_live(&self) -> bool {
        self.live.may_be_live
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} txg {})", self.name(), self.uberblock.txg)
    }
}

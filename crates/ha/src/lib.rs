//! Fail-over: several machines may have a pool, one at a time, and take it from each other.
//!
//! ```text
//!   machine a                    witness                       machine b
//!   keeper ── renews each T/4 ──> record of the pool <── reads each T/8 ── keeper
//!      |                          owner, epoch, lease,                        |  unchanged for 9/8 T:
//!      v                          leaves that lack data                       v  takes it
//!   fence: writes pass until T after the last renewal began        import, mounts, targets, addresses
//! ```
//!
//! Idea: the witness is a register with compare-and-swap ([`Witness`]): an object in S3, a key of etcd, or a
//! file. Its record names the pool's owner; all else follows, so machines need no connection to each other:
//!
//! - A fence before the owner's devices closes T after the start of the last successful renewal
//!   ([`cenote_device::Tenure`]). After 9/8 T without a change of the record, the owner can't write any more.
//!   Clocks must agree in speed only, to an eighth.
//! - Of several machines that take the pool, one swaps the record.
//! - A hand-over is a wish in the record, which the owner grants.
//! - Before anything counts as durable on a part of the leaves, the record names the others. A machine that
//!   sees only those is refused, so an older half never wins.
//!
//! Storage with locks of its own (RBD) fences by itself: the lease only decides the turn, and a long absence
//! of the witness does no harm.
//!
//! Not covered: a request under way to a disk without such locks when the lease ends. The margin between T
//! and 9/8 T is for those; NBD servers drop requests of a dead connection.
//!
//! Read in this order: [`Record`], `keeper`, `keeper/tenure`, [`Witness`].
#![forbid(unsafe_code)]

mod head;
mod keeper;
mod nodes;
mod record;
mod settings;
mod witness;

pub use head::{Head, Held, Leave, Opened, Taking};
pub use nodes::{Nodes, OrderError, PoolStatus, Role};
pub use record::{BadRecord, Record, Turn};
pub use settings::{Address, PoolSettings, Settings};
pub use witness::{
    Asking, BucketWitness, EtcdWitness, FolderWitness, Seen, Tag, Witness, WitnessError, Written, open,
};
